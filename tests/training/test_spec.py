"""What a run's input digest covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from flywheel.config import TrainRecipe
from flywheel.training.spec import TrainSpec

SPEC = TrainSpec(
    task="support_router",
    home=Path("/srv/a"),
    base="tiny",
    base_digest="b" * 64,
    dataset="d" * 64,
    init=None,
    recipe=TrainRecipe(),
    seed=0,
)


@pytest.mark.parametrize(
    "change",
    [
        {"home": Path("/srv/b")},
        {"base": "/models/the-same-model"},
        {"dtype": "bfloat16"},
        {"threads": 8},
        {"recipe": TrainRecipe(checkpoint_every=3, seed=5)},
    ],
)
def test_places_and_machines_do_not_change_the_input_digest(change: dict[str, object]) -> None:
    assert SPEC.model_copy(update=change).input_digest() == SPEC.input_digest()


@pytest.mark.parametrize(
    "change",
    [
        {"task": "other"},
        {"base_digest": "c" * 64},
        {"dataset": "e" * 64},
        {"init": "f" * 64},
        {"seed": 1},
        {"recipe": TrainRecipe(lr=2e-3)},
        {"recipe": TrainRecipe(max_tokens=100)},
    ],
)
def test_everything_that_decides_the_weights_changes_the_input_digest(change: dict[str, object]) -> None:
    assert SPEC.model_copy(update=change).input_digest() != SPEC.input_digest()


def test_a_warm_start_runs_at_a_fraction_of_the_peak() -> None:
    assert SPEC.peak_lr == SPEC.recipe.lr
    warm = SPEC.model_copy(update={"init": "f" * 64})
    assert warm.peak_lr == SPEC.recipe.lr * SPEC.recipe.warm_lr_scale


def test_a_spec_survives_its_file(tmp_path: Path) -> None:
    spec = SPEC.model_copy(update={"home": tmp_path})
    path = spec.write()
    assert path.parent == spec.folder
    assert TrainSpec.model_validate_json(path.read_text()) == spec
