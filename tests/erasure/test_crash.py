"""An erasure that was killed anywhere and run again leaves what an undisturbed one leaves."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.erasure import log as log_module
from flywheel.erasure import run as run_module
from flywheel.errors import HomeBusy
from flywheel.intake import intake_digest, run_intake
from flywheel.labels import labels_digest, run_labels
from flywheel.loops.claims import claim, enter
from flywheel.store.registry import schema

PERSON, MARK = "ada@example.org", "quokka"

STEPS = len(run_module.STEPS)

CHILD = """
import sys
from flywheel.config import load_config
from flywheel.erasure import erase
from flywheel.store.home import Home
from flywheel.store.registry import Registry

config = load_config(sys.argv[1])
registry = Registry.of(config)
print("open", flush=True)
erase(config, Home.of(config), registry, sys.argv[2])
"""


class Crash(BaseException):
    """Stands for the process's end."""


def state(wheel: Any) -> dict[str, Any]:
    """What a home holds, whenever and however often it was made."""
    at = (wheel.home, wheel.registry, wheel.task)
    run_intake(wheel.config, *at)
    run_labels(wheel.config, *at, now=datetime(2027, 1, 1, tzinfo=UTC))
    folders = (wheel.home.datasets, wheel.home.suites, wheel.home.log, wheel.home.runs)
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    found: dict[str, Any] = {"intake": intake_digest(*at), "labels": labels_digest(*at)}
    found["files"] = {str(path.relative_to(wheel.home.root)): path.read_bytes() for path in files}
    own = {
        "tombstones": ("kind", "digest", "successor", "rows_removed", "train_rows_removed"),
        "suites": ("digest", "state", "uses"),
        "datasets": ("digest", "parent", "loop_id", "manifest"),
        "suite_items": ("interaction_id", "kind", "state"),
        "loops": ("loop_id", "state", "reasons"),
        "erased_names": ("task", "name", "kind"),
        "erasures": ("user_key", "state", "counts"),
    }
    with wheel.registry.read() as tx:
        for name, columns in own.items():
            table = schema.metadata.tables[name]
            rows = tx.rows(sa.select(*(table.c[column] for column in columns)))
            found[name] = sorted(repr(row) for row in rows)
    return found


@pytest.fixture
def undisturbed(drawn_folder: Path, make_wheel: Any, erased: Any) -> dict[str, Any]:
    wheel = make_wheel("undisturbed", like=drawn_folder)
    erased(wheel)
    found = state(wheel)
    assert "'state': 'done'" in found["erasures"][0] and len(found["tombstones"]) == 3
    return found


@pytest.mark.parametrize("step", range(STEPS))
def test_an_end_after_any_step_is_finished_by_the_next_run(
    drawn: Any, undisturbed: Any, erased: Any, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    def dying(work: Any, number: int) -> None:
        before[number](work)
        if work.apply and number == step:
            raise Crash

    before = run_module.STEPS
    with monkeypatch.context() as patch, pytest.raises(Crash):
        steps = [lambda work, number=number: dying(work, number) for number in range(STEPS)]
        patch.setattr(run_module, "STEPS", tuple(steps))
        erased(drawn)
    run_labels(drawn.config, drawn.home, drawn.registry, drawn.task, now=datetime(2027, 1, 1, tzinfo=UTC))
    with pytest.raises(HomeBusy, match="run `flywheel erase` for the same user again"):
        enter(drawn.registry, drawn.task, "meanwhile")
    assert claim(drawn.registry, drawn.task, min_labels=1) is None, "no loop starts on half an erasure"
    assert erased(drawn).resumed
    assert state(drawn) == undisturbed


def test_an_end_before_any_write_to_disk_or_after_any_transaction_changes_nothing(
    drawn: Any, undisturbed: Any, erased: Any, search: Any, dies_at: Any
) -> None:
    crashes = 0
    while dies_at(crashes, lambda: erased(drawn)):
        crashes += 1
    assert crashes > 15
    assert state(drawn) == undisturbed
    assert search(drawn.home, MARK, PERSON) == []


def test_a_process_killed_at_random_instants_leaves_what_the_next_one_finishes(
    drawn: Any, undisturbed: Any, erased: Any
) -> None:
    chance = random.Random(3)
    kills = 0
    for _ in range(2):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(drawn.path), PERSON], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"open\n"
        time.sleep(chance.uniform(0.2, 1.5))
        child.send_signal(signal.SIGKILL)
        kills += child.wait() == -signal.SIGKILL
        child.stdout.close()
    assert kills
    erased(drawn)
    found = state(drawn)
    assert found == undisturbed


def test_what_only_the_erased_rows_could_tell_is_found_by_the_next_run(
    deployment: Any, traffic: Any, erased: Any, lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's turn in a conversation of theirs, and feedback by metadata, once the rows that say so are gone."""
    traffic.write(
        traffic.call(1, user=PERSON, conversation_id="talk", metadata={"ticket": "7"}),
        traffic.call(2, user="bob"),
    )
    about = {"kind": "metadata", "key": "ticket", "value": "7"}
    traffic.write(
        traffic.call(3, user="bob", conversation_id="talk"),
        traffic.feedback(1, text="about ada", author="bob", target=about),
        traffic.feedback(3, text="about both", author="bob"),
        boot="20250302T120000000000Z-00000000",
    )
    run_intake(deployment.config, deployment.home, deployment.registry, deployment.task)
    overwrite = log_module._overwrite

    def once(path: Path, work: Any) -> None:
        overwrite(path, work)
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(log_module, "_overwrite", once)
        erased(deployment)
    assert [line["kind"] for line in lines(deployment.home)] == [
        "erased", "interaction", "interaction", "feedback", "feedback",
    ]  # fmt: skip
    done = erased(deployment)
    assert [line["kind"] for line in lines(deployment.home)] == [
        "erased", "interaction", "erased", "erased", "erased",
    ]  # fmt: skip
    assert done.totals["log_lines"] == 4 and done.totals["interactions_of_others"] == 1
