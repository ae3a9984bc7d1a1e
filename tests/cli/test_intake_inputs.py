"""What `flywheel intake import` and `flywheel config check` take for a place, a table and a format of one's own."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from flywheel.intake.inflate import ENDS_EARLY


@pytest.fixture
def where(make_wheel: Any) -> Any:
    wheel = make_wheel()
    return ["-t", wheel.task, "-c", wheel.path]


def test_a_table_is_imported_by_the_columns_that_the_command_names(flywheel: Any, where: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("question,reply,vote\nhi,hello,up\nhow,fine,\n")
    columns = "prompt=question,completion=reply,thumb=vote"
    done = flywheel("intake", "import", path, "--columns", columns, "--json", *where)
    assert (done.code, done.json["kept"]) == (0, 2)
    assert done.json["preview"]["formats"][0]["format"] == "columns"


def test_columns_that_make_no_sense_are_refused_in_one_line(flywheel: Any, where: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("question,reply\nhi,hello\n")
    done = flywheel("intake", "import", path, "--columns", "promt=question", *where)
    assert done.code == 2
    assert "--columns: promt: unknown key; did you mean `prompt`?" in done.err
    done = flywheel("intake", "import", path, *where)
    assert (done.code, "needs a map of its columns" in done.err) == (2, True)


def test_a_glob_and_a_url_are_places_to_import(flywheel: Any, where: Any, tmp_path: Path) -> None:
    row = '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "id": "c%d"}\n'
    for n in range(2):
        (tmp_path / f"{n}.log").write_text(row % n)
    assert flywheel("intake", "import", f"{tmp_path}/*.log", "--json", *where).json["kept"] == 2
    assert flywheel("intake", "import", f"file://{tmp_path}/0.log", "--json", *where).json["duplicate"] == 1
    done = flywheel("intake", "import", "nowhere://x/y", *where)
    assert (done.code, "nowhere://x/y: no such kind of place" in done.err) == (2, True)


def test_config_check_looks_at_places_and_formats(flywheel: Any, make_wheel: Any, tmp_path: Path) -> None:
    wheel = make_wheel()
    wheel.set(logs=[str(tmp_path / "*.log"), {"path": str(tmp_path), "format": "langfuze"}])
    done = flywheel("config", "check", "-c", wheel.path)
    assert done.code == 2
    assert f"nothing is at {tmp_path}/*.log yet" in done.err
    assert "unknown log format 'langfuze'" in done.err
    raw = yaml.safe_load(wheel.path.read_text())
    wheel.path.write_text(yaml.safe_dump(raw | {"formats": ["gone.py"]}))
    done = flywheel("config", "check", "-c", wheel.path)
    assert (done.code, "gone.py: no such file" in done.err) == (2, True)


def test_a_file_without_records_is_told_so(flywheel: Any, where: Any, tmp_path: Path) -> None:
    (tmp_path / "blank.jsonl").write_text("\n\n   \n")
    (tmp_path / "empty.jsonl").touch()
    for name in ("blank", "empty"):
        done = flywheel("intake", "import", tmp_path / f"{name}.jsonl", *where)
        assert (done.code, "no records" in done.out, "none of its first" in done.out + done.err) == (0, True, False)
    done = flywheel("intake", "import", "/dev/null", *where)
    assert (done.code, "/dev/null: no records" in done.err) == (2, True)


def test_an_import_of_a_file_that_cannot_be_read_to_its_end_exits_2_each_time(
    flywheel: Any, where: Any, tmp_path: Path
) -> None:
    row = b'{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "id": "c1"}\n'
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(row)[:-4])
    for read in (1, 0):
        done = flywheel("intake", "import", path, "--json", *where)
        assert (done.code, done.json["kept"], done.json["faults"]) == (2, read, [ENDS_EARLY])
        assert f"{path}: not read to its end: {ENDS_EARLY}" in done.err
    assert flywheel("intake", "import", path, "--dry-run", *where).code == 2


def test_a_place_that_cannot_be_reached_or_holds_a_password_is_told_in_words(flywheel: Any, where: Any) -> None:
    done = flywheel("intake", "import", "http://127.0.0.1:1/x.jsonl", *where)
    assert (done.code, "not found, or cannot be reached: " in done.err) == (2, True)
    done = flywheel("intake", "import", "https://user:PW@127.0.0.1:1/x.jsonl", *where)
    assert (done.code, "holds no user or password" in done.err, "PW" in done.out + done.err) == (2, True, False)


def test_a_file_name_of_any_bytes_is_imported_and_shown_written_out(flywheel: Any, where: Any, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(str(tmp_path)) + b"/caf\xe9\n.jsonl"))
    path.write_text(
        '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "id": "c1"}\nbroken\n'
    )
    done = flywheel("intake", "import", path, "--json", *where)
    assert (done.json["source"], done.json["kept"]) == (f"{tmp_path}/caf\\xe9\\n.jsonl", 1)
    for command in (["import", path], ["history"], ["quarantine", "list"]):
        done = flywheel("intake", *command, *where)
        assert "caf\\xe9\\n.jsonl" in "".join(done.out.split()).replace("\u2502", "")
