"""Releases are named by their content and found by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flywheel.errors import PromotionRefused
from flywheel.release.releases import find_release, get_release, make_release


def _digest(world: Any, config: Any = None, model: Any = None, checkpoint: str | None = None) -> str:
    with world.registry.write() as tx:
        return make_release(tx, config or world.config, world.task, model or world.model, checkpoint).digest


def _with_task(config: Any, task: str, **changes: Any) -> Any:
    return config.model_copy(update={"tasks": {task: config.task(task).model_copy(update=changes)}})


def test_making_a_release_again_gives_the_same_one(world: Any) -> None:
    assert _digest(world) == _digest(world) == world.champion().release


@pytest.mark.parametrize("field", ["weights_digest", "tokenizer_digest", "template_digest"])
def test_a_changed_base_is_another_release(world: Any, field: str) -> None:
    assert _digest(world, model=replace(world.model, **{field: "f" * 64})) != _digest(world)


def test_a_changed_checkpoint_prompt_or_sampling_is_another_release(world: Any) -> None:
    prompt = _with_task(world.config, world.task, prompt="Other words.")
    serve = world.config.task(world.task).serve.model_copy(update={"temperature": 0.5})
    sampling = _with_task(world.config, world.task, serve=serve)
    found = {_digest(world), _digest(world, checkpoint="d" * 64), _digest(world, prompt), _digest(world, sampling)}
    assert len(found) == 4


def test_the_path_of_the_base_is_no_part_of_the_digest(world: Any, tmp_path: Path) -> None:
    moved = replace(world.model, name=str(tmp_path / "elsewhere"), path=tmp_path / "elsewhere")
    assert _digest(world, model=moved) == _digest(world)


def test_a_release_has_the_same_digest_in_another_home(world: Any, make_deployment: Callable[..., Any]) -> None:
    other = make_deployment(name="other")
    with other.registry.write() as tx:
        assert make_release(tx, other.config, other.task, world.model, None).digest == _digest(world)


def test_the_name_contains_task_and_digest_and_the_base_release_has_no_adapter(world: Any) -> None:
    base, tuned = world.release(_digest(world)), world.release(_digest(world, checkpoint="d" * 64))
    assert base.name == f"{world.task}@{base.digest[:12]}"
    assert base.adapter is None and base.adapter_folder(world.home) is None
    assert tuned.adapter == tuned.name and tuned.adapter_folder(world.home) == world.home.checkpoints / ("d" * 64)


def test_a_release_is_found_by_a_prefix_or_its_served_name(world: Any) -> None:
    tuned = world.candidate()
    with world.registry.read() as tx:
        assert find_release(tx, world.task, tuned.digest[:8]) == tuned
        assert find_release(tx, world.task, tuned.name) == tuned
        assert get_release(tx, tuned.digest) == tuned


def test_an_unknown_or_ambiguous_prefix_is_refused(world: Any) -> None:
    releases = [world.candidate(seed) for seed in range(20)]  # 21 digests share a first digit at least once
    first = [release.digest[0] for release in releases]
    shared = next(digit for digit in first if first.count(digit) > 1)
    with world.registry.read() as tx:
        with pytest.raises(PromotionRefused, match="more digits"):
            find_release(tx, world.task, shared)
        for unknown in ("", "zz"):
            with pytest.raises(PromotionRefused, match="no release"):
                find_release(tx, world.task, unknown)


def test_the_system_prompt_goes_first_unless_the_messages_bring_instructions(world: Any) -> None:
    release = world.release(_digest(world))
    user = {"role": "user", "content": "hello"}
    own = [{"role": "developer", "content": "Be brief."}, user]
    assert release.with_prompt([user]) == [{"role": "system", "content": release.system_prompt}, user]
    assert release.with_prompt(own) == own
