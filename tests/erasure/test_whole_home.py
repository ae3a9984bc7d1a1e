"""One person erased from a home in which a whole loop has run: no byte of theirs stays, and the wheel turns on."""

from __future__ import annotations

from typing import Any

from flywheel.loops.run import run_loop
from flywheel.release.rollback import rollback

PERSON, MARK = "ada@example.org", "quokka"


def turn(wheel: Any, run_id: str) -> dict[str, Any]:
    return run_loop(wheel.config, wheel.home, wheel.registry, wheel.task, run_id=run_id, say=lambda line: None)


def test_no_byte_of_the_person_stays_and_the_wheel_turns_on(turned: Any, erased: Any, search: Any, people: Any) -> None:
    key, calls = turned.home.user_key(PERSON), people(turned).calls
    before = search(turned.home, MARK, PERSON, key)
    stores = {line.split("/", 1)[0] for line in before}
    assert stores == {"data", "datasets", "log", "releases", "suites"}, before
    tables = {line.split("/")[1] for line in before if line.startswith("data/")}
    assert tables == {"interactions", "feedback", "orphans", "quarantine", "labels"}

    done = erased(turned)
    assert len(calls) > 40 and search(turned.home, MARK, PERSON, *calls) == []
    assert {where.split(":")[0] for where in search(turned.home, key)} == {"registry.db"}, "only the erasure's own row"
    for kind in (
        "interactions",
        "feedback",
        "orphans",
        "quarantine",
        "labels",
        "dataset_rows",
        "suite_items",
        "probes",
    ):
        assert done.counts[kind], kind

    (taint,) = done.tainted
    assert taint.champion and taint.releases == [taint.champion]
    stuck = turn(turned, "stuck")
    assert stuck["verdict"] == "inconclusive" and "learned from erased rows" in stuck["reasons"][0]
    command, _ = taint.way_back
    rollback(turned.config, turned.home, turned.registry, turned.task, to=command.split()[-1], actor="operator")
    people(turned).talk(1000, 60)
    again = turn(turned, "again")
    assert again["verdict"] == "promote", again["reasons"]
    assert search(turned.home, PERSON) == ["log/20250301T120000000000Z-00000000-000000.jsonl: ada@example.org"], (
        "what they send now is in the log only, until they are erased again"
    )
    assert erased(turned).counts.keys() == {"log_lines"}
    assert search(turned.home, MARK, PERSON) == []
