"""A gateway of our own as the judge's endpoint: any that speaks OpenAI's protocol will do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from flywheel.intake import run_intake
from flywheel.labels.verify import run_verifiers


def test_a_gateway_answers_the_judges_questions_and_a_model_that_babbles_is_unreadable(
    make_world: Callable[..., Any], start_gateway: Callable[..., Any], make_deployment: Any, traffic_of: Any
) -> None:
    live = start_gateway(make_world(max_context=4096))
    judge = {"endpoint": f"{live.url}/v1", "model": "support_router", "share": 1}
    at = make_deployment("judged", task={"labels": {"judge": judge}})
    traffic = traffic_of(at.home)
    traffic.write(traffic.call(0), traffic.call(1))
    run_intake(at.config, at.home, at.registry, at.task)
    report = run_verifiers(at.config, at.home, at.registry, at.task, now=datetime(2026, 1, 1, tzinfo=UTC))
    assert dict(report.authors["judge/judge"].words) == {"unreadable": 2}
    assert len([row for row in live.world.log() if row["kind"] == "interaction"]) == 4
