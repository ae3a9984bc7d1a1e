"""The tables after an erasure are those of a home that never saw the person, and stay so."""

from __future__ import annotations

import json
import shutil
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from flywheel.datasets import HeldOut, build, load_examples
from flywheel.erasure import erase, plan_erasure
from flywheel.errors import ConfigError, DatasetError
from flywheel.intake import import_path, intake_digest, run_intake
from flywheel.labels import current_labels, labels_digest, last_seq, run_labels
from flywheel.store.registry import schema
from flywheel.store.segments import read_rows

TASK = {"labels": {"maturity_hours": 0, "audit_share": 0.0}, "data": {"min_examples": 1}}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
USERS = ("ada", "bob", "cy")


@st.composite
def logs(draw: Any) -> list[dict[str, Any]]:
    """Small logs as data: calls of few users in few conversations, and feedback of all kinds of targets."""
    calls = draw(
        st.lists(st.tuples(st.sampled_from([*USERS, None]), st.sampled_from([None, None, "k1", "k2"])), max_size=8)
    )
    events: list[dict[str, Any]] = [
        {"call": n, "user": user, "conversation": talk} for n, (user, talk) in enumerate(calls)
    ]
    about = st.tuples(
        st.sampled_from(["interaction", "conversation", "metadata"]),
        st.integers(0, 9),
        st.sampled_from([*USERS, "reviewer", None]),
        st.sampled_from(["correction", "thumb"]),
    )
    for number, (kind, target, author, say) in enumerate(draw(st.lists(about, max_size=8))):
        place = draw(st.integers(0, len(events)))
        events.insert(place, {"about": kind, "target": target, "author": author, "say": say, "number": number})
    return events


def record(traffic: Any, event: dict[str, Any]) -> dict[str, Any]:
    """An event as a line of the gateway's log."""
    if "call" in event:
        number = event["call"]
        fields = {"user": event["user"], "conversation_id": event["conversation"], "metadata": {"ticket": str(number)}}
        return dict(traffic.call(number, text=f"question {number} of {event['user']}", **fields))
    number, target = event["number"], event["target"]
    targets = {
        "interaction": {"kind": "interaction", "id": traffic.call_id(target)},
        "conversation": {"kind": "conversation", "id": f"k{target % 3}"},
        "metadata": {"kind": "metadata", "key": "ticket", "value": str(target)},
    }
    said = {"text": f"answer by {event['author']}"} if event["say"] == "correction" else {"value": number % 2 == 0}
    by = {"author": event["author"], "source": "reviewer" if event["author"] == "reviewer" else "user"}
    fields = {"name": f"f{number}", "target": targets[event["about"]], **by, **said}
    return dict(traffic.feedback(target, event["say"], **fields))


def goes(event: dict[str, Any], events: list[dict[str, Any]], person: str) -> bool:
    """What an erasure must take, said in another way than the erasure says it."""
    calls = {other["call"]: other for other in events if "call" in other}
    talks = {call["conversation"] for call in calls.values() if call["user"] == person} - {None}
    gone = {n for n, call in calls.items() if call["user"] == person or call["conversation"] in talks}
    if "call" in event:
        return event["call"] in gone
    if event["about"] == "conversation":
        return event["author"] == person or f"k{event['target'] % 3}" in talks
    return event["author"] == person or event["target"] in gone


def fill(at: Any, records: list[dict[str, Any]], traffic: Any) -> Path:
    (at.home.root / "secret.key").write_bytes(b"k" * 32)
    path: Path = traffic.write(*records)
    run_intake(at.config, at.home, at.registry, at.task)
    run_labels(at.config, at.home, at.registry, at.task, now=NOW)
    return path


def digests(at: Any) -> tuple[str, str]:
    return intake_digest(at.home, at.registry, at.task), labels_digest(at.home, at.registry, at.task)


def example_rows(at: Any) -> list[dict[str, Any]]:
    """Rows of a dataset of all labels; none when there is nothing to learn."""
    with at.registry.read() as tx:
        newest = last_seq(tx, at.task)
    window = {"from_seq": 0, "to_seq": newest, "loop_id": None, "parent": None, "lineage": []}
    try:
        built = build(at.config, at.home, at.registry, at.task, **window, held_out=HeldOut())
    except DatasetError:
        return []
    return load_examples(at.home, built.digest)


