"""What turns the wheel: per task a sensor that starts loops, and a schedule when the task asks for one.

The truth about loops is the registry. A sensor that loses its cursor, ticks twice or starts anew asks for the same run
keys, which Dagster starts once; a loop whose run died is given its next attempt.
"""

import dagster as dg

from assets.deployment import Deployment, Opened
from assets.steps import ATTEMPT_TAG, LOOP_ID_TAG
from flywheel.config import TaskConfig
from flywheel.loops.claims import Loop, claim, give_up, open_loop, pending, runner_alive
from flywheel.loops.foreign import answered_elsewhere
from flywheel.store.registry.erasures import unfinished_erasures
from sensors.ghosts import bury
from sensors.jobs import AssetJob

ACTIVE = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def loop_sensor(task: str, settings: TaskConfig, job: AssetJob) -> dg.SensorDefinition:
    """Claims the next loop when enough label versions wait, and sees to it that a claimed loop has a live run."""

    @dg.sensor(
        name=f"{task}_loop_sensor",
        job=job,
        minimum_interval_seconds=settings.trigger.interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Starts a loop of {task} at {settings.trigger.min_labels} new label versions.",
    )
    def _sensor(context: dg.SensorEvaluationContext, deployment: Deployment) -> dg.SensorResult | dg.SkipReason:
        for run_id in bury(context.instance, untagged=False):
            context.log.warning(f"run {run_id} had died; it is marked as failed")
        with deployment.open(actor="sensor") as opened:
            if elsewhere := answered_elsewhere(opened.config, task):
                return dg.SkipReason(elsewhere)
            ended = end_dead_attempt(context.instance, opened, task)
            if ended:
                context.log.warning(ended)
            wanted = opened.config.task(task).trigger.min_labels
            loop = claim(opened.registry, task, min_labels=wanted)
            if loop is None:
                with opened.registry.read() as tx:
                    if unfinished := unfinished_erasures(tx):
                        return dg.SkipReason(f"{unfinished[0]} is unfinished; `flywheel erase` again finishes it")
                    return dg.SkipReason(f"{pending(tx, task)} of {wanted} new label versions")
        if loop.state == "running" or _runs(context.instance, loop):
            return dg.SkipReason(f"{loop.loop_id} attempt {loop.attempt} is under way")
        return dg.SensorResult(run_requests=[run_request(loop)])

    return _sensor


def loop_schedule(task: str, settings: TaskConfig, job: AssetJob) -> dg.ScheduleDefinition | None:
    """Starts a loop on the task's cron expression over whatever waits; None without one."""
    if settings.trigger.cron is None:
        return None

    @dg.schedule(
        name=f"{task}_loop_schedule",
        job=job,
        cron_schedule=settings.trigger.cron,
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
    def _schedule(context: dg.ScheduleEvaluationContext, deployment: Deployment) -> dg.RunRequest | dg.SkipReason:
        with deployment.open(actor="schedule") as opened:
            if elsewhere := answered_elsewhere(opened.config, task):
                return dg.SkipReason(elsewhere)
            loop = claim(opened.registry, task, min_labels=1)
        if loop is None:
            return dg.SkipReason("no new label versions")
        if loop.state == "running" or _runs(context.instance, loop):
            return dg.SkipReason(f"{loop.loop_id} is under way")
        return run_request(loop)

    return _schedule


def run_request(loop: Loop) -> dg.RunRequest:
    """The one run of a loop's attempt."""
    return dg.RunRequest(run_key=loop.run_key, tags={LOOP_ID_TAG: loop.loop_id, ATTEMPT_TAG: str(loop.attempt)})


def end_dead_attempt(instance: dg.DagsterInstance, opened: Opened, task: str) -> str:
    """Give up the open loop's attempt when its run ended without finishing it; returns what happened, or ""."""
    with opened.registry.read() as tx:
        row = open_loop(tx, task)
    if row is None or runner_alive(row):
        return ""
    loop_id, attempt = row["loop_id"], row["attempt"]
    runs = instance.get_runs(dg.RunsFilter(tags={LOOP_ID_TAG: loop_id, ATTEMPT_TAG: str(attempt)}))
    if any(run.status in ACTIVE for run in runs) or (row["state"] == "claimed" and not runs):
        return ""
    last = row["run_id"] if row["state"] == "running" else runs[0].run_id  # claimed: its run never came to a stage
    state = give_up(opened.registry, loop_id, attempt, f"run {last} ended early")
    return f"{loop_id}: attempt {attempt} ended early; the loop is {state}"


def _runs(instance: dg.DagsterInstance, loop: Loop) -> bool:
    tags = {LOOP_ID_TAG: loop.loop_id, ATTEMPT_TAG: str(loop.attempt)}
    return bool(instance.get_runs(dg.RunsFilter(tags=tags, statuses=ACTIVE), limit=1))
