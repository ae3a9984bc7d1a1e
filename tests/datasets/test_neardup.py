from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flywheel.datasets.neardup import bands, cluster_ids, clusters, near_any
from flywheel.datasets.prompts import normalise

WORDS = ["order", "late", "parcel", "where", "is", "my", "the", "refund", "card", "lost", "7", "42"]


def jaccard(one: str, other: str) -> float:
    """The definition, written apart from the code under test."""
    grams = []
    for text in (normalise(one), normalise(other)):
        grams.append({text[i : i + 5] for i in range(len(text) - 4)} if len(text) >= 5 else {text})
    return len(grams[0] & grams[1]) / len(grams[0] | grams[1])


def by_brute_force(texts: list[str], threshold: float) -> list[int]:
    """Connected components by comparing all pairs."""
    group = list(range(len(texts)))
    for i in range(len(texts)):
        for j in range(i):
            if jaccard(texts[i], texts[j]) >= threshold and group[i] != group[j]:
                old, new = max(group[i], group[j]), min(group[i], group[j])
                group = [new if g == old else g for g in group]
    return [sorted(set(group)).index(g) for g in group]


sentences = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)


@settings(max_examples=40)
@given(st.lists(st.one_of(sentences, st.text(max_size=7)), max_size=14), st.sampled_from([0.5, 0.7, 0.9, 1.0]))
def test_clusters_are_the_components_of_exact_jaccard(texts: list[str], threshold: float) -> None:
    assert clusters(texts, threshold=threshold) == by_brute_force(texts, threshold)


@settings(max_examples=40)
@given(st.lists(sentences, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_a_text_keeps_its_cluster_id_in_any_order(texts: list[str], order: random.Random) -> None:
    named = dict(zip(texts, cluster_ids(texts, threshold=0.7), strict=True))
    shuffled = order.sample(texts, len(texts))
    assert dict(zip(shuffled, cluster_ids(shuffled, threshold=0.7), strict=True)) == named


def test_case_space_and_unicode_form_do_not_separate_copies() -> None:
    assert clusters(["Where is  MY card?", "where is my card?\n", "ｗhere is my card?"], threshold=1.0) == [0, 0, 0]


def test_texts_shorter_than_a_gram_are_near_their_copies_only() -> None:
    assert clusters(["", "hi", "Hi ", "ho", "hi!", " "], threshold=0.7) == [0, 1, 1, 2, 3, 0]


def test_digits_count_so_numbered_short_texts_stay_apart() -> None:
    assert clusters(["order 1234567", "order 7654321"], threshold=0.7) == [0, 1]


def test_no_texts_give_no_clusters() -> None:
    assert clusters([], threshold=0.7) == []
    assert near_any(["a text"], [], threshold=0.7) == [False]


@settings(max_examples=40)
@given(st.lists(sentences, max_size=8), st.lists(sentences, max_size=8))
def test_near_any_finds_exactly_the_near_copies(texts: list[str], corpus: list[str]) -> None:
    expected = [any(jaccard(text, other) >= 0.7 for other in corpus) for text in texts]
    assert near_any(texts, corpus, threshold=0.7) == expected


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7, 0.8, 0.9, 1.0])
def test_the_bands_meet_nearly_every_pair_at_the_threshold(threshold: float) -> None:
    rows = 128 // bands(threshold)
    assert 1 - (1 - threshold**rows) ** bands(threshold) >= 0.999


def test_a_flood_of_one_template_is_one_cluster_in_little_time() -> None:
    rng = random.Random(3)
    texts = [
        f"please tell me at once where the parcel of my order number {rng.randrange(10**4)} is now" for _ in range(2000)
    ]
    assert set(clusters(texts, threshold=0.7)) == {0}
