"""A small world around the release stage: base, candidates with files, decisions, loops, a replica to break."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from safetensors.numpy import save_file

from flywheel.errors import FlywheelError
from flywheel.evaluation.report import Scores, SuiteScores, write_scores
from flywheel.models import ModelDir
from flywheel.release.pointer import Champion, champion, ensure_champion
from flywheel.release.releases import Release, get_release, make_release
from flywheel.release.replicas import heartbeat, register
from flywheel.store.digests import digest, tensor_digests, weights_digest
from flywheel.store.files import write_json
from flywheel.store.registry import schema

SUITES = {"gate": "5" * 64, "golden": "6" * 64}


@dataclass
class World:
    """One deployment whose task has the base release as champion, version 1."""

    config: Any
    home: Any
    registry: Any
    task: str
    model: ModelDir
    adapter: Callable[..., Path] | None = None

    def champion(self) -> Champion:
        with self.registry.read() as tx:
            found = champion(tx, self.task)
        assert found is not None
        return found

    def release(self, release_digest: str) -> Release:
        with self.registry.read() as tx:
            return get_release(tx, release_digest)

    def checkpoint(self, seed: int) -> str:
        """Weights on disk under their digest, with the manifest: a real adapter when there is an engine to load it."""
        draft = self.home.checkpoints / f"draft-{seed}"
        draft.mkdir(parents=True)
        if self.adapter is not None:
            self.adapter(draft, seed=seed)
        else:
            save_file({"w": np.full((2, 2), seed, dtype=np.float32)}, draft / "adapter_model.safetensors")
        name = weights_digest(tensor_digests(draft / "adapter_model.safetensors"))
        if (self.home.checkpoints / name).exists():
            shutil.rmtree(draft)
        else:
            write_json(draft / "manifest.json", {"digest": name, "kind": "lora"})
            draft.rename(self.home.checkpoints / name)
        return name

    def candidate(self, seed: int = 1) -> Release:
        checkpoint = self.checkpoint(seed)
        with self.registry.write() as tx:
            return make_release(tx, self.config, self.task, self.model, checkpoint)

    def decide(
        self,
        candidate: Release,
        *,
        verdict: str = "promote",
        expect: Champion | None = None,
        evaluation_suites: dict[str, str] = SUITES,
        environment: str | None = None,
    ) -> str:
        """An evaluation and the decision on it, as the gate writes them; returns the decision's digest."""
        expect = expect or self.champion()
        suites = [
            SuiteScores(suite=suite, kind=kind, clusters=[0], slices=["novel"], champion=[0], candidate=[1])
            for kind, suite in evaluation_suites.items()
        ]
        scores = Scores(
            task=self.task,
            input_digest=digest([candidate.digest, expect.release, expect.version]),
            champion=expect.release,
            candidate=candidate.digest,
            pointer_version=expect.version,
            scorer="exact",
            decode={"wave": 8},
            gate=suites[0],
            golden=suites[1],
        )
        evaluation = write_scores(self.home, scores)
        record = {
            "evaluation": evaluation,
            "task": self.task,
            "candidate": candidate.digest,
            "champion": expect.release,
            "pointer_version": expect.version,
            "verdict": verdict,
            "reasons": [] if verdict == "promote" else ["gain 0.001 is below 0.01"],
            "suites": SUITES,
        }
        name = digest(record)
        with self.registry.write() as tx:
            stamp = tx.stamp() | ({"environment": environment} if environment else {})
            pair = {"candidate": candidate.digest, "champion": expect.release, "task": self.task, **stamp}
            summary: dict[str, Any] = {}
            tx.execute(
                sa.insert(schema.evaluations).values(
                    digest=evaluation, input_digest=scores.input_digest, summary=summary, **pair
                )
            )
            tx.execute(
                sa.insert(schema.decisions).values(
                    digest=name,
                    evaluation=evaluation,
                    tenant="",
                    pointer_version=expect.version,
                    verdict=verdict,
                    record=record,
                    **pair,
                )
            )
        return name

    def alter_decision(self, name: str, **columns: Any) -> None:
        with self.registry.write() as tx:
            tx.execute(sa.update(schema.decisions).where(schema.decisions.c.digest == name).values(**columns))

    def decision(self, name: str) -> dict[str, Any]:
        with self.registry.read() as tx:
            row = tx.row(sa.select(schema.decisions).where(schema.decisions.c.digest == name))
        assert row is not None
        return row

    def open_loop(self, number: int = 1, *, attempt: int = 1, state: str = "running", task: str | None = None) -> str:
        loop_id = f"{task or self.task}/{number}"
        with self.registry.write() as tx:
            tx.execute(
                sa.insert(schema.loops).values(
                    loop_id=loop_id,
                    task=task or self.task,
                    tenant="",
                    number=number,
                    from_seq=0,
                    to_seq=10,
                    attempt=attempt,
                    state=state,
                    reasons=[],
                    **tx.stamp(),
                )
            )
        return loop_id

    def moves(self) -> list[tuple[int, str, str]]:
        with self.registry.read() as tx:
            rows = tx.rows(sa.select(schema.promotions).order_by(schema.promotions.c.version))
        return [(row["version"], row["kind"], row["release"]) for row in rows]


