"""What a GenAI span says of its prompt and its answers, in every convention that instrumentations still write.

The first that is there counts: ``gen_ai.input.messages`` and ``gen_ai.output.messages``; numbered attributes
(``gen_ai.prompt.0.content``); ``gen_ai.prompt`` and ``gen_ai.completion``; events ``gen_ai.user.message``,
``gen_ai.choice`` and their like. Whatever holds more than a word may be JSON in a string.
"""

from __future__ import annotations

import re
from typing import Any

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat, freeform
from flywheel.intake.formats.otlp import Event, plain
from flywheel.intake.formats.pieces import Piece, answer_of, call, messages_of, result, text
from flywheel.intake.records import BadRecord, Choice, Json

MESSAGE_EVENT = re.compile(r"gen_ai\.(system|developer|user|assistant|tool)\.message\Z")
"""The events that bring the prompt, one for each message."""

CHOICE = "gen_ai.choice"
"""The event that brings an answer."""

_NUMBERED = re.compile(r"gen_ai\.(prompt|completion)\.(\d{1,5})\.([a-z_]+)(?:\.(\d{1,5})\.([a-z_]+))?\Z")
_PARTS = ("text", "image_url", "image", "input_text", "input_image", "input_audio", "file")
_FINISH = {"tool_call": "tool_calls"}


def prompt(attributes: Json, events: list[Event]) -> list[Json]:
    """The messages that the model read; none when the span does not say."""
    found = _input(attributes, events)
    system = inner(attributes.get("gen_ai.system_instructions"))
    if system in (None, "", []):
        return found
    parts = system if isinstance(system, list) else [{"type": "text", "content": system}]
    head = messages_of("system", [_piece(part) for part in parts])
    return found if found[:1] == head else head + found


def answers(attributes: Json, events: list[Event]) -> list[Choice]:
    """The choices; none when the span does not say."""
    reasons = inner(attributes.get("gen_ai.response.finish_reasons"))
    reasons = reasons if isinstance(reasons, list) else [reasons]
    found = _output(attributes, events)
    if len({choice.index for choice in found}) < len(found):
        raise BadRecord("two choices have the same index")
    told = {place: reason for place, reason in enumerate(reasons) if isinstance(reason, str) and reason}
    return [
        Choice(choice.index, choice.message, reason and _FINISH.get(reason, reason))
        for place, choice in enumerate(sorted(found, key=lambda choice: choice.index))
        for reason in [choice.finish_reason or told.get(place)]
    ]


def _input(attributes: Json, events: list[Event]) -> list[Json]:
    if (held := attributes.get("gen_ai.input.messages")) is not None:
        return [message for row in _rows(held) for message in _messages(row)]
    if rows := _numbered(attributes, "prompt"):
        return [chat.message(row, "user") for row in rows]
    if (held := attributes.get("gen_ai.prompt")) not in (None, ""):
        return freeform.prompt(held)[0]
    named = [(match[1], _body(event)) for event in events if (match := MESSAGE_EVENT.match(event.name))]
    return [_event_message(role, body) for role, body in named]


def _output(attributes: Json, events: list[Event]) -> list[Choice]:
    if (held := attributes.get("gen_ai.output.messages")) is not None:
        rows = _rows(held)
        return [Choice(place, _answer(row), chat.text(row.get("finish_reason"))) for place, row in enumerate(rows)]
    if rows := _numbered(attributes, "completion"):
        return [
            Choice(place, chat.message(row, "assistant"), chat.text(row.get("finish_reason")))
            for place, row in enumerate(rows)
        ]
    if (held := attributes.get("gen_ai.completion")) not in (None, ""):
        rows = inner(held)
        if isinstance(rows, list) and rows and all(isinstance(row, dict) and "content" in row for row in rows):
            return [Choice(place, chat.message(row, "assistant"), None) for place, row in enumerate(rows)]
        return freeform.answer(held)
    bodies = [_body(event) for event in events if event.name == CHOICE]
    return [_event_choice(place, body) for place, body in enumerate(bodies)]


