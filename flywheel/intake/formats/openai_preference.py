"""OpenAI's rows for preference fine-tuning (DPO): one input, the output that was preferred and the one that was not.

A row becomes a call with both outputs as its choices, the preferred one first, and a preference between them. The older
key names ``preferred_completion`` and ``non_preferred_completion`` are read as well; an output is a list of one
message, a message, or the text.
"""

from __future__ import annotations

from typing import Any

from flywheel.intake.formats import chat
from flywheel.intake.formats.feedback import feedback
from flywheel.intake.formats.registry import log_format
from flywheel.intake.records import BadRecord, Choice, Context, InteractionRecord, Json, Record, SkippedRecord
from flywheel.store.digests import digest

_PREFERRED = ("preferred_output", "preferred_completion")
_OTHER = ("non_preferred_output", "non_preferred_completion")


def is_preference(record: Json) -> bool:
    """Whether a record is a preference row."""
    return "preferred_output" in record or "preferred_completion" in record


@log_format("openai_preference", is_preference, "`preferred_output` or `preferred_completion`")
def parse(record: Json, context: Context) -> list[Record]:
    """Read one row: the call, then the preference. A row whose outputs are alike prefers nothing and is skipped."""
    given = record.get("input")
    request = given if isinstance(given, dict) else record
    messages = chat.messages(given if isinstance(given, list) else request.get("messages"))
    tools = chat.tools(request.get("tools"))
    better, worse = (_output(chat.first(*(record.get(key) for key in keys))) for keys in (_PREFERRED, _OTHER))
    if better == worse:
        raise SkippedRecord("preference between equal answers")
    # The row needs a name that the preference can refer to; most have none.
    own = chat.call_id(record.get("id")) or f"pref-{digest([messages, tools, better, worse])[:32]}"
    ts = chat.first(*(record.get(key) for key in ("timestamp", "ts", "created_at", "created")))
    call = InteractionRecord(
        call_id=own,
        ts=ts,
        messages=messages,
        choices=[Choice(0, better, None), Choice(1, worse, None)],
        tools=tools,
        params={key: value for key, value in chat.params(request).items() if request is given},
        metadata=chat.mapping(record.get("metadata")),
    )
    said = "preference", {"chosen": _plain(better), "rejected": _plain(worse)}
    return [call, feedback("dpo", None, ("interaction", own), said, ts=ts, source="reviewer")]


def _output(value: Any) -> Json:
    if isinstance(value, list):
        if len(value) != 1:
            raise BadRecord("an output is not one message")
        value = value[0]
    if isinstance(value, str):
        value = {"content": value}
    message = chat.message(value, "assistant")
    if message["role"] != "assistant" or (not message["content"] and "tool_calls" not in message):
        raise BadRecord("an output is not an assistant's answer")
    return message


def _plain(message: Json) -> Any:
    """The text of a message that is nothing else; any other message whole."""
    return message["content"] if message.keys() == {"role", "content"} else message
