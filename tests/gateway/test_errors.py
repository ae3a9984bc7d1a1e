"""Every refusal has OpenAI's shape and the right status, whatever is sent."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

TASK = "support_router"
URL = "/v1/chat/completions"
ASK = [{"role": "user", "content": "hi"}]
GOOD: dict[str, Any] = {"model": TASK, "messages": ASK, "max_tokens": 1}


def refused(answer: httpx.Response, status: int, code: str | None = None, param: str | None = None) -> str:
    """Check the shape; return the message."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"] and error["type"]
    assert answer.headers["x-request-id"]
    assert code is None or error["code"] == code, error
    assert param is None or error["param"] == param, error
    return str(error["message"])


@pytest.fixture(scope="module")
def http(live: Any) -> Any:
    with live.http() as client:
        yield client


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "Expecting value"),
        (b"{", "line 1"),
        (b"\xff\xfe{}", "UTF-8"),
        (b"[" * 100_000, "nesting"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "nesting"),
        (b'{"model": NaN}', "NaN"),
        (b'{"temperature": 1e999}', "range"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "range"),
        (b'{"model": "support_router", "messages": [{"role": "user", "content": "a\\ud83d"}]}', "surrogate"),
        (b'{"\\udc00": 1}', "surrogate"),
    ],
)
def test_what_is_not_json_is_a_400_that_says_why(http: httpx.Client, body: bytes, what: str) -> None:
    assert what in refused(http.post(URL, content=body), 400, "invalid_json")


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 3}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages.0.content"),
        ({"messages": [*ASK, {"role": "king", "content": "hi"}]}, "messages.1.role"),
        ({"messages": ["hi"]}, "messages.0"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "0"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"seed": 2**64}, "seed"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"stop": 3}, "stop"),
        ({"stop": ["a", 3]}, "stop.1"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": ""}, "stop.0"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"user": 5}, "user"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"metadata": {str(n): "v" for n in range(17)}}, "metadata"),
    ],
)
def test_a_wrong_type_or_value_is_a_400_that_names_the_field(
    http: httpx.Client, change: dict[str, Any], param: str
) -> None:
    message = refused(http.post(URL, json={**GOOD, **change}), 400, param=param)
    assert message.startswith(param)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "messages.0"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]}, "messages.0"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages.0.content",
        ),
    ],
)
def test_what_the_engine_cannot_honour_is_refused_not_ignored(
    http: httpx.Client, change: dict[str, Any], param: str
) -> None:
    refused(http.post(URL, json={**GOOD, **change}), 400, "unsupported_value", param)


def test_no_error_quotes_what_was_sent(http: httpx.Client) -> None:
    for change in (
        {"messages": [{"role": "SECRET", "content": "x"}]},
        {"messages": [{"role": "user", "content": {"SECRET": 1}}]},
        {"temperature": "SECRET"},
        {"stop": ["SECRET", 3]},
        {"max_tokens": 10_000, "messages": [{"role": "user", "content": "SECRET"}]},
    ):
        answer = http.post(URL, json={**GOOD, **change})
        assert answer.status_code == 400 and "SECRET" not in answer.text


def test_an_overlong_prompt_is_told_in_the_words_that_clients_look_for(http: httpx.Client) -> None:
    for stream in (False, True):
        body = {**GOOD, "messages": [{"role": "user", "content": "x" * 2000}], "stream": stream}
        message = refused(http.post(URL, json=body), 400, "context_length_exceeded", "messages")
        assert message.startswith("This model's maximum context length is 512 tokens.")
    refused(http.post(URL, json={**GOOD, "max_tokens": 600}), 400, "context_length_exceeded", "max_tokens")


def test_a_prompt_that_just_fits_gets_the_room_that_is_left(http: httpx.Client) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "x" * 400}]}
    usage = http.post(URL, json=body).json()["usage"]
    assert usage["prompt_tokens"] > 400 and usage["total_tokens"] <= 512


def test_an_unknown_model_is_a_404(http: httpx.Client, live: Any) -> None:
    refused(http.post(URL, json={**GOOD, "model": "gpt-4"}), 404, "model_not_found", "model")
    with pytest.raises(openai.NotFoundError) as caught:
        live.sdk().chat.completions.create(model="x" * 500, messages=ASK)
    assert caught.value.code == "model_not_found"


def test_routes_methods_and_sizes_are_refused_in_the_same_shape(http: httpx.Client) -> None:
    refused(http.post("/v1/embeddings", json={}), 404, "unknown_url")
    refused(http.get(URL), 405, "method_not_allowed")
    large = json.dumps({**GOOD, "user": "x" * (4 * 1024 * 1024)}).encode()
    refused(http.post(URL, content=large), 413, "request_too_large")

    def pieces() -> Any:
        for _ in range(80):
            yield b" " * 65536

    refused(http.post(URL, content=pieces()), 413, "request_too_large")
    refused(http.post(URL, json=[GOOD]), 400, "invalid_type")


def test_control_characters_are_kept_as_they_are(http: httpx.Client, live: Any) -> None:
    text = "a\x00b\u2028\x1f😀\ufeff"
    answer = http.post(URL, json={**GOOD, "messages": [{"role": "user", "content": text}], "user": "\x00"})
    assert answer.status_code == 200
    row = live.world.logged(answer.json()["id"])
    assert row["request"]["messages"][0]["content"] == text and row["user"] == "\x00"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [
    *("model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "stop", "n", "user"),
    *("metadata", "stream", "stream_options", "tools", "response_format", "logit_bias", "modalities"),
]


@settings(max_examples=150)
@given(change=st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=3))
def test_no_value_in_any_field_makes_a_500(http: httpx.Client, change: dict[str, Any]) -> None:
    if isinstance(change.get("n"), int | float) or change.get("max_tokens") is None:
        change["n"] = 1  # the point is the shape, not many answers
    answer = http.post(URL, json={**GOOD, **change})
    assert answer.status_code in (200, 400, 404), answer.text
    if answer.status_code != 200:
        refused(answer, answer.status_code)


@settings(max_examples=100)
@given(body=st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_body_makes_a_500(http: httpx.Client, body: bytes) -> None:
    for path in (URL, "/v1/feedback", "/admin/load", "/admin/route"):
        answer = http.post(path, content=body)
        assert answer.status_code in (400, 404)
        refused(answer, answer.status_code)