@given(events=logs(), person=st.sampled_from(USERS))
@settings(max_examples=8)
def test_an_erased_home_is_one_that_never_saw_the_person_and_a_reimport_changes_nothing(
    make_deployment: Any, traffic_of: Any, tmp_path: Path, events: list[dict[str, Any]], person: str
) -> None:
    example = uuid.uuid4().hex
    seen, never = make_deployment(f"{example}-seen", TASK), make_deployment(f"{example}-never", TASK)
    records = [record(traffic_of(seen.home), event) for event in events]
    kept = [line for line, event in zip(records, events, strict=True) if not goes(event, events, person)]
    log = fill(seen, records, traffic_of(seen.home))
    copy = tmp_path / f"{example}.jsonl"
    shutil.copy(log, copy)
    fill(never, kept, traffic_of(never.home))
    example_rows(seen)

    found = plan_erasure(seen.config, seen.home, seen.registry, person)
    done = erase(seen.config, seen.home, seen.registry, person)
    assert done.counts == found.counts
    assert done.counts.get("log_lines", 0) == len(records) - len(kept)
    run_labels(seen.config, seen.home, seen.registry, seen.task, now=NOW)
    assert digests(seen) == digests(never)
    key = seen.home.user_key(person)
    for path in seen.home.datasets.glob("[!.]*"):
        assert not [row for row in load_examples(seen.home, path.name) if row["user_key"] == key]
        assert person not in json.dumps(load_examples(seen.home, path.name))
    assert not [row for row in example_rows(seen) if row["user_key"] == key]

    quiet = run_intake(seen.config, seen.home, seen.registry, seen.task)
    assert [source.read for source in quiet.sources] == [0], "what was read stays read"
    again = import_path(seen.config, seen.home, seen.registry, seen.task, copy, fmt="gateway")
    assert (again.read, again.kept, again.quarantined) == (len(records), 0, 0)
    assert again.skipped == len(records) - len(kept) and again.duplicate == len(kept)
    run_labels(seen.config, seen.home, seen.registry, seen.task, now=NOW)
    assert digests(seen) == digests(never)


def snapshot(at: Any) -> dict[str, bytes]:
    """Every file of a home but locks, with the registry as its rows."""
    at.registry.settle()
    files = {
        str(path.relative_to(at.home.root)): path.read_bytes()
        for path in at.home.root.rglob("*")
        if path.is_file() and path.parent.name != "locks" and not path.name.startswith("registry.db")
    }
    with at.registry.read() as tx:
        for table in schema.metadata.sorted_tables:
            files[f"table {table.name}"] = repr(tx.rows(sa.select(table))).encode()
    return files


def test_a_dry_run_counts_and_changes_nothing(drawn: Any, planned: Any) -> None:
    before = snapshot(drawn)
    plan = planned(drawn)
    assert plan.found and plan.counts["interactions"] == 48 and plan.counts["dataset_rows"] and plan.counts["suites"]
    assert snapshot(drawn) == before


def test_a_second_erasure_finds_nothing_and_totals_add_up(drawn: Any, erased: Any) -> None:
    first = erased(drawn)
    assert first.totals == first.counts and not first.resumed
    before = snapshot(drawn)
    second = erased(drawn)
    assert (second.counts, second.totals, second.resumed) == ({}, first.totals, False)
    assert second.erasure_id == first.erasure_id
    changed = {name for name, content in snapshot(drawn).items() if before.get(name) != content}
    assert changed == {"table erasures"}


def test_somebody_unknown_is_recorded_so_that_a_later_import_drops_them(
    make_deployment: Any, traffic_of: Any, erased: Any, planned: Any
) -> None:
    at = make_deployment()
    assert not planned(at, "new@example.org").found
    assert erased(at, "new@example.org").counts == {}
    traffic = traffic_of(at.home)
    bad = traffic.call(3, user="new@example.org", request={"messages": 7})
    traffic.write(
        traffic.call(1, user="new@example.org"),
        traffic.call(2, user="other"),
        bad,
        b'{"v": 1, "kind": "interaction", "user": "new@example.org", broken\n',
        traffic.feedback(2, text="x", author="new@example.org"),
        traffic.feedback(1, text="x", author="other"),
        traffic.feedback(2, text="y", author="other"),
    )
    (report,) = run_intake(at.config, at.home, at.registry, at.task).sources
    assert (report.read, report.kept, report.skipped, report.quarantined) == (7, 2, 5, 0)
    assert report.reasons == {"erased user": 4, "about an erased user": 1}
    assert read_rows(at.home, at.registry, "quarantine", at.task, "reason") == []


