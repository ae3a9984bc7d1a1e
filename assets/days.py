"""Days as Dagster's partitions: which day a record is of, which days a run is about, and which have data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime

import dagster as dg

from flywheel.config import TaskConfig
from flywheel.intake.days import last_read_day
from flywheel.store.registry import Registry

SOURCE_TAG = "flywheel/source"
"""On a run that follows one source, with its name. Such a run reads what is new, whatever its days are."""

FIRST_TAG = "dagster/asset_partition_range_start"
LAST_TAG = "dagster/asset_partition_range_end"


def daily(settings: TaskConfig) -> dg.DailyPartitionsDefinition:
    """The days of a task, in UTC; today is one of them."""
    return dg.DailyPartitionsDefinition(start_date=settings.first_day.isoformat(), end_offset=1)


def follow_tags(registry: Registry, task: str, settings: TaskConfig, source: str) -> dict[str, str]:
    """The tags of a run that reads what is new in a source.

    The days run from that on which something was last taken in from it to today: what came on one of them will be in,
    so that even an empty day shows as done. Records of other days are reported by the asset itself.
    """
    today = datetime.now(UTC).date()
    first = max(min(last_read_day(registry, task, source) or today, today), settings.first_day)
    days = {FIRST_TAG: first.isoformat(), LAST_TAG: today.isoformat()} if first <= today else {}
    return {SOURCE_TAG: source, **days}


def chosen_days(context: dg.AssetExecutionContext) -> tuple[date, date] | None:
    """First and last day that a run is to read again: a backfill, or a day picked in the UI. None when it follows."""
    if SOURCE_TAG in context.run.tags or not (context.has_partition_key or context.has_partition_key_range):
        return None
    days = context.partition_keys
    return date.fromisoformat(days[0]), date.fromisoformat(days[-1])


def days_of_run(context: dg.AssetExecutionContext) -> Sequence[str]:
    """The days for which Dagster reports the result of a run by itself."""
    return context.partition_keys if context.has_partition_key or context.has_partition_key_range else ()
