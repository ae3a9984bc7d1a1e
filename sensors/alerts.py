"""Speaks up when a run fails: to the webhook of flywheel.yaml, and always to the log."""

from collections.abc import Sequence

import dagster as dg
import httpx

from flywheel.config import load_config
from flywheel.errors import FlywheelError
from sensors.jobs import AssetJob

TIMEOUT_S = 10.0


def failure_alert(jobs: Sequence[AssetJob]) -> dg.SensorDefinition:
    """One sensor for the failed runs of all tasks. The text names run, job and step, and quotes no data."""

    @dg.run_failure_sensor(
        name="failure_alert",
        monitored_jobs=list(jobs),
        minimum_interval_seconds=10,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Posts failed runs to `alerts.webhook`; without one they are only logged.",
    )
    def _alert(context: dg.RunFailureSensorContext) -> None:
        run = context.dagster_run
        loop = run.tags.get("flywheel/loop_id")
        steps = ", ".join(event.step_key for event in context.get_step_failure_events() if event.step_key)
        text = f"Flywheel: run {run.run_id} of {run.job_name} failed" + (f" in {steps}" if steps else "")
        text += f" ({loop}, attempt {run.tags.get('flywheel/attempt')})" if loop else ""
        context.log.error(text)
        webhook = load_config().alerts.webhook
        if webhook is not None:
            _post(webhook, text)

    return _alert


def _post(webhook: str, text: str) -> None:
    try:
        httpx.post(webhook, json={"text": text}, timeout=TIMEOUT_S).raise_for_status()
    except httpx.HTTPError as error:
        # Raising keeps the sensor's cursor where it is, so that the alert is tried again.
        raise FlywheelError(
            f"the alert could not be delivered ({type(error).__name__}); it will be tried again"
        ) from error
