"""When an import went wrong: a wrong format, wrong columns, an interruption, a name that was shortened."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flywheel.store.files import locked
from flywheel.store.segments import read_rows


def pair(number: int) -> dict[str, Any]:
    said = {"index": 0, "message": {"role": "assistant", "content": f"sales {number}"}, "finish_reason": "stop"}
    request = {"model": "m", "messages": [{"role": "user", "content": f"text {number}"}]}
    return {"timestamp": 1764500000, "request": request, "response": {"id": f"c{number}", "choices": [said]}}


@pytest.fixture
def at(make_wheel: Any, tmp_path: Path) -> Any:
    """A wheel with ``where``, the options that name it, and ``pairs``, a file of ten calls."""
    wheel = make_wheel()
    wheel.where = ["-t", wheel.task, "-c", wheel.path]
    wheel.pairs = tmp_path / "pairs.jsonl"
    wheel.pairs.write_text("".join(json.dumps(pair(number)) + "\n" for number in range(10)))
    return wheel


def stored(at: Any, table: str = "interactions") -> int:
    return len(read_rows(at.home, at.registry, table, at.task, "ts"))


def test_an_import_under_a_wrong_format_says_so_and_is_repaired_by_reading_again(flywheel: Any, at: Any) -> None:
    wrong = flywheel("intake", "import", at.pairs, "--format", "langfuse", "--no-preview", *at.where)
    assert wrong.code == 2 and "not a record of the format langfuse: 10" in wrong.out
    assert "10 of 10 records are in quarantine; are --format and --columns right?" in wrong.err
    plain = flywheel("intake", "import", at.pairs, "--no-preview", *at.where)
    assert plain.code == 0
    assert re.search(r"nothing new since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC; to read it again: --again", plain.err)
    again = flywheel("intake", "import", at.pairs, "--again", "--no-preview", "--json", *at.where)
    assert (again.code, again.json["replayed"]["sources"][0]["kept"], again.json["duplicate"]) == (0, 10, 10)
    assert (stored(at), stored(at, "quarantine")) == (10, 0)
    runs = flywheel("intake", "history", "--json", *at.where).json
    assert runs["all"]["in_quarantine"] == 0
    assert flywheel("intake", "import", at.pairs, "--no-preview", "--json", *at.where).json["read"] == 0


def test_what_was_skipped_or_left_out_is_read_again_and_quarantine_grows_no_second_row(flywheel: Any, at: Any) -> None:
    at.pairs.write_text(at.pairs.read_text() + "broken\n")
    flywheel("intake", "import", at.pairs, "--no-preview", *at.where)
    for _ in range(2):
        again = flywheel("intake", "import", at.pairs, "--again", "--no-preview", "--json", *at.where)
        assert (again.json["read"], again.json["duplicate"], again.json["skipped"]) == (11, 10, 1)
        assert again.code == 2, "a twentieth is still in quarantine"
        assert stored(at, "quarantine") == 1
        assert flywheel("intake", "history", "--json", *at.where).json["all"]["in_quarantine"] == 1


def test_wrong_columns_are_repaired_by_replaying_with_the_right_ones(flywheel: Any, at: Any, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("question,reply\nhi,hello\nhow,fine\n")
    flywheel("intake", "import", table, "--columns", "prompt=quest,completion=reply", "--no-preview", *at.where)
    flywheel("intake", "quarantine", "replay", *at.where)
    (row,) = flywheel("intake", "quarantine", "list", "--json", *at.where).json
    assert row["reason"] == "no column 'quest'", "a replay without columns knows less than the import did"
    right = "prompt=question,completion=reply"
    done = flywheel("intake", "quarantine", "replay", "--columns", right, "--json", *at.where)
    assert done.json["sources"][0]["kept"] == 2


def test_a_replay_reads_a_source_as_the_configuration_says(flywheel: Any, at: Any, tmp_path: Path) -> None:
    table = tmp_path / "tables" / "t.csv"
    table.parent.mkdir()
    table.write_text("question,reply\nhi,hello\n")
    flywheel("intake", "import", table, "--columns", "prompt=quest,completion=reply", "--no-preview", *at.where)
    at.set(logs=[{"path": str(table.parent), "columns": {"prompt": "question", "completion": "reply"}}])
    done = flywheel("intake", "quarantine", "replay", "--json", *at.where)
    assert done.json["sources"][0]["kept"] == 1


def test_a_dry_run_reads_from_the_start_whatever_was_imported(flywheel: Any, at: Any) -> None:
    flywheel("intake", "import", at.pairs, "--no-preview", *at.where)
    dry = flywheel("intake", "import", at.pairs, "--dry-run", "--json", *at.where).json
    assert (dry["read"], dry["kept"], dry["preview"]["looked_at"]) == (10, 10, 10)


def test_a_source_is_named_as_the_tables_show_it(
    flywheel: Any, at: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at.pairs.write_text("broken\n" + at.pairs.read_text())
    flywheel("intake", "import", at.pairs, "--no-preview", *at.where)
    monkeypatch.chdir(tmp_path)
    for name in (str(at.pairs), "pairs.jsonl", "./pairs.jsonl", f"\N{HORIZONTAL ELLIPSIS}{str(at.pairs)[-16:]}"):
        show = flywheel("intake", "quarantine", "show", "--source", name, "--json", *at.where)
        assert (show.code, len(show.json)) == (0, 1), name
        runs = flywheel("intake", "history", "--source", name, "--limit", "1", "--json", *at.where).json["runs"]
        assert [row["source"] for row in runs] == [str(at.pairs)]
        assert flywheel("intake", "quarantine", "replay", "--source", name, "--json", *at.where).code == 0
        assert len(flywheel("intake", "quarantine", "list", "--source", name, "--json", *at.where).json) == 1


def test_a_source_that_is_not_there_is_an_error_that_lists_those_that_are(flywheel: Any, at: Any) -> None:
    flywheel("intake", "import", at.pairs, "--no-preview", *at.where)
    for words in (["history"], ["quarantine", "show"], ["quarantine", "replay"]):
        done = flywheel("intake", *words, "--source", "nothing.jsonl", *at.where)
        assert (done.code, str(at.pairs) in done.err) == (2, True)


def test_tables_fit_eighty_columns_and_reasons_stand_below_them(
    flywheel: Any, at: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / ("a" * 60) / "pairs.jsonl"
    path.parent.mkdir()
    path.write_text(at.pairs.read_text() + "broken\n")
    done = flywheel("intake", "import", path, "--no-preview", *at.where)
    table, below = done.out.rsplit("\u2518", 1)
    header = table.splitlines()[2]
    assert all(name in header for name in ("source", "read", "kept", "duplicate", "quarantined", "skipped", "late"))
    assert header.index("skipped") < header.index("late"), "late is a part of kept, no summand"
    assert "/pairs.jsonl" in table and len(table.splitlines()) == 6
    assert f"{path}: not JSON: 1" in below
    assert max(map(len, table.splitlines())) <= 80
    shown = flywheel("intake", "history", "--reasons", *at.where).out
    assert "not JSON: 1\n" in shown and "quarantined" in shown
    assert "--format" not in done.err and "flywheel intake quarantine show" in done.err


def test_a_day_that_does_not_exist_is_an_error_of_ours(flywheel: Any, at: Any) -> None:
    done = flywheel("intake", "backfill", "--from", "2026-13-01", "--to", "2026-12-01", *at.where)
    assert (done.code, done.err) == (2, "error: --from 2026-13-01: no such day; write it as YYYY-MM-DD\n")


def start(*words: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "flywheel.cli.__main__", "intake", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_import_that_waits_says_so_and_one_that_is_stopped_early_says_how_to_go_on(
    at: Any, number: int, code: int
) -> None:
    with locked(at.home.locks / f"intake-{at.task}.lock"):
        child = start("import", at.pairs, "--no-preview", *at.where)
        assert child.stderr is not None
        assert child.stderr.readline() == "another process takes records of this task in; waiting for it\n"
        child.send_signal(number)
        _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (
        code,
        "stopped before the first records were stored; the same command begins anew\n",
    )


def test_sigterm_in_the_middle_ends_the_workers_in_order(at: Any, tmp_path: Path) -> None:
    big = tmp_path / "big.jsonl"
    with big.open("w") as lines:
        for number in range(60_000):
            lines.write(json.dumps(pair(number)) + "\n")
    child = start("import", big, "--no-preview", "--workers", "2", *at.where)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not stored(at):
        time.sleep(0.1)
    os.kill(child.pid, signal.SIGTERM)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 143
    assert re.fullmatch(
        r"stopped. What became of the \d+ records read so far stays; the same command goes on from there\n", err
    )
