"""Fixtures every test may use: the tiny model, a deployment in a temporary folder, random adapters.

Nothing here touches the network, the user's cache folder or the user's home.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import shutil
import signal
import sys
import threading

# Before torch or tokenizers can be imported: tests are many small runs, and threads would only fight each other.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
import yaml
from hypothesis import HealthCheck, Phase, settings

from flywheel.cli.__main__ import main
from flywheel.config import Config, load_config, parse_config
from flywheel.store.digests import digest
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema

if TYPE_CHECKING:
    from flywheel.models import Compute, ModelDir

# A shell starts what it puts in the background deaf to Ctrl-C, and children inherit that: tests send it to some.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Property tests try the same examples every time, so that a red test is the change's doing; `make search` looks for new
# ones. The first failure is all that a trial of broken rules needs. No time limit: these machines are shared.
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.register_profile("search", settings.get_profile("repeatable"), derandomize=False, max_examples=3000)
settings.register_profile("first_failure", settings.get_profile("repeatable"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("repeatable")

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


TWO_WORDS: dict[str, Any] = {
    "base": "tiny",
    "labels": {"maturity_hours": 0, "audit_share": 0.3, "gate_labels": ["reviewer"]},
    "data": {
        "min_examples": 16,
        "max_per_cluster": 1000,
        "max_user_share": 0.5,
        "near_duplicate": 0.95,
        "replay_share": 0.2,
    },
    "train": {"rank": 8, "alpha": 16, "lr": 0.01, "batch_size": 8, "epochs": 10, "max_steps": 60, "max_tokens": 128},
    "suites": {"gate_target": 40, "gate_min": 15, "golden_target": 15},
    "trigger": {"min_labels": 60},
    "serve": {"max_tokens": 6},
}
"""A task that the tiny model learns in seconds: which of two words belongs to a message."""


class Wheel:
    """A deployment of `TWO_WORDS` with its ``flywheel.yaml`` on disk, so that children, Dagster and the command line
    open it too."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.task = folder, TASK
        self.path = folder / "flywheel.yaml"
        self.config = load_config(self.path)
        self.home = Home.of(self.config)
        self.registry = Registry.of(self.config, actor="test")

    def set(self, **task: Any) -> None:
        """Change settings of the task in the file and here."""
        raw = yaml.safe_load(self.path.read_text())
        raw["tasks"][TASK] |= task
        self.path.write_text(yaml.safe_dump(raw))
        self.config = load_config(self.path)

    def talk(self, first: int, count: int, *, poisoned: bool = False, reviewed: bool = True) -> None:
        """Calls ``first`` and on, all corrected by their users, the audited ones labelled by a reviewer as well.

        Users of a poisoned stretch always say the wrong word; the reviewer does not.
        """
        traffic = Traffic(self.home)
        hints = {"red": ("apple", "cherry", "rose", "blood"), "blue": ("sky", "ocean", "berry", "jeans")}
        records = []
        for number in range(first, first + count):
            word, other = ("red", "blue") if number % 2 else ("blue", "red")
            text = f"{hints[word][number // 2 % 4]} {number * 7919 % 1_000_000}"
            records.append(traffic.call(number, "?", text=text, user=f"user-{number % 60}"))
            said = other if poisoned else word
            records.append(traffic.feedback(number, text=said, author=f"user-{number % 60}"))
            if reviewed and self.home.audited(traffic.call_id(number), 0.3):
                by = {"source": "reviewer", "author": "reviewer"}
                records.append(traffic.feedback(number, "label", text=word, **by))
        traffic.write(*records)

    def loop(self, number: int = 1) -> dict[str, Any]:
        """The row of a loop."""
        from flywheel.loops.overview import find_loop

        with self.registry.read() as tx:
            row = find_loop(tx, f"{TASK}/{number}")
        assert row is not None
        return row

    def champion(self) -> Any:
        """The champion pointer as it is now."""
        from flywheel.release.pointer import champion

        with self.registry.read() as tx:
            return champion(tx, TASK)

    def labelled(self) -> None:
        """Intake and labels, and a champion if there is none: what comes before a loop."""
        from flywheel.intake import run_intake
        from flywheel.labels import run_labels
        from flywheel.models import resolve
        from flywheel.release.pointer import ensure_champion

        run_intake(self.config, self.home, self.registry, TASK)
        run_labels(self.config, self.home, self.registry, TASK)
        ensure_champion(self.registry, self.config, TASK, resolve("tiny"))


