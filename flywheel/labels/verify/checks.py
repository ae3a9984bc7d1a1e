"""From an entry of ``verifiers`` to a check: a version to recognise it by, and a function from an answer to a finding.

The version covers what the entry says and the content of the files it names, never where they lie. A SQLite database is
not among them: it may change every minute, and an answer is right or wrong by what was in it when it was looked at.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from flywheel.config_verify import VerifierEntry
from flywheel.errors import ConfigError
from flywheel.labels.verify.answers import Answer
from flywheel.labels.verify.sqlite import sql_check
from flywheel.labels.verify.user_code import source_file, user_check
from flywheel.store.digests import digest

CHECKS_VERSION = 1
"""Part of every verifier's version: raise it when a kind of check begins to find something else."""

LONGEST = 10_000
"""Characters of an answer that a regular expression is tried on: there is no limit to the time that one may take."""

Finding = tuple[bool | None, str]
"""Right, wrong, or None for what cannot say; and the right answer, if the check knows it."""

Check = Callable[[Answer], Finding]


@dataclass(frozen=True)
class Verifier:
    """A verifier that is ready to be loaded.

    Args:
        load: makes the check; what it opens is closed with the stack. Raises ConfigError when it cannot.
    """

    name: str
    version: str
    load: Callable[[ExitStack], Check]


def verifier(entry: VerifierEntry) -> Verifier:
    """The verifier of an entry. Reads the files that its version depends on, and runs nothing.

    Raises ConfigError when one is not there.
    """
    if entry.regex is not None:
        pattern = entry.regex
        return _verifier(entry, {"regex": pattern}, lambda _stack: regex_check(pattern))
    if entry.json_schema is not None:
        path = Path(entry.json_schema)
        source = _read(entry, path)
        return _verifier(entry, {"schema": _sha256(source)}, lambda _stack: schema_check(entry.name, path, source))
    if entry.python is not None:
        path = source_file(entry)
        source = _read(entry, path)
        said = {"python": entry.python, "source": _sha256(source)}
        return _verifier(entry, said, lambda _stack: user_check(entry, path, source))
    assert entry.sql is not None
    sql = entry.sql
    said = sql.model_dump(exclude={"database"}) | {"database": Path(sql.database).name}
    return _verifier(entry, {"sql": said}, lambda stack: sql_check(entry.name, sql, stack))


def load_all(entries: Iterable[VerifierEntry]) -> None:
    """Load every verifier, as a run with new answers would. Raises ConfigError when one cannot be."""
    with ExitStack() as stack:
        for entry in entries:
            verifier(entry).load(stack)


def regex_check(pattern: str) -> Check:
    """Whether the whole stripped answer matches. What has no text, or too much of it, cannot be said."""
    whole = re.compile(pattern)

    def check(answer: Answer) -> Finding:
        text = answer.text.strip()
        return (None if not text or len(text) > LONGEST else whole.fullmatch(text) is not None), ""

    return check


def schema_check(name: str, path: Path, source: bytes) -> Check:
    """Whether the answer is JSON that satisfies a schema, of the draft that the schema names. Nothing is fetched."""
    from jsonschema import SchemaError, validators
    from referencing import Registry

    try:
        schema = json.loads(source)
        known = validators.validator_for(schema)
        known.check_schema(schema)
    except SchemaError as error:
        raise ConfigError(f"verifier {name}: {path} is no JSON Schema: {error.message}") from None
    except (ValueError, RecursionError, TypeError):
        raise ConfigError(f"verifier {name}: {path} is not JSON with a schema in it") from None
    validator = known(schema, registry=Registry())

    def check(answer: Answer) -> Finding:
        text = answer.text.strip()
        if not text or len(text) > LONGEST:
            return None, ""
        try:
            value = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return False, ""
        return bool(validator.is_valid(value)), ""

    return check


def _verifier(entry: VerifierEntry, said: dict[str, Any], load: Callable[[ExitStack], Check]) -> Verifier:
    return Verifier(entry.name, digest({"check": said, "rules": CHECKS_VERSION}), load)


def _read(entry: VerifierEntry, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"verifier {entry.name}: {path}: {error.strerror}") from None


def _sha256(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def _refuse(_constant: str) -> NoReturn:
    raise ValueError("NaN and infinity are not JSON")
