"""``flywheel.yaml``: what the operator says, with every default and its reason beside it.

Unknown keys are errors with a suggestion. Only ``tasks: {name: {base: ...}}`` is required.
"""

from __future__ import annotations

import difflib
import os
import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from flywheel.config_labels import LabelPolicy
from flywheel.config_logs import ColumnMap, LogEntry, Section
from flywheel.config_redact import RedactPolicy
from flywheel.config_values import address, is_cron, is_url, variable_name
from flywheel.errors import ConfigError

TASK_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


class DataPolicy(Section):
    """How labels become a dataset."""

    min_examples: int = Field(32, ge=1, description="fewer new training examples than this open no loop")
    max_per_user: int = Field(20, ge=1, description="absolute cap on one user's examples")
    max_user_share: float = Field(0.02, gt=0, le=1, description="cap on one user's share; the smaller cap wins")
    max_per_cluster: int = Field(20, ge=1, description="absolute cap on one near-duplicate cluster")
    max_cluster_share: float = Field(0.05, gt=0, le=1, description="cap on one cluster's share; the smaller cap wins")
    near_duplicate: float = Field(0.7, gt=0, le=1, description="Jaccard of character 5-grams of near copies")
    replay_share: float = Field(0.25, ge=0, lt=1, description="share of training rows drawn from earlier datasets")
    self_share: float = Field(0.5, ge=0, le=1, description="cap on rows whose target the model wrote itself")
    val_share: float = Field(0.1, ge=0, lt=1, description="share of new examples held out for the loss curve")
    max_examples: int = Field(20_000, ge=1, description="new examples of a loop at most; the common go before the rare")
    anchors: str | None = Field(
        None, description="JSONL of examples of what must not be forgotten, mixed into each loop"
    )
    anchor_share: float = Field(0.05, ge=0, lt=1, description="share of training rows drawn from `anchors`")
    redact: RedactPolicy = RedactPolicy()


class TrainRecipe(Section):
    """LoRA supervised fine-tuning."""

    rank: int = Field(16, ge=1, le=256)
    alpha: float = Field(32.0, gt=0)
    lr: float = Field(1e-3, gt=0, description="peak learning rate of the first loop, from the base")
    warm_lr_scale: float = Field(0.5, gt=0, description="later loops start from the champion at this fraction of lr")
    batch_size: int = Field(8, ge=1)
    epochs: float = Field(2.0, gt=0)
    max_steps: int = Field(400, ge=1)
    max_tokens: int = Field(512, ge=8, description="longer examples are dropped and counted")
    warmup_share: float = Field(0.08, ge=0, lt=1)
    seed: int = 0
    checkpoint_every: int = Field(10, ge=1, description="steps between resume points")


class SuitePolicy(Section):
    """Which audited, labelled interactions judge a candidate."""

    gate_target: int = Field(300, ge=1, description="gate items wanted per loop")
    gate_min: int = Field(100, ge=1, description="fewer than this gives `inconclusive`")
    golden_target: int = Field(100, ge=0, description="golden items, frozen once reached")
    golden_min: int = Field(0, ge=0)
    golden_share: float = Field(0.5, ge=0, le=1, description="share of audited labels for golden until full")
    golden_file: str | None = Field(None, description="JSONL of {text, label} or {messages, label}")
    max_uses: int = Field(5, ge=1, description="gates one item may judge; alpha is divided by this on reuse")

    @model_validator(mode="after")
    def _reachable(self) -> SuitePolicy:
        if self.gate_min > self.gate_target:
            raise ValueError(
                f"gate_min {self.gate_min} is above gate_target {self.gate_target}: every loop would be inconclusive"
            )
        return self


class GatePolicy(Section):
    """When a candidate is good enough."""

    alpha: float = Field(0.05, gt=0, lt=1)
    min_gain: float = Field(0.01, ge=0, le=1, description="smallest gain in accuracy worth a promotion")
    golden_margin: float = Field(0.05, gt=0, le=1, description="non-inferiority margin on the golden suite")
    golden_alpha: float = Field(0.05, gt=0, lt=1)


class TriggerPolicy(Section):
    """When the wheel turns."""

    min_labels: int = Field(100, ge=1, description="new label versions since the last finished loop")
    cron: str | None = Field(None, description="also start a loop on this schedule, whatever has gathered")
    interval_seconds: int = Field(30, ge=1, description="how often the sensors look")
    intake_seconds: int = Field(
        60, ge=0, description="pause after an intake run that succeeded: each costs some seconds of a core"
    )

    @field_validator("cron")
    @classmethod
    def _a_schedule(cls, cron: str | None) -> str | None:
        # One bad schedule would keep the definitions of every task from loading.
        if cron is not None and not is_cron(cron):
            raise ValueError(
                f"{cron!r} is no cron schedule; expected minute, hour, day, month and weekday: `0 3 * * *`"
            )
        return cron


