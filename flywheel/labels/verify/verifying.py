"""Verifiers at work: each looks once at every answer that it has not seen, and takes back its words when it is gone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa

from flywheel.errors import VerifierError
from flywheel.labels.verify.answers import Answer, read_answers
from flywheel.labels.verify.checks import Check, Verifier
from flywheel.labels.verify.looking import is_there, looked_at, newest_first, without
from flywheel.labels.verify.position import GONE
from flywheel.labels.verify.recorder import Recorder
from flywheel.labels.verify.report import Spoken
from flywheel.labels.verify.words import ERROR, SILENT, STAGE, WITHDRAWN, Author, Word
from flywheel.store.segments import query

FIRST = 20
"""When so many answers fail, from the first on, something is broken."""

_IDS = "SELECT interaction_id FROM rows WHERE status = 'ok' ORDER BY ts, interaction_id"

_STANDING = """
SELECT target_id, source_id, value FROM rows WHERE source = $1 AND author_key = $2 AND origin = $3
QUALIFY row_number() OVER (PARTITION BY target_id, kind ORDER BY ts DESC, feedback_id DESC) = 1
ORDER BY target_id, source_id
"""


@dataclass
class Held:
    """Failures of one author, kept back until something goes well: what an outage causes is no finding."""

    words: list[Word] = field(default_factory=list)
    well: bool = False

    def after(self, word: Word, *, failed: bool) -> list[Word]:
        """The words to store now that this one has come."""
        self.words.append(word)
        self.well |= not failed
        if not self.well:
            return []
        ready, self.words = self.words, []
        return ready


@dataclass
class _Look:
    """One verifier in this run; its check is loaded when there is something to look at."""

    verifier: Verifier
    author: Author
    seen: pa.Array
    spoken: Spoken
    held: Held = field(default_factory=Held)
    check: Check | None = None

    @classmethod
    def of(cls, recorder: Recorder, verifier: Verifier) -> _Look:
        author = recorder.author(f"verifier/{verifier.name}")
        seen = looked_at(recorder.home, recorder.registry, recorder.task, author)
        return cls(verifier, author, seen, recorder.report.authors[author.key])

    def at(self, answer: Answer, stack: ExitStack) -> list[Word]:
        """The words to store after a look at an answer."""
        if self.check is None:
            self.check = self.verifier.load(stack)
        try:
            good, text = self.check(answer)
        except Exception as error:  # noqa: BLE001 - the operator's code may raise anything
            self.spoken.errors[type(error).__name__] += 1
            words = self.held.after(Word(answer.interaction_id, ERROR), failed=True)
            if len(self.held.words) >= FIRST:
                raise VerifierError(self._broken()) from None
            return words
        right = text if good is False and text.strip() != answer.text.strip() else ""
        return self.held.after(Word(answer.interaction_id, SILENT if good is None else good, right), failed=False)

    def _broken(self) -> str:
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.spoken.errors.items()))
        return (
            f"verifier {self.verifier.name}: each of the first {FIRST} answers raised ({kinds}); no labels are made "
            "while it is broken: mend it, or take it out of flywheel.yaml"
        )


def let_verify(recorder: Recorder, verifiers: Sequence[Verifier], stack: ExitStack) -> bool:
    """Let every verifier look at the answers that it has not seen; returns whether any are left to a later run.

    Raises:
        ConfigError: one cannot be loaded.
        VerifierError: one fails on everything. What was found before stays; the failures are not remembered.
    """
    looks: dict[str, _Look] = {}
    try:
        for path in newest_first(recorder.registry, recorder.task):
            waiting = [own for own in verifiers if not recorder.has_seen(f"verifier/{own.name}", path)]
            if waiting and is_there(recorder.registry, path):
                for own in waiting:
                    if own.name not in looks:
                        looks[own.name] = _Look.of(recorder, own)
                _look_through(recorder, path, [looks[own.name] for own in waiting], stack)
    except VerifierError:
        recorder.flush()
        raise
    recorder.flush()
    return any(look.held.words for look in looks.values())


def _look_through(recorder: Recorder, path: str, looks: Sequence[_Look], stack: ExitStack) -> None:
    """Let verifiers look at the answers of one segment."""
    at = recorder.home, recorder.registry
    ids = query(*at, "interactions", recorder.task, _IDS, among=[path])["interaction_id"].combine_chunks()
    unseen = [(look, {*without(ids, look.seen)}) for look in looks]
    wanted = set().union(*(ids for _, ids in unseen))
    for answer in read_answers(*at, recorder.task, wanted, among=[path]) if wanted else ():
        for look, mine in unseen:
            if answer.interaction_id in mine:
                recorder.add(look.author, *look.at(answer, stack))
    for look in looks:
        if not look.held.words:
            recorder.saw(look.author.key, path)


def take_back(recorder: Recorder) -> None:
    """Let whoever is gone from flywheel.yaml say nothing any more about what it gave a verdict on."""
    for key, standing in recorder.position.authors.items():
        if standing.version != GONE or GONE in standing.seen:
            continue
        author = standing.author(key)
        asked = [author.source, author.name, STAGE]
        rows = query(recorder.home, recorder.registry, "feedback", recorder.task, _STANDING, asked).to_pylist()
        for row in rows:
            if not row["value"].startswith('"'):
                other = row["source_id"].split("/", 3)[3].removesuffix(row["target_id"]).removesuffix("|")
                recorder.add(author, Word(row["target_id"], WITHDRAWN, other=other))
        recorder.flush()
        standing.seen.add(GONE)
