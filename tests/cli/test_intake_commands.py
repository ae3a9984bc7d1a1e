"""``flywheel intake``: what it shows before, while and after it takes records in, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flywheel.intake import intake_digest
from flywheel.store.segments import read_rows


@pytest.fixture
def at(make_wheel: Any, traffic_of: Any, tmp_path: Path) -> Any:
    """A wheel with ``file(*records)``, which writes a file to import, and ``where``, the options that name it."""
    wheel = make_wheel()
    wheel.traffic = traffic_of(wheel.home)
    wheel.where = ["-t", wheel.task, "-c", wheel.path]

    def file(*records: Any) -> Path:
        lines = [r if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in records]
        (tmp_path / "import.jsonl").write_bytes(b"".join(lines))
        return tmp_path / "import.jsonl"

    wheel.file = file
    return wheel


def test_an_import_first_shows_the_format_and_three_records(flywheel: Any, at: Any) -> None:
    calls = [at.traffic.call(n, text=f"text {n}", user="ann") for n in range(5)]
    done = flywheel("intake", "import", at.file(*calls), *at.where)
    assert done.code == 0, done.err
    before, counts = done.out.split("Reconciliation")
    assert "format gateway: 5 of the first 5 records, because its records have `v`" in before
    assert [f"text {n}" in before for n in range(5)] == [True] * 3 + [False] * 2
    assert before.count("user key") == 3 and "ann" not in done.out
    assert re.search(r"│ 5 +│ 5 +│ 0 ", counts)


def test_the_preview_can_be_switched_off_and_is_data_with_json(flywheel: Any, at: Any) -> None:
    path = at.file(at.traffic.call(1, text="a secret"))
    quiet = flywheel("intake", "import", path, "--no-preview", "--dry-run", *at.where)
    assert quiet.code == 0 and "secret" not in quiet.out + quiet.err
    shown = flywheel("intake", "import", path, "--dry-run", "--json", *at.where).json
    assert [record["asked"] for record in shown["preview"]["records"]] == ["a secret"]
    assert (shown["dry_run"], shown["read"], shown["kept"]) == (True, 1, 1)
    assert "preview" not in flywheel("intake", "import", path, "--no-preview", "--json", *at.where).json


def test_a_dry_run_stores_nothing_and_exits_as_the_import_would(flywheel: Any, at: Any) -> None:
    path = at.file(at.traffic.call(1), b"broken\n")
    dry = flywheel("intake", "import", path, "--dry-run", *at.where)
    assert (dry.code, "1 of 2 records would be in quarantine" in dry.err) == (2, True)
    assert "nothing was stored" in dry.out
    assert read_rows(at.home, at.registry, "interactions", at.task, "ts") == []
    assert flywheel("intake", "import", path, *at.where).code == 2
    assert len(read_rows(at.home, at.registry, "interactions", at.task, "ts")) == 1


def test_blank_lines_do_not_save_an_import_that_parses_too_little(flywheel: Any, at: Any) -> None:
    calls = [at.traffic.call(n) for n in range(9)]
    assert flywheel("intake", "import", at.file(*calls, b"broken\n", b"\n" * 500), *at.where).code == 2


def test_history_shows_every_run_and_what_lies_in_quarantine(flywheel: Any, at: Any) -> None:
    flywheel("intake", "import", at.file(at.traffic.call(1), b"broken\n"), *at.where)
    flywheel("intake", "quarantine", "replay", *at.where)
    shown = flywheel("intake", "history", "--reasons", *at.where)
    assert shown.code == 0
    assert all(word in shown.out for word in ("import", "replay", "not"))  # the columns are narrow
    assert "replayed from quarantine 1, so in quarantine now 1" in shown.out
    data = flywheel("intake", "history", "--json", *at.where).json
    assert [(row["run"].split(" ")[0], row["read"]) for row in data["runs"]] == [("replay", 1), ("import", 2)]
    assert data["all"]["in_quarantine"] == 1


def test_quarantine_is_listed_shown_and_replayed(flywheel: Any, at: Any) -> None:
    path = at.file(
        at.traffic.call(1), b'{"wrong": "a \\u001b[31msecret"}\n', *[at.traffic.call(n) for n in range(2, 30)]
    )
    flywheel("intake", "import", path, "--no-preview", *at.where)
    (row,) = flywheel("intake", "quarantine", "list", "--json", *at.where).json
    assert (row["reason"], row["records"], row["source"]) == ("no known log format", 1, str(path))
    assert "no known log" in flywheel("intake", "quarantine", "list", *at.where).out
    (entry,) = flywheel("intake", "quarantine", "show", "--json", *at.where).json
    assert (entry["line"], entry["reason"]) == (2, "no known log format")
    assert path.read_bytes()[entry["offset"] :].startswith(b'{"wrong"')
    assert "secret" not in flywheel("intake", "quarantine", "show", *at.where).out
    raw = flywheel("intake", "quarantine", "show", "--raw", *at.where).out
    assert "offset" in raw and "secret" in raw and "\x1b" not in raw
    done = flywheel("intake", "quarantine", "replay", "--json", *at.where).json
    assert done["sources"][0]["quarantined"] == 1 and done["left"] == []
    path.unlink()
    gone = flywheel("intake", "quarantine", "replay", *at.where)
    assert gone.code == 0 and "its file is gone" in gone.out.replace("\n", " ")


def test_a_backfill_takes_in_what_is_of_its_days(flywheel: Any, at: Any) -> None:
    at.traffic.write(at.traffic.call(0), at.traffic.call(86_400))
    done = flywheel("intake", "backfill", "--from", "2025-03-02", "--to", "2025-03-02", "--json", *at.where)
    assert done.code == 0, done.err
    (source,) = done.json["sources"]
    assert (source["read"], source["kept"], source["skipped"]) == (2, 1, 1)
    wrong = flywheel("intake", "backfill", "--from", "2025-03-02", "--to", "2025-03-01", *at.where)
    assert wrong.code == 2 and wrong.err.startswith("error: the last day")


SLOW = """
import sys, time
import flywheel.intake.reading as reading
from flywheel.cli.__main__ import main
from flywheel.intake.chunk import ChunkWriter

