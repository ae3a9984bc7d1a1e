"""Real gateways on the tiny model: uvicorn on a free port in a thread of this process, asked over HTTP."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from flywheel.config import Config, parse_config
from flywheel.gateway.server import RunningGateway, serve
from flywheel.release.pointer import Champion, champion, ensure_champion, swap
from flywheel.release.releases import Release, make_release, recordings
from flywheel.store.digests import tensor_digests, weights_digest
from flywheel.store.files import write_json
from flywheel.store.home import Home
from flywheel.store.registry import Registry

TASK, OTHER = "support_router", "summary"
COMPUTE = {"dtype": "float32", "threads": 1}


@dataclass
class World:
    """A configured home with its registry, and candidates to serve in it."""

    config: Config
    home: Home
    registry: Registry
    make_adapter: Callable[..., Path]
    recorder: Any
    tiny: Any

    @classmethod
    def build(cls, folder: Path, parts: tuple[Any, Any, Any], **gateway: Any) -> World:
        """A home in ``folder`` with two tasks on the tiny model; ``gateway`` adds to that section."""
        tasks = {TASK: {"base": "tiny", "prompt": "Route.", "serve": {"max_tokens": 12}}, OTHER: {"base": "tiny"}}
        settings = {"port": 0, "max_context": 512, **COMPUTE, **gateway}
        config = parse_config({"home": "home", "gateway": settings, "tasks": tasks}, folder / "flywheel.yaml")
        return cls(config, Home.of(config), Registry.of(config, actor="test"), *parts)

    def release(self, seed: int, *, task: str = TASK, record: bool = True) -> Release:
        """A release with random weights on disk and, unless told otherwise, its probe recordings."""
        from flywheel.models import load_tokenizer
        from flywheel.release.probe import record_probes
        from flywheel.release.targets.embedded import EmbeddedTarget

        draft = self.make_adapter(self.home.checkpoints / f"draft-{seed}", seed=seed)
        name = weights_digest(tensor_digests(draft / "adapter_model.safetensors"))
        if (self.home.checkpoints / name).exists():
            shutil.rmtree(draft)
        else:
            write_json(draft / "manifest.json", {"digest": name, "kind": "lora"})
            draft.rename(self.home.checkpoints / name)
        with self.registry.write() as tx:
            release = make_release(tx, self.config, task, self.tiny, name)
        if record:
            target = EmbeddedTarget(self.recorder, self.home, self.registry)
            target.load(release)
            folder = recordings(self.home, release.digest)
            record_probes(self.recorder, load_tokenizer(self.tiny), release, (), folder)
            target.unload(release.name)
        return release

    def champion(self, task: str = TASK) -> Champion:
        """Where the pointer is; made when there is none."""
        ensure_champion(self.registry, self.config, task, self.tiny)
        with self.registry.read() as tx:
            found = champion(tx, task)
        assert found is not None
        return found

    def point(self, release: Release) -> Champion:
        """Move the pointer, as a process that cannot reach the gateway would."""
        now = self.champion(release.task)
        with self.registry.write() as tx:
            return swap(tx, release.task, expect=now, to=release.digest, kind="rollback")

    def log(self) -> list[dict[str, Any]]:
        """Every whole line of the log, in order."""
        found: list[dict[str, Any]] = []
        for path in sorted(self.home.log.glob("*.jsonl")):
            *lines, _torn = path.read_bytes().split(b"\n")
            found += [json.loads(line) for line in lines]
        return found

    def logged(self, record_id: str) -> dict[str, Any]:
        """The one record with this id."""
        (record,) = [row for row in self.log() if row["id"] == record_id]
        return record


@dataclass
class Live:
    """A running gateway."""

    world: World
    running: RunningGateway
    thread: threading.Thread

    @property
    def url(self) -> str:
        return self.running.url

    def sdk(self, key: str = "unused", **options: Any) -> openai.OpenAI:
        """The unmodified OpenAI client, without retries unless asked for."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, **{"max_retries": 0, **options})

    def http(self, key: str | None = None) -> httpx.Client:
        """A plain client on the gateway's root."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)

    def stop(self) -> None:
        """Stop in good order and wait."""
        self.running.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


def start(world: World) -> Live:
    """Serve ``world`` on a thread; an error in starting is raised here."""
    ready = threading.Event()
    running: list[RunningGateway] = []
    failed: list[BaseException] = []

    def on_ready(gateway: RunningGateway) -> None:
        running.append(gateway)
        ready.set()

    def run() -> None:
        try:
            serve(world.config, on_ready=on_ready)
        except BaseException as error:  # noqa: BLE001 - raised again in the test that started it
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(120)
    if failed:
        raise failed[0]
    return Live(world, running[0], thread)


@pytest.fixture(scope="session")
def parts(tiny: Any, fp32: Any, random_adapter: Callable[..., Path]) -> Iterator[tuple[Any, Any, Any]]:
    """What every world shares: the maker of adapters, an engine that records probes, the tiny model."""
    from flywheel.engine.engine import Engine

    with Engine(tiny, fp32, max_rows=2, max_context=512) as recorder:
        yield random_adapter, recorder, tiny


@pytest.fixture
def make_world(tmp_path: Path, parts: tuple[Any, Any, Any]) -> Iterator[Callable[..., World]]:
    """``make_world(**gateway_settings)`` -> a fresh World."""
    made: list[World] = []

    def make(**gateway: Any) -> World:
        made.append(World.build(tmp_path / str(len(made)), parts, **gateway))
        return made[-1]

    yield make
    for world in made:
        world.registry.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A fresh World with the default settings."""
    return make_world()


@pytest.fixture
def start_gateway() -> Iterator[Callable[[World], Live]]:
    """``start_gateway(world)`` -> Live; stopped at the end of the test if it still runs."""
    started: list[Live] = []

    def begin(world: World) -> Live:
        started.append(start(world))
        return started[-1]

    yield begin
    for live in started:
        if live.thread.is_alive():
            live.stop()


@pytest.fixture(scope="session")
def serve_tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Live]]:
    """``serve_tasks(tasks, **gateway_settings)`` -> a gateway for these tasks on a home of its own, without a model
    unless a task needs one; it runs to the end of the session."""
    started: list[Live] = []

    def begin(tasks: dict[str, Any], **gateway: Any) -> Live:
        raw = {"home": "home", "gateway": {"port": 0, "max_context": 512, **COMPUTE, **gateway}, "tasks": tasks}
        config = parse_config(raw, tmp_path_factory.mktemp("foreign") / "flywheel.yaml")
        registry = Registry.of(config, actor="test")
        started.append(start(World(config, Home.of(config), registry, lambda: Path(), None, None)))
        return started[-1]

    yield begin
    for live in started:
        if live.thread.is_alive():
            live.stop()
        live.world.registry.close()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, parts: tuple[Any, Any, Any]) -> Iterator[Live]:
    """One gateway without keys for all tests of a module; none of them may change what it routes."""
    world = World.build(tmp_path_factory.mktemp("gateway"), parts)
    running = start(world)
    yield running
    running.stop()
    world.registry.close()
