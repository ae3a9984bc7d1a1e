"""Rule 7 through Dagster: no button, backfill, re-execution or test promotes without a decision that allows it now."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from flywheel.loops.claims import claim, enter, finish
from flywheel.release.pointer import Champion, swap
from flywheel.release.promotion import rollback

LOOP_TAGS = {"flywheel/loop_id": "support_router/1"}
OTHER_SUITES = {"gate": "5" * 64, "golden": "6" * 64}


@pytest.fixture
def judged(make_wheel: Any, judged_folder: Path) -> Any:
    """A wheel whose open loop, at attempt 2, has a decision record that says `promote`."""
    return make_wheel(like=judged_folder)


def refused(result: dg.ExecuteInProcessResult, wheel: Any, before: Champion, why: str, reason: Any) -> None:
    """The run is red, says why, materialised no champion and moved no pointer."""
    assert not result.success
    assert why in reason(result)
    assert not result.get_asset_materialization_events()
    assert wheel.champion() == before


def test_without_a_loop_there_is_no_decision(make_wheel: Any, dagster_of: Any, reason: Any) -> None:
    wheel = make_wheel()
    wheel.labelled()
    refused(dagster_of(wheel).materialize("champion"), wheel, wheel.champion(), "no decision record", reason)


def test_an_open_loop_that_was_not_evaluated_has_no_decision(make_wheel: Any, dagster_of: Any, reason: Any) -> None:
    wheel = make_wheel()
    wheel.labelled()
    enter(wheel.registry, wheel.task, "some run")
    with wheel.registry.write() as tx:
        tx.execute(dead_runner())
    result = dagster_of(wheel).materialize("champion")
    refused(result, wheel, wheel.champion(), "support_router/1 has no decision record yet", reason)


@pytest.mark.parametrize("verdict", ["reject", "inconclusive", "invalid"])
def test_after_another_verdict_champion_is_refused(
    judged: Any, dagster_of: Any, redecide: Any, reason: Any, verdict: str
) -> None:
    redecide(judged, verdict=verdict, reasons=["gain 0.001 is below 0.01"])
    finish(judged.registry, enter(judged.registry, judged.task, "its run"), verdict, ["gain 0.001 is below 0.01"])
    result = dagster_of(judged).materialize("champion")
    why = f"says {verdict}, not promote: gain 0.001 is below 0.01"
    refused(result, judged, judged.champion(), why, reason)
    again = dagster_of(judged).materialize("champion", tags=LOOP_TAGS | {"flywheel/attempt": "2"})
    refused(again, judged, judged.champion(), "attempt 2 is over; the loop is finished", reason)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"suites": OTHER_SUITES}, "it judges other suites than its evaluation answered"),
        ({"pointer_version": 7}, "the champion has moved: expected"),
        ({"evaluation": "e" * 64}, "its evaluation eeeeeeeeeeee is not in the registry"),
        ({"verdict": "promote", "reasons": ["better"], "honest": False}, "does not have the digest it is named by"),
    ],
)
def test_a_record_for_something_else_is_refused(
    judged: Any, dagster_of: Any, redecide: Any, reason: Any, change: dict[str, Any], why: str
) -> None:
    redecide(judged, **change)
    refused(dagster_of(judged).materialize("champion"), judged, judged.champion(), why, reason)


def test_a_record_for_another_release_is_refused(judged: Any, dagster_of: Any, redecide: Any, reason: Any) -> None:
    from flywheel.models import resolve
    from flywheel.release.releases import make_release

    judged.set(serve={"max_tokens": 7})
    with judged.registry.write() as tx:
        other = make_release(tx, judged.config, judged.task, resolve("tiny"), None).digest
    assert other != judged.champion().release
    redecide(judged, candidate=other)
    result = dagster_of(judged).materialize("champion")
    refused(result, judged, judged.champion(), "its evaluation was of another candidate", reason)


def test_a_record_against_a_former_champion_is_refused(judged: Any, dagster_of: Any, reason: Any) -> None:
    before = judged.champion()
    with judged.registry.write() as tx:  # moved away and back: the same release, but not the same pointer version
        away = swap(tx, judged.task, expect=before, to=judged.loop()["candidate"], kind="promote")
        back = swap(tx, judged.task, expect=away, to=before.release, kind="promote")
    refused(dagster_of(judged).materialize("champion"), judged, back, "at version 3", reason)


def test_a_re_execution_of_an_outdated_attempt_is_refused(judged: Any, dagster_of: Any, reason: Any) -> None:
    ui = dagster_of(judged)
    old = LOOP_TAGS | {"flywheel/attempt": "1"}
    for result in (ui.materialize("champion", tags=old), ui.launch("loop", tags=old)):
        refused(result, judged, judged.champion(), "attempt 1 is over; the loop is claimed at attempt 2", reason)


def test_a_used_record_after_a_rollback_is_refused_however_it_is_tried(
    judged: Any, dagster_of: Any, reason: Any
) -> None:
    ui = dagster_of(judged)
    tags = LOOP_TAGS | {"flywheel/attempt": "2"}
    first = ui.launch("loop", tags=tags)
    assert first.success, reason(first)
    assert judged.champion().version == 2
    rollback(judged.config, judged.home, judged.registry, judged.task, to=None, actor="operator")
    back = judged.champion()
    assert back.version == 3
    refused(ui.materialize("champion"), judged, back, "was used at", reason)
    refused(ui.materialize("champion", tags=tags), judged, back, "the loop is finished", reason)
    refused(ui.launch("loop", tags=tags), judged, back, "the loop is finished", reason)
    refused(ui.materialize("evaluation", "champion"), judged, back, "no loop is open", reason)


def test_evaluation_and_champion_by_hand_promote_by_the_same_rules(judged: Any, dagster_of: Any, reason: Any) -> None:
    ui = dagster_of(judged)
    candidate = judged.loop()["candidate"]
    result = ui.materialize("evaluation", "champion")
    assert result.success, reason(result)
    assert judged.champion() == Champion(candidate, 2)
    assert (judged.loop()["state"], judged.loop()["verdict"]) == ("finished", "promote")
    refused(ui.materialize("champion"), judged, judged.champion(), "was used at", reason)


def test_champion_alone_completes_a_loop_that_was_judged_promote_under_its_lease(
    judged: Any, dagster_of: Any, reason: Any
) -> None:
    result = dagster_of(judged).materialize("champion")
    assert result.success, reason(result)
    assert (judged.champion().version, judged.loop()["state"], judged.loop()["verdict"]) == (2, "finished", "promote")


def test_champion_alone_waits_for_the_run_that_holds_the_loop(judged: Any, dagster_of: Any, reason: Any) -> None:
    enter(judged.registry, judged.task, "another run")  # of this very process, which is alive
    result = dagster_of(judged).materialize("champion")
    refused(result, judged, judged.champion(), "is being run by run another run", reason)


def test_champion_alone_of_a_rejected_open_loop_closes_it_and_promotes_nothing(
    judged: Any, dagster_of: Any, redecide: Any, reason: Any
) -> None:
    before = judged.champion()
    redecide(judged, verdict="reject", reasons=["no gain"])
    result = dagster_of(judged).materialize("champion")
    assert result.success, reason(result)
    assert not result.get_asset_materialization_events()
    assert judged.champion() == before
    assert (judged.loop()["state"], judged.loop()["verdict"]) == ("finished", "reject")


def test_two_promotions_at_once_move_the_pointer_once(judged: Any, dagster_of: Any, reason: Any) -> None:
    finish(judged.registry, enter(judged.registry, judged.task, "its run"), "promote", [])
    uis = [dagster_of(judged) for _ in range(2)]
    results: list[dg.ExecuteInProcessResult] = []
    threads = [threading.Thread(target=_append(results, ui)) for ui in uis]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.success for result in results) == [False, True]
    loser = next(result for result in results if not result.success)
    assert "was used" in reason(loser) or "the champion has moved" in reason(loser)
    assert judged.champion().version == 2


def test_the_gate_check_cannot_be_left_out_of_a_run_of_evaluation(judged: Any, dagster_of: Any) -> None:
    ui = dagster_of(judged)
    stages = dg.AssetSelection.assets([judged.task, "evaluation"], [judged.task, "champion"])
    assets = list(ui.definitions().resolve_asset_graph().assets_defs)  # these carry their resources
    with pytest.raises(dg.DagsterInvalidDefinitionError):
        dg.materialize(assets, selection=stages.without_checks(), instance=ui.instance, raise_on_error=False)
    assert dg.materialize(assets, selection=stages, instance=ui.instance, raise_on_error=False).success


def test_a_claimed_loop_is_not_promoted_by_a_decision_of_the_loop_before(
    judged: Any, dagster_of: Any, reason: Any
) -> None:
    finish(judged.registry, enter(judged.registry, judged.task, "its run"), "promote", [])
    assert claim(judged.registry, judged.task, min_labels=0) is not None
    result = dagster_of(judged).materialize("champion")
    refused(result, judged, judged.champion(), "support_router/2 has no decision record yet", reason)


def _append(results: list[Any], ui: Any) -> Callable[[], None]:
    return lambda: results.append(ui.materialize("champion"))


def dead_runner() -> Any:
    """As a registry says of a runner whose process is gone."""
    import sqlalchemy as sa

    from flywheel.store.registry import schema

    return sa.update(schema.loops).values(pid=None, boot_id=None, started=None)


def test_a_rollback_while_the_loop_runs_is_not_undone_by_it(judged: Any, dagster_of: Any, reason: Any) -> None:
    before = judged.champion()
    candidate = judged.loop()["candidate"]
    with judged.registry.write() as tx:
        away = swap(tx, judged.task, expect=before, to=candidate, kind="rollback")
        back = swap(tx, judged.task, expect=away, to=before.release, kind="rollback")
    result = dagster_of(judged).launch("loop", tags=LOOP_TAGS | {"flywheel/attempt": "2"})
    assert result.success, reason(result)
    assert judged.champion() == back
    assert judged.loop()["verdict"] == "inconclusive"
    assert "was rolled back by" in judged.loop()["reasons"][0]
