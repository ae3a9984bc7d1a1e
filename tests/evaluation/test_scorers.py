"""Exact match, and the metric modules against an independent implementation."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flywheel.errors import EvaluationError
from flywheel.evaluation.scorers import get_scorer, metrics

labels = st.sampled_from(["billing", "shipping", "sales", "other"])


@pytest.mark.parametrize("answer", ["billing", "Billing", "  BILLING \n", "billing.", "billing . ", "ｂｉｌｌｉｎｇ"])
def test_exact_match_overlooks_case_blanks_width_and_final_periods(answer: str) -> None:
    assert get_scorer("exact")(answer, "Billing") == 1


@pytest.mark.parametrize("answer", ["bill", "billing, I think", "shipping", "", " . "])
def test_exact_match_accepts_nothing_else(answer: str) -> None:
    assert get_scorer("exact")(answer, "billing") == 0


def test_an_empty_answer_is_wrong_even_for_an_empty_label() -> None:
    assert get_scorer("exact")(" ", "") == 0


def test_blanks_inside_an_answer_are_runs_of_one() -> None:
    assert get_scorer("exact")("cash  \n withdrawal", "cash withdrawal") == 1


def test_an_unknown_scorer_is_refused_with_the_known_ones() -> None:
    with pytest.raises(EvaluationError, match=r"unknown scorer 'bleu'; known are: exact"):
        get_scorer("bleu")


def test_metrics_need_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert metrics(["a", "B.", "zz"], ["a", "b", "a"]) == pytest.approx(
        {"accuracy": 2 / 3, "macro_f1": (2 / 3 + 1) / 2}
    )


def test_metrics_of_nothing_are_absent() -> None:
    assert metrics([], []) == {}


@settings(max_examples=40)
@given(st.lists(st.tuples(labels | st.just("nonsense"), labels), min_size=1, max_size=30))
def test_metrics_agree_with_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    said, right = (list(column) for column in zip(*pairs, strict=True))
    found = metrics(said, right)
    assert found["accuracy"] == pytest.approx(sklearn.accuracy_score(right, said))
    classes = sorted(set(right))
    expected = sklearn.f1_score(right, said, labels=classes, average="macro", zero_division=0)
    assert found["macro_f1"] == pytest.approx(expected)
