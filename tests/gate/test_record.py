"""The decision record: one per evaluation, recomputed from the stored scores, paid for once."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.config import Config
from flywheel.datasets import from_jsonl
from flywheel.errors import EvaluationError
from flywheel.evaluation.items import suite_path
from flywheel.evaluation.life import graduated
from flywheel.evaluation.report import Scores, scores_path
from flywheel.gate import Decision, card, comparison_rows, decide, load_decision, retire
from flywheel.gate.card import LIMIT
from flywheel.store.digests import digest
from flywheel.store.files import read_json, write_json
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema

GAIN = {"fixed": 25, "broken": 1, "right": 20, "wrong": 4}


def test_a_promotion_record_binds_release_suites_champion_and_pointer_version(case: Callable[..., Any]) -> None:
    c = case(**GAIN)
    decision = decided(c)
    assert decision.verdict == "promote"
    assert (decision.candidate, decision.champion, decision.pointer_version) == (digest("b"), digest("a"), 1)
    assert decision.record["suites"] == {"gate": c.gate.digest, "golden": c.golden.digest}
    assert decision.evaluation == c.evaluation
    assert digest(decision.record) == decision.digest
    row = decisions(c)[0]
    assert (row["digest"], row["verdict"], row["used_at"]) == (decision.digest, "promote", None)
    assert all(row[name] == decision.record[name] for name in ("candidate", "champion", "pointer_version", "task"))


def test_deciding_again_gives_the_same_record_and_spends_nothing_more(case: Callable[..., Any]) -> None:
    c = case(**GAIN)
    first = decided(c)
    assert uses(c) == {1}
    assert decided(c) == first == load_decision(c.deployment.registry, first.digest)
    assert uses(c) == {1} and len(decisions(c)) == 1


def test_processes_that_decide_at_once_agree_and_spend_once(case: Callable[..., Any]) -> None:
    c = case(**GAIN)
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        d = c.deployment
        arguments = (d.config.model_dump(mode="json"), str(d.home.root), d.registry.url, c.evaluation)
        found = pool.starmap(_decide_elsewhere, [arguments] * 6)
    assert len(set(found)) == 1
    assert uses(c) == {1} and len(decisions(c)) == 1


def test_a_decision_that_could_not_be_paid_for_is_not_made(
    case: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Death(BaseException):
        """Stands for the process's end."""

    def die(*_: object) -> None:
        raise Death

    c = case(**GAIN)
    with monkeypatch.context() as patch, pytest.raises(Death):
        patch.setattr("flywheel.gate.record.spend", die)
        decided(c)
    assert decisions(c) == [], "a record without its price would be a free look at the items"
    assert decided(c).verdict == "promote"
    assert uses(c) == {1}


def test_a_second_candidate_on_the_same_items_must_clear_the_smaller_alpha(case: Callable[..., Any]) -> None:
    weak = {"fixed": 5, "broken": 0, "right": 35}  # p = 1/32: enough once, not twice
    first = case(**weak)
    assert decided(first).verdict == "promote"
    second = case(**weak, deployment=first.deployment, candidate="c")
    decision = decided(second)
    assert decision.verdict == "reject" and "needs <= 0.0167" in decision.reasons[0]
    assert decision.record["uses_before"] == {"items": 40, "used": 40}
    assert uses(first) == {2}


def test_items_that_have_judged_often_enough_graduate_and_can_decide_nothing_more(case: Callable[..., Any]) -> None:
    first = case(**GAIN)
    for candidate in ("b", "c", "d"):
        c = first if candidate == "b" else case(**GAIN, deployment=first.deployment, candidate=candidate)
        assert decided(c).verdict == "promote"
    d = first.deployment
    assert graduated(d.registry, d.task) == {item.interaction_id for item in first.gate.items}
    late = decided(case(**GAIN, deployment=d, candidate="e"))
    assert late.verdict == "invalid" and "may not judge any more" in late.reasons[0]


def test_items_of_a_promoted_loop_can_decide_nothing_more(case: Callable[..., Any]) -> None:
    c = case(**GAIN)
    with c.deployment.registry.write() as tx:
        retire(tx, c.deployment.task, f"{c.deployment.task}/1")
    assert decided(c).verdict == "invalid"


