"""What the tests of log formats share: the fixture of a format with its golden output, and ways to damage a record."""

from __future__ import annotations

import copy
import html
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from flywheel.intake import SourceReport, import_path
from flywheel.intake.formats import FORMATS, named
from flywheel.intake.records import BadRecord, Context, SkippedRecord
from flywheel.store.digests import canonical_json
from flywheel.store.segments import read_rows

FIXTURES = Path(__file__).parent / "fixtures"
CONTEXT = Context("support_router", frozenset({"support_router", "writer"}))

Record = dict[str, Any]

leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
)
values = leaves | st.lists(leaves, max_size=2) | st.dictionaries(st.text(max_size=5), leaves, max_size=2)


class FormatFixture:
    """The records of one format that we wrote, one a line in ``fixtures/<name>.jsonl``, and what they must become."""

    def __init__(self, name: str) -> None:
        self.name, self.path = name, FIXTURES / f"{name}.jsonl"
        self.records: list[Record] = [json.loads(line) for line in self.path.read_text().splitlines()]
        self.golden: list[Any] = json.loads((FIXTURES / f"{name}.golden.json").read_text())

    def read(self, record: Record) -> Any:
        """What the format makes of a record, as plain data."""
        try:
            found = named(self.name).records(record, CONTEXT)
        except SkippedRecord as error:
            return {"skipped": str(error)}
        except BadRecord as error:
            return {"quarantined": str(error)}
        return json.loads(json.dumps([{"record": type(one).__name__, **asdict(one)} for one in found]))

    def takers(self, record: Record) -> list[str]:
        """The formats that take a record for one of theirs."""
        return [fmt.name for fmt in FORMATS.values() if fmt.matches(record)]

    def damaged(self, data: st.DataObject) -> Record:
        """One of the records with up to three fields dropped, renamed, retyped or nested, also inside JSON texts."""
        record: Record = copy.deepcopy(data.draw(st.sampled_from(self.records)))
        for _ in range(data.draw(st.integers(1, 3))):
            _damage(record, data)
        return record

    def check_damaged(self, record: Record) -> None:
        """A damaged record is refused by name, or read to something that can be stored."""
        for fmt in FORMATS.values():
            fmt.matches(record)
        found = self.read(record)
        if isinstance(found, dict):
            assert set(found) <= {"skipped", "quarantined"}
            return
        assert found
        canonical_json(found)

    def padded(self, data: st.DataObject, record: Record) -> Record:
        """The record with fields that no format maps."""
        extra = data.draw(st.dictionaries(st.text(max_size=5).map(lambda key: f"x_{key}"), values, max_size=4))
        return {**extra, **record}


def _damage(place: Any, data: st.DataObject) -> None:
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
        inner = place[key]
        if isinstance(inner, dict | list) and inner and data.draw(st.integers(0, 3)):
            place = inner
            continue
        if (held := _json_inside(inner)) is not None and data.draw(st.booleans()):
            _damage(held, data)
            place[key] = json.dumps(held)
            return
        how = data.draw(st.sampled_from(["drop", "rename", "retype", "nest"]))
        if how == "drop" or (how == "rename" and isinstance(place, list)):
            del place[key]
        elif how == "rename":
            place[data.draw(st.text(max_size=5))] = place.pop(key)
        else:
            place[key] = data.draw(values) if how == "retype" else data.draw(st.sampled_from([[inner], {"a": inner}]))
        return


def _json_inside(value: Any) -> Any:
    """The list or object that a text spells, or None."""
    if not isinstance(value, str) or value[:1] not in ("[", "{"):
        return None
    try:
        return json.loads(value)
    except ValueError:
        return None  # a marker of a logger that cut the text


@pytest.fixture
def log_fixture() -> Callable[[str], FormatFixture]:
    """``log_fixture("langfuse")`` -> the `FormatFixture` of a format."""
    return FormatFixture


@pytest.fixture
def take_in(deployment: Any, tmp_path: Path) -> Callable[..., SourceReport]:
    """``take_in(records, fmt="auto")``: import records as a new file into ``deployment``."""

    def run(records: list[Record], fmt: str = "auto") -> SourceReport:
        path = tmp_path / f"import-{len(list(tmp_path.glob('import-*')))}.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        report = import_path(deployment.config, deployment.home, deployment.registry, deployment.task, path, fmt=fmt)
        report.check()
        return report

    return run


