"""Asset ``labels``: what the labelling policy makes of the feedback, that of verifiers and the judge included."""

from typing import Any

import dagster as dg

from assets.deployment import Deployment, Opened
from assets.metadata import counts, name_of, numbers, table
from assets.steps import intake_step
from flywheel.labels import policy_digest, run_labels
from flywheel.labels.verify import VerifyReport, run_verifiers
from flywheel.release.replicas import live
from flywheel.store.digests import digest


def labels(task: str) -> dg.AssetsDefinition:
    """The asset of one task."""

    @dg.asset(
        name="labels",
        key_prefix=task,
        group_name=task,
        deps=[dg.AssetDep(dg.AssetKey([task, "interactions"]), partition_mapping=dg.AllPartitionMapping())],
        kinds={"duckdb", "parquet"},
    )
    def _labels(context: dg.AssetExecutionContext, deployment: Deployment) -> dg.MaterializeResult[None]:
        """One label per interaction that has feedback and has matured: a target, or the reason why there is none.

        First the task's verifiers and its judge speak about answers that are new. Labels are a pure function of
        feedback and policy. A label that changes becomes a new numbered version; the loop sensor counts those.
        """
        with intake_step(context, deployment) as opened:
            verified = run_verifiers(opened.config, opened.home, opened.registry, task, say=context.log.info)
            report = run_labels(opened.config, opened.home, opened.registry, task)
            policy = policy_digest(opened.config.task(task).labels)
            review = _review_page(opened, task)
        context.log.info(f"{report.new_versions} new label versions; {report.waiting} not mature yet")
        return dg.MaterializeResult(
            metadata={
                "dagster/row_count": report.total,
                **numbers(vars(report), "labels/"),
                "by_use": counts(report.by_use, "use"),
                "by_source": counts(report.by_source, "source"),
                "policy": name_of(policy),
                **_verified(verified),
                "review": dg.MetadataValue.url(review),
            },
            data_version=dg.DataVersion(digest([policy, report.last_seq])),
        )

    return _labels


def _verified(report: VerifyReport) -> dict[str, Any]:
    """What verifiers and judges said; nothing for a task that has none."""
    if not report.authors:
        return {}
    return {
        "verifiers/said": report.said,
        "verifiers": table([own.row() for own in report.authors.values()]),
        "judges": table(report.judges),
        "verifiers/notes": dg.MetadataValue.text("; ".join(report.notes) or "-"),
    }


def _review_page(opened: Opened, task: str) -> str:
    """Where a person labels what waits for review: on the gateway that runs, or where one would."""
    with opened.registry.read() as tx:
        replicas = live(tx)
    gateway = opened.config.gateway
    root = replicas[0].url if replicas else f"http://{gateway.host}:{gateway.port}"
    return f"{root}/review?task={task}"
