"""Running one gateway: from the lock on its home to the last answer. What ``flywheel serve`` calls.

Everything that can be wrong is found before the port answers: another gateway on the home, missing keys, a port that
is taken, a model that is not there. A champion that cannot be loaded or proven takes down its task only.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvicorn

from flywheel.config import Config
from flywheel.errors import ConfigError, ModelUnavailable
from flywheel.gateway.app import create_app
from flywheel.gateway.backends import Backend, start_backend
from flywheel.gateway.keys import KeyRing, write_operator_token
from flywheel.gateway.loopback import is_loopback
from flywheel.gateway.metrics import Metrics
from flywheel.gateway.replica import LocalReplica
from flywheel.gateway.review_desk import ReviewDesk
from flywheel.gateway.routing import Route, Router
from flywheel.gateway.state import Gateway
from flywheel.gateway.upstream import Upstreams
from flywheel.release.pointer import ensure_champion
from flywheel.release.releases import get_release
from flywheel.store.files import locked
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.wal import WriteAheadLog

if TYPE_CHECKING:
    from flywheel.models import ModelDir

logger = logging.getLogger("flywheel.gateway")

DRAIN_S = 20
"""How long running answers may take to end once the gateway is told to stop."""
KEEP_ALIVE_S = 75


@dataclass(frozen=True)
class RunningGateway:
    """What ``on_ready`` gets: where the gateway answers, and how to stop it from another thread."""

    url: str
    replica_id: str
    stop: Callable[[], None]


def serve(config: Config, *, on_ready: Callable[[RunningGateway], None] | None = None) -> None:
    """Serve until SIGTERM, SIGINT or ``RunningGateway.stop``; then let running answers end and close the log.

    Args:
        on_ready: called once requests are answered.

    Raises:
        ConfigError: the address is public and there is no key, or it is taken; or an engine's key is not there.
        HomeBusy: another gateway runs on this home.
        ModelUnavailable: a base model is not on this machine.
        StoreError: the log cannot be written.
    """
    home = Home.of(config)
    with ExitStack() as stack:
        registry = Registry.of(config, actor="gateway")
        stack.callback(registry.close)
        loopback = is_loopback(config.gateway.host)
        if not loopback and not KeyRing(registry, "", required=True).usable:
            raise ConfigError(
                f"gateway.host {config.gateway.host} is not loopback and there is no API key; make one with "
                "`flywheel keys create NAME`, or bind 127.0.0.1"
            )
        stack.enter_context(locked(home.locks / "gateway.lock", wait=False, holder="another gateway of this home"))
        listener = stack.enter_context(_bind(config.gateway.host, config.gateway.port))
        keys = KeyRing(registry, write_operator_token(home), required=not loopback)
        metrics = Metrics()
        upstreams = Upstreams(config)
        wal = stack.enter_context(WriteAheadLog(home.log, on_commit=metrics.committed))
        backends: list[Backend] = []
        for model in _base_models(config, registry):
            backends.append(start_backend(config, home, registry, model))
            stack.callback(backends[-1].close)
            _watch(metrics, backends[-1])
        router = Router()
        router.put({backend.name: Route(backend, None) for backend in backends})
        replica = LocalReplica(config, registry, backends, router, metrics)
        url = _url(config.gateway.host, listener)
        replica.enter(url)
        stack.callback(replica.stop_heart)
        replica.reconcile()
        desk = ReviewDesk(config, home, registry)
        app = create_app(Gateway(config, wal, router, replica, keys, metrics, upstreams, desk))
        settings = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=DRAIN_S,
        )

        def ready() -> None:
            replica.report("ready")
            replica.start_heart(keys.refresh)
            logger.info("gateway ready at %s", url)
            if on_ready is not None:
                on_ready(RunningGateway(url, replica.replica_id, server.stop))

        server = _Server(settings, ready, replica.retire, upstreams.close)
        with _signals(server):
            server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Tells when it begins and stops to accept connections, and leaves the signals to us: uvicorn raises them again
    when it has stopped, which would end the process before the log is closed."""

    def __init__(
        self,
        config: uvicorn.Config,
        ready: Callable[[], None],
        stopping: Callable[[], None],
        stopped: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._stopping = stopping
        self._stopped = stopped

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.to_thread(self._stopping)
        await super().shutdown(sockets=sockets)
        await self._stopped()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Stop accepting and drain; asked twice, stop at once."""
        self.force_exit = self.should_exit
        self.should_exit = True


@contextmanager
def _signals(server: _Server) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {each: signal.signal(each, lambda *_: server.stop()) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"gateway.host {host!r}: {error.strerror or error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another gateway.port") from error
    return listener


def _url(host: str, listener: socket.socket) -> str:
    """Where processes of this machine reach the gateway."""
    port = listener.getsockname()[1]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def _base_models(config: Config, registry: Registry) -> list[ModelDir]:
    """The distinct bases of tasks and of their champions, which may still stand on an earlier base.

    A task that another engine answers needs none here, and gets no champion.
    """
    from flywheel.models import resolve

    found: dict[str, ModelDir] = {}
    for task, policy in config.embedded.items():
        model = resolve(policy.base)
        found.setdefault(model.base_digest, model)
        current = ensure_champion(registry, config, task, model)
        with registry.read() as tx:
            release = get_release(tx, current.release)
        if release.differs_from(model):
            try:
                earlier = resolve(release.base["name"])
            except ModelUnavailable as error:
                logger.error("%s: the champion's base is not here: %s", task, error)
                continue
            found.setdefault(earlier.base_digest, earlier)
    return list(found.values())


def _watch(metrics: Metrics, backend: Backend) -> None:
    stats = backend.engine.stats
    metrics.watch_engine(backend.model.name, lambda: float(stats()["running"]), lambda: float(stats()["waiting"]))


__all__ = ["RunningGateway", "serve"]
