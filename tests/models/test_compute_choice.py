"""Choosing dtype and threads."""

from __future__ import annotations

import pytest

from flywheel.errors import ConfigError
from flywheel.models import Compute, choose_compute


def test_what_is_given_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert choose_compute("float32", 3) == Compute("float32", 3)


def test_omp_num_threads_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert choose_compute().threads == 7


def test_without_a_wish_at_least_one_thread_and_never_all_of_several_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.delenv("OMP_NUM_THREADS")
    cores = len(os.sched_getaffinity(0))
    assert 1 <= choose_compute().threads <= max(1, cores - 1)


def test_a_dtype_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="float16"):
        Compute("float16", 1)


def test_the_machine_class_tells_dtype_and_threads_apart() -> None:
    classes = {Compute(dtype, threads).machine_class for dtype in ("float32", "bfloat16") for threads in (1, 2)}
    assert len(classes) == 4
    assert all("torch" in name and "transformers" in name for name in classes)
