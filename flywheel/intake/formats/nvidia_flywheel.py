"""Records of NVIDIA's data-flywheel blueprint: a chat request and its response under a workload and a client."""

from __future__ import annotations

from flywheel.intake.decode import inner
from flywheel.intake.formats import chat, sse
from flywheel.intake.formats.registry import log_format
from flywheel.intake.records import BadRecord, Context, InteractionRecord, Json, Record, SkippedRecord


def _matches(record: Json) -> bool:
    return (
        isinstance(inner(record.get("request")), dict)
        and "response" in record
        and ("workload_id" in record or "client_id" in record or "contract_version" in record)
    )


@log_format(
    "nvidia_flywheel",
    _matches,
    "`request` and `response` with `workload_id`, `client_id` or `contract_version`",
)
def parse(record: Json, context: Context) -> Record:
    """Read one record. One whose ``workload_id`` names another configured task is skipped; other names are free.

    Tool arguments may be an object (toolkit contract 1.x) or text; both end as JSON text. The format has no feedback.
    """
    workload = record.get("workload_id")
    if isinstance(workload, str) and workload != context.task and workload in context.tasks:
        raise SkippedRecord("other task")
    request, response = chat.mapping(inner(record.get("request"))), sse.whole(inner(record.get("response")))
    failed = bool(record.get("error_details"))
    if not isinstance(response, dict) and not failed:
        raise BadRecord("the response is not an object")
    response = chat.mapping(response)
    metadata = {**chat.mapping(request.get("metadata")), "workload_id": workload, "client_id": record.get("client_id")}
    model = chat.text(request.get("model")) or ""
    return InteractionRecord(
        call_id=chat.call_id(response.get("id")),
        ts=chat.first(record.get("timestamp"), response.get("created")),
        messages=chat.messages(request.get("messages")),
        choices=[] if failed and not response.get("choices") else chat.choices(response.get("choices")),
        tools=chat.tools(request.get("tools")),
        params=chat.params(request),
        conversation_id=chat.identifier(metadata.get("conversation_id")),
        user=chat.user(*(request.get(key) for key in chat.USERS)),
        model=model,
        release=chat.text(response.get("model")) or model,
        stream=request.get("stream") is True,
        status="error" if failed else "ok",
        usage=chat.mapping(response.get("usage")),
        metadata={key: value for key, value in metadata.items() if value is not None},
    )
