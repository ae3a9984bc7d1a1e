"""Cohen's kappa against scikit-learn's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from flywheel.labels.verify.agreement import Both, kappa


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_kappa_is_what_scikit_learn_computes(pairs: list[Both]) -> None:
    found = kappa(pairs)
    if len({*(one for one, _ in pairs), *(other for _, other in pairs)}) == 1:
        assert found is None, "both always said one and the same"
        return
    expected = cohen_kappa_score([one for one, _ in pairs], [other for _, other in pairs])
    assert found is not None and math.isclose(found, expected, abs_tol=1e-12)


@pytest.mark.parametrize(
    ("pairs", "value"),
    [([], None), ([(True, True)], None), ([(True, True), (False, False)], 1.0), ([(True, False), (False, True)], -1.0)],
)
def test_kappa_at_its_ends(pairs: list[Both], value: float | None) -> None:
    assert kappa(pairs) == value
