"""What the slow trials share: the real SmolLM2, adapters trained for real, a gateway in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import sqlalchemy as sa
import yaml

from flywheel.config import Config, load_config
from flywheel.evaluation.report import Scores, SuiteScores, write_scores
from flywheel.models import Compute, ModelDir, choose_compute, load_tokenizer, resolve
from flywheel.models.directory import cache_root
from flywheel.release.pointer import Champion, champion, ensure_champion
from flywheel.release.probe import record_probes
from flywheel.release.releases import Release, make_release, recordings
from flywheel.store.digests import digest
from flywheel.store.files import write_json
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema

TASK = "words"
SUITES = {"gate": "5" * 64, "golden": "6" * 64}
BOOT_LIMIT_S = 240.0
USER_CACHE = cache_root()
"""Where `flywheel model pull` put the model; read before the run's own cache folder takes its place."""


@pytest.fixture(scope="session")
def smollm2_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder of this run in which SmolLM2 is the user's own copy."""
    pulled = USER_CACHE / "smollm2-135m"
    assert pulled.is_dir(), "the trials need the real model: run `flywheel model pull smollm2-135m` first"
    folder = tmp_path_factory.mktemp("smollm2-cache")
    (folder / "smollm2-135m").symlink_to(pulled)
    return folder


@pytest.fixture(scope="module")
def smollm2(smollm2_cache: Path) -> Iterator[ModelDir]:
    """SmolLM2-135M-Instruct, found by its name in this module's tests and their child processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLYWHEEL_CACHE", str(smollm2_cache))
        yield resolve("smollm2-135m")


@pytest.fixture(scope="session")
def teach() -> Callable[..., str]:
    """``teach(model, folder, rows, steps=, lr=)`` trains an adapter with the training core and returns its digest.

    A row is (prompt ids, answer ids); what it learns are the answer's ids and nothing else.
    """

    def run(
        model: ModelDir,
        folder: Path,
        rows: Sequence[tuple[list[int], list[int]]],
        *,
        steps: int,
        lr: float,
        rank: int = 4,
        seed: int = 0,
    ) -> str:
        from flywheel.engine.adapters import AdapterConfig
        from flywheel.engine.batches import Row, collate
        from flywheel.engine.core import TrainingCore

        core = TrainingCore(
            model, choose_compute(None, 1), AdapterConfig(rank, 2.0 * rank, (), model.name), init=None, seed=seed
        )
        batch = collate(
            [Row((*prompt, *answer), (*[False] * len(prompt), *[True] * len(answer))) for prompt, answer in rows]
        )
        for step in range(steps):
            core.forward_backward(batch)
            core.optim_step(lr * min(1.0, (step + 1) / 3))
        name = core.save(folder)
        write_json(folder / "manifest.json", {"digest": name, "kind": "lora"})
        return name

    return run


@dataclass
class SmolWorld:
    """One home whose task stands on SmolLM2, with releases made from trained adapters."""

    config: Config
    path: Path
    home: Home
    registry: Registry
    model: ModelDir
    compute: Compute

    @classmethod
    def build(cls, folder: Path, model: ModelDir, **gateway: Any) -> SmolWorld:
        """A home in ``folder``; ``gateway`` adds to that section. The champion is the base."""
        raw = {
            "home": "home",
            "gateway": {"port": free_port(), "threads": 1, "max_context": 512, **gateway},
            "tasks": {TASK: {"base": model.name}},
        }
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "flywheel.yaml"
        path.write_text(yaml.safe_dump(raw))
        config = load_config(path)
        registry = Registry.of(config, actor="trial")
        ensure_champion(registry, config, TASK, model)
        compute = choose_compute(config.gateway.dtype, config.gateway.threads)
        return cls(config, path, Home.of(config), registry, model, compute)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.config.gateway.port}"

    def sdk(self) -> openai.OpenAI:
        """The unmodified client, without retries: a failed request must show."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="unused", max_retries=0, timeout=300)

    def releases(self, adapters: dict[str, Path]) -> dict[str, Release]:
        """A release with its probe recordings for each adapter folder, made as an evaluation makes them."""
        from flywheel.engine.engine import Engine

        made: dict[str, Release] = {}
        with Engine(self.model, self.compute, max_rows=1, max_context=self.config.gateway.max_context) as engine:
            for label, folder in adapters.items():
                weights = json.loads((folder / "manifest.json").read_text())["digest"]
                shutil.copytree(folder, self.home.checkpoints / weights)
                with self.registry.write() as tx:
                    release = make_release(tx, self.config, TASK, self.model, weights)
                assert release.adapter is not None
                engine.load_adapter(release.adapter, self.home.checkpoints / weights)
                into = recordings(self.home, release.digest)
                record_probes(engine, load_tokenizer(self.model), release, (), into)
                engine.unload_adapter(release.adapter)
                made[label] = release
        return made

    def champion(self) -> Champion:
        with self.registry.read() as tx:
            found = champion(tx, TASK)
        assert found is not None
        return found

    def decide(self, candidate: Release) -> str:
        """An evaluation of ``candidate`` against the present champion and the decision to promote it, as the gate
        writes them; returns the decision's digest."""
        expect = self.champion()
        gate, golden = (
            SuiteScores(suite=suite, kind=kind, clusters=[0], slices=["novel"], champion=[0], candidate=[1])
            for kind, suite in SUITES.items()
        )
        bound: dict[str, str] = {"task": TASK, "candidate": candidate.digest, "champion": expect.release}
        scores = Scores(
            **bound,
            input_digest=digest([candidate.digest, expect.release, expect.version]),
            pointer_version=expect.version,
            scorer="exact",
            decode={"wave": 8},
            gate=gate,
            golden=golden,
        )
        evaluation = write_scores(self.home, scores)
        judged: dict[str, Any] = {
            **bound,
            "evaluation": evaluation,
            "pointer_version": expect.version,
            "verdict": "promote",
        }
        record = {**judged, "reasons": [], "suites": SUITES}
        name = digest(record)
        with self.registry.write() as tx:
            summary: dict[str, Any] = {}
            tx.execute(
                sa.insert(schema.evaluations).values(
                    **bound, digest=evaluation, input_digest=scores.input_digest, summary=summary, **tx.stamp()
                )
            )
            tx.execute(
                sa.insert(schema.decisions).values(**judged, digest=name, tenant="", record=record, **tx.stamp())
            )
        return name

    def log(self) -> dict[str, dict[str, Any]]:
        """Every whole record of the log by id."""
        return read_log(self.home)


