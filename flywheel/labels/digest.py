"""The digest of a task's labels: what they say, not when or in which order they were written."""

from __future__ import annotations

from flywheel.labels.versions import current_digests
from flywheel.store.digests import rows_digest
from flywheel.store.home import Home
from flywheel.store.registry import Registry


def labels_digest(home: Home, registry: Registry, task: str) -> str:
    """Digest over the latest label of each target; numbers, runs and superseded versions do not count."""
    return rows_digest(current_digests(home, registry, task).items())
