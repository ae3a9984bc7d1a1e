from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from flywheel.datasets import DatasetBuild, HeldOut, lineage_interactions, lineage_prompts, prompt_text
from flywheel.errors import DatasetError

Worlds = Callable[..., Any]


def replayed(world: Any, built: DatasetBuild) -> list[dict[str, Any]]:
    return [row for row in world.rows(built) if row["origin"] == "replay"]


def second(world: Any, first: DatasetBuild, after: int, **how: Any) -> DatasetBuild:
    return world.build(from_seq=after, parent=first.digest, lineage=[first.digest], **how)


def test_replay_is_its_share_of_the_training_rows(make_world: Worlds) -> None:
    world = make_world(replay_share=0.25, val_share=0.0)
    world.teach_many(60)
    first, after = world.build(), world.seq
    world.teach_many(30, first=100)
    built = second(world, first, after)
    assert (built.new, built.replay, built.train) == (30, 10, 40)
    assert built.manifest["replay"]["candidates"] == 60
    old = {row["example_id"] for row in world.rows(first)}
    assert {row["example_id"] for row in replayed(world, built)} <= old


def test_rare_old_targets_are_replayed_too(make_world: Worlds) -> None:
    world = make_world(replay_share=0.3, val_share=0.0)
    world.teach_many(50, targets=1)
    for n in range(50, 53):
        world.teach(f"a rare question with words of its own {n * 7919}", f"rare {n}", user=f"r{n}")
    first, after = world.build(), world.seq
    world.teach_many(28, first=100)
    built = second(world, first, after)
    assert Counter(row["target"] for row in replayed(world, built)) == {
        "queue 0": 9,
        "rare 50": 1,
        "rare 51": 1,
        "rare 52": 1,
    }


def test_the_same_window_draws_the_same_rows_and_another_draws_others(make_world: Worlds) -> None:
    world = make_world(replay_share=0.25, val_share=0.0)
    world.teach_many(60)
    first, after = world.build(), world.seq
    world.teach_many(30, first=100)
    draws = [second(world, first, after) for _ in range(2)]
    assert draws[0].digest == draws[1].digest
    world.teach_many(1, first=200)
    other = second(world, first, after)
    ids = [{row["example_id"] for row in replayed(world, built)} for built in (draws[0], other)]
    assert ids[0] != ids[1]


def test_a_newer_label_for_the_same_prompt_wins_over_an_old_row(make_world: Worlds, phrases: Any) -> None:
    world = make_world(replay_share=0.5, val_share=0.0)
    again, stays = phrases(range(2))
    world.teach(again, "old queue", user="a")
    world.teach(stays, "old queue", user="b")
    first, after = world.build(), world.seq
    world.teach(again, "new queue", user="c")
    world.teach_many(5, first=10)
    built = second(world, first, after)
    assert [row["prompt"] for row in replayed(world, built)] == [stays]
    assert built.manifest["replay"]["dropped"] == {"superseded": 1}
    assert {row["target"] for row in world.rows(built) if row["prompt"] == again} == {"new queue"}


def test_a_label_taken_back_or_changed_keeps_its_row_from_returning(make_world: Worlds) -> None:
    world = make_world(replay_share=0.5, val_share=0.0)
    back, changed, *_ = world.teach_many(4)
    first, after = world.build(), world.seq
    world.label(back, "", use="none")
    world.label(changed, "", use="none")
    world.label(changed, "another queue", use="eval")
    world.teach_many(10, first=10)
    built = second(world, first, after)
    assert {row["interaction_id"] for row in replayed(world, built)}.isdisjoint({back, changed})
    assert built.manifest["replay"]["dropped"] == {"superseded": 2}


def test_of_two_earlier_datasets_the_newer_is_believed(make_world: Worlds, phrases: Any) -> None:
    world = make_world(replay_share=0.5, val_share=0.0)
    (again,) = phrases([0])
    world.teach(again, "first", user="a")
    one, after_one = world.build(), world.seq
    world.teach(again, "second", user="b")
    two, after_two = world.build(from_seq=after_one), world.seq
    world.teach_many(6, first=10)
    built = world.build(from_seq=after_two, lineage=[one.digest, two.digest])
    assert [row["target"] for row in replayed(world, built)] == ["second"]


def test_what_is_held_out_now_is_not_replayed(make_world: Worlds, phrases: Any) -> None:
    world = make_world(replay_share=0.5, val_share=0.0)
    texts = phrases(range(4))
    names = [world.teach(text, "t", user=text, conversation=f"c{n}") for n, text in enumerate(texts)]
    first, after = world.build(), world.seq
    world.teach_many(6, first=10)
    copied = prompt_text([{"role": "user", "content": texts[2]}])
    out = HeldOut(frozenset({names[0]}), frozenset({"c1"}), (copied,))
    built = second(world, first, after, held_out=out)
    assert [row["interaction_id"] for row in replayed(world, built)] == [names[3]]
    assert built.manifest["firewall"]["stopped"] == 0


def test_old_rows_linked_to_the_validation_side_stay_out(make_world: Worlds) -> None:
    world = make_world(replay_share=0.5, val_share=0.4)
    for n in range(10):
        world.teach_many(3, first=10 * n, user=f"regular {n}")
    first, after = world.build(), world.seq
    for n in range(10):
        world.teach_many(2, first=1000 + 10 * n, user=f"regular {n}")
    built = second(world, first, after)
    rows = world.rows(built)
    assert built.val and built.replay
    sides = [{row["user_key"] for row in rows if row["side"] == side} for side in ("train", "val")]
    assert not sides[0] & sides[1]
    assert built.manifest["replay"]["dropped"]["shares_val"] > 0


def test_old_and_new_rows_of_a_user_together_stay_within_the_cap(make_world: Worlds) -> None:
    world = make_world(replay_share=0.5, val_share=0.0, max_per_user=4)
    world.teach_many(4, user="busy")
    world.teach_many(5, first=10)
    first, after = world.build(), world.seq
    world.teach_many(3, first=100, user="busy")
    world.teach_many(9, first=200)
    built = second(world, first, after)
    busy = Counter(row["origin"] for row in world.rows(built) if row["user_key"] == world.at.home.user_key("busy"))
    assert busy == {"new": 3, "replay": 1}


def test_replay_keeps_the_models_own_answers_within_their_share(make_world: Worlds, phrases: Any) -> None:
    world = make_world(replay_share=0.5, val_share=0.0, self_share=0.25)
    for n, text in enumerate(phrases(range(40))):
        world.teach(text, "t", user=f"u{n}", answer="t", own=n < 10)
    first, after = world.build(), world.seq
    world.teach_many(40, first=100)
    built = second(world, first, after)
    own = sum(bool(row["generated_by"]) for row in replayed(world, built))
    assert 0 < own <= 0.25 * built.replay


def test_the_lineage_tells_its_prompts_and_interactions(world: Any, phrases: Any) -> None:
    names = world.teach_many(6)
    built = world.build()
    assert lineage_interactions(world.at.home, [built.digest]) == frozenset(names)
    assert sorted(lineage_prompts(world.at.home, [built.digest]).values()) == sorted(phrases(range(6)))
    assert lineage_prompts(world.at.home, []) == {}


def test_a_missing_dataset_of_the_lineage_is_named(world: Any) -> None:
    world.teach_many(3)
    with pytest.raises(DatasetError, match=f"no dataset {'0' * 64}"):
        world.build(lineage=["0" * 64])
