"""Answers checked against a SQLite file: by a query of the operator's, or, where the answer is SQL, by its rows.

The file is opened for reading, and a statement may do nothing but select: no attaching of other files, no pragmas. It
is stopped after `LIMIT_S`, and no value of it may be larger than `LARGEST`.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from flywheel.config_verify import SqlCheck
from flywheel.errors import ConfigError

if TYPE_CHECKING:
    from flywheel.labels.verify.answers import Answer

LIMIT_S = 2.0
"""Time that one statement may take."""
LARGEST = 1_000_000
"""Bytes of one value, or of a statement."""
MOST_ROWS, MOST_BYTES = 10_000, 64_000_000
"""Of a result that is compared."""

_STEPS = 10_000  # of SQLite's machine between two looks at the clock
_LONGEST_PATTERN = 1_000
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_FENCED = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)

Rows = list[tuple[Any, ...]]


class TooMuch(Exception):
    """A statement took too long, or has too many rows, so that nothing can be said."""


def sql_check(name: str, sql: SqlCheck, stack: ExitStack) -> Callable[[Answer], tuple[bool | None, str]]:
    """The check that a query makes. Raises ConfigError when the file cannot be read."""
    database = stack.enter_context(closing(_open(name, Path(sql.database))))

    def ask(answer: Answer) -> Rows:
        given = {"answer": answer.text, "prompt": answer.prompt, "interaction_id": answer.interaction_id}
        return _rows(database, sql.query, given)

    def holds(answer: Answer) -> tuple[bool | None, str]:
        """By the one cell of the query: no row, or a null, says nothing."""
        cell = _cell(ask(answer))
        return (None if cell is None else bool(cell)), ""

    def same_rows(answer: Answer) -> tuple[bool | None, str]:
        """By the rows of the SQL that would be right, which the query names: no row, or a null, says nothing."""
        right, said = _cell(ask(answer)), statement(answer.text)
        if right is None or not said:
            return None, ""
        expected = Counter(_rows(database, str(right)))
        try:
            return Counter(_rows(database, said)) == expected, str(right)
        except (sqlite3.Error, sqlite3.Warning):
            return False, str(right)

    def check(answer: Answer) -> tuple[bool | None, str]:
        try:
            return same_rows(answer) if sql.answer_is_sql else holds(answer)
        except TooMuch:
            return None, ""

    return check


def statement(answer: str) -> str:
    """The SQL in an answer: all of it, or what stands in the one block of code that it is."""
    text = answer.strip()
    fenced = _FENCED.match(text)
    return (fenced[1] if fenced else text).strip()


def _open(name: str, path: Path) -> sqlite3.Connection:
    try:
        database = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
        database.execute("SELECT count(*) FROM sqlite_schema").close()
    except sqlite3.Error as error:
        raise ConfigError(f"verifier {name}: {path}: {error}") from None
    database.text_factory = _text
    for limit in (sqlite3.SQLITE_LIMIT_LENGTH, sqlite3.SQLITE_LIMIT_SQL_LENGTH):
        database.setlimit(limit, LARGEST)
    database.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _LONGEST_PATTERN)
    database.set_authorizer(_authorize)
    return database


def _rows(database: sqlite3.Connection, statement: str, given: dict[str, str] | None = None) -> Rows:
    ends = time.monotonic() + LIMIT_S
    database.set_progress_handler(lambda: time.monotonic() > ends, _STEPS)
    try:
        with closing(database.execute(statement, given or {})) as cursor:
            return _bounded(cursor)
    except sqlite3.OperationalError:
        if time.monotonic() > ends:
            raise TooMuch from None
        raise


def _bounded(cursor: sqlite3.Cursor) -> Rows:
    rows: Rows = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(rows) > MOST_ROWS or size > MOST_BYTES:
            raise TooMuch
    return rows


def _cell(rows: Rows) -> Any:
    if len(rows) > 1 or any(len(row) != 1 for row in rows):
        raise ValueError("the query must give one cell")
    return rows[0][0] if rows else None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")  # a database may hold what is not UTF-8


def _authorize(action: int, first: str | None, second: str | None, *_where: str | None) -> int:
    loads_code = action == sqlite3.SQLITE_FUNCTION and second == "load_extension"
    return sqlite3.SQLITE_OK if action in _ALLOWED and not loads_code else sqlite3.SQLITE_DENY