def test_inconclusive_evidence_costs_nothing(case: Callable[..., Any]) -> None:
    c = case(fixed=10, right=10)
    decision = decided(c)
    assert decision.verdict == "inconclusive" and "20 more labelled audit items" in decision.reasons[0]
    assert uses(c) == {0}


def test_a_rejection_is_recorded_and_paid_for(case: Callable[..., Any]) -> None:
    c = case(fixed=3, broken=3, right=40)
    assert decided(c).verdict == "reject"
    assert uses(c) == {1}


def test_scores_that_were_changed_after_the_run_are_invalid(case: Callable[..., Any]) -> None:
    c = case(fixed=3, broken=3, right=40)
    path = scores_path(c.deployment.home, c.evaluation)
    raw = read_json(path)
    raw["gate"]["candidate"] = [1] * 46
    write_json(path, raw)
    decision = decided(c)
    assert decision.verdict == "invalid" and "changed after the run" in decision.reasons[0]
    assert uses(c) == {0}


def test_missing_scores_are_invalid(case: Callable[..., Any]) -> None:
    c = case(**GAIN)
    scores_path(c.deployment.home, c.evaluation).unlink()
    decision = decided(c)
    assert decision.verdict == "invalid" and "missing" in decision.reasons[0]


def test_scores_of_other_items_than_the_suites_are_invalid(case: Callable[..., Any]) -> None:
    c = case(**GAIN)
    gate = c.scores.gate
    fewer = gate.model_copy(update={name: getattr(gate, name)[:-1] for name in ("clusters", "slices", "champion")})
    for other, expected in (
        (gate.model_copy(update={"candidate": gate.candidate[:-1]}), "the candidate 49"),
        (fewer.model_copy(update={"candidate": gate.candidate[:-1]}), "has 50 items, the champion 49 scores"),
        (gate.model_copy(update={"clusters": gate.clusters[::-1]}), "other clusters"),
        (gate.model_copy(update={"slices": ["repeat", *gate.slices[1:]]}), "other slices"),
        (gate.model_copy(update={"suite": c.golden.digest}), "not what was evaluated"),
        (gate.model_copy(update={"suite": "0" * 64}), "the suite file is missing"),
    ):
        changed = recorded(c, c.scores.model_copy(update={"gate": other}))
        decision = decided(c, changed)
        assert decision.verdict == "invalid", expected
        assert any(expected in reason for reason in decision.reasons), (expected, decision.reasons)


def test_a_changed_suite_file_is_invalid(case: Callable[..., Any]) -> None:
    c = case(**GAIN)
    path = suite_path(c.deployment.home, c.gate.digest)
    path.write_text(path.read_text().replace('"label": "x"', '"label": "y"', 1))
    assert decided(c).verdict == "invalid"


@pytest.mark.parametrize("taught", ["gate 0", "golden 0", "GATE  7919"])
def test_a_candidate_that_was_taught_a_suite_item_is_invalid(
    taught: str, case: Callable[..., Any], tmp_path: Path
) -> None:
    c = case(**GAIN)
    d = c.deployment
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps({"text": text, "label": "x"}) + "\n" for text in (taught, "something else")))
    dataset = from_jsonl(d.config, d.home, d.registry, d.task, path, None).digest
    _release(d, c.scores.candidate, dataset)
    decision = decided(c)
    assert decision.verdict == "invalid"
    assert "the candidate was trained on 1 of the" in decision.reasons[0]


def test_a_candidate_whose_datasets_are_gone_is_invalid(case: Callable[..., Any]) -> None:
    c = case(**GAIN)
    _release(c.deployment, c.scores.candidate, digest("no such dataset"))
    decision = decided(c)
    assert decision.verdict == "invalid" and "overlap is unknown" in decision.reasons[0]


def test_an_unknown_evaluation_or_decision_is_an_error(case: Callable[..., Any]) -> None:
    c = case(**GAIN)
    with pytest.raises(EvaluationError, match="no evaluation"):
        decided(c, "0" * 64)
    with pytest.raises(EvaluationError, match="no decision"):
        load_decision(c.deployment.registry, "0" * 64)


