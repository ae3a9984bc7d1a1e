"""The unmodified OpenAI SDK in front of a real engine that is not ours: another gateway with the tiny model.

Both sides of the gateway in the middle are recorded on the wire, so that equal means equal bytes.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import openai
import pytest

UPSTREAM_TASK, TASK = "support_router", "front"
ASK: list[Any] = [{"role": "user", "content": "Where is my parcel?"}]


class Wire:
    """A TCP connection to ``port`` through which all goes unchanged, and which keeps what came back."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        self._answers: list[bytearray] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def take(self) -> list[tuple[int, bytes]]:
        """Status and body of the answers so far, with the chunks of HTTP taken apart; begins anew."""
        found = [answer for raw in self._answers for answer in _answers(bytes(raw))]
        for raw in self._answers:
            raw.clear()
        return found

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._socket.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            self._answers.append(bytearray())
            for source, target, kept in ((near, far, None), (far, near, self._answers[-1])):
                threading.Thread(target=_pump, args=(source, target, kept), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket, kept: bytearray | None) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            if kept is not None:
                kept += data  # before the reader can have it
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _answers(raw: bytes) -> Iterator[tuple[int, bytes]]:
    while raw:
        head, _, raw = raw.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        status = int(lines[0].split()[1])
        body = b""
        if b"transfer-encoding: chunked" in lines:
            while size := int((line := raw.partition(b"\r\n"))[0], 16):
                body, raw = body + line[2][:size], line[2][size + 2 :]
            raw = raw.removeprefix(b"0\r\n\r\n")
        else:
            length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
            body, raw = raw[:length], raw[length:]
        yield status, body


@pytest.fixture(scope="module")
def behind(live: Any) -> Iterator[Wire]:
    wire = Wire(int(live.url.rsplit(":", 1)[1]))
    yield wire
    wire.close()


@pytest.fixture(scope="module")
def middle(behind: Wire, serve_tasks: Callable[..., Any]) -> Any:
    return serve_tasks({TASK: {"base": UPSTREAM_TASK, "engine": behind.url}})


@pytest.fixture(scope="module")
def before(middle: Any) -> Iterator[Wire]:
    wire = Wire(int(middle.url.rsplit(":", 1)[1]))
    yield wire
    wire.close()


@pytest.fixture
def sdk(before: Wire, behind: Wire) -> openai.OpenAI:
    before.take(), behind.take()
    return openai.OpenAI(base_url=before.url, api_key="unused", max_retries=0)


def test_plain(sdk: openai.OpenAI, before: Wire, behind: Wire, middle: Any, live: Any) -> None:
    answer = sdk.chat.completions.create(model=TASK, messages=ASK, max_tokens=9, n=2, temperature=1.0, seed=1)
    ((status, body),) = before.take()
    assert status == 200 and [(status, body)] == behind.take()
    row, theirs = middle.world.logged(answer.id), live.world.logged(answer.id)
    assert row["choices"] == theirs["choices"] and len(row["choices"]) == 2
    assert row["usage"] == theirs["usage"] and row["request"]["messages"] == theirs["request"]["messages"] == ASK
    assert (row["release"], row["task"], theirs["task"]) == (answer.model, TASK, UPSTREAM_TASK)


@pytest.mark.parametrize("options", [{}, {"n": 3, "stream_options": {"include_usage": True}}])
def test_streaming(options: Any, sdk: openai.OpenAI, before: Wire, behind: Wire, middle: Any, live: Any) -> None:
    chunks = list(
        sdk.chat.completions.create(
            model=TASK, messages=ASK, max_tokens=20, temperature=1.0, seed=2, stream=True, **options
        )
    )
    ((status, body),) = before.take()
    assert status == 200 and [(status, body)] == behind.take() and body.endswith(b"data: [DONE]\n\n")
    row, theirs = middle.world.logged(chunks[0].id), live.world.logged(chunks[0].id)
    assert row["choices"] == theirs["choices"] and len(row["choices"]) == options.get("n", 1)
    assert row["usage"] == (theirs["usage"] if options else {})


def test_a_refusal(sdk: openai.OpenAI, before: Wire, behind: Wire, middle: Any) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.chat.completions.create(model=TASK, messages=ASK, max_tokens=100_000)
    assert refused.value.code == "context_length_exceeded"
    ((status, body),) = before.take()
    assert status == 400 and [(status, body)] == behind.take()
    row = middle.world.log()[-1]
    assert (row["status"], row["error"]) == ("error", "upstream_400")


def test_fields_of_tomorrow_reach_the_engine(sdk: openai.OpenAI, middle: Any) -> None:
    answer = sdk.chat.completions.create(
        model=TASK, messages=ASK, max_tokens=2, extra_body={"guided_regex": "a|b", "x": {"y": [1.50]}}
    )
    params = middle.world.logged(answer.id)["request"]["params"]
    assert params == {"max_tokens": 2, "guided_regex": "a|b", "x": {"y": [1.5]}}


def test_many_callers_at_once_each_get_their_own(middle: Any, live: Any) -> None:
    sdk = middle.sdk()
    found: dict[int, Any] = {}

    def ask(number: int) -> None:
        messages = [{"role": "user", "content": f"message {number} {'x' * number}"}]
        chunks = list(sdk.chat.completions.create(model=TASK, messages=messages, max_tokens=8, stream=True))
        found[number] = (messages, chunks)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for messages, chunks in found.values():
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        row = middle.world.logged(chunks[0].id)
        assert row["request"]["messages"] == messages and row["choices"][0]["message"]["content"] == text
        assert live.world.logged(chunks[0].id)["request"]["messages"] == messages


def test_a_foreign_and_an_own_task_live_side_by_side(live: Any, serve_tasks: Any, tiny: Any) -> None:
    gateway = serve_tasks(
        {TASK: {"base": UPSTREAM_TASK, "engine": f"{live.url}/v1"}, "own": {"base": "tiny", "serve": {"max_tokens": 3}}}
    )
    sdk = gateway.sdk()
    for model in (TASK, "own"):
        answer = sdk.chat.completions.create(model=model, messages=ASK, max_tokens=3)
        assert gateway.world.logged(answer.id)["task"] == model
    with pytest.raises(openai.BadRequestError):
        sdk.chat.completions.create(model="own", messages=ASK, extra_body={"logprobs": True})
    assert {model.id for model in sdk.models.list()} >= {TASK, "own", "tiny"}
    with gateway.http() as http:
        text = http.get("/metrics").text
    assert 'flywheel_task_up{task="own"} 1.0' in text and f'flywheel_task_up{{task="{TASK}"}}' not in text