@pytest.fixture
def make_smol_world(tmp_path: Path, smollm2: ModelDir) -> Iterator[Callable[..., SmolWorld]]:
    """``make_smol_world(**gateway_settings)`` -> a fresh SmolWorld."""
    made: list[SmolWorld] = []

    def make(**gateway: Any) -> SmolWorld:
        made.append(SmolWorld.build(tmp_path / str(len(made)), smollm2, **gateway))
        return made[-1]

    yield make
    for world in made:
        world.registry.close()


@pytest.fixture
def serve_process() -> Iterator[Callable[[Path, str], subprocess.Popen[bytes]]]:
    """``serve_process(config, url)``: `flywheel serve` in a process of its own, ready; stopped with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(config: Path, url: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "flywheel.cli.__main__", "serve", "--config", str(config)]
        with config.with_name("serve.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        started.append(process)
        wait_for(lambda: healthy(url) or process.poll() is not None, BOOT_LIMIT_S, "the gateway")
        assert process.poll() is None, config.with_name("serve.log").read_text(errors="replace")[-2000:]
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def healthy(url: str) -> bool:
    """Whether a gateway answers and all its tasks are up."""
    try:
        return httpx.get(f"{url}/healthz", timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def wait_for(ready: Callable[[], bool], limit_s: float, what: str) -> float:
    """Wait until ``ready``; returns the seconds it took."""
    started = time.monotonic()
    while not ready():
        assert time.monotonic() - started < limit_s, f"{what}: not within {limit_s:.0f} s"
        time.sleep(0.2)
    return time.monotonic() - started


def read_log(home: Home) -> dict[str, dict[str, Any]]:
    """Every whole record of a home's log by id; ids are unique."""
    records: dict[str, dict[str, Any]] = {}
    for path in sorted(home.log.glob("*.jsonl")):
        *lines, _torn = path.read_bytes().split(b"\n")
        for line in lines:
            record = json.loads(line)
            assert record["id"] not in records, "an id was given twice"
            records[record["id"]] = record
    return records
