"""What each asset does around its stage: open the deployment, take the loop's lease, and say what ended early."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from assets.deployment import Deployment, Opened
from assets.process import tag_process
from flywheel.errors import FlywheelError, without_message
from flywheel.loops.claims import enter
from flywheel.loops.context import LoopContext
from flywheel.loops.foreign import refuse_elsewhere

LOOP_ID_TAG = "flywheel/loop_id"
ATTEMPT_TAG = "flywheel/attempt"


@contextmanager
def intake_step(context: dg.AssetExecutionContext, deployment: Deployment) -> Iterator[Opened]:
    """An open deployment for one step of an intake run."""
    tag_process(context.instance, context.run.run_id)
    with quoting_nothing(), deployment.open(actor=f"dagster:{context.run.run_id}") as opened:
        yield opened


@contextmanager
def quoting_nothing() -> Iterator[None]:
    """Keep the messages of unforeseen exceptions, which may quote a row, out of Dagster's event log.

    Errors of Flywheel's own and Dagster's pass, without what led to them; others become a Failure with type and place.
    """
    try:
        yield
    except (FlywheelError, dg.DagsterError, dg.Failure, dg.RetryRequested) as error:
        raise error from None
    except Exception as error:  # noqa: BLE001 - the outermost edge of our code in a Dagster run
        raise dg.Failure(description=f"unforeseen: {without_message(error)}") from None


@contextmanager
def loop_step(
    context: dg.AssetExecutionContext, deployment: Deployment, task: str, *, may_open: bool = False
) -> Iterator[LoopContext]:
    """One step of a loop, under the lease of the attempt that this run was started for.

    A run without the loop's tags (started by hand in the UI) joins the open loop; ``may_open`` lets it open one.
    """
    tags = context.run.tags
    with intake_step(context, deployment) as opened:
        refuse_elsewhere(opened.config, task)
        lease = enter(
            opened.registry,
            task,
            context.run.run_id,
            loop_id=tags.get(LOOP_ID_TAG),
            attempt=int(tags[ATTEMPT_TAG]) if ATTEMPT_TAG in tags else None,
            may_open=may_open,
        )
        yield LoopContext(opened.config, opened.home, opened.registry, lease)
