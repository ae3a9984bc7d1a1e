"""The draw of suites, and the life of their items."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.datasets import from_jsonl
from flywheel.errors import EvaluationError
from flywheel.evaluation.items import load_suite, suite_path
from flywheel.evaluation.life import retire, spend
from flywheel.evaluation.pool import BEYOND, Candidate, labelled
from flywheel.evaluation.suites import graduated, held_out
from flywheel.store.registry import schema


def test_every_labelled_audit_item_is_gate_golden_or_counted_as_left_out(log: Any) -> None:
    log.many(18)
    log.write()
    found = log.select()
    gate = {item.interaction_id for item in found.gate.items}
    golden = {item.interaction_id for item in found.golden.items}
    assert not gate & golden
    assert len(golden) == 4 and len(gate) == 14 and found.missing == 0
    assert all(item.slice == "novel" for item in found.gate.items)


def test_items_keep_the_callers_messages_and_leave_the_prompt_to_each_release(log: Any) -> None:
    log.add("a", "where is my parcel", "shipping")
    log.write()
    found = log.select()
    (item,) = found.gate.items + found.golden.items
    assert item.messages == [{"role": "user", "content": "where is my parcel"}] and item.label == "shipping"


def test_only_audited_eval_labels_of_trusted_sources_with_an_answer_judge(log: Any) -> None:
    log.add("thumb", distinct_text(1), source="thumb")
    log.add("train", distinct_text(2), use="sft", audit=False)
    log.add("empty", distinct_text(3), label=" ")
    log.add("outside", distinct_text(4), audit=False)
    log.add("unlabelled", distinct_text(5), label=None)
    good = log.add("good", distinct_text(6))
    log.write()
    found = log.select()
    assert {item.interaction_id for item in found.gate.items + found.golden.items} == {good}
    assert found.counts["label source not trusted"] == 1
    assert found.counts["label without a right answer"] == 1
    assert found.counts["labelled for evaluation but not in the audit sample"] == 1
    assert found.missing in (4, 5)
    assert f"{found.missing} more labelled audit items" in found.notes[0]


def test_one_users_word_decides_a_fiftieth_of_the_items_at_most(log: Any) -> None:
    log.many(200)
    for name in log.many(30, start=200, source="correction"):
        log.said(name, "mallory")
    log.many(10, start=230, source="outcome", user="mallory")
    for name in log.many(10, start=240, source="correction"):
        log.said(name, f"author of {name}")
    log.write()
    found, left_out = drawn(log)
    assert left_out == {BEYOND: 40 - 5} and len(found) == 200 + 5 + 10
    assert drawn(log)[0] == found


def test_a_reviewer_may_label_everything_and_anybody_a_few_items(log: Any) -> None:
    log.many(5)
    for name in log.many(3, start=5, source="correction"):
        log.said(name, "ann")
    log.write()
    assert len(drawn(log)[0]) == 8 and not drawn(log)[1]


def drawn(log: Any) -> tuple[list[Candidate], Counter[str]]:
    at = log.deployment
    return labelled(at.config, at.home, at.registry, at.task, from_seq=0, to_seq=log.seq)


def test_only_labels_inside_the_window_are_drawn(log: Any) -> None:
    early = set(log.many(8))
    border = log.seq
    late = set(log.many(8, start=100))
    log.write()
    found = log.select(from_seq=border)
    drawn = {item.interaction_id for item in found.gate.items + found.golden.items}
    assert drawn == late and not drawn & early


def test_a_later_correction_of_a_label_counts_when_it_is_in_the_window(log: Any) -> None:
    identity = log.add("a", distinct_text(1), "billing")
    log.label(identity, "shipping")
    log.write()
    found = log.select()
    assert [item.label for item in found.gate.items + found.golden.items] == ["shipping"]


def test_the_same_loop_gets_the_same_suites_although_more_has_arrived(log: Any) -> None:
    log.many(12)
    log.write()
    first = log.select()
    log.many(12, start=50)
    log.write()
    again = log.select()
    assert (again.gate, again.golden, again.counts) == (first.gate, first.golden, first.counts)


def test_a_frozen_log_gives_the_same_digests_in_another_row_order_and_after_a_crash(
    make_deployment: Callable[..., Any], log_of: Callable[[Any], Any]
) -> None:
    digests = []
    for name, backwards in (("one", False), ("two", True)):
        deployment = make_deployment(name, task={"suites": {"gate_min": 2, "golden_target": 3}})
        log = log_of(deployment)
        log.many(15)
        if backwards:
            log.interactions.reverse()
        log.write()
        found = log.select()
        digests.append((found.gate.digest, found.golden.digest))
        # A crash after the files and before the registry's transaction leaves nothing but the files.
        with deployment.registry.write() as tx:
            for table in (schema.selections, schema.suites, schema.suite_items):
                tx.execute(sa.delete(table))
        again = log.select()
        digests.append((again.gate.digest, again.golden.digest))
    assert len(set(digests)) == 1


def test_golden_items_are_frozen_once_there_are_enough(log: Any) -> None:
    log.many(16)
    log.write()
    first = log.select(1)
    assert len(first.golden.items) == 4
    log.label(first.golden.items[0].interaction_id, "changed my mind")
    log.many(16, start=50)
    log.write()
    second = log.select(2)
    assert second.golden == first.golden
    assert second.gate.digest != first.gate.digest
    golden = {item.interaction_id for item in first.golden.items}
    assert not golden & {item.interaction_id for item in second.gate.items}


def test_the_golden_suite_grows_over_loops_until_it_is_full_and_keeps_what_it_has(log: Any) -> None:
    log.many(4)
    log.write()
    first = log.select(1)
    log.many(40, start=50)
    log.write()
    second = log.select(2)
    assert {item.item_id for item in first.golden.items} <= {item.item_id for item in second.golden.items}
    assert len(second.golden.items) == 4
    gate = {item.interaction_id for item in first.gate.items}
    assert not gate & {item.interaction_id for item in second.golden.items}


def test_the_draw_is_uniform_over_time(log: Any) -> None:
    log.many(60)
    log.write()
    found = log.select()
    drawn = sorted(int(item.interaction_id[-4:]) for item in found.gate.items)
    assert len(drawn) == 20
    assert drawn[0] < 20 and drawn[-1] >= 40 and drawn != list(range(20))
    assert found.counts["beyond the gate's target"] == 36


def test_one_of_several_near_copies_decides_and_the_others_repeat(
    make_deployment: Callable[..., Any], log_of: Callable[[Any], Any]
) -> None:
    log = log_of(make_deployment(task={"suites": {"golden_target": 0, "gate_min": 2}}))
    base = "please cancel the subscription of my brother as soon as you can"
    copies = {log.add("a", base), log.add("b", base + "!"), log.add("c", base.upper())}
    log.many(8)
    log.write()
    items = [item for item in log.select().gate.items if item.interaction_id in copies]
    assert Counter(item.slice for item in items) == {"novel": 1, "repeat": 2}
    assert len({item.cluster for item in items}) == 1


def test_golden_items_are_no_copies_of_one_another(log: Any) -> None:
    base = "please cancel the subscription of my brother as soon as you can"
    for n in range(12):
        log.add(f"copy{n}", base + "!" * n)
    log.write()
    assert len(log.select(1).golden.items) == 1
    for n in range(12, 24):
        log.add(f"copy{n}", base + "!" * n)
    log.write()
    assert len(log.select(2).golden.items) == 1


def test_turns_of_one_conversation_share_a_cluster_and_count_once(log: Any) -> None:
    for n in range(6):
        log.add(f"turn{n}", distinct_text(n), conversation="conv-1")
    log.write()
    found = log.select()
    assert found.gate.novel() == 1 and found.missing == 4
    assert len(found.golden.items) <= 1


def test_near_copies_of_what_the_champion_learned_judge_nobody(log: Any, tmp_path: Path) -> None:
    taught = tmp_path / "train.jsonl"
    texts = [distinct_text(n) for n in range(3)]
    taught.write_text("".join(json.dumps({"text": t, "label": "billing"}) + "\n" for t in texts))
    d = log.deployment
    lineage = from_jsonl(d.config, d.home, d.registry, d.task, taught, None).digest
    copies = {log.add(f"copy{n}", text + ".") for n, text in enumerate(texts)}
    log.many(12, start=100)
    log.write()
    found = log.select(lineage=(lineage,))
    assert not copies & {item.interaction_id for item in found.gate.items + found.golden.items}
    assert found.counts["near copy of training data"] == 3


def test_a_copy_of_what_the_champion_learned_redacted_judges_nobody(log: Any, tmp_path: Path) -> None:
    asked = "ana.ruiz@acme.io 4929123456789015"
    taught = tmp_path / "train.jsonl"
    taught.write_text(json.dumps({"text": asked, "label": "shipping"}) + "\n")
    d = log.deployment
    lineage = from_jsonl(d.config, d.home, d.registry, d.task, taught, None).digest
    copied = log.add("copied", asked)
    log.many(4, start=100)
    log.write()
    found = log.select(lineage=(lineage,))
    assert copied not in {item.interaction_id for item in found.gate.items + found.golden.items}


def test_items_of_a_very_common_prompt_are_reported_as_repeats_and_never_decide(log: Any, tmp_path: Path) -> None:
    common = "where is my order number twelve thousand please"
    taught = tmp_path / "train.jsonl"
    taught.write_text(json.dumps({"text": common, "label": "shipping"}) + "\n")
    d = log.deployment
    lineage = from_jsonl(d.config, d.home, d.registry, d.task, taught, None).digest
    for n in range(25):
        log.add(f"common{n}", common, label=None, audit=False)
    asked = log.add("asked", common)
    log.many(8, start=100)
    log.write()
    found = log.select(lineage=(lineage,))
    (item,) = [item for item in found.gate.items if item.interaction_id == asked]
    assert item.slice == "repeat"
    assert asked not in {item.interaction_id for item in found.golden.items}


def test_a_rejected_loops_items_judge_again_and_keep_count_of_their_uses(log: Any) -> None:
    log.many(12)
    log.write()
    first = log.select(1)
    with log.deployment.registry.write() as tx:
        spend(tx, [first.gate, first.golden], max_uses=3)
    second = log.select(2)
    assert second.gate == first.gate
    assert second.counts["gate items of them used before"] == len(first.gate.items)


def test_fresh_items_are_drawn_before_used_ones_and_alone_when_they_suffice(log: Any) -> None:
    log.many(12)
    log.write()
    first = log.select(1)
    with log.deployment.registry.write() as tx:
        spend(tx, [first.gate], max_uses=3)
    log.many(30, start=100)
    log.write()
    second = log.select(2)
    used = {item.interaction_id for item in first.gate.items}
    assert len(second.gate.items) == 20
    assert not used & {item.interaction_id for item in second.gate.items}


def test_used_items_fill_up_when_that_shows_smaller_gains_despite_a_smaller_alpha(
    make_deployment: Callable[..., Any], log_of: Callable[[Any], Any]
) -> None:
    suites = {"gate_min": 5, "gate_target": 60, "golden_target": 0, "max_uses": 5}
    log = log_of(make_deployment(task={"suites": suites}))
    log.many(30)
    log.write()
    first = log.select(1)
    with log.deployment.registry.write() as tx:
        spend(tx, [first.gate], max_uses=5)
    log.many(6, start=100)
    log.write()
    assert len(log.select(2).gate.items) == 36  # 36 items at .01 see more than 6 at .05
    log.many(44, start=200)
    log.write()
    third = log.select(3)
    assert len(third.gate.items) == 50  # 50 fresh ones at .05 see more than 60 at .01
    assert "gate items of them used before" not in third.counts


def test_items_graduate_after_their_last_use_and_never_return(log: Any) -> None:
    log.many(12)
    log.write()
    d = log.deployment
    gate = log.select(1)
    for _ in range(3):
        assert not graduated(d.registry, d.task)
        with d.registry.write() as tx:
            spend(tx, [gate.gate, gate.golden], max_uses=3)
    over = {item.interaction_id for item in gate.gate.items}
    assert graduated(d.registry, d.task) == over
    again = log.select(2)
    assert not over & {item.interaction_id for item in again.gate.items + again.golden.items}
    assert again.golden == gate.golden
    assert again.counts["graduated"] == len(over)


def test_a_promotion_graduates_the_loops_gate_items_and_leftovers_but_never_golden_ones(log: Any) -> None:
    log.many(30)
    log.write()
    d = log.deployment
    first = log.select(1)
    log.many(30, start=100)
    log.write()
    second = log.select(2)
    with d.registry.write() as tx:
        assert retire(tx, d.task, f"{d.task}/2") > 0
        assert retire(tx, d.task, f"{d.task}/2") == 0
    over = graduated(d.registry, d.task)
    assert over == {item.interaction_id for item in first.gate.items + second.gate.items}
    assert not over & {item.interaction_id for item in second.golden.items}


def test_a_promotion_leaves_the_items_of_a_later_loop_alone(log: Any) -> None:
    log.many(10)
    log.write()
    d = log.deployment
    log.select(1)
    log.many(10, start=100)
    log.write()
    later = log.select(2, from_seq=10)
    with d.registry.write() as tx:
        retire(tx, d.task, f"{d.task}/1")
    assert not graduated(d.registry, d.task) & {item.interaction_id for item in later.gate.items}


def test_held_out_is_every_audited_interaction_that_has_not_graduated(log: Any) -> None:
    log.many(12)
    waiting = log.add("waiting", "no label yet for this one", label=None)
    log.add("train", "an ordinary training row", audit=False, use="sft")
    log.write()
    d = log.deployment
    found = log.select()
    before = held_out(d.home, d.registry, d.task)
    suites = {item.interaction_id for item in found.gate.items + found.golden.items}
    assert suites | {waiting} <= before.interaction_ids
    assert "chatcmpl-train" not in before.interaction_ids
    assert "no label yet for this one" in before.prompts
    with d.registry.write() as tx:
        retire(tx, d.task, f"{d.task}/1")
    after = held_out(d.home, d.registry, d.task)
    assert before.interaction_ids - after.interaction_ids == {item.interaction_id for item in found.gate.items}
    assert {item.interaction_id for item in found.golden.items} <= after.interaction_ids


def test_an_operators_golden_file_takes_the_place_of_drawn_items_and_is_held_out_at_once(
    make_deployment: Callable[..., Any], log_of: Callable[[Any], Any], tmp_path: Path
) -> None:
    golden = tmp_path / "golden.jsonl"
    rows = [
        {"text": "my bill is wrong", "label": "billing"},
        {"messages": [{"role": "user", "content": "the line is dead"}], "label": "technical"},
        {"text": "My bill is  WRONG", "label": "billing"},
    ]
    golden.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    log = log_of(make_deployment(task={"suites": {"golden_file": str(golden), "gate_min": 2}}))
    d = log.deployment
    assert "my bill is wrong" in held_out(d.home, d.registry, d.task, golden_file=str(golden)).prompts
    log.many(10)
    log.write()
    found = log.select()
    assert sorted(item.label for item in found.golden.items) == ["billing", "billing", "technical"]
    assert sorted(item.slice for item in found.golden.items) == ["novel", "novel", "repeat"]
    assert len(found.gate.items) == 10
    assert "the line is dead" in held_out(d.home, d.registry, d.task).prompts


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[]",
        '{"text": "a"}',
        '{"text": "a", "label": ""}',
        '{"label": "b"}',
        '{"messages": [], "label": "b"}',
        '{"messages": [{}], "label": "b"}',
        '{"messages": [{"role": "assistant", "content": "x"}], "label": "b"}',
    ],
)
def test_a_damaged_golden_file_is_refused_with_its_line_and_without_its_text(
    line: str, make_deployment: Callable[..., Any], log_of: Callable[[Any], Any], tmp_path: Path
) -> None:
    golden = tmp_path / "golden.jsonl"
    golden.write_text('{"text": "fine", "label": "ok"}\n' + line + "\n")
    log = log_of(make_deployment(task={"suites": {"golden_file": str(golden)}}))
    with pytest.raises(EvaluationError, match="line 2: "):
        log.select()


def test_a_suite_file_changed_by_hand_is_noticed(log: Any) -> None:
    log.many(8)
    log.write()
    gate = log.select().gate
    path = suite_path(log.deployment.home, gate.digest)
    assert load_suite(log.deployment.home, gate.digest) == gate
    path.write_text(path.read_text().replace('"label": "billing"', '"label": "sales"', 1))
    with pytest.raises(EvaluationError, match="changed by hand"):
        load_suite(log.deployment.home, gate.digest)
    path.unlink()
    with pytest.raises(EvaluationError, match="missing"):
        load_suite(log.deployment.home, gate.digest)


def test_a_task_has_one_live_suite_of_each_kind(log: Any) -> None:
    for loop in (1, 2, 3):
        log.many(9, start=50 * loop)
        log.write()
        log.select(loop)
    with log.deployment.registry.read() as tx:
        live = tx.rows(sa.select(schema.suites).where(schema.suites.c.state == "live"))
    assert sorted(row["kind"] for row in live) == ["gate", "golden"]


def distinct_text(n: int) -> str:
    return f"{'abcdefgh'[n % 8] * 3} question {n * 7919} about {n * 104729} things"
