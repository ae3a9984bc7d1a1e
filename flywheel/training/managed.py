"""A managed run without a loop: the user's own files in, a registered checkpoint out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.datasets import from_jsonl
from flywheel.errors import TrainingError
from flywheel.models import resolve
from flywheel.store.digests import short
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.training.checkpoint import finished, register_checkpoint, registered_checkpoint
from flywheel.training.child import run_child
from flywheel.training.signals import INTERRUPTED, Interrupted
from flywheel.training.spec import TrainSpec, make_spec


@dataclass(frozen=True)
class ManagedRun:
    """What ``train_on_files`` made.

    Args:
        checkpoint: digest of the registered checkpoint.
        dataset: digest of the dataset that the files became.
        losses: curves ``train`` and ``val`` of [steps done, loss].
        manifest: the checkpoint's manifest.
    """

    checkpoint: str
    dataset: str
    losses: dict[str, list[list[float]]]
    manifest: dict[str, Any]


def train_on_files(
    config: Config,
    home: Home,
    registry: Registry,
    task: str,
    train: Path,
    val: Path | None,
    on_line: Callable[[str], None],
    *,
    init: str | None = None,
) -> ManagedRun:
    """Turn JSONL files into a dataset, train the task's recipe on it in a child process, register the checkpoint.

    Running it again on the same files gives the same checkpoint without training.

    Args:
        train: rows ``{messages}``, ``{prompt, completion}`` or ``{text, label}``.
        val: rows for the validation loss; they are never trained on.
        on_line: gets each line of progress.
        init: digest of a checkpoint in the home to go on from; None starts from the base.

    Raises DatasetError, ModelUnavailable, TrainingError, or Interrupted after Ctrl-C.
    """
    model = resolve(config.task(task).base)
    dataset = from_jsonl(config, home, registry, task, train, val)
    dropped = [f"{rows} {rule.replace('_', ' ')}" for rule, rows in dataset.manifest["dropped"].items()]
    left_out = f"; left out: {', '.join(dropped)}" if dropped else ""
    on_line(
        f"dataset {short(dataset.digest)}: {dataset.train} training and {dataset.val} validation examples{left_out}"
    )
    spec = make_spec(config, home, task, base_digest=model.base_digest, dataset=dataset.digest, init=init)
    manifest = train_and_register(spec, registry, on_line)
    return ManagedRun(manifest["digest"], dataset.digest, manifest["losses"], manifest)


def train_and_register(spec: TrainSpec, registry: Registry, on_line: Callable[[str], None]) -> dict[str, Any]:
    """The checkpoint of a spec: the registered one if there is one, else from a child process; returns its manifest.

    Raises TrainingError with the child's reason, or Interrupted when it was asked to stop.
    """
    known = registered_checkpoint(registry, Home(spec.home), spec.input_digest())
    if known is not None:
        on_line(f"already trained: checkpoint {short(known['digest'])}")
        return known
    reasons: list[str] = []

    def relay(line: str) -> None:
        if line.startswith("error: "):
            reasons.append(line.removeprefix("error: "))
        else:
            on_line(line)

    status = run_child(spec.write(), on_line=relay)
    if status == INTERRUPTED:
        raise Interrupted("training was stopped; run the same command again to go on from the last resume point")
    manifest = finished(spec) if status == 0 else None
    if manifest is None:
        raise TrainingError(reasons[-1] if reasons else f"the training process ended with status {status}")
    register_checkpoint(registry, manifest)
    return manifest
