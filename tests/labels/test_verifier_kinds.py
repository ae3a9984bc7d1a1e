"""The four kinds of verifiers: what each finds right and wrong, and when it cannot say."""

from __future__ import annotations

import itertools
import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from flywheel.config_verify import VerifierEntry
from flywheel.errors import ConfigError
from flywheel.labels.verify import sqlite
from flywheel.labels.verify.answers import Answer
from flywheel.labels.verify.checks import LONGEST, verifier

_NUMBERS = itertools.count()

Checked = Callable[..., tuple[bool | None, str]]


def answer(text: str | None = "billing", *, prompt: str = "Where is it?", **message: Any) -> Answer:
    request = {"messages": [{"role": "system", "content": "Route."}, {"role": "user", "content": prompt}]}
    response = {"message": {"role": "assistant", "content": text, **message}, "finish_reason": "stop"}
    return Answer("c1", json.dumps(request), json.dumps(response))


@pytest.fixture
def check(tmp_path: Path) -> Any:
    """``check(answer, kind=...)`` -> what a verifier of that kind finds; files are in the test's folder."""
    with ExitStack() as stack:

        def find(about: Answer, **kind: Any) -> tuple[bool | None, str]:
            entry = VerifierEntry.model_validate({"name": "own", **kind}).based_in(tmp_path)
            return verifier(entry).load(stack)(about)

        yield find


def version(folder: Path, **kind: Any) -> str:
    return verifier(VerifierEntry.model_validate({"name": "own", **kind}).based_in(folder)).version


CALL = [{"id": "t1", "type": "function", "function": {"name": "refund", "arguments": "{}"}}]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("billing", True),
        ("  sales\n", True),
        ("billing please", False),
        ("BILLING", False),
        ("", None),
        ("billing" * LONGEST, None),
    ],
)
def test_a_regex_must_match_the_whole_stripped_answer(check: Checked, text: str, found: bool | None) -> None:
    assert check(answer(text), regex="billing|sales") == (found, "")


def test_a_regex_has_its_flags_inside(check: Checked) -> None:
    assert check(answer("BILLING\nplease"), regex="(?is)billing.*") == (True, "")


@pytest.mark.parametrize("kind", [{"regex": ".*"}, {"schema": "any.json"}])
def test_an_answer_that_only_calls_tools_has_no_text_to_check(
    check: Checked, tmp_path: Path, kind: dict[str, str]
) -> None:
    (tmp_path / "any.json").write_text("{}")
    assert check(answer(None, tool_calls=CALL), **kind) == (None, "")


SCHEMA = {"type": "object", "properties": {"queue": {"enum": ["billing", "sales"]}}, "required": ["queue"]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"queue": "sales"}', True),
        (' {"queue": "sales", "why": 1}\n', True),
        ('{"queue": "other"}', False),
        ("{}", False),
        ('"sales"', False),
        ("sales", False),
        ('{"queue": "sales"} I hope', False),
        ('{"queue": NaN}', False),
        ("[" * 5000, False),
    ],
)
def test_a_schema_asks_for_json_and_nothing_else(check: Checked, tmp_path: Path, text: str, found: bool) -> None:
    (tmp_path / "answer.json").write_text(json.dumps(SCHEMA))
    assert check(answer(text), schema="answer.json") == (found, "")


def test_a_schema_fetches_nothing(check: Checked, tmp_path: Path, judge_server: Any) -> None:
    (tmp_path / "answer.json").write_text(json.dumps({"$ref": f"{judge_server.url}/schema.json"}))
    with pytest.raises(Exception, match=r"schema\.json"):
        check(answer("{}"), schema="answer.json")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{", "is not JSON with a schema in it"),
        ("5", "is not JSON with"),
        ("[]", "is no JSON Schema"),
        ('{"type": 1}', "is no JSON Schema: "),
    ],
)
def test_a_schema_that_is_none_is_refused(check: Checked, tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "answer.json").write_text(source)
    with pytest.raises(ConfigError, match=message):
        check(answer(), schema="answer.json")


def test_user_code_sees_the_messages_and_the_answer(check: Checked, tmp_path: Path) -> None:
    (tmp_path / "verify_seen.py").write_text(
        "def verify(messages, answer):\n"
        "    return messages[-1]['content'] == 'Where is it?' and answer['content'] == 'billing'\n"
    )
    assert check(answer(), python="verify_seen:verify") == (True, "")


