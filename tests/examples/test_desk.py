"""What agents, reviewers and attackers say, what counts as right, and the configuration the demo writes."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from examples.support_desk import deployment, people
from examples.support_desk.client import DemoError
from examples.support_desk.measure import Accuracy, first_named
from examples.support_desk.phrases import own_material
from examples.support_desk.plan import TASK, make_plan, write_config
from flywheel.config import load_config
from flywheel.store.files import locked

QUEUES = ("billing", "delivery", "gift")


def test_wrong_routes_are_corrected_but_for_the_agents_own_errors() -> None:
    rng = random.Random(1)
    said = [people.agent("no idea", "delivery", QUEUES, rng) for _ in range(4000)]
    assert all(item is not None and item["kind"] == "correction" and item["source"] == "user" for item in said)
    errors = sum(item is not None and item["text"] != "delivery" for item in said) / len(said)
    assert 0.015 < errors < 0.035


def test_right_routes_get_thumbs_confirmations_or_silence() -> None:
    rng = random.Random(2)
    said = [people.agent("Delivery.", "delivery", QUEUES, rng) for _ in range(4000)]
    kinds = Counter("none" if item is None else item["kind"] for item in said)
    assert kinds["thumb"] > 1500 and kinds["correction"] > 1400 and 400 < kinds["none"] < 800
    assert all(item["value"] is True for item in said if item is not None and item["kind"] == "thumb")


def test_attackers_are_always_wrong_and_always_the_same_way() -> None:
    said = {queue: people.attacker(queue, QUEUES)["text"] for queue in QUEUES}
    assert said == {"billing": "delivery", "delivery": "gift", "gift": "billing"}


def test_reviewers_label_the_truth() -> None:
    assert people.reviewer("gift") == {"kind": "label", "text": "gift", "source": "reviewer"}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("delivery", True), (" Delivery.\n", True), ("deliver", False), ("delivery please", False), ("", False)],
)
def test_a_live_answer_is_right_only_as_the_queues_name(answer: str, expected: bool) -> None:
    assert people.right(answer, "delivery") is expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The queue is Billing, not gift.", "billing"),
        ("giftcard", None),
        ("gift card gift", "gift card"),
        ("", None),
    ],
)
def test_the_baseline_counts_the_first_queue_named(answer: str, expected: str | None) -> None:
    assert first_named(answer, (*QUEUES, "gift card")) == expected


def test_wilson_intervals_agree_with_statsmodels() -> None:
    from statsmodels.stats.proportion import proportion_confint

    for hits, n in [(0, 10), (10, 10), (83, 110), (1, 3)]:
        expected = proportion_confint(hits, n, alpha=0.05, method="wilson")
        assert Accuracy(hits, n).interval == pytest.approx(expected, abs=1e-6)


def test_no_messages_give_no_knowledge() -> None:
    assert Accuracy(0, 0).interval == (0.0, 1.0)


def test_the_written_configuration_loads_and_says_what_the_plan_says(tmp_path: Path) -> None:
    plan = make_plan(own_material())
    write_config(tmp_path / "flywheel.yaml", plan, gateway_port=8123, dagster_port=3123)
    config = load_config(tmp_path / "flywheel.yaml")
    task = config.task(TASK)
    assert (config.gateway.port, config.dagster.port, config.home) == (8123, 3123, str(tmp_path / "home"))
    assert task.labels.audit_share == plan.audit_share
    assert task.labels.gate_labels == ("reviewer",)
    assert task.train.max_steps == plan.max_steps == 40
    assert task.serve.max_tokens == plan.max_tokens == 7
    assert task.trigger.min_labels < plan.second


def test_a_fresh_folder_is_empty_and_its_second_owner_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    (folder / "home" / "locks").mkdir(parents=True)
    (folder / "home" / "locks" / "gateway.lock").touch()
    (folder / "report.json").touch()
    with deployment.fresh_folder(folder):
        assert [path.name for path in folder.iterdir()] == ["demo.lock"]
        with pytest.raises(DemoError, match="another demo"), deployment.fresh_folder(folder):
            pass


def test_a_folder_that_a_running_flywheel_uses_is_left_alone(tmp_path: Path) -> None:
    locks = tmp_path / "home" / "locks"
    locks.mkdir(parents=True)
    (tmp_path / "report.json").write_text("{}")
    with (
        locked(locks / "up.lock", wait=False, holder="test"),
        pytest.raises(DemoError, match=r"running Flywheel.*up\.lock"),
        deployment.fresh_folder(tmp_path),
    ):
        pass
    assert (tmp_path / "report.json").read_text() == "{}"


def test_a_taken_port_is_not_chosen() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        chosen = deployment.free_port(port)
    assert chosen != port and chosen > 0
