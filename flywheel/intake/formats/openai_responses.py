"""OpenAI's Responses API: a request and its response, or a stored response with its input items beside it.

- ``{"request": {model, input, ...}, "response": {object: "response", output, ...}}``; the response may be its stream;
- ``{"object": "response", "output": [...], "input": ...}``, where ``input`` is the text, the items, or the page
  on which the API lists them (in ascending order: ask for that, by default the newest come first).

The answer is one assistant message: its texts joined, its function calls, its reasoning where the log has it in words.
Tools that the provider ran itself belong to no chat message; the metadata names their kinds. With
``previous_response_id`` the earlier turns lie with the provider: the interaction holds what was sent, and that response
is its parent.
"""

from __future__ import annotations

from typing import Any

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat, sse
from flywheel.intake.formats.openai_items import items_messages, kinds, output_message
from flywheel.intake.formats.pieces import function_tools
from flywheel.intake.formats.registry import log_format
from flywheel.intake.records import BadRecord, Choice, Context, InteractionRecord, Json, SkippedRecord

_ADDRESSING = ("input", "instructions", "previous_response_id", "conversation", "store", "stream_options", "include")
_STORED_PARAMS = (
    "temperature",
    "top_p",
    "max_output_tokens",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
)
_LENGTH = ("max_output_tokens", "max_tokens")
_NOT_OURS = frozenset({"workload_id", "client_id", "contract_version"})


def _matches(record: Json) -> bool:
    if not _NOT_OURS.isdisjoint(record):
        return False
    if isinstance(request := inner(record.get("request")), dict):
        return "response" in record and "input" in request and "messages" not in request
    return record.get("object") == "response" and "output" in record


@log_format("openai_responses", _matches, "`request` with `input` and `response`, or `object` response with `output`")
def parse(record: Json, context: Context) -> InteractionRecord:
    """Read one record of either shape. A response that is still being made is skipped, and so are other endpoints'."""
    request = found if isinstance(found := inner(record.get("request")), dict) else record
    logged = record if request is record else inner(record.get("response"))
    response = sse.whole(logged)
    if not isinstance(response, dict):
        raise BadRecord("the response is not an object")
    if response.get("object", "response") != "response" or "data" in response:
        raise SkippedRecord("not a model call")
    status = response.get("status")
    if status in ("in_progress", "queued"):
        raise SkippedRecord("response not finished")
    failed = status in ("failed", "cancelled") or bool(response.get("error"))
    output = response.get("output")
    choices = [] if failed and not output else [_choice(output, response)]
    metadata = {**chat.mapping(inner(record.get("metadata"))), **chat.mapping(request.get("metadata"))}
    previous = chat.identifier(chat.first(request.get("previous_response_id"), response.get("previous_response_id")))
    model = chat.text(request.get("model")) or chat.text(response.get("model")) or ""
    return InteractionRecord(
        call_id=chat.call_id(response.get("id")),
        ts=chat.first(*(record.get(key) for key in ("timestamp", "ts")), response.get("created_at")),
        messages=_input(chat.first(request.get("instructions"), response.get("instructions")), request.get("input")),
        choices=choices,
        tools=function_tools(chat.first(request.get("tools"), response.get("tools"))),
        params=_params(request, stored=request is record),
        conversation_id=_conversation(request, response, metadata),
        parent_id=previous,
        user=chat.user(*(of.get(key) for of in (request, record) for key in chat.USERS)),
        model=model,
        release=chat.text(response.get("model")) or model,
        stream=request.get("stream") is True or response is not logged,
        status="error" if failed else "ok",
        usage=_usage(chat.mapping(response.get("usage"))),
        latency_ms=chat.number(record.get("latency_ms")),
        metadata=metadata
        | chat.present(
            {"openai_previous_response_id": previous, "openai_ran_tools": _ran(request.get("input"), output)}
        ),
    )


def _input(instructions: Any, value: Any) -> list[Json]:
    head = [chat.message({"role": "system", "content": instructions})] if isinstance(instructions, str) else []
    if isinstance(instructions, list):
        head = items_messages(instructions)
    if isinstance(value, dict):
        value = value.get("data")
    if isinstance(value, str) and value:
        return [*head, chat.message({"role": "user", "content": value})]
    if not isinstance(value, list) or not value:
        raise BadRecord("no messages")
    return head + items_messages(value)


def _choice(output: Any, response: Json) -> Choice:
    message = output_message(output)
    reason = chat.mapping(response.get("incomplete_details")).get("reason")
    if response.get("status") == "incomplete":
        return Choice(0, message, "length" if reason in _LENGTH else chat.text(reason))
    return Choice(0, message, "tool_calls" if "tool_calls" in message else "stop")


def _params(request: Json, *, stored: bool) -> Json:
    if stored:
        return chat.present({key: request.get(key) for key in _STORED_PARAMS})
    return {key: value for key, value in chat.params(request).items() if key not in _ADDRESSING}


def _conversation(request: Json, response: Json, metadata: Json) -> str | None:
    held = chat.first(response.get("conversation"), request.get("conversation"))
    own = held.get("id") if isinstance(held, dict) else held
    return chat.identifier(chat.first(metadata.get("conversation_id"), own))


def _usage(usage: Json) -> Json:
    """Token counts under the names that chat completions use, beside whatever else there is."""
    names = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
    return {names.get(key, key): value for key, value in usage.items()}


def _ran(*items: Any) -> list[str]:
    """The kinds of tools that the provider ran."""
    called = {kind for held in items for kind in kinds(held) if kind.endswith("_call")}
    return sorted(called - {"function_call", "custom_tool_call"})
