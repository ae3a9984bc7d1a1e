"""kill -9 at random instants, everywhere, and a power cut: nothing acknowledged is lost, nothing is done twice.

``FLYWHEEL_TRIAL_KILLS`` sets how many kills each asset and each process gets (default 3).
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.intake import intake_digest, run_intake
from flywheel.labels import labels_digest, run_labels
from flywheel.release.pointer import history
from flywheel.store.digests import short
from flywheel.store.registry import schema
from flywheel.store.segments import read_rows

KILLS = int(os.environ.get("FLYWHEEL_TRIAL_KILLS", "3"))
SEED = int(os.environ.get("FLYWHEEL_TRIAL_SEED", "0"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 + 900 * KILLS)]

INTAKE, LOOP = ("interactions", "labels"), ("dataset", "candidate", "evaluation", "champion")
KINDS = {"red": ["apple", "cherry", "rose", "blood"], "blue": ["sky", "ocean", "berry", "jeans"]}
LATER = {"green": ["grass", "leaf"], "pink": ["pig", "gum"], "gold": ["ring", "coin"], "gray": ["mouse", "ash"]}
RESTART_LIMIT_S = 60.0
TURN_LIMIT_S = 300.0
KILLS_PER_LOOP = 2  # a loop has three attempts


class Stages:
    """What Dagster's event log says about the steps of a deployment."""

    def __init__(self, up: Any) -> None:
        self.up = up

    def events(self, run_id: str) -> list[tuple[str, str, float]]:
        """(stage, what happened to it, when) in order."""
        import dagster as dg

        kinds = {getattr(dg.DagsterEventType, f"STEP_{what}") for what in ("START", "SUCCESS", "FAILURE")}
        return [
            (entry.step_key.split("__")[-1], entry.dagster_event.event_type_value, entry.timestamp)
            for entry in self.up.instance.all_logs(run_id, of_type=kinds)
        ]

    def open_steps(self) -> list[tuple[str, str]]:
        """(run id, stage) of the steps that have begun and not ended, of runs under way."""
        import dagster as dg

        found = []
        for run in self.up.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
            events = self.events(run.run_id)
            if events and events[-1][1] == "STEP_START":
                found.append((run.run_id, events[-1][0]))
        return found

    def worker(self, run_id: str) -> int | None:
        """The process that works on a run, once the run says so."""
        tag = self.up.instance.get_run_by_id(run_id).tags.get("flywheel/process")
        return int(tag.split("/")[1]) if tag else None

    def seconds(self) -> dict[str, float]:
        """The longest time that each stage took."""
        longest: dict[str, float] = {}
        for run in self.up.instance.get_runs():
            begun: dict[str, float] = {}
            for stage, what, at in self.events(run.run_id):
                if what == "STEP_START":
                    begun[stage] = at
                else:
                    longest[stage] = max(longest.get(stage, 0.0), at - begun[stage])
        return longest

    def unfinished(self) -> list[str]:
        """Runs that are not at their end."""
        return [f"{run.run_id} {run.status.value}" for run in self.up.instance.get_runs() if not run.is_finished]


