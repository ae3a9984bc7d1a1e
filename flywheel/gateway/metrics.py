"""Prometheus metrics of one gateway, in a registry of its own. Labels are tasks, never users or text."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from flywheel.gateway.routing import Route, Table
from flywheel.store.digests import short

LATENCY_S = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
FSYNC_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
BASE = "(base)"
"""The task label of calls to a base model; no task can be called this."""
UNKNOWN = "(unknown)"
"""The task label of requests refused before their task was known."""


class Metrics:
    """The gateway's counters, histograms and gauges."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self.registry = registry
        self.requests = Counter(
            "flywheel_requests",
            "Completion requests by HTTP status, or cancelled",
            ["task", "status"],
            registry=registry,
        )
        self.tokens = Counter("flywheel_tokens", "Tokens by kind", ["task", "kind"], registry=registry)
        self.latency = Histogram(
            "flywheel_request_seconds", "From receipt to the logged end", ["task"], buckets=LATENCY_S, registry=registry
        )
        self.first_token = Histogram(
            "flywheel_first_token_seconds",
            "From receipt to the first token",
            ["task"],
            buckets=LATENCY_S,
            registry=registry,
        )
        self.upstream_errors = Counter(
            "flywheel_upstream_errors",
            "Answers that the task's own engine did not give as it should, by reason",
            ["task", "reason"],
            registry=registry,
        )
        self.feedback = Counter("flywheel_feedback", "Feedback on disk", ["task", "kind", "source"], registry=registry)
        self.otlp_exports = Counter(
            "flywheel_otlp_exports", "Exports of telemetry by HTTP status", ["signal", "status"], registry=registry
        )
        self.otlp_records = Counter(
            "flywheel_otlp_records",
            "Spans and log records of exports: written, held until the answer comes, passed over, or refused",
            ["signal", "task", "outcome"],
            registry=registry,
        )
        self.fsync = Histogram(
            "flywheel_log_commit_seconds", "Write and fsync of one group of records", buckets=FSYNC_S, registry=registry
        )
        self.log_records = Counter("flywheel_log_records", "Records in the write-ahead log", registry=registry)
        self.swaps = Counter(
            "flywheel_swaps", "Times a task's route moved to another release", ["task"], registry=registry
        )
        self._release = Gauge(
            "flywheel_release_info", "1 for the release that answers a task", ["task", "release"], registry=registry
        )
        self._up = Gauge("flywheel_task_up", "Whether a task can be answered", ["task"], registry=registry)
        self._running = Gauge("flywheel_running_rows", "Rows in the decode batch", ["base"], registry=registry)
        self._waiting = Gauge("flywheel_waiting_rows", "Rows waiting for a place", ["base"], registry=registry)

    def watch_engine(self, base: str, running: Callable[[], float], waiting: Callable[[], float]) -> None:
        """Read an engine's load at every scrape."""
        self._running.labels(base).set_function(running)
        self._waiting.labels(base).set_function(waiting)

    def committed(self, seconds: float, records: int) -> None:
        """Note one group commit of the log."""
        self.fsync.observe(seconds)
        self.log_records.inc(records)

    def observe_routes(self, table: Table, tasks: Iterable[str]) -> None:
        """Note which release answers each task now."""
        self._release.clear()
        for task in tasks:
            route = table.get(task)
            self._up.labels(task).set(isinstance(route, Route))
            if isinstance(route, Route):
                self._release.labels(task, short(route.digest)).set(1)

    def exposition(self) -> bytes:
        """The text format that Prometheus scrapes."""
        return generate_latest(self.registry)
