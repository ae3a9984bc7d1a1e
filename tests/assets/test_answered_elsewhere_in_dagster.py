"""The same through Dagster: intake runs, the stages of a loop refuse, and open none."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.store.registry import schema


@pytest.mark.parametrize("stage", ["dataset", "candidate", "evaluation", "champion"])
def test_the_stages_of_a_loop_say_who_answers_and_begin_nothing(
    stage: str, make_wheel: Any, dagster_of: Any, reason: Any
) -> None:
    wheel = make_wheel()
    wheel.set(engine="http://vllm:8000/v1", base="acme/not-on-this-machine")
    wheel.talk(0, 80)
    dagster = dagster_of(wheel)
    assert dagster.launch("intake").success
    result = dagster.materialize(stage)
    assert not result.success and not result.get_asset_materialization_events()
    assert "task support_router is answered by engine http://vllm:8000/v1" in reason(result)
    with wheel.registry.read() as tx:
        assert tx.rows(sa.select(schema.loops)) == []
