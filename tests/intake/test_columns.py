"""A table of one's own: a map says which column holds what, and every column it names is found or missed by name."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flywheel.config import parse_columns
from flywheel.config_logs import ColumnMap
from flywheel.errors import ConfigError
from flywheel.intake import import_path, run_intake
from flywheel.intake.formats import columns_format
from flywheel.intake.records import BadRecord, Context, Dropped, FeedbackRecord, InteractionRecord, SkippedRecord

CONTEXT = Context("support_router", frozenset({"support_router"}))

CALL = ColumnMap(
    prompt="question", completion="answer", id="key", time="at", user="who", conversation="chat", model="m"
)
FEEDBACK = ColumnMap(
    id="key", thumb="vote", rating="stars", label="queue", correction="better", comment="note", outcome="done"
)


def parse(columns: ColumnMap, row: dict[str, Any]) -> list[Any]:
    return list(columns_format(columns).records(row, CONTEXT))


def call_of(columns: ColumnMap, row: dict[str, Any]) -> InteractionRecord:
    (found,) = parse(columns, row)
    assert isinstance(found, InteractionRecord)
    return found


def said(columns: ColumnMap, row: dict[str, Any]) -> list[tuple[str, Any, str, str]]:
    return [
        (one.kind, one.value, one.text, one.source) for one in parse(columns, row) if isinstance(one, FeedbackRecord)
    ]


def test_a_row_of_texts_is_a_call_to_the_letter() -> None:
    row = {"question": '{"a": 1} ', "answer": "[] ", "key": 7, "at": "2026-11-01", "who": "u", "chat": "k", "m": "gpt"}
    call = call_of(CALL, row)
    assert call.messages == [{"role": "user", "content": '{"a": 1} '}]
    assert call.choices[0].message == {"role": "assistant", "content": "[] "}
    assert (call.call_id, call.ts, call.user, call.conversation_id) == ("7", "2026-11-01", "u", "k")
    assert (call.model, call.release, call.status) == ("gpt", "gpt", "ok")


def test_bodies_are_read_as_what_they_are_also_as_json_in_a_cell() -> None:
    body = {"model": "m", "temperature": 0.5, "messages": [{"role": "user", "content": "hi"}]}
    completion = {
        "id": "c1",
        "created": 1764500000,
        "model": "m-2",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": {"total_tokens": 3},
    }
    columns = ColumnMap(messages="req", response="resp")
    for row in ({"req": body, "resp": completion}, {"req": json.dumps(body), "resp": json.dumps(completion)}):
        call = call_of(columns, row)
        assert (call.call_id, call.ts, call.model, call.release) == ("c1", 1764500000, "m", "m-2")
        assert (call.params, call.usage) == ({"temperature": 0.5}, {"total_tokens": 3})
        assert call.choices[0].message["content"] == "hello"


def test_messages_without_a_column_for_the_answer_end_with_it() -> None:
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    call = call_of(ColumnMap(messages="chat"), {"chat": json.dumps(chat)})
    assert (call.messages, call.choices[0].message) == (chat[:1], chat[1])
    with pytest.raises(BadRecord, match="no assistant answer"):
        parse(ColumnMap(messages="chat"), {"chat": chat[:1]})


def test_a_call_without_an_answer_or_with_an_error_for_one_is_a_failed_call() -> None:
    for answer in (None, "", {"error": {"message": "no"}}, '{"error": {"message": "no"}}'):
        call = call_of(ColumnMap(prompt="q", response="a"), {"q": "hi", "a": answer})
        assert (call.status, call.choices) == ("error", [])


def test_a_dotted_path_goes_into_objects_and_into_json_in_a_cell_but_a_column_of_that_name_comes_first() -> None:
    columns = ColumnMap(prompt="a.b", completion="c")
    for row in ({"a": {"b": "x"}, "c": "y"}, {"a": '{"b": "x"}', "c": "y"}, {"a.b": "x", "a": {"b": "z"}, "c": "y"}):
        assert call_of(columns, row).messages[0]["content"] == "x"


@pytest.mark.parametrize("missing", ["question", "answer", "key", "at"])
def test_a_row_without_a_column_it_cannot_do_without_is_refused_by_its_name(missing: str) -> None:
    row = {"question": "q", "answer": "a", "key": "k", "at": 1, "who": "u", "chat": "c", "m": "m"}
    del row[missing]
    with pytest.raises(BadRecord, match=f"no column '{missing}'"):
        parse(CALL, row)


@pytest.mark.parametrize("missing", ["who", "chat", "m", "extra"])
def test_a_row_without_another_column_is_kept_and_the_column_is_named(missing: str) -> None:
    row = {"question": "q", "answer": "a", "key": "k", "at": 1, "who": "u", "chat": "c", "m": "m", "extra": "x"}
    columns = CALL.model_copy(update={"metadata": ("extra",)})
    assert len(parse(columns, row)) == 1
    del row[missing]
    call, dropped = parse(columns, row)
    assert isinstance(call, InteractionRecord)
    assert dropped == Dropped(f"no column '{missing}'")


def test_every_kind_of_feedback_has_a_column() -> None:
    row = {
        "key": "c1",
        "vote": "up",
        "stars": "4",
        "queue": "billing",
        "better": "Ship it",
        "note": "ok",
        "done": "true",
    }
    assert said(FEEDBACK, row) == [
        ("label", "billing", "", "reviewer"),
        ("thumb", True, "", "user"),
        ("rating", {"value": 4.0, "scale": [1, 5]}, "", "user"),
        ("correction", None, "Ship it", "user"),
        ("comment", None, "ok", "user"),
        ("outcome", True, "", "user"),
    ]
    assert all(one.target == "c1" for one in parse(FEEDBACK, row))


@pytest.mark.parametrize(
    ("vote", "thumb"),
    [(True, True), (1, True), ("1.0", None), ("0", False), (-1, False), ("-1", False), ("down", False), ("Good", True)],
)
def test_a_thumb_may_be_written_in_many_ways(vote: Any, thumb: bool | None) -> None:
    columns = ColumnMap(id="key", thumb="vote")
    if thumb is None:
        with pytest.raises(BadRecord, match="the column 'vote' holds no thumb"):
            parse(columns, {"key": "c", "vote": vote})
    else:
        assert said(columns, {"key": "c", "vote": vote}) == [("thumb", thumb, "", "user")]


def test_an_empty_cell_says_nothing_and_a_row_of_them_is_skipped() -> None:
    columns = ColumnMap(id="key", thumb="vote", comment="note")
    assert said(columns, {"key": "c", "vote": " ", "note": "hm"}) == [("comment", None, "hm", "user")]
    with pytest.raises(SkippedRecord, match="no feedback"):
        parse(columns, {"key": "c", "vote": None, "note": ""})


def test_feedback_about_a_conversation_or_about_nothing() -> None:
    columns = ColumnMap(conversation="chat", comment="note")
    (found,) = parse(columns, {"chat": "k1", "note": "hm"})
    assert (found.target_kind, found.target) == ("conversation", "k1")
    with pytest.raises(BadRecord, match="target has no id"):
        parse(columns, {"chat": "", "note": "hm"})


def test_feedback_in_the_row_of_a_call_without_an_id_finds_it() -> None:
    columns = ColumnMap(prompt="q", completion="a", thumb="vote")
    call, vote = parse(columns, {"q": "hi", "a": "ho", "vote": "up"})
    assert vote.target == call.call_id
    again, changed = parse(columns, {"q": "hi", "a": "ho", "vote": "down"})
    assert again.call_id == call.call_id
    assert changed.feedback_id != vote.feedback_id


rows = st.dictionaries(
    st.sampled_from(
        ["question", "answer", "key", "at", "who", "chat", "m", "vote", "stars", "queue", "better", "note", "done"]
    ),
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.lists(st.integers(), max_size=2)
    | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)


@given(rows)
def test_whatever_is_in_the_cells_a_row_is_read_or_refused(row: dict[str, Any]) -> None:
    everything = ColumnMap.model_validate(
        {**CALL.model_dump(exclude_none=True), **FEEDBACK.model_dump(exclude_none=True), "metadata": ["note"]}
    )
    for columns in (everything, FEEDBACK, ColumnMap(messages="question", response="answer")):
        try:
            found = parse(columns, row)
        except (BadRecord, SkippedRecord) as error:
            assert not any(isinstance(cell, str) and len(cell) > 2 and cell in str(error) for cell in row.values())
        else:
            assert found


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"promt": "q"}, "promt: unknown key; did you mean `prompt`?"),
        ({"prompt": "q"}, "`prompt` needs `completion`"),
        ({"prompt": "q", "messages": "m", "completion": "a"}, "`messages` and `prompt` are the same thing"),
        ({"messages": "m", "completion": "a", "response": "r"}, "`response` and `completion` are the same thing"),
        ({"completion": "a"}, "an answer needs `messages` or `prompt`"),
        ({"thumb": "t"}, "expected `messages` or `prompt`, or `id`"),
        ({"id": "i"}, "expected `messages` or `prompt`, or `id`"),
    ],
)
def test_a_map_that_makes_no_sense_is_an_error_of_the_configuration(
    make_deployment: Callable[..., Any], columns: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        make_deployment(task={"logs": [{"path": "x", "columns": columns}]})
    assert message in str(error.value)
    assert "tasks.support_router.logs.0.columns" in str(error.value)
    with pytest.raises(ConfigError) as error:
        parse_columns(",".join(f"{key}={value}" for key, value in columns.items()))
    assert message in str(error.value)
    assert str(error.value).startswith("--columns: ")


def test_a_map_may_be_written_on_the_command_line() -> None:
    found = parse_columns("prompt=question, completion=answer,metadata=a,metadata=b.c")
    assert found == ColumnMap(prompt="question", completion="answer", metadata=("a", "b.c"))
    for text, message in (
        ("prompt", "name=column pairs"),
        ("prompt=a,prompt=b,completion=c", "`prompt` is there twice"),
    ):
        with pytest.raises(ConfigError, match=message):
            parse_columns(text)


TABLE = [
    {
        "key": f"c{n}",
        "question": f"q{n}\n,",
        "answer": f"a{n}",
        "at": "2026-11-01T10:00:00Z",
        "vote": ("up", "", "down")[n],
    }
    for n in range(3)
]
MAP = {"id": "key", "prompt": "question", "completion": "answer", "time": "at", "thumb": "vote"}


def as_csv(path: Path) -> None:
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(TABLE[0]))
        writer.writeheader()
        writer.writerows(TABLE)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("t.csv", as_csv),
        ("t.parquet", lambda path: pq.write_table(pa.Table.from_pylist(TABLE), path)),
        ("t.jsonl", lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in TABLE))),
        ("t.json", lambda path: path.write_text(json.dumps(TABLE, indent=2))),
    ],
)
def test_the_same_table_gives_the_same_rows_whatever_it_lies_in(
    make_deployment: Callable[..., Any],
    stored: Callable[[str], list[dict[str, Any]]],
    deployment: Any,
    tmp_path: Path,
    name: str,
    write: Callable[[Path], object],
) -> None:
    write(tmp_path / name)
    found = import_path(
        deployment.config,
        deployment.home,
        deployment.registry,
        deployment.task,
        tmp_path / name,
        columns=ColumnMap.model_validate(MAP),
    )
    assert (found.read, found.kept, found.reasons) == (3, 3, {})
    calls = {row["interaction_id"]: json.loads(row["request"])["messages"] for row in stored("interactions")}
    assert calls == {row["key"]: [{"role": "user", "content": row["question"]}] for row in TABLE}
    assert {row["target_id"]: row["value"] for row in stored("feedback")} == {"c0": "true", "c2": "false"}


def test_a_configured_table_is_read_by_its_map_and_a_column_that_is_not_there_is_named_in_the_counts(
    make_deployment: Callable[..., Any], tmp_path: Path
) -> None:
    as_csv(tmp_path / "t.csv")
    for columns, counts in (
        (MAP | {"comment": "nope"}, (3, 0, {"part dropped: no column 'nope'": 3})),
        (MAP | {"prompt": "nope"}, (0, 3, {"no column 'nope'": 3})),
    ):
        entry = {"path": str(tmp_path / "t.csv"), "format": "columns", "columns": columns}
        it = make_deployment(str(len(str(columns))), task={"logs": [entry]})
        report = run_intake(it.config, it.home, it.registry, it.task).sources[-1]
        assert (report.kept, report.quarantined, report.reasons) == counts


def test_the_recipe_for_openpipe_takes_its_logged_calls(deployment: Any, tmp_path: Path) -> None:
    row = {
        "requestedAt": 1764500000000,
        "receivedAt": 1764500001200,
        "statusCode": 200,
        "reqPayload": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
        "respPayload": {"id": "c1", "choices": [{"message": {"role": "assistant", "content": "hello"}}]},
        "tags": {"prompt_id": "greet", "thumb": "up"},
    }
    failed = row | {"statusCode": 500, "respPayload": None, "tags": {"prompt_id": "greet", "thumb": None}}
    recipe = (Path(__file__).parents[2] / "docs" / "bring_your_logs.md").read_text().partition("## OpenPipe")[2]
    columns = recipe.partition("--columns ")[2].split()[0]
    path = tmp_path / "openpipe.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps(failed) + "\n")
    found = import_path(
        deployment.config, deployment.home, deployment.registry, deployment.task, path, columns=parse_columns(columns)
    )
    assert (found.kept, found.quarantined, found.reasons) == (2, 0, {})
