"""``flywheel erase`` as an operator uses it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.store.registry import schema

PERSON, MARK = "ada@example.org", "quokka"


class Terminal(io.StringIO):
    """Standard input that a person sits at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, flywheel: Any) -> Callable[..., tuple[int, str, str]]:
    """``command(wheel, "--user", ..., answer=None)`` -> exit code, output, errors; ``answer`` is typed by a person."""

    def run(wheel: Any, *words: str, answer: str | None = None, name: str = "erase") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO() if answer is None else Terminal(answer))
        ran = flywheel(name, *words, "-c", wheel.path)
        return ran.code, ran.out, ran.err

    return run


def erasures(wheel: Any) -> list[dict[str, Any]]:
    with wheel.registry.read() as tx:
        return list(tx.rows(sa.select(schema.erasures)))


def test_a_dry_run_shows_the_plan_and_names_nobody(drawn: Any, command: Any) -> None:
    code, out, err = command(drawn, "--user", PERSON, "--dry-run")
    assert code == 0 and "interactions" in out and "datasets that get a successor" in out
    assert PERSON not in out + err and MARK not in out + err
    code, out, _ = command(drawn, "--user", PERSON, "--dry-run", "--json")
    plan = json.loads(out)
    assert plan["found"] and plan["counts"]["interactions"] == 48 and plan["before"] is None
    assert erasures(drawn) == []


def test_nothing_is_erased_without_a_yes(drawn: Any, command: Any) -> None:
    code, out, err = command(drawn, "--user", PERSON)
    assert (code, out) == (2, "") and "add --yes" in err
    code, out, _ = command(drawn, "--user", PERSON, answer="n\n")
    assert code == 1 and "Would be erased" in out
    assert erasures(drawn) == []
    assert command(drawn, answer="y\n")[0] == 2, "nobody named"


def test_a_yes_at_the_terminal_erases_and_nothing_said_or_stored_has_the_id(
    drawn: Any, command: Any, search: Any
) -> None:
    code, out, err = command(drawn, "--user", PERSON, answer="y\n")
    assert code == 0 and "Erased" in out
    assert PERSON not in out + err and MARK not in out + err
    assert search(drawn.home, PERSON, MARK) == []
    (row,) = erasures(drawn)
    assert (row["user_key"], row["state"]) == (drawn.home.user_key(PERSON), "done")
    code, out, _ = command(drawn, "--user", PERSON, "--yes")
    assert code == 0 and "nothing of this user was found" in out
    code, out, _ = command(drawn, "--user", "stranger", "--yes", "--json")
    assert code == 0 and json.loads(out)["counts"] == {}
    assert len(erasures(drawn)) == 2


def test_an_unfinished_erasure_is_shown_by_status_and_list_until_it_is_run_again(drawn: Any, command: Any) -> None:
    assert command(drawn, "--user", PERSON, "--yes")[0] == 0
    with drawn.registry.write() as tx:
        tx.execute(sa.update(schema.erasures).values(state="running"))
    assert "is unfinished, and no loop can start" in command(drawn, name="status")[1]
    assert "is unfinished: run `flywheel erase` for the same user again" in command(drawn, "--list")[1]
    code, out, _ = command(drawn, "--user", PERSON, "--yes")
    assert code == 0 and "nothing of this user was found" in out
    assert "unfinished" not in command(drawn, name="status")[1] + command(drawn, "--list")[1]


def test_a_tainted_champion_is_shown_with_the_way_back(turned: Any, command: Any) -> None:
    name = f"{turned.task}@{turned.champion().release[:12]}"
    _, before, _ = command(turned, "--user", PERSON, "--dry-run")
    code, out, _ = command(turned, "--user", PERSON, "--yes")
    listed = command(turned, "--list")[1]
    for said in (before, out, listed):
        assert f"the champion {name} is among them" in said and f"flywheel rollback --task {turned.task} --to " in said
    assert "the champion has learned from erased rows" in command(turned, name="status")[1]
    code, out, _ = command(turned, "--list", "--json")
    assert code == 0 and json.loads(out)[0]["tainted"][0]["champion"] == name


def test_log_files_of_the_operators_own_are_named_with_their_rows_and_left_alone(
    make_wheel: Any, command: Any, tmp_path: Path
) -> None:
    from flywheel.intake import import_path

    wheel = make_wheel()
    own, other = tmp_path / "own.jsonl", tmp_path / "imported.jsonl"
    wheel.set(logs=[str(own)])
    for path, users in ((own, [PERSON, PERSON, "bob"]), (other, ["bob", PERSON])):
        rows = [
            {"request": {"messages": [{"role": "user", "content": f"{MARK} {path.name} {n}"}], "user": user},
             "response": {"id": f"{path.stem}-{n}", "choices": [{"message": {"role": "assistant", "content": "x"}}]}}
            for n, user in enumerate(users)
        ]  # fmt: skip
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_path(wheel.config, wheel.home, wheel.registry, wheel.task, other)
    before = own.read_bytes(), other.read_bytes()
    code, out, _ = command(wheel, "--user", PERSON, "--yes", "--json")
    assert code == 0
    assert json.loads(out)["foreign"] == [
        {"task": wheel.task, "path": str(other), "rows": 1}, {"task": wheel.task, "path": str(own), "rows": 2},
    ]  # fmt: skip
    assert (own.read_bytes(), other.read_bytes()) == before
    assert json.loads(out)["counts"] == {"interactions": 1}
