"""A conversation's turns in one row, as far as they teach what its history says."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from flywheel.datasets.rows import KTO, Row, from_columns, make_row, to_columns
from flywheel.datasets.turns import merge_turns


def talk(*said: str, name: str = "talk", number: int = 0, **about: Any) -> Row:
    """A row whose messages alternate between user and assistant; the last is the answer."""
    roles = ("user", "assistant")
    messages: list[dict[str, Any]] = [{"role": roles[place % 2], "content": text} for place, text in enumerate(said)]
    about.setdefault("interaction_id", f"i{number or len(said)}")
    return make_row(messages[:-1], messages[-1], None, conversation_id=name, **about)


def test_turns_that_the_history_repeats_are_learned_in_the_longest_row() -> None:
    rows = [talk("a", "b"), talk("a", "b", "c", "d"), talk("a", "b", "c", "d", "e", "f")]
    random.Random(1).shuffle(rows)
    (merged,), dropped = merge_turns(rows)
    assert merged.target == "f" and merged.learned == (1, 3) and dropped == {"earlier_turn": 2}
    columns = to_columns(merged, b"key")
    assert columns["train_mask"] == [False, True, False, True, False, True]
    assert from_columns(columns).learned == (1, 3)


def test_a_corrected_turn_stays_a_row_of_its_own_and_the_history_is_not_learned() -> None:
    corrected, later = talk("a", "better"), talk("a", "b", "c", "d")
    merged, dropped = merge_turns([corrected, later])
    assert sorted(row.target for row in merged) == ["better", "d"] and not dropped
    assert all(row.learned == () for row in merged)


def test_a_turn_that_nobody_approved_of_is_not_learned() -> None:
    (merged,), _ = merge_turns([talk("a", "b", "c", "d")])
    assert merged.learned == ()


def test_other_conversations_branches_kinds_and_tools_stay_apart() -> None:
    long = talk("a", "b", "c", "d")
    others = [
        talk("a", "b", name="other"),
        talk("a", "b", name=""),
        talk("a", "x", "c", "d", number=9),
        talk("a", "b", kind=KTO, desirable=True, number=10),
        replace(talk("a", "b", number=11), tools=({"type": "function"},)),
    ]
    merged, dropped = merge_turns([long, *others])
    assert len(merged) == 6 and not dropped


def test_a_merged_row_weighs_what_its_lightest_answer_does() -> None:
    (merged,), _ = merge_turns([talk("a", "b", weight=0.5), talk("a", "b", "c", "d")])
    assert merged.weight == 0.5


def test_results_of_tools_are_never_learned() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "found"},
    ]
    first = make_row(history[:1], history[1], None, interaction_id="i1", conversation_id="talk")
    second = make_row(history, {"role": "assistant", "content": "b"}, None, interaction_id="i2", conversation_id="talk")
    (merged,), _ = merge_turns([first, second])
    assert to_columns(merged, b"key")["train_mask"] == [False, True, False, True]


def test_an_item_of_a_retired_suite_trains_once_although_a_later_turn_repeats_it(make_world: Any) -> None:
    world = make_world(val_share=0, replay_share=0)
    start = [{"role": "user", "content": "where is it"}]
    longer = [*start, {"role": "assistant", "content": "here"}, {"role": "user", "content": "and the bill"}]
    items = [
        world.teach(start, "here", conversation="talk", use="eval"),
        world.teach(longer, "paid", conversation="talk", use="eval"),
    ]
    graduated = frozenset(items)
    first = world.build(graduated=graduated)
    assert {row["interaction_id"] for row in world.rows(first)} == graduated
    world.teach_many(2, first=50)
    again = world.build(from_seq=2, graduated=graduated, parent=first.digest, lineage=[first.digest])
    assert not graduated & {row["interaction_id"] for row in world.rows(again)}


def test_a_replayed_row_teaches_its_own_answer_only(make_world: Any) -> None:
    world = make_world(replay_share=0.5, val_share=0)
    start = [{"role": "user", "content": "where is it"}]
    longer = [*start, {"role": "assistant", "content": "here"}, {"role": "user", "content": "and the bill"}]
    world.teach(start, "here", conversation="talk", user="u")
    world.teach(longer, "paid", conversation="talk", user="u")
    first = world.build()
    assert [sum(row["train_mask"]) for row in world.rows(first)] == [2]
    assert first.manifest["dropped"] == {"earlier_turn": 1}
    world.teach_many(2, first=50)
    again = world.build(from_seq=2, parent=first.digest, lineage=[first.digest])
    (replayed,) = [row for row in world.rows(again) if row["origin"] == "replay"]
    assert sum(replayed["train_mask"]) == 1
