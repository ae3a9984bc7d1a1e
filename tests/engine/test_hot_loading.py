"""Adapters come and go between steps, under immutable names."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from flywheel.engine.adapters import AdapterConfig, read_adapter, write_adapter
from flywheel.engine.engine import Engine
from flywheel.engine.lora import Live
from flywheel.engine.sampling import SamplingParams
from flywheel.engine.table import AdapterTable
from flywheel.errors import CheckpointError, RequestError
from flywheel.models import Compute, ModelDir

Ask = Callable[..., Any]
GREEDY = SamplingParams(max_tokens=16)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_digest_read_back_is_the_files_also_where_the_compute_dtype_differs(
    tiny: ModelDir, adapter_folders: dict[str, Path], dtype: str
) -> None:
    with Engine(tiny, Compute(dtype, 1)) as engine:
        expected = read_adapter(adapter_folders["red"]).weights_digest
        assert engine.load_adapter("red", adapter_folders["red"]) == expected
        assert engine.adapter_digest("red") == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_changed_tensor_in_memory_changes_the_digest(
    tiny: ModelDir, adapter_folders: dict[str, Path], dtype: str
) -> None:
    with Engine(tiny, Compute(dtype, 1)) as engine:
        before = engine.load_adapter("red", adapter_folders["red"])
        layer: Any = engine._forwards.adapters.model.get_submodule("model.layers.1.mlp.up_proj")
        layer.factors["red"].b[0, 0] += 1
        assert engine.adapter_digest("red") != before


def test_loading_the_same_again_changes_nothing_and_other_weights_under_the_name_are_refused(
    engine: Engine, adapter_folders: dict[str, Path]
) -> None:
    digest = engine.load_adapter("a", adapter_folders["red"])
    assert engine.load_adapter("a", adapter_folders["red"]) == digest
    with pytest.raises(CheckpointError, match="never reused"):
        engine.load_adapter("a", adapter_folders["green"])
    assert engine.adapter_digest("a") == digest


def test_an_adapter_of_another_base_is_refused_and_leaves_no_trace(engine: Engine, tmp_path: Path) -> None:
    key = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    for layer, width, says in [(7, 64, "no layer"), (0, 32, "maps 32 -> 64")]:
        tensors = {key.format(layer, "A"): torch.ones(2, width), key.format(layer, "B"): torch.ones(64, 2)}
        config = AdapterConfig(rank=2, alpha=2.0, target_modules=("q_proj",), base="other")
        write_adapter(tmp_path / str(layer), config, tensors)
        with pytest.raises(CheckpointError, match=says):
            engine.load_adapter("a", tmp_path / str(layer))
    assert engine.adapters() == []


def test_an_unloaded_adapter_takes_no_requests_but_finishes_the_ones_it_has(
    engine: Engine, adapter_folders: dict[str, Path], prompts: list[list[int]], ask: Ask
) -> None:
    engine.load_adapter("red", adapter_folders["red"])
    alone = engine.generate(prompts[0], SamplingParams(max_tokens=300), adapter="red")
    running = ask(engine, prompts[0], "red", max_tokens=300)
    assert running.begun.wait(10)
    engine.unload_adapter("red")
    assert engine.adapters() == []
    with pytest.raises(RequestError) as caught:
        engine.submit(prompts[0], GREEDY, adapter="red", on_event=lambda event: None)
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    assert running.wait().ids == alone.ids
    engine.unload_adapter("red")
    engine.unload_adapter("never loaded")


def test_memory_is_given_back_when_the_last_user_of_an_unloaded_adapter_ends(
    engine: Engine, adapter_folders: dict[str, Path], prompts: list[list[int]], ask: Ask
) -> None:
    for name in ("red", "green"):
        engine.load_adapter(name, adapter_folders[name])
    crowd = [
        ask(engine, prompt, name, max_tokens=40) for prompt, name in zip(prompts, ["red", "green"] * 4, strict=True)
    ]
    engine.unload_adapter("red")
    for answer in crowd:
        answer.wait()
    engine.generate(prompts[0], GREEDY)  # the engine's thread is past the last removal
    layer: Any = engine._forwards.adapters.model.get_submodule("model.layers.0.self_attn.q_proj")
    assert list(layer.factors) == ["green"]
    assert layer._bank is None


def test_a_name_can_come_back_while_its_last_answer_still_runs(
    engine: Engine, adapter_folders: dict[str, Path], prompts: list[list[int]], ask: Ask
) -> None:
    engine.load_adapter("red", adapter_folders["red"])
    alone = engine.generate(prompts[1], GREEDY, adapter="red")
    running = ask(engine, prompts[0], "red", max_tokens=300)
    engine.unload_adapter("red")
    engine.load_adapter("red", adapter_folders["red"])
    assert engine.generate(prompts[1], GREEDY, adapter="red").ids == alone.ids
    running.wait()
    assert engine.adapters() == ["red"]
    assert engine.generate(prompts[1], GREEDY, adapter="red").ids == alone.ids


def test_answers_in_flight_are_untouched_by_loads_and_unloads(
    engine: Engine, adapter_folders: dict[str, Path], prompts: list[list[int]], ask: Ask
) -> None:
    engine.load_adapter("red", adapter_folders["red"])
    long = SamplingParams(max_tokens=250)
    alone = [engine.generate(prompts[0], long), engine.generate(prompts[1], long, adapter="red")]
    running = [ask(engine, prompts[0], None, max_tokens=250), ask(engine, prompts[1], "red", max_tokens=250)]
    faults: list[Exception] = []

    def churn() -> None:
        for turn in range(20):
            name = ("green", "blue")[turn % 2]
            try:
                engine.load_adapter(f"{name}-{turn}", adapter_folders[name])
                engine.generate(prompts[2], SamplingParams(max_tokens=2), adapter=f"{name}-{turn}")
                engine.unload_adapter(f"{name}-{turn}")
            except (CheckpointError, RequestError) as error:
                faults.append(error)

    thread = threading.Thread(target=churn)
    thread.start()
    for one, answer in zip(alone, running, strict=True):
        assert answer.wait().ids == one.ids
    thread.join()
    assert faults == []
    assert engine.adapters() == ["red"]


def test_an_adapter_that_overflows_fails_its_own_request_only(
    engine: Engine, prompts: list[list[int]], tmp_path: Path, random_adapter: Callable[..., Path], ask: Ask
) -> None:
    engine.load_adapter("wild", random_adapter(tmp_path / "wild", seed=9, scale=1e30))
    alone = engine.generate(prompts[1], SamplingParams(max_tokens=40))
    beside = ask(engine, prompts[1], None, max_tokens=40)
    failed = ask(engine, prompts[0], "wild", max_tokens=40).wait()
    assert isinstance(failed.error, CheckpointError)
    assert beside.wait().ids == alone.ids
    later = [ask(engine, prompt, None, max_tokens=5) for prompt in prompts]
    assert all(answer.wait().finished for answer in later)
    assert later[1].ids == alone.ids[:5]


def test_a_row_that_breaks_while_decoding_leaves_its_place_clean_for_the_next(
    engine: Engine, prompts: list[list[int]], ask: Ask
) -> None:
    alone = engine.generate(prompts[0], GREEDY)
    broken = threading.Event()
    model: Any = engine._forwards.adapters.model

    def spoil(_module: object, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...] | None:
        hidden = args[0]
        if broken.is_set() and hidden.shape[1] == 1:
            return (torch.full_like(hidden, float("nan")), *args[1:])
        return None

    hook = model.model.layers[0].register_forward_pre_hook(spoil)
    longer = ask(engine, prompts[3], None, max_tokens=400)
    assert longer.begun.wait(10)
    broken.set()
    assert isinstance(longer.wait().error, CheckpointError)
    hook.remove()
    beside = [ask(engine, prompts[0], None, max_tokens=16), ask(engine, prompts[3] * 2, None, max_tokens=16)]
    assert beside[0].wait().ids == alone.ids
    assert beside[1].wait().finished


def test_a_drop_that_was_asked_for_before_a_reload_does_not_take_the_adapter_from_its_new_users(
    adapter_folders: dict[str, Path],
) -> None:
    live = Live(read_adapter(adapter_folders["red"]), {}, torch.float32)
    table = AdapterTable()
    table.add("red", live)
    assert table.retire("red"), "nobody uses it: a drop is asked for"
    table.add("red", live)
    assert not table.remove_unused("red"), "it serves again"
    table.pin("red")
    assert not table.retire("red"), "somebody uses it"
    assert not table.remove_unused("red"), "the old drop comes late"
    assert table.unpin("red")
    assert table.remove_unused("red")
