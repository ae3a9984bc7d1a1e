from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from flywheel.errors import DatasetError
from flywheel.store.registry import schema

Worlds = Callable[..., Any]
Phrases = Callable[[Any], list[str]]


def test_a_labelled_interaction_becomes_an_example(world: Any) -> None:
    name = world.teach("My card is gone", "lost_card", user="ann", conversation="conv-1")
    (row,) = world.rows(world.build())
    assert json.loads(row["messages"]) == [
        {"role": "system", "content": "Route the message to a queue."},
        {"role": "user", "content": "My card is gone"},
        {"role": "assistant", "content": "lost_card"},
    ]
    assert row["train_mask"] == [False, False, True]
    assert (row["interaction_id"], row["conversation_id"]) == (name, "conv-1")
    assert row["user_key"] == world.at.home.user_key("ann")
    assert (row["side"], row["kind"], row["origin"], row["generated_by"]) == ("train", "sft", "new", "")


def test_the_models_own_answer_names_its_release(world: Any, phrases: Phrases) -> None:
    own, corrected = phrases(range(2))
    world.teach(own, "billing", answer="billing", own=True, source="thumb", release="ef" * 32)
    world.teach(corrected, "cards")
    rows = {row["prompt"]: row for row in world.rows(world.build())}
    assert rows[own]["generated_by"] == "ef" * 32
    assert rows[corrected]["generated_by"] == ""


def test_an_own_answer_that_was_cut_off_is_not_learned(world: Any, phrases: Phrases) -> None:
    cut, whole = phrases(range(2))
    world.teach(cut, "bill", answer="bill", own=True, finish="length")
    world.teach(whole, "cards")
    built = world.build()
    assert [row["prompt"] for row in world.rows(built)] == [whole]
    assert built.manifest["dropped"] == {"truncated_answer": 1}


def test_only_label_versions_of_the_window_are_new(world: Any) -> None:
    world.teach_many(10)
    first = world.seq
    world.teach_many(10, first=10)
    second = world.seq
    world.teach_many(10, first=20)
    built = world.build(from_seq=first, to_seq=second)
    assert built.manifest["considered"] == built.new == 10
    assert {int(row["prompt"].split()[-1]) for row in world.rows(built)} == set(range(10, 20))


def test_labels_for_evaluation_do_not_train_until_their_item_graduates(world: Any, phrases: Phrases) -> None:
    item, other = phrases(range(2))
    graduate = world.teach(item, "cards", use="eval", source="reviewer")
    first = world.seq
    world.teach(other, "billing")
    assert world.build().new == 1
    built = world.build(from_seq=first, graduated=frozenset({graduate}))
    assert {row["prompt"] for row in world.rows(built)} == {item, other}
    # Once learned, it is no news again.
    world.teach_many(1, first=7)
    later = world.build(from_seq=first + 1, graduated=frozenset({graduate}), lineage=[built.digest])
    assert later.manifest["considered"] == 1


def test_only_the_last_message_of_a_conversation_is_learned(world: Any) -> None:
    opening = {"role": "user", "content": "hello there, a question"}
    turns = [opening, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "my card is gone"}]
    world.teach(turns, "lost_card", conversation="c", turn=1)
    (row,) = world.rows(world.build())
    assert row["train_mask"] == [False, False, False, False, True]


def test_every_considered_label_is_an_example_or_counted(make_world: Worlds, phrases: Phrases) -> None:
    world = make_world(max_per_user=2)
    world.teach_many(20)
    a, b, c, d = phrases(range(100, 104))
    world.teach(a, "one", user="x1")
    world.teach(a, "one", user="x2")
    world.teach(b, "one", user="x3")
    world.teach(b, "two", user="x4")
    world.teach(c, "", user="x5")
    world.label("chatcmpl-unknown", "one")
    world.teach_many(5, first=200, user="busy")
    built = world.build()
    manifest = built.manifest
    expected = {"duplicate": 1, "contradiction_tie": 2, "no_target": 1, "interaction_missing": 1, "user_cap": 3}
    assert manifest["dropped"] == expected
    assert manifest["considered"] == built.new + sum(manifest["dropped"].values()) == 31
    assert manifest["labels"] == {"correction": built.new}
    assert sum(manifest["targets"]["top"]) == built.train + built.val
    assert d not in {row["prompt"] for row in world.rows(built)}


