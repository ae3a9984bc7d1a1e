"""How far verifiers and the judge have come with a task's answers, and whether there is work for them.

Kept in the registry beside the resume points of the task's sources, and moved in the same transaction as the words that
were said. Which answers a version has looked at is known by its words; segments all of whose answers it has seen are
noted besides, so that a run reads only what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import Any

from flywheel.config_labels import LabelPolicy
from flywheel.config_verify import JudgeEntry
from flywheel.errors import ConfigError
from flywheel.labels.verify.checks import Verifier, verifier
from flywheel.labels.verify.prompt import judge_version
from flywheel.labels.verify.words import STAGE, Author
from flywheel.labels.versions import load_position
from flywheel.store.digests import digest
from flywheel.store.registry import Registry, Transaction
from flywheel.store.segments import visible

GONE = "gone"
"""Version of an author that is no longer configured."""

JUDGE = "judge"
"""The name under which the judge of flywheel.yaml speaks."""

RETRY = timedelta(minutes=10)
"""When what was left is reason enough for a run of its own: an endpoint that is gone is not asked every minute."""

_TICK = timedelta(microseconds=1)


@dataclass
class Standing:
    """One author's: version, how often that has changed, what it looks at, and the segments that it has seen."""

    version: str
    epoch: int
    reach: str
    seen: set[str] = field(default_factory=set)

    def author(self, key: str) -> Author:
        """The author of this version's words."""
        source, _, name = key.partition("/")
        return Author(source, name, self.version, self.epoch)


@dataclass
class Position:
    """Everybody's.

    Args:
        now: time of the last run, ISO 8601; a later word is never dated before an earlier one.
        done: digest of the segments and versions with which there is nothing left to do.
        until: when to go on with what had to be left, ISO 8601; "" when nothing was.
        judges: agreement of the judges with people, as last measured, and of which feedback.
    """

    now: str = ""
    done: str = ""
    until: str = ""
    authors: dict[str, Standing] = field(default_factory=dict)
    judges: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As the registry stores it."""
        authors = {key: asdict(own) | {"seen": sorted(own.seen)} for key, own in self.authors.items()}
        return asdict(self) | {"authors": authors}

    def forget_all_but(self, paths: Iterable[str]) -> None:
        """Forget segments that are not among these: they were merged or rewritten."""
        kept = {stem(path) for path in paths} | {GONE}
        for own in self.authors.values():
            own.seen &= kept


def load(tx: Transaction, task: str) -> Position:
    """The stored position; an empty one at first."""
    found = load_position(tx, task, STAGE)
    authors = {key: Standing(**{**own, "seen": {*own["seen"]}}) for key, own in found.pop("authors", {}).items()}
    return Position(**found, authors=authors)


def configured(verifiers: Sequence[Verifier], judge: JudgeEntry | None) -> dict[str, tuple[str, str]]:
    """Version and reach of everybody whom flywheel.yaml names."""
    found = {f"verifier/{own.name}": (own.version, "") for own in verifiers}
    return found if judge is None else found | {f"judge/{JUDGE}": (judge_version(judge), repr(judge.share))}


def moved_on(before: Position, now: datetime, wanted: Mapping[str, tuple[str, str]]) -> tuple[Position, datetime]:
    """The position with the versions of now, and the time of the words to come.

    Whoever has changed begins anew, and so does whoever is gone: it takes back what it said. A wider reach only makes
    an author look at all segments again.
    """
    authors: dict[str, Standing] = {}
    changed = False
    for key in sorted(before.authors.keys() | wanted.keys()):
        version, reach = wanted.get(key, (GONE, ""))
        old = before.authors.get(key, Standing("", 0, ""))
        if old.version != version:
            changed = True
            authors[key] = Standing(version, old.epoch + 1, reach)
        else:
            authors[key] = Standing(version, old.epoch, reach, {*old.seen} if old.reach == reach else set())
    if before.now:
        earliest = datetime.fromisoformat(before.now)
        now = max(now, earliest + _TICK if changed else earliest)
    return Position(now.isoformat(), before.done, before.until, authors, before.judges), now


def work(tx: Transaction, task: str, authors: Mapping[str, Standing]) -> str:
    """Digest of what there is to look at and of who looks."""
    paths = [row["path"] for row in visible(tx, "interactions", task)]
    return digest([paths, {key: [own.version, own.epoch, own.reach] for key, own in authors.items()}])


def said_of(tx: Transaction, task: str) -> str:
    """Digest of what there is to measure agreement on."""
    return digest([[row["path"] for row in visible(tx, table, task)] for table in ("interactions", "feedback")])


def stem(path: str) -> str:
    """By what a segment is noted as seen."""
    return PurePosixPath(path).name[:16]


def verifiers_due(registry: Registry, task: str, policy: LabelPolicy, now: datetime) -> bool:
    """Whether there are answers that a verifier or the judge has not looked at, or words to take back.

    Reads the registry and the files that verifiers name, and runs nothing of theirs. A file that is not there is a
    reason to run, so that the run says so.
    """
    with registry.read() as tx:
        before = load(tx, task)
    try:
        wanted = configured([verifier(entry) for entry in policy.verifiers], policy.judge)
    except ConfigError:
        return True
    position, _ = moved_on(before, now, wanted)
    if not position.authors:
        return False
    with registry.read() as tx:
        fresh = work(tx, task, position.authors) != before.done
    return fresh or (bool(before.until) and now >= datetime.fromisoformat(before.until))