def returning(folder: Path, expression: str) -> str:
    """The import path of a verifier in a module that no other test has."""
    name = f"verify_returns_{next(_NUMBERS)}"
    (folder / f"{name}.py").write_text(f"def verify(messages, answer): return {expression}\n")
    return f"{name}:verify"


@pytest.mark.parametrize(
    ("returned", "found"),
    [("True", (True, "")), ("None", (None, "")), ("(False, 'sales')", (False, "sales")), ("(None, '')", (None, ""))],
)
def test_user_code_says_yes_no_or_nothing_and_may_know_better(
    check: Checked, tmp_path: Path, returned: str, found: Any
) -> None:
    assert check(answer(), python=returning(tmp_path, returned)) == found


@pytest.mark.parametrize("returned", ["1", "'yes'", "(True,)", "(True, 1)", "(1, '')"])
def test_anything_else_that_user_code_returns_is_an_error_of_its_own(
    check: Checked, tmp_path: Path, returned: str
) -> None:
    with pytest.raises((TypeError, ValueError)):
        check(answer(), python=returning(tmp_path, returned))


def test_user_code_in_a_package_may_import_its_neighbours(check: Checked, tmp_path: Path) -> None:
    package = tmp_path / "verify_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "queues.py").write_text("QUEUES = {'billing'}\n")
    (package / "rules.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom .queues import QUEUES\n"
        "@dataclass\nclass Rule:\n    queues: set[str]\n"
        "def verify(messages, answer): return answer['content'] in Rule(QUEUES).queues\n"
    )
    assert check(answer(), python="verify_package.rules:verify") == (True, "")


def test_changed_user_code_is_another_version_and_the_one_that_runs(check: Checked, tmp_path: Path) -> None:
    own = {"python": "verify_changes:verify"}
    path = tmp_path / "verify_changes.py"
    path.write_text("def verify(messages, answer): return True\n")
    first = version(tmp_path, **own)
    assert check(answer(), **own)[0] is True
    path.write_text("def verify(messages, answer): return None\n")
    assert check(answer(), **own)[0] is None and version(tmp_path, **own) != first


def test_nothing_of_user_code_runs_before_there_is_an_answer(tmp_path: Path) -> None:
    package = tmp_path / "verify_trap"
    package.mkdir()
    for name in ("__init__.py", "rules.py"):
        (package / name).write_text("raise RuntimeError('ran')\n")
    assert version(tmp_path, python="verify_trap.rules:verify")


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("verify_nowhere:verify", "verifier own: no module verify_nowhere: neither on Python's path nor beside"),
        ("verify_empty:verify", "verify_empty.py has no function verify"),
        ("verify_fails:verify", "verify_fails.py fails: ZeroDivisionError at "),
        ("sys:exit", "verifier own: sys is no Python file"),
    ],
)
def test_user_code_that_cannot_be_loaded_is_refused(check: Checked, tmp_path: Path, python: str, message: str) -> None:
    (tmp_path / "verify_empty.py").write_text("")
    (tmp_path / "verify_fails.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError) as caught:
        check(answer(), python=python)
    assert message in str(caught.value)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A database of orders, with the SQL that would have been right for two prompts."""
    path = tmp_path / "shop.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            CREATE TABLE orders (id INTEGER, queue TEXT, total REAL);
            INSERT INTO orders VALUES (1, 'billing', 10.0), (2, 'sales', 20.0), (3, 'sales', 30.0);
            CREATE TABLE gold (prompt TEXT, sql TEXT);
            INSERT INTO gold VALUES ('How much?', 'SELECT queue, sum(total) FROM orders GROUP BY queue ORDER BY 1');
            INSERT INTO gold VALUES ('All?', 'SELECT id FROM orders, gold');
            """
        )
        database.commit()
    return path


def holds(query: str) -> dict[str, Any]:
    return {"sql": {"database": "shop.sqlite", "query": query}}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT count(*) FROM orders WHERE queue = :answer", True),
        ("SELECT :answer = 'sales'", False),
        ("SELECT :prompt = 'Where is it?' AND :interaction_id = 'c1'", True),
        ("SELECT id FROM orders WHERE queue = 'none'", None),
        ("SELECT NULL", None),
        ("SELECT ''", False),
    ],
)
def test_one_cell_of_a_query_says_whether_the_answer_is_right(
    check: Checked, shop: Path, query: str, found: bool | None
) -> None:
    assert check(answer(), **holds(query)) == (found, "")