class ServePolicy(Section):
    """Defaults of the release that is served."""

    max_tokens: int = Field(256, ge=1)
    temperature: float = Field(0.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)


class TaskConfig(Section):
    """One job of the model."""

    base: str = Field(min_length=1, description="model name, hub id or folder; with `engine`, its name there")
    engine: str | None = Field(
        None, description="OpenAI-compatible URL that answers this task, up to and with `/v1`; default is embedded"
    )
    engine_key_env: str | None = Field(None, description="environment variable that holds the API key of `engine`")
    prompt: str | None = Field(None, description="system prompt put before messages that bring none")
    logs: tuple[LogEntry, ...] = Field((), description="places to read besides the gateway's own log")
    first_day: date = Field(
        date(2015, 1, 1), description="first day that Dagster shows and can backfill; earlier records are kept too"
    )
    score: Literal["exact"] = "exact"
    labels: LabelPolicy = LabelPolicy()
    data: DataPolicy = DataPolicy()
    train: TrainRecipe = TrainRecipe()
    suites: SuitePolicy = SuitePolicy()
    gate: GatePolicy = GatePolicy()
    trigger: TriggerPolicy = TriggerPolicy()
    serve: ServePolicy = ServePolicy()

    @field_validator("logs", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        entries = value if isinstance(value, list | tuple) else (value,)
        return tuple({"path": entry} if isinstance(entry, str) else entry for entry in entries)

    @field_validator("engine")
    @classmethod
    def _an_address(cls, value: str | None) -> str | None:
        return None if value is None else address(value)

    @field_validator("engine_key_env")
    @classmethod
    def _a_variable(cls, value: str | None) -> str | None:
        return None if value is None else variable_name(value)

    @field_validator("logs")
    @classmethod
    def _each_once(cls, logs: tuple[LogEntry, ...]) -> tuple[LogEntry, ...]:
        for place, count in Counter(log.path for log in logs).items():
            if count > 1:
                raise ValueError(f"{place} is there twice; a place has one resume point, and so one entry")
        return logs

    @model_validator(mode="after")
    def _a_key_for_something(self) -> TaskConfig:
        if self.engine_key_env is not None and self.engine is None:
            raise ValueError("engine_key_env needs `engine`: the embedded engine takes no key")
        return self


class GatewayConfig(Section):
    """The HTTP front door."""

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    queue_limit: int = Field(64, ge=1, description="requests waiting beyond this get 429")
    engine_limit: int = Field(
        512, ge=1, description="requests of one task at an `engine` that is not ours; beyond this 429"
    )
    max_rows: int = Field(8, ge=1, description="rows in one decode batch")
    max_context: int = Field(2048, ge=16, description="prompt plus answer, in tokens")
    threads: int | None = Field(None, ge=1, description="compute threads; default looks at the machine")
    dtype: Literal["float32", "bfloat16"] | None = Field(None, description="default looks at the machine")


class DagsterConfig(Section):
    """The Dagster webserver that `flywheel up` starts."""

    host: str = "127.0.0.1"
    port: int = Field(3000, ge=0, le=65535)


class AlertConfig(Section):
    """Where failures go besides the log."""

    webhook: str | None = None


class ComputeConfig(Section):
    """How training and evaluation children compute."""

    threads: int | None = Field(None, ge=1)
    dtype: Literal["float32", "bfloat16"] | None = None


class Config(Section):
    """The whole file."""

    environment: Literal["dev", "staging", "production"] = "dev"
    home: str = ".flywheel"
    registry: str | None = Field(None, description="SQLAlchemy URL; default SQLite inside home")
    gateway: GatewayConfig = GatewayConfig()
    dagster: DagsterConfig = DagsterConfig()
    compute: ComputeConfig = ComputeConfig()
    alerts: AlertConfig = AlertConfig()
    formats: tuple[str, ...] = Field((), description="Python files with log formats of your own; they are run")
    tasks: dict[str, TaskConfig]

    @field_validator("formats", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("tasks")
    @classmethod
    def _task_names(cls, tasks: dict[str, TaskConfig]) -> dict[str, TaskConfig]:
        if not tasks:
            raise ValueError("no task is defined; add one under `tasks:`")
        for name in tasks:
            if not TASK_NAME.match(name):
                raise ValueError(f"task name {name!r} must match [a-z][a-z0-9_]*")
            if any(name == task.base for task in tasks.values() if task.engine is None):
                raise ValueError(f"task {name!r} is named like a base model: `model: {name}` would mean both")
        return tasks

    @property
    def embedded(self) -> dict[str, TaskConfig]:
        """The tasks that our own engine answers."""
        return {name: task for name, task in self.tasks.items() if task.engine is None}

    def task(self, name: str) -> TaskConfig:
        """The named task. Raises ConfigError listing the known ones."""
        if name not in self.tasks:
            raise ConfigError(f"unknown task {name!r}; flywheel.yaml defines: {', '.join(sorted(self.tasks))}")
        return self.tasks[name]


def config_path(path: str | Path | None = None) -> Path:
    """Where the configuration is: the argument, ``FLYWHEEL_CONFIG``, or ``./flywheel.yaml``."""
    return Path(path or os.environ.get("FLYWHEEL_CONFIG") or "flywheel.yaml").absolute()


def load_config(path: str | Path | None = None) -> Config:
    """Read and validate the configuration; relative paths in it are relative to its folder.

    ``FLYWHEEL_HOME`` overrides ``home``. Raises ConfigError with one line per fault.
    """
    where = config_path(path)
    try:
        # UniqueKeys is SafeLoader, only stricter.
        raw = yaml.load(where.read_text(encoding="utf-8"), Loader=UniqueKeys)
    except FileNotFoundError:
        raise ConfigError(f"{where}: no such file; run `flywheel init` to make one") from None
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}:" if error.problem_mark else ""
        raise ConfigError(f"{where}:{line} not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: not valid YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(raw, dict):
        found = "nothing" if raw is None else type(raw).__name__
        raise ConfigError(f"{where}: expected a mapping with `tasks:`, found {found}")
    return parse_config(raw, where)


class UniqueKeys(yaml.SafeLoader):
    """YAML in which a repeated key is an error: the file would otherwise say one thing and mean another."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        said: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in said:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key `{key.value}` is there twice", key.start_mark
                    )
                said.add(key.value)
        return super().construct_mapping(node, deep)


def parse_config(raw: dict[str, Any], where: Path) -> Config:
    """Validate an already parsed mapping as if it had been read from ``where``."""
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{where}: {_explain(item)}" for item in error.errors())) from error
    folder = where.parent
    updates: dict[str, Any] = {"home": str(folder / (os.environ.get("FLYWHEEL_HOME") or config.home))}
    updates["formats"] = tuple(str(folder / path) for path in config.formats)
    updates["tasks"] = {name: _rebase(task, folder) for name, task in config.tasks.items()}
    return config.model_copy(update=updates)


def parse_columns(text: str) -> ColumnMap:
    """A column map as it is written on a command line: ``prompt=question,completion=answer,metadata=team``.

    Raises ConfigError with one line per fault.
    """
    raw: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, column = (side.strip() for side in part.partition("="))
        if not (key and equals and column):
            raise ConfigError(f"--columns: expected name=column pairs with commas between them, found {part!r}")
        if key in raw and key != "metadata":
            raise ConfigError(f"--columns: `{key}` is there twice")
        raw[key] = (*raw.get(key, ()), column) if key == "metadata" else column
    try:
        return ColumnMap.model_validate(raw)
    except ValidationError as error:
        faults = [_explain(item, ColumnMap).removeprefix(": ") for item in error.errors()]
        raise ConfigError("\n".join(f"--columns: {fault}" for fault in faults)) from error


def _rebase(task: TaskConfig, folder: Path) -> TaskConfig:
    suites, data = task.suites, task.data
    if suites.golden_file is not None:
        suites = suites.model_copy(update={"golden_file": str(folder / suites.golden_file)})
    if data.anchors is not None:
        data = data.model_copy(update={"anchors": str(folder / data.anchors)})
    logs = tuple(log.model_copy(update={"path": _place(log.path, folder)}) for log in task.logs)
    labels = task.labels
    if labels.verifiers:
        verifiers = tuple(entry.based_in(folder) for entry in labels.verifiers)
        labels = labels.model_copy(update={"verifiers": verifiers})
    return task.model_copy(update={"logs": logs, "suites": suites, "data": data, "labels": labels})


def _place(path: str, folder: Path) -> str:
    return path if is_url(path) else str(folder / path)


def _explain(item: Any, model: type[BaseModel] = Config) -> str:
    location = ".".join(str(part) for part in item["loc"])
    if item["type"] != "extra_forbidden":
        return f"{location}: {item['msg'].removeprefix('Value error, ')}"
    key = str(item["loc"][-1])
    close = difflib.get_close_matches(key, _known_keys(item["loc"][:-1], model), n=1)
    return f"{location}: unknown key" + (f"; did you mean `{close[0]}`?" if close else "")


def _known_keys(parents: tuple[Any, ...], model: type[BaseModel]) -> list[str]:
    for step in parents:
        if isinstance(step, int) or step not in model.model_fields:
            continue  # a place in a list, or the name of a task
        held = [found for found in _within(model.model_fields[step].annotation) if issubclass(found, BaseModel)]
        if not held:
            return []
        model = held[0]
    return [field.alias or name for name, field in model.model_fields.items()]


def _within(annotation: Any) -> list[type]:
    """The classes that a type is made of."""
    if parts := get_args(annotation):
        return [found for part in parts for found in _within(part)]
    return [annotation] if isinstance(annotation, type) else []
