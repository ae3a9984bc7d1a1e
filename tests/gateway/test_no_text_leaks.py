"""Rule 11: what people write appears in answers and in the log of interactions, and nowhere else that a gateway speaks:
no error, no metric, no line of a log file, no operator's page."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

TASK = "support_router"
TEXT, NAME = "MARKERTEXT", "markername"
"""What a person wrote, and what a person or a caller is called."""

CHAT, FEEDBACK = "/v1/chat/completions", "/v1/feedback"


def said(text: str = TEXT, **change: Any) -> dict[str, Any]:
    return {"model": TASK, "messages": [{"role": "user", "content": text}], "max_tokens": 2, **change}


def fact(**change: Any) -> dict[str, Any]:
    return {"conversation_id": NAME, "task": TASK, "kind": "correction", "text": TEXT, "author": NAME, **change}


REFUSED: list[tuple[str, Any, int]] = [
    (CHAT, said(messages=[{"role": TEXT, "content": TEXT}]), 400),
    (CHAT, said(messages=[{"role": "user", "content": {"x": TEXT}}]), 400),
    (CHAT, said(messages=[{"role": "user", "content": [{"type": TEXT, "text": TEXT}]}]), 400),
    (CHAT, said(messages=[{"role": "user", "content": TEXT, "tool_calls": [TEXT]}]), 400),
    (CHAT, said(messages=TEXT), 400),
    (CHAT, said(temperature=TEXT), 400),
    (CHAT, said(stop=[TEXT, 3]), 400),
    (CHAT, said(user=[TEXT]), 400),
    (CHAT, said(user=TEXT * 100), 400),
    (CHAT, said(metadata={"k": TEXT * 100}), 400),
    (CHAT, said(tools=[{"name": TEXT}]), 400),
    (CHAT, said(response_format={"type": TEXT}), 400),
    (CHAT, said(TEXT * 200), 400),  # longer than the context
    (CHAT, said(max_tokens=10_000), 400),
    (CHAT, f'{{"messages": "{TEXT}'.encode(), 400),
    (CHAT, f'{{"messages": "{TEXT}", "x": NaN}}'.encode(), 400),
    (CHAT, f'["{TEXT}"]'.encode(), 400),
    (CHAT, f'"{TEXT}'.encode() + b"\xff", 400),
    (CHAT, f'{{"messages": "{TEXT}\\ud800"}}'.encode(), 400),
    (FEEDBACK, fact(kind=TEXT), 400),
    (FEEDBACK, fact(value=TEXT), 400),
    (FEEDBACK, fact(kind="thumb", value=TEXT), 400),
    (FEEDBACK, fact(kind="rating", value=TEXT), 400),
    (FEEDBACK, fact(kind="outcome", value={"x": TEXT}), 400),
    (FEEDBACK, fact(kind="preference", value={"chosen": TEXT, "rejected": 1}), 400),
    (FEEDBACK, fact(source=TEXT), 400),
    (FEEDBACK, fact(task=TEXT), 400),
    (FEEDBACK, fact(author=TEXT * 100), 400),
    (FEEDBACK, fact(metadata={"key": "k", "value": TEXT}), 400),  # two targets
    (FEEDBACK, [fact(), fact(text=[TEXT])], 400),
    (FEEDBACK, f'{{"text": "{TEXT}'.encode(), 400),
]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """Everything that any logger of this process has said, at every level, with its tracebacks."""
    caplog.set_level(logging.DEBUG)
    for name in ("flywheel", "uvicorn", "asyncio"):
        caplog.set_level(logging.DEBUG, logger=name)
    formatter = logging.Formatter("%(name)s %(levelname)s %(message)s")
    # The client's own loggers are in this process too, but belong to the caller.
    client = ("httpx", "httpcore", "openai")
    yield lambda: "\n".join(formatter.format(r) for r in caplog.records if not r.name.startswith(client))


def shown(http: httpx.Client) -> str:
    """What everybody can look at, and what an operator can."""
    return "\n".join(http.get(path).text for path in ("/metrics", "/healthz", "/v1/models", "/admin/status"))


def test_refusals_quote_nothing_and_leave_no_trace(world: Any, start_gateway: Any, lines: Callable[[], str]) -> None:
    with start_gateway(world).http() as http:
        for path, body, status in REFUSED:
            raw = {"content": body} if isinstance(body, bytes) else {"json": body}
            answer = http.post(path, **raw)
            assert answer.status_code == status, (path, body, answer.text)
            assert TEXT not in answer.text, (path, body, answer.text)
        seen = shown(http)
    assert TEXT not in seen and TEXT not in lines()


def test_answers_and_feedback_leave_counts_only(world: Any, start_gateway: Any, lines: Callable[[], str]) -> None:
    release = world.release(1)
    world.point(release)
    with start_gateway(world).http() as http:
        metadata = {NAME: TEXT, "conversation_id": TEXT}
        for change in ({}, {"stream": True}, {"n": 2}, {"model": "tiny"}, {"model": release.name}, {"stop": TEXT}):
            body = said(user=NAME, metadata=metadata, **change)
            assert http.post(CHAT, json=body, headers={"x-conversation-id": NAME}).status_code == 200
        for model in (NAME, f"{NAME}@abcdef", f"{TASK}@ffffff"):
            assert http.post(CHAT, json=said(model=model)).status_code == 404
        for change in (
            {},
            {"kind": "comment"},
            {"kind": "thumb", "value": True},
            {"kind": "label", "text": None, "value": TEXT},
            {"kind": "preference", "text": None, "value": {"chosen": TEXT, "rejected": TEXT}},
            {"conversation_id": None, "metadata": {"key": NAME, "value": TEXT}},
            {"id": TEXT, "supersedes": TEXT, "source": "reviewer"},
        ):
            assert http.post(FEEDBACK, json=fact(**change)).status_code == 200, change
        for path in (f"/v1/models/{NAME}", f"/{NAME}"):
            assert http.get(path).status_code == 404
        seen = shown(http)
    logged = str(world.log())
    assert TEXT in logged and NAME in logged, "they were there to be leaked"
    for marker in (TEXT, NAME):
        assert marker not in seen and marker not in lines()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("place", ["encoding", "reading", "decoding", "logging"])
def test_an_unforeseen_failure_that_quotes_a_prompt_is_told_by_its_place(
    world: Any, start_gateway: Any, monkeypatch: pytest.MonkeyPatch, lines: Callable[[], str], place: str, stream: bool
) -> None:
    from flywheel.engine.forwards import Forwards
    from flywheel.models import ChatTokenizer
    from flywheel.store.wal import WriteAheadLog

    def fail(*_args: Any, **_options: Any) -> Any:
        raise ValueError(f"cannot make sense of {TEXT}")

    with start_gateway(world).http() as http:
        owner, name = {
            "encoding": (ChatTokenizer, "encode_prompt"),
            "reading": (Forwards, "read"),
            "decoding": (Forwards, "decode"),
            "logging": (WriteAheadLog, "append"),
        }[place]
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            try:
                answer = http.post(CHAT, json=said(stream=stream, user=NAME)).text
                assert "internal_error" in answer and TEXT not in answer
            except httpx.RemoteProtocolError:
                assert stream and place == "logging", "a stream that has begun can only be broken off"
        seen = shown(http)
    assert TEXT not in seen
    assert "ValueError at " in lines() and TEXT not in lines()
