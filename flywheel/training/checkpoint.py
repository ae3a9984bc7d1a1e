"""Publishing a finished run: the checkpoint's folder and manifest, the run's result, the registry's row."""

from __future__ import annotations

import importlib.metadata
import os
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from flywheel.errors import TrainingError
from flywheel.store.files import publish_folder, read_json, remove_tree, write_json
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema
from flywheel.store.tables import SCHEMA_VERSION
from flywheel.training.resume import Progress
from flywheel.training.spec import TrainSpec

if TYPE_CHECKING:
    from flywheel.engine.core import TrainingCore
    from flywheel.models import Compute, ModelDir

_CURVE_POINTS = 500
_VERSIONS = ("torch", "transformers", "safetensors", "tokenizers")


def publish(
    spec: TrainSpec, core: TrainingCore, model: ModelDir, compute: Compute, progress: Progress, facts: dict[str, Any]
) -> dict[str, Any]:
    """Write the checkpoint under its digest, its manifest last inside it, and name it in the run's ``result.json``.

    Args:
        facts: what else belongs into the manifest (counts of examples, for one).

    Returns:
        The manifest.
    """
    temporary = spec.folder / f".publish.{os.getpid()}"
    remove_tree(temporary)
    digest = core.save(temporary)
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "digest": digest,
        "kind": "lora",
        "task": spec.task,
        "input_digest": spec.input_digest(),
        "base": {
            "name": model.name,
            "weights_digest": model.weights_digest,
            "tokenizer_digest": model.tokenizer_digest,
            "template_digest": model.template_digest,
        },
        "adapter": {
            "rank": core.config.rank,
            "alpha": core.config.alpha,
            "target_modules": list(core.config.target_modules),
            "parameters": core.trainable,
        },
        "parent": spec.init,
        "dataset": spec.dataset,
        "recipe": spec.recipe.model_dump(),
        "seed": spec.seed,
        "versions": {name: importlib.metadata.version(name) for name in _VERSIONS},
        "machine": compute.machine_class,
        "steps": progress.step,
        "resumed": progress.resumed,
        "losses": {"train": _thin(progress.train), "val": _thin(progress.val)},
        "tokens": {"seen": progress.tokens, "learned": progress.learned_tokens},
        "cpu_seconds": round(progress.cpu_seconds, 2),
        "gpu_seconds": round(progress.gpu_seconds, 2),
        **facts,
    }
    write_json(temporary / "manifest.json", manifest)
    publish_folder(temporary, Home(spec.home).checkpoints / digest)
    write_json(spec.folder / "result.json", {"checkpoint": digest, "input_digest": spec.input_digest()})
    return read_manifest(Home(spec.home), digest)


def finished(spec: TrainSpec) -> dict[str, Any] | None:
    """The manifest of a run with the same input digest that finished in this home, or None."""
    result = spec.folder / "result.json"
    if not result.is_file():
        return None
    digest = read_json(result)["checkpoint"]
    manifest = Home(spec.home).checkpoints / digest / "manifest.json"
    return read_manifest(Home(spec.home), digest) if manifest.is_file() else None


def read_manifest(home: Home, digest: str) -> dict[str, Any]:
    """The manifest of a checkpoint in the home. Raises TrainingError when it is not there."""
    path = home.checkpoints / digest / "manifest.json"
    try:
        manifest: dict[str, Any] = read_json(path)
    except FileNotFoundError:
        raise TrainingError(f"checkpoint {digest} has no manifest at {path}: it was never published here") from None
    return manifest


def register_checkpoint(registry: Registry, manifest: dict[str, Any]) -> str:
    """Record a published checkpoint; one that is known stays as it is. Returns its digest."""
    table = schema.checkpoints
    with registry.write() as tx:
        if tx.scalar(sa.select(table.c.digest).where(table.c.digest == manifest["digest"])) is None:
            columns = {name: manifest[name] for name in ("digest", "task", "input_digest", "parent", "dataset")}
            tx.execute(sa.insert(table).values(**columns, manifest=manifest, **tx.stamp()))
    return str(manifest["digest"])


def registered_checkpoint(registry: Registry, home: Home, input_digest: str) -> dict[str, Any] | None:
    """The manifest of a registered checkpoint made from the same inputs whose files are in the home, or None."""
    table = schema.checkpoints
    with registry.read() as tx:
        found = tx.rows(
            sa.select(table.c.digest, table.c.manifest)
            .where(table.c.input_digest == input_digest)
            .order_by(table.c.at, table.c.digest)
        )
    for row in found:
        if (home.checkpoints / row["digest"] / "manifest.json").is_file():
            return dict(row["manifest"])
    return None


def _thin(curve: list[tuple[int, float]]) -> list[list[float]]:
    """At most ``_CURVE_POINTS`` points, the first and the last among them; losses to six digits."""
    stride = max(1, -(-len(curve) // _CURVE_POINTS))
    kept = [point for index, point in enumerate(curve) if index % stride == 0 or index == len(curve) - 1]
    return [[step, float(f"{loss:.6g}")] for step, loss in kept]
