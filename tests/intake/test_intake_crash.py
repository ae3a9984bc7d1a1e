"""Rule 3: a crash at any instant, then a run, gives the tables of an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
import sqlalchemy as sa

import flywheel.intake.reading as reading
from flywheel.intake import intake_digest, run_intake
from flywheel.store.registry import schema
from flywheel.store.segments import query, read_rows

SECRET = b"s" * 32


def fill(deployment: Any, traffic: Any) -> int:
    """A log with everything that intake must reconcile; returns how many records it has."""
    (deployment.home.root / "secret.key").write_bytes(SECRET)
    records: list[Any] = []
    for number in range(12):
        if number % 3 == 0:
            records.append(traffic.feedback(number, text="early", name=f"early-{number}"))
        records.append(traffic.call(number, conversation_id=f"talk-{number % 2}", metadata={"ticket": str(number % 4)}))
        records.append(traffic.feedback(number, text="sales"))
    records += [b"broken\n", traffic.call(3), traffic.call(4, task="other"), traffic.feedback(99, text="never")]
    by_ticket = {"kind": "metadata", "key": "ticket", "value": "2"}
    records.append(traffic.feedback(50, text="by ticket", target=by_ticket))
    traffic.write(*records)
    return len(records)


def intake(deployment: Any) -> None:
    run_intake(deployment.config, deployment.home, deployment.registry, deployment.task)


def state(deployment: Any) -> tuple[Any, ...]:
    """What must be equal whatever happened on the way."""
    home, registry, task = deployment.home, deployment.registry, deployment.task
    with registry.read() as tx:
        columns = [
            schema.intake_counts.c[name] for name in ("read", "kept", "late", "duplicate", "quarantined", "skipped")
        ]
        (totals,) = tx.rows(sa.select(*(sa.func.sum(column).label(column.name) for column in columns)))
    ids = query(home, registry, "interactions", task, "SELECT interaction_id FROM rows ORDER BY 1").to_pylist()
    orphans = [row["feedback_id"] for row in read_rows(home, registry, "orphans", task, "feedback_id")]
    bad = [row["source_offset"] for row in read_rows(home, registry, "quarantine", task, "source_offset")]
    assert len({row["interaction_id"] for row in ids}) == len(ids)
    return intake_digest(home, registry, task), totals, orphans, bad


@pytest.fixture
def undisturbed(make_deployment, traffic_of) -> tuple[Any, ...]:
    deployment = make_deployment("undisturbed")
    records = fill(deployment, traffic_of(deployment.home))
    intake(deployment)
    found = state(deployment)
    assert found[1]["read"] == records
    return found


@pytest.mark.parametrize("size", [1, 5])
def test_the_tables_do_not_depend_on_where_chunks_end(
    make_deployment, traffic_of, undisturbed: Any, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(reading, "CHUNK_RECORDS", size)
    deployment = make_deployment()
    fill(deployment, traffic_of(deployment.home))
    intake(deployment)
    assert state(deployment) == undisturbed


def test_an_end_before_any_write_to_disk_or_after_any_transaction_changes_nothing(
    make_deployment, traffic_of, undisturbed: Any, dies_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHUNK_RECORDS", 9)
    deployment = make_deployment()
    fill(deployment, traffic_of(deployment.home))
    crashes = 0
    while dies_at(crashes % 19, lambda: intake(deployment)):  # the instants of a chunk; some runs get through it
        crashes += 1
    assert crashes > 10
    assert state(deployment) == undisturbed


CHILD = """
import sys
from flywheel.intake import reading, run_intake
from flywheel.config import load_config
from flywheel.store.home import Home
from flywheel.store.registry import Registry

reading.CHUNK_RECORDS = 2
config = load_config(sys.argv[1])
home, registry = Home.of(config), Registry.of(config)
print("ready", flush=True)
run_intake(config, home, registry, "support_router")
"""


def test_a_process_killed_at_random_instants_loses_and_doubles_nothing(
    make_deployment, traffic_of, undisturbed: Any, tmp_path
) -> None:
    deployment = make_deployment()
    fill(deployment, traffic_of(deployment.home))
    config = tmp_path / "deployment" / "flywheel.yaml"
    config.write_text("home: home\ntasks: {support_router: {base: tiny, prompt: Route the message to a queue.}}\n")
    chance = random.Random(7)
    for _ in range(4):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(config)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(chance.uniform(0, 0.6))
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        assert child.returncode in (0, -signal.SIGKILL)
    intake(deployment)
    assert state(deployment) == undisturbed