@pytest.fixture
def stored(deployment: Any) -> Callable[[str], list[Record]]:
    """``stored("feedback")`` -> the rows of a table of ``deployment``."""

    def rows(table: str) -> list[Record]:
        order = {"interactions": "interaction_id", "feedback": "feedback_id", "orphans": "feedback_id"}
        return read_rows(deployment.home, deployment.registry, table, deployment.task, order.get(table, "ts"))

    return rows


@dataclass(frozen=True)
class Call:
    """A call with one question and one answer, to be written in the shape of any format.

    Args:
        id: of the call in its log; ``talk`` is that of the conversation.
        arguments: of a tool call beside the answer, as the text that the model wrote; None: no tool is called.
        key: a name in the caller's own metadata, ``value`` what it says.
        parts: further content parts of the question.
    """

    id: Any = "call-1"
    text: Any = "Where is it?"
    answer: Any = "delivery"
    role: Any = "user"
    arguments: Any = None
    parts: tuple[Any, ...] = ()
    user: Any = "user-1"
    talk: Any = "talk-1"
    ts: Any = 1764500000
    tokens: Any = 9
    key: str = "ticket"
    value: Any = "7"

    @property
    def messages(self) -> list[Record]:
        """The question as chat messages."""
        text = {"type": "text", "text": self.text}
        return [{"role": self.role, "content": [text, *self.parts] if self.parts else self.text}]

    @property
    def choices(self) -> list[Record]:
        """The answer as choices of a chat completion."""
        return [{"index": 0, "message": self.message, "finish_reason": "stop"}]

    @property
    def message(self) -> Record:
        """The answer as a chat message."""
        function = {"name": "find", "arguments": self.arguments}
        calls = [{"id": "t1", "type": "function", "function": function}]
        return {"role": "assistant", "content": self.answer} | ({} if self.arguments is None else {"tool_calls": calls})

    @property
    def metadata(self) -> Record:
        """The caller's own metadata."""
        return {self.key: self.value}

    def written(self, fmt: str) -> Record:
        """The record of this call in a format."""
        return SHAPES[fmt](self)


def _gateway(call: Call) -> Record:
    about = {"v": 1, "kind": "interaction", "task": CONTEXT.task, "id": call.id, "conversation_id": call.talk}
    told = {"ts": call.ts, "user": call.user, "usage": {"prompt_tokens": call.tokens}, "metadata": call.metadata}
    return {**about, **told, "request": {"messages": call.messages}, "choices": call.choices, "status": "ok"}


def _openai_chat(call: Call) -> Record:
    metadata = {"conversation_id": call.talk, **call.metadata}
    request = {"model": "m", "messages": call.messages, "user": call.user, "metadata": metadata}
    response = {"id": call.id, "choices": call.choices, "usage": {"prompt_tokens": call.tokens}}
    return {"timestamp": call.ts, "request": request, "response": response}


def _openai_preference(call: Call) -> Record:
    worse = [{"role": "assistant", "content": "Elsewhere."}]
    pair = {"input": {"messages": call.messages}, "preferred_output": [call.message], "non_preferred_output": worse}
    return {"id": call.id, "timestamp": call.ts, "metadata": call.metadata, **pair}


def _openai_responses(call: Call) -> Record:
    text = {"type": "input_text", "text": call.text}
    asked = [{"role": call.role, "content": [text, *call.parts] if call.parts else call.text}]
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": call.answer}]}
    called = {"type": "function_call", "call_id": "t1", "name": "find", "arguments": call.arguments}
    metadata = {"conversation_id": call.talk, **call.metadata}
    request = {"model": "m", "input": asked, "user": call.user, "metadata": metadata}
    output = [said] if call.arguments is None else [said, called]
    response = {"id": call.id, "object": "response", "output": output, "usage": {"input_tokens": call.tokens}}
    return {"timestamp": call.ts, "request": request, "response": response}


def _langfuse(call: Call) -> Record:
    row = {"id": call.id, "type": "GENERATION", "trace_id": f"trace-{call.id}", "session_id": call.talk}
    told = {"start_time": call.ts, "user_id": call.user, "usage_details": {"input": call.tokens}}
    said = {"input": json.dumps(call.messages), "output": json.dumps(call.message)}
    return {**row, **told, **said, "metadata": call.metadata}


