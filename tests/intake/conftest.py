"""What the tests of log formats share: the fixture of a format with its golden output, and ways to damage a record."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from flywheel.intake import SourceReport, import_path
from flywheel.intake.formats import FORMATS, named
from flywheel.intake.records import BadRecord, Context, SkippedRecord
from flywheel.store.digests import canonical_json
from flywheel.store.segments import read_rows

FIXTURES = Path(__file__).parent / "fixtures"
CONTEXT = Context("support_router", frozenset({"support_router", "writer"}))

Record = dict[str, Any]

leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
)
values = leaves | st.lists(leaves, max_size=2) | st.dictionaries(st.text(max_size=5), leaves, max_size=2)


class FormatFixture:
    """The records of one format that we wrote, one a line in ``fixtures/<name>.jsonl``, and what they must become."""

    def __init__(self, name: str) -> None:
        self.name, self.path = name, FIXTURES / f"{name}.jsonl"
        self.records: list[Record] = [json.loads(line) for line in self.path.read_text().splitlines()]
        self.golden: list[Any] = json.loads((FIXTURES / f"{name}.golden.json").read_text())

    def read(self, record: Record) -> Any:
        """What the format makes of a record, as plain data."""
        try:
            found = named(self.name).records(record, CONTEXT)
        except SkippedRecord as error:
            return {"skipped": str(error)}
        except BadRecord as error:
            return {"quarantined": str(error)}
        return json.loads(json.dumps([{"record": type(one).__name__, **asdict(one)} for one in found]))

    def takers(self, record: Record) -> list[str]:
        """The formats that take a record for one of theirs."""
        return [fmt.name for fmt in FORMATS.values() if fmt.matches(record)]

    def damaged(self, data: st.DataObject) -> Record:
        """One of the records with up to three fields dropped, renamed, retyped or nested, also inside JSON texts."""
        record: Record = copy.deepcopy(data.draw(st.sampled_from(self.records)))
        for _ in range(data.draw(st.integers(1, 3))):
            _damage(record, data)
        return record

    def check_damaged(self, record: Record) -> None:
        """A damaged record is refused by name, or read to something that can be stored."""
        for fmt in FORMATS.values():
            fmt.matches(record)
        found = self.read(record)
        if isinstance(found, dict):
            assert set(found) <= {"skipped", "quarantined"}
            return
        assert found
        canonical_json(found)

    def padded(self, data: st.DataObject, record: Record) -> Record:
        """The record with fields that no format maps."""
        extra = data.draw(st.dictionaries(st.text(max_size=5).map(lambda key: f"x_{key}"), values, max_size=4))
        return {**extra, **record}


def _damage(place: Any, data: st.DataObject) -> None:
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
        inner = place[key]
        if isinstance(inner, dict | list) and inner and data.draw(st.integers(0, 3)):
            place = inner
            continue
        if (held := _json_inside(inner)) is not None and data.draw(st.booleans()):
            _damage(held, data)
            place[key] = json.dumps(held)
            return
        how = data.draw(st.sampled_from(["drop", "rename", "retype", "nest"]))
        if how == "drop" or (how == "rename" and isinstance(place, list)):
            del place[key]
        elif how == "rename":
            place[data.draw(st.text(max_size=5))] = place.pop(key)
        else:
            place[key] = data.draw(values) if how == "retype" else data.draw(st.sampled_from([[inner], {"a": inner}]))
        return


def _json_inside(value: Any) -> Any:
    """The list or object that a text spells, or None."""
    if not isinstance(value, str) or value[:1] not in ("[", "{"):
        return None
    try:
        return json.loads(value)
    except ValueError:
        return None  # a marker of a logger that cut the text


@pytest.fixture
def log_fixture() -> Callable[[str], FormatFixture]:
    """``log_fixture("langfuse")`` -> the `FormatFixture` of a format."""
    return FormatFixture


@pytest.fixture
def take_in(deployment: Any, tmp_path: Path) -> Callable[..., SourceReport]:
    """``take_in(records, fmt="auto")``: import records as a new file into ``deployment``."""

    def run(records: list[Record], fmt: str = "auto") -> SourceReport:
        path = tmp_path / f"import-{len(list(tmp_path.glob('import-*')))}.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        report = import_path(deployment.config, deployment.home, deployment.registry, deployment.task, path, fmt=fmt)
        report.check()
        return report

    return run


@pytest.fixture
def stored(deployment: Any) -> Callable[[str], list[Record]]:
    """``stored("feedback")`` -> the rows of a table of ``deployment``."""

    def rows(table: str) -> list[Record]:
        order = {"interactions": "interaction_id", "feedback": "feedback_id", "orphans": "feedback_id"}
        return read_rows(deployment.home, deployment.registry, table, deployment.task, order.get(table, "ts"))

    return rows
