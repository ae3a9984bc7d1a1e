"""How this machine computes: the dtype it is fast in and how many threads to use."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from flywheel.errors import ConfigError
from flywheel.store.processes import cores

DTYPES = ("float32", "bfloat16")

FAST_BF16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""CPU flags (x86 and Arm) that mean bfloat16 arithmetic in hardware. Without one, fp32 is several times faster."""


@dataclass(frozen=True)
class Compute:
    """What numbers are computed with. ``dtype`` is ``float32`` or ``bfloat16``; ``threads`` of one forward."""

    dtype: str
    threads: int

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ConfigError(f"dtype {self.dtype!r} is not known; use one of {', '.join(DTYPES)}")
        if self.threads < 1:
            raise ConfigError(f"threads must be at least 1, not {self.threads}")

    @property
    def machine_class(self) -> str:
        """Within one class equal inputs give bitwise equal results; across classes they only come close."""
        return "|".join(
            (
                cpu_model(),
                f"torch {version('torch')}",
                f"transformers {version('transformers')}",
                self.dtype,
                f"{self.threads} threads",
            )
        )


def choose_compute(dtype: str | None = None, threads: int | None = None) -> Compute:
    """Fill in what is not given by looking at the machine.

    bfloat16 where the CPU has instructions for it, otherwise float32. Threads: ``OMP_NUM_THREADS`` if set, otherwise
    one less than the usable cores, because two threads on one busy core are slower than one.
    """
    return Compute(dtype=dtype or _fast_dtype(), threads=threads or _usable_threads())


def cpu_model() -> str:
    """The processor's name as the operating system gives it."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _fast_dtype() -> str:
    flags = set((_cpuinfo("flags") or _cpuinfo("Features")).split())
    return "bfloat16" if flags & FAST_BF16 else "float32"


def _usable_threads() -> int:
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return max(1, cores() - 1)


def _cpuinfo(field: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(field) and ":" in line), "")