SAME_ROWS = {
    "sql": {"database": "shop.sqlite", "query": "SELECT sql FROM gold WHERE prompt = :prompt", "answer_is_sql": True}
}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("SELECT queue, sum(total) FROM orders GROUP BY queue ORDER BY 2 DESC;", True),
        ("```sql\nSELECT queue, SUM(total) AS t FROM orders\nGROUP BY 1\n```", True),
        ("SELECT 'billing', 10 UNION ALL SELECT 'sales', 50.0", True),
        ("SELECT sum(total), queue FROM orders GROUP BY queue", False),
        ("SELECT queue, total FROM orders", False),
        ("SELECT queue FROM nowhere", False),
        ("I cannot say.", False),
        ("SELECT 1; SELECT 2", False),
        ("DELETE FROM orders", False),
        ("", None),
    ],
)
def test_sql_is_right_when_it_gives_the_same_rows_in_any_order(
    check: Checked, shop: Path, said: str, found: bool | None
) -> None:
    gold = "SELECT queue, sum(total) FROM orders GROUP BY queue ORDER BY 1"
    assert check(answer(said, prompt="How much?"), **SAME_ROWS) == (found, "" if found is None else gold)


def test_sql_for_which_no_right_one_is_known_cannot_be_said(check: Checked, shop: Path) -> None:
    assert check(answer("SELECT 1", prompt="What else?"), **SAME_ROWS) == (None, "")


@pytest.mark.parametrize(
    "hostile",
    [
        "ATTACH DATABASE '{folder}/new.sqlite' AS other",
        "PRAGMA writable_schema = 1",
        "DROP TABLE orders",
        "CREATE TEMP TABLE mine AS SELECT 1",
        "VACUUM INTO '{folder}/copy.sqlite'",
        "SELECT load_extension('{folder}/evil')",
        "BEGIN EXCLUSIVE",
    ],
)
def test_an_answer_that_is_sql_can_only_read_the_file(check: Checked, shop: Path, tmp_path: Path, hostile: str) -> None:
    before = shop.read_bytes()
    assert check(answer(hostile.format(folder=tmp_path), prompt="How much?"), **SAME_ROWS)[0] is False
    assert shop.read_bytes() == before and [path.name for path in tmp_path.iterdir()] == ["shop.sqlite"]


@pytest.mark.parametrize(
    "endless",
    [
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT zeroblob(900000) FROM n",
    ],
)
def test_sql_that_does_not_end_is_stopped(
    check: Checked, shop: Path, monkeypatch: pytest.MonkeyPatch, endless: str
) -> None:
    monkeypatch.setattr(sqlite, "LIMIT_S", 0.2)
    began = time.monotonic()
    assert check(answer(endless, prompt="How much?"), **SAME_ROWS) == (None, "")
    assert time.monotonic() - began < 5


def test_a_value_that_is_too_large_is_no_answer(check: Checked, shop: Path) -> None:
    assert check(answer("SELECT zeroblob(900000000)", prompt="How much?"), **SAME_ROWS)[0] is False


def test_a_database_that_is_not_there_is_refused(check: Checked, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"verifier own: .*shop\.sqlite: unable to open database file"):
        check(answer(), **holds("SELECT 1"))
    assert not (tmp_path / "shop.sqlite").exists()


def test_a_version_is_of_content_and_not_of_places(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
        (folder / "answer.json").write_text(json.dumps(SCHEMA))
        (folder / "verify_same.py").write_text("def verify(messages, answer): return True\n")
    for kind in ({"schema": "answer.json"}, {"python": "verify_same:verify"}, holds("SELECT 1"), {"regex": "x"}):
        assert len({version(folder, **kind) for folder in folders}) == 1, kind
    (folders[0] / "answer.json").write_text("{}")
    assert version(folders[0], schema="answer.json") != version(folders[1], schema="answer.json")
    assert version(tmp_path, regex="x") != version(tmp_path, regex="y")
