"""What starts intake: per task a sensor for each of its sources, the gateway's own log and each place with logs.

A sensor looks at sizes only. Losing its cursor means nothing, for it has none: what was read says the registry.
"""

import re
from datetime import UTC, datetime, timedelta

import dagster as dg

from assets.days import SOURCE_TAG, follow_tags
from assets.deployment import Deployment
from flywheel.config import TaskConfig
from flywheel.intake import unread_bytes
from flywheel.intake.sources import GATEWAY, path_source
from flywheel.labels import labels_due
from flywheel.loops.claims import open_loop
from flywheel.store.digests import digest
from sensors.jobs import AssetJob
from sensors.loop import ACTIVE

BUSY_FACTOR = 4
"""While a loop runs, intake waits so many times longer: its start-up would take cores from training."""


def intake_sensors(task: str, settings: TaskConfig, job: AssetJob) -> list[dg.SensorDefinition]:
    """A sensor per source of a task."""
    names = {GATEWAY: f"{task}_intake_sensor"}  # the name it had when it watched all of them
    for log in settings.logs:
        source = path_source(log.path).name
        name = f"{task}_intake_{_slug(source)}_sensor"
        names[source] = f"{name}_{digest(source)[:6]}" if name in names.values() else name
    return [_sensor(task, settings, job, source, name) for source, name in names.items()]


def _sensor(task: str, settings: TaskConfig, job: AssetJob, source: str, name: str) -> dg.SensorDefinition:
    ours = source == GATEWAY
    what = "the gateway's log has grown, or feedback has matured" if ours else f"there is something new in {source}"

    @dg.sensor(
        name=name,
        job=job,
        minimum_interval_seconds=settings.trigger.interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Starts intake of {task} when {what}.",
    )
    def _tick(context: dg.SensorEvaluationContext, deployment: Deployment) -> dg.SensorResult | dg.SkipReason:
        if _active(context.instance, task):
            return dg.SkipReason("an intake run is under way")
        with deployment.open(actor="sensor") as opened:
            with opened.registry.read() as tx:
                busy = open_loop(tx, task) is not None
            now = opened.config.task(task)
            pause = now.trigger.intake_seconds * (BUSY_FACTOR if busy else 1)
            if _ran_within(context.instance, task, source, pause):
                return dg.SkipReason(f"less than {pause} s since the last intake run")
            unread = unread_bytes(opened.config, opened.home, opened.registry, task, source)
            due = ours and labels_due(opened.registry, task, now.labels)
            if unread == 0 and not due:
                return dg.SkipReason("nothing new in the logs" + (", nothing has matured" if ours else ""))
            tags = follow_tags(opened.registry, task, now, source)
        return dg.SensorResult(run_requests=[dg.RunRequest(tags=tags)])

    return _tick


def _slug(source: str) -> str:
    """The last two parts of a place, with nothing in them that Dagster does not take."""
    parts = [re.sub(r"[^A-Za-z0-9]+", "_", part).strip("_") for part in source.split("/")]
    return "_".join([part for part in parts if part][-2:]) or "logs"


def _active(instance: dg.DagsterInstance, task: str) -> bool:
    return bool(instance.get_runs(dg.RunsFilter(tags={"flywheel/intake": task}, statuses=ACTIVE), limit=1))


def _ran_within(instance: dg.DagsterInstance, task: str, source: str, pause_s: float) -> bool:
    """Whether a run of this source, or of all, was created within the pause and succeeded.

    A run that was killed is no reason to wait: what it was to read is still unread. Neither is a run of another source:
    a busy one would keep a quiet one from ever being read.
    """
    since = datetime.now(UTC) - timedelta(seconds=pause_s)
    tags, statuses = {"flywheel/intake": task}, [dg.DagsterRunStatus.SUCCESS]
    runs = instance.get_runs(dg.RunsFilter(tags=tags, statuses=statuses, created_after=since))
    return any(run.tags.get(SOURCE_TAG, source) == source for run in runs)
