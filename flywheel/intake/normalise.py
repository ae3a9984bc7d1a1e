"""Records to rows of the bulk tables: ids, hashes, times, keyed user ids and the audit draw.

Everything here is a function of the record, the task and the home's key, so that order and chunking cannot show.
``turn_index`` and ``parent_interaction_id`` depend on the neighbours and are filled by `conversations`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flywheel.intake.records import Choice, FeedbackRecord, InteractionRecord, Json
from flywheel.intake.times import UNKNOWN, parse_time
from flywheel.store.digests import canonical_json, digest
from flywheel.store.home import Home

_NO_ANSWER = Choice(0, {"role": "assistant", "content": ""}, None)


@dataclass(frozen=True)
class Normaliser:
    """Makes rows for one task.

    Args:
        audit_share: probability with which an interaction is set aside for evaluation.
        now: when this run began; tells plausible times from others.
    """

    home: Home
    task: str
    audit_share: float
    now: datetime

    def interaction(self, record: InteractionRecord, source: str, offset: int) -> list[Json]:
        """One row per choice; the first has the record's id, the k-th later one ``<id>#<k>``."""
        ts, quality = parse_time(record.ts, self.now)
        root = record.call_id or _content_id(record)
        conversation = record.conversation_id or root
        prompt = {"messages": record.messages, "tools": record.tools}
        request = {**prompt, "params": record.params}
        shared = {
            "task": self.task,
            "tenant": "",
            "source": source,
            "source_call_id": record.call_id or "",
            "source_offset": offset,
            "conversation_id": conversation,
            "parent_interaction_id": record.parent_id or "",
            "user_key": self.home.user_key(record.user),
            "ts": ts,
            "ts_quality": quality,
            "request": _json(request),
            "model_requested": record.model,
            "release": record.release,
            "stream": record.stream,
            "status": record.status,
            "cache_hit": record.cache_hit,
            "usage": _json(record.usage),
            "latency_ms": record.latency_ms,
            "cost": record.cost,
            "prompt_hash": digest(prompt),
            "metadata": _json(record.metadata),
            # By conversation, so that one is never split between evaluation and training.
            "audit": self.home.audited(conversation, self.audit_share),
            "audit_probability": self.audit_share,
        }
        return [
            shared
            | {
                "interaction_id": root if place == 0 else f"{root}#{place}",
                "choice_index": place,
                "response": _json({"message": choice.message, "finish_reason": choice.finish_reason}),
                "content_hash": digest({**prompt, "answer": choice.message}),
            }
            for place, choice in enumerate(record.choices or [_NO_ANSWER])
        ]

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
            "author_key": self.home.user_key(record.author),
            "ts": ts if quality == "ok" else UNKNOWN,  # a time that cannot be true must not outrank another
            "ingested_at": self.now,
            "supersedes": record.supersedes,
            "origin": source,
            "source_offset": offset,
            "source_id": record.source_id or "",
        }
        return row, quality


def day(row: Json) -> str:
    """The partition a row belongs to."""
    ts: datetime = row["ts"]
    return ts.strftime("%Y-%m-%d")


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


def _json(value: Any) -> str:
    return canonical_json(value).decode()