def _litellm(call: Call) -> Record:
    row = {"id": call.id, "call_type": "completion", "litellm_call_id": f"lite-{call.id}", "status": "success"}
    told = {"startTime": call.ts, "end_user": call.user, "prompt_tokens": call.tokens, "session_id": call.talk}
    metadata = {"requester_metadata": call.metadata}
    return {**row, **told, "messages": call.messages, "response": {"choices": call.choices}, "metadata": metadata}


def _helicone(call: Call) -> Record:
    row = {"request_id": call.id, "request_created_at": call.ts, "response_status": 200, "request_user_id": call.user}
    bodies = {"request_body": {"messages": call.messages}, "response_body": {"choices": call.choices}}
    properties = {"Helicone-Session-Id": call.talk, **call.metadata}
    return {**row, **bodies, "request_properties": properties, "prompt_tokens": call.tokens}


def _open_webui(call: Call) -> Record:
    tool = "" if call.arguments is None else html.escape(json.dumps(call.arguments))
    block = f'<details type="tool_calls" done="true" id="t1" name="find" arguments="{tool}" result="&quot;ok&quot;">'
    before = "" if call.arguments is None else f"{block}\n<summary>Tool Executed</summary>\n</details>\n"
    content = call.answer if call.answer is None else before + call.answer
    files = [{"type": "image", "url": part["image_url"]["url"]} for part in call.parts]
    asked = {"id": f"{call.id}-q", "role": call.role, "content": call.text, "files": files}
    said = {"id": call.id, "parentId": f"{call.id}-q", "role": "assistant", "content": content, "timestamp": call.ts}
    nodes = [asked, said | {"model": "m", "done": True, "usage": {"prompt_tokens": call.tokens}}]
    history = {"messages": {str(node["id"]): node for node in nodes}}
    return {"id": call.talk, "user_id": call.user, "title": "T", "chat": {"history": history}}


def _otel(call: Call) -> Record:
    asked = [{"type": "text", "content": call.text}, *call.parts]
    said: list[Record] = [{"type": "text", "content": call.answer}]
    if call.arguments is not None:
        said.append({"type": "tool_call", "id": "t1", "name": "find", "arguments": call.arguments})
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.id": call.id,
        "gen_ai.conversation.id": call.talk,
        "user.id": call.user,
        "gen_ai.usage.input_tokens": call.tokens,
        "gen_ai.input.messages": json.dumps([{"role": call.role, "parts": asked}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": said}]),
    }
    span = {"name": "chat m", "traceId": f"trace-{call.id}", "spanId": f"span-{call.id}"}
    return {**span, "startTimeUnixNano": call.ts, "attributes": attributes}


def _tensorzero(call: Call) -> Record:
    asked = {"messages": [{"role": call.role, "content": [{"type": "text", "text": call.text}, *call.parts]}]}
    said: list[Record] = [{"type": "text", "text": call.answer}]
    if call.arguments is not None:
        said.append({"type": "tool_call", "id": "t1", "raw_name": "find", "raw_arguments": call.arguments})
    row = {"id": call.id, "function_name": "f", "variant_name": "v", "episode_id": call.talk, "timestamp": call.ts}
    bodies = {"input": json.dumps(asked), "output": json.dumps(said)}
    return {**row, **bodies, "tags": {"user_id": call.user, **call.metadata}}


SHAPES: dict[str, Callable[[Call], Record]] = {
    "gateway": _gateway,
    "helicone": _helicone,
    "langfuse": _langfuse,
    "litellm": _litellm,
    "nvidia_flywheel": lambda call: {"workload_id": "w", "client_id": "c", **_openai_chat(call)},
    "open_webui": _open_webui,
    "openai_chat": _openai_chat,
    "openai_preference": _openai_preference,
    "openai_responses": _openai_responses,
    "otel": _otel,
    "tensorzero": _tensorzero,
}
"""Every format's record of a `Call`. Not all hold all of it: a preference row has no user, a metric no parts."""


@pytest.fixture(scope="session")
def call_class() -> type[Call]:
    """The class `Call`."""
    return Call
