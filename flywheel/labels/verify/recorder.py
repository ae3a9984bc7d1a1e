"""Putting words into the feedback table: some at a time, with the position that they mean, all of it or none.

The rows are written under the intake lock, as all feedback is, and an erasure holds that lock while it works: a word
about somebody who was erased since the answer was read is dropped here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from flywheel.labels.verify.position import Position, stem
from flywheel.labels.verify.report import VerifyReport
from flywheel.labels.verify.words import STAGE, Author, Word, feedback_row
from flywheel.labels.versions import store_position
from flywheel.store.compaction import compact, sweep
from flywheel.store.erased import Erased
from flywheel.store.files import locked
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import Segment, register, write_segment

AT_MOST = 2_000
"""Words that are held before they are written."""
AT_LONGEST_S = 10.0
"""How long they are held: as much work as a kill may undo."""

Say = Callable[[str], None]


class Recorder:
    """Takes words and writes them.

    Args:
        position: where everybody stands; written with the words.
        now: the time of the words.
        report: where words are counted, with an entry for everybody who may speak.
    """

    def __init__(
        self,
        home: Home,
        registry: Registry,
        task: str,
        position: Position,
        now: datetime,
        report: VerifyReport,
        say: Say,
    ) -> None:
        self.home, self.registry, self.task = home, registry, task
        self.position, self.report = position, report
        self._now, self._say = now, say
        self._held: list[tuple[Author, Word]] = []
        self._since = time.monotonic()
        self._wrote = False

    def add(self, author: Author, *words: Word) -> None:
        """Take words in; they are written soon."""
        for word in words:
            self._held.append((author, word))
            self.report.authors[author.key].count(word)
        if len(self._held) >= AT_MOST or time.monotonic() - self._since > AT_LONGEST_S:
            self.flush()

    def author(self, key: str) -> Author:
        """An author as it speaks now."""
        return self.position.authors[key].author(key)

    def has_seen(self, key: str, path: str) -> bool:
        """Whether an author has said all that it has to say about a segment."""
        return stem(path) in self.position.authors[key].seen

    def saw(self, key: str, path: str) -> None:
        """Note that it has; this is written with the words."""
        self.position.authors[key].seen.add(stem(path))

    def flush(self) -> None:
        """Write what is held."""
        self._since = time.monotonic()
        if not self._held:
            return
        held, self._held = self._held, []
        with locked(self.home.locks / f"intake-{self.task}.lock"):
            with self.registry.read() as tx:
                erased = Erased(self.home, tx, self.task)
            kept = [(author, word) for author, word in held if erased.gone(word.target, word.other) is None]
            written = self._write([feedback_row(author, word, self.task, self._now) for author, word in kept])
            self._store(written)
        self._wrote = True
        self._say(f"{self.task}: {self.report.said} verdicts and silences stored")

    def note(self, text: str) -> None:
        """Put a remark into the report, and tell it."""
        self.report.notes.append(text)
        self._say(text)

    def finish(self) -> None:
        """Write what is held and where everybody stands now; merge small segments."""
        self.flush()
        self._store([])
        if self._wrote:
            with locked(self.home.locks / f"intake-{self.task}.lock"):
                if compact(self.home, self.registry, "feedback", self.task):
                    sweep(self.home, self.registry, "feedback", self.task)

    def _write(self, rows: list[dict[str, object]]) -> list[Segment]:
        day = self._now.strftime("%Y-%m-%d")
        return [write_segment(self.home, "feedback", self.task, day, rows)] if rows else []

    def _store(self, written: list[Segment]) -> None:
        with self.registry.write() as tx:
            register(tx, written)
            store_position(tx, self.task, self.position.to_json(), STAGE)
