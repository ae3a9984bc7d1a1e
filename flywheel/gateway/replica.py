"""This process as a replica: loads, probes and routes releases, and keeps following the champion pointer.

Desired state is the pointer in the registry; the routing table is what is observed. ``reconcile`` closes the gap, so
a promotion or rollback whose call never arrived reaches this replica with the next heartbeat all the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from flywheel.config import Config
from flywheel.errors import CheckpointError, FlywheelError, ProbeFailed
from flywheel.gateway.backends import Backend
from flywheel.gateway.errors import log_failure
from flywheel.gateway.metrics import Metrics
from flywheel.gateway.routing import Down, Route, Router
from flywheel.release import replicas
from flywheel.release.pointer import champion, history
from flywheel.release.probe import ProbeReport
from flywheel.release.releases import Release, find_release, get_release
from flywheel.store.registry import Registry

logger = logging.getLogger("flywheel.gateway")

HEARTBEAT_S = 2.0
KEEP_LOADED = 4
"""Releases of a task that stay loaded: the champion and those that served before it, for an instant way back."""

RETRY_S = 30.0
"""A release that could not be loaded or proven is tried again after this long, not with every heartbeat."""


class LocalReplica:
    """The four verbs of a target plus routing, for all tasks of this process. Thread-safe.

    Args:
        backends: one per base model; a release is loaded into the one whose digests it names.
        router: the table that requests resolve against.
    """

    def __init__(
        self, config: Config, registry: Registry, backends: Sequence[Backend], router: Router, metrics: Metrics
    ) -> None:
        self.state = "starting"
        self.url = ""
        self.replica_id = ""
        self._config = config
        self._registry = registry
        self._backends = backends
        self._router = router
        self._metrics = metrics
        self._proven: set[str] = set()
        self._failed: dict[str, tuple[float, str, str]] = {}  # task -> (when, release digest, reason)
        self._locks = {task: threading.Lock() for task in config.tasks}
        self._stop = threading.Event()
        self._heart: threading.Thread | None = None

    def load(self, digest: str) -> dict[str, Any]:
        """Load a release under its immutable name, without routing a task to it. Returns name and weights digest."""
        release = self._release(digest)
        with self._locks[release.task]:
            return self._load(release)

    def probe(self, digest: str) -> ProbeReport:
        """Prove a loaded release; one that fails is never routed."""
        release = self._release(digest)
        with self._locks[release.task]:
            return self._prove(release)

    def follow(self, task: str) -> dict[str, Any]:
        """Make the task's route what the champion pointer says now, loading and proving it first when needed.

        Returns ``{"task", "release", "version"}``. Raises CheckpointError or ProbeFailed, and then the task goes on
        with the release that it had, or is down when it had none.
        """
        if self._config.task(task).engine is not None:
            raise CheckpointError(f"task {task} is answered by an engine of its own, which this gateway cannot change")
        with self._locks[task]:
            with self._registry.read() as tx:
                desired = champion(tx, task)
                if desired is None:
                    raise CheckpointError(f"task {task} has no champion yet; restart the gateway to make the first")
                release = get_release(tx, desired.release)
            current = self._router.table.get(task)
            observed = {"task": task, "release": release.digest, "version": desired.version}
            if isinstance(current, Route) and (current.digest, current.version) == (release.digest, desired.version):
                return observed
            self._load(release)
            if release.digest not in self._proven:
                report = self._prove(release)
                if not report.passed:
                    raise ProbeFailed(f"release {release.name} failed its probe: {'; '.join(report.failures)}")
            self._router.put({task: Route(self._backend(release), release, desired.version)})
            self._failed.pop(task, None)
            if isinstance(current, Route) and current.digest != release.digest:
                self._metrics.swaps.labels(task).inc()
                logger.info("%s is now answered by %s (pointer version %d)", task, release.name, desired.version)
            return observed

    def unload(self, name: str) -> None:
        """Drop a loaded release by its served name; requests that run on it finish. One that is not loaded is fine.

        Raises ProbeFailed while a task is routed to it.
        """
        table = self._router.table
        users = [key for key, route in table.items() if isinstance(route, Route) and route.served == name != key]
        if users:
            raise ProbeFailed(f"{name} answers for {', '.join(users)}; move the champion first")
        route = table.get(name)
        if isinstance(route, Route) and route.release is not None:
            with self._locks[route.task]:
                self._router.drop(name)
                self._router.wait_unpinned(name)
                self._proven.discard(route.digest)
                route.backend.target.unload(name)

    def find(self, task: str, prefix: str) -> Release | None:
        """The one release of the task that the registry knows by this prefix."""
        try:
            with self._registry.read() as tx:
                return find_release(tx, task, prefix)
        except FlywheelError:
            return None

    def status(self) -> dict[str, Any]:
        """What is loaded (name -> weights digest read back now), what is routed, and what is wrong."""
        loaded: dict[str, str] = {}
        for backend in self._backends:
            loaded.update(backend.target.status())
        return {
            "replica_id": self.replica_id,
            "url": self.url,
            "state": self.state,
            "loaded": loaded,
            "routes": self.observed(),
            "faults": {task: reason for task, (_, _, reason) in self._failed.items()},
        }

    def observed(self) -> dict[str, dict[str, Any]]:
        """Task -> release digest and pointer version that it is answered by; tasks that are down are missing."""
        table = self._router.table
        routes = {task: table.get(task) for task in self._config.embedded}
        return {
            task: {"release": route.digest, "version": route.version}
            for task, route in routes.items()
            if isinstance(route, Route)
        }

    def reconcile(self) -> None:
        """Follow every task's pointer. What cannot be followed is noted, and tried again later."""
        for task in self._config.embedded:
            try:
                if not self._waiting(task):
                    self.follow(task)
                    self._trim(task)
            except FlywheelError as error:
                self._note(task, str(error))

    def _trim(self, task: str) -> None:
        """Unload what has not served lately, so that memory does not grow with every promotion."""
        loaded = self._router.releases(task)
        if len(loaded) <= KEEP_LOADED:
            return
        with self._registry.read() as tx:
            moves = history(tx, task)
        recent = list(dict.fromkeys(move["release"] for move in reversed(moves)))[:KEEP_LOADED]
        served = {move["release"] for move in moves}
        for name, route in loaded.items():
            if route.digest in served and route.digest not in recent:  # a candidate under probe has not served yet
                self.unload(name)

    def start_heart(self, on_beat: Callable[[], None]) -> None:
        """Call ``on_beat``, follow the pointers and report, every two seconds on a thread, until ``stop_heart``."""
        self._heart = threading.Thread(target=self._beat, args=(on_beat,), name="heartbeat", daemon=True)
        self._heart.start()

    def stop_heart(self) -> None:
        """Stop beating and leave the list of replicas."""
        self._stop.set()
        if self._heart is not None:
            self._heart.join()
        if self.replica_id:
            with self._registry.write() as tx:
                replicas.unregister(tx, self.replica_id)

    def enter(self, url: str) -> None:
        """Register as a replica that is starting."""
        self.url = url
        with self._registry.write() as tx:
            self.replica_id = replicas.register(tx, url)

    def report(self, state: str) -> None:
        """Write state and observed routes into the registry."""
        self.state = state
        with self._registry.write() as tx:
            replicas.heartbeat(tx, self.replica_id, state=state, observed=self.observed())

    def retire(self) -> None:
        """Say that this replica stops, so that no promotion waits for it while running answers end."""
        try:
            self.report("stopped")
        except SQLAlchemyError as error:
            log_failure("retiring the replica", error)

    def _beat(self, on_beat: Callable[[], None]) -> None:
        while not self._stop.wait(HEARTBEAT_S):
            try:
                on_beat()
                self.reconcile()
                self.report(self.state)
            except (FlywheelError, SQLAlchemyError, OSError) as error:
                log_failure("heartbeat", error)

    def _release(self, digest: str) -> Release:
        with self._registry.read() as tx:
            release = get_release(tx, digest)
        self._config.task(release.task)  # a release of a task that this gateway does not have
        return release

    def _backend(self, release: Release) -> Backend:
        for backend in self._backends:
            if backend.fits(release):
                return backend
        bases = ", ".join(backend.name for backend in self._backends)
        raise CheckpointError(
            f"release {release.name} needs the base {release.base['name']} in the very version it was made with; this "
            f"gateway runs {bases}; restart it once that base is there"
        )

    def _load(self, release: Release) -> dict[str, Any]:
        backend = self._backend(release)
        name = backend.target.load(release)
        if name not in self._router.table:
            self._router.put({name: Route(backend, release)})
        return {"served": name, "release": release.digest, "weights_digest": release.checkpoint}

    def _prove(self, release: Release) -> ProbeReport:
        report = self._backend(release).target.probe(release)
        if report.passed:
            self._proven.add(release.digest)
        else:
            self._proven.discard(release.digest)
        return report

    def _waiting(self, task: str) -> bool:
        failed = self._failed.get(task)
        if failed is None or time.monotonic() - failed[0] >= RETRY_S:
            return False
        with self._registry.read() as tx:
            desired = champion(tx, task)
        return desired is not None and desired.release == failed[1]

    def _note(self, task: str, reason: str) -> None:
        with self._registry.read() as tx:
            desired = champion(tx, task)
        self._failed[task] = (time.monotonic(), desired.release if desired is not None else "", reason)
        if isinstance(self._router.table.get(task), Route):
            logger.error("%s stays with its release, the champion cannot be followed: %s", task, reason)
        else:
            logger.error("%s is down: %s", task, reason)
            self._router.put({task: Down(reason)})
