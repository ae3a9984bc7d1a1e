"""In front of an engine that is not ours: what passes is what was sent, and it all is in the log."""

from __future__ import annotations

import errno
import gzip
import itertools
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import sqlalchemy as sa

from flywheel.errors import ConfigError
from flywheel.gateway.offline import record_offline
from flywheel.intake import run_intake
from flywheel.release.pointer import champion
from flywheel.store.registry import schema
from flywheel.store.segments import read_rows

TASK, OTHER = "helper", "writer"
BASE = "acme/big-model"
ASK: dict[str, Any] = {"model": TASK, "messages": [{"role": "user", "content": "Where is my parcel?"}]}
STREAM = {**ASK, "stream": True}
URL = "/v1/chat/completions"

ANSWERS = "acme/big-model-v2"
_NUMBERS = itertools.count(1)

Step = bytes | threading.Event


def head(status: str = "200 OK", kind: str = "text/event-stream", **headers: str) -> bytes:
    """The head of a chunked answer."""
    named = {"content_type": kind, "transfer_encoding": "chunked", **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in named.items() if value]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


def name() -> str:
    """An id that no other answer has."""
    return f"up-{next(_NUMBERS)}"


def chunk(text: str | None = None, *, id: str, **fields: Any) -> dict[str, Any]:
    """A chunk of a stream with one choice, as an engine sends it."""
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": None, **fields}
    return {"id": id, "object": "chat.completion.chunk", "model": ANSWERS, "choices": [choice]}


def event(value: Any, end: str = "\n\n") -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}{end}".encode()


def words(id: str, *texts: str, end: str = "\n\n") -> list[bytes]:
    """The events of a stream up to its finish."""
    events = [event(chunk(text, id=id), end) for text in texts]
    return [*events, event(chunk(id=id, finish_reason="stop"), end)]


