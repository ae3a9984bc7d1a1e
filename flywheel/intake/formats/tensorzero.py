"""TensorZero's tables, as ``SELECT * FROM ChatInference FORMAT JSONEachRow`` and the like give them.

- ``ChatInference`` and ``JsonInference`` are calls. The episode is the conversation, the function the model that was
  asked for, the variant the one that answered. Template arguments stand as JSON text where the text they were made into
  is not in the table. A JSON function's answer is its ``raw`` text.
- ``BooleanMetricFeedback``, ``FloatMetricFeedback``, ``CommentFeedback`` and ``DemonstrationFeedback`` are feedback, as
  `tensorzero_feedback` reads them.
- ``ModelInference`` and batch rows repeat the calls as they went to a provider and are skipped; so are calls that
  TensorZero's evaluations made.

A row's table is told by its columns, or by a ``table`` that an export adds. ``timestamp`` is made from the id, which is
a UUIDv7, and is read from there when it was left out.
"""

from __future__ import annotations

from typing import Any

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat
from flywheel.intake.formats.pieces import function_tools
from flywheel.intake.formats.registry import log_format
from flywheel.intake.formats.tensorzero_blocks import answer, messages
from flywheel.intake.formats.tensorzero_feedback import TABLES, feedback_table, row_time, said
from flywheel.intake.records import BadRecord, Choice, Context, InteractionRecord, Json, Parsed, SkippedRecord

_CALLS = ("ChatInference", "JsonInference")
_PROVIDER_CALLS = ("ModelInference", "BatchModelInference", "BatchRequest", "ModelInferenceCache")
_EVALUATIONS = ("tensorzero::evaluation_run_id", "tensorzero::eval_run_id", "tensorzero::dynamic_evaluation_run_id")
_USERS = ("user_id", "user", "end_user")


def _matches(record: Json) -> bool:
    return _table(record) is not None


def _table(record: Json) -> str | None:
    told = record.get("table")
    if isinstance(told, str) and told in (*_CALLS, *_PROVIDER_CALLS, *TABLES):
        return told
    if "model_provider_name" in record and ("raw_request" in record or "inference_id" in record):
        return "ModelInference"
    if "function_name" in record and "variant_name" in record and "episode_id" in record:
        schema = chat.text(record.get("output_schema")) or record.get("type") == "json"
        return "JsonInference" if schema else "ChatInference"
    return feedback_table(record)


@log_format(
    "tensorzero",
    _matches,
    "`table`, or `function_name`, `variant_name` and `episode_id`, or `value` with `target_id` or `inference_id`",
)
def parse(record: Json, context: Context) -> Parsed:
    """Read one row. A call of a function that is another configured task is skipped."""
    table = _table(record)
    if table in _PROVIDER_CALLS:
        raise SkippedRecord("repeats a call as its provider saw it")
    return _call(record, context) if table in _CALLS else said(table or "", record, context)


def _call(record: Json, context: Context) -> InteractionRecord:
    tags = dict(chat.mapping(inner(record.get("tags"))))
    function = chat.text(record.get("function_name")) or ""
    if function.startswith("tensorzero::llm_judge::") or any(tag in tags for tag in _EVALUATIONS):
        raise SkippedRecord("evaluation run")
    chat.check_task(context, function)
    if (own := chat.call_id(chat.first(record.get("id"), record.get("inference_id")))) is None:
        raise BadRecord("no id")
    user = chat.user(*[tags.pop(key, None) for key in _USERS])  # a raw id must not stay among the tags
    about = {"tensorzero_function": function, "tensorzero_variant": record.get("variant_name")}
    return InteractionRecord(
        call_id=own,
        ts=row_time(record, own),
        messages=messages(inner(record.get("input"))),
        choices=[Choice(0, answer(record.get("output")), None)],
        tools=_tools(record),
        params=_params(record),
        conversation_id=chat.identifier(record.get("episode_id")),
        user=user,
        model=function,
        release=chat.text(record.get("variant_name")) or "",
        stream=chat.number(record.get("ttft_ms")) is not None,
        latency_ms=chat.number(record.get("processing_time_ms")),
        metadata=tags | chat.present(about),
    )


def _tools(record: Json) -> list[Any] | None:
    """Tools given with the call, each JSON text or an object; older rows hold all of them in ``tool_params``."""
    given = chat.mapping(inner(record.get("tool_params"))).get("tools_available")
    added = inner(record.get("dynamic_tools"))
    held = [item for part in (given, added) if isinstance(part, list) for item in part]
    return function_tools([inner(item) for item in held])


def _params(record: Json) -> Json:
    """The sampling parameters of the variant, and what the call said about its tools and its output."""
    given = chat.mapping(inner(record.get("inference_params")))
    kinds = [chat.mapping(value) for value in given.values() if isinstance(value, dict)]
    found = {key: value for kind in kinds or [given] for key, value in kind.items()}
    older = chat.mapping(inner(record.get("tool_params")))
    for key in ("tool_choice", "parallel_tool_calls"):
        told = inner(chat.first(record.get(key), older.get(key)))
        found[key] = told.strip('"') if isinstance(told, str) else told  # a choice by name is a JSON string
    found["output_schema"] = inner(record.get("output_schema"))
    return chat.present(found)
