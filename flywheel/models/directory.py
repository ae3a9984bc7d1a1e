"""A model folder: what must be in it, and the digests that say which model it is."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from flywheel.errors import CheckpointError, ModelUnavailable
from flywheel.store.digests import digest, file_digest, tensor_digests, weights_digest
from flywheel.store.files import read_json, write_json

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")

TOKENIZER_KEYS = ("bos_token", "eos_token", "pad_token", "unk_token", "add_bos_token", "add_eos_token")
"""Settings beside ``tokenizer.json`` that change which ids a text gets; the other keys differ from writer to writer."""


@dataclass(frozen=True)
class ModelDir:
    """A causal language model on this disk: safetensors, ``config.json``, tokenizer and chat template."""

    name: str
    path: Path
    weights_digest: str
    tokenizer_digest: str
    template_digest: str

    @cached_property
    def base_digest(self) -> str:
        """One digest for weights, tokenizer and chat template together."""
        return digest({"weights": self.weights_digest, "tokenizer": self.tokenizer_digest, "t": self.template_digest})


def cache_root() -> Path:
    """Where models are kept: ``$FLYWHEEL_CACHE``, or ``flywheel`` in the user's cache folder."""
    if explicit := os.environ.get("FLYWHEEL_CACHE"):
        return Path(explicit).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flywheel"


def describe(name: str, path: Path) -> ModelDir:
    """Check that ``path`` holds a loadable model and digest it.

    Digests of files that have not changed (size and time) since the last look come from a note in the cache folder.
    Raises ModelUnavailable saying what is missing or refused.
    """
    path = path.absolute()
    weights = weight_files(path)
    config = _json(path / "config.json")
    if config.get("auto_map"):
        raise ModelUnavailable(f"{path}: config.json asks for its own Python code (auto_map); only data is loaded")
    template = chat_template(path)
    if template is None:
        raise ModelUnavailable(f"{path}: no chat template (chat_template.jinja or in tokenizer_config.json)")
    tokenizer = _tokenizer_file(path)
    note = cache_root() / "digests" / f"{hashlib.sha256(str(path).encode()).hexdigest()}.json"
    state = _state([*weights, tokenizer])
    known = read_json(note) if note.is_file() else {}
    if known.get("state") != state:
        known = {"state": state, "weights": _weights(weights), "tokenizer_file": _content(tokenizer)}
        write_json(note, known)
    settings = {key: _token(value) for key, value in _settings(path).items() if key in TOKENIZER_KEYS}
    return ModelDir(
        name=name,
        path=path,
        weights_digest=known["weights"],
        tokenizer_digest=digest({"file": known["tokenizer_file"], "settings": settings, "eos": sorted(eos_ids(path))}),
        template_digest=hashlib.sha256(template.encode()).hexdigest(),
    )


def weight_files(path: Path) -> list[Path]:
    """The safetensors files of a model folder, sorted. Raises ModelUnavailable if there are none."""
    if not (path / "config.json").is_file():
        raise ModelUnavailable(f"{path}: not a model folder (no config.json)")
    files = sorted(path.glob("*.safetensors"))
    if files:
        return files
    pickled = sorted(file.name for file in path.iterdir() if file.suffix in PICKLED)
    if pickled:
        raise ModelUnavailable(
            f"{path}: weights only in {pickled[0]}, a pickle that can run code when read; convert them to safetensors"
        )
    raise ModelUnavailable(f"{path}: no *.safetensors file")


def chat_template(path: Path) -> str | None:
    """The model's default chat template, or None."""
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = _settings(path).get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template}
        template = named.get("default")
    return template if isinstance(template, str) and template else None


def eos_ids(path: Path) -> frozenset[int]:
    """Ids that end an answer, from ``generation_config.json`` and ``config.json``."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        value = _json(path / name).get("eos_token_id") if (path / name).is_file() else None
        found.update([value] if isinstance(value, int) else value or [])
    return frozenset(found)


def _weights(files: list[Path]) -> str:
    digests: dict[str, str] = {}
    for file in files:
        try:
            digests.update(tensor_digests(file))
        except CheckpointError as error:
            raise ModelUnavailable(f"the model's weights are damaged: {error}") from error
    return weights_digest(digests)


def _tokenizer_file(path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer.model"):
        if (path / name).is_file():
            return path / name
    raise ModelUnavailable(f"{path}: no tokenizer.json or tokenizer.model")


def _content(file: Path) -> str:
    return digest(_json(file)) if file.suffix == ".json" else file_digest(file)


def _settings(path: Path) -> dict[str, Any]:
    file = path / "tokenizer_config.json"
    return _json(file) if file.is_file() else {}


def _json(file: Path) -> dict[str, Any]:
    try:
        value = read_json(file)
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"{file}: not readable as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelUnavailable(f"{file}: expected a JSON object, found {type(value).__name__}")
    return value


def _token(value: object) -> object:
    return value.get("content") if isinstance(value, dict) else value


def _state(files: list[Path]) -> list[list[Any]]:
    stats = [(file, file.stat()) for file in files]
    return [[file.name, stat.st_size, stat.st_mtime_ns, stat.st_ino] for file, stat in stats]
