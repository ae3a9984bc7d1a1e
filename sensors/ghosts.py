"""Runs whose process is gone. Without this a power cut leaves a run STARTED for ever, and every later one behind it.

``python -m sensors.ghosts`` buries the dead before ``flywheel up`` starts the daemon; the loop sensor does the same
while it runs.
"""

import dagster as dg

from assets.process import PROCESS_TAG, tagged_process_alive

UNFINISHED = [
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def bury(instance: dg.DagsterInstance, *, untagged: bool) -> list[str]:
    """Fail the unfinished runs whose process is gone; returns their ids.

    Args:
        untagged: also those that never said which process they are. Only right when no daemon can be starting one.
    """
    buried = []
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        tag = run.tags.get(PROCESS_TAG)
        dead = untagged if tag is None else not tagged_process_alive(tag)
        if dead:
            instance.report_run_failed(
                run, message="The process of this run is gone: killed, or the machine restarted."
            )
            buried.append(run.run_id)
    return buried


def main() -> None:
    """Bury the ghosts of this DAGSTER_HOME."""
    with dg.DagsterInstance.get() as instance:
        for run_id in bury(instance, untagged=True):
            print(f"run {run_id} had died; it is marked as failed")


if __name__ == "__main__":
    main()
