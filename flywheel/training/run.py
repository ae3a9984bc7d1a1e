"""One supervised LoRA run from spec to published checkpoint."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flywheel.errors import CheckpointError, HomeBusy, TrainingError
from flywheel.store.digests import short
from flywheel.store.files import locked
from flywheel.store.home import Home
from flywheel.training.checkpoint import finished, publish, read_manifest
from flywheel.training.examples import TokenRows, load_rows
from flywheel.training.pipes import Reporter
from flywheel.training.resume import Progress, clear, load_point, save_point
from flywheel.training.schedule import batch_plan, learning_rate, step_count
from flywheel.training.signals import Interrupted, Stop
from flywheel.training.spec import TrainSpec

if TYPE_CHECKING:
    from flywheel.engine.core import TrainingCore
    from flywheel.models import ModelDir

_REPORT_EVERY_S = 2.0
_VAL_BATCH = 16


def run_training(spec: TrainSpec, report: Reporter, stop: Stop) -> dict[str, Any]:
    """Train, check and publish; returns the checkpoint's manifest.

    A finished run with the same inputs is returned as it is; an interrupted one goes on from its last resume point and
    ends with the same weights as if it had never stopped.

    Raises:
        TrainingError: a loss or weight is not finite, the weights did not change, or nothing could be trained.
        CheckpointError: the initial checkpoint is not what its digest says, or does not fit the base or the recipe.
        Interrupted: ``stop`` was asked; a resume point is on disk.
    """
    with compute_lock(Home(spec.home), report):
        manifest = finished(spec)
        if manifest is not None:
            report(f"already trained: checkpoint {short(manifest['digest'])}")
            return manifest
        spec.folder.mkdir(parents=True, exist_ok=True)
        clear(spec.folder, leftovers_only=True)
        manifest = _train(spec, report, stop)
        clear(spec.folder)
    report(f"checkpoint {short(manifest['digest'])} after {manifest['steps']} steps")
    return manifest


@contextmanager
def compute_lock(home: Home, report: Reporter) -> Iterator[None]:
    """Hold the home's one permit to compute: two children side by side would only slow each other down."""
    path = home.locks / "compute.lock"
    try:
        with locked(path, wait=False):
            pass
    except HomeBusy:
        report("another training or evaluation is running in this home; waiting for it")
    with locked(path):
        yield


def _train(spec: TrainSpec, report: Reporter, stop: Stop) -> dict[str, Any]:
    from flywheel.models import choose_compute, load_tokenizer, resolve

    cpu_start = _cpu_seconds()
    model = resolve(spec.base)
    _check_base(spec, model)
    from flywheel.engine.adapters import AdapterConfig  # here, so that a wrong spec is told before torch is loaded
    from flywheel.engine.core import TrainingCore

    compute = choose_compute(spec.dtype, spec.threads)
    recipe = spec.recipe
    rows = load_rows(Home(spec.home), spec.dataset, load_tokenizer(model), max_tokens=recipe.max_tokens)
    core = TrainingCore(
        model,
        compute,
        AdapterConfig(recipe.rank, recipe.alpha, (), model.name),
        init=spec.init_folder,
        seed=spec.seed,
    )
    if core.init_digest != spec.init:
        raise CheckpointError(f"{spec.init_folder}: the weights in it have digest {core.init_digest}")
    start_digest = core.weights_digest()
    report(f"{rows.counts['train']} training and {rows.counts['val']} validation examples; {_dropped(rows)}")
    report(f"{core.trainable:,} trainable parameters on {model.name}, {compute.dtype}, {compute.threads} thread(s)")
    progress = load_point(spec.folder, core, report)
    _steps(spec, core, rows, progress, cpu_start, report, stop)
    if core.weights_digest() == start_digest:
        raise TrainingError(
            f"{progress.step} steps left the weights exactly as they were; nothing was published "
            f"(peak learning rate {spec.peak_lr:g})"
        )
    return publish(spec, core, model, compute, progress, {"examples": rows.counts})


def _check_base(spec: TrainSpec, model: ModelDir) -> None:
    """The base found here is the one meant, and the initial checkpoint was trained on that same base."""
    if model.base_digest != spec.base_digest:
        raise TrainingError(
            f"base model {spec.base!r} has digest {short(model.base_digest)} here, this run was planned for "
            f"{short(spec.base_digest)}; pull the same model again"
        )
    if spec.init is None:
        return
    recorded = read_manifest(Home(spec.home), spec.init)["base"]
    for part in ("weights_digest", "tokenizer_digest", "template_digest"):
        if recorded.get(part) != getattr(model, part):
            raise CheckpointError(
                f"checkpoint {short(spec.init)} was trained on another {part.removesuffix('_digest')} "
                f"({short(str(recorded.get(part)))}) than {spec.base!r} has ({short(getattr(model, part))}); "
                "train from the base instead"
            )


