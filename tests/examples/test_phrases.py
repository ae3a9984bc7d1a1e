"""The demo's own messages: enough of them, and nothing in the tests is a near copy of what was trained on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.support_desk.phrases import Material, own_material
from examples.support_desk.plan import Supply, make_plan, mixed, needs, spread
from examples.support_desk.similar import clusters, grams, near_pairs
from flywheel.datasets import neardup


@pytest.fixture(scope="module")
def material() -> Material:
    return own_material()


def test_the_phrases_carry_the_whole_plan(material: Material) -> None:
    wanted = needs(make_plan(material), material)
    for side in ("traffic", "unseen"):
        have = {queue: len(texts) for queue, texts in getattr(material, side).items()}
        short = {queue: (have[queue], count) for queue, count in wanted[side].items() if have[queue] < count}
        assert not short, f"{side}: {short}"


def test_no_test_phrase_is_a_near_copy_of_a_training_phrase_by_the_products_own_measure(material: Material) -> None:
    sides = [
        (side, text) for side in ("traffic", "unseen") for texts in getattr(material, side).values() for text in texts
    ]
    sides_of: dict[int, set[str]] = {}
    for (side, _), cluster in zip(sides, neardup.clusters([text for _, text in sides], threshold=0.7), strict=True):
        sides_of.setdefault(cluster, set()).add(side)
    assert all(len(found) == 1 for found in sides_of.values())


def test_no_two_messages_are_near_copies_so_the_firewall_stops_none(material: Material) -> None:
    texts = [text for side in (material.traffic, material.unseen) for found in side.values() for text in found]
    assert len(texts) > 2000
    assert list(near_pairs(texts, 0.7)) == []


def test_the_same_seed_gives_the_same_messages(material: Material) -> None:
    assert own_material() == material
    assert own_material(seed=1) != material


def test_there_are_ten_queues_first_and_four_later(material: Material) -> None:
    assert (len(material.initial), len(material.later)) == (10, 4)
    assert set(material.traffic) == set(material.unseen) == set(material.queues)


@given(
    st.lists(st.text("abc ", min_size=1, max_size=24), min_size=2, max_size=12),
    st.sampled_from([0.3, 0.5, 0.6, 0.7, 1.0]),
)
def test_prefix_filtering_finds_every_near_pair_that_brute_force_finds(texts: list[str], threshold: float) -> None:
    sets = [grams(text) for text in texts]
    brute = {
        (i, j)
        for j in range(len(texts))
        for i in range(j)
        if len(sets[i] & sets[j]) / len(sets[i] | sets[j]) >= threshold
    }
    assert set(near_pairs(texts, threshold)) == brute


def test_clusters_join_chains_of_near_copies() -> None:
    texts = ["where is my parcel today", "cancel it", "where is my parcel today?", "where is my parcel today??"]
    assert clusters(texts, 0.8) == [0, 1, 0, 0]


def test_the_supply_hands_out_each_message_once(material: Material) -> None:
    supply = Supply(material)
    taken = supply.take("traffic", spread(200, material.queues)) + supply.take("traffic", spread(200, material.queues))
    assert len({message.text for message in taken}) == 400
    assert all(message.text in material.traffic[message.queue] for message in taken)


def test_new_queues_make_up_more_than_half_of_the_second_loop(material: Material) -> None:
    counts = mixed(200, material)
    assert counts.total() == 200
    assert sum(counts[queue] for queue in material.later) == 110
