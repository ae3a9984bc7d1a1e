"""An import of 200,000 calls, killed at 20 random instants and run again each time, ends as if undisturbed.

FLYWHEEL_TRIAL_RECORDS=200000 FLYWHEEL_TRIAL_KILLS=20 pytest tests/trials/test_killed_imports.py -s
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from flywheel.intake import import_path, intake_digest
from flywheel.store.registry import schema
from flywheel.store.segments import query

RECORDS = int(os.environ.get("FLYWHEEL_TRIAL_RECORDS", "200000"))
KILLS = int(os.environ.get("FLYWHEEL_TRIAL_KILLS", "20"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def write(path: Path) -> Path:
    """Calls in conversations of three, some twice, some broken."""
    chance = random.Random(7)
    words = [f"word{number}" for number in range(200)]
    with path.open("w") as lines:
        for number in range(RECORDS):
            own = number - 1 if number % 50 == 25 else number
            request = {
                "messages": [{"role": "user", "content": " ".join(chance.choices(words, k=60))}],
                "user": f"user {own % 997}",
                "metadata": {"conversation_id": f"conversation {own // 3}"},
            }
            answer = {"message": {"role": "assistant", "content": f"sales {own}"}}
            record = {
                "timestamp": 1740830400 + own // 10,
                "request": request,
                "response": {"id": f"c{own}", "choices": [answer]},
            }
            lines.write(f"broken {number}\n" if number % 100 == 57 else json.dumps(record) + "\n")
    return path


def left_behind(config: Path) -> list[str]:
    """Command lines of live processes that work for a deployment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(config).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().decode().replace("\0", " "))
        except OSError:
            continue
    return found


def test_killed_at_random_instants_an_import_ends_with_the_digest_of_an_undisturbed_one(
    make_deployment: Any, tmp_path: Path
) -> None:
    path = write(tmp_path / "calls.jsonl")
    one, other = make_deployment("one"), make_deployment("other")
    (other.home.root / "secret.key").write_bytes(one.home.secret())
    start = time.monotonic()
    undisturbed = import_path(one.config, one.home, one.registry, one.task, path, workers=1)
    seconds = time.monotonic() - start

    config = tmp_path / "other" / "flywheel.yaml"
    task = {"base": "tiny", "prompt": "Route the message to a queue."}
    config.write_text(yaml.safe_dump({"home": "home", "tasks": {other.task: task}}))
    command = [sys.executable, "-m", "flywheel.cli.__main__", "intake", "import", str(path), "--task", other.task]
    command += ["--no-preview", "--json", "--config", str(config)]
    environment = os.environ | {"FLYWHEEL_TRIAL_OF": str(config)}
    chance = random.Random(11)
    taken = []
    for _ in range(KILLS):
        child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.5, 3 + 2 * seconds / KILLS))
        child.send_signal(signal.SIGKILL)
        child.wait()
        taken.append(stored(other))
    time.sleep(2)
    assert left_behind(config) == []
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(f"{RECORDS} records, undisturbed in {seconds:.0f} s; stored after each kill: {taken}")

    assert stored(other) == stored(one)
    assert intake_digest(other.home, other.registry, other.task) == intake_digest(one.home, one.registry, one.task)
    with other.registry.read() as tx:
        counts = tx.rows(sa.select(schema.intake_counts))
    for name in ("read", "kept", "duplicate", "quarantined", "skipped"):
        assert sum(row[name] for row in counts) == getattr(undisturbed, name)


def stored(at: Any) -> int:
    """How many calls a deployment holds."""
    (row,) = query(at.home, at.registry, "interactions", at.task, "SELECT count(*) AS n FROM rows").to_pylist()
    return int(row["n"])
