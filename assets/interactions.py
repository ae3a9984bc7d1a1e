"""Asset ``interactions``: every record of the task's logs, kept once or accounted for, by day."""

import warnings
from collections.abc import Collection, Sequence
from typing import Any

import dagster as dg

from assets.days import SOURCE_TAG, chosen_days, daily, days_of_run
from assets.deployment import Deployment, Opened
from assets.metadata import counts, numbers, table
from assets.steps import intake_step
from flywheel.config import TaskConfig
from flywheel.intake import IntakeReport, run_backfill, run_intake
from flywheel.intake.days import content_digest, rows_by_day, written_days


def interactions(task: str, settings: TaskConfig) -> dg.AssetsDefinition:
    """The asset of one task."""
    key = dg.AssetKey([task, "interactions"])
    partitions = daily(settings)

    def _interactions(context: dg.AssetExecutionContext, deployment: Deployment) -> dg.MaterializeResult[None]:
        """Model calls and feedback, read from the gateway's log and the task's own log files.

        A run that a sensor started reads on from where the last one stopped. A run for chosen days, from the
        Materialize button or a backfill, reads all logs again from their start and takes in what is of those days and
        not there yet. Every record ends as exactly one of kept, duplicate, quarantined or skipped, and the table shows
        that the counts add up to what was read.
        """
        with intake_step(context, deployment) as opened:
            report = _read(context, opened, task)
            rows = rows_by_day(opened.registry, task)
            for day in _days_to_report(context, key, partitions, rows, written_days(opened.registry, task)):
                context.log_event(_one_day(opened, task, key, day, rows[day]))
            own = days_of_run(context)
            version = content_digest(opened.registry, task, own or None)
        for day in own:
            context.add_asset_metadata(_of_day(rows.get(day, {})), partition_key=day)
        context.log.info(_in_words(report))
        return dg.MaterializeResult(metadata=_metadata(report, rows), data_version=dg.DataVersion(version))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # of `backfill_policy`: without it each day would be a run
        return dg.asset(
            name="interactions",
            key_prefix=task,
            group_name=task,
            kinds={"duckdb", "parquet"},
            partitions_def=partitions,
            backfill_policy=dg.BackfillPolicy.single_run(),
        )(_interactions)


def _read(context: dg.AssetExecutionContext, opened: Opened, task: str) -> IntakeReport:
    config, home, registry, run = opened.config, opened.home, opened.registry, context.run.run_id
    if (days := chosen_days(context)) is not None:
        return run_backfill(config, home, registry, task, *days, run=run)
    return run_intake(config, home, registry, task, run=run, source=context.run.tags.get(SOURCE_TAG))


def _days_to_report(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    partitions: dg.DailyPartitionsDefinition,
    with_data: Collection[str],
    written: Sequence[str],
) -> list[str]:
    """Days besides those of the run that show as materialised from now on: written to, or with data from elsewhere."""
    missing = set(with_data) - context.instance.get_materialized_partitions(key)
    found = (missing | set(written)) & set(with_data) - set(days_of_run(context))
    return sorted(day for day in found if partitions.has_partition_key(day))


def _one_day(opened: Opened, task: str, key: dg.AssetKey, day: str, rows: dict[str, int]) -> dg.AssetMaterialization:
    version = content_digest(opened.registry, task, [day])
    return dg.AssetMaterialization(key, partition=day, metadata=_of_day(rows), tags={"dagster/data_version": version})


def _of_day(rows: dict[str, int]) -> dict[str, Any]:
    return {"dagster/partition_row_count": rows.get("interactions", 0), "day/feedback": rows.get("feedback", 0)}


def _metadata(report: IntakeReport, rows: dict[str, dict[str, int]]) -> dict[str, Any]:
    total = {name: sum(day[name] for day in rows.values()) for name in ("interactions", "feedback")}
    read = {name: getattr(report.total, name) for name in _COUNTS}
    return {
        "dagster/row_count": total["interactions"],
        **numbers(total, "data/"),
        **numbers(read, "intake/"),
        "feedback/joined_late": report.joined,
        "feedback/waiting": report.waiting,
        "reconciliation": table([{"source": s.source} | {n: getattr(s, n) for n in _COUNTS} for s in report.sources]),
        "reasons": counts(report.total.reasons, "reason"),
    }


def _in_words(report: IntakeReport) -> str:
    total = report.total
    return (
        f"read {total.read} records: kept {total.kept}, duplicate {total.duplicate}, "
        f"quarantined {total.quarantined}, skipped {total.skipped}"
    )


_COUNTS = ("read", "kept", "late", "duplicate", "quarantined", "skipped")
