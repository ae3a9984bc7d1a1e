"""What has learned from erased rows is named, is not promoted, and has a way back."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.erasure import list_erasures, task_taints
from flywheel.errors import ProbeFailed, PromotionRefused
from flywheel.loops.overview import overview
from flywheel.release.erasing import drop_probes
from flywheel.release.probe import is_recorded
from flywheel.release.promotion import promote
from flywheel.release.releases import get_release, recordings
from flywheel.release.rollback import rollback
from flywheel.release.targets.embedded import EmbeddedTarget
from flywheel.store.registry import schema
from flywheel.store.registry.erasures import tainted_checkpoints

PERSON, MARK = "ada@example.org", "quokka"


class Chains:
    """Checkpoints, releases and tombstones in the registry, as short names."""

    def __init__(self, at: Any) -> None:
        self.at = at

    def checkpoint(self, name: str, dataset: str | None, parent: str | None = None) -> None:
        row = {"digest": name, "task": self.at.task, "input_digest": name, "parent": parent, "dataset": dataset}
        with self.at.registry.write() as tx:
            tx.execute(sa.insert(schema.checkpoints).values(**row, manifest={}, **tx.stamp()))
            release = {"digest": f"release of {name}", "task": self.at.task, "checkpoint": name, "manifest": {}}
            tx.execute(sa.insert(schema.releases).values(**release, **tx.stamp()))

    def stone(self, dataset: str, successor: str, train: int, erasure: str = "one") -> None:
        row = {"kind": "dataset", "digest": dataset, "task": self.at.task, "successor": successor, "rows_removed": 5}
        own = {"train_rows_removed": train, "erasure_id": erasure}
        with self.at.registry.write() as tx:
            tx.execute(sa.insert(schema.tombstones).values(**row, **own, **tx.stamp()))

    def tainted(self, **wanted: Any) -> set[str]:
        with self.at.registry.read() as tx:
            return set(tainted_checkpoints(tx, self.at.task, **wanted))


def test_taint_goes_from_datasets_to_checkpoints_and_all_their_descendants(deployment: Any) -> None:
    chains = Chains(deployment)
    chains.checkpoint("first", "d1")
    chains.checkpoint("child", "d2", "first")
    chains.checkpoint("grandchild", "d3", "child")
    chains.checkpoint("other", "d4")
    chains.checkpoint("retrained", "d2'")
    chains.stone("d2", "d2'", 3)
    assert chains.tainted() == {"child", "grandchild"}
    assert chains.tainted(also={"d4"}) == {"child", "grandchild", "other"}
    with deployment.registry.read() as tx:
        (taint,) = task_taints(tx, [deployment.task])
    assert taint.checkpoints == ["child", "grandchild"] and taint.champion is None and taint.way_back == []


def test_rows_of_the_validation_side_taint_nothing_until_a_later_erasure_takes_training_rows(deployment: Any) -> None:
    chains = Chains(deployment)
    chains.checkpoint("first", "d1")
    chains.stone("d1", "d2", 0)
    assert chains.tainted() == set()
    chains.stone("d2", "d3", 2, "two")
    assert chains.tainted() == chains.tainted(erasure="two") == {"first"}
    assert chains.tainted(erasure="one") == set()


def test_a_candidate_that_learned_from_erased_rows_is_not_promoted(
    make_wheel: Any, judged_folder: Any, erased: Any
) -> None:
    wheel = make_wheel(like=judged_folder)
    decision = wheel.loop()["decision"]
    done = erased(wheel, "user-7")
    assert done.counts["loops"] == 1 and done.tainted[0].champion is None
    with pytest.raises(PromotionRefused, match="has learned from erased rows"):
        promote(wheel.config, wheel.home, wheel.registry, decision, actor="operator")
    assert wheel.champion().version == 1


def test_the_list_and_the_status_name_a_tainted_champion_and_the_way_back(turned: Any, erased: Any) -> None:
    (planned,) = erased(turned).tainted
    name = f"{turned.task}@{turned.champion().release[:12]}"
    with turned.registry.read() as tx:
        (listed,) = list_erasures(tx, [turned.task])
        first = tx.rows(sa.select(schema.promotions.c.release).order_by(schema.promotions.c.version))[0]["release"]
    assert listed["tainted"] == [planned.to_json()]
    assert planned.champion == name and planned.releases == [name]
    assert planned.way_back == [
        f"flywheel rollback --task {turned.task} --to {first[:12]}", f"flywheel loop run --task {turned.task}",
    ]  # fmt: skip
    assert overview(turned.config, turned.registry)["tasks"][turned.task]["champion"]["tainted"] is True
    rollback(turned.config, turned.home, turned.registry, turned.task, actor="operator")
    assert turned.champion().release == first
    state = overview(turned.config, turned.registry)
    assert state["tasks"][turned.task]["champion"]["tainted"] is False and state["unfinished_erasures"] == []
    with turned.registry.read() as tx:
        (listed,) = list_erasures(tx, [turned.task])
    assert listed["tainted"][0]["champion"] is None and listed["tainted"][0]["releases"] == [name]


def test_rolling_back_passes_over_tainted_releases_unless_one_is_named(turned: Any, erased: Any) -> None:
    tainted = turned.champion().release
    where = (turned.config, turned.home, turned.registry, turned.task)
    with turned.registry.write() as tx:
        base = tx.row(sa.select(schema.releases).where(schema.releases.c.checkpoint.is_(None)))
        assert base is not None
        tx.execute(sa.insert(schema.releases).values(**base | {"digest": "e" * 64}))
        move = {"task": turned.task, "version": 3, "kind": "promote", "release": "e" * 64, "previous": tainted}
        tx.execute(sa.insert(schema.promotions).values(**move, tenant="", **tx.stamp()))
        tx.execute(sa.update(schema.champions).values(release="e" * 64, version=3))
    erased(turned)
    assert rollback(*where, actor="operator").release == base["digest"]
    assert rollback(*where, actor="operator", to=tainted).release == tainted


@pytest.fixture
def target(turned: Any, tiny: Any, fp32: Any) -> Any:
    from flywheel.engine.engine import Engine

    with Engine(tiny, fp32, max_rows=2, max_context=512) as engine:
        yield EmbeddedTarget(engine, turned.home, turned.registry)


def test_a_recording_without_some_probes_still_proves_its_release(turned: Any, erased: Any, target: Any) -> None:
    from safetensors.numpy import load_file

    name = turned.champion().release
    folder = recordings(turned.home, name)
    before = json.loads((folder / "probes.json").read_text())["probes"]
    done = erased(turned)
    after = json.loads((folder / "probes.json").read_text())["probes"]
    assert 0 < done.counts["probes"] == len(before) - len(after) < len(before)
    assert set(load_file(folder / "probes.safetensors")) == {probe["row"] for probe in after}
    with turned.registry.read() as tx:
        release = get_release(tx, name)
    target.load(release)
    report = target.probe(release)
    assert (report.passed, report.mode, report.mean_kl) == (True, "bitwise", 0.0)


def test_a_kill_between_the_two_files_of_a_recording_leaves_one_that_proves(
    turned: Any, target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flywheel.release import erasing

    name = turned.champion().release
    first = json.loads((recordings(turned.home, name) / "probes.json").read_text())["probes"][0]["from"]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(erasing, "_drop_rows", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        drop_probes(turned.home, name, lambda source: source == first)
    with turned.registry.read() as tx:
        release = get_release(tx, name)
    target.load(release)
    assert target.probe(release).passed
    assert drop_probes(turned.home, name, lambda source: source == first) == (0, 7)
    assert target.probe(release).passed


def test_a_champion_whose_recording_went_is_loaded_on_its_weights_and_recorded_anew_and_a_candidate_is_not(
    turned: Any, erased: Any, target: Any
) -> None:
    name = turned.champion().release
    path = recordings(turned.home, name) / "probes.json"
    recorded = json.loads(path.read_text())
    whose = next(probe["from"] for probe in recorded["probes"])
    asked = f"user-{int(whose[-8:], 16) % 60}" if int(whose[-8:], 16) % 5 else PERSON
    for probe in recorded["probes"]:
        probe["from"] = whose
    path.write_text(json.dumps(recorded))
    done = erased(turned, asked)
    assert (done.counts["probes"], done.counts["recordings"]) == (8, 1)
    assert not path.exists()
    with turned.registry.read() as tx:
        release = get_release(tx, name)
        moves = tx.rows(sa.select(schema.promotions).where(schema.promotions.c.release == name))
    target.load(release)
    with turned.registry.write() as tx:  # as if it had never been the champion
        tx.execute(sa.delete(schema.promotions).where(schema.promotions.c.release == name))
    with pytest.raises(ProbeFailed, match="no probe recording"):
        target.probe(release)
    with turned.registry.write() as tx:
        tx.execute(sa.insert(schema.promotions), moves)
    report = target.probe(release)
    assert (report.passed, report.mode) == (True, "recorded") and is_recorded(turned.home, name)
    again = target.probe(release)
    assert (again.passed, again.mode) == (True, "bitwise")


def test_a_champion_whose_recording_went_must_still_have_its_weights(turned: Any, target: Any) -> None:
    name = turned.champion().release
    with turned.registry.write() as tx:
        row = {"kind": "probes", "digest": name, "task": turned.task, "successor": None, "rows_removed": 8}
        own = {"train_rows_removed": 0, "erasure_id": "e"}
        tx.execute(sa.insert(schema.tombstones).values(**row, **own, **tx.stamp()))
        release = get_release(tx, name)
    for path in recordings(turned.home, name).iterdir():
        path.unlink()
    recordings(turned.home, name).rmdir()
    engine = target._engine
    engine.load_adapter(release.name, turned.home.checkpoints / release.checkpoint)
    engine.unload_adapter(release.name)
    from flywheel.engine.adapters import read_adapter, write_adapter

    adapter = read_adapter(turned.home.checkpoints / release.checkpoint)
    changed = {name: tensor * 1.01 for name, tensor in adapter.tensors.items()}
    write_adapter(turned.home.root / "other", adapter.config, changed)
    engine.load_adapter(release.name, turned.home.root / "other")
    report = target.probe(release)
    assert not report.passed and report.mode == "none" and not is_recorded(turned.home, name)


def test_a_recording_of_an_earlier_version_that_names_no_origin_is_given_up(
    turned: Any, erased: Any, search: Any
) -> None:
    name = turned.champion().release
    path = recordings(turned.home, name) / "probes.json"
    recorded = json.loads(path.read_text())
    for probe in recorded["probes"]:
        del probe["from"], probe["row"]
    path.write_text(json.dumps(recorded))
    assert erased(turned).counts["recordings"] >= 1
    assert search(turned.home, MARK) == []