class Striker:
    """Kills whoever works on a stage at a random instant inside it, as often as ``wanted`` says."""

    def __init__(self, wanted: dict[str, int], seconds: dict[str, float], dice: random.Random) -> None:
        self.wanted, self.hits, self.missed, self.killed = Counter(wanted), Counter[str](), 0, 0
        self.victims: Counter[str] = Counter()
        self._seconds, self._dice = seconds, dice

    def left(self) -> bool:
        return any(self.hits[stage] < number for stage, number in self.wanted.items())

    def haunt(self, up: Any) -> None:
        """Strike in one deployment until its loop is finished. In a loop at most two are killed: it has three attempts,
        and a kill just behind a stage's end costs one too, though it is no hit."""
        stages, seen, in_loop = Stages(up), set[tuple[str, str]](), 0
        deadline = time.monotonic() + TURN_LIMIT_S * (1 + KILLS_PER_LOOP)
        while not finished(up):
            assert time.monotonic() < deadline, "the loop does not end"
            for run_id, stage in stages.open_steps():
                if (run_id, stage) in seen or self.hits[stage] >= self.wanted[stage]:
                    continue
                if stage in LOOP and in_loop >= KILLS_PER_LOOP:
                    continue
                seen.add((run_id, stage))
                time.sleep(self._dice.random() * self._seconds[stage])
                killed = self.killed
                if self._strike(up, stages, run_id, stage):
                    self.hits[stage] += 1
                else:
                    self.missed += 1
                in_loop += self.killed - killed if stage in LOOP else 0
            time.sleep(0.005)

    def _strike(self, up: Any, stages: Stages, run_id: str, stage: str) -> bool:
        children = list(up.processes("-m flywheel.training"))
        child = bool(children) and self.hits[stage] % 2 == 0
        pid = children[0] if child else stages.worker(run_id)
        if pid is None or stages.events(run_id)[-1][:2] != (stage, "STEP_START"):
            return False
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            return False
        self.killed += 1
        time.sleep(0.2)
        if (stage, "STEP_SUCCESS") in {event[:2] for event in stages.events(run_id)}:
            return False
        self.victims["child" if child else "run worker"] += 1
        return True


def finished(up: Any) -> bool:
    """Whether the first loop has come to its end."""
    rows = up.loops()
    assert not rows or rows[0]["state"] != "failed", rows[0]["reasons"]
    return bool(rows) and rows[0]["state"] == "finished"


def results(up: Any) -> dict[str, str]:
    """Digests of everything a deployment has made of its log, and its champion."""
    (loop,) = up.loops()
    with up.registry.read() as tx:
        champion = history(tx, up.task)[-1]["release"]
    made = {name: loop[name] for name in ("dataset", "candidate", "evaluation", "decision", "verdict")}
    data = {"intake": intake_digest, "labels": labels_digest}
    return (
        {name: digest(up.home, up.registry, up.task) for name, digest in data.items()} | made | {"champion": champion}
    )


def check_loops(up: Any) -> None:
    """No loop was done twice: numbers in a row, and per loop at most one evaluation, decision and promotion."""
    loops = up.loops()
    assert [row["number"] for row in loops] == list(range(1, len(loops) + 1))
    assert all(row["state"] in ("finished", "failed") for row in loops)
    with up.registry.read() as tx:
        moves = history(tx, up.task)
        evaluations = tx.rows(sa.select(schema.evaluations))
        decisions = tx.rows(sa.select(schema.decisions))
    assert max(Counter(row["loop_id"] for row in evaluations).values()) == 1
    assert len({row["evaluation"] for row in decisions}) == len(decisions) == len(evaluations)
    assert {row["decision"] for row in loops if row["decision"]} == {row["digest"] for row in decisions}
    promoted = [row for row in loops if row["verdict"] == "promote" and row["state"] == "finished"]
    assert [move["loop_id"] for move in moves] == [None, *(row["loop_id"] for row in promoted)]
    assert [move["version"] for move in moves] == list(range(1, len(moves) + 1))
    assert {row["digest"] for row in decisions if row["used_at"]} == {row["decision"] for row in promoted}


def check_runs(up: Any) -> None:
    """No run is left queued or running behind a dead one."""
    stages, deadline = Stages(up), time.monotonic() + RESTART_LIMIT_S
    while left := stages.unfinished():
        assert time.monotonic() < deadline, left
        time.sleep(1)