def usage(id: str) -> bytes:
    return event({"id": id, "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}})


DONE = b"data: [DONE]\n\n"


def completion(**fields: Any) -> bytes:
    """A whole answer, spelled as nobody else would."""
    message = {"role": "assistant", "content": "bill\u00efng \u2603"}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    whole = {"id": name(), "object": "chat.completion", "model": ANSWERS, "choices": [choice], "new": {"a": 1.0}}
    whole |= {"usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}, **fields}
    return json.dumps(whole, indent=1, ensure_ascii=False).encode()


@dataclass
class Asked:
    """A request as the engine got it, and whether its connection was closed before the answer was out."""

    headers: dict[str, str]
    body: bytes
    closed: threading.Event = field(default_factory=threading.Event)


class Engine:
    """An engine that sends the very bytes it is told, one write for each, and keeps what it was asked.

    In a script an event is waited for; b"" breaks the connection off.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.script: list[Step] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        threading.Thread(target=self._accept, daemon=True).start()

    def chunked(self, *pieces: Step, start: bytes | None = None, end: bool = True) -> bytes:
        """Send these pieces of a body as HTTP chunks, and return the body."""
        framed = [f"{len(p):x}\r\n".encode() + p + b"\r\n" if isinstance(p, bytes) else p for p in pieces]
        self.script = [head() if start is None else start, *framed, b"0\r\n\r\n" if end else b""]
        return b"".join(piece for piece in pieces if isinstance(piece, bytes))

    def whole(self, body: bytes, status: str = "200 OK", kind: str = "application/json", **headers: str) -> bytes:
        """Send a body of known length, and return it."""
        start = head(status, kind, transfer_encoding="", content_length=str(len(body)), **headers)
        self.script = [start, body]
        return body

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while line := reader.readline():
                assert line == b"POST /v1/chat/completions HTTP/1.1\r\n"
                headers: dict[str, str] = {}
                while (line := reader.readline()) != b"\r\n":
                    name, _, value = line.decode().partition(":")
                    assert name.lower() not in headers
                    headers[name.lower()] = value.strip()
                asked = Asked(headers, reader.read(int(headers["content-length"])))
                self.asked.append(asked)
                if not self._answer(connection, asked, list(self.script)):
                    return

    def _answer(self, connection: socket.socket, asked: Asked, script: list[Step]) -> bool:
        for step in script:
            if step == b"":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, no farewell
                return False
            if isinstance(step, threading.Event):
                while not step.wait(0.02):
                    if self._left(connection):
                        asked.closed.set()
                        return False
            else:
                connection.sendall(step)
        return True

    @staticmethod
    def _left(connection: socket.socket) -> bool:
        try:
            return connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def gateway(engine: Engine, serve_tasks: Callable[..., Any]) -> Any:
    """A gateway with two tasks, both answered by `engine`, and no model of its own."""
    return serve_tasks({TASK: {"base": BASE, "engine": f"{engine.url}/"}, OTHER: {"base": BASE, "engine": engine.url}})


@pytest.fixture
def http(gateway: Any) -> Iterator[httpx.Client]:
    with gateway.http() as client:
        yield client


@pytest.fixture(autouse=True)
def fresh(engine: Engine) -> None:
    engine.asked.clear()


def post(http: httpx.Client, body: Any = STREAM, **options: Any) -> tuple[httpx.Response, bytes]:
    """The answer and the raw bytes of its body."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with http.stream("POST", URL, content=content, **options) as answer:
        return answer, b"".join(answer.iter_raw())


def last(gateway: Any) -> dict[str, Any]:
    """The newest record."""
    row: dict[str, Any] = gateway.world.log()[-1]
    return row


def eventually(check: Callable[[], Any], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_whole_answer_passes_byte_for_byte_and_is_logged_as_any(engine: Engine, gateway: Any, http: Any) -> None:
    body = engine.whole(completion(id="chatcmpl-77"), server="acme", x_request_id="theirs", openai_processing_ms="12")
    asked = {**ASK, "user": "u1", "temperature": 0.5, "metadata": {"conversation_id": "c7", "parent_id": "p1"}}
    answer, raw = post(http, asked)
    assert raw == body and answer.status_code == 200
    assert answer.headers["content-type"] == "application/json" and answer.headers["server"] == "acme"
    assert answer.headers["content-length"] == str(len(body)) and answer.headers["openai-processing-ms"] == "12"
    assert answer.headers["x-request-id"] == "theirs" and len(answer.headers.get_list("date")) == 1
    assert answer.headers["x-flywheel-interaction"] == "chatcmpl-77"
    row = gateway.world.logged("chatcmpl-77")
    assert row["request"] == {"messages": ASK["messages"], "tools": None, "params": {"temperature": 0.5}}
    said = {"role": "assistant", "content": "bill\u00efng \u2603"}
    assert row["choices"] == [{"index": 0, "message": said, "finish_reason": "stop"}]
    assert (row["task"], row["model"], row["release"], row["status"]) == (TASK, TASK, ANSWERS, "ok")
    assert (row["user"], row["conversation_id"], row["parent_id"], row["stream"]) == ("u1", "c7", "p1", False)
    assert row["usage"]["total_tokens"] == 9 and row["latency_ms"] > 0 and "error" not in row


def test_a_stream_passes_byte_for_byte_and_is_put_together_for_the_log(engine: Engine, gateway: Any, http: Any) -> None:
    id = name()
    body = engine.chunked(b": hello\n\n", *words(id, "bil", "ling \u2603"), usage(id), DONE)
    answer, raw = post(http, headers={"x-conversation-id": "h1"})
    assert raw == body and answer.headers["x-flywheel-interaction"] == id
    row = gateway.world.logged(id)
    assert row["choices"][0]["message"] == {"role": "assistant", "content": "billing \u2603"}
    assert row["choices"][0]["finish_reason"] == "stop" and row["usage"]["prompt_tokens"] == 7
    assert (row["stream"], row["status"], row["release"], row["conversation_id"]) == (True, "ok", ANSWERS, "h1")


def test_only_the_model_of_a_request_changes(engine: Engine, gateway: Any, http: Any) -> None:
    sent = (
        b'{ "seed" : 1.0e2,"model":"helper", "messages":[{"role":"user","content":"\\u00e9\\ud83d \xc3\xa9"}],\n'
        b'  "big": 123456789012345678901234567890, "nan": NaN, "far": 1e999, "seed": -0, '
        b'"tools": [{"x": {"model": "helper"}}],'
        b'\t"mod\\u0065l":"helper", "response_format": {"type": "grammar"} }'
    )
    engine.whole(completion())
    assert post(http, sent)[0].status_code == 200
    (asked,) = engine.asked
    here = [b'"model":"helper"', b'l":"helper"']
    there = [f'"model":"{BASE}"'.encode(), f'l":"{BASE}"'.encode()]
    assert asked.body == sent.replace(here[0], there[0]).replace(here[1], there[1])
    params = last(gateway)["request"]["params"]
    assert params["seed"] == 0 and params["far"] is None and params["big"] == 123456789012345678901234567890


def test_the_callers_credentials_stay_here_and_the_engines_key_goes_there(
    engine: Engine, serve_tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_KEY", "acme-secret")
    gateway = serve_tasks({TASK: {"base": BASE, "engine": engine.url, "engine_key_env": "ACME_KEY"}})
    engine.whole(completion())
    headers = {"cookie": "a=b", "x-trace": "t1", "accept-encoding": "gzip, br", "connection": "x-hop", "x-hop": "1"}
    with gateway.http("fw-mine") as http:
        post(http, ASK, headers=headers)
    (asked,) = engine.asked
    assert asked.headers["authorization"] == "Bearer acme-secret" and asked.headers["x-trace"] == "t1"
    assert asked.headers["accept-encoding"] == "identity"
    assert not {"cookie", "x-hop"} & set(asked.headers)
    assert "acme-secret" not in json.dumps(gateway.world.log())


def test_without_a_key_of_its_own_an_engine_gets_none(engine: Engine, gateway: Any) -> None:
    engine.whole(completion())
    with gateway.http("fw-mine") as http:
        post(http, ASK)
    assert "authorization" not in engine.asked[0].headers


def test_a_key_that_is_not_there_stops_the_start(
    engine: Engine, serve_tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACME_KEY", raising=False)
    with pytest.raises(
        ConfigError, match=r"tasks\.helper\.engine_key_env: the environment variable ACME_KEY is not set"
    ):
        serve_tasks({TASK: {"base": BASE, "engine": engine.url, "engine_key_env": "ACME_KEY"}})


def spread(text: str, id: str, end: str) -> bytes:
    """One event on many data lines."""
    lines = json.dumps(chunk(text, id=id), indent=1, ensure_ascii=False).split("\n")
    return ("".join(f"data: {line}{end}" for line in lines) + end).encode()


def cut(body: bytes, size: int) -> list[bytes]:
    return [body[place : place + size] for place in range(0, len(body), size)]


NASTY: dict[str, Callable[[str], list[bytes]]] = {
    "borders inside characters and lines": lambda id: cut(b"".join([*words(id, "b\u00efl\u2603ling"), DONE]), 3),
    "a byte at a time": lambda id: cut(b"".join([*words(id, "b\u00efl\u2603ling"), DONE]), 1),
    "all at once": lambda id: [b"".join([*words(id, "b\u00efl", "\u2603ling"), DONE])],
    "carriage returns": lambda id: [*words(id, "b\u00efl", "\u2603ling", end="\r\n\r\n"), b"data: [DONE]\r\n\r\n"],
    "old line ends": lambda id: cut(
        b"".join([*words(id, "b\u00efl", "\u2603ling", end="\r\r"), b"data: [DONE]\r\r"]), 7
    ),
    "comments and other fields": lambda id: [
        b"\xef\xbb\xbf: ping\n\n: ping\n\nid: 4\nevent: message\nretry: 10\n",
        *words(id, "b\u00efl", "\u2603ling"),
        b": pong\n\n",
        DONE,
    ],
    "no [DONE]": lambda id: words(id, "b\u00efl", "\u2603ling"),
    "no finish reason": lambda id: [*words(id, "b\u00efl", "\u2603ling")[:-1], DONE],
    "no last line end": lambda id: [*words(id, "b\u00efl", "\u2603ling"), b"data: [DONE]"],
    "no space after the colon": lambda id: [
        w.replace(b"data: ", b"data:") for w in [*words(id, "b\u00efl\u2603ling"), DONE]
    ],
    "an event over several lines": lambda id: [spread("b\u00efl\u2603ling", id, "\n"), words(id)[0], DONE],
    "line ends cut in two": lambda id: (
        b"".join([spread("b\u00efl\u2603ling", id, "\r\n"), *words(id, end="\r\n\r\n"), b"data: [DONE]\r\n\r\n"])
        .replace(b"\r\n", b"\r|\n")
        .split(b"|")
    ),
    "finished before it is over": lambda id: [
        event(chunk(text, id=id, finish_reason="stop")) for text in ("b\u00ef", "l\u2603", "li", "ng")
    ],
    "a first chunk without choices and id": lambda id: [
        event({"id": "", "object": "chat.completion.chunk", "choices": [], "prompt_filter_results": []}),
        *words(id, "b\u00efl", "\u2603ling"),
        DONE,
    ],
    "words after [DONE]": lambda id: [*words(id, "b\u00efl", "\u2603ling"), DONE, b"data: what?\n\n"],
}


@pytest.mark.parametrize("kind", ["text/event-stream; charset=utf-8", "application/json", ""])
@pytest.mark.parametrize("case", NASTY)
def test_a_stream_of_any_make_is_read_and_untouched(
    case: str, kind: str, engine: Engine, gateway: Any, http: Any
) -> None:
    id = name()
    body = engine.chunked(*NASTY[case](id), start=head(kind=kind))
    answer, raw = post(http)
    assert raw == body and answer.headers.get("content-type", "") == kind
    row = gateway.world.logged(id)
    assert row["choices"][0]["message"]["content"] == "b\u00efl\u2603ling"
    assert row["status"] == "ok" and "error" not in row


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_compressed_answer_passes_as_it_is_and_is_read(
    encoding: str, stream: bool, engine: Engine, gateway: Any, http: Any
) -> None:
    id = name()
    plain = b"".join([*words(id, "bil", "ling"), DONE]) if stream else completion(id=id)
    packed = gzip.compress(plain) if encoding == "gzip" else zlib.compress(plain)
    kind = "text/event-stream" if stream else "application/json"
    body = engine.chunked(*cut(packed, 50), start=head(kind=kind, content_encoding=encoding))
    answer, raw = post(http, STREAM if stream else ASK)
    assert raw == body and answer.headers["content-encoding"] == encoding
    assert gateway.world.logged(id)["status"] == "ok" and gateway.world.logged(id)["choices"]


def test_several_choices_with_tools_reasoning_and_refusals_are_put_together(
    engine: Engine, gateway: Any, http: Any
) -> None:
    id = name()

    def delta(index: int, delta: dict[str, Any] | None, reason: str | None = None) -> bytes:
        return event(chunk(id=id, index=index, delta=delta, finish_reason=reason))

    def call(**fields: Any) -> dict[str, Any]:
        return {"tool_calls": [fields]}

    body = engine.chunked(
        delta(0, {"role": "assistant", "content": None, "reasoning_content": "let me "}),
        delta(1, {"role": "assistant", "content": "", "refusal": "I "}),
        delta(0, {"reasoning_content": "see"}),
        delta(0, call(index=0, id="c1", type="function", function={"name": "find", "arguments": ""})),
        delta(0, call(index=0, function={"arguments": '{"q": '})),
        delta(1, {"refusal": "won't"}, "stop"),
        delta(0, call(index=0, function={"arguments": '"x"}'})),
        delta(0, call(index=1, id="c2", type="function", function={"name": "stop", "arguments": "{}"})),
        delta(0, None, "tool_calls"),
        usage(id),
        DONE,
    )
    assert post(http, {**STREAM, "n": 2})[1] == body
    first, second = gateway.world.logged(id)["choices"]
    assert first["message"]["reasoning_content"] == "let me see" and first["finish_reason"] == "tool_calls"
    assert [call["function"] for call in first["message"]["tool_calls"]] == [
        {"name": "find", "arguments": '{"q": "x"}'},
        {"name": "stop", "arguments": "{}"},
    ]
    assert second["message"]["refusal"] == "I won't" and second["finish_reason"] == "stop"


def test_pictures_are_logged_as_sent(engine: Engine, gateway: Any, http: Any) -> None:
    engine.whole(completion())
    parts = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    messages = [{"role": "user", "content": parts}, {"role": "tool", "tool_call_id": "c1", "content": "4"}]
    tools = [{"type": "function", "function": {"name": "find"}}]
    assert post(http, {**ASK, "messages": messages, "tools": tools})[0].status_code == 200
    row = last(gateway)
    assert row["request"]["messages"] == messages and row["request"]["tools"] == tools


def test_pieces_pass_as_they_come(engine: Engine, http: Any) -> None:
    """The engine sends a piece only once the caller has the one before, be it half an event, or one choice's end."""
    id = name()
    pieces = [
        event(chunk("bil", id=id)) + b"data: {",
        b'"choices"',
        b": []}\n\n",
        event(chunk("ling", id=id, finish_reason="stop")),
        event(chunk("other", id=id, index=1)),
    ]
    seen = [threading.Event() for _ in pieces]
    steps = [step for pair in zip(pieces, seen, strict=True) for step in pair]
    body = engine.chunked(*steps, event(chunk(id=id, index=1, finish_reason="stop")), DONE)
    with http.stream("POST", URL, json={**STREAM, "n": 2}) as answer:
        raw, rest = b"", answer.iter_raw()
        for count, step in enumerate(seen, 1):
            while len(raw) < len(b"".join(pieces[:count])):
                raw += next(rest)
            step.set()
        assert b"".join([raw, *rest]) == body


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """The log's disk: (asked to sync, may sync)."""
    asked, may = threading.Event(), threading.Event()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        asked.set()
        assert may.wait(20)
        real(descriptor)

    monkeypatch.setattr("flywheel.store.wal.os.fsync", fsync)
    yield asked, may
    may.set()


ENDINGS: dict[str, Callable[[str], tuple[list[bytes], bytes]]] = {
    "finish, usage and [DONE]": lambda id: (words(id, "bil", "ling"), usage(id) + DONE),
    "[DONE] alone": lambda id: ([*words(id, "bil", "ling")[:-1], b""], DONE),
    "no [DONE]": lambda id: (words(id, "bil", "ling"), b""),
    "all in one piece": lambda id: ([b"".join(words(id, "bil", "ling"))], DONE),
}


@pytest.mark.parametrize("case", ENDINGS)
@pytest.mark.parametrize("kind", ["chunked", "known length", "whole"])
def test_the_caller_sees_no_end_before_the_log_has_it(
    case: str, kind: str, engine: Engine, gateway: Any, slow_disk: Any
) -> None:
    id = name()
    pieces, end = ENDINGS[case](id)
    body = b"".join([*pieces, end])
    if kind == "chunked":
        engine.chunked(*(piece for piece in [*pieces, end] if piece))
    else:
        body = engine.whole(body if kind == "known length" else completion(id=id))
    raw = bytearray()
    over = threading.Event()

    def read() -> None:
        with gateway.http() as http, http.stream("POST", URL, json=STREAM if kind != "whole" else ASK) as answer:
            for piece in answer.iter_raw():
                raw.extend(piece)
        over.set()

    asked, may = slow_disk
    threading.Thread(target=read, daemon=True).start()
    assert asked.wait(20)
    assert b'"stop"' not in raw and b"[DONE]" not in raw and not over.wait(0.1)
    may.set()
    assert over.wait(20) and bytes(raw) == body


def test_an_answer_that_cannot_be_logged_is_not_given(
    engine: Engine, serve_tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = serve_tasks({TASK: {"base": BASE, "engine": engine.url}})

    def write(_descriptor: int, _data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with gateway.http() as http:
        engine.chunked(*words(name(), "bil", "ling"), DONE)
        with monkeypatch.context() as patch:
            patch.setattr("flywheel.store.wal.os.write", write)
            raw = bytearray()
            with pytest.raises(httpx.RemoteProtocolError), http.stream("POST", URL, json=STREAM) as answer:
                for piece in answer.iter_raw():
                    raw.extend(piece)
            assert b"bil" in raw and b'"stop"' not in raw and b"[DONE]" not in raw
            time.sleep(1.1)  # until another try is worth it
            engine.whole(completion())
            refused = http.post(URL, json=ASK)
            assert refused.status_code == 503 and refused.json()["error"]["code"] == "log_unavailable"
            asked = len(engine.asked)
            assert http.post(URL, json=ASK).status_code == 503 and len(engine.asked) == asked, "not even passed on"
        time.sleep(1.1)
        assert http.post(URL, json=ASK).status_code == 200


ERRORS = [
    ("500 Internal Server Error", "text/html", b"<html><body>Oh no \xff</body></html>", {}),
    ("429 Too Many Requests", "application/json", b'{"error": {"message": "slow down"}}', {"retry_after": "17"}),
    ("400 Bad Request", "application/json", b'{"object":"error","message":"no","code":40303}', {}),
    ("404 Not Found", "", b"", {}),
    ("503 Service Unavailable", "text/event-stream", b'data: {"error": {"message": "x"}}\n\n', {}),
    ("307 Temporary Redirect", "", b"", {"location": "http://elsewhere/"}),
]


@pytest.mark.parametrize(("status", "kind", "body", "headers"), ERRORS)
@pytest.mark.parametrize("stream", [True, False])
def test_an_engines_error_passes_unchanged_and_is_logged(
    status: str, kind: str, body: bytes, headers: Any, stream: bool, engine: Engine, gateway: Any, http: Any
) -> None:
    engine.whole(body, status, kind, **headers)
    answer, raw = post(http, STREAM if stream else ASK)
    assert raw == body and answer.status_code == int(status[:3])
    assert answer.headers.get("content-type", "") == kind
    assert answer.headers.get("retry-after") == headers.get("retry_after")
    row = gateway.world.logged(answer.headers["x-flywheel-interaction"])
    assert (row["status"], row["error"], row["choices"]) == ("error", f"upstream_{status[:3]}", [])
    assert row["request"]["messages"] == ASK["messages"] and row["release"] == BASE


UNREADABLE = [
    (b"<html>all is well</html>", "unreadable_answer"),
    (b'{"choices": [{"message": "hm"}], "id": "x"}', "unreadable_answer"),
    (b'{"choices": []}', "unreadable_answer"),
    (b'{"error": {"message": "busy"}}', "upstream_error"),
    (b'{"id": "x", "choices": [{"message": {"role": "assis', "unreadable_answer"),
    (b"", "unreadable_answer"),
    (b"  \n", "unreadable_answer"),
    (b"data: nonsense\n\ndata: [DONE]\n\n", "unreadable_answer"),
    (b'data: {"choices": [4]}\n\n' + DONE, "unreadable_answer"),
    (b"data: \xff\xfe\n\n" + DONE, "unreadable_answer"),
    (DONE, "unreadable_answer"),
    (b'data: {"error": {"message": "out of memory"}}\n\n' + DONE, "upstream_error"),
    (event(chunk("bil", id="x")), "incomplete_answer"),
    (b": only a comment\n\n", "incomplete_answer"),
    (b"[" * 100_000, "unreadable_answer"),
]


@pytest.mark.parametrize(("body", "fault"), UNREADABLE)
@pytest.mark.parametrize("framing", ["chunked", "known length"])
def test_an_answer_that_cannot_be_read_passes_and_is_logged_as_one(
    body: bytes, fault: str, framing: str, engine: Engine, gateway: Any, http: Any
) -> None:
    if framing == "chunked":
        engine.chunked(*cut(body, 20_000 if len(body) > 1000 else 5))
    else:
        engine.whole(body, kind="text/event-stream")
    answer, raw = post(http)
    assert raw == body and answer.status_code == 200
    row = gateway.world.logged(answer.headers["x-flywheel-interaction"])
    assert (row["status"], row["error"]) == ("error", fault)


def test_an_encoding_that_nobody_here_reads_passes(engine: Engine, gateway: Any, http: Any) -> None:
    body = engine.chunked(b"\x1b\x00\x01", b"zz", start=head(content_encoding="br"))
    answer, raw = post(http)
    assert raw == body and answer.headers["content-encoding"] == "br"
    assert last(gateway)["error"] == "unreadable_answer"


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_too_large_to_log_passes(stream: bool, engine: Engine, gateway: Any, http: Any) -> None:
    text = "x" * 200_000
    if stream:
        id = name()
        pieces = [*words(id, *([text] * 40)), DONE]
    else:
        pieces = cut(completion(filler=text * 40), 100_000)
    body = engine.chunked(*pieces, start=head(kind="text/plain"))
    answer, raw = post(http, STREAM if stream else ASK)
    assert raw == body
    row = gateway.world.logged(answer.headers["x-flywheel-interaction"])
    assert (row["status"], row["error"], row["choices"]) == ("error", "answer_too_large", [])


def test_a_bomb_is_not_unpacked(engine: Engine, gateway: Any, http: Any) -> None:
    body = engine.whole(gzip.compress(b" " * 50_000_000), content_encoding="gzip")
    assert post(http, ASK)[1] == body
    assert last(gateway)["error"] == "unreadable_answer"


def test_numbers_that_are_none_do_not_cost_the_record(engine: Engine, gateway: Any, http: Any) -> None:
    for far in (b"1e999", b"NaN", b"-Infinity"):
        id = name()
        stop = words(id, "bil")[1].replace(b'"finish_reason"', b'"logprobs": {"x": ' + far + b'}, "finish_reason"')
        body = engine.chunked(words(id, "bil")[0], stop, usage(id).replace(b": 7", b": " + far), DONE)
        assert post(http)[1] == body
        assert gateway.world.logged(id)["status"] == "ok" and gateway.world.logged(id)["usage"]["prompt_tokens"] is None


def test_however_deep_a_request_nests_it_is_answered_and_logged(engine: Engine, gateway: Any, http: Any) -> None:
    faults = []
    for depth in (62, 63, 800):  # the record itself adds what intake, which goes 64 levels deep, reads besides
        body = engine.whole(completion())
        answer, raw = post(http, json.dumps(ASK)[:-1].encode() + b', "x": ' + b"[" * depth + b"]" * depth + b"}")
        assert raw == body
        faults.append(gateway.world.logged(answer.headers["x-flywheel-interaction"]).get("error"))
    assert faults == [None, "record_too_deep", "record_too_deep"]
    deeper = post(http, json.dumps(ASK)[:-1].encode() + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")[0]
    assert deeper.status_code == 400


@pytest.mark.parametrize("reset", [True, False])
def test_an_engine_that_dies_in_mid_stream_breaks_the_callers_stream_too(
    reset: bool, engine: Engine, gateway: Any, http: Any
) -> None:
    id = name()
    first = words(id, "bil")[0]
    engine.chunked(first, end=False)
    if not reset:
        engine.whole(first)
        engine.script[0] = head(transfer_encoding="", content_length="5000")
        engine.script.append(b"")
    raw = bytearray()
    with pytest.raises(httpx.RemoteProtocolError), http.stream("POST", URL, json=STREAM) as answer:
        for piece in answer.iter_raw():
            raw.extend(piece)
    assert bytes(raw) == first[: len(raw)]
    row = gateway.world.logged(id)
    assert (row["status"], row["error"]) == ("error", "upstream_broken")
    assert row["choices"][0]["message"]["content"] == "bil" and row["choices"][0]["finish_reason"] is None


def test_an_engine_that_dies_before_it_said_anything_is_a_502(engine: Engine, gateway: Any, http: Any) -> None:
    engine.chunked(b'{"id": "x", "choices": [', start=head(kind="application/json"), end=False)
    for script in (engine.script, [b""]):
        engine.script = script
        answer = http.post(URL, json=ASK)
        assert answer.status_code == 502 and answer.json()["error"]["code"] == "upstream_broken"
        assert answer.json()["error"]["type"] == "server_error" and int(answer.headers["retry-after"]) >= 1
        row = gateway.world.logged(answer.headers["x-flywheel-interaction"])
        assert (row["status"], row["error"]) == ("error", "upstream_broken")


def test_an_engine_that_is_not_there_is_a_502_and_no_reason_to_fail_the_health_check(serve_tasks: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    gateway = serve_tasks({TASK: {"base": BASE, "engine": url}})
    with gateway.http() as http:
        assert http.get("/healthz").json()["upstream"] == {TASK: "unknown"}
        answer = http.post(URL, json=ASK)
        assert answer.status_code == 502 and answer.json()["error"]["code"] == "upstream_unreachable"
        assert int(answer.headers["retry-after"]) >= 1 and url not in answer.text
        health = http.get("/healthz")
        assert health.status_code == 200 and health.json()["upstream"] == {TASK: "unreachable"}
        assert (
            f'flywheel_upstream_errors_total{{reason="upstream_unreachable",task="{TASK}"}} 1.0'
            in http.get("/metrics").text
        )
    assert (last(gateway)["status"], last(gateway)["error"]) == ("error", "upstream_unreachable")
    with pytest.raises(openai.InternalServerError):
        gateway.sdk().chat.completions.create(**ASK)


def test_an_engine_that_says_nothing_is_a_504(
    engine: Engine, serve_tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flywheel.gateway.upstream.READ_S", 0.2)
    gateway = serve_tasks({TASK: {"base": BASE, "engine": engine.url}})
    engine.script = [threading.Event()]
    with gateway.http() as http:
        answer = http.post(URL, json=ASK)
    assert answer.status_code == 504 and answer.json()["error"]["code"] == "upstream_timeout"
    assert (last(gateway)["status"], last(gateway)["error"]) == ("error", "upstream_timeout")


@pytest.mark.parametrize("begun", [True, False])
def test_a_caller_who_leaves_ends_the_work_there_and_is_logged(begun: bool, engine: Engine, gateway: Any) -> None:
    id = name()
    before = len(gateway.world.log())
    first = [words(id, "bil")[0]] if begun else []
    engine.chunked(*first, threading.Event())
    with gateway.http() as http:
        if begun:
            with http.stream("POST", URL, json=STREAM) as answer:
                next(answer.iter_raw())
        else:
            with pytest.raises(httpx.ReadTimeout):
                http.post(URL, json=STREAM, timeout=0.2)
    assert engine.asked[-1].closed.wait(10)
    eventually(lambda: len(gateway.world.log()) > before)
    row = last(gateway)
    assert row["status"] == "cancelled" and "error" not in row
    assert [choice["message"]["content"] for choice in row["choices"]] == (["bil"] if begun else [])
    with gateway.http() as http:
        assert f'flywheel_requests_total{{status="cancelled",task="{TASK}"}}' in http.get("/metrics").text


def test_more_requests_than_may_be_under_way_are_a_429(engine: Engine, serve_tasks: Any) -> None:
    gateway = serve_tasks({TASK: {"base": BASE, "engine": engine.url}}, engine_limit=1)
    go = threading.Event()
    body = engine.chunked(*words(name(), "bil")[:1], go, *words(name()), DONE)
    with gateway.http() as http, http.stream("POST", URL, json=STREAM) as answer:
        pieces = answer.iter_raw()
        first = next(pieces)
        with gateway.http() as other:
            refused = other.post(URL, json=STREAM)
        assert refused.status_code == 429 and refused.json()["error"]["code"] == "queue_full"
        assert int(refused.headers["retry-after"]) >= 1
        go.set()
        assert b"".join([first, *pieces]) == body
    engine.whole(completion())
    with gateway.http() as http:
        eventually(lambda: http.post(URL, json=ASK).status_code == 200)


def test_ids_that_engines_give_twice_or_not_at_all_are_replaced(engine: Engine, gateway: Any, http: Any) -> None:
    seen = set()
    for given in ("same", "same", "", None, "x" * 200, "sp ace\n", "\u2603", 7):
        body = engine.whole(completion(id=given))
        answer, raw = post(http, ASK)
        assert raw == body
        seen.add(answer.headers["x-flywheel-interaction"])
        assert gateway.world.logged(answer.headers["x-flywheel-interaction"])["choices"]
    assert len(seen) == 8 and "same" in seen
    assert all(id == "same" or id.startswith("chatcmpl-") for id in seen)


def test_feedback_by_the_engines_id_finds_its_answer(engine: Engine, gateway: Any, http: Any) -> None:
    id, other = name(), name()
    both = [{"index": index, "message": {"role": "assistant", "content": str(index)}} for index in (0, 1)]
    for task, given in ((TASK, id), (OTHER, other)):
        engine.whole(completion(id=given, choices=both))
        assert post(http, {**ASK, "model": task})[0].status_code == 200

    def thumb(target: str, **more: Any) -> httpx.Response:
        item = {"interaction_id": target, "kind": "thumb", "value": "up", **more}
        answer: httpx.Response = http.post("/v1/feedback", json=item)
        return answer

    assert thumb(id).json()["task"] == TASK and thumb(f"{other}#1").json()["task"] == OTHER
    assert thumb(id, task=OTHER).status_code == 400
    world = gateway.world
    # Another process, or this gateway after a restart, has not seen the answer: intake finds its task.
    record_offline(world.config, world.home, {"interaction_id": f"{id}#1", "kind": "thumb", "value": "down"})
    found = {}
    for task in (TASK, OTHER):
        run_intake(world.config, world.home, world.registry, task)
        rows = read_rows(world.home, world.registry, "feedback", task, "feedback_id")
        found[task] = {(row["target_kind"], row["target_id"], row["value"]) for row in rows}
    assert found[TASK] == {("interaction", id, "true"), ("interaction", f"{id}#1", "false")}
    assert found[OTHER] == {("interaction", f"{other}#1", "true")}


def test_a_repeated_post_is_one_piece_of_feedback_before_and_after_a_restart(serve_tasks: Any, engine: Engine) -> None:
    gateway = serve_tasks({task: {"base": BASE, "engine": engine.url} for task in (TASK, OTHER)})
    id = name()
    engine.whole(completion(id=id))
    item = {"interaction_id": id, "kind": "thumb", "value": "up", "id": "mine"}
    with gateway.http() as http:
        assert http.post(URL, json=ASK).status_code == 200
        assert http.post("/v1/feedback", json=item).json()["task"] == TASK
    world = gateway.world
    record_offline(world.config, world.home, item)
    run_intake(world.config, world.home, world.registry, TASK)
    assert len(read_rows(world.home, world.registry, "feedback", TASK, "feedback_id")) == 1


def test_the_task_is_listed_counted_and_never_down(engine: Engine, gateway: Any, http: Any) -> None:
    engine.chunked(*words(name(), "bil"), DONE)
    post(http)
    listed = {model.id: model for model in gateway.sdk().models.list()}
    assert set(listed) == {TASK, OTHER} and listed[TASK].root == BASE
    assert gateway.sdk().models.retrieve(TASK).id == TASK
    health = http.get("/healthz")
    assert health.status_code == 200 and health.json()["down"] == []
    assert health.json()["upstream"][TASK] == "reachable"
    text = http.get("/metrics").text
    assert f'flywheel_requests_total{{status="200",task="{TASK}"}}' in text
    assert f'flywheel_first_token_seconds_count{{task="{TASK}"}}' in text
    assert "flywheel_task_up{" not in text
    with pytest.raises(openai.NotFoundError):
        gateway.sdk().chat.completions.create(**{**ASK, "model": BASE})
    with pytest.raises(openai.NotFoundError):
        gateway.sdk().chat.completions.create(**{**ASK, "model": f"{TASK}@{'a' * 12}"})


def test_no_champion_is_made_and_none_can_be_routed(gateway: Any, http: Any) -> None:
    world = gateway.world
    with world.registry.read() as tx:
        assert champion(tx, TASK) is None
    refused = http.post("/admin/route", json={"task": TASK})
    assert refused.status_code == 409 and "engine of its own" in refused.json()["error"]["message"]


def test_a_gateway_for_other_engines_only_loads_no_model_library(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "flywheel.yaml").write_text(
        f"home: home\ngateway: {{port: 0}}\ntasks: {{{TASK}: {{base: {BASE}, engine: '{engine.url}'}}}}"
    )
    engine.chunked(*words(name(), "bil"), DONE)
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "flywheel.yaml")], capture_output=True, text=True, timeout=120
    )
    assert ran.stdout.strip().splitlines()[-1:] == ["[]"], ran.stderr
    assert len(engine.asked) == 1


SCRIPT = """
import sys
import httpx
from flywheel.config import load_config
from flywheel.gateway.server import serve

def ask(gateway):
    import threading
    def work():
        body = {"model": "helper", "messages": [{"role": "user", "content": "x"}], "stream": True}
        assert httpx.post(f"{gateway.url}/v1/chat/completions", json=body, trust_env=False).status_code == 200
        gateway.stop()
    threading.Thread(target=work).start()

serve(load_config(sys.argv[1]), on_ready=ask)
print(sorted({"torch", "transformers", "peft", "safetensors"} & set(sys.modules)))
"""


def test_texts_reach_neither_metrics_nor_the_servers_own_log(
    engine: Engine, gateway: Any, http: Any, caplog: pytest.LogCaptureFixture
) -> None:
    secret = {**STREAM, "messages": [{"role": "user", "content": "SECRETWORD"}], "user": "SECRETUSER"}
    with caplog.at_level(logging.DEBUG):
        for end in (True, False):
            engine.chunked(*words(name(), "SECRETWORD"), end=end)
            with suppress(httpx.RemoteProtocolError):
                post(http, secret)
        engine.script = [b""]
        assert "SECRET" not in http.post(URL, json=secret).text
    assert "SECRET" not in caplog.text and "SECRET" not in http.get("/metrics").text


def test_everything_that_was_logged_here_is_taken_in_and_reconciles(engine: Engine, gateway: Any, http: Any) -> None:
    engine.whole(completion())
    for asked in ({"model": TASK, "messages": "none"}, ASK, {**ASK, "model": OTHER}):
        post(http, asked)
    engine.whole(b"no", "500 Internal Server Error")
    post(http, ASK)
    world = gateway.world
    run_intake(world.config, world.home, world.registry, TASK)
    table = schema.intake_counts
    with world.registry.read() as tx:
        rows = tx.rows(sa.select(table).where(table.c.task == TASK))
    log = world.log()
    unwritable = sum(row.get("error") == "record_too_deep" for row in log)
    assert sum(row["read"] for row in rows) == len(log)
    assert sum(row["quarantined"] for row in rows) == unwritable + 1
    assert sum(row["skipped"] for row in rows) == sum(row["task"] == OTHER for row in log)
    kept = read_rows(world.home, world.registry, "interactions", TASK, "interaction_id")
    assert {row["status"] for row in kept} >= {"ok", "error"}
