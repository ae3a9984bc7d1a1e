"""Rule 10: a model folder is data. Code that comes with one, as Python, as a pickle or in a template, never runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flywheel.errors import ModelUnavailable, RequestError
from flywheel.models import Compute, ModelDir, load_model, load_tokenizer, resolve


@pytest.fixture
def sprung(tmp_path: Path) -> Path:
    """What exists once foreign code has run."""
    return tmp_path / "sprung"


@pytest.fixture
def copy(tiny: ModelDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny model's files in a folder to put code into."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    return Path(shutil.copytree(tiny.path, tmp_path / "copy"))


@pytest.fixture
def add_code(copy: Path, sprung: Path) -> Callable[[str, dict[str, Any]], None]:
    """``add_code("config.json", {"AutoModelForCausalLM": ...})``: the file names classes of a module that is a trap."""

    def add(file: str, auto_map: dict[str, Any]) -> None:
        (copy / "trap.py").write_text(f"import os\nos.mkdir({str(sprung)!r})\n")
        value = json.loads((copy / file).read_text())
        (copy / file).write_text(json.dumps(value | {"auto_map": auto_map}))

    return add


def test_python_beside_the_weights_is_never_imported(
    copy: Path, tiny: ModelDir, fp32: Compute, add_code: Callable[..., None], sprung: Path
) -> None:
    add_code("config.json", {"AutoConfig": "trap.Config", "AutoModelForCausalLM": "trap.Model"})
    with suppress(ModelUnavailable):
        load_model(replace(tiny, path=copy), fp32)
    assert not sprung.exists()


def test_python_beside_the_tokenizer_is_never_imported(
    copy: Path, tiny: ModelDir, add_code: Callable[..., None], sprung: Path
) -> None:
    add_code("tokenizer_config.json", {"AutoTokenizer": ["trap.Tokenizer", "trap.Tokenizer"]})
    with suppress(ModelUnavailable):
        load_tokenizer(replace(tiny, path=copy))
    assert not sprung.exists()


def test_pickled_weights_are_not_read_even_by_a_loader_that_finds_nothing_else(
    copy: Path, tiny: ModelDir, fp32: Compute
) -> None:
    import torch
    from safetensors.torch import load_file

    weights = copy / "model.safetensors"
    torch.save(load_file(weights), copy / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(ModelUnavailable):
        load_model(replace(tiny, path=copy), fp32)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "model.pkl"])
def test_a_pickle_beside_safetensors_is_never_opened(
    copy: Path, fp32: Compute, sprung: Path, trap: Callable[[Path], bytes], name: str, tiny: ModelDir
) -> None:
    (copy / name).write_bytes(trap(sprung))
    model = resolve(str(copy))
    load_model(model, fp32)
    assert model.base_digest == tiny.base_digest
    assert not sprung.exists()


@pytest.mark.parametrize(
    "template",
    [
        "{{{{ cycler.__init__.__globals__.os.mkdir({path!r}) }}}}",
        "{{{{ ''.__class__.__base__.__subclasses__() }}}}",
        "{{{{ messages.append(messages[0]) }}}}",
    ],
)
def test_a_chat_template_reaches_nothing_but_what_it_is_given(copy: Path, sprung: Path, template: str) -> None:
    (copy / "chat_template.jinja").write_text(template.format(path=str(sprung)))
    tokenizer = load_tokenizer(resolve(str(copy)))
    with pytest.raises(RequestError, match="cannot take"):
        tokenizer.encode_prompt([{"role": "user", "content": "x"}])
    assert not sprung.exists()