@pytest.fixture
def world(deployment: Any, tmp_path: Path) -> World:
    """A world without an engine: checkpoints are plain files, and no replica runs."""
    model = ModelDir("tiny", tmp_path / "tiny", "a" * 64, "b" * 64, "c" * 64)
    made = World(deployment.config, deployment.home, deployment.registry, deployment.task, model)
    ensure_champion(made.registry, made.config, made.task, model)
    return made


@dataclass
class Faults:
    """What a replica is told to do wrong."""

    route_failures: int = 0  # so many calls to /admin/route answer 503
    before: dict[str, Callable[[], None]] = field(default_factory=dict)  # path -> run before the call is answered


class Replica:
    """The admin routes over a real target, in a thread of this process, registered as live. ``faults`` breaks it."""

    def __init__(self, world: World, target: Any) -> None:
        self.world, self.target, self.faults = world, target, Faults()
        self.routes: dict[str, str] = {}
        self.calls: list[str] = []
        replica = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                replica.calls.append(self.path)
                try:
                    replica.faults.before.get(self.path, lambda: None)()
                    status, answer = 200, replica.answer(self.path, body)
                except FlywheelError as error:
                    status, answer = 503, {"error": {"message": str(error)}}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        with world.registry.write() as tx:
            self.replica_id = register(tx, self.url)
            heartbeat(tx, self.replica_id, state="ready", observed={})

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == "/admin/load":
            return {"name": self.target.load(self.world.release(body["release"]))}
        if path == "/admin/probe":
            return self.target.probe(self.world.release(body["release"])).to_json()
        if path == "/admin/unload":
            self.target.unload(body["name"])
            return {"name": body["name"]}
        assert path == "/admin/route"
        if self.faults.route_failures > 0:
            self.faults.route_failures -= 1
            raise FlywheelError("told to fail")
        now = self.world.champion()
        self.routes[body["task"]] = now.release
        return {"task": body["task"], "release": now.release, "version": now.version}

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture(scope="session")
def engine(tiny: ModelDir, fp32: Any) -> Iterator[Any]:
    """One started engine on the tiny model for the whole run."""
    from flywheel.engine.engine import Engine

    with Engine(tiny, fp32, max_rows=4, max_context=256) as started:
        yield started


@pytest.fixture
def served(deployment: Any, tiny: ModelDir, random_adapter: Any, engine: Any) -> Iterator[World]:
    """A world with a real engine; what a test loads into it is unloaded afterwards."""
    made = World(deployment.config, deployment.home, deployment.registry, deployment.task, tiny, random_adapter)
    ensure_champion(made.registry, made.config, made.task, tiny)
    yield made
    for name in engine.adapters():
        engine.unload_adapter(name)


@pytest.fixture
def target(served: World, engine: Any) -> Any:
    """The embedded target of ``served``."""
    from flywheel.release.targets.embedded import EmbeddedTarget

    return EmbeddedTarget(engine, served.home, served.registry)


@pytest.fixture
def recorded_candidate(served: World, engine: Any, target: Any) -> Callable[[int], Release]:
    """``recorded_candidate(seed)``: a candidate with weights and probe recordings, not loaded."""
    from flywheel.models import load_tokenizer
    from flywheel.release.probe import record_probes
    from flywheel.release.releases import recordings

    def make(seed: int) -> Release:
        release = served.candidate(seed)
        target.load(release)
        record_probes(engine, load_tokenizer(served.model), release, (), recordings(served.home, release.digest))
        target.unload(release.name)
        return release

    return make


@pytest.fixture
def replica(served: World, target: Any) -> Iterator[Replica]:
    """One live replica that serves ``served`` and can be told to fail."""
    started = Replica(served, target)
    started.routes[served.task] = served.champion().release
    yield started
    started.stop()
