"""Real dialogues of a coffee-ordering agent with human rewards (Google's Taskmaster-4), as a log with its outcomes.

The files are not part of the project; without them beside it the trial skips itself.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flywheel.config import parse_columns
from flywheel.datasets import HeldOut, build, load_examples
from flywheel.intake import import_path, run_intake
from flywheel.labels import current_labels, run_labels
from flywheel.store.segments import query

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "taskmaster4_reward"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not FOLDER.is_dir(), reason="no data/taskmaster4_reward in a folder `shared` beside the project"
    ),
]

COLUMNS = parse_columns(
    "messages=messages,response=response,id=id,time=time,user=user,conversation=conversation,outcome=outcome"
)
RATERS, CARELESS = 100, 30
AUDIT_SHARE = 0.1
LABELS = {"maturity_hours": 0, "maturity_hours_of": {"outcome": 0}, "audit_share": AUDIT_SHARE}
DATA = {"min_examples": 1, "max_per_user": 1000, "max_user_share": 1, "max_per_cluster": 1000, "self_share": 1}


@dataclass(frozen=True)
class Turn:
    """A turn of the agent: what came before, what it did, and whether people found it good."""

    file: str
    conversation: str
    rater: int
    context: list[dict[str, Any]]
    answer: dict[str, Any]
    good: bool

    def row(self, number: int, good: bool, *, rated: bool) -> dict[str, Any]:
        return {
            "id": self.conversation,
            "time": f"2024-03-{1 + number // 200:02d}T10:00:00Z",
            "user": f"rater {self.rater}" if rated else None,
            "conversation": self.conversation,
            "messages": [_message(turn) for turn in self.context] or [{"role": "user", "content": "hello"}],
            "response": _message(self.answer),
            "outcome": good,
        }

    @property
    def text(self) -> str:
        last = self.context[-1] if self.context else {}
        asked = next((turn["text"] for turn in reversed(self.context) if turn.get("text")), "")
        return f"{json.dumps(last)[-300:]} {asked} {json.dumps(self.answer)}"


@pytest.fixture(scope="module")
def turns() -> list[Turn]:
    chance = random.Random(4)
    return [
        Turn(
            path.name,
            row["conversation_id"],
            chance.randrange(RATERS),
            json.loads(row["context"]),
            json.loads(row["generation"]),
            bool(row["reward"]),
        )
        for path in sorted(FOLDER.glob("reward_*.json"))
        for row in json.loads(path.read_text())
    ]


@pytest.fixture
def told(make_deployment: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """A deployment that has imported some turns with their outcomes as they are told, and has labelled them."""

    def tell(turns: list[Turn], said: list[bool], reviewed: bool) -> tuple[Any, Counter[str]]:
        deployment = make_deployment(task={"labels": LABELS, "data": DATA})
        where = deployment.config, deployment.home, deployment.registry, deployment.task
        read: Counter[str] = Counter()
        for name in sorted({turn.file for turn in turns}):
            path = tmp_path / f"{name}.jsonl"
            rows = [
                (n, turn, good) for n, (turn, good) in enumerate(zip(turns, said, strict=True)) if turn.file == name
            ]
            path.write_text("".join(json.dumps(turn.row(n, good, rated=reviewed)) + "\n" for n, turn, good in rows))
            report = import_path(*where, path, columns=COLUMNS)
            assert report.read == len(rows) == report.kept, report
            read[name] = report.kept
        if reviewed:
            _review(deployment, {turn.conversation: turn.good for turn in turns})
            run_intake(*where)
        run_labels(*where)
        return deployment, read

    return tell


def test_rewards_become_targets_and_bad_answers_as_the_policy_says(turns: list[Turn], told: Callable[..., Any]) -> None:
    deployment, read = told(turns, [turn.good for turn in turns], reviewed=False)
    assert read == Counter(turn.file for turn in turns)
    where = deployment.home, deployment.registry, deployment.task
    labels = {row["target_id"]: row for row in current_labels(*where)}
    audited = _audited(deployment)
    assert labels.keys() == {turn.conversation for turn in turns}
    for turn in turns:
        label = labels[turn.conversation]
        if turn.conversation in audited:
            assert label["use"] == ("eval" if turn.good and label["chosen"] else "none"), label
        else:
            assert label["use"] == ("sft" if turn.good else "kto"), label
            assert (label["y"] > 0.5) == turn.good
    held = HeldOut(interaction_ids=frozenset(audited), conversation_ids=frozenset(audited))
    top = max(label["seq"] for label in labels.values())
    built = build(
        deployment.config, *where, from_seq=0, to_seq=top, loop_id=None, parent=None, lineage=[], held_out=held
    )
    rows = load_examples(deployment.home, built.digest)
    good = {turn.conversation: turn.good for turn in turns}
    assert all((row["kind"] == "sft" or row["desirable"]) == good[row["interaction_id"]] for row in rows)
    assert {row["kind"] for row in rows} == {"sft", "kto"}
    sides = [{row["conversation_id"] for row in rows if row["side"] == side} for side in ("train", "val")]
    assert sides[0] and sides[1] and not sides[0] & sides[1]
    manifest = built.manifest
    assert manifest["considered"] == len(rows) + sum(manifest["dropped"].values()) == len(turns) - len(audited)
    print(f"\n{sum(read.values())} turns of {len(read)} files, {len(audited)} audited; {manifest['kinds']},")
    print(f"dropped {manifest['dropped']}, firewall {manifest['firewall']}")


def test_careless_raters_are_found_out_by_the_audit_sample(turns: list[Turn], told: Callable[..., Any]) -> None:
    """Three raters in ten say the opposite of what they should: a tenth that is reviewed tells who they are."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    said = [turn.good != (turn.rater < CARELESS) for turn in turns]
    deployment, _ = told(turns, said, reviewed=True)
    labels = {row["target_id"]: row for row in current_labels(deployment.home, deployment.registry, deployment.task)}
    audited = _audited(deployment)
    chance = random.Random(8)
    test = {turn.conversation for turn in turns if chance.random() < 0.25}
    free = [(n, turn) for n, turn in enumerate(turns) if turn.conversation not in audited | test]
    held = [turn for turn in turns if turn.conversation in test]
    vectors = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True).fit([turn.text for _, turn in free])

    def auc(rows: list[tuple[Turn, bool, float]]) -> float:
        features = vectors.transform([turn.text for turn, _, _ in rows])
        model = LogisticRegression(max_iter=500, class_weight="balanced")
        model.fit(features, [good for _, good, _ in rows], sample_weight=[weight for _, _, weight in rows])
        found = model.predict_proba(vectors.transform([turn.text for turn in held]))[:, 1]
        return float(roc_auc_score([turn.good for turn in held], found))

    naive = auc([(turn, said[n], 1.0) for n, turn in free])
    clean = auc([(turn, turn.good, 1.0) for _, turn in free])
    ours = auc(
        [
            (turn, label["y"] > 0.5, label["weight"])
            for _, turn in free
            if (label := labels.get(turn.conversation)) is not None and label["use"] in ("sft", "kto")
        ]
    )
    print(f"\n{sum(good != turn.good for good, turn in zip(said, turns, strict=True)) / len(turns):.0%} flipped;")
    print(
        f"ROC AUC: naive labels {naive:.3f}, ours {ours:.3f}, clean {clean:.3f}: {(ours - naive) / (clean - naive):.0%}"
    )
    assert ours - naive >= 0.5 * (clean - naive)