@pytest.mark.parametrize(
    ("verdict", "counts"),
    [
        ("promote", {**GAIN, "golden": {"right": 38, "broken": 2}}),
        ("reject", {"fixed": 3, "broken": 3, "right": 40}),
        ("inconclusive", {"fixed": 5}),
    ],
)
def test_the_card_is_short_whole_and_holds_no_text_of_items(
    verdict: str, counts: dict[str, Any], case: Callable[..., Any]
) -> None:
    c = case(**counts)
    decision = decided(c)
    shown = card(decision)
    assert len(shown) < LIMIT
    assert shown.startswith(f"**{verdict}** {c.deployment.task}@")
    assert all(reason in shown for reason in decision.reasons)
    assert decision.digest[:12] in shown
    assert ("|gate (novel)|" in shown) == (verdict != "invalid")
    assert not any(item.messages[0]["content"] in shown for item in c.gate.items)


def test_a_card_with_endless_reasons_stays_short_and_says_that_there_are_more(case: Callable[..., Any]) -> None:
    decision = decided(case(**GAIN))
    for reasons in ([f"a reason of some length, number {n}" for n in range(80)], ["x" * 5000], []):
        shown = card(Decision(**{**vars(decision), "reasons": reasons}))
        assert len(shown) < LIMIT and decision.digest[:12] in shown
        assert ("more in the record" in shown) == (len(reasons) == 80)


def test_the_comparison_table_has_a_row_per_suite_with_interval_and_p(case: Callable[..., Any]) -> None:
    rows = comparison_rows(decided(case(**GAIN)).record)
    assert [row["suite"] for row in rows] == ["gate (novel)", "golden"]
    assert rows[0]["n"] == 50 and rows[0]["champion"] == 0.42 and rows[0]["candidate"] == 0.9
    assert rows[0]["gain"] == "+48.0 pt" and "to" in rows[0]["interval"]
    assert float(rows[1]["p"]) == pytest.approx(0.95**60, rel=0.05)


def decided(c: Any, evaluation: str | None = None) -> Decision:
    d = c.deployment
    return decide(d.config, d.home, d.registry, evaluation or c.evaluation)


def decisions(c: Any) -> list[dict[str, Any]]:
    with c.deployment.registry.read() as tx:
        return tx.rows(sa.select(schema.decisions))


def uses(c: Any) -> set[int]:
    """The use counts of all gate items, golden items and suites."""
    with c.deployment.registry.read() as tx:
        items = tx.rows(sa.select(schema.suite_items.c.uses))
        suites = tx.rows(sa.select(schema.suites.c.uses))
    return {row["uses"] for row in items + suites}


def recorded(c: Any, scores: Scores) -> str:
    """Another evaluation in the registry, with exactly these scores."""
    name = scores.digest()
    write_json(scores_path(c.deployment.home, name), scores.model_dump(mode="json"))
    with c.deployment.registry.write() as tx:
        row = {"digest": name, "task": scores.task, "loop_id": None, "input_digest": scores.input_digest}
        row |= {"champion": scores.champion, "candidate": scores.candidate, "summary": {"suites": {}}}
        tx.execute(sa.insert(schema.evaluations).values(**row, **tx.stamp()))
    return name


def _release(d: Any, release: str, dataset: str) -> None:
    with d.registry.write() as tx:
        checkpoint = digest("checkpoint")
        row = {"digest": checkpoint, "task": d.task, "input_digest": checkpoint, "parent": None, "dataset": dataset}
        tx.execute(sa.insert(schema.checkpoints).values(**row, manifest={}, **tx.stamp()))
        row = {"digest": release, "task": d.task, "checkpoint": checkpoint, "manifest": {}}
        tx.execute(sa.insert(schema.releases).values(**row, **tx.stamp()))


def _decide_elsewhere(config: dict[str, Any], home: str, url: str, evaluation: str) -> str:
    registry = Registry(url, actor="another process")
    try:
        return decide(Config.model_validate(config), Home(Path(home)), registry, evaluation).digest
    finally:
        registry.close()
