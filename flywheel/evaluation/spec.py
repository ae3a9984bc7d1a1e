"""What an evaluation child is told to do: one JSON file, validated, with a digest of its content."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from flywheel.config import Config
from flywheel.store.digests import digest
from flywheel.store.files import write_atomic
from flywheel.store.home import Home

EVALUATION_VERSION = 1
"""Raised when the code starts to give other scores for the same inputs, so that old ones are not reused."""

WAVE = 8
"""Items decoded side by side. Part of the content, because the width of a batch moves low bits of the logits."""


class ReleaseLike(Protocol):
    """What an evaluation needs to know of a release."""

    @property
    def digest(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def base(self) -> Mapping[str, str]: ...
    @property
    def checkpoint(self) -> str | None: ...
    @property
    def system_prompt(self) -> str | None: ...
    @property
    def sampling(self) -> Mapping[str, Any]: ...


class Contender(BaseModel):
    """A release under evaluation.

    Attributes:
        release: its digest.
        name: the engine's name for its adapter.
        base: name and content digests of its base model.
        checkpoint: digest of its adapter in the home; None is the bare base model.
        max_tokens: longest answer. Decoding is greedy whatever the release's sampling says.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    release: str
    name: str
    base: dict[str, str]
    checkpoint: str | None
    system_prompt: str | None
    max_tokens: int = Field(ge=1)

    @classmethod
    def of(cls, release: ReleaseLike) -> Contender:
        """The contender that a release makes."""
        return cls(
            release=release.digest,
            name=release.name,
            base=dict(release.base),
            checkpoint=release.checkpoint,
            system_prompt=release.system_prompt,
            max_tokens=release.sampling["max_tokens"],
        )


class EvaluationSpec(BaseModel):
    """Champion and candidate on the same items, in one run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["evaluate"] = "evaluate"
    task: str
    tenant: str = ""
    home: Path = Field(description="the home folder: suites, checkpoints, locks, runs and evaluations lie in it")
    loop_id: str | None = None
    champion: Contender
    candidate: Contender
    pointer_version: int = Field(description="how often the champion pointer had moved when the champion was read")
    gate: str = Field(description="digest of the gate suite in the home")
    golden: str = Field(description="digest of the golden suite in the home; it may hold no items")
    scorer: str = "exact"
    wave: int = Field(WAVE, ge=1)
    max_context: int = Field(2048, ge=16, description="prompt plus answer, in tokens, as the gateway allows")
    dtype: Literal["float32", "bfloat16"] | None = Field(None, description="None looks at the machine")
    threads: int | None = Field(None, ge=1, description="None looks at the machine")

    def input_digest(self) -> str:
        """Digest of what decides the scores, as far as inputs can: no paths, no loop, no dtype, no threads.

        Equal on every machine, so that an evaluation that finished anywhere is reused rather than rolled again.
        """
        return digest(
            {
                "kind": self.kind,
                "version": EVALUATION_VERSION,
                "task": self.task,
                "tenant": self.tenant,
                "champion": self.champion.release,
                "candidate": self.candidate.release,
                "pointer_version": self.pointer_version,
                "suites": self.suites,
                "scorer": self.scorer,
                "decode": self.decode,
            }
        )

    @property
    def suites(self) -> dict[str, str]:
        """Suite digests by kind."""
        return {"gate": self.gate, "golden": self.golden}

    @property
    def decode(self) -> dict[str, int]:
        """How answers are decoded, beyond greedily."""
        return {
            "wave": self.wave,
            "max_context": self.max_context,
            "champion_max_tokens": self.champion.max_tokens,
            "candidate_max_tokens": self.candidate.max_tokens,
        }

    @property
    def folder(self) -> Path:
        """The run's working folder: finished waves, then ``result.json``."""
        return Home(self.home).runs / self.input_digest()

    def write(self) -> Path:
        """Write the spec into its run folder, for ``python -m flywheel.training --spec``, and return its path."""
        path = self.folder / "spec.json"
        write_atomic(path, self.model_dump_json(indent=2).encode())
        return path


def make_spec(
    config: Config,
    home: Home,
    task: str,
    *,
    champion: ReleaseLike,
    candidate: ReleaseLike,
    pointer_version: int,
    gate: str,
    golden: str,
    loop_id: str | None = None,
) -> EvaluationSpec:
    """The evaluation of a candidate against the task's champion on the suites with these digests.

    Args:
        pointer_version: the champion pointer's, read in one transaction with ``champion``.
    """
    return EvaluationSpec(
        task=task,
        home=home.root.absolute(),
        loop_id=loop_id,
        champion=Contender.of(champion),
        candidate=Contender.of(candidate),
        pointer_version=pointer_version,
        gate=gate,
        golden=golden,
        scorer=config.task(task).score,
        max_context=config.gateway.max_context,
        dtype=config.compute.dtype,
        threads=config.compute.threads,
    )