def test_what_others_say_later_in_a_conversation_that_went_is_dropped(
    make_deployment: Any, traffic_of: Any, erased: Any
) -> None:
    at = make_deployment()
    traffic = traffic_of(at.home)
    traffic.write(
        traffic.call(1, user="ada", conversation_id="talk"), traffic.call(2, user="bob", conversation_id="talk")
    )
    run_intake(at.config, at.home, at.registry, at.task)
    counts = erased(at, "ada").counts
    assert (counts["interactions"], counts["interactions_of_others"], counts["log_lines"]) == (2, 1, 2)
    traffic.write(
        traffic.call(3, user="bob", conversation_id="talk"),
        traffic.feedback(3, text="x", author="bob"),
        traffic.call(4, user="ada", conversation_id="other talk"),
        traffic.call(5, user="bob", conversation_id="other talk"),
        traffic.call(6, user="bob"),
    )
    (report,) = run_intake(at.config, at.home, at.registry, at.task).sources
    assert (report.kept, report.skipped) == (1, 4)
    assert report.reasons == {"erased user": 1, "about an erased user": 3}


def test_what_others_said_about_a_turn_in_their_conversation_goes_when_no_log_of_ours_has_it(
    make_deployment: Any, traffic_of: Any, erased: Any, tmp_path: Path
) -> None:
    at = make_deployment()
    traffic = traffic_of(at.home)
    records = [
        traffic.call(1, user="ada", conversation_id="talk"),
        traffic.call(2, user="bob", conversation_id="talk"),
        traffic.feedback(2, text="about the talk", author="bob"),
        traffic.feedback(3, text="about another", author="bob"),
    ]
    copy = tmp_path / "exported.jsonl"
    copy.write_text("".join(json.dumps(record) + "\n" for record in records))
    import_path(at.config, at.home, at.registry, at.task, copy, fmt="gateway")
    done = erased(at, "ada")
    assert (done.counts["interactions"], done.counts["feedback"], "orphans" in done.counts) == (2, 1, False)
    assert done.foreign == [{"task": at.task, "path": str(copy), "rows": 3}]


def test_label_versions_keep_their_numbers_and_the_rest_of_a_label_comes_back(
    make_deployment: Any, traffic_of: Any, erased: Any
) -> None:
    at = make_deployment(task=TASK)
    traffic = traffic_of(at.home)
    fill(
        at,
        [
            *(traffic.call(n, user="bob") for n in range(1, 5)),
            traffic.call(7, user="ada"),
            traffic.feedback(1, text="by ada", author="ada"),
            traffic.feedback(1, "label", text="by reviewer", author="rev", source="reviewer"),
            traffic.feedback(2, text="by ada", author="ada"),
            traffic.feedback(3, text="by bob", author="bob"),
            traffic.feedback(7, text="by ada", author="ada"),
        ],
        traffic,
    )
    with at.registry.read() as tx:
        before = last_seq(tx, at.task)
    assert erased(at, "ada").counts["labels"] == 3
    with at.registry.read() as tx:
        assert last_seq(tx, at.task) == before
    rows = read_rows(at.home, at.registry, "labels", at.task, "seq")
    assert [row["seq"] for row in rows] == list(range(1, before + 1))
    assert {row["target_id"] for row in current_labels(at.home, at.registry, at.task)} == {traffic.call_id(3)}
    run_labels(at.config, at.home, at.registry, at.task, now=NOW)
    said = {row["target_id"]: row["chosen"] for row in current_labels(at.home, at.registry, at.task)}
    assert said == {traffic.call_id(1): "by reviewer", traffic.call_id(3): "by bob"}


def test_nobody_in_particular_cannot_be_erased(deployment: Any) -> None:
    with pytest.raises(ConfigError, match="no user id"):
        erase(deployment.config, deployment.home, deployment.registry, "")
