"""Pairs and answers that are known to be good or bad only, beside what is learned by heart."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from flywheel.config import DataPolicy
from flywheel.datasets.caps import cap
from flywheel.datasets.rows import KTO, PAIR, SFT, Row, make_row
from flywheel.datasets.select import cap_self_generated, settle
from flywheel.errors import DatasetError


def row(kind: str, target: str, number: int, *, text: str = "hi", **about: Any) -> Row:
    return make_row(
        [{"role": "user", "content": text}],
        {"role": "assistant", "content": target},
        None,
        interaction_id=f"i{number}",
        conversation_id=f"c{number}",
        user_key=about.pop("user", f"u{number}"),
        kind=kind,
        **about,
    )


def liked(target: str, number: int, good: bool = True, **about: Any) -> Row:
    return row(KTO, target, number, desirable=good, **about)


def preferred(target: str, rejected: str, number: int, **about: Any) -> Row:
    return row(PAIR, target, number, rejected={"role": "assistant", "content": rejected}, **about)


def test_an_edit_teaches_its_text_and_a_pair(world: Any) -> None:
    world.teach("where is it", "on its way", rejected="on its why")
    built = world.build()
    found = {one["kind"]: one for one in world.rows(built)}
    assert found.keys() == {SFT, PAIR}
    assert found[SFT]["train_mask"] == [False, False, True] and found[PAIR]["train_mask"] == [False] * 3
    assert json.loads(found[PAIR]["rejected"]) == {"role": "assistant", "content": "on its why"}
    assert found[PAIR]["target"] == "on its way" and found[SFT]["rejected"] == ""
    assert built.manifest["kinds"] == {SFT: 1, PAIR: 1, KTO: 0}
    assert built.manifest["considered"] == 2 and built.train == 1


def test_a_preference_alone_makes_a_pair_only(world: Any) -> None:
    world.teach_many(3)
    world.teach("which one", "this", use="pair", rejected="that")
    built = world.build()
    assert built.manifest["kinds"] == {SFT: 3, PAIR: 1, KTO: 0}


@pytest.mark.parametrize(("y", "good"), [(0.73, True), (0.2, False)])
def test_a_thumb_makes_a_row_of_the_models_answer_that_is_good_or_bad(world: Any, y: float, good: bool) -> None:
    world.teach_many(2)
    world.teach("where is it", "", use="kto", y=y, answer="gone", source="thumb")
    (found,) = [one for one in world.rows(world.build()) if one["kind"] == KTO]
    assert (found["desirable"], found["target"], found["generated_by"]) == (good, "gone", "ab" * 32)
    assert not any(found["train_mask"])


def test_a_cut_off_answer_may_be_bad_but_not_good(world: Any) -> None:
    world.teach_many(2)
    world.teach("one", "", use="kto", y=0.8, answer="half", finish="length")
    world.teach("two", "", use="kto", y=0.2, answer="half", finish="length")
    built = world.build()
    assert built.manifest["kinds"][KTO] == 1 and built.manifest["dropped"] == {"truncated_answer": 1}


def test_thumbs_alone_are_too_few_examples(make_world: Any) -> None:
    world = make_world(min_examples=1)
    world.teach("where is it", "", use="kto", answer="gone")
    with pytest.raises(DatasetError, match="0 new training examples of 1 labelled rows"):
        world.build()


def test_only_what_is_learned_by_heart_is_replayed(make_world: Any) -> None:
    world = make_world(replay_share=0.5, val_share=0)
    world.teach_many(4)
    world.teach("where is it", "", use="kto", answer="gone")
    first = world.build()
    world.teach_many(4, first=100)
    second = world.build(from_seq=5, parent=first.digest, lineage=[first.digest])
    assert second.manifest["replay"]["candidates"] == 4 and second.replay == 4
    assert second.manifest["kinds"][KTO] == 0


def test_users_vote_on_an_answer_and_equal_votes_say_nothing() -> None:
    kept, dropped = settle([liked("a", 1), liked("a", 2), liked("a", 3, False), liked("b", 4), liked("b", 5, False)])
    assert [(one.target, one.desirable) for one in kept] == [("a", True)]
    assert dropped == {"duplicate": 1, "contradiction": 1, "contradiction_tie": 2}


def test_users_vote_on_which_of_two_answers_is_better() -> None:
    kept, dropped = settle([preferred("a", "b", 1), preferred("b", "a", 2), preferred("a", "b", 3)])
    assert [(one.target, one.rejected) for one in kept] == [("a", {"role": "assistant", "content": "b"})]
    assert dropped == {"duplicate": 1, "contradiction": 1}


def test_nothing_denies_what_is_learned_by_heart() -> None:
    right = row(SFT, "a", 1)
    others = [liked("a", 2, False), liked("b", 3), preferred("b", "a", 4)]
    kept, dropped = settle([right, *others])
    assert kept == [right] and dropped == {"contradiction": 3}
    agreeing = [liked("a", 2), liked("b", 3, False), preferred("a", "b", 4)]
    kept, dropped = settle([right, *agreeing])
    assert len(kept) == 4 and not dropped


def test_the_share_of_own_answers_is_of_what_is_learned_by_heart() -> None:
    rows = [row(SFT, "a", 1), *(liked("x", number, text=f"t{number}", generated_by="m") for number in range(2, 9))]
    kept, dropped = cap_self_generated(rows, 0.5)
    assert len(kept) == len(rows) and not dropped


def test_each_kind_has_caps_of_its_own() -> None:
    rows = [row(SFT, "a", number, text=f"t{number}", user="one") for number in range(8)]
    rows += [liked("a", number, text=f"t{number}", user="one") for number in range(8, 16)]
    capped = cap([replace(one, cluster_id=one.text) for one in rows], DataPolicy(max_per_user=5))
    assert [sum(one.kind == kind for one in capped.rows) for kind in (SFT, KTO)] == [5, 5]
    assert capped.dropped == {"user_cap": 6} and capped.users == 1
