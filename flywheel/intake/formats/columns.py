"""A table of one's own: CSV, Parquet or JSON lines of any shape, read by a map that says which column holds what.

A row is a call, a call with feedback, or feedback about a call that is named. A cell may hold JSON as text. An empty
cell says nothing. A column that a row does not have is named: without what was asked, answered, its id or its time the
row is of no use, and without another column that part of it is dropped.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from flywheel.config_logs import ColumnMap
from flywheel.intake.decode import inner
from flywheel.intake.formats import chat, freeform
from flywheel.intake.formats.feedback import Said, Target, category, feedback, number
from flywheel.intake.formats.registry import LogFormat
from flywheel.intake.records import (
    BadRecord,
    Choice,
    Dropped,
    InteractionRecord,
    Json,
    Parsed,
    Record,
    SkippedRecord,
)
from flywheel.store.digests import digest

_MISSING = object()
_SOURCES = {"label": "reviewer"}
"""Who speaks in a column; in all others the user does."""


@lru_cache(maxsize=64)
def columns_format(columns: ColumnMap) -> LogFormat:
    """The format of rows that a map describes."""
    return LogFormat("columns", lambda _: True, lambda record, _: _Row(columns, record).parse(), "the columns named")


class _Row:
    def __init__(self, columns: ColumnMap, record: Json) -> None:
        self.columns, self.record = columns, record
        self.dropped: dict[str, Dropped] = {}

    def parse(self) -> Parsed:
        """The call if the row has one, then the feedback about it."""
        found: list[Record] = []
        user = chat.user(_plain(self.extra(self.columns.user)))
        conversation = chat.identifier(self.extra(self.columns.conversation))
        ts = self.needed(self.columns.time)
        own = chat.call_id(self.needed(self.columns.id))
        target: Target = ("interaction", own or "") if own or not conversation else ("conversation", conversation)
        if self.columns.messages or self.columns.prompt:
            found.append(call := self._call(own, ts, user, conversation))
            target = "interaction", call.call_id or ""
        elif not target[1]:
            raise BadRecord("the feedback's target has no id")
        for kind, column in self.columns.feedback.items():
            if (value := _plain(self.extra(column))) in (None, "", [], {}):
                continue
            if (said := _said(kind, column, value)) is None:
                self.dropped[column] = Dropped(f"the column {column!r} holds no {kind}")
                continue
            text = str(value) if said[1] is None else ""
            source = _SOURCES.get(kind, "user")
            author = None if kind in _SOURCES else user
            found.append(feedback("col", kind, target, said, ts=ts, source=source, text=text, author=author))
        if not found and not self.dropped:
            raise SkippedRecord("no feedback in the row")
        return [*found, *self.dropped.values()]

    def _call(self, own: str | None, ts: Any, user: str | None, conversation: str | None) -> InteractionRecord:
        body = inner(self.needed(self.columns.messages or self.columns.prompt))
        response = inner(self.needed(self.columns.response))
        request = body if self.columns.messages and isinstance(body, dict) and "messages" in body else {}
        completion = response if isinstance(response, dict) and "choices" in response else {}
        messages, tools = self._asked()
        choices = self._answered()
        if not (self.columns.response or self.columns.completion):
            if messages[-1]["role"] != "assistant" or len(messages) < 2:
                raise BadRecord("no assistant answer after a message")
            messages, choices = messages[:-1], [Choice(0, messages[-1], None)]
        own = own or chat.call_id(completion.get("id"))
        if own is None:
            said = [[choice.index, choice.message] for choice in choices]
            own = f"row-{digest([messages, tools, said, ts, user, conversation])[:32]}"
        model = chat.first(chat.text(_plain(self.extra(self.columns.model))), chat.text(request.get("model")), "")
        return InteractionRecord(
            call_id=own,
            ts=chat.first(ts, completion.get("created")),
            messages=messages,
            choices=choices,
            tools=tools,
            params=chat.params(request),
            conversation_id=conversation,
            user=user,
            model=model,
            release=chat.text(completion.get("model")) or model,
            stream=request.get("stream") is True,
            status="ok" if choices else "error",
            usage=chat.mapping(completion.get("usage")),
            metadata=chat.present({name: _plain(self.extra(name)) for name in self.columns.metadata}),
        )

    def _asked(self) -> tuple[list[Json], list[Any] | None]:
        if self.columns.messages:
            return freeform.prompt(self.needed(self.columns.messages))
        return [{"role": "user", "content": self._text(self.columns.prompt)}], None

    def _answered(self) -> list[Choice]:
        """The answers; none for a call that failed."""
        column = self.columns.response or self.columns.completion
        if column is None or (value := self.needed(column)) in (None, ""):
            return []
        if self.columns.completion:
            return [Choice(0, {"role": "assistant", "content": self._text(column)}, None)]
        found = inner(value)
        failed = isinstance(found, dict) and found.get("error") and not found.get("choices")
        return [] if failed else freeform.answer(value)

    def _text(self, column: str | None) -> str:
        value = self.needed(column)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value:
            raise BadRecord(f"the column {column!r} holds no text")
        return value

    def needed(self, column: str | None) -> Any:
        """What stands in a column; None when none is meant. Raises BadRecord when the row does not have it."""
        if column is None:
            return None
        if (value := _find(self.record, column)) is _MISSING:
            raise BadRecord(f"no column {column!r}")
        return value

    def extra(self, column: str | None) -> Any:
        """The same of a column that can be done without, which is noted."""
        try:
            return self.needed(column)
        except BadRecord as error:
            self.dropped[column or ""] = Dropped(str(error))
            return None


def _find(record: Json, column: str) -> Any:
    """What lies under a name or a dotted path, also within JSON texts; nothing under what is null."""
    if column in record:
        return record[column]
    value: Any = record
    for step in column.split("."):
        value = inner(value)
        if value is None:
            return None
        if not isinstance(value, dict) or step not in value:
            return _MISSING
        value = value[step]
    return value


def _plain(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _said(kind: str, column: str, value: Any) -> Said | None:
    """What a cell says; None when it is nothing of this kind."""
    if kind in ("thumb", "outcome"):
        told = _yes(value)
        return None if told is None else (kind, told)
    if kind == "rating":
        amount = chat.number(value)
        return None if amount is None else number(column.rpartition(".")[2], amount)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return ("label", str(value)) if kind == "label" else (kind, None)


def _yes(value: Any) -> bool | None:
    if (told := chat.truth(value)) is not None:
        return told
    if chat.number(value) == -1:
        return False
    kind, said = category("thumb", value, "") if isinstance(value, str) else ("", None)
    return said if kind == "thumb" else None
