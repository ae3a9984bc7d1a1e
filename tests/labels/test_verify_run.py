"""Verifiers at work: every answer once per version, as feedback that labels are made of, whatever ends the process."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from flywheel.errors import ConfigError, VerifierError
from flywheel.intake import intake_digest, run_intake
from flywheel.labels import current_labels, labels_due, run_labels
from flywheel.labels.verify import recorder as recording
from flywheel.labels.verify import run_verifiers, verifiers_due
from flywheel.store.files import locked
from flywheel.store.segments import visible

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUEUES = {"name": "known_queue", "regex": "billing|sales"}
BASE = {"maturity_hours": 0, "audit_share": 0}


@pytest.fixture
def verified(make_deployment: Callable[..., Any], traffic_of: Any) -> Callable[..., Any]:
    """``verified(*verifiers, **labels)``: a deployment, always the same, with these verifiers."""

    def make(*verifiers: dict[str, Any], name: str = "d", **labels: Any) -> Any:
        deployment = make_deployment(name, task={"labels": {**BASE, "verifiers": [*verifiers], **labels}})
        (deployment.home.root / "secret.key").write_bytes(b"k" * 32)
        return deployment

    return make


def take_in(at: Any) -> None:
    run_intake(at.config, at.home, at.registry, at.task)


def verify(at: Any, now: datetime = NOW) -> Any:
    return run_verifiers(at.config, at.home, at.registry, at.task, now=now)


def values(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["value"] for row in rows]


def write(folder: Path, name: str, body: str) -> dict[str, Any]:
    (folder / f"{name}.py").write_text(f"def verify(messages, answer):\n    {body}\n")
    return {"name": "own", "python": f"{name}:verify"}


def test_what_a_verifier_says_becomes_feedback_and_a_label(verified: Any, traffic_of: Any, words: Any) -> None:
    at = verified(QUEUES)
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0, "billing"), traffic.call(1, "Billing, I think"), traffic.call(2, "", status="error"))
    take_in(at)
    report = verify(at)
    assert dict(report.authors["verifier/known_queue"].words) == {"right": 1, "wrong": 1} and not report.left
    first, second = words(at)
    assert (first["target_kind"], first["target_id"], first["kind"]) == ("interaction", traffic.call_id(0), "outcome")
    assert (first["value"], first["text"], first["author_key"], first["ts"]) == (True, "", "known_queue", NOW)
    assert (second["target_id"], second["value"]) == (traffic.call_id(1), False)
    run_labels(at.config, at.home, at.registry, at.task, now=NOW)
    labels = {row["target_id"]: row for row in current_labels(at.home, at.registry, at.task)}
    assert (
        labels[traffic.call_id(0)]["label_source"] == "verifier" and labels[traffic.call_id(0)]["chosen"] == "billing"
    )
    assert labels[traffic.call_id(1)]["y"] < 0.05


def test_every_choice_of_a_call_is_an_answer(verified: Any, traffic_of: Any, words: Any) -> None:
    at = verified(QUEUES)
    traffic = traffic_of(at.home)
    said = [{"role": "assistant", "content": text} for text in ("billing", "no")]
    choices = [{"index": place, "message": own, "finish_reason": "stop"} for place, own in enumerate(said)]
    traffic.write(traffic.call(0, choices=choices))
    take_in(at)
    verify(at)
    assert {row["target_id"]: row["value"] for row in words(at)} == {
        traffic.call_id(0): True,
        f"{traffic.call_id(0)}#1": False,
    }


def test_the_right_answer_that_a_verifier_knows_is_the_target(
    verified: Any, traffic_of: Any, tmp_path: Path, words: Any
) -> None:
    verified()
    at = verified(write(tmp_path / "d", "knows", "return answer['content'] == 'sales', 'sales'"))
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0, "billing"), traffic.call(1, "sales"))
    take_in(at)
    verify(at)
    assert [(row["value"], row["text"]) for row in words(at)] == [(False, "sales"), (True, "")]
    run_labels(at.config, at.home, at.registry, at.task, now=NOW)
    assert {row["chosen"] for row in current_labels(at.home, at.registry, at.task)} == {"sales"}


def test_an_answer_is_looked_at_once(verified: Any, traffic_of: Any, words: Any) -> None:
    at = verified(QUEUES)
    traffic = traffic_of(at.home)
    traffic.write(*(traffic.call(number) for number in range(3)))
    take_in(at)
    verify(at)
    before = words(at)
    assert verify(at, NOW + timedelta(hours=1)).said == 0
    traffic.write(traffic.call(3))
    take_in(at)
    assert verify(at, NOW + timedelta(hours=2)).said == 1
    assert words(at)[:3] == before and len(words(at)) == 4


def test_a_run_with_nothing_new_reads_the_registry_only(verified: Any, traffic_of: Any) -> None:
    at = verified(QUEUES)
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0))
    take_in(at)
    verify(at)
    for path in at.home.data.rglob("*.parquet"):
        path.unlink()
    assert verify(at).said == 0


def test_a_task_without_verifiers_leaves_no_trace(verified: Any, traffic_of: Any) -> None:
    at = verified()
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0))
    take_in(at)
    assert verify(at).authors == {}
    assert not (at.home.locks / f"verify-{at.task}.lock").exists()


def test_merged_segments_bring_no_second_word(
    verified: Any, traffic_of: Any, words: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flywheel.store.compaction.MERGE_AT", 3)
    at = verified(QUEUES)
    traffic = traffic_of(at.home)
    for number in range(8):
        traffic.write(traffic.call(number))
        take_in(at)
        verify(at, NOW + timedelta(hours=number))
    with at.registry.read() as tx:
        assert len(visible(tx, "feedback", at.task)) < 8 and len(visible(tx, "interactions", at.task)) < 8
    assert [row["target_id"] for row in words(at)] == [traffic.call_id(number) for number in range(8)]


def test_a_changed_verifier_speaks_again_and_its_newer_word_counts(verified: Any, traffic_of: Any, words: Any) -> None:
    at = verified(QUEUES)
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0, "billing"))
    take_in(at)
    verify(at)
    stricter = verified({"name": "known_queue", "regex": "sales"})
    verify(stricter)
    assert values(words(at)) == [True, False]
    run_labels(at.config, at.home, at.registry, at.task, now=NOW + timedelta(days=1))
    (label,) = current_labels(at.home, at.registry, at.task)
    assert label["y"] < 0.05


def test_a_verifier_that_goes_back_to_an_earlier_version_speaks_a_third_time(
    verified: Any, traffic_of: Any, words: Any
) -> None:
    traffic = None
    for regex in ("billing", "sales", "billing"):
        at = verified({"name": "known_queue", "regex": regex})
        if traffic is None:
            traffic = traffic_of(at.home)
            traffic.write(traffic.call(0, "billing"))
            take_in(at)
        verify(at)
    rows = words(at)
    assert values(rows) == [True, False, True] and len({row["source_id"] for row in rows}) == 3
    assert rows == sorted(rows, key=lambda row: row["ts"]) and len({row["ts"] for row in rows}) == 3


def test_a_clock_set_back_does_not_bring_back_an_older_word(verified: Any, traffic_of: Any, words: Any) -> None:
    at = verified(QUEUES)
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0, "billing"))
    take_in(at)
    verify(at)
    verify(verified({"name": "known_queue", "regex": "sales"}), NOW - timedelta(days=30))
    assert values(words(at)) == [True, False]


def test_a_verifier_that_is_taken_out_takes_back_what_it_said(verified: Any, traffic_of: Any, words: Any) -> None:
    at = verified(QUEUES, {"name": "other", "regex": ".*"})
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0, "billing"), traffic.call(1, "no"))
    take_in(at)
    verify(at)
    less = verified({"name": "other", "regex": ".*"})
    assert labels_due(less.registry, less.task, less.config.task(less.task).labels, now=NOW)
    assert dict(verify(less).authors["verifier/known_queue"].words) == {"withdrawn": 2}
    assert verify(less).said == 0
    own = [row for row in words(at) if row["author_key"] == "known_queue"]
    assert values(own) == [True, False, "withdrawn", "withdrawn"]
    run_labels(less.config, less.home, less.registry, less.task, now=NOW + timedelta(days=1))
    assert {row["y"] > 0.9 for row in current_labels(at.home, at.registry, at.task)} == {True}
    back = verified(QUEUES, {"name": "other", "regex": ".*"})
    assert dict(verify(back).authors["verifier/known_queue"].words) == {"right": 1, "wrong": 1}


def test_what_cannot_be_said_is_remembered_and_is_no_evidence(
    verified: Any, traffic_of: Any, words: Any, tmp_path: Path
) -> None:
    verified()
    at = verified(write(tmp_path / "d", "silent", "return None"))
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0))
    take_in(at)
    assert dict(verify(at).authors["verifier/own"].words) == {"silent": 1}
    assert verify(at).said == 0 and values(words(at)) == ["silent"]
    assert run_labels(at.config, at.home, at.registry, at.task, now=NOW).total == 0


def test_an_error_in_user_code_is_counted_by_its_type_and_stops_nothing(
    verified: Any, traffic_of: Any, words: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    verified()
    at = verified(write(tmp_path / "d", "stumbles", "return {'billing': True}[answer['content']]"))
    traffic = traffic_of(at.home)
    traffic.write(*(traffic.call(number, "SECRET" if number % 2 else "billing") for number in range(5)))
    take_in(at)
    report = verify(at)
    own = report.authors["verifier/own"]
    assert (dict(own.words), dict(own.errors)) == ({"right": 3, "error": 2}, {"KeyError": 2})
    assert "SECRET" not in json.dumps(report.to_json()) + "".join(capfd.readouterr())
    assert not report.left and verify(at).said == 0
    assert sorted(map(str, values(words(at)))) == ["True", "True", "True", "error", "error"]


def test_a_verifier_that_fails_on_everything_stops_the_run_and_is_not_remembered(
    verified: Any, traffic_of: Any, words: Any, tmp_path: Path
) -> None:
    verified()
    broken = write(tmp_path / "d", "broken", "raise OSError('SECRET')")
    at = verified(QUEUES, broken)
    traffic = traffic_of(at.home)
    traffic.write(*(traffic.call(number) for number in range(30)))
    take_in(at)
    with pytest.raises(VerifierError) as caught:
        verify(at)
    message = str(caught.value)
    assert "verifier own: each of the first 20 answers raised (OSError 20)" in message and "SECRET" not in message
    assert {row["author_key"] for row in words(at)} == {"known_queue"}
    assert verifiers_due(at.registry, at.task, at.config.task(at.task).labels, NOW)
    mended = verified(QUEUES, write(tmp_path / "d", "broken", "return True"))
    verify(mended)
    found = words(mended)
    assert len(found) == 60 and set(values(found)) == {True}


def test_what_only_failed_is_looked_at_again_later(
    verified: Any, traffic_of: Any, words: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified()
    body = "import os; assert 'VERIFY_DOWN' not in os.environ; return True"
    at = verified(write(tmp_path / "d", "outage", body))
    policy = at.config.task(at.task).labels
    traffic = traffic_of(at.home)
    traffic.write(*(traffic.call(number) for number in range(3)))
    take_in(at)
    monkeypatch.setenv("VERIFY_DOWN", "1")
    report = verify(at)
    assert report.left and report.said == 0 and dict(report.authors["verifier/own"].errors) == {"AssertionError": 3}
    assert not verifiers_due(at.registry, at.task, policy, NOW + timedelta(minutes=9))
    assert verifiers_due(at.registry, at.task, policy, NOW + timedelta(minutes=10))
    monkeypatch.delenv("VERIFY_DOWN")
    assert not verify(at, NOW + timedelta(minutes=1)).left
    assert values(words(at)) == [True] * 3
    assert not verifiers_due(at.registry, at.task, policy, NOW + timedelta(days=1))


def test_verifiers_make_the_label_stage_due(verified: Any, traffic_of: Any) -> None:
    at = verified(QUEUES)
    policy = at.config.task(at.task).labels
    traffic = traffic_of(at.home)

    def due() -> bool:
        return labels_due(at.registry, at.task, policy, now=NOW)

    def stage() -> None:
        verify(at)
        run_labels(at.config, at.home, at.registry, at.task, now=NOW)

    traffic.write(traffic.call(0))
    take_in(at)
    assert due()
    stage()
    assert not due()
    traffic.write(traffic.call(1))
    take_in(at)
    run_labels(at.config, at.home, at.registry, at.task, now=NOW)
    assert due(), "nobody has looked at the new answer"
    stage()
    assert not due()
    changed = verified({"name": "known_queue", "regex": "sales"})
    assert labels_due(changed.registry, changed.task, changed.config.task(changed.task).labels, now=NOW)


def test_a_file_that_is_missing_makes_the_stage_due_and_then_says_so(verified: Any, traffic_of: Any) -> None:
    at = verified({"name": "shape", "schema": "gone.json"})
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0))
    take_in(at)
    assert verifiers_due(at.registry, at.task, at.config.task(at.task).labels, NOW)
    with pytest.raises(ConfigError, match=r"verifier shape: .*gone\.json: No such file"):
        verify(at)


def test_two_processes_do_not_speak_at_once(verified: Any, traffic_of: Any) -> None:
    at = verified(QUEUES)
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0))
    take_in(at)
    with locked(at.home.locks / f"verify-{at.task}.lock"):
        report = verify(at)
    assert report.said == 0 and report.notes == [
        "another process lets them speak; labels are made without its last words"
    ]
    assert verify(at).said == 1


def test_an_end_at_any_instant_leaves_the_same_words_once(
    verified: Any, traffic_of: Any, words: Any, dies_at: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(recording, "AT_MOST", 2)
    monkeypatch.setattr("flywheel.store.compaction.MERGE_AT", 3)
    digests, found = set(), []
    for name in ("undisturbed", "killed"):
        verified(name=name)
        body = "return {'billing': True, 'sales': None}.get(answer['content'], 1)"
        at = verified(QUEUES, write(tmp_path / name, "verify_killed", body), name=name)
        traffic = traffic_of(at.home)
        for first in (0, 4):
            texts = ["billing", "sales", "else", "billing"]
            traffic.write(*(traffic.call(first + place, text) for place, text in enumerate(texts)))
            take_in(at)
        kills = 0
        while name == "killed" and dies_at(kills, lambda at=at: verify(at)):
            kills += 1
        verify(at)
        digests.add(intake_digest(at.home, at.registry, at.task))
        found.append({(row["target_id"], row["author_key"], row["value"]) for row in words(at)})
        assert len({(row["source"], row["source_id"]) for row in words(at)}) == len(words(at)) == 16
    assert kills > 10
    assert found[0] == found[1] and len(digests) == 1


def test_no_word_is_written_about_somebody_who_was_erased_meanwhile(
    verified: Any, traffic_of: Any, words: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flywheel.erasure import erase

    at = verified(QUEUES)
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0, user="ada"), traffic.call(1, user="bob"))
    take_in(at)
    flush = recording.Recorder.flush

    def late(self: Any) -> None:
        if self._held:
            monkeypatch.setattr(recording.Recorder, "flush", flush)
            erase(at.config, at.home, at.registry, "ada")
        flush(self)

    monkeypatch.setattr(recording.Recorder, "flush", late)
    verify(at)
    assert [row["target_id"] for row in words(at)] == [traffic.call_id(1)]


def test_an_erasure_takes_what_verifiers_said_about_the_person(verified: Any, traffic_of: Any, words: Any) -> None:
    from flywheel.erasure import erase, plan_erasure

    at = verified(QUEUES)
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0, user="ada"), traffic.call(1, user="bob"))
    take_in(at)
    verify(at)
    assert plan_erasure(at.config, at.home, at.registry, "ada").counts["feedback"] == 1
    assert erase(at.config, at.home, at.registry, "ada").foreign == []
    assert [row["target_id"] for row in words(at)] == [traffic.call_id(1)]
    assert verify(at, NOW + timedelta(hours=1)).said == 0
