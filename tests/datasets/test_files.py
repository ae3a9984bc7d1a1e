from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flywheel.datasets import DatasetBuild, from_jsonl, load_examples
from flywheel.errors import DatasetError

Files = Callable[..., DatasetBuild]


@pytest.fixture
def train_on(deployment: Any, tmp_path: Path) -> Files:
    """``train_on(train_rows, val_rows)`` -> DatasetBuild; rows are objects, or the bytes of a whole file."""

    def write(name: str, rows: Any) -> Path:
        path = tmp_path / name
        path.write_bytes(rows if isinstance(rows, bytes) else "\n".join(json.dumps(row) for row in rows).encode())
        return path

    def run(train: Any, val: Any = None) -> DatasetBuild:
        at = deployment
        paths = write("train.jsonl", train), None if val is None else write("val.jsonl", val)
        return from_jsonl(at.config, at.home, at.registry, at.task, *paths)

    return run


def pairs(deployment: Any, built: DatasetBuild, side: str) -> set[tuple[str, str]]:
    rows = [json.loads(row["messages"]) for row in load_examples(deployment.home, built.digest) if row["side"] == side]
    assert all(messages[0] == {"role": "system", "content": "Route the message to a queue."} for messages in rows)
    return {(messages[-2]["content"], messages[-1]["content"]) for messages in rows}


def test_all_three_shapes_are_read(train_on: Files, deployment: Any) -> None:
    said = [{"role": "user", "content": "third of them"}, {"role": "assistant", "content": "c"}]
    rows = [{"text": "first one", "label": "a"}, {"prompt": "second item", "completion": " b\n"}, {"messages": said}]
    rows.append({"text": "a number it is", "label": 4})
    built = train_on(rows, [{"text": "entirely different", "label": "a"}])
    assert pairs(deployment, built, "train") == {
        ("first one", "a"),
        ("second item", "b"),
        ("third of them", "c"),
        ("a number it is", "4"),
    }
    assert pairs(deployment, built, "val") == {("entirely different", "a")}
    assert built.manifest["rows"] == {"train": 4, "val": 1, "new": 5, "replay": 0, "anchor": 0}
    assert built.manifest["labels"] == {"file": 5}


def test_marks_line_ends_and_blank_lines_do_not_matter(train_on: Files) -> None:
    rows = [{"text": f"text number {n * 77777}", "label": "x"} for n in range(5)]
    plain = train_on(rows)
    lines = [json.dumps(row).encode() for row in rows]
    assert train_on(b"\xef\xbb\xbf" + b"\r\n\r\n".join(lines) + b"\r\n  \n").digest == plain.digest
    assert train_on(rows[::-1]).digest == plain.digest


def test_bad_rows_are_named_by_line_and_not_quoted(train_on: Files) -> None:
    lines = [
        b'{"text": "fine", "label": "a"}',
        b'{"text": "SECRET"}',
        b'{"text": "SECRET", "label": ',
        b'"SECRET"',
        b'{"messages": [{"role": "user", "content": "SECRET"}]}',
        b'{"text": "SECRET", "label": ""}',
        b'{"text": "  ", "label": "SECRET"}',
        b'{"text": "SECRET\xff", "label": "a"}',
        b'{"text": "SECRET", "label": ["SECRET"]}',
        b'{"text": "SECRET \\ud800", "label": "a"}',
        b'{"text": "SECRET", "label": "a", "weight": -1}',
        b'{"messages": [{"role": "user", "content": 5}, {"role": "assistant", "content": "SECRET"}]}',
        b'{"text": "SECRET", "label": "a", "user": 7}',
    ]
    with pytest.raises(DatasetError) as error:
        train_on(b"\n".join(lines))
    told = str(error.value).splitlines()
    assert [line.split("train.jsonl:")[1].split(":")[0] for line in told[:-1]] == [str(n) for n in range(2, 12)]
    assert told[-1] == "and 2 more bad rows"
    assert "SECRET" not in str(error.value)


def test_training_rows_near_the_evaluation_file_are_dropped_and_counted(train_on: Files, deployment: Any) -> None:
    near = "where on earth is the parcel that I ordered last week"
    train = [
        {"text": "Same Prompt", "label": "a"},
        {"text": near + "?", "label": "a"},
        {"text": "of a judge's own", "label": "a", "user": "judge"},
        {"text": "nothing like it", "label": "a"},
    ]
    val = [
        {"text": "same  prompt", "label": "b"},
        {"text": near, "label": "a"},
        {"text": "x", "label": "y", "user": "judge"},
    ]
    built = train_on(train, val)
    assert pairs(deployment, built, "train") == {("nothing like it", "a")}
    assert built.manifest["dropped"] == {"eval_copy": 1, "eval_near_copy": 1, "eval_user": 1}
    assert built.manifest["considered"] == built.new + 3
    assert built.manifest["firewall"] == {"stopped": 3, "screened": 4, "share": 0.75, "warn": True}


def test_without_an_evaluation_file_a_share_is_set_apart(train_on: Files) -> None:
    rows = [{"text": f"{n * 7919} a text of its own {n * 104729}", "label": "x"} for n in range(40)]
    built = train_on(rows)
    assert (built.train, built.val) == (36, 4)


def test_the_same_prompt_with_two_answers_is_settled_by_majority(train_on: Files, deployment: Any) -> None:
    rows = [{"text": "hi", "label": label} for label in ("a", "a", "b")] + [{"text": "bye now", "label": "c"}]
    built = train_on(rows, [{"text": "zzz", "label": "a"}])
    assert pairs(deployment, built, "train") == {("hi", "a"), ("bye now", "c")}
    assert built.manifest["dropped"] == {"contradiction": 1, "duplicate": 1}


def test_nothing_left_to_train_on_is_an_error(train_on: Files) -> None:
    row = {"text": "only one", "label": "a"}
    with pytest.raises(DatasetError, match="no row is left to train on"):
        train_on([row], [row])
    with pytest.raises(DatasetError, match="no rows"):
        train_on(b"\n\n")


def test_a_missing_file_is_one_clear_line(deployment: Any, tmp_path: Path) -> None:
    at = deployment
    with pytest.raises(DatasetError, match=r"absent\.jsonl: cannot be read"):
        from_jsonl(at.config, at.home, at.registry, at.task, tmp_path / "absent.jsonl")
