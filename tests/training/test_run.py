"""A whole run in this process: it learns, it checks itself, it is not done twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from flywheel.errors import CheckpointError, TrainingError
from flywheel.store.digests import tensor_digests, weights_digest
from flywheel.store.files import read_json, write_json
from flywheel.store.home import Home
from flywheel.training.pipes import Reporter
from flywheel.training.run import run_training
from flywheel.training.signals import Interrupted, Stop

if TYPE_CHECKING:
    from flywheel.training.spec import TrainSpec


class Lines(Reporter):
    """Keeps what a run reports."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.messages: list[dict[str, Any]] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)

    def message(self, payload: dict[str, Any]) -> None:
        self.messages.append(payload)


class StopAfter(Stop):
    """A stop that comes during the given step; the loop looks once a step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self._left = step

    @property
    def asked(self) -> bool:
        self._left -= 1
        return self._left <= 0


def train(spec: TrainSpec) -> dict[str, Any]:
    return run_training(spec, Lines(), Stop())


def test_a_run_learns_two_words(plan_run: Callable[..., TrainSpec], tiny: Any, fp32: Any) -> None:
    from flywheel.engine.adapters import read_adapter
    from flywheel.models import load_model, load_tokenizer

    spec = plan_run(rank=8, epochs=10.0, max_steps=45, lr=3e-2)
    manifest = train(spec)
    assert manifest["losses"]["val"][0][1] > 1.0
    assert manifest["losses"]["val"][-1][1] < 0.2

    import peft
    import torch

    folder = Home(spec.home).checkpoints / manifest["digest"]
    assert read_adapter(folder).weights_digest == manifest["digest"]
    model = peft.PeftModel.from_pretrained(load_model(tiny, fp32), str(folder)).eval()
    tokenizer = load_tokenizer(tiny)
    for text, word in (("stop !! 101", "red"), ("go ! 202", "blue")):
        ids = tokenizer.encode_prompt([{"role": "user", "content": text}])
        with torch.no_grad():
            for _ in range(8):
                ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
                if ids[-1] in tokenizer.eos_ids:
                    break
        assert tokenizer.decode(ids).endswith(f"assistant\n{word}"), text


def test_the_manifest_says_how_the_weights_came_to_be(plan_run: Callable[..., TrainSpec], tiny: Any) -> None:
    spec = plan_run()
    manifest = train(spec)
    folder = Home(spec.home).checkpoints / manifest["digest"]
    assert manifest == read_json(folder / "manifest.json")
    assert manifest["digest"] == weights_digest(tensor_digests(folder / "adapter_model.safetensors"))
    assert manifest["kind"] == "lora"
    assert manifest["base"] == {
        "name": "tiny",
        "weights_digest": tiny.weights_digest,
        "tokenizer_digest": tiny.tokenizer_digest,
        "template_digest": tiny.template_digest,
    }
    assert (manifest["parent"], manifest["dataset"], manifest["seed"]) == (None, spec.dataset, 0)
    assert manifest["steps"] == 12 == len(manifest["losses"]["train"])
    assert [step for step, _ in manifest["losses"]["val"]] == [0, 4, 8, 12]
    assert manifest["examples"] == {
        "train": 24,
        "val": 6,
        "too_long": 0,
        "nothing_learned": 0,
        "refused": 0,
        "val_unused": 0,
    }
    assert manifest["cpu_seconds"] > 0
    assert manifest["tokens"]["learned"] < manifest["tokens"]["seen"]
    assert read_json(spec.folder / "result.json")["checkpoint"] == manifest["digest"]
    assert not list(spec.folder.glob("resume-*"))


def test_the_same_inputs_give_the_same_weights_in_another_home(plan_run: Callable[..., TrainSpec]) -> None:
    assert train(plan_run("one"))["digest"] == train(plan_run("two"))["digest"]


def test_a_finished_run_is_reused(plan_run: Callable[..., TrainSpec]) -> None:
    spec = plan_run()
    first = train(spec)
    lines = Lines()
    again = run_training(spec.model_copy(update={"threads": 2}), lines, Stop())
    assert again == first
    assert lines.lines == [f"already trained: checkpoint {first['digest'][:12]}"]


def test_an_interrupted_run_goes_on_to_the_same_weights(plan_run: Callable[..., TrainSpec]) -> None:
    undisturbed = train(plan_run("one"))
    spec = plan_run("two")
    for step in (2, 1, 3):
        with pytest.raises(Interrupted, match="of 12"):
            run_training(spec, Lines(), StopAfter(step))
        assert len(list(spec.folder.glob("resume-*"))) == 1
    manifest = train(spec)
    assert manifest["digest"] == undisturbed["digest"]
    assert manifest["resumed"] == 3
    assert manifest["losses"]["train"] == undisturbed["losses"]["train"]


def test_a_damaged_resume_point_only_costs_time(plan_run: Callable[..., TrainSpec]) -> None:
    undisturbed = train(plan_run("one"))
    spec = plan_run("two")
    with pytest.raises(Interrupted):
        run_training(spec, Lines(), StopAfter(2))
    state = next(spec.folder.glob("resume-*/state.safetensors"))
    state.write_bytes(state.read_bytes()[:-100])
    lines = Lines()
    assert run_training(spec, lines, Stop())["digest"] == undisturbed["digest"]
    assert any("is damaged" in line for line in lines.lines)


def test_a_warm_start_records_its_parent_and_moves_away_from_it(plan_run: Callable[..., TrainSpec]) -> None:
    first = train(plan_run())
    warm = plan_run(init=first["digest"], seed=1)
    second = train(warm)
    assert second["parent"] == first["digest"]
    assert second["digest"] != first["digest"]
    assert second["losses"]["val"][0][1] == pytest.approx(first["losses"]["val"][-1][1], rel=1e-4)


@pytest.mark.parametrize("part", ["weights_digest", "tokenizer_digest", "template_digest"])
def test_a_warm_start_from_another_base_is_refused(plan_run: Callable[..., TrainSpec], part: str) -> None:
    spec = plan_run()
    first = train(spec)
    path = Home(spec.home).checkpoints / first["digest"] / "manifest.json"
    path.unlink()
    write_json(path, {**first, "base": {**first["base"], part: "0" * 64}})
    with pytest.raises(CheckpointError, match=f"another {part.removesuffix('_digest')} .000000000000"):
        train(plan_run(init=first["digest"]))


def test_a_warm_start_whose_weights_were_swapped_is_refused(plan_run: Callable[..., TrainSpec]) -> None:
    spec = plan_run()
    first, other = train(spec), train(plan_run(seed=1))
    folder = Home(spec.home).checkpoints
    weights = folder / first["digest"] / "adapter_model.safetensors"
    weights.write_bytes((folder / other["digest"] / "adapter_model.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match="the weights in it have digest"):
        train(plan_run(init=first["digest"]))


def test_a_warm_start_of_another_rank_is_refused(plan_run: Callable[..., TrainSpec]) -> None:
    first = train(plan_run())
    with pytest.raises(CheckpointError, match="rank is 4"):
        train(plan_run(init=first["digest"], rank=8))


def test_a_base_that_is_not_the_planned_one_is_refused(plan_run: Callable[..., TrainSpec]) -> None:
    with pytest.raises(TrainingError, match="was planned for"):
        train(plan_run().model_copy(update={"base_digest": "0" * 64}))


def test_a_run_that_changes_nothing_fails_and_publishes_nothing(plan_run: Callable[..., TrainSpec]) -> None:
    spec = plan_run(lr=1e-45)
    with pytest.raises(TrainingError, match="left the weights exactly as they were"):
        train(spec)
    assert not list(Home(spec.home).checkpoints.iterdir())
    assert not (spec.folder / "result.json").exists()


def test_a_run_that_diverges_fails_and_publishes_nothing(plan_run: Callable[..., TrainSpec]) -> None:
    spec = plan_run(lr=1e18)
    with pytest.raises(TrainingError, match=r"lower the learning rate|not finite"):
        train(spec)
    assert not list(Home(spec.home).checkpoints.iterdir())


def test_examples_that_cannot_train_are_dropped_and_counted(
    plan_run: Callable[..., TrainSpec], two_word_rows: Callable[..., list[dict[str, Any]]]
) -> None:
    rows = two_word_rows(12)
    rows[0]["messages"][0]["content"] = "long " * 100
    rows[1]["train_mask"] = [False, False]
    rows[2]["weight"] = 0.0
    manifest = train(plan_run(rows=rows, max_tokens=200))
    assert manifest["examples"]["train"] == 9
    assert manifest["examples"]["too_long"] == 1
    assert manifest["examples"]["nothing_learned"] == 2


def test_a_dataset_that_leaves_nothing_to_train_says_why(plan_run: Callable[..., TrainSpec]) -> None:
    with pytest.raises(TrainingError, match="30 examples are longer than 8 tokens"):
        train(plan_run(max_tokens=8))


def test_the_prompt_is_not_learned(plan_run: Callable[..., TrainSpec], tiny: Any) -> None:
    from flywheel.models import load_tokenizer
    from flywheel.training.examples import load_rows

    spec = plan_run()
    tokenizer = load_tokenizer(tiny)
    rows = load_rows(Home(spec.home), spec.dataset, tokenizer, max_tokens=512)
    for row in rows.train:
        learned = [token for token, learn in zip(row.ids, row.learned, strict=True) if learn]
        assert tokenizer.decode(learned) in ("red", "blue")
        assert learned[-1] in tokenizer.eos_ids


def test_nothing_that_is_reported_quotes_the_data(plan_run: Callable[..., TrainSpec]) -> None:
    lines = Lines()
    run_training(plan_run(), lines, Stop())
    said = "\n".join([*lines.lines, json.dumps(lines.messages)])
    assert "step 12/12" in said
    for text in ("stop", "!!", "blue"):
        assert text not in said
    assert lines.messages[-1]["step"] == lines.messages[-1]["steps"] == 12
