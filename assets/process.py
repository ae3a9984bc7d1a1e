"""Which process a run works in, written on the run itself, so that a dead one is recognised as dead."""

import os

import dagster as dg

from flywheel.store.home import boot_id, process_alive, process_started

PROCESS_TAG = "flywheel/process"


def tag_process(instance: dg.DagsterInstance, run_id: str) -> None:
    """Record on a run the process that works on it now."""
    pid = os.getpid()
    instance.add_run_tags(run_id, {PROCESS_TAG: f"{boot_id()}/{pid}/{process_started(pid)}"})


def tagged_process_alive(tag: str) -> bool:
    """Whether the process that a run's tag names still runs."""
    boot, pid, started = tag.split("/")
    return process_alive(boot, int(pid), started)
