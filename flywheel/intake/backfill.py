"""Reading a task's sources once more for some days: after an old log was added, or a format was mended."""

from __future__ import annotations

from datetime import UTC, date, datetime

from flywheel.config import Config
from flywheel.errors import IntakeError
from flywheel.intake.batch import Item, Rejected
from flywheel.intake.chunk import CLASH
from flywheel.intake.known import waiting_count
from flywheel.intake.mapping import Select
from flywheel.intake.quarantine import places
from flywheel.intake.reading import Progress, Reading
from flywheel.intake.records import Dropped, FeedbackRecord, Record
from flywheel.intake.report import IntakeReport
from flywheel.intake.run import tidy, turn
from flywheel.intake.sources import task_sources
from flywheel.intake.times import UNKNOWN, parse_time
from flywheel.store.home import Home
from flywheel.store.registry import Registry

OTHER_DAY = "outside the days of the backfill"
NO_DAY = "unreadable, so of no day"
IN_QUARANTINE = "in quarantine already"


def run_backfill(
    config: Config,
    home: Home,
    registry: Registry,
    task: str,
    first: date,
    last: date,
    *,
    run: str = "backfill",
    progress: Progress | None = None,
) -> IntakeReport:
    """Read all of a task's sources from their start and take in what is of the days ``first`` to ``last`` (UTC).

    What is there already is a duplicate. Records of other days are skipped by a rule of that name, and so are records
    that cannot be read: they have no day, and ordinary intake has put them into quarantine or will. A record that holds
    several (a chat) is of each of their days and is taken in whole. Resume points and watermarks stay as they are.

    Safe to kill at any instant and to run again.

    Raises:
        IntakeError: the days are the wrong way round, or a file of a source cannot be read.
    """
    if last < first:
        raise IntakeError(f"the last day {last} is before the first day {first}")
    with turn(home, task):
        reader = Reading(config, home, registry, task, run, progress)
        select = _of_days(first, last, set(places(home, registry, task, reason=CLASH)))
        reports = [reader.read(source, select) for source in task_sources(config, home, task)]
        if any(report.kept for report in reports):
            tidy(home, registry, task)
        return IntakeReport(reports, reader.writer.joined, waiting_count(registry, task))


def _of_days(first: date, last: date, clashed: set[tuple[str, int]]) -> Select:
    now = datetime.now(UTC)

    def in_days(record: Record | Dropped) -> bool:
        if isinstance(record, Dropped):
            return False
        found, quality = parse_time(record.ts, now)
        if isinstance(record, FeedbackRecord) and quality != "ok":
            found = UNKNOWN  # as it is stored
        return first <= found.date() <= last

    def select(item: Item) -> Item:
        if isinstance(item.found, Rejected):
            unreadable = item.found.outcome == "quarantined"
            return _skipped(item, NO_DAY) if unreadable else item
        if not any(in_days(record) for record in item.found):
            return _skipped(item, OTHER_DAY)
        return _skipped(item, IN_QUARANTINE) if (item.file, item.offset) in clashed else item

    return select


def _skipped(item: Item, rule: str) -> Item:
    return Item(item.file, item.offset, item.raw, Rejected("skipped", rule))
