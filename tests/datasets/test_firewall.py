from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flywheel.datasets import HeldOut, is_large, prompt_text

Worlds = Callable[..., Any]

BASE = "please tell me where the parcel of my order number {} is right now, it should have come on friday"


def text_of(text: str) -> str:
    return prompt_text([{"role": "user", "content": text}])


def test_an_item_its_conversation_and_copies_of_its_prompt_do_not_train(world: Any, phrases: Any) -> None:
    item, sibling, copied, near, free = phrases(range(5))
    held = world.teach(item, "a")
    world.teach(sibling, "a", conversation="judge")
    world.teach(copied.upper() + "  ", "a")
    world.teach(near + "!", "a")
    world.teach(free, "a")
    out = HeldOut(frozenset({held}), frozenset({"judge"}), (text_of(copied), text_of(near)))
    built = world.build(held_out=out)
    assert [row["prompt"] for row in world.rows(built)] == [free]
    reasons = ("held_out_interaction", "held_out_conversation", "held_out_copy", "held_out_near_copy")
    assert built.manifest["dropped"] == dict.fromkeys(reasons, 1)
    assert built.manifest["firewall"] == {"stopped": 4, "screened": 5, "share": 0.8, "warn": True}
    assert "more than 10 %" in (built.path / "card.md").read_text()


def test_another_choice_of_a_held_out_call_is_held_out_too(world: Any, phrases: Any) -> None:
    from flywheel.datasets.firewall import Firewall
    from flywheel.datasets.rows import make_row

    messages, target = [{"role": "user", "content": "x"}], {"role": "assistant", "content": "y"}
    firewall = Firewall(HeldOut(frozenset({"chatcmpl-1"})), [], [], b"key")
    assert firewall.reason(make_row(messages, target, None, interaction_id="chatcmpl-1#2")) == "held_out_interaction"
    assert firewall.reason(make_row(messages, target, None, interaction_id="chatcmpl-2")) == ""


def test_near_copies_train_when_they_are_a_large_part_of_the_traffic(make_world: Worlds) -> None:
    world = make_world(max_per_cluster=100)
    for n in range(5):
        world.teach(BASE.format(n), "tracking", user=f"u{n}")
    for n in range(100, 140):
        world.ask(BASE.format(n), user=f"u{n}")
    exact = world.teach(BASE.format(777), "tracking", user="u777")
    out = HeldOut(prompts=(text_of(BASE.format(777)), text_of(BASE.format(778))))
    built = world.build(held_out=out)
    assert exact not in {row["interaction_id"] for row in world.rows(built)}, "an exact copy never trains"
    assert built.manifest["dropped"] == {"held_out_copy": 1}
    assert built.new == 5


def test_the_same_near_copies_are_stopped_where_they_are_rare(make_world: Worlds) -> None:
    world = make_world(max_per_cluster=100)
    for n in range(5):
        world.teach(BASE.format(n), "tracking", user=f"u{n}")
    world.teach_many(10)
    built = world.build(held_out=HeldOut(prompts=(text_of(BASE.format(778)),)))
    assert built.manifest["dropped"] == {"held_out_near_copy": 5}


@pytest.mark.parametrize(
    ("interactions", "traffic", "large"),
    [(2, 300, False), (20, 300, False), (21, 300, True), (50, 10_000, False), (51, 10_000, True)],
)
def test_large_means_half_a_percent_and_never_a_handful(interactions: int, traffic: int, large: bool) -> None:
    assert is_large(interactions, traffic) is large


def test_a_little_firewall_does_not_warn(world: Any) -> None:
    names = world.teach_many(40)
    built = world.build(held_out=HeldOut(frozenset(names[:4])))
    assert built.manifest["firewall"] == {"stopped": 4, "screened": 40, "share": 0.1, "warn": False}