def test_killed_anywhere_inside_the_six_assets_the_loop_ends_with_the_same_digests(
    make_up: Callable[[str], Any], customers: Callable[..., Any]
) -> None:
    recorded = make_up("recorded")
    recorded.start("--no-dagster")
    with customers(recorded, KINDS, limit=90) as clients:
        clients.join()
    assert len(clients.told.answers) == 270 and clients.refused == 0
    recorded.stop()

    undisturbed = make_up("undisturbed")
    undisturbed.take_log_of(recorded)
    undisturbed.start()
    Striker({}, {}, random.Random(SEED)).haunt(undisturbed)
    check_runs(undisturbed)
    check_loops(undisturbed)
    wanted, seconds = results(undisturbed), Stages(undisturbed).seconds()
    assert wanted["verdict"] == "promote" and wanted["champion"] == wanted["candidate"]
    assert set(seconds) == {*INTAKE, *LOOP}
    undisturbed.stop()

    striker = Striker(dict.fromkeys((*INTAKE, *LOOP), KILLS), seconds, random.Random(SEED))
    homes, attempts = 0, Counter[int]()
    while striker.left():
        homes += 1
        assert homes <= 4 * KILLS + 4, f"the strikes keep missing: {dict(striker.hits)}"
        up = make_up(f"struck-{homes}")
        up.take_log_of(recorded)
        up.start()
        striker.haunt(up)
        assert results(up) == wanted, "on a frozen log everything has the digests of the undisturbed run"
        check_runs(up)
        check_loops(up)
        attempts[up.loops()[0]["attempt"]] += 1
        up.stop()
    print(
        f"\nkills inside assets: {dict(striker.hits)} ({dict(striker.victims)}; {striker.missed} missed the step) in "
        f"{homes} homes with one frozen log of {len(clients.told.answers)} calls; attempts {dict(attempts)}; step "
        f"seconds { ({stage: round(s, 2) for stage, s in seconds.items()}) }; digests equal in all: "
        + ", ".join(f"{name} {short(value)}" for name, value in wanted.items())
    )


def test_gateway_daemon_and_power_are_cut_under_load_and_nothing_acknowledged_is_lost(
    make_up: Callable[[str], Any], customers: Callable[..., Any]
) -> None:
    up, dice, kinds = make_up("live"), random.Random(SEED), dict(KINDS)
    up.start()
    later = iter(LATER.items())
    waits: dict[str, list[float]] = {"gateway": [], "daemon": [], "power": []}
    with customers(up, kinds, pause_s=0.5) as clients:
        up.wait(lambda: any(row["verdict"] == "promote" for row in up.loops()), TURN_LIMIT_S, "the first promotion")
        for _ in range(KILLS):
            kinds.update([next(later, ("red", KINDS["red"]))])  # something new to learn keeps the wheel turning
            time.sleep(dice.random() * 5)
            waits["gateway"].append(kill_gateway(up, clients))
            time.sleep(dice.random() * 10)
            before = up.running()
            kill_daemon(up)
            waits["daemon"].append(next_start(up, before))
            time.sleep(dice.random() * 15)
            before = up.running()
            assert up.power_cut() >= 5
            restarted = time.monotonic()
            up.start()
            next_start(up, before)
            waits["power"].append(time.monotonic() - restarted)
        done = ended(up)
        up.wait(lambda: ended(up) > done, TURN_LIMIT_S, "a loop after it all")
    quiet(up)
    check_runs(up)
    check_loops(up)
    assert up.stop() == {}, "Ctrl-C leaves no process"
    told = clients.told
    check_nothing_lost(up, told)
    check_same_data(up, make_up("copy"))
    loops = up.loops()
    print(
        f"\nkills under load: {KILLS} each of gateway, daemon and power; {len(told.answers)} whole answers and "
        f"{len(told.feedback)} acknowledged feedbacks, lost 0, calls refused meanwhile {clients.refused}; loops "
        f"{len(loops)}: {dict(Counter(row['verdict'] or row['state'] for row in loops))}, attempts "
        f"{dict(Counter(row['attempt'] for row in loops))}; seconds until it went on (median, worst): "
        + ", ".join(f"{what} {statistics.median(s):.0f}, {max(s):.0f}" for what, s in waits.items())
    )
    assert max(waits["power"]) <= RESTART_LIMIT_S and max(waits["daemon"]) <= RESTART_LIMIT_S, waits


