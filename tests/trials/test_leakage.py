"""What a random split leaks and what the firewall takes, on real messages; ours beside it.

The files are not part of the project; without them beside it the trials skip themselves.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from flywheel.datasets import HeldOut, cluster_ids, is_large, near_any
from flywheel.datasets.firewall import Firewall
from flywheel.datasets.rows import Row, make_row
from flywheel.datasets.split import split

FOLDER = Path(__file__).parents[3] / "shared" / "data"
THRESHOLD, VAL_SHARE = 0.7, 0.1
SETS = ("clinc150", "taskmaster4_reward")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="no folder `shared/data` with real messages beside the project"),
]


def messages(name: str) -> list[tuple[str, str]]:
    """Prompt and answer of each row."""
    if name == "clinc150":
        parts = json.loads((FOLDER / name / "data_full.json").read_text())
        return [(text, intent) for part in ("train", "val", "test") for text, intent in parts[part]]
    rows = (row for path in sorted((FOLDER / name).glob("*.json")) for row in json.loads(path.read_text()))
    return [(row["context"], row["generation"]) for row in rows]


@pytest.fixture(scope="module", params=SETS)
def rows(request: pytest.FixtureRequest) -> list[Row]:
    found = [
        make_row(
            [{"role": "user", "content": text}], {"role": "assistant", "content": answer}, None, interaction_id=f"i{n}"
        )
        for n, (text, answer) in enumerate(messages(request.param))
    ]
    ids = cluster_ids([row.text for row in found], threshold=THRESHOLD)
    print(f"\n{request.param}: {len(found):,} rows, {len(set(ids)):,} near-duplicate clusters")
    return [replace(row, cluster_id=own) for row, own in zip(found, ids, strict=True)]


def test_no_validation_row_has_a_near_copy_that_trains(rows: list[Row]) -> None:
    chance = random.Random(5)
    naive = [replace(row, side="val" if chance.random() < VAL_SHARE else "train") for row in rows]
    leaked, ours = _leaked(naive), _leaked(split(rows, VAL_SHARE))
    print(f"\nvalidation rows with a near copy in train: random split {leaked:.1%}, ours {ours:.1%}")
    assert ours == 0 < leaked


@pytest.mark.parametrize("size", [100, 300])
def test_the_firewall_takes_less_than_a_tenth(rows: list[Row], size: int) -> None:
    suite = random.Random(6).sample(rows, size)
    sizes = {row.cluster_id: 0 for row in suite}
    for row in rows:
        if row.cluster_id in sizes:
            sizes[row.cluster_id] += 1
    large = [cluster for cluster, count in sizes.items() if is_large(count, len(rows))]
    held = HeldOut(frozenset(row.interaction_id for row in suite), prompts=tuple(row.text for row in suite))
    firewall = Firewall(held, [row.cluster_id for row in suite], large, b"key")
    items = {row.interaction_id for row in suite}
    others = [row for row in rows if row.interaction_id not in items]
    reasons = Counter(reason for row in others if (reason := firewall.reason(row)))
    stopped = reasons.total()
    share = stopped / len(others)
    print(f"\na suite of {size} keeps {stopped} of {len(others):,} other rows out: {share:.1%} {dict(reasons)}")
    # Of a log with many equal prompts, a suite that is a large part of it takes their copies along.
    assert share < (0.1 if size < 0.05 * len(rows) else 0.15)


def _leaked(rows: Sequence[Row]) -> float:
    val = [row.text for row in rows if row.side == "val"]
    return sum(near_any(val, [row.text for row in rows if row.side == "train"], threshold=THRESHOLD)) / len(val)
