"""From a dataset's rows to token rows, with a count of what could not be used."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flywheel.datasets import SFT, load_examples
from flywheel.errors import DatasetError, RequestError, TrainingError
from flywheel.store.home import Home

if TYPE_CHECKING:
    from flywheel.engine.batches import Row
    from flywheel.models import ChatTokenizer

VAL_ROWS = 128
"""The validation loss is a curve to look at: more rows than this would slow the run for no clearer picture."""


@dataclass(frozen=True)
class TokenRows:
    """A dataset in tokens. ``train_ids[i]`` is the example id of ``train[i]``; rows are in the order of their ids."""

    train: list[Row] = field(default_factory=list)
    train_ids: list[str] = field(default_factory=list)
    val: list[Row] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def load_rows(home: Home, dataset: str, tokenizer: ChatTokenizer, *, max_tokens: int) -> TokenRows:
    """Tokenise a dataset.

    Dropped and counted, train and val together: examples longer than ``max_tokens`` (``too_long``), of which nothing
    would be learned (``nothing_learned``), and that the model's chat template does not take (``refused``). Val rows
    beyond ``VAL_ROWS`` are counted as ``val_unused``. Raises TrainingError when no training row is left.
    """
    rows = TokenRows()
    counts = {"train": 0, "val": 0, "too_long": 0, "nothing_learned": 0, "refused": 0, "val_unused": 0}
    for example in sorted(load_examples(home, dataset), key=lambda example: str(example["example_id"])):
        if example["kind"] != SFT:
            continue  # learned by other recipes
        if not any(example["train_mask"]):
            counts["nothing_learned"] += 1
            continue
        try:
            row = _row(tokenizer, example)
        except (DatasetError, RequestError):
            counts["refused"] += 1
            continue
        if len(row.ids) > max_tokens:
            counts["too_long"] += 1
        elif row.learned_tokens == 0 or row.weight <= 0:
            counts["nothing_learned"] += 1
        elif example["side"] == "train":
            rows.train.append(row)
            rows.train_ids.append(str(example["example_id"]))
        elif len(rows.val) < VAL_ROWS:
            rows.val.append(row)
        else:
            counts["val_unused"] += 1
    counts["train"], counts["val"] = len(rows.train), len(rows.val)
    rows.counts.update(counts)
    if not rows.train:
        raise TrainingError(
            f"dataset {dataset} leaves nothing to train on: {counts['too_long']} examples are longer than "
            f"{max_tokens} tokens (train.max_tokens), {counts['nothing_learned']} have nothing to learn, "
            f"{counts['refused']} do not fit the model's chat template"
        )
    return rows


def _row(tokenizer: ChatTokenizer, example: dict[str, Any]) -> Row:
    from flywheel.engine.batches import Row

    tools = json.loads(example["tools"]) if example["tools"] else None
    ids, learned = tokenizer.encode_example(json.loads(example["messages"]), list(example["train_mask"]), tools)
    return Row(tuple(ids), tuple(learned), float(example["weight"]))
