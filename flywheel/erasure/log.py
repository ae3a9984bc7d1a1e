"""The gateway's log: closed, then its lines overwritten by blanks of the same length, so that every offset holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flywheel.erasure.log_lines import blank, log_files, takes_line
from flywheel.erasure.work import Work
from flywheel.errors import HomeBusy, ProbeFailed
from flywheel.intake.sources import GATEWAY, moved_point
from flywheel.release.replicas import ReplicaClient, live, operator_token
from flywheel.store.files import fsync_folder
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema
from flywheel.store.wal import is_live


def reach_gateways(home: Home, registry: Registry) -> None:
    """Raise HomeBusy unless every live gateway answers: its log could not be closed."""
    _ask(home, registry, "status")


def rotate_logs(home: Home, registry: Registry) -> None:
    """Have every live gateway begin a new file; all lines until now are in closed ones then.

    Raises HomeBusy when a gateway does not answer, or somebody else still writes.
    """
    before = [path for path in log_files(home) if is_live(path)]
    _ask(home, registry, "rotate")
    if held := [path for path in before if is_live(path)]:
        raise HomeBusy(
            f"{held[0]} is still being written, and not by a gateway that this registry knows; stop that process, then "
            "run this again"
        )


def blank_lines(work: Work) -> None:
    """Blank the person's lines in closed log files and move intake's resume points along.

    A crash between a file's new content and its resume point costs intake a second reading of that file.
    """
    if work.apply:
        for left in work.home.log.glob(".*.tmp"):
            left.unlink(missing_ok=True)
    for path in log_files(work.home):
        held = is_live(path)
        if held and (work.apply or not work.live_log):
            continue
        with path.open("rb") as file:
            lines = sum(takes_line(work.scope, raw, work.tasks) for raw in file)
        work.counts["log_lines"] += lines
        if lines and work.apply:
            before = path.stat()
            _overwrite(path, work)
            _move_points(work.registry, path, before)


def _overwrite(path: Path, work: Work) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as new, path.open("rb") as old:
        for raw in old:
            if takes_line(work.scope, raw, work.tasks):
                body = raw.removesuffix(b"\n")
                raw = blank(len(body)) + raw[len(body) :]
            new.write(raw)
        new.flush()
        os.fsync(new.fileno())
    temporary.replace(path)
    fsync_folder(path.parent)


def _move_points(registry: Registry, path: Path, before: os.stat_result) -> None:
    sources, label = schema.sources, f"{GATEWAY}/{path.name}"
    with registry.write() as tx:
        for row in tx.rows(sa.select(sources).where(sources.c.source == GATEWAY)):
            files: dict[str, Any] = row["position"]["files"]
            if label in files:
                moved = files | {label: moved_point(path, files[label], before)}
                mine = sa.and_(sources.c.task == row["task"], sources.c.source == GATEWAY)
                tx.execute(sa.update(sources).where(mine).values(position=row["position"] | {"files": moved}))


def _ask(home: Home, registry: Registry, what: str) -> None:
    with registry.read() as tx:
        replicas = live(tx)
    for replica in replicas:
        try:
            with ReplicaClient(replica.url, operator_token(home)) as client:
                client.rotate() if what == "rotate" else client.status()
        except ProbeFailed as error:
            raise HomeBusy(
                f"the gateway at {replica.url} must close its log for an erasure, but cannot be asked ({error}); stop "
                "it, or wait until it answers, then run this again"
            ) from error
