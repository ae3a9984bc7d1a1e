"""Processes: how many make sense here, and children that end with their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def tie_to_parent(parent: int, number: int = signal.SIGTERM) -> bool:
    """Have the kernel send this process a signal when its parent dies (on Linux; elsewhere nothing happens).

    Args:
        parent: the parent's process id, as the parent itself knows it: it may well be 1, in a container.

    Returns whether that parent is still there: one that has died before this call leaves no signal behind.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    return os.getppid() == parent


def die_with_parent(parent: int) -> None:
    """`tie_to_parent`, or end now when the parent is gone."""
    if not tie_to_parent(parent):
        os.kill(os.getpid(), signal.SIGTERM)


def cores() -> int:
    """How many whole cores this process may use, by its affinity and its container's limit."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(found, _quota())


def _quota() -> int:
    """Whole cores a container may use, or a large number without a limit."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, int(limit) // int(period))
    except (OSError, ValueError):
        return 1 << 16
