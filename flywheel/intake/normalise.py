"""Records to rows of the bulk tables: ids, hashes, times, keyed user ids and the audit draw.

Everything here is a function of the record, the task and the home's key, so that order and chunking cannot show.
``turn_index`` and ``parent_interaction_id`` depend on the neighbours: `conversations` fills them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, NamedTuple

from flywheel.intake.marks import PARTS
from flywheel.intake.records import Choice, FeedbackRecord, InteractionRecord, Json
from flywheel.intake.times import UNKNOWN, parse_time
from flywheel.store.digests import canonical_json, digest
from flywheel.store.home import Home, audited, user_key

_NO_ANSWER = [Choice(0, {"role": "assistant", "content": ""}, None)]
_REMEMBERED = 100_000  # users and conversations come in again and again


class CallRow(NamedTuple):
    """A row of the interactions table, but for ``turn_index``. ``parent_interaction_id`` is what the record names."""

    interaction_id: str
    task: str
    tenant: str
    source: str
    source_call_id: str
    source_offset: int
    conversation_id: str
    parent_interaction_id: str
    user_key: str
    ts: datetime
    ts_quality: str
    request: str
    response: str
    model_requested: str
    release: str
    stream: bool
    status: str
    cache_hit: bool
    usage: str
    latency_ms: float | None
    cost: float | None
    prompt_hash: str
    content_hash: str
    choice_index: int
    metadata: str
    audit: bool
    audit_probability: float


class Normaliser:
    """Makes rows for one task.

    Args:
        audit_share: probability with which an interaction is set aside for evaluation.
        now: when this run began; tells plausible times from others.
    """

    def __init__(self, home: Home, task: str, audit_share: float, now: datetime) -> None:
        self.task, self.audit_share, self.now = task, audit_share, now
        secret = home.secret()
        self._user_key = lru_cache(_REMEMBERED)(partial(user_key, secret))
        self._audited = lru_cache(_REMEMBERED)(partial(audited, secret, share=audit_share))

    def interaction(
        self, record: InteractionRecord, source: str, offset: int, kinds: Sequence[str] = ()
    ) -> list[CallRow]:
        """One row per choice; the first has the record's id, the k-th later one ``<id>#<k>``.

        Args:
            kinds: of content that is not text; the metadata names them.
        """
        ts, quality = parse_time(record.ts, self.now)
        root = record.call_id or _content_id(record)
        conversation = record.conversation_id or root
        messages = canonical_json(record.messages)
        tools = b"null" if record.tools is None else canonical_json(record.tools)
        params = canonical_json(record.params)
        request = (b'{"messages":%b,"params":%b,"tools":%b}' % (messages, params, tools)).decode()
        prompt_hash = hashlib.sha256(b'{"messages":%b,"tools":%b}' % (messages, tools)).hexdigest()
        usage = _json(record.usage)
        metadata = _json(record.metadata | {PARTS: [*kinds]} if kinds else record.metadata)
        rows = []
        for place, choice in enumerate(record.choices or _NO_ANSWER):
            answer = canonical_json(choice.message)
            row = CallRow(
                interaction_id=f"{root}#{place}" if place else root,
                task=self.task,
                tenant="",
                source=source,
                source_call_id=record.call_id or "",
                source_offset=offset,
                conversation_id=conversation,
                parent_interaction_id=record.parent_id or "",
                user_key=self._user_key(record.user),
                ts=ts,
                ts_quality=quality,
                request=request,
                response=(b'{"finish_reason":%b,"message":%b}' % (_text(choice.finish_reason), answer)).decode(),
                model_requested=record.model,
                release=record.release,
                stream=record.stream,
                status=record.status,
                cache_hit=record.cache_hit,
                usage=usage,
                latency_ms=record.latency_ms,
                cost=record.cost,
                prompt_hash=prompt_hash,
                content_hash=hashlib.sha256(b"%b|%b" % (prompt_hash.encode(), answer)).hexdigest(),
                choice_index=place,
                metadata=metadata,
                # By conversation, so that one is never split between evaluation and training.
                audit=self._audited(conversation),
                audit_probability=self.audit_share,
            )
            rows.append(row)
        return rows

    def feedback(self, record: FeedbackRecord, source: str, offset: int) -> tuple[Json, str]:
        """The feedback row with its target as received, which `orphans` resolves, and the quality of its time."""
        ts, quality = parse_time(record.ts, self.now)
        content = (record.target_kind, record.target, record.kind, record.value, record.text, record.source)
        row = {
            "feedback_id": record.feedback_id or f"fb-{digest([*content, record.author, record.source_id])[:32]}",
            "task": self.task,
            "target_kind": record.target_kind,
            "target_id": record.target,
            "kind": record.kind,
            "value": _json(record.value),
            "text": record.text,
            "source": record.source,
            "author_key": self._user_key(record.author),
            "ts": ts if quality == "ok" else UNKNOWN,  # a time that cannot be true must not outrank another
            "ingested_at": self.now,
            "supersedes": record.supersedes,
            "origin": source,
            "source_offset": offset,
            "source_id": record.source_id or "",
        }
        return row, quality


def _content_id(record: InteractionRecord) -> str:
    """An id for a call that brought none: equal calls at equal times are one."""
    content: dict[str, Any] = {
        "messages": record.messages,
        "tools": record.tools,
        "params": record.params,
        "answers": [[choice.index, choice.message] for choice in record.choices],
        "ts": record.ts,
        "user": record.user,
        "conversation": record.conversation_id,
        "metadata": record.metadata,
    }
    return f"imp-{digest(content)[:32]}"


@lru_cache(100)
def _text(value: str | None) -> bytes:
    return canonical_json(value)


def _json(value: Any) -> str:
    return "{}" if value == {} else canonical_json(value).decode()
