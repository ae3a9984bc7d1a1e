"""What `flywheel intake import` and `flywheel config check` take for a place, a table and a format of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml


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
