"""The write-ahead log: what it acknowledged is in its files, one whole JSON object a line."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from flywheel.errors import StoreError
from flywheel.store import wal as wal_module
from flywheel.store.wal import WriteAheadLog, is_live, new_boot


def rows(folder: Path) -> list[dict[str, Any]]:
    """Every line of every file, in file order."""
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_bytes().splitlines()]


def test_a_completed_future_means_the_line_is_in_the_file(tmp_path: Path) -> None:
    with WriteAheadLog(tmp_path) as log:
        log.append({"id": "a", "text": "grüße\u2028 😀 \ud83d\n"}).result(5)
        assert rows(tmp_path) == [{"id": "a", "text": "grüße\u2028 😀 \ud83d\n"}]
        raw = next(tmp_path.glob("*.jsonl")).read_bytes()
    assert raw.endswith(b"\n") and raw.count(b"\n") == 1
    assert raw == json.dumps(json.loads(raw), sort_keys=True, separators=(",", ":")).encode() + b"\n"


def test_every_boot_writes_a_file_of_its_own_that_sorts_after_the_last(tmp_path: Path) -> None:
    names = []
    for number in range(3):
        with WriteAheadLog(tmp_path) as log:
            log.append({"n": number}).result(5)
            names.append(log.boot)
        time.sleep(0.001)
    assert [path.name for path in sorted(tmp_path.glob("*.jsonl"))] == [f"{boot}-000000.jsonl" for boot in names]
    assert [row["n"] for row in rows(tmp_path)] == [0, 1, 2]
    assert new_boot() != new_boot()


def test_a_boot_name_is_never_appended_to_twice(tmp_path: Path) -> None:
    WriteAheadLog(tmp_path, boot="b").close()
    with pytest.raises(StoreError):
        WriteAheadLog(tmp_path, boot="b")


def test_many_threads_lose_nothing_and_share_fsyncs(tmp_path: Path) -> None:
    groups: list[int] = []
    with WriteAheadLog(tmp_path, on_commit=lambda _seconds, records: groups.append(records)) as log:

        def work(worker: int) -> None:
            wait([log.append({"worker": worker, "n": n}) for n in range(100)])

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = rows(tmp_path)
    assert sum(groups) == len(found) == 400
    assert len(groups) < 400
    for worker in range(4):
        assert [row["n"] for row in found if row["worker"] == worker] == list(range(100))


def test_a_full_file_is_followed_by_the_next(tmp_path: Path) -> None:
    with WriteAheadLog(tmp_path, rotate_bytes=200) as log:
        for n in range(30):
            log.append({"n": n, "pad": "x" * 20}).result(5)
    files = sorted(tmp_path.glob("*.jsonl"))
    assert len(files) > 3
    assert all(path.stat().st_size < 300 for path in files)
    assert [row["n"] for row in rows(tmp_path)] == list(range(30))


def test_close_writes_what_is_queued_and_refuses_the_rest(tmp_path: Path) -> None:
    log = WriteAheadLog(tmp_path)
    futures = [log.append({"n": n}) for n in range(50)]
    log.close()
    log.close()
    assert all(future.done() and future.exception() is None for future in futures)
    assert len(rows(tmp_path)) == 50
    with pytest.raises(StoreError, match="closed"):
        log.append({"n": 51})


def test_a_record_that_is_not_json_is_refused_at_once_and_harms_no_other(tmp_path: Path) -> None:
    with WriteAheadLog(tmp_path) as log:
        with pytest.raises(ValueError):
            log.append({"x": float("nan")})
        log.append({"x": 1}).result(5)
    assert rows(tmp_path) == [{"x": 1}]


def test_a_full_disk_fails_the_append_and_recovery_needs_no_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, full = os.write, False

    def write(descriptor: int, data: Any) -> int:
        if full:
            if len(data) > 4:
                return real(descriptor, data[:4])  # as a filling disk does: part of it, then nothing
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data)

    monkeypatch.setattr(wal_module.os, "write", write)
    with WriteAheadLog(tmp_path) as log:
        log.append({"n": 1}).result(5)
        full = True
        for n in range(2, 6):
            with pytest.raises(StoreError, match="No space"):
                log.append({"n": n, "pad": "x" * 1000}).result(5)
        assert log.failing()
        full = False
        log.append({"n": 6}).result(5)
        assert not log.failing()
    whole = []
    for path in sorted(tmp_path.glob("*.jsonl")):
        *lines, _rest = path.read_bytes().split(b"\n")
        whole += [json.loads(line)["n"] for line in lines]
    assert [n for n in whole if n in (1, 6)] == [1, 6], "acknowledged lines are whole, wherever the torn ones are"


def test_a_failed_fsync_is_never_reported_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with WriteAheadLog(tmp_path) as log:
        with monkeypatch.context() as patch:
            patch.setattr(wal_module.os, "fsync", fsync)
            with pytest.raises(StoreError):
                log.append({"n": 1}).result(5)
        log.append({"n": 2}).result(5)
    assert len(list(tmp_path.glob("*.jsonl"))) == 2, "the doubtful file is left behind"


def test_the_append_waits_for_fsync_not_only_for_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, real = threading.Event(), os.fsync

    def fsync(descriptor: int) -> None:
        assert gate.wait(5)
        real(descriptor)

    with WriteAheadLog(tmp_path) as log:
        monkeypatch.setattr(wal_module.os, "fsync", fsync)
        future = log.append({"n": 1})
        done, _ = wait([future], timeout=0.2)
        assert not done
        gate.set()
        future.result(5)


def test_a_reader_can_tell_the_live_file_from_closed_ones(tmp_path: Path) -> None:
    with WriteAheadLog(tmp_path, rotate_bytes=1) as log:
        for n in range(2):
            log.append({"n": n}).result(5)
        first, second = sorted(tmp_path.glob("*.jsonl"))
        assert not is_live(first)
        assert is_live(second)
    assert not is_live(second)


def test_a_killed_writer_leaves_every_acknowledged_line(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom flywheel.store.wal import WriteAheadLog\n"
        "log = WriteAheadLog(Path(sys.argv[1]))\nn = 0\n"
        "while True:\n    log.append({'n': n, 'pad': 'x' * 300}).result()\n    print(n, flush=True)\n    n += 1\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    acknowledged = -1
    for line in child.stdout:
        acknowledged = int(line)
        if acknowledged == 100:
            child.kill()
    child.wait()
    child.stdout.close()
    (path,) = tmp_path.glob("*.jsonl")
    *lines, _torn = path.read_bytes().split(b"\n")
    assert [json.loads(line)["n"] for line in lines][: acknowledged + 1] == list(range(acknowledged + 1))
    assert not is_live(path)


def test_rotating_closes_the_file_behind_all_that_was_appended_before(tmp_path: Path) -> None:
    with WriteAheadLog(tmp_path) as log:
        futures = [log.append({"n": n}) for n in range(50)]
        log.rotate()
        (first,) = tmp_path.glob("*.jsonl")
        assert not is_live(first) and all(future.done() for future in futures)
        assert [row["n"] for row in rows(tmp_path)] == list(range(50))
        before = first.read_bytes()
        log.append({"n": 50}).result(5)
        _, second = sorted(tmp_path.glob("*.jsonl"))
        assert is_live(second) and first.read_bytes() == before
    assert [row["n"] for row in rows(tmp_path)] == list(range(51))
    with pytest.raises(StoreError, match="closed"):
        log.rotate()


def test_rotating_under_many_writers_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with WriteAheadLog(tmp_path) as log:

        def work(worker: int) -> None:
            wait([log.append({"worker": worker, "n": n}) for n in range(200)])

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            log.rotate()
        for thread in threads:
            thread.join()
    for worker in range(3):
        assert [row["n"] for row in rows(tmp_path) if row["worker"] == worker] == list(range(200))
