"""What a training child is told to do: one JSON file, validated, with a digest of its content."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from flywheel.config import Config, TrainRecipe
from flywheel.store.digests import digest
from flywheel.store.files import write_atomic
from flywheel.store.home import Home

RECIPE_VERSION = 1
"""Raised when the training code starts to give other weights for the same inputs, so that old ones are not reused."""

_NOT_CONTENT = {"seed", "checkpoint_every"}  # the seed stands on its own; resume points change no weight


class TrainSpec(BaseModel):
    """One supervised LoRA run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["train"] = "train"
    task: str
    home: Path = Field(description="the home folder: dataset, locks, runs and checkpoints lie in it")
    base: str = Field(description="name by which `flywheel.models.resolve` finds the base model")
    base_digest: str = Field(description="digest of base weights, tokenizer and chat template that must be found")
    dataset: str = Field(description="digest of the dataset in the home")
    init: str | None = Field(None, description="digest of the checkpoint in the home to go on from; None: the base")
    recipe: TrainRecipe
    seed: int
    dtype: Literal["float32", "bfloat16"] | None = Field(None, description="None looks at the machine")
    threads: int | None = Field(None, ge=1, description="None looks at the machine")

    def input_digest(self) -> str:
        """Digest of what decides the weights, as far as inputs can: no paths, no dtype, no threads.

        Equal on every machine, so that a run that finished anywhere is reused rather than rolled again.
        """
        return digest(
            {
                "kind": self.kind,
                "version": RECIPE_VERSION,
                "task": self.task,
                "base": self.base_digest,
                "dataset": self.dataset,
                "init": self.init,
                "recipe": self.recipe.model_dump(exclude=_NOT_CONTENT),
                "seed": self.seed,
            }
        )

    @property
    def peak_lr(self) -> float:
        """The highest learning rate: a warm start goes on with a fraction of the first run's."""
        return self.recipe.lr * (self.recipe.warm_lr_scale if self.init else 1.0)

    @property
    def folder(self) -> Path:
        """The run's working folder: resume points, then ``result.json``."""
        return Home(self.home).runs / self.input_digest()

    @property
    def init_folder(self) -> Path | None:
        """Where the initial checkpoint lies."""
        return Home(self.home).checkpoints / self.init if self.init else None

    def write(self) -> Path:
        """Write the spec into its run folder, for ``python -m flywheel.training --spec``, and return its path."""
        path = self.folder / "spec.json"
        write_atomic(path, self.model_dump_json(indent=2).encode())
        return path


def make_spec(
    config: Config, home: Home, task: str, *, base_digest: str, dataset: str, init: str | None = None
) -> TrainSpec:
    """The run that a task's recipe asks for.

    Args:
        base_digest: of the task's base model, ``resolve(config.task(task).base).base_digest``.
        dataset: digest of a dataset in ``home.datasets``.
        init: digest of the champion's checkpoint in ``home.checkpoints``; None starts from the base.
    """
    wanted = config.task(task)
    return TrainSpec(
        task=task,
        home=home.root.absolute(),
        base=wanted.base,
        base_digest=base_digest,
        dataset=dataset,
        init=init,
        recipe=wanted.train,
        seed=wanted.train.seed,
        dtype=config.compute.dtype,
        threads=config.compute.threads,
    )
