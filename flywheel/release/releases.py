"""Releases: immutable descriptions of what is served, named by the digest of their content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from flywheel.config import Config
from flywheel.errors import PromotionRefused
from flywheel.store.digests import digest, short
from flywheel.store.home import Home
from flywheel.store.registry import Transaction, schema

if TYPE_CHECKING:
    from flywheel.models import ModelDir

RELEASES = schema.releases
BASE_DIGESTS = ("weights_digest", "tokenizer_digest", "template_digest")


@dataclass(frozen=True)
class Release:
    """Base model, checkpoint, system prompt and sampling defaults: what is evaluated, gated, promoted and logged.

    Attributes:
        digest: of everything below except the base's name, which may be a local path.
        base: ``name`` and the three content digests of the base model.
        checkpoint: digest of the LoRA adapter's weights; None serves the base model itself.
        sampling: ``max_tokens``, ``temperature``, ``top_p`` used where a request names none.
    """

    digest: str
    task: str
    base: dict[str, str]
    checkpoint: str | None
    system_prompt: str | None
    sampling: dict[str, Any]

    @property
    def name(self) -> str:
        """The immutable name under which replicas serve it, such as ``support_router@1f2e3d4c5b6a``."""
        return f"{self.task}@{short(self.digest)}"

    @property
    def adapter(self) -> str | None:
        """The engine's adapter name: ``name``, or None for a release that is the bare base model."""
        return self.name if self.checkpoint is not None else None

    def adapter_folder(self, home: Home) -> Path | None:
        """Where the adapter lies, or None for a release that is the bare base model."""
        return home.checkpoints / self.checkpoint if self.checkpoint is not None else None

    def with_prompt(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages as the model sees them: the system prompt goes first unless they bring instructions."""
        if self.system_prompt is None or any(message.get("role") in ("system", "developer") for message in messages):
            return messages
        return [{"role": "system", "content": self.system_prompt}, *messages]

    def differs_from(self, model: ModelDir) -> list[str]:
        """Which digests of the base (``weights_digest``...) are not those of ``model``."""
        return [name for name in BASE_DIGESTS if self.base[name] != getattr(model, name)]


def recordings(home: Home, release_digest: str) -> Path:
    """The folder with the probe recordings of a release."""
    return home.root / "releases" / release_digest


def make_release(tx: Transaction, config: Config, task: str, model: ModelDir, checkpoint: str | None) -> Release:
    """The release of a checkpoint (None: of the base) under the task's present prompt and sampling defaults.

    Making it again gives the same release and adds no row.
    """
    policy = config.task(task)
    content: dict[str, Any] = {
        "schema_version": 1,
        "task": task,
        "base": {name: getattr(model, name) for name in BASE_DIGESTS},
        "checkpoint": checkpoint,
        "system_prompt": policy.prompt,
        "sampling": policy.serve.model_dump(),
    }
    name = digest(content)
    if tx.scalar(sa.select(RELEASES.c.digest).where(RELEASES.c.digest == name)) is None:
        manifest = content | {"base": {"name": model.name, **content["base"]}}
        row = {"digest": name, "task": task, "checkpoint": checkpoint, "manifest": manifest}
        tx.execute(sa.insert(RELEASES).values(**row, **tx.stamp()))
    return get_release(tx, name)


def get_release(tx: Transaction, release_digest: str) -> Release:
    """The release with exactly this digest. Raises PromotionRefused when the registry does not know it."""
    row = tx.row(sa.select(RELEASES).where(RELEASES.c.digest == release_digest))
    if row is None:
        raise PromotionRefused(f"no release {release_digest} in the registry")
    return _release(row)


def find_release(tx: Transaction, task: str, prefix: str) -> Release:
    """The task's one release whose digest begins with ``prefix``; ``task@prefix`` is fine too.

    Raises PromotionRefused when there is none, or more than one.
    """
    wanted = prefix.removeprefix(f"{task}@").lower()
    mine = tx.rows(sa.select(RELEASES).where(RELEASES.c.task == task).order_by(RELEASES.c.digest))
    found = [row for row in mine if wanted and row["digest"].startswith(wanted)]
    if len(found) == 1:
        return _release(found[0])
    if not found:
        raise PromotionRefused(f"task {task} has no release {prefix!r}; `flywheel champion history` lists those served")
    names = ", ".join(short(row["digest"]) for row in found)
    raise PromotionRefused(f"{prefix!r} names {len(found)} releases of task {task} ({names}); give more digits")


def _release(row: dict[str, Any]) -> Release:
    manifest = row["manifest"]
    return Release(
        digest=row["digest"],
        task=row["task"],
        base=manifest["base"],
        checkpoint=row["checkpoint"],
        system_prompt=manifest["system_prompt"],
        sampling=manifest["sampling"],
    )
