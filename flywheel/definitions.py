"""The composition root: everything Dagster loads, built from ``flywheel.yaml`` by one factory per task.

The only module of ``flywheel`` that imports dagster, assets and sensors. It must load quickly and import no torch: it
runs in the code server, in every sensor tick's process and at the start of every run.
"""

import dagster as dg

from assets.candidate import candidate
from assets.champion import champion
from assets.dataset import dataset
from assets.deployment import Deployment
from assets.evaluation import evaluation
from assets.interactions import interactions
from assets.labels import labels
from flywheel.config import Config, load_config
from sensors.alerts import failure_alert
from sensors.jobs import intake_job, loop_job
from sensors.loop import intake_sensor, loop_schedule, loop_sensor

STAGES = (interactions, labels, dataset, candidate, evaluation, champion)


def build_definitions(config: Config) -> dg.Definitions:
    """Assets, jobs, sensors and schedules of every task in a configuration."""
    jobs = []
    sensors = []
    schedules = []
    for task, settings in config.tasks.items():
        intake, loop = intake_job(task), loop_job(task)
        jobs += [intake, loop]
        sensors += [intake_sensor(task, settings, intake), loop_sensor(task, settings, loop)]
        schedule = loop_schedule(task, settings, loop)
        schedules += [schedule] if schedule is not None else []
    return dg.Definitions(
        assets=[stage(task) for task in config.tasks for stage in STAGES],
        jobs=jobs,
        sensors=[*sensors, failure_alert(jobs)],
        schedules=schedules,
        resources={"deployment": Deployment()},
        executor=dg.in_process_executor,
    )


defs = build_definitions(load_config())
