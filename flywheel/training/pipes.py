"""Where a child's progress goes: lines on stderr, and into Dagster's log when Dagster started it.

Only counts, rates, losses and digests pass through here, never text of the data.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


def tell(line: str) -> None:
    """Write a line to stderr; that nobody reads it any more is no reason to stop."""
    with suppress(BrokenPipeError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class Reporter:
    """Call it with a line for people; ``message`` is for the parent program."""

    def __call__(self, line: str) -> None:
        """One line of progress."""
        tell(line)

    def failed(self, line: str) -> None:
        """Why this process ends without a result."""
        tell(line)

    def message(self, payload: dict[str, Any]) -> None:
        """A JSON-serialisable fact for the parent; nobody but Dagster listens to these."""


class PipesReporter(Reporter):
    """Also tells Dagster, through an open ``PipesContext``."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __call__(self, line: str) -> None:
        super().__call__(line)
        self._context.log.info(line)

    def failed(self, line: str) -> None:
        super().failed(line)
        self._context.log.error(line)

    def message(self, payload: dict[str, Any]) -> None:
        self._context.report_custom_message(payload)


@contextmanager
def open_reporter() -> Iterator[Reporter]:
    """A reporter for this process: through Dagster Pipes if its environment variables are there, else stderr only."""
    if "DAGSTER_PIPES_CONTEXT" not in os.environ:
        yield Reporter()
        return
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as context:
        yield PipesReporter(context)
