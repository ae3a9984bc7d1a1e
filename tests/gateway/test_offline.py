"""Feedback without a gateway is as strict and as durable as with one."""

from __future__ import annotations

from typing import Any

import pytest

from flywheel.errors import RequestError
from flywheel.gateway.identity import interaction_id
from flywheel.gateway.offline import record_offline

TASK = "support_router"


def test_offline_feedback_is_one_line_in_a_file_of_its_own(world: Any) -> None:
    body = {"interaction_id": interaction_id(TASK), "kind": "correction", "text": "billing", "id": "42"}
    names = [record_offline(world.config, world.home, body) for _ in range(2)]
    assert names[0] == names[1], "the caller's own id repeats"
    assert [(row["id"], row["task"]) for row in world.log()] == [(names[0], TASK)] * 2
    assert len(list(world.home.log.glob("*.jsonl"))) == 2


def test_wrong_offline_feedback_is_refused_and_makes_no_file(world: Any) -> None:
    with pytest.raises(RequestError, match="thumb needs"):
        record_offline(world.config, world.home, {"conversation_id": "c", "task": TASK, "kind": "thumb"})
    assert list(world.home.log.glob("*.jsonl")) == []


def test_offline_feedback_goes_beside_a_running_gateways_log(world: Any, start_gateway: Any) -> None:
    gateway = start_gateway(world)
    with gateway.http() as http:
        body = {"conversation_id": "c", "task": TASK, "kind": "comment", "text": "slow"}
        names = [http.post("/v1/feedback", json=body).json()["id"], record_offline(world.config, world.home, body)]
        names.append(http.post("/v1/feedback", json=body).json()["id"])
    assert {row["id"] for row in world.log()} == set(names)
