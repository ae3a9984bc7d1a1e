"""The training core against plain torch and peft."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flywheel.errors import CheckpointError, TrainingError

if TYPE_CHECKING:
    import torch

    from flywheel.engine.batches import Batch
    from flywheel.engine.core import TrainingCore
    from flywheel.models import Compute, ModelDir

SEVEN = ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")


@pytest.fixture
def make_core(tiny: ModelDir, fp32: Compute) -> Callable[..., TrainingCore]:
    """``make_core(rank=4, alpha=8.0, init=None, ...)`` -> a core on the tiny model in fp32."""

    def make(
        rank: int = 4,
        alpha: float = 8.0,
        modules: tuple[str, ...] = (),
        init: Path | None = None,
        seed: int = 0,
        compute: Compute = fp32,
    ) -> TrainingCore:
        from flywheel.engine.adapters import AdapterConfig
        from flywheel.engine.core import TrainingCore

        return TrainingCore(tiny, compute, AdapterConfig(rank, alpha, modules, tiny.name), init=init, seed=seed)

    return make


@pytest.fixture
def rows() -> list[Any]:
    """Three rows of unequal length and weight; the answers are their tails."""
    from flywheel.engine.batches import Row

    return [
        Row((5, 9, 14, 21, 33, 7, 2), (False, False, False, False, True, True, True), 1.0),
        Row((8, 80, 81, 2), (False, False, True, True), 0.5),
        Row((11, 12, 13, 14, 15, 16, 17, 18, 19, 2), (False,) * 8 + (True, True), 2.0),
    ]


@pytest.fixture
def batch(rows: list[Any]) -> Batch:
    from flywheel.engine.batches import collate

    return collate(rows)


def peft_twin(tiny: ModelDir, folder: Path) -> Any:
    """The same base under plain peft, with the adapter in ``folder``, trainable."""
    import peft
    import transformers

    base = transformers.AutoModelForCausalLM.from_pretrained(str(tiny.path))
    return peft.PeftModel.from_pretrained(base, str(folder), is_trainable=True).eval()


def peft_loss(twin: Any, rows: list[Any]) -> torch.Tensor:
    """The documented loss from full logits, one row at a time, without any code of the core."""
    import torch

    total, tokens = torch.zeros(()), 0
    for row in rows:
        logprobs = twin(torch.tensor([row.ids])).logits[0].log_softmax(-1)
        for position in range(1, len(row.ids)):
            if row.learned[position]:
                total = total - row.weight * logprobs[position - 1, row.ids[position]]
                tokens += 1
    return total / tokens


def by_name(twin: Any) -> dict[str, Any]:
    return {name.replace(".default", ""): p for name, p in twin.named_parameters() if "lora_" in name}


def test_a_new_adapter_leaves_the_base_model_as_it_is(
    make_core: Callable[..., TrainingCore], rows: list[Any], batch: Batch, tiny: ModelDir
) -> None:
    import transformers

    plain = transformers.AutoModelForCausalLM.from_pretrained(str(tiny.path))
    assert make_core().loss(batch)[0] / 7 == pytest.approx(float(peft_loss(plain, rows).detach()), abs=1e-5)


def test_all_seven_linear_layers_are_trained_and_nothing_else(make_core: Callable[..., TrainingCore]) -> None:
    core = make_core(rank=4)
    assert core.config.target_modules == SEVEN
    trained = [name for name, parameter in core.model.named_parameters() if parameter.requires_grad]
    assert len(trained) == 2 * 7 * 2
    assert all("lora_" in name for name in trained)
    assert core.trainable == sum(tensor.numel() for tensor in core.tensors().values())


def test_loss_and_gradients_equal_plain_peft(
    make_core: Callable[..., TrainingCore],
    random_adapter: Callable[..., Path],
    tiny: ModelDir,
    rows: list[Any],
    batch: Batch,
    tmp_path: Path,
) -> None:
    folder = random_adapter(tmp_path / "adapter")
    core, twin = make_core(init=folder), peft_twin(tiny, folder)
    expected = peft_loss(twin, rows)
    expected.backward()
    assert core.forward_backward(batch) == pytest.approx(expected.item(), abs=1e-5)
    gradients = core.gradients()
    twins = by_name(twin)
    assert set(gradients) == set(twins)
    for name, parameter in twins.items():
        scale = float(parameter.grad.abs().max())
        assert float((gradients[name] - parameter.grad).abs().max()) <= 1e-4 * scale, name


def test_steps_equal_torchs_adamw_with_clipping(
    make_core: Callable[..., TrainingCore],
    random_adapter: Callable[..., Path],
    tiny: ModelDir,
    rows: list[Any],
    batch: Batch,
    tmp_path: Path,
) -> None:
    import torch

    folder = random_adapter(tmp_path / "adapter")
    core, twin = make_core(init=folder), peft_twin(tiny, folder)
    parameters = list(by_name(twin).values())
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, betas=(0.9, 0.999), weight_decay=0.0)
    for lr in (1e-2, 5e-3, 1e-3):
        peft_loss(twin, rows).backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        optimizer.zero_grad()
        core.forward_backward(batch)
        assert core.optim_step(lr) == pytest.approx(float(norm), rel=1e-3)
    for name, tensor in core.tensors().items():
        assert float((tensor - by_name(twin)[name].detach()).abs().max()) < 1e-3, name
    assert float(norm) > 1.0, "the clip was never tried"


def test_a_saved_adapter_gives_the_same_logits_in_plain_peft(
    make_core: Callable[..., TrainingCore], tiny: ModelDir, batch: Batch, rows: list[Any], tmp_path: Path
) -> None:
    import torch

    core = make_core()
    for _ in range(5):
        core.forward_backward(batch)
        core.optim_step(1e-2)
    digest = core.save(tmp_path / "out")
    assert digest == core.weights_digest()
    twin = peft_twin(tiny, tmp_path / "out")
    with torch.no_grad():
        ours = core._logits(batch)
        theirs = torch.cat(
            [
                twin(torch.tensor([row.ids])).logits[0][[i - 1 for i in range(1, len(row.ids)) if row.learned[i]]]
                for row in rows
            ]
        )
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) < 1e-5


def test_only_learned_tokens_decide_the_loss(make_core: Callable[..., TrainingCore], rows: list[Any]) -> None:
    from flywheel.engine.batches import Row, collate

    core = make_core()
    first = rows[1]
    longer = Row((*first.ids, 99, 98), (*first.learned, False, False), first.weight)
    assert core.loss(collate([first]))[0] == pytest.approx(core.loss(collate([longer]))[0], abs=1e-5)
    other_answer = Row((*first.ids[:-1], 3), first.learned, first.weight)
    assert abs(core.loss(collate([first]))[0] - core.loss(collate([other_answer]))[0]) > 1e-3


def test_marking_the_first_token_as_learned_changes_nothing(rows: list[Any]) -> None:
    from flywheel.engine.batches import Row, collate

    marked = Row(rows[0].ids, (True, *rows[0].learned[1:]), 1.0)
    assert collate([marked]).targets.tolist() == collate([rows[0]]).targets.tolist() == [33, 7, 2]
    assert marked.learned_tokens == 3


def test_padding_does_not_change_a_rows_loss(make_core: Callable[..., TrainingCore], rows: list[Any]) -> None:
    from flywheel.engine.batches import collate

    core = make_core()
    together, tokens = core.loss(collate(rows))
    alone = [core.loss(collate([row])) for row in rows]
    assert together == pytest.approx(sum(loss for loss, _ in alone), abs=1e-4)
    assert tokens == sum(count for _, count in alone) == 7


def test_an_examples_weight_scales_its_pull_also_when_alone(
    make_core: Callable[..., TrainingCore], rows: list[Any]
) -> None:
    from dataclasses import replace

    from flywheel.engine.batches import collate

    core = make_core()
    full = core.forward_backward(collate([rows[0]]))
    gradient = core.gradients()
    core.forward_backward(collate([replace(rows[0], weight=0.25)]))
    for name, tensor in core.gradients().items():
        assert (tensor - 1.25 * gradient[name]).abs().max() <= 1e-5 * (1 + gradient[name].abs().max())
    assert core.loss(collate([replace(rows[0], weight=0.25)]))[0] == pytest.approx(0.25 * full * 3, rel=1e-5)


def test_a_batch_in_which_nothing_is_learned_is_refused() -> None:
    from flywheel.engine.batches import Row, collate

    with pytest.raises(ValueError, match="none of the 1 rows"):
        collate([Row((1, 2, 3), (True, False, False))])


def test_the_same_seed_gives_the_same_new_adapter(make_core: Callable[..., TrainingCore]) -> None:
    assert make_core(seed=1).weights_digest() == make_core(seed=1).weights_digest()
    assert make_core(seed=1).weights_digest() != make_core(seed=2).weights_digest()


def test_a_warm_start_goes_on_from_the_saved_weights(
    make_core: Callable[..., TrainingCore], batch: Batch, tmp_path: Path
) -> None:
    core = make_core()
    core.forward_backward(batch)
    core.optim_step(1e-2)
    digest = core.save(tmp_path / "out")
    warm = make_core(init=tmp_path / "out", seed=7)
    assert warm.weights_digest() == warm.init_digest == digest
    assert warm.loss(batch) == core.loss(batch)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rank": 8}, "rank is 4"),
        ({"alpha": 4.0}, "alpha is 8"),
        ({"modules": ("q_proj", "v_proj")}, "trains down_proj"),
    ],
)
def test_a_warm_start_of_another_shape_is_refused(
    make_core: Callable[..., TrainingCore],
    random_adapter: Callable[..., Path],
    tmp_path: Path,
    change: dict[str, Any],
    named: str,
) -> None:
    folder = random_adapter(tmp_path / "adapter")
    with pytest.raises(CheckpointError, match=named):
        make_core(init=folder, **change)


def test_a_model_without_the_named_layers_is_refused(make_core: Callable[..., TrainingCore]) -> None:
    with pytest.raises(TrainingError, match="no linear layer named c_attn"):
        make_core(modules=("c_attn",))


def test_a_restored_state_goes_on_bit_for_bit(
    make_core: Callable[..., TrainingCore], batch: Batch, tmp_path: Path
) -> None:
    steady = make_core()
    for step in range(6):
        steady.forward_backward(batch)
        steady.optim_step(1e-2 / (step + 1))
        if step == 2:
            steady.save_state(tmp_path / "state")
    restored = make_core(seed=99)
    restored.load_state(tmp_path / "state")
    for step in range(3, 6):
        restored.forward_backward(batch)
        restored.optim_step(1e-2 / (step + 1))
    assert restored.weights_digest() == steady.weights_digest()


def test_a_damaged_or_foreign_state_is_refused_and_changes_nothing(
    make_core: Callable[..., TrainingCore], batch: Batch, tmp_path: Path
) -> None:
    other = make_core(rank=8)
    other.forward_backward(batch)
    other.optim_step(1e-2)
    other.save_state(tmp_path / "foreign")
    (tmp_path / "torn").mkdir()
    whole = (tmp_path / "foreign" / "state.safetensors").read_bytes()
    (tmp_path / "torn" / "state.safetensors").write_bytes(whole[: len(whole) // 2])
    core = make_core(rank=4)
    before = core.weights_digest()
    for name in ("foreign", "torn", "missing"):
        with pytest.raises(CheckpointError):
            core.load_state(tmp_path / name)
    assert core.weights_digest() == before


def test_a_loss_that_is_not_finite_stops_the_run(make_core: Callable[..., TrainingCore], rows: list[Any]) -> None:
    from dataclasses import replace

    from flywheel.engine.batches import collate

    with pytest.raises(TrainingError, match="loss is inf"):
        make_core().forward_backward(collate([replace(rows[0], weight=math.inf)]))


def test_an_optimizer_step_needs_a_gradient(make_core: Callable[..., TrainingCore]) -> None:
    with pytest.raises(TrainingError, match="without a gradient"):
        make_core().optim_step(1e-3)


def test_weights_that_are_not_finite_are_never_written(
    make_core: Callable[..., TrainingCore], batch: Batch, tmp_path: Path
) -> None:
    core = make_core()
    core.forward_backward(batch)
    core.optim_step(math.inf)
    with pytest.raises(TrainingError, match="not finite"):
        core.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_bfloat16_base_keeps_the_adapter_in_float32(
    make_core: Callable[..., TrainingCore], batch: Batch, tiny: ModelDir
) -> None:
    import torch

    from flywheel.models import Compute

    core = make_core(compute=Compute("bfloat16", 1))
    exact = make_core()
    assert core.forward_backward(batch) == pytest.approx(exact.forward_backward(batch), rel=0.05)
    core.optim_step(1e-2)
    assert {tensor.dtype for tensor in core.tensors().values()} == {torch.float32}
    assert core.model.lm_head.weight.dtype == torch.bfloat16
