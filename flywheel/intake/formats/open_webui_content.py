"""The text of an Open WebUI answer, which holds the model's reasoning and tool calls as HTML blocks, taken apart."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from typing import Any

from flywheel.intake.decode import inner
from flywheel.intake.records import Json

# Linear in the text, whatever a model was made to write: nothing here may begin again inside what it has passed.
_OPEN = re.compile(r'<details type="(reasoning|code_interpreter|tool_calls)"')
_CLOSE = "</details>"
_SUMMARY = re.compile(r"\s*+<summary>[^<]*+</summary>\n?")
_ATTRIBUTE = re.compile(r'(?<![\w-])([\w-]++)="([^"]*)"')


@dataclass
class Answer:
    """What an answer is made of.

    Args:
        text: what the user read: the text without the blocks.
        reasoning: the model's reasoning, or "".
        steps: assistant messages with tool calls and the tools' results, which came before ``last``.
        last: the text after the last tool call.
    """

    text: str = ""
    reasoning: str = ""
    steps: list[Json] = field(default_factory=list)
    last: str = ""


def take_apart(content: str) -> Answer:
    """Take an answer apart. A text without blocks stays as it is, to the letter; a block that never ends is text."""
    answer = Answer(text=content, last=content)
    said, texts, reasons = "", list[str](), list[str]()
    calls: list[Json] = []
    place = 0

    def step() -> None:
        nonlocal said
        made = [item["call"] for item in calls]
        answer.steps.append({"role": "assistant", "content": said.strip("\n"), "tool_calls": made})
        answer.steps.extend(item["result"] for item in calls)
        calls.clear()
        said = ""

    while (start := _OPEN.search(content, place)) is not None:
        tag = content.find(">", start.end())
        end = content.find(_CLOSE, tag)
        if tag < 0 or end < 0:
            break
        before, body = content[place : start.start()], content[tag + 1 : end]
        place = end + len(_CLOSE)
        if calls and (before.strip() or start[1] != "tool_calls"):
            step()
        said += before
        texts.append(before)
        if start[1] == "reasoning":
            summary = _SUMMARY.match(body)
            reasons.append(_unquoted(body[summary.end() :] if summary else body))
        elif start[1] == "tool_calls":
            calls.append(_call(dict(_ATTRIBUTE.findall(content[start.end() : tag]))))
    if not place:
        return answer
    if calls:
        step()
    rest = content[place:]
    answer.text, answer.last = "".join([*texts, rest]).strip("\n"), (said + rest).strip("\n")
    answer.reasoning = "\n".join(reasons)
    return answer


def written(output: Any) -> str:
    """The text of an answer that newer versions keep as a list of items, or ""."""
    found = []
    for item in output if isinstance(output, list) else []:
        parts = item.get("content") if isinstance(item, dict) and item.get("type") == "message" else None
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                found.append(part["text"])
    return "".join(found)


def _unquoted(body: str) -> str:
    lines = (line.removeprefix(">").removeprefix(" ") for line in body.strip("\n").split("\n"))
    return html.unescape("\n".join(lines))


def _call(attributes: dict[str, str]) -> Json:
    """A tool call and its result from a block's attributes, which hold JSON; arguments end as the text they were."""
    own_id = attributes.get("id", "")
    function = {"name": attributes.get("name", ""), "arguments": _held(attributes.get("arguments", ""))}
    return {
        "call": {"id": own_id, "type": "function", "function": function},
        "result": {"role": "tool", "tool_call_id": own_id, "content": _held(attributes.get("result", ""))},
    }


def _held(value: str) -> str:
    """The string that an attribute holds as JSON, or what it holds as it stands."""
    plain = html.unescape(value)
    if not plain.startswith('"'):
        return plain
    wrapped: Any = inner(f"[{plain}]")
    return wrapped[0] if isinstance(wrapped, list) and len(wrapped) == 1 and isinstance(wrapped[0], str) else plain
