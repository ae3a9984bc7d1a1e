"""Asset ``interactions``: every record of the task's logs, kept once or accounted for."""

import dagster as dg

from assets.deployment import Deployment
from assets.metadata import counts, numbers, table
from assets.steps import intake_step
from flywheel.intake import run_intake
from flywheel.store.digests import digest
from flywheel.store.segments import visible


def interactions(task: str) -> dg.AssetsDefinition:
    """The asset of one task."""

    @dg.asset(name="interactions", key_prefix=task, group_name=task, kinds={"duckdb", "parquet"})
    def _interactions(context: dg.AssetExecutionContext, deployment: Deployment) -> dg.MaterializeResult[None]:
        """Model calls and feedback, read from the gateway's log and the task's own log files.

        Each run reads on from where the last one stopped. Every record ends as exactly one of kept, duplicate,
        quarantined or skipped, and the table shows that the counts add up to what was read.
        """
        with intake_step(context, deployment) as opened:
            report = run_intake(opened.config, opened.home, opened.registry, task, run=context.run.run_id)
            with opened.registry.read() as tx:
                segments = {name: visible(tx, name, task) for name in ("interactions", "feedback")}
        rows = {name: sum(row["rows"] for row in found) for name, found in segments.items()}
        read = {name: sum(getattr(source, name) for source in report.sources) for name in _COUNTS}
        reasons: dict[str, int] = {}
        for source in report.sources:
            for why, n in source.reasons.items():
                reasons[why] = reasons.get(why, 0) + n
        context.log.info(
            f"read {read['read']} records: kept {read['kept']}, duplicate {read['duplicate']}, "
            f"quarantined {read['quarantined']}, skipped {read['skipped']}"
        )
        return dg.MaterializeResult(
            metadata={
                "dagster/row_count": rows["interactions"],
                **numbers(rows, "data/"),
                **numbers(read, "intake/"),
                "feedback/joined_late": report.joined,
                "feedback/waiting": report.waiting,
                "reconciliation": table(
                    [{"source": s.source} | {n: getattr(s, n) for n in _COUNTS} for s in report.sources]
                ),
                "reasons": counts(reasons, "reason"),
            },
            data_version=dg.DataVersion(digest({n: sorted(r["digest"] for r in s) for n, s in segments.items()})),
        )

    return _interactions


_COUNTS = ("read", "kept", "late", "duplicate", "quarantined", "skipped")