reading.CHUNK_RECORDS = 5
take = ChunkWriter.take

def slowly(self, *args, **kwargs):
    done = take(self, *args, **kwargs)
    print("chunk", flush=True)
    time.sleep(0.3)
    return done

ChunkWriter.take = slowly
main()
"""


def test_an_interrupted_import_says_how_to_go_on_and_the_same_command_does(
    flywheel: Any, at: Any, make_wheel: Any
) -> None:
    path = at.file(*(at.traffic.call(n) for n in range(60)))
    words = ["intake", "import", path, "--no-preview", *at.where]
    child = subprocess.Popen(
        [sys.executable, "-c", SLOW, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "chunk\n"
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "the same command goes on from there" in err and "Traceback" not in err
    kept = len(read_rows(at.home, at.registry, "interactions", at.task, "ts"))
    assert 10 <= kept < 60
    rest = flywheel(*words, "--json").json
    assert (rest["read"], rest["duplicate"]) == (60 - kept, 0)
    calm = make_wheel("calm")
    (calm.home.root / "secret.key").write_bytes((at.home.root / "secret.key").read_bytes())
    flywheel("intake", "import", path, "--no-preview", "-t", calm.task, "-c", calm.path)
    assert intake_digest(at.home, at.registry, at.task) == intake_digest(calm.home, calm.registry, calm.task)


def test_tail_takes_in_what_comes_a_line_each_time_until_ctrl_c(at: Any) -> None:
    words = ["intake", "tail", "--interval", "0.1", "--json", *at.where]
    child = subprocess.Popen(
        [sys.executable, "-m", "flywheel.cli.__main__", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        seen = 0
        for number in range(2):
            at.traffic.write(at.traffic.call(2 * number), at.traffic.call(2 * number + 1))
            while seen < 2 * number + 2:
                line = json.loads(child.stdout.readline())
                assert line["read"] == line["kept"]
                seen += line["kept"]
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert (child.returncode, out) == (0, "")
    assert "Traceback" not in err and err.endswith("stopped; the next run goes on from here\n")
    assert len(read_rows(at.home, at.registry, "interactions", at.task, "ts")) == 4


def test_tail_takes_turns_with_an_intake_that_runs(at: Any) -> None:
    from flywheel.store.files import locked

    words = ["intake", "tail", "--interval", "0.1", "--json", *at.where]
    with locked(at.home.locks / f"intake-{at.task}.lock"):
        at.traffic.write(at.traffic.call(1))
        child = subprocess.Popen(
            [sys.executable, "-m", "flywheel.cli.__main__", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stderr is not None and "following" in child.stderr.readline()
        time.sleep(1)
        assert child.poll() is None
    try:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["kept"] == 1
    finally:
        child.kill()
        child.communicate()
