"""A long file shared by worker processes becomes what one process makes of it, also when one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from flywheel.errors import IntakeError
from flywheel.intake import import_path, intake_digest, reading
from flywheel.store.segments import read_rows


def write(path: Path, count: int) -> Path:
    """Calls in conversations of three, every tenth line broken or a duplicate, one answer with an id of another."""
    lines = []
    for number in range(count):
        own = number - 1 if number % 10 == 5 else number
        request = {
            "messages": [{"role": "user", "content": f"parcel {own}"}],
            "user": f"user {own % 7}",
            "metadata": {"conversation_id": f"conversation {own // 3}"},
        }
        answer = {"id": f"call-{own}", "choices": [{"message": {"role": "assistant", "content": f"sales {own}"}}]}
        record = {"timestamp": 1740830400 + own, "request": request, "response": answer}
        lines.append(f"broken {number}" if number % 10 == 7 else json.dumps(record))
    clash = json.loads(lines[0])
    clash["response"]["choices"][0]["message"]["content"] = "another answer"
    path.write_text("\n".join([*lines, json.dumps(clash), '{"request": {"mess']))
    return path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SPAN_RECORDS", 7), ("CHUNK_RECORDS", 50), ("ALONE_SPANS", 2)):
        monkeypatch.setattr(reading, name, value)


def take(deployment: Any, path: Path, workers: int) -> Any:
    return import_path(deployment.config, deployment.home, deployment.registry, deployment.task, path, workers=workers)


@pytest.mark.usefixtures("small")
def test_several_processes_store_and_count_what_one_does(make_deployment: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "calls.jsonl", 300)
    one, many = make_deployment("one"), make_deployment("many")
    (many.home.root / "secret.key").write_bytes(one.home.secret())
    alone, shared = take(one, path, 1), take(many, path, 2)
    assert vars(alone) == vars(shared)
    assert (alone.read, alone.kept, alone.duplicate, alone.quarantined) == (302, 240, 30, 32)
    assert intake_digest(one.home, one.registry, one.task) == intake_digest(many.home, many.registry, many.task)
    quarantined = [
        [(row["source_offset"], row["raw"], row["reason"]) for row in rows]
        for at in (one, many)
        if (rows := read_rows(at.home, at.registry, "quarantine", at.task, "source_offset"))
    ]
    assert quarantined[0] == quarantined[1] and len(quarantined[0]) == 32
    assert all(raw for _, raw, _ in quarantined[0])
    assert take(many, path, 2).read == 0


@pytest.mark.usefixtures("small")
def test_a_killed_worker_ends_the_import_with_what_to_do_and_the_next_one_goes_on(
    deployment: Any, tmp_path: Path
) -> None:
    path = write(tmp_path / "calls.jsonl", 3000)
    over = threading.Event()
    killer = threading.Thread(target=_kill_a_child, args=(over,))
    killer.start()
    try:
        with pytest.raises(IntakeError, match=r"a worker process was killed.*run it again"):
            take(deployment, path, 2)
    finally:
        over.set()
        killer.join()
    assert 0 < take(deployment, path, 1).read <= 3002
    stored = read_rows(deployment.home, deployment.registry, "interactions", deployment.task, "interaction_id")
    assert len(stored) == 2400 == len({row["interaction_id"] for row in stored})


def _kill_a_child(over: threading.Event) -> None:
    while not over.is_set():
        for process in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
                command = (process / "cmdline").read_bytes()
            except (OSError, IndexError):
                continue
            if parent == os.getpid() and b"spawn_main" in command:
                os.kill(int(process.name), signal.SIGKILL)
                return
        time.sleep(0.01)
