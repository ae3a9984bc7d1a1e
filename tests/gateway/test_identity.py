"""An interaction's id tells its task, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flywheel.gateway.identity import interaction_id, task_of

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)


@given(tasks=st.lists(NAMES, min_size=1, max_size=6, unique=True), data=st.data())
def test_every_id_finds_its_task_also_with_a_choice_number(tasks: list[str], data: st.DataObject) -> None:
    task = data.draw(st.sampled_from([*tasks, ""]))
    name = interaction_id(task)
    assert task_of(name, tasks) == task == task_of(f"{name}#3", tasks)
    assert len(name) == len("chatcmpl-") + 32


@given(name=st.text(max_size=60) | st.from_regex(r"chatcmpl-[0-9a-f]{32}", fullmatch=True))
def test_ids_that_are_not_ours_have_no_task(name: str) -> None:
    assert task_of(name, ["support_router"]) is None or name.startswith("chatcmpl-")


def test_ids_do_not_repeat() -> None:
    assert len({interaction_id("a") for _ in range(1000)}) == 1000
