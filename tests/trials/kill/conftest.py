"""What the kill trials share: a real `flywheel up` that can be struck anywhere, and clients that keep count."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import sqlalchemy as sa
import yaml

from flywheel.config import load_config
from flywheel.loops.claims import runner_alive
from flywheel.models import ModelDir
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema

BOOT_LIMIT_S = 120.0

ROUTER = {
    "base": "tiny",
    "labels": {"maturity_hours": 0, "audit_share": 0.3, "gate_labels": ["reviewer"]},
    "data": {
        "min_examples": 16,
        "max_user_share": 0.5,
        "near_duplicate": 0.95,
        "replay_share": 0.2,
        "max_per_cluster": 1000,
    },
    "train": {
        "rank": 8,
        "alpha": 16,
        "lr": 0.01,
        "batch_size": 8,
        "epochs": 10,
        "max_steps": 80,
        "max_tokens": 128,
    },
    "suites": {"gate_target": 40, "gate_min": 15, "golden_target": 15},
    "trigger": {"min_labels": 60, "interval_seconds": 2, "intake_seconds": 3},
    "serve": {"max_tokens": 6},
}
"""A task that the tiny model learns within seconds."""


class Up:
    """A `flywheel up` on a home of its own. Every process of it carries a mark by which it is found and ended."""

    task = "router"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.path = folder / "flywheel.yaml"
        compute = {"threads": 1, "dtype": "float32"}
        raw = {
            "home": "home",
            "gateway": {"port": free_port(), **compute},
            "compute": compute,
            "dagster": {"port": free_port()},
            "tasks": {self.task: ROUTER},
        }
        self.path.write_text(yaml.safe_dump(raw))
        self.config = load_config(self.path)
        self.home = Home.of(self.config)
        self.registry = Registry.of(self.config, actor="trial")
        self.url = f"http://127.0.0.1:{self.config.gateway.port}"
        self._mark = f"FLYWHEEL_TRIAL={uuid.uuid4().hex}"
        self._process: subprocess.Popen[bytes] | None = None
        self._instance: Any = None

    def start(self, *options: str) -> None:
        """Start it and wait until the gateway answers."""
        name, _, value = self._mark.partition("=")
        command = [sys.executable, "-m", "flywheel.cli.__main__", "up", "--config", str(self.path), *options]
        with self.path.with_name("up.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {name: value},
                start_new_session=True,
            )
        self.wait(self._healthy, BOOT_LIMIT_S, "the gateway of `flywheel up`")

    def _healthy(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.path.with_name("up.log").read_text()
        try:
            return httpx.get(f"{self.url}/healthz", timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    @staticmethod
    def wait(ready: Callable[[], bool], limit_s: float, what: str) -> float:
        """Wait until ``ready``; returns the seconds it took."""
        started = time.monotonic()
        while not ready():
            assert time.monotonic() - started < limit_s, f"{what}: not within {limit_s:.0f} s"
            time.sleep(0.1)
        return time.monotonic() - started

    def processes(self, having: str = "") -> dict[int, str]:
        """The live processes of this deployment whose command line contains ``having``: pid -> command line."""
        found: dict[int, str] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                marked = self._mark.encode() in (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it ended meanwhile, or is not ours
            if marked and command and having in command:
                found[int(folder.name)] = command
        return found

    def power_cut(self) -> int:
        """End all processes at one instant: none gets to act on the death of another. Returns how many there were."""
        pids = list(self.processes())
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                kill(pid, number)
        while left := self.processes():
            for pid in left:
                kill(pid)
        if self._process is not None:
            self._process.wait()
            self._process = None
        return len(pids)

    def stop(self) -> dict[int, str]:
        """Stop as by Ctrl-C; whatever is left after that is ended, and returned: pid -> command line."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(45)
        left = self.processes()
        self.power_cut()
        return left

    def close(self) -> None:
        """Stop and give everything back."""
        self.stop()
        if self._instance is not None:
            self._instance.dispose()
        self.registry.close()

    @property
    def instance(self) -> Any:
        """Dagster's instance of this deployment."""
        import dagster as dg

        if self._instance is None:
            self._instance = dg.DagsterInstance.from_config(str(self.home.dagster))
        return self._instance

    def loops(self) -> list[dict[str, Any]]:
        """The rows of the ``loops`` table, by number."""
        with self.registry.read() as tx:
            return tx.rows(sa.select(schema.loops).order_by(schema.loops.c.number))

    def running(self) -> tuple[str, int] | None:
        """Loop and attempt that a live process works on."""
        for row in self.loops():
            if row["state"] == "running" and runner_alive(row):
                return row["loop_id"], row["attempt"]
        return None

    def log(self) -> dict[str, dict[str, Any]]:
        """Every whole record of the log by id."""
        records: dict[str, dict[str, Any]] = {}
        for path in sorted(self.home.log.glob("*.jsonl")):
            *lines, _torn = path.read_bytes().split(b"\n")
            records.update((record["id"], record) for record in map(json.loads, lines))
        return records

    def take_log_of(self, other: Up) -> None:
        """Get another home's log, and the key that draws its audit sample and makes its user keys."""
        shutil.copytree(other.home.log, self.home.log, dirs_exist_ok=True)
        (self.home.root / "secret.key").write_bytes(other.home.secret())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    """Send a signal; False when the process had ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def make_up(tmp_path: Path, tiny: ModelDir) -> Iterator[Callable[[str], Up]]:
    """``make_up(name)`` -> an Up that is not started; all its processes end with the test."""
    made: list[Up] = []

    def make(name: str) -> Up:
        made.append(Up(tmp_path / name))
        return made[-1]

    yield make
    for up in made:
        up.close()


@dataclass
class Acknowledged:
    """What clients were told is done: whole answers by id, and feedback ids."""

    answers: dict[str, str]
    feedback: set[str]


class Customers:
    """Clients that ask, and tell the right answer, all the time; a gateway that is away makes them try again.

    Args:
        kinds: label -> words that mean it. It may grow while they run.
        limit: calls of each client; None goes on until ``stop``.
    """

    def __init__(
        self, up: Up, kinds: dict[str, list[str]], *, limit: int | None = None, clients: int = 3, pause_s: float = 0.0
    ) -> None:
        self.kinds, self.told, self.refused = kinds, Acknowledged({}, set()), 0
        self._up, self._limit, self._pause_s = up, limit, pause_s
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(clients)]

    def __enter__(self) -> Customers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.join()

    def join(self) -> None:
        """Wait for the clients to end."""
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        dice = random.Random(number)
        client = openai.OpenAI(base_url=f"{self._up.url}/v1", api_key="unused", max_retries=0, timeout=60)
        with httpx.Client(base_url=self._up.url, timeout=60, trust_env=False) as plain:
            for turn in itertools.count():
                if self._stop.wait(self._pause_s) or turn == self._limit:
                    return
                try:
                    self._turn(client, plain, dice, stream=turn % 2 == 1)
                except (openai.OpenAIError, httpx.HTTPError):
                    self.refused += 1
                    time.sleep(0.3)

    def _turn(self, client: openai.OpenAI, plain: httpx.Client, dice: random.Random, *, stream: bool) -> None:
        label = dice.choice(list(self.kinds))
        text = f"{dice.choice(self.kinds[label])} {dice.randrange(10**6)}"
        user = f"u{dice.randrange(60)}"
        asked: Any = {"model": self._up.task, "messages": [{"role": "user", "content": text}], "user": user}
        if stream:
            chunks = list(client.chat.completions.create(**asked, stream=True))
            if not chunks or chunks[-1].choices[0].finish_reason is None:
                raise openai.OpenAIError("the stream broke off")  # the end did not come: nothing was promised
            name, answer = chunks[0].id, "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        else:
            whole = client.chat.completions.create(**asked)
            name, answer = whole.id, whole.choices[0].message.content or ""
        self.told.answers[name] = answer
        about = {"interaction_id": name, "text": label}
        said = [
            {**about, "kind": "correction", "author": user},
            {**about, "kind": "label", "source": "reviewer", "author": "reviewer"},
        ]
        done = plain.post("/v1/feedback", json=said).raise_for_status()
        self.told.feedback.update(item["id"] for item in done.json()["data"])


@pytest.fixture(scope="session")
def customers() -> type[Customers]:
    """``customers(up, kinds)``: clients of a deployment, as a context manager."""
    return Customers
