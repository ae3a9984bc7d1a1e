"""A failed run is told to the webhook once, and again when it could not be delivered."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import dagster as dg
import pytest
import yaml

from flywheel.definitions import build_definitions
from flywheel.errors import FlywheelError


class Webhook(ThreadingHTTPServer):
    """Keeps what is posted to it; answers 503 while ``broken`` and when its ``room`` is full."""

    broken = False
    room = 100

    def __init__(self) -> None:
        self.told: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        broken = self.server.broken or len(self.server.told) >= self.server.room
        if not broken:
            self.server.told.append(json.loads(body)["text"])
        self.send_response(503 if broken else 200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def webhook(daemon: Any) -> Iterator[Webhook]:
    """A chat server on this machine that flywheel.yaml names."""
    server = Webhook()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    raw = yaml.safe_load(daemon.wheel.path.read_text())
    raw["alerts"] = {"webhook": f"http://127.0.0.1:{server.server_address[1]}/hook"}
    daemon.wheel.path.write_text(yaml.safe_dump(raw))
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def fail(daemon: Any, attempt: int = 1) -> str:
    """A loop run that fails in its first step, because there is no such loop; returns its id."""
    job = build_definitions(daemon.wheel.config).resolve_job_def("support_router_loop")
    tags = {"flywheel/loop_id": "support_router/9", "flywheel/attempt": str(attempt)}
    result = job.execute_in_process(instance=daemon.instance, tags=tags, raise_on_error=False)
    assert not result.success
    return str(result.run_id)


def test_a_failed_run_is_told_once_with_its_loop_and_step(daemon: Any, webhook: Webhook) -> None:
    cursor = daemon.tick("failure_alert").cursor
    run_id = fail(daemon)
    tick = daemon.tick("failure_alert", cursor)
    assert webhook.told == [
        f"Flywheel: run {run_id} of support_router_loop failed in support_router__dataset (support_router/9, attempt 1)"
    ]
    daemon.tick("failure_alert", tick.cursor)
    assert len(webhook.told) == 1


def test_an_alert_that_was_not_delivered_is_tried_again(daemon: Any, webhook: Webhook) -> None:
    cursor = daemon.tick("failure_alert").cursor
    run_id = fail(daemon)
    webhook.broken = True
    with pytest.raises(FlywheelError, match="could not be delivered") as failed:
        daemon.tick("failure_alert", cursor)  # a failed tick leaves the cursor where it was
    assert "127.0.0.1" not in str(failed.value), "the address may hold a secret"
    webhook.broken = False
    daemon.tick("failure_alert", cursor)
    assert len(webhook.told) == 1 and run_id in webhook.told[0]


def test_of_many_failures_those_told_are_not_told_again_when_the_webhook_breaks_between(
    daemon: Any, webhook: Webhook
) -> None:
    cursor = daemon.tick("failure_alert").cursor
    runs = [fail(daemon, attempt) for attempt in (1, 2, 3)]
    webhook.room = 1
    tick = daemon.tick("failure_alert", cursor)
    assert tick.skip_message.startswith("1 failed runs reported; the alert could not be delivered")
    webhook.room = 100
    daemon.tick("failure_alert", tick.cursor)
    assert [run_id for text in webhook.told for run_id in runs if run_id in text] == runs


def test_other_jobs_and_earlier_failures_are_passed_over(daemon: Any, webhook: Webhook) -> None:
    @dg.op
    def broken() -> None:
        raise dg.Failure("of no concern")

    @dg.job
    def foreign() -> None:
        broken()

    fail(daemon)
    cursor = daemon.tick("failure_alert").cursor
    foreign.execute_in_process(instance=daemon.instance, raise_on_error=False)
    tick = daemon.tick("failure_alert", cursor)
    assert webhook.told == []
    assert tick.cursor != cursor


def test_without_a_webhook_a_failure_is_only_logged(daemon: Any) -> None:
    cursor = daemon.tick("failure_alert").cursor
    fail(daemon)
    tick = daemon.tick("failure_alert", cursor)
    assert tick.skip_message == "1 failed runs reported"
