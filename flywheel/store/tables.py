"""Arrow schemas of the bulk tables. JSON columns hold canonical JSON text; times are UTC microseconds."""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 1

_TS = pa.timestamp("us", tz="UTC")

INTERACTIONS = pa.schema(
    [
        ("interaction_id", pa.string()),
        ("task", pa.string()),
        ("tenant", pa.string()),
        ("source", pa.string()),
        ("source_call_id", pa.string()),
        ("source_offset", pa.int64()),  # byte offset of the record in its file
        ("conversation_id", pa.string()),  # the interaction's own id when the caller gives none
        ("turn_index", pa.int32()),
        ("parent_interaction_id", pa.string()),
        ("user_key", pa.string()),  # keyed hash; "" when unknown
        ("ts", _TS),
        ("ts_quality", pa.string()),  # ok | missing | implausible
        ("request", pa.string()),  # JSON {messages, tools?, params}
        ("response", pa.string()),  # JSON {message, finish_reason}
        ("model_requested", pa.string()),
        ("release", pa.string()),  # digest of the release that answered, or the external model's name
        ("stream", pa.bool_()),
        ("status", pa.string()),  # ok | error
        ("cache_hit", pa.bool_()),
        ("usage", pa.string()),  # JSON
        ("latency_ms", pa.float64()),
        ("cost", pa.float64()),
        ("prompt_hash", pa.string()),
        ("content_hash", pa.string()),
        ("choice_index", pa.int32()),
        ("metadata", pa.string()),  # JSON, the caller's
        ("audit", pa.bool_()),
        ("audit_probability", pa.float64()),
    ]
)

FEEDBACK = pa.schema(
    [
        ("feedback_id", pa.string()),
        ("task", pa.string()),
        ("target_kind", pa.string()),  # interaction | conversation, after resolution
        ("target_id", pa.string()),
        ("kind", pa.string()),  # thumb|rating|label|correction|preference|comment|outcome|regenerate|accept
        ("value", pa.string()),  # JSON scalar
        ("text", pa.string()),
        ("source", pa.string()),  # user | reviewer | judge | verifier | implicit
        ("author_key", pa.string()),
        ("ts", _TS),
        ("ingested_at", _TS),
        ("supersedes", pa.string()),
        ("origin", pa.string()),  # the log it came from
        ("source_offset", pa.int64()),
        ("source_id", pa.string()),  # the sender's own id, "" when none; (source, source_id) is kept once
    ]
)

ORPHANS = FEEDBACK
"""Feedback whose target is not known yet: same columns, target as received (``metadata``: JSON of key and value)."""

LABELS = pa.schema(
    [
        ("seq", pa.int64()),  # number of this label version
        ("task", pa.string()),
        ("target_kind", pa.string()),
        ("target_id", pa.string()),
        ("policy_digest", pa.string()),
        ("use", pa.string()),  # sft | pair | kto | eval | none
        ("y", pa.float64()),  # probability that the model's answer was good
        ("confidence", pa.float64()),
        ("weight", pa.float64()),
        ("chosen", pa.string()),  # the target text, "" when there is none
        ("rejected", pa.string()),  # the worse answer, when somebody chose between two; else ""
        ("shown_first", pa.string()),  # chosen | rejected, when it is known which of the two was seen first; else ""
        ("label_source", pa.string()),  # the strongest evidence: reviewer|verifier|outcome|correction|thumb|...
        ("self_generated", pa.bool_()),  # the target is the model's own answer
        ("reasons", pa.list_(pa.string())),
        ("matured_at", _TS),
        ("digest", pa.string()),  # of everything but seq
    ]
)

QUARANTINE = pa.schema(
    [
        ("source", pa.string()),
        ("source_offset", pa.int64()),
        ("raw", pa.string()),  # bounded; undecodable bytes are replaced
        ("reason", pa.string()),
        ("ts", _TS),
    ]
)

EXAMPLES = pa.schema(
    [
        ("example_id", pa.string()),
        ("interaction_id", pa.string()),
        ("user_key", pa.string()),
        ("conversation_id", pa.string()),
        ("cluster_id", pa.string()),  # keyed: equal within a dataset, and says nothing
        ("prompt_mac", pa.string()),  # keyed hash of the prompt before redaction: its raw copies are known by it
        ("side", pa.string()),  # train | val
        ("kind", pa.string()),  # sft | pair | kto
        ("messages", pa.string()),  # JSON list; the last is the answer, of a pair the better one
        ("tools", pa.string()),  # JSON list or ""
        ("train_mask", pa.list_(pa.bool_())),  # which messages are learned
        ("rejected", pa.string()),  # of a pair the worse answer, a JSON message; else ""
        ("desirable", pa.bool_()),  # of a kto row whether the answer was good; else null
        ("weight", pa.float64()),
        ("origin", pa.string()),  # new | replay | anchor
        ("generated_by", pa.string()),  # release digest when the target is a model's own answer, else ""
        ("row_key", pa.string()),  # keyed hash of the content: names a row without its text
    ]
)

TABLES = {
    "interactions": INTERACTIONS,
    "feedback": FEEDBACK,
    "orphans": ORPHANS,
    "labels": LABELS,
    "quarantine": QUARANTINE,
}