def _rows(value: Any) -> list[Json]:
    found = inner(value)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise BadRecord("the messages are not a list of objects; they may have been cut")
    return found


def _messages(row: Json) -> list[Json]:
    """A message with ``parts`` or, as some instrumentations write it, with ``content``."""
    if "parts" not in row:
        return [chat.message(row)]
    pieces = _pieces(row)
    role = row.get("role")
    if role == "assistant" and not any(kind == "result" for kind, _ in pieces):
        return [answer_of(pieces)]
    return messages_of(role, pieces)


def _answer(row: Json) -> Json:
    message = answer_of(_pieces(row)) if "parts" in row else chat.message(row | {"role": "assistant"})
    if not message["content"] and message.keys() <= {"role", "content", "reasoning_content"}:
        raise BadRecord("no answer")
    return message


def _pieces(row: Json) -> list[Piece]:
    parts = row.get("parts")
    if not isinstance(parts, list):
        raise BadRecord("a message's parts are not a list")
    return [_piece(part) for part in parts]


def _piece(part: Any) -> Piece:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("text", "reasoning"):
        return text(chat.first(part.get("content"), part.get("text")), kind)
    if kind == "tool_call":
        return call(part.get("id"), part.get("name"), part.get("arguments"))
    if kind == "tool_call_response":
        return result(part.get("id"), chat.first(part.get("response"), part.get("result")))
    if not isinstance(kind, str):
        raise BadRecord("a message part is not an object with a type")
    return "part", part


def _numbered(attributes: Json, kind: str) -> list[Json]:
    """Messages out of attributes with a number in their names, tool calls with a second one."""
    rows: dict[int, Json] = {}
    calls: dict[int, dict[int, Json]] = {}
    for key, value in attributes.items():
        match = _NUMBERED.match(key)
        if match is None or match[1] != kind:
            continue
        row = rows.setdefault(int(match[2]), {})
        if match[4] is None:
            row[match[3]] = value
        elif match[3] == "tool_calls":
            calls.setdefault(int(match[2]), {}).setdefault(int(match[4]), {})[match[5]] = value
    for place, row in rows.items():
        if kind == "prompt" and _are_parts(held := inner(row.get("content"))):
            row["content"] = held
        if place in calls:
            held = [calls[place][own] for own in sorted(calls[place])]
            row["tool_calls"] = [call(one.get("id"), one.get("name"), one.get("arguments"))[1] for one in held]
    return [rows[place] for place in sorted(rows)]


def _are_parts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, dict) and part.get("type") in _PARTS for part in value)


def _body(event: Event) -> Json:
    """What an event says: its body, an attribute that holds that as JSON, or its attributes themselves."""
    told = (event.body, *(event.attributes.get(key) for key in ("gen_ai.event.content", "event_body")))
    bodies = (inner(plain(value)) for value in told)
    return next((body for body in bodies if isinstance(body, dict)), event.attributes)


def _event_message(role: str, body: Json) -> Json:
    row = {**body, "role": chat.text(body.get("role")) or role, "tool_calls": inner(body.get("tool_calls"))}
    if role == "tool":
        row["tool_call_id"] = chat.first(body.get("tool_call_id"), body.get("id"))
    content = body.get("content")
    if content is not None and not isinstance(content, str | list):
        return chat.message(row | {"content": result(None, content)[1]["content"]})
    return chat.message(row)


def _event_choice(place: int, body: Json) -> Choice:
    held = inner(body.get("message"))
    said = held if isinstance(held, dict) else {"content": held}
    row = {"content": body.get("content"), "tool_calls": body.get("tool_calls"), **chat.present(said)}
    message = _event_message("assistant", row)
    return Choice(chat.whole_number(body.get("index"), place), message, chat.text(body.get("finish_reason")))
