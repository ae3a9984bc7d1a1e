"""The error contract: one base, and each error also is the standard-library error that it refines."""

from __future__ import annotations

import inspect

import pytest

from flywheel import errors

REFINES = {
    "ConfigError": ValueError,
    "ModelUnavailable": OSError,
    "CheckpointError": ValueError,
    "StoreError": OSError,
    "StaleAttempt": RuntimeError,
    "HomeBusy": RuntimeError,
    "IntakeError": ValueError,
    "VerifierError": RuntimeError,
    "DatasetError": ValueError,
    "TrainingError": RuntimeError,
    "EvaluationError": RuntimeError,
    "PromotionRefused": PermissionError,
    "ProbeFailed": RuntimeError,
    "RequestError": ValueError,
}


def defined() -> dict[str, type[BaseException]]:
    return {
        name: item
        for name, item in inspect.getmembers(errors, inspect.isclass)
        if item.__module__ == errors.__name__ and item is not errors.FlywheelError
    }


def test_the_list_above_names_every_error() -> None:
    assert set(REFINES) == set(defined())


@pytest.mark.parametrize(("name", "standard"), REFINES.items())
def test_an_error_can_be_caught_as_ours_and_as_the_standard_one(name: str, standard: type[BaseException]) -> None:
    error = defined()[name]
    assert issubclass(error, errors.FlywheelError) and issubclass(error, standard)
    assert str(error("what was found; what to do")) == "what was found; what to do"
    assert inspect.getdoc(error)


def test_a_request_error_carries_what_an_answer_needs() -> None:
    error = errors.RequestError("slow down", status=429, code="queue_full", param="n", retry_after_s=1.5)
    assert (error.message, error.status, error.code, error.param, error.retry_after_s) == (
        "slow down",
        429,
        "queue_full",
        "n",
        1.5,
    )
    assert errors.RequestError("wrong").status == 400