def _message(turn: dict[str, Any]) -> dict[str, Any]:
    if turn["role"] == "api":
        return {"role": "tool", "tool_call_id": "call", "content": json.dumps(turn["response"])}
    if turn["role"] == "user":
        return {"role": "user", "content": turn["text"]}
    if "api" not in turn:
        return {"role": "assistant", "content": turn["text"]}
    ((name, arguments),) = turn["api"].items() if turn["api"] else [("none", {})]
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call", "type": "function", "function": function}],
    }


def _audited(deployment: Any) -> set[str]:
    sql = "SELECT interaction_id FROM rows WHERE audit"
    where = deployment.home, deployment.registry, "interactions", deployment.task
    return {row["interaction_id"] for row in query(*where, sql).to_pylist()}


def _review(deployment: Any, good: dict[str, bool]) -> None:
    """A reviewer's word on each audited turn, in the gateway's log."""
    lines = [
        {
            "v": 1,
            "kind": "feedback",
            "id": f"fb-{name}",
            "task": deployment.task,
            "ts": "2024-04-01T10:00:00Z",
            "target": {"kind": "interaction", "id": name},
            "feedback": {"kind": "outcome", "value": good[name], "text": None},
            "source": "reviewer",
            "author": "reviewer",
            "source_id": None,
            "supersedes": None,
        }
        for name in sorted(_audited(deployment))
    ]
    path = deployment.home.log / "20240401T100000000000Z-00000000-000000.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
