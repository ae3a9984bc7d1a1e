"""What each asset does around its stage: open the deployment, take the loop's lease, and say what ended early."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from assets.deployment import Deployment, Opened
from assets.process import tag_process
from flywheel.loops.claims import enter
from flywheel.loops.context import LoopContext

LOOP_ID_TAG = "flywheel/loop_id"
ATTEMPT_TAG = "flywheel/attempt"


@contextmanager
def intake_step(context: dg.AssetExecutionContext, deployment: Deployment) -> Iterator[Opened]:
    """An open deployment for one step of an intake run."""
    tag_process(context.instance, context.run.run_id)
    with deployment.open(actor=f"dagster:{context.run.run_id}") as opened:
        yield opened


@contextmanager
def loop_step(
    context: dg.AssetExecutionContext, deployment: Deployment, task: str, *, may_open: bool = False
) -> Iterator[LoopContext]:
    """One step of a loop, under the lease of the attempt that this run was started for.

    A run without the loop's tags (started by hand in the UI) joins the open loop; ``may_open`` lets it open one.
    """
    tags = context.run.tags
    with intake_step(context, deployment) as opened:
        lease = enter(
            opened.registry,
            task,
            context.run.run_id,
            loop_id=tags.get(LOOP_ID_TAG),
            attempt=int(tags[ATTEMPT_TAG]) if ATTEMPT_TAG in tags else None,
            may_open=may_open,
        )
        yield LoopContext(opened.config, opened.home, opened.registry, lease)
