"""A task that an engine answers which is not ours: log and labels are kept, no loop begins, and everybody is told."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.errors import ConfigError
from flywheel.labels import last_seq
from flywheel.loops.champion import promote_latest
from flywheel.loops.run import run_loop
from flywheel.store.registry import schema

WHY = "task support_router is answered by engine http://vllm:8000/v1; its log and labels are kept"


@pytest.fixture
def wheel(make_wheel: Any) -> Any:
    """A wheel with more than enough label versions for a loop, whose task another engine answers."""
    wheel = make_wheel()
    wheel.set(engine="http://vllm:8000/v1", base="acme/not-on-this-machine")
    wheel.talk(0, 80)
    return wheel


def test_a_loop_by_hand_takes_in_log_and_labels_then_says_why_it_ends(wheel: Any) -> None:
    said: list[str] = []
    with pytest.raises(ConfigError, match=WHY):
        run_loop(wheel.config, wheel.home, wheel.registry, wheel.task, run_id="r", say=said.append)
    with wheel.registry.read() as tx:
        assert last_seq(tx, wheel.task) >= 80
        assert tx.rows(sa.select(schema.loops)) == []
    assert wheel.champion() is None and said[0].startswith("labels: ")


def test_no_decision_of_earlier_days_is_acted_on(wheel: Any) -> None:
    with pytest.raises(ConfigError, match=WHY):
        promote_latest(wheel.config, wheel.home, wheel.registry, wheel.task)
