"""The embedded target: the engine in the gateway's own process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from flywheel.errors import CheckpointError
from flywheel.release.pointer import champion, history
from flywheel.release.probe import ProbeReport, check_probes, is_recorded, record_probes, weights_failure
from flywheel.release.releases import Release, get_release, recordings
from flywheel.store.digests import short
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema

if TYPE_CHECKING:
    from flywheel.engine.engine import Engine


class EmbeddedTarget:
    """Loads releases into an engine under their immutable names and proves what is in it.

    Args:
        engine: a started engine on the base model of the releases.
        home: where checkpoints and probe recordings lie.
        registry: knows the releases and champions.
    """

    def __init__(self, engine: Engine, home: Home, registry: Registry) -> None:
        self._engine = engine
        self._home = home
        self._registry = registry

    def load(self, release: Release) -> str:
        """Load a release and return its served name; a release that is loaded already stays.

        Raises CheckpointError when the engine's base is not the release's, or the weights are not what their digest
        says; nothing stays loaded then.
        """
        different = release.differs_from(self._engine.model)
        if different:
            raise CheckpointError(
                f"release {release.name} needs base {release.base['name']}, but this engine's base "
                f"{self._engine.model.name} has another {', '.join(different)}; serve it from a gateway on that base"
            )
        folder = release.adapter_folder(self._home)
        if release.adapter is None or folder is None:
            return release.name
        known = release.adapter in self._engine.adapters()
        found = self._engine.load_adapter(release.adapter, folder)
        if found != release.checkpoint:
            if not known:
                self._engine.unload_adapter(release.adapter)
            raise CheckpointError(
                f"{folder}: weights have digest {short(found)}, release {release.name} was made from "
                f"{short(release.checkpoint or '')}; restore the checkpoint or roll back"
            )
        return release.name

    def probe(self, release: Release) -> ProbeReport:
        """Prove that a loaded release is what was evaluated (see ``probe.check_probes``).

        A bare base release that was never recorded is recorded now; one with weights must have been recorded when it
        was evaluated. Where an erasure took the whole recording of a release that has been the champion, its weights
        are still hashed, and neutral probes are recorded now; any other release must be evaluated again.
        """
        folder = recordings(self._home, release.digest)
        if not is_recorded(self._home, release.digest) and (release.checkpoint is None or self._proven_before(release)):
            wrong = weights_failure(self._engine, release)
            if wrong is not None:
                return ProbeReport(False, "none", failures=(wrong,))
            record_probes(self._engine, self._engine.tokenizer, release, (), folder)
            return ProbeReport(True, "recorded")
        return check_probes(self._engine, release, folder, champion=self._present_champion(release))

    def unload(self, name: str) -> None:
        """Drop a release by its served name; one that is not loaded, or is the base, is fine."""
        if name in self._engine.adapters():
            self._engine.unload_adapter(name)

    def status(self) -> dict[str, str]:
        """The loaded adapters: served name -> digest of the weights, read back and hashed now."""
        return {name: self._engine.adapter_digest(name) for name in self._engine.adapters()}

    def _proven_before(self, release: Release) -> bool:
        """Whether an erasure took the recording of a release that was proven by it when it became the champion."""
        stones = schema.tombstones
        erased = sa.and_(stones.c.kind == "probes", stones.c.digest == release.digest)
        with self._registry.read() as tx:
            lost = tx.scalar(sa.select(stones.c.digest).where(erased)) is not None
            return lost and any(move["release"] == release.digest for move in history(tx, release.task))

    def _present_champion(self, release: Release) -> Release | None:
        with self._registry.read() as tx:
            now = champion(tx, release.task)
            if now is None or now.release == release.digest:
                return None
            present = get_release(tx, now.release)
        loaded = present.adapter is None or present.adapter in self._engine.adapters()
        return present if loaded and not present.differs_from(self._engine.model) else None