def _new_wheel(folder: Path, migrated: Path) -> Wheel:
    """An empty deployment in a new folder. All of them have one key, and so one audit sample."""
    home = folder / "home"
    home.mkdir(parents=True)
    (home / "secret.key").write_bytes(b"k" * 32)
    shutil.copy(migrated, home)
    compute = {"threads": 1, "dtype": "float32"}
    raw = {"compute": compute, "gateway": {"port": 0, **compute}, "tasks": {TASK: TWO_WORDS}, "home": "home"}
    (folder / "flywheel.yaml").write_text(yaml.safe_dump(raw))
    return Wheel(folder)


@pytest.fixture(scope="session")
def traffic_class() -> type[Traffic]:
    """The class, for fixtures that outlive a test."""
    return Traffic


@pytest.fixture(scope="session")
def new_wheel(migrated_registry: Path, tiny: ModelDir) -> Callable[[Path], Wheel]:
    """``new_wheel(folder)`` -> an empty `Wheel`, for fixtures that outlive a test; whoever asks closes its registry."""
    return lambda folder: _new_wheel(folder, migrated_registry)


@pytest.fixture
def make_wheel(tmp_path: Path, migrated_registry: Path, tiny: ModelDir) -> Iterator[Callable[..., Wheel]]:
    """``make_wheel(name="wheel", like=None)`` -> an empty `Wheel`, or a copy of the one in the folder ``like``."""
    opened: list[Wheel] = []

    def make(name: str = "wheel", like: Path | None = None) -> Wheel:
        if like is None:
            opened.append(_new_wheel(tmp_path / name, migrated_registry))
        else:
            shutil.copytree(like, tmp_path / name)
            opened.append(Wheel(tmp_path / name))
        return opened[-1]

    yield make
    for wheel in opened:
        wheel.registry.close()


@pytest.fixture
def gateway_of() -> Iterator[Callable[[Config], str]]:
    """``gateway_of(config)`` -> the URL of a gateway in this process that runs to the end of the test."""
    from flywheel.gateway.server import RunningGateway, serve

    started: list[tuple[RunningGateway, threading.Thread]] = []

    def start(config: Config) -> str:
        ready: queue.SimpleQueue[RunningGateway] = queue.SimpleQueue()
        thread = threading.Thread(target=serve, args=(config,), kwargs={"on_ready": ready.put}, daemon=True)
        thread.start()
        started.append((ready.get(timeout=120), thread))
        return started[-1][0].url

    yield start
    for running, thread in started:
        running.stop()
        thread.join(60)


@pytest.fixture(scope="session")
def judged_folder(tmp_path_factory: pytest.TempPathFactory, migrated_registry: Path, tiny: ModelDir) -> Path:
    """A `Wheel` whose first loop was judged `promote`, whereupon its attempt was given up: the next one has it all
    before it except dataset, training and evaluation. Made once a run; take copies with ``make_wheel``."""
    from flywheel.loops.candidate import finish_candidate, plan_candidate
    from flywheel.loops.claims import claim, enter, give_up
    from flywheel.loops.context import LoopContext
    from flywheel.loops.dataset import dataset_stage
    from flywheel.loops.evaluation import finish_evaluation, plan_evaluation
    from flywheel.loops.run import run_or_raise

    wheel = _new_wheel(tmp_path_factory.mktemp("judged") / "wheel", migrated_registry)
    wheel.talk(0, 200)
    wheel.labelled()
    assert claim(wheel.registry, TASK, min_labels=60) is not None
    ctx = LoopContext(wheel.config, wheel.home, wheel.registry, enter(wheel.registry, TASK, "earlier"))
    dataset_stage(ctx)
    training = plan_candidate(ctx)
    run_or_raise(training.spec_path, print)
    finish_candidate(ctx, training)
    evaluation = plan_evaluation(ctx)
    run_or_raise(evaluation.spec_path, print)
    decision = finish_evaluation(ctx, evaluation).decision
    assert decision.verdict == "promote", decision.reasons
    give_up(wheel.registry, ctx.lease.loop_id, 1, "set aside")
    wheel.registry.close()
    return wheel.folder


