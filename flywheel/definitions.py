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
from sensors.intake import intake_sensors
from sensors.jobs import intake_job, loop_job
from sensors.loop import loop_schedule, loop_sensor

LATER_STAGES = (labels, dataset, candidate, evaluation, champion)


def build_definitions(config: Config) -> dg.Definitions:
    """Assets, jobs, sensors and schedules of every task in a configuration."""
    assets = []
    jobs = []
    sensors = []
    schedules = []
    for task, settings in config.tasks.items():
        intake, loop = intake_job(task), loop_job(task)
        jobs += [intake, loop]
        assets += [interactions(task, settings), *(stage(task) for stage in LATER_STAGES)]
        sensors += [*intake_sensors(task, settings, intake), loop_sensor(task, settings, loop)]
        schedule = loop_schedule(task, settings, loop)
        schedules += [schedule] if schedule is not None else []
    return dg.Definitions(
        assets=assets,
        jobs=jobs,
        sensors=[*sensors, failure_alert(jobs)],
        schedules=schedules,
        resources={"deployment": Deployment()},
        executor=dg.in_process_executor,
    )


defs = build_definitions(load_config())
