"""What every endpoint of one running gateway shares."""

from __future__ import annotations

from dataclasses import dataclass

from flywheel.config import Config
from flywheel.gateway.keys import KeyRing
from flywheel.gateway.metrics import Metrics
from flywheel.gateway.replica import LocalReplica
from flywheel.gateway.review_desk import ReviewDesk
from flywheel.gateway.routing import Router
from flywheel.gateway.upstream import Upstreams
from flywheel.store.wal import WriteAheadLog


@dataclass(frozen=True)
class Gateway:
    """The parts of one gateway, made by ``server.serve`` and handed to ``app.create_app``."""

    config: Config
    wal: WriteAheadLog
    router: Router
    replica: LocalReplica
    keys: KeyRing
    metrics: Metrics
    upstreams: Upstreams
    desk: ReviewDesk