def test_stopping_after_the_daemon_was_killed_in_a_loop_leaves_no_process_of_it(
    make_up: Callable[[str], Any], customers: Callable[..., Any]
) -> None:
    up = make_up("stopped")
    up.start()
    with customers(up, KINDS, limit=90) as clients:
        clients.join()
    up.wait(lambda: bool(up.processes("-m flywheel.training")), TURN_LIMIT_S, "a loop that trains")
    killed = kill_daemon(up)
    up.wait(lambda: bool(daemons(up) - {killed}), 30, "the next daemon")
    assert up.processes("-m flywheel.training"), "the run goes on without the daemon that started it"
    assert up.stop() == {}


def daemons(up: Any) -> set[int]:
    """The Dagster daemon's process, if it runs."""
    return {pid for pid, line in up.processes("dagster-daemon").items() if " run -w" in line}


def kill_daemon(up: Any) -> int:
    """Kill the Dagster daemon; returns which process it was."""
    (pid,) = daemons(up)
    os.kill(pid, 9)
    return pid


def kill_gateway(up: Any, clients: Any) -> float:
    """Kill the gateway under load; seconds until clients get answers again."""
    (pid,) = up.processes("flywheel.cli.__main__ serve")
    before = clients.refused
    os.kill(pid, 9)
    killed = time.monotonic()
    up.wait(lambda: clients.refused > before, 30, "the clients to notice")
    answered = len(clients.told.answers)
    up.wait(lambda: len(clients.told.answers) > answered + 2, 90, "the gateway to answer again")
    return time.monotonic() - killed


def next_start(up: Any, before: tuple[str, int] | None) -> float:
    """Seconds until a loop or an attempt is under way that is not the one of ``before``."""
    return float(up.wait(lambda: up.running() not in (None, before), TURN_LIMIT_S, "the next loop's start"))


def ended(up: Any) -> int:
    """How many loops are finished."""
    return sum(row["state"] == "finished" for row in up.loops())


def quiet(up: Any) -> None:
    """Wait until no loop is open and none is due."""

    def still() -> bool:
        if any(row["state"] in ("claimed", "running") for row in up.loops()) or Stages(up).unfinished():
            return False
        time.sleep(12)  # two looks of the sensors
        return all(row["state"] in ("finished", "failed") for row in up.loops()) and not Stages(up).unfinished()

    up.wait(still, 2 * TURN_LIMIT_S, "the wheel to come to rest")


def check_nothing_lost(up: Any, told: Any) -> None:
    """Every answer whose end a client got, and every feedback it was told is kept, is in the log and the tables."""
    log = up.log()
    for name, text in told.answers.items():
        assert log[name]["status"] == "ok" and log[name]["choices"][0]["message"]["content"] == text
    assert told.feedback <= log.keys()
    run_intake(up.config, up.home, up.registry, up.task)
    stored = {row["interaction_id"]: row for row in read_rows(up.home, up.registry, "interactions", up.task, "ts")}
    assert told.answers.keys() <= stored.keys()
    feedback = [row["feedback_id"] for row in read_rows(up.home, up.registry, "feedback", up.task, "feedback_id")]
    assert told.feedback <= set(feedback) and len(set(feedback)) == len(feedback)


def check_same_data(up: Any, copy: Any) -> None:
    """What was kept through all of it is what a home that reads the whole log at once keeps."""
    copy.take_log_of(up)
    run_intake(copy.config, copy.home, copy.registry, copy.task)
    for home in (up, copy):
        run_labels(home.config, home.home, home.registry, home.task)
    for digest in (intake_digest, labels_digest):
        assert digest(copy.home, copy.registry, copy.task) == digest(up.home, up.registry, up.task)