def test_hundreds_of_wrong_corrections_by_few_users_end_at_the_cap_and_are_counted(make_world: Worlds) -> None:
    world = make_world(max_user_share=0.05)
    world.teach_many(100)
    for n in range(300):
        world.teach_many(1, first=1000 + n, user=f"vandal {n % 3}")
    built = world.build()
    manifest = built.manifest
    vandals = {world.at.home.user_key(f"vandal {n}") for n in range(3)}
    rows = [row for row in world.rows(built) if row["user_key"] in vandals]
    assert manifest["caps"]["per_user"] == 7  # 5 % of the 121 rows that stay
    assert len(rows) == 21
    assert manifest["dropped"] == {"user_cap": 279}
    assert (manifest["caps"]["capped_users"], manifest["caps"]["capped_rows"]) == (3, 279)
    assert manifest["caps"]["largest_user_share"] <= 0.06


def test_too_few_examples_say_how_many_and_how_many_are_missing(make_world: Worlds, phrases: Phrases) -> None:
    world = make_world(min_examples=32, val_share=0.0)
    world.teach_many(12)
    repeated = phrases([0])[0]
    world.teach(repeated, "queue 0", user="again")
    with pytest.raises(DatasetError, match=r"12 new training examples of 13 .* asks for 32: 20 are missing") as error:
        world.build()
    assert "duplicate 1" in str(error.value)
    assert repeated not in str(error.value)
    assert [path.name for path in world.at.home.datasets.iterdir()] == []


def test_nothing_of_the_log_is_in_manifest_or_card(world: Any) -> None:
    world.teach(
        "A Secret Sentence of a customer", "a secret target", user="ann@example.org", conversation="conv-secret"
    )
    built = world.build()
    told = (built.path / "manifest.json").read_text() + (built.path / "card.md").read_text()
    for secret in ("ecret", "ann@", world.at.home.user_key("ann@example.org")):
        assert secret not in told


def test_one_user_for_everything_means_no_validation_side_and_says_so(make_world: Worlds) -> None:
    world = make_world(val_share=0.2)
    world.teach_many(5, user="only")
    built = world.build()
    assert (built.train, built.val) == (5, 0)
    assert "no validation side" in built.manifest["notes"][0]


def test_the_dataset_is_in_the_registry_once(world: Any) -> None:
    world.teach_many(5)
    built = [world.build(loop_id=f"support_router/{n}") for n in (1, 2)]
    assert built[0].digest == built[1].digest
    with world.at.registry.read() as tx:
        (row,) = tx.rows(sa.select(schema.datasets))
    assert (row["digest"], row["loop_id"], row["manifest"]) == (built[0].digest, "support_router/1", built[0].manifest)


def test_the_parent_is_part_of_the_digest(world: Any) -> None:
    world.teach_many(5)
    assert world.build().digest != world.build(parent="ab" * 32).digest


def test_policies_are_part_of_the_digest(make_world: Worlds) -> None:
    digests = set()
    for number, cap in enumerate((20, 19)):
        world = make_world(f"w{number}", max_per_user=cap)
        world.teach_many(5)
        digests.add(world.build().digest)
    assert len(digests) == 2


traffic = st.lists(
    st.tuples(
        st.integers(0, 25), st.sampled_from(["a", "b", "c"]), st.integers(0, 9), st.sampled_from(["", "k1", "k2"])
    ),
    min_size=12,
    max_size=40,
)


@settings(max_examples=5)
@given(traffic, st.randoms(use_true_random=False))
def test_row_order_and_deployment_do_not_change_the_digest_and_nothing_leaks(
    make_world: Worlds,
    tmp_path_factory: pytest.TempPathFactory,
    phrases: Phrases,
    asked: list[tuple[int, str, int, str]],
    order: random.Random,
) -> None:
    digests = []
    for shuffle in (None, order):
        world = make_world(tmp_path_factory.mktemp("w").name, order=shuffle, val_share=0.3)
        for text, target, user, conversation in asked:
            world.teach(phrases([text])[0], target, user=f"user {user}", conversation=conversation or None)
        for n in range(100, 103):  # three rows that nothing can contradict
            world.teach(phrases([n])[0], "a", user=f"lone {n}")
        built = world.build()
        digests.append(built.digest)
        rows = world.rows(built)
        for field in ("user_key", "conversation_id", "cluster_id"):
            sides = [{row[field] for row in rows if row["side"] == side} - {""} for side in ("train", "val")]
            assert not sides[0] & sides[1]
    assert digests[0] == digests[1]