def _steps(
    spec: TrainSpec,
    core: TrainingCore,
    rows: TokenRows,
    progress: Progress,
    cpu_start: float,
    report: Reporter,
    stop: Stop,
) -> None:
    """The training loop: from ``progress.step`` to the last step, with resume points on the way."""
    from flywheel.engine.batches import collate

    recipe = spec.recipe
    steps = step_count(len(rows.train), batch_size=recipe.batch_size, epochs=recipe.epochs, max_steps=recipe.max_steps)
    plan = batch_plan(
        rows.train_ids,
        [len(row.ids) for row in rows.train],
        seed=spec.seed,
        batch_size=recipe.batch_size,
        steps=steps,
    )
    clock = _Clock(core, progress, cpu_start)
    meter = _Meter(report, steps, progress)
    if progress.step:
        report(f"going on after step {progress.step} of {steps}")
    elif rows.val:
        progress.val.append((0, _val_loss(core, rows)))
    stop.saving = True
    while progress.step < steps:
        batch = collate([rows.train[index] for index in plan[progress.step]], core.device)
        loss = core.forward_backward(batch)
        core.optim_step(learning_rate(progress.step, steps=steps, warmup_share=recipe.warmup_share, peak=spec.peak_lr))
        progress.step += 1
        progress.train.append((progress.step, loss))
        progress.tokens += batch.tokens
        progress.learned_tokens += len(batch.targets)
        at_point = progress.step % recipe.checkpoint_every == 0 or progress.step == steps
        if at_point and rows.val:
            progress.val.append((progress.step, _val_loss(core, rows)))
        clock.read()
        stopping = stop.asked  # read once: a stop between two looks must not end the run without its point
        if (at_point and progress.step < steps) or stopping:
            save_point(spec.folder, core, progress)
        meter.show(progress)
        if stopping:
            raise Interrupted(f"stopped after step {progress.step} of {steps}; run the same again to go on from there")
    stop.saving = False


def _val_loss(core: TrainingCore, rows: TokenRows) -> float:
    """Mean weighted loss per learned token over the validation rows."""
    from flywheel.engine.batches import collate

    ordered = sorted(rows.val, key=lambda row: len(row.ids))
    total, tokens = 0.0, 0
    for start in range(0, len(ordered), _VAL_BATCH):
        loss, count = core.loss(collate(ordered[start : start + _VAL_BATCH], core.device))
        total, tokens = total + loss, tokens + count
    return total / tokens


class _Clock:
    """Adds the processor time of this process, and the wall time on a GPU, to a run's totals."""

    def __init__(self, core: TrainingCore, progress: Progress, cpu_start: float) -> None:
        self._on_gpu = core.device.type == "cuda"
        self._progress = progress
        self._cpu_base = progress.cpu_seconds - cpu_start
        self._gpu_base = progress.gpu_seconds - time.monotonic()

    def read(self) -> None:
        self._progress.cpu_seconds = self._cpu_base + _cpu_seconds()
        if self._on_gpu:
            self._progress.gpu_seconds = self._gpu_base + time.monotonic()


class _Meter:
    """Progress for people: a line at the first and last step and every two seconds or so between."""

    def __init__(self, report: Reporter, steps: int, progress: Progress) -> None:
        self._report = report
        self._steps = steps
        self._first = progress.step + 1
        self._start = self._shown = time.monotonic()
        self._start_step, self._start_tokens = progress.step, progress.tokens

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.step not in (self._first, self._steps) and now - self._shown < _REPORT_EVERY_S:
            return
        self._shown = now
        seconds = max(now - self._start, 1e-6)
        rate = (progress.tokens - self._start_tokens) / seconds
        eta = seconds / (progress.step - self._start_step) * (self._steps - progress.step)
        loss = progress.train[-1][1]
        val = f"  val {progress.val[-1][1]:.4f}" if progress.val else ""
        self._report(f"step {progress.step}/{self._steps}  loss {loss:.4f}{val}  {rate:.0f} tok/s  eta {eta:.0f} s")
        self._report.message(
            {
                "kind": "progress",
                "step": progress.step,
                "steps": self._steps,
                "loss": loss,
                "tokens_per_second": round(rate, 1),
                "eta_seconds": round(eta, 1),
            }
        )


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _dropped(rows: TokenRows) -> str:
    counts = rows.counts
    return (
        f"left out: {counts['too_long']} too long, {counts['nothing_learned']} with nothing to learn, "
        f"{counts['refused']} refused by the chat template"
    )
