"""Homes with one person whose words can be told from all others', and a search through every byte of a home."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from flywheel.erasure import Erasure, Plan, erase, plan_erasure
from flywheel.gateway.server import RunningGateway, serve
from flywheel.store.home import Home
from flywheel.store.registry import schema

PERSON = "ada@example.org"
MARK = "quokka"
"""A word that only the person writes."""

WORDS = {"red": ("apple", "cherry", "rose", "blood"), "blue": ("sky", "ocean", "berry", "jeans")}


@dataclass
class Live:
    """A running gateway and the home it serves."""

    world: Any
    url: str

    def http(self) -> httpx.Client:
        """A client on its root."""
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False)


@dataclass
class People:
    """Traffic in which the person makes every fifth call."""

    wheel: Any
    traffic: Any
    person: str = PERSON

    def talk(self, first: int, count: int) -> None:
        """Calls with corrections by whoever made them, the audited ones labelled by a reviewer as well.

        The person also corrects, in words of their own, what every 25th caller was told; and writes bad records.
        """
        records: list[Any] = []
        for number in range(first, first + count):
            word = "red" if number % 2 else "blue"
            mine = number % 5 == 0
            text = f"{WORDS[word][number // 2 % 4]} {MARK if mine else 'plain'} {number * 7919 % 1_000_000}"
            user = self.person if mine else f"user-{number % 60}"
            records.append(self.traffic.call(number, MARK if mine else "?", text=text, user=user))
            if number % 25 == 6:
                about = {"name": f"meddle-{number}", "text": MARK, "author": self.person}
                records.append(self.traffic.feedback(number, **about))
            else:
                records.append(self.traffic.feedback(number, text=word, author=user))
            if self.wheel.home.audited(self.traffic.call_id(number), 0.3):
                by = {"source": "reviewer", "author": "reviewer"}
                records.append(self.traffic.feedback(number, "label", text=word, **by))
        bad = self.traffic.call(first, user=self.person, text=MARK, request={"messages": MARK})
        early = self.traffic.feedback(first + 90_000, name=f"early-{first}", text=MARK, author=self.person)
        self.traffic.write(*records, bad, early)

    @property
    def calls(self) -> list[str]:
        """Ids of the person's calls in the log."""
        return [line["id"] for line in log_lines(self.wheel.home) if line.get("user") == self.person]


def log_lines(home: Home) -> list[dict[str, Any]]:
    """Every whole line of the gateway's log."""
    found: list[dict[str, Any]] = []
    for path in sorted(home.log.glob("*.jsonl")):
        *lines, _torn = path.read_bytes().split(b"\n")
        found += [json.loads(line) for line in lines if line]
    return found


def occurrences(home: Home, *words: str) -> list[str]:
    """Where in a home one of ``words`` is written: raw bytes, rows of Parquet files, and probes' prompts in words."""
    from flywheel.models import load_tokenizer, resolve

    tokenizer = load_tokenizer(resolve("tiny"))
    found = []
    for path in sorted(path for path in home.root.rglob("*") if path.is_file()):
        said = path.read_bytes().decode("utf-8", "replace")
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                said += str(file.read().to_pylist())
        if path.name == "probes.json":
            said += " ".join(tokenizer.decode(probe["prompt_ids"]) for probe in json.loads(said)["probes"])
        found += [f"{path.relative_to(home.root)}: {word}" for word in words if word in said]
    return found


@pytest.fixture
def search() -> Callable[..., list[str]]:
    """``search(home, *words)`` -> where in the home they are written."""
    return occurrences


@pytest.fixture
def lines() -> Callable[[Home], list[dict[str, Any]]]:
    """``lines(home)`` -> the records of the gateway's log."""
    return log_lines


@pytest.fixture
def people(traffic_of: Any) -> Callable[[Any], People]:
    """``people(wheel)`` -> traffic with the person in it."""
    return lambda wheel: People(wheel, traffic_of(wheel.home))


@pytest.fixture
def erased() -> Callable[..., Erasure]:
    """``erased(wheel, user=PERSON)``: erase somebody there."""
    return lambda at, user=PERSON: erase(at.config, at.home, at.registry, user)


@pytest.fixture
def planned() -> Callable[..., Plan]:
    """``planned(wheel, user=PERSON)``: what an erasure would do there."""
    return lambda at, user=PERSON: plan_erasure(at.config, at.home, at.registry, user)


@pytest.fixture(scope="session")
def turned_folder(tmp_path_factory: pytest.TempPathFactory, new_wheel: Any, traffic_class: Any) -> Path:
    """A wheel that has turned once, on traffic with the person in it, and promoted. Take copies."""
    from flywheel.loops.run import run_loop

    wheel = new_wheel(tmp_path_factory.mktemp("turned") / "wheel")
    People(wheel, traffic_class(wheel.home)).talk(0, 240)
    view = run_loop(wheel.config, wheel.home, wheel.registry, wheel.task, run_id="turn", say=print)
    assert view["verdict"] == "promote", view["reasons"]
    wheel.registry.settle()
    wheel.registry.close()
    return Path(wheel.folder)


@pytest.fixture
def turned(turned_folder: Path, make_wheel: Any) -> Any:
    """A copy of `turned_folder`, open."""
    return make_wheel(like=turned_folder)


@pytest.fixture(scope="session")
def drawn_folder(tmp_path_factory: pytest.TempPathFactory, new_wheel: Any, traffic_class: Any) -> Path:
    """A wheel whose first loop has drawn its suites and built its dataset, whereupon its process died."""
    from flywheel.loops.claims import claim, enter
    from flywheel.loops.context import LoopContext
    from flywheel.loops.dataset import dataset_stage

    wheel = new_wheel(tmp_path_factory.mktemp("drawn") / "wheel")
    People(wheel, traffic_class(wheel.home)).talk(0, 240)
    wheel.labelled()
    assert claim(wheel.registry, wheel.task, min_labels=60) is not None
    ctx = LoopContext(wheel.config, wheel.home, wheel.registry, enter(wheel.registry, wheel.task, "earlier"))
    dataset_stage(ctx)
    with wheel.registry.write() as tx:
        tx.execute(sa.update(schema.loops).values(pid=2**22 + 1, started="1"))
    wheel.registry.settle()
    wheel.registry.close()
    return Path(wheel.folder)


@pytest.fixture
def drawn(drawn_folder: Path, make_wheel: Any) -> Any:
    """A copy of `drawn_folder`, open."""
    return make_wheel(like=drawn_folder)


@pytest.fixture
def gateway(make_wheel: Any) -> Iterator[Live]:
    """A live gateway on an empty wheel, in a thread of this process."""
    wheel = make_wheel("served")
    ready = threading.Event()
    running: list[RunningGateway] = []

    def begin(gateway: RunningGateway) -> None:
        running.append(gateway)
        ready.set()

    thread = threading.Thread(target=serve, args=(wheel.config,), kwargs={"on_ready": begin}, daemon=True)
    thread.start()
    assert ready.wait(60)
    yield Live(wheel, running[0].url)
    running[0].stop()
    thread.join(60)
