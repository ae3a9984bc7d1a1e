"""Datasets on disk and the spec that trains on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flywheel.datasets.manifest import dataset_rows_digest
from flywheel.store.digests import digest, rows_digest
from flywheel.store.files import write_json
from flywheel.store.tables import EXAMPLES, SCHEMA_VERSION
from flywheel.training.spec import TrainSpec, make_spec

if TYPE_CHECKING:
    from flywheel.models import ModelDir
    from flywheel.store.home import Home

FAST = {
    "rank": 4,
    "alpha": 8.0,
    "lr": 2e-2,
    "batch_size": 4,
    "epochs": 3.0,
    "max_steps": 12,
    "checkpoint_every": 4,
    "warmup_share": 0.1,
}
"""A recipe that runs in about a second on the tiny model."""


def two_words(count: int, *, side: str = "train") -> list[dict[str, Any]]:
    """Examples whose answer is ``red`` for odd numbers of marks and ``blue`` for even ones, told apart by one word."""
    return [
        {
            "messages": [
                {"role": "user", "content": f"{'stop' if number % 2 else 'go'} {'!' * (number % 5)} {number}"},
                {"role": "assistant", "content": "red" if number % 2 else "blue"},
            ],
            "train_mask": [False, True],
            "side": side,
        }
        for number in range(count)
    ]


@pytest.fixture
def write_dataset() -> Callable[[Home, list[dict[str, Any]]], str]:
    """``write_dataset(home, rows)`` -> digest; a row needs messages and train_mask, the other columns have defaults."""

    def write(home: Home, rows: list[dict[str, Any]]) -> str:
        examples = []
        for number, row in enumerate(rows):
            example_id = digest([number, row["messages"]])[:32]
            examples.append(
                {
                    "example_id": example_id,
                    "interaction_id": f"chatcmpl-{example_id}",
                    "user_key": f"{number:032x}",
                    "conversation_id": f"chatcmpl-{example_id}",
                    "cluster_id": example_id,
                    "side": row.get("side", "train"),
                    "kind": "sft",
                    "rejected": "",
                    "desirable": None,
                    "messages": json.dumps(row["messages"]),
                    "tools": "",
                    "train_mask": row["train_mask"],
                    "weight": row.get("weight", 1.0),
                    "origin": "new",
                    "generated_by": "",
                }
            )
        name = rows_digest((example["example_id"], example) for example in examples)
        folder = home.datasets / name
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(examples, schema=EXAMPLES), folder / "examples.parquet")
        manifest = {"schema_version": SCHEMA_VERSION, "digest": name, "rows_digest": dataset_rows_digest(examples)}
        write_json(folder / "manifest.json", manifest)
        return name

    return write


@pytest.fixture
def plan_run(
    make_deployment: Callable[..., Any], write_dataset: Callable[..., str], tiny: ModelDir
) -> Callable[..., TrainSpec]:
    """``plan_run(name="a", rows=None, init=None, **recipe)`` -> the spec of a quick run in a home of that name."""
    homes: dict[str, Any] = {}

    def plan(
        name: str = "deployment", rows: list[dict[str, Any]] | None = None, init: str | None = None, **recipe: Any
    ) -> TrainSpec:
        task = {"train": {**FAST, **recipe}}
        deployment = make_deployment(name, task, compute={"dtype": "float32", "threads": 1})
        if name not in homes:
            homes[name] = write_dataset(deployment.home, rows or [*two_words(24), *two_words(6, side="val")])
        return make_spec(
            deployment.config,
            deployment.home,
            deployment.task,
            base_digest=tiny.base_digest,
            dataset=homes[name],
            init=init,
        )

    return plan


@pytest.fixture
def two_word_rows() -> Callable[..., list[dict[str, Any]]]:
    """``two_word_rows(count, side="train")`` -> rows for ``write_dataset``."""
    return two_words