@pytest.fixture
def versions() -> Callable[[Registry, int], None]:
    """``versions(registry, newest)``: make ``newest`` the number of the newest label version, as the label stage leaves
    it in the registry; for tests that count labels and read none."""

    def number(registry: Registry, newest: int) -> None:
        table = schema.segments
        with registry.write() as tx:
            last = int(tx.scalar(sa.select(sa.func.max(table.c.last_seq))) or 0)
            row = {"path": f"labels-{newest}", "table": "labels", "task": TASK, "day": "2025-03-01"}
            seqs = {"rows": newest - last, "first_seq": last + 1, "last_seq": newest}
            tx.execute(sa.insert(table).values(**row, **seqs, digest="0" * 64, **tx.stamp()))

    return number


@pytest.fixture
def redecide() -> Callable[..., str]:
    """``redecide(wheel, honest=True, **fields)``: make the loop's decision record another one, with a digest that
    covers it unless it is not ``honest``; returns its name."""

    def change(wheel: Any, honest: bool = True, **fields: Any) -> str:
        table = schema.decisions
        with wheel.registry.write() as tx:
            row = tx.row(sa.select(table))
            assert row is not None
            record = row["record"] | fields
            name = digest(record) if honest else row["digest"]
            columns = {key: value for key, value in fields.items() if key in table.c}
            tx.execute(sa.update(table).values(digest=name, record=record, **columns))
            tx.execute(sa.update(schema.loops).values(decision=name))
        return name

    return change


class Crash(BaseException):
    """The end of the process, as the code under test sees it: nothing may catch it."""


@pytest.fixture
def dies_at() -> Callable[[int, Callable[[], object]], bool]:
    """``dies_at(n, work)``: run ``work`` as if the process ended at its instant number n, counted from 0, before a
    write to disk or after a transaction; False when it was done by then."""

    def run(number: int, work: Callable[[], object]) -> bool:
        sync, write, others = os.fsync, Registry.write, {*threading.enumerate()} - {threading.current_thread()}
        left = number

        def instant() -> None:
            nonlocal left
            if threading.current_thread() in others:
                return  # a gateway of another test beats its heart in this process
            if not left:
                raise Crash
            left -= 1

        def fsync(descriptor: int) -> None:
            instant()
            sync(descriptor)

        @contextmanager
        def transaction(registry: Registry) -> Iterator[Any]:
            with write(registry) as tx:
                yield tx
            instant()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            patch.setattr(Registry, "write", transaction)
            try:
                work()
            except Crash:
                return True
        return False

    return run


class Trap:
    def __init__(self, sprung: Path) -> None:
        self.sprung = sprung

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.sprung),)


@pytest.fixture
def trap() -> Callable[[Path], bytes]:
    """``trap(sprung)``: a pickle that makes the folder ``sprung`` when it is read."""
    return lambda sprung: pickle.dumps(Trap(sprung))


class Ran:
    """What a command printed and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def flywheel(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ran]:
    """``flywheel("status", "--json")`` runs the command in an empty folder, through the entry point of the package."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*words: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["flywheel", *map(str, words)])
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        return Ran(code, *capfd.readouterr())

    return run
