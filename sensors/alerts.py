"""Speaks up when a run fails: to the webhook of flywheel.yaml, and always to the log.

A plain sensor with a cursor of its own. Dagster's ``run_failure_sensor`` moves on past a run also when its function
raises, so an alert would be lost whenever the webhook could not be reached.
"""

from collections.abc import Sequence

import dagster as dg
import httpx

from flywheel.config import load_config
from flywheel.errors import FlywheelError
from sensors.jobs import AssetJob

TIMEOUT_S = 10.0
AT_ONCE = 50


def failure_alert(jobs: Sequence[AssetJob]) -> dg.SensorDefinition:
    """One sensor for the failed runs of all tasks. The text names run, job and step, and quotes no data."""
    names = frozenset(job.name for job in jobs)

    @dg.sensor(
        name="failure_alert",
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Posts failed runs to `alerts.webhook`; without one they are only logged.",
    )
    def _alert(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        failures = _failures(context)
        if failures is None:
            return dg.SkipReason("watching for failed runs from now on")
        webhook = load_config().alerts.webhook
        told = 0
        for storage_id, run in failures:
            if run is not None and run.job_name in names:
                text = _text(context.instance, run)
                context.log.error(text)
                try:
                    _post(webhook, text)
                except FlywheelError as error:
                    if not told:
                        raise  # a failed tick keeps the cursor, so that the alert is tried again
                    return dg.SkipReason(f"{told} failed runs reported; {error}")
                told += 1
            context.update_cursor(str(storage_id))
        return dg.SkipReason(f"{told} failed runs reported")

    return _alert


def _failures(context: dg.SensorEvaluationContext) -> list[tuple[int, dg.DagsterRun | None]] | None:
    """What failed since the cursor, oldest first; None at the first tick, which only sets the cursor."""
    instance = context.instance
    if context.cursor is None:
        newest = instance.fetch_run_status_changes(dg.DagsterEventType.RUN_FAILURE, limit=1).records
        context.update_cursor(str(newest[0].storage_id if newest else 0))
        return None
    after = dg.RunStatusChangeRecordsFilter(
        event_type=dg.DagsterEventType.RUN_FAILURE, after_storage_id=int(context.cursor)
    )
    records = instance.fetch_run_status_changes(after, limit=AT_ONCE, ascending=True).records
    return [(record.storage_id, instance.get_run_by_id(record.run_id)) for record in records]


def _text(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    loop = run.tags.get("flywheel/loop_id")
    failed = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
    steps = ", ".join(entry.step_key for entry in failed if entry.step_key)
    text = f"Flywheel: run {run.run_id} of {run.job_name} failed" + (f" in {steps}" if steps else "")
    return text + (f" ({loop}, attempt {run.tags.get('flywheel/attempt')})" if loop else "")


def _post(webhook: str | None, text: str) -> None:
    if webhook is None:
        return
    try:
        httpx.post(webhook, json={"text": text}, timeout=TIMEOUT_S).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise FlywheelError(
            f"the alert could not be delivered ({type(error).__name__}); it will be tried again"
        ) from error
