"""The gateway's log: closed, blanked to the same length, and read on where reading had stopped."""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.erasure import log as log_module
from flywheel.erasure.log_lines import blank
from flywheel.errors import HomeBusy
from flywheel.intake import run_intake, unread_bytes
from flywheel.release.replicas import heartbeat, register
from flywheel.store.registry import schema
from flywheel.store.segments import read_rows
from flywheel.store.wal import WriteAheadLog, is_live

ADA, BOB = "ada@example.org", "bob@example.org"


def intake(at: Any) -> dict[str, int]:
    (report,) = run_intake(at.config, at.home, at.registry, at.task).sources
    return {name: getattr(report, name) for name in ("read", "kept", "duplicate", "skipped", "quarantined")}


def test_lines_are_blanked_in_place_and_nothing_is_read_again(deployment: Any, traffic: Any, erased: Any) -> None:
    path = traffic.write(*(traffic.call(n, user=ADA if n % 2 else BOB) for n in range(6)))
    path.chmod(0o600)
    intake(deployment)
    before = path.read_bytes()
    assert erased(deployment, ADA).counts["log_lines"] == 3
    after = path.read_bytes()
    assert len(after) == len(before) and [len(x) for x in after.split(b"\n")] == [len(x) for x in before.split(b"\n")]
    assert [line == old for line, old in zip(after.split(b"\n"), before.split(b"\n"), strict=True)][:6] == [
        True, False, True, False, True, False,
    ]  # fmt: skip
    assert json.loads(after.split(b"\n")[1]) == {"v": 1, "kind": "erased"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert unread_bytes(deployment.config, deployment.home, deployment.registry, deployment.task) == 0
    assert intake(deployment)["read"] == 0
    traffic.write(traffic.call(9, user=BOB))
    assert intake(deployment) == {"read": 1, "kept": 1, "duplicate": 0, "skipped": 0, "quarantined": 0}


def test_what_was_not_read_yet_is_read_after_an_erasure(deployment: Any, traffic: Any, erased: Any) -> None:
    traffic.write(traffic.call(1, user=BOB), traffic.call(2, user=ADA))
    intake(deployment)
    traffic.write(traffic.call(3, user=ADA), traffic.call(4, user=BOB), traffic.feedback(3, text="x", author=BOB))
    assert erased(deployment, ADA).counts["log_lines"] == 3
    assert unread_bytes(deployment.config, deployment.home, deployment.registry, deployment.task) > 0
    assert intake(deployment) == {"read": 3, "kept": 1, "duplicate": 0, "skipped": 2, "quarantined": 0}


def test_a_crash_before_the_resume_points_move_costs_a_second_reading_only(
    deployment: Any, traffic: Any, erased: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic.write(*(traffic.call(n, user=ADA if n == 1 else BOB) for n in range(4)))
    intake(deployment)

    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(log_module, "_move_points", crash)
        erased(deployment, ADA)
    assert erased(deployment, ADA).resumed
    assert intake(deployment) == {"read": 4, "kept": 0, "duplicate": 3, "skipped": 1, "quarantined": 0}
    assert len(read_rows(deployment.home, deployment.registry, "interactions", deployment.task, "interaction_id")) == 3


def test_calls_without_a_task_are_blanked_too(
    deployment: Any, traffic: Any, erased: Any, search: Any, tiny: Any
) -> None:
    traffic.write(traffic.call(1, user=ADA, task=""), traffic.call(2, user=BOB, task=""))
    assert erased(deployment, ADA).counts == {"log_lines": 1}
    assert search(deployment.home, ADA) == []
    assert search(deployment.home, BOB) != []


def test_a_torn_last_line_that_names_them_is_blanked_and_a_torn_line_of_another_stays(
    deployment: Any, traffic: Any, erased: Any
) -> None:
    torn = json.dumps(traffic.call(3, user=ADA)).encode()[:-1]
    mine = traffic.write(traffic.call(1, user=BOB), torn)
    other = traffic.write(json.dumps(traffic.call(4, user=BOB)).encode()[:-1], boot="20250302T120000000000Z-00000000")
    kept = other.read_bytes()
    assert erased(deployment, ADA).counts["log_lines"] == 1
    assert mine.read_bytes().endswith(b"\n" + blank(len(torn))) and other.read_bytes() == kept


def test_a_very_short_line_becomes_an_empty_object_that_intake_takes_for_erased(deployment: Any, traffic: Any) -> None:
    assert blank(2) == b"{}" and blank(9) == b"{       }" and json.loads(blank(40)) == {"v": 1, "kind": "erased"}
    traffic.write(blank(9) + b"\n", blank(40) + b"\n")
    (report,) = run_intake(deployment.config, deployment.home, deployment.registry, deployment.task).sources
    assert (report.skipped, report.reasons) == (2, {"erased": 2})


def test_a_log_that_somebody_unknown_writes_is_refused_before_anything_is_erased(
    deployment: Any, traffic: Any, erased: Any
) -> None:
    traffic.write(traffic.call(1, user=ADA))
    with WriteAheadLog(deployment.home.log) as wal:
        wal.append(traffic.call(2, user=ADA)).result()
        with pytest.raises(HomeBusy, match="still being written"):
            erased(deployment, ADA)
    assert erased(deployment, ADA).counts == {"log_lines": 2}


def test_a_gateway_that_does_not_answer_is_refused_before_anything_at_all(deployment: Any, erased: Any) -> None:
    with deployment.registry.write() as tx:
        heartbeat(tx, register(tx, "http://127.0.0.1:9"), state="ready", observed={})
    with pytest.raises(HomeBusy, match="must close its log"):
        erased(deployment, ADA)
    with deployment.registry.read() as tx:
        assert tx.rows(sa.select(schema.erasures)) == []


def test_under_a_live_gateway_nothing_of_others_is_lost(gateway: Any, erased: Any, search: Any, lines: Any) -> None:
    """Others, and the person, go on posting before, while and after the person is erased."""
    said: dict[str, list[str]] = {ADA: [], BOB: []}
    stop = threading.Event()

    def post(author: str) -> None:
        with gateway.http() as http:
            while not stop.is_set():
                body = {"interaction_id": f"of-{author}-{len(said[author])}", "kind": "comment", "text": "said"}
                answer = http.post("/v1/feedback", json=body | {"task": "support_router", "author": author})
                said[author].append(answer.raise_for_status().json()["id"])

    workers = [threading.Thread(target=post, args=(author,)) for author in (ADA, BOB, BOB)]
    at = gateway.world
    with gateway.http() as http:
        call = {"model": "support_router", "messages": [{"role": "user", "content": "zanzibar"}], "user": ADA}
        http.post("/v1/chat/completions", json=call | {"max_tokens": 1}).raise_for_status()
        for worker in workers:
            worker.start()
        wait_for(lambda: min(map(len, said.values())) > 20)
        before = len(said[ADA])
        done = erased(at, ADA)
        assert search(at.home, "zanzibar") == []
        after = len(said[BOB])
        wait_for(lambda: len(said[BOB]) > after + 20)
    stop.set()
    for worker in workers:
        worker.join()
    logged = [line for line in lines(at.home) if line["kind"] == "feedback"]
    assert sorted(line["id"] for line in logged if line["author"] == BOB) == sorted(said[BOB])
    left = {line["id"] for line in logged if line["author"] == ADA}
    assert len(said[ADA]) - len(left) + 1 == done.counts["log_lines"] >= before + 1
    (report,) = run_intake(at.config, at.home, at.registry, at.task).sources
    assert report.reasons["erased user"] == len(left) and report.kept == len(said[BOB]) and not report.quarantined
    assert len([path for path in at.home.log.glob("*.jsonl") if is_live(path)]) == 1


def wait_for(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)
