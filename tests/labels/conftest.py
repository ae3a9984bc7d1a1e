"""What the tests of verifiers and judges share: a deployment with traffic, and a judge on a port of this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from flywheel.labels.verify import endpoint
from flywheel.store.segments import read_rows


@dataclass
class Asked:
    """A question as it arrived."""

    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def task(self) -> str:
        """What the judge is told to do."""
        return str(self.body["messages"][0]["content"])

    @property
    def shown(self) -> dict[str, Any]:
        """What it is to judge."""
        found: dict[str, Any] = json.loads(self.body["messages"][1]["content"])
        return found

    @property
    def options(self) -> list[str]:
        """The words it may say, in the order in which they are named."""
        return sorted(("GOOD", "BAD"), key=self.task.rindex)


Reply = str | int | bytes | tuple[int, dict[str, str]]


@dataclass
class JudgeServer:
    """An OpenAI-compatible endpoint. ``answer`` makes of a question a text, a status, a status with headers, or a body
    that is no chat completion."""

    answer: Callable[[Asked], Reply] = lambda asked: "GOOD"
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def reply(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        self.asked.append(asked)
        said = self.answer(asked)
        if isinstance(said, bytes):
            return 200, {}, said
        if isinstance(said, str):
            choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
            return 200, {}, json.dumps({"object": "chat.completion", "choices": [choice]}).encode()
        status, headers = (said, {}) if isinstance(said, int) else said
        return status, headers, b'{"error": {"message": "no"}}'


@pytest.fixture
def judge_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[JudgeServer]:
    """A judge that calls everything good until its ``answer`` is replaced. Pauses between tries are short."""
    monkeypatch.setattr(endpoint, "BACKOFF_S", 0.01)
    judge = JudgeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            assert self.path == "/v1/chat/completions"
            raw = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, more, body = judge.reply(Asked(headers, json.loads(raw)))
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    judge.url = f"http://127.0.0.1:{server.server_port}/v1"
    yield judge
    server.shutdown()
    server.server_close()


@pytest.fixture
def words() -> Callable[..., list[dict[str, Any]]]:
    """``words(deployment, source="verifier")``: its rows of feedback, the value read, in order of time and target."""

    def read(deployment: Any, source: str = "verifier") -> list[dict[str, Any]]:
        rows = read_rows(deployment.home, deployment.registry, "feedback", deployment.task, "ts, target_id, kind")
        return [row | {"value": json.loads(row["value"])} for row in rows if row["source"] == source]

    return read
