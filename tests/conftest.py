"""Fixtures every test may use: the tiny model, a deployment in a temporary folder, random adapters.

Nothing here touches the network, the user's cache folder or the user's home.
"""

from __future__ import annotations

import json
import os
import shutil

# Before torch or tokenizers can be imported: tests are many small runs, and threads would only fight each other.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flywheel.config import Config, parse_config
from flywheel.store.home import Home
from flywheel.store.registry import Registry

if TYPE_CHECKING:
    from flywheel.models import Compute, ModelDir

TASK = "support_router"
PROMPT = "Route the message to a queue."


@dataclass(frozen=True)
class Deployment:
    """One configured home with its registry: what most stages take."""

    config: Config
    home: Home
    registry: Registry
    task: str


TRAFFIC_START = datetime(2025, 3, 1, 12, tzinfo=UTC)
"""When the calls of `Traffic` begin: a past that stays plausible whatever the machine's clock says."""


class Traffic:
    """Writes records of the gateway's log into a home, as plain lines: call and feedback number n, n seconds in."""

    def __init__(self, home: Home, task: str = TASK) -> None:
        self.home, self.task = home, task

    def call(self, number: int, answer: str = "billing", *, text: str | None = None, **fields: Any) -> dict[str, Any]:
        """The record of call ``number``; ``fields`` replace keys of the record."""
        choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
        messages = [{"role": "user", "content": text or f"message {number}"}]
        return {
            "v": 1,
            "kind": "interaction",
            "id": self.call_id(number),
            "task": self.task,
            "ts": self.time(number),
            "conversation_id": None,
            "parent_id": None,
            "user": f"user-{number % 7}",
            "model": self.task,
            "request": {"messages": messages, "tools": None, "params": {"temperature": 0.0}},
            "choices": [choice],
            "release": "a" * 64,
            "stream": False,
            "status": "ok",
            "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
            "latency_ms": 41.25,
            "metadata": {},
            **fields,
        }

    def feedback(
        self,
        number: int,
        kind: str = "correction",
        *,
        value: Any = None,
        text: str | None = None,
        name: str | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Feedback on call ``number``, one second after it; ``name`` makes its id, ``fields`` replace keys."""
        return {
            "v": 1,
            "kind": "feedback",
            "id": f"fb-{name or f'{number}-{kind}'}",
            "task": self.task,
            "ts": self.time(number + 1),
            "target": {"kind": "interaction", "id": self.call_id(number)},
            "feedback": {"kind": kind, "value": value, "text": text},
            "source": "user",
            "author": "author",
            "source_id": None,
            "supersedes": None,
            **fields,
        }

    def write(self, *records: dict[str, Any] | bytes, boot: str = "20250301T120000000000Z-00000000") -> Path:
        """Append records (bytes as they are) to one log file and return it."""
        path = self.home.log / f"{boot}-000000.jsonl"
        lines = [item if isinstance(item, bytes) else json.dumps(item).encode() + b"\n" for item in records]
        with path.open("ab") as handle:
            handle.write(b"".join(lines))
        return path

    @staticmethod
    def call_id(number: int) -> str:
        """The id of call ``number``."""
        return f"chatcmpl-{number:032x}"

    @staticmethod
    def time(number: float) -> str:
        """The time of call ``number``."""
        return (TRAFFIC_START + timedelta(seconds=number)).isoformat()


@pytest.fixture
def traffic(deployment: Deployment) -> Traffic:
    """Writes gateway log records into the home of ``deployment``."""
    return Traffic(deployment.home)


@pytest.fixture
def traffic_of() -> Callable[[Home], Traffic]:
    """The same for any home."""
    return Traffic


@pytest.fixture(scope="session", autouse=True)
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``FLYWHEEL_CACHE`` for the whole run and its child processes, apart from the user's."""
    folder = tmp_path_factory.mktemp("model-cache")
    os.environ["FLYWHEEL_CACHE"] = str(folder)
    return folder


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own settings reach no test."""
    for name in ("FLYWHEEL_HOME", "FLYWHEEL_CONFIG", "FLYWHEEL_ACTOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def tiny(model_cache: Path) -> ModelDir:
    """The tiny random Llama with byte tokenizer, made once a run; also what ``resolve('tiny')`` gives."""
    import torch

    from flywheel.models import resolve

    torch.set_num_threads(1)
    return resolve("tiny")


@pytest.fixture(scope="session")
def fp32() -> Compute:
    """One thread of float32: what exactness tests compute with."""
    from flywheel.models import Compute

    return Compute(dtype="float32", threads=1)


@pytest.fixture(scope="session")
def migrated_registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty registry of this version, migrated once a run; copying it is twenty times faster than migrating."""
    folder = tmp_path_factory.mktemp("registry")
    config = parse_config({"home": "home", "tasks": {TASK: {"base": "tiny"}}}, folder / "flywheel.yaml")
    Registry.of(config).close()
    return Home.of(config).root / "registry.db"


@pytest.fixture
def make_deployment(tmp_path: Path, migrated_registry: Path) -> Iterator[Callable[..., Deployment]]:
    """``make_deployment(name="a", task={...TaskConfig keys}, **top_level)`` -> Deployment in its own folder."""
    opened: list[Registry] = []

    def make(name: str = "deployment", task: dict[str, Any] | None = None, **top_level: Any) -> Deployment:
        settings = {"base": "tiny", "prompt": PROMPT, **(task or {})}
        raw = {"home": "home", "tasks": {TASK: settings}, **top_level}
        config = parse_config(raw, tmp_path / name / "flywheel.yaml")
        home = Home.of(config)
        if config.registry is None and not (home.root / migrated_registry.name).exists():
            shutil.copy(migrated_registry, home.root)
        registry = Registry.of(config, actor="test")
        opened.append(registry)
        return Deployment(config, home, registry, TASK)

    yield make
    for registry in opened:
        registry.close()


@pytest.fixture
def deployment(make_deployment: Callable[..., Deployment]) -> Deployment:
    """A fresh home with one task, ``support_router`` on the tiny model, and an empty registry."""
    return make_deployment()


@pytest.fixture(scope="session")
def random_adapter(tiny: ModelDir) -> Callable[..., Path]:
    """``random_adapter(folder, seed=0, rank=4, modules=(...), scale=0.5)`` -> folder with a PEFT adapter of the tiny
    model whose effect on the answers is plain to see. Equal arguments give equal bytes."""

    def make(
        folder: Path,
        *,
        seed: int = 0,
        rank: int = 4,
        alpha: float = 8.0,
        modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        scale: float = 0.5,
    ) -> Path:
        import torch

        from flywheel.engine.adapters import AdapterConfig, write_adapter
        from flywheel.models import Compute, load_model

        config = AdapterConfig(rank=rank, alpha=alpha, target_modules=modules, base=tiny.name)
        model = load_model(tiny, Compute(dtype="float32", threads=1))
        generator = torch.Generator().manual_seed(seed)
        tensors: dict[str, torch.Tensor] = {}
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear) and name.rsplit(".", 1)[-1] in modules:
                key = f"base_model.model.{name}"
                a = torch.randn(rank, module.in_features, generator=generator) / module.in_features**0.5
                b = torch.randn(module.out_features, rank, generator=generator) * scale / rank**0.5
                tensors[f"{key}.lora_A.weight"], tensors[f"{key}.lora_B.weight"] = a, b
        write_adapter(folder, config, tensors)
        return folder

    return make
