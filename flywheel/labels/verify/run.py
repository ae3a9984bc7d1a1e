"""One run of a task's verifiers and its judge: what they say becomes feedback, before labels are made of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime

from flywheel.config import Config
from flywheel.config_labels import LabelPolicy
from flywheel.errors import HomeBusy
from flywheel.labels.verify.agreement import agreement
from flywheel.labels.verify.checks import Verifier, verifier
from flywheel.labels.verify.judging import let_judge
from flywheel.labels.verify.position import RETRY, configured, load, moved_on, said_of, work
from flywheel.labels.verify.recorder import Recorder, Say
from flywheel.labels.verify.report import Spoken, VerifyReport
from flywheel.labels.verify.verifying import let_verify, take_back
from flywheel.store.files import locked
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import visible


def run_verifiers(
    config: Config,
    home: Home,
    registry: Registry,
    task: str,
    *,
    now: datetime | None = None,
    say: Say | None = None,
) -> VerifyReport:
    """Let the verifiers and the judge of a task speak about every answer that they have not looked at.

    Killed anywhere and run again, it says the same, once. A judge that cannot be asked ends its part with a note. Reads
    the registry and the verifiers' files only, when nothing is new. Does nothing while another process is at it.

    Args:
        now: the time of what is said; default is the clock.
        say: is told of progress, a line at a time.

    Raises:
        ConfigError: a verifier cannot be loaded, or the judge's key is not in the environment.
        VerifierError: a verifier fails on everything.
    """
    policy = config.task(task).labels
    report = VerifyReport()
    verifiers = [verifier(entry) for entry in policy.verifiers]
    with registry.read() as tx:
        known = load(tx, task).authors
    if not verifiers and policy.judge is None and not known:
        return report
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(home.locks / f"verify-{task}.lock", wait=False))
        except HomeBusy:
            report.notes.append("another process lets them speak; labels are made without its last words")
            return report
        _run(home, registry, task, verifiers, policy, now or datetime.now(UTC), report, say or _silence)
    return report


def _run(
    home: Home,
    registry: Registry,
    task: str,
    verifiers: Sequence[Verifier],
    policy: LabelPolicy,
    now: datetime,
    report: VerifyReport,
    say: Say,
) -> None:
    judge = policy.judge
    with registry.read() as tx:
        before = load(tx, task)
        position, now = moved_on(before, now, configured(verifiers, judge))
        todo = work(tx, task, position.authors)
        position.forget_all_but(row["path"] for row in visible(tx, "interactions", task))
    for key in position.authors:
        source, _, name = key.partition("/")
        report.authors[key] = Spoken(source, name)
    recorder = Recorder(home, registry, task, position, now, report, say)
    news = before.done != todo or bool(before.until)
    if news:
        take_back(recorder)
        with ExitStack() as stack:
            failing = let_verify(recorder, verifiers, stack)
        unjudged = judge is not None and let_judge(recorder, judge)
        report.left = failing or unjudged
        position.done = todo
        position.until = (now + RETRY).isoformat() if report.left else ""
    _measure(recorder, policy, now)
    if news or position.judges != before.judges:
        recorder.finish()


def _measure(recorder: Recorder, policy: LabelPolicy, now: datetime) -> None:
    """Measure the judges' agreement with people, unless nothing was said since it was measured last."""
    if policy.judge is None:
        return
    position = recorder.position
    with recorder.registry.read() as tx:
        of = said_of(tx, recorder.task)
    if position.judges.get("of") != of:
        rows = agreement(recorder.home, recorder.registry, recorder.task, policy, now)
        position.judges = {"of": of, "rows": rows}
    recorder.report.judges = position.judges["rows"]


def _silence(_line: str) -> None:
    """Tell nobody."""
