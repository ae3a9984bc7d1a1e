"""Datasets and suites without the person: successors that say what they are, tombstones that lead to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from flywheel.datasets import from_jsonl, load_examples, load_manifest
from flywheel.datasets import publish as publish_module
from flywheel.datasets.manifest import dataset_rows_digest
from flywheel.errors import DatasetError, HomeBusy
from flywheel.evaluation.items import load_suite, make_item, make_suite, write_suite
from flywheel.evaluation.suites import held_out
from flywheel.evaluation.waves import answer_suite
from flywheel.loops.claims import abandon, enter
from flywheel.loops.context import LoopContext
from flywheel.loops.dataset import DatasetStage, dataset_stage
from flywheel.store.files import read_json, write_json
from flywheel.store.home import boot_id, process_started
from flywheel.store.registry import schema

PERSON, MARK = "ada@example.org", "quokka"


def rows_of(wheel: Any, table: sa.Table) -> list[dict[str, Any]]:
    with wheel.registry.read() as tx:
        return list(tx.rows(sa.select(table)))


def test_a_dataset_gets_a_successor_with_all_other_rows_and_true_figures(drawn: Any, erased: Any) -> None:
    old = drawn.loop()["dataset"]
    manifest, before = load_manifest(drawn.home, old), load_examples(drawn.home, old)
    key = drawn.home.user_key(PERSON)
    mine = [row for row in before if row["user_key"] == key or MARK in row["messages"]]
    assert {row["user_key"] == key for row in mine} == {True, False}, "own rows, and rows with corrections by them"
    erased(drawn)
    assert sorted(path.name for path in (drawn.home.datasets / old).iterdir()) == ["manifest.json"]
    stone = read_json(drawn.home.datasets / old / "manifest.json")
    new = stone["successor"]
    assert stone == {
        "schema_version": 1, "kind": "tombstone", "digest": old, "successor": new, "rows_removed": len(mine),
    }  # fmt: skip
    left = load_examples(drawn.home, new)
    assert left == [row for row in before if row not in mine] == load_examples(drawn.home, old)
    found = load_manifest(drawn.home, new)
    assert load_manifest(drawn.home, old) == found and found["digest"] == new != old
    assert found["rows_digest"] == dataset_rows_digest(left)
    assert found["rows"]["train"] + found["rows"]["val"] == len(left)
    assert found["considered"] == manifest["considered"] == found["rows"]["new"] + sum(found["dropped"].values())
    assert found["notes"][-1] == f"{len(mine)} rows erased" and found["labels"] == {"correction": len(left)}
    for name in ("schema_version", "kind", "task", "policies", "window", "firewall", "parent", "lineage", "card"):
        assert found[name] == manifest[name], name
    assert f"{len(mine)}" in (drawn.home.datasets / new / "card.md").read_text()
    (stone_row,) = [row for row in rows_of(drawn, schema.tombstones) if row["kind"] == "dataset"]
    assert stone_row["train_rows_removed"] == sum(row["side"] == "train" for row in mine) < stone_row["rows_removed"]
    manifests = {row["digest"]: row["manifest"]["kind"] for row in rows_of(drawn, schema.datasets)}
    assert manifests == {old: "tombstone", new: "dataset"}


def test_erasures_of_several_people_chain(drawn: Any, erased: Any) -> None:
    old = drawn.loop()["dataset"]
    people = {row["user_key"] for row in load_examples(drawn.home, old)}
    other = next(name for name in (f"user-{n}" for n in range(1, 60)) if drawn.home.user_key(name) in people)
    first = erased(drawn)
    second = erased(drawn, other)
    assert first.counts["datasets"] == second.counts["datasets"] == 1
    left = {row["user_key"] for row in load_examples(drawn.home, old)}
    assert left.isdisjoint({drawn.home.user_key(PERSON), drawn.home.user_key(other)})
    assert load_manifest(drawn.home, old)["notes"][-2:] == [
        f"{first.counts['dataset_rows']} rows erased", f"{second.counts['dataset_rows']} rows erased",
    ]  # fmt: skip


def test_a_child_dataset_names_the_successor_of_its_parent(drawn: Any, erased: Any) -> None:
    old = drawn.loop()["dataset"]
    manifest, rows = load_manifest(drawn.home, old), load_examples(drawn.home, old)
    child = manifest | {"parent": old, "lineage": [old], "digest": "c" * 64}
    publish_module.publish(drawn.home, drawn.registry, rows, child, loop_id=None)
    erased(drawn)
    found = load_manifest(drawn.home, "c" * 64)
    assert found["parent"] == load_manifest(drawn.home, old)["digest"] == found["lineage"][-1] != old


def test_somebody_who_was_the_whole_dataset_leaves_an_empty_one(make_wheel: Any, erased: Any, tmp_path: Path) -> None:
    wheel = make_wheel()
    file = tmp_path / "mine.jsonl"
    lines = [{"text": f"{MARK} {n * 7919}", "label": "red", "user": PERSON} for n in range(8)]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    built = from_jsonl(wheel.config, wheel.home, wheel.registry, wheel.task, file)
    done = erased(wheel)
    assert done.counts["dataset_rows"] == 8
    assert load_examples(wheel.home, built.digest) == []
    assert load_manifest(wheel.home, built.digest)["rows"] == {"train": 0, "val": 0, "new": 0, "replay": 0, "anchor": 0}


def test_a_file_for_training_is_read_without_the_rows_of_erased_people(
    make_wheel: Any, erased: Any, tmp_path: Path, search: Any
) -> None:
    wheel = make_wheel()
    file = tmp_path / "mine.jsonl"
    lines = [{"text": f"{MARK if n < 3 else 'plain'} {n * 7919}", "label": "red"} for n in range(9)]
    file.write_text("\n".join(json.dumps(line | {"user": PERSON} if n < 3 else line) for n, line in enumerate(lines)))
    before = from_jsonl(wheel.config, wheel.home, wheel.registry, wheel.task, file)
    row = next(row for row in load_examples(wheel.home, before.digest) if MARK in row["messages"])
    *messages, target = json.loads(row["messages"])
    item = make_item("", "", messages, None, target["content"], cluster=0, novel=True)
    write_suite(wheel.home, make_suite(wheel.task, "gate", [item]))
    assert erased(wheel).counts["suite_items"] == 1
    assert search(wheel.home, MARK) == []
    after = from_jsonl(wheel.config, wheel.home, wheel.registry, wheel.task, file)
    assert after.digest == load_manifest(wheel.home, before.digest)["digest"], "the very successor"
    file.write_text(file.read_text() + "\n" + json.dumps({"text": "one more", "label": "blue"}))
    after = from_jsonl(wheel.config, wheel.home, wheel.registry, wheel.task, file)
    assert after.manifest["dropped"]["erased_user"] == 3 and after.train + after.val == 7
    assert search(wheel.home, MARK) == []


def test_a_dataset_that_was_being_built_while_somebody_was_erased_is_refused(drawn: Any, erased: Any) -> None:
    old = drawn.loop()["dataset"]
    manifest, rows = load_manifest(drawn.home, old), load_examples(drawn.home, old)
    erased(drawn)
    with pytest.raises(DatasetError, match="erased while the dataset was built"):
        publish_module.publish(drawn.home, drawn.registry, rows, manifest | {"digest": "d" * 64}, loop_id=None)
    assert not (drawn.home.datasets / ("d" * 64)).exists()


def test_a_suite_gets_a_successor_that_judges_on_as_worn_as_it_was(drawn: Any, erased: Any, search: Any) -> None:
    table = schema.suites
    with drawn.registry.write() as tx:
        tx.execute(sa.update(table).values(uses=2))
        drawn_suites = tx.row(sa.select(schema.selections))
    assert drawn_suites is not None
    before = {kind: load_suite(drawn.home, drawn_suites[kind]) for kind in ("gate", "golden")}
    mine = {
        item.interaction_id for suite in before.values() for item in suite.items if MARK in item.messages[0]["content"]
    }
    touched = {f"chatcmpl-{n:032x}" for n in range(6, 240, 25)}
    assert mine
    erased(drawn)
    rows = {row["digest"]: row for row in rows_of(drawn, table)}
    for kind, old in before.items():
        new = load_suite(drawn.home, old.digest)
        assert [item.item_id for item in new.items] == [
            item.item_id for item in old.items if item.interaction_id not in mine | touched
        ]
        assert new.novel() <= old.novel() and new.kind == kind
        stone = read_json(drawn.home.suites / f"{old.digest}.json")
        removed = len(old.items) - len(new.items)
        assert stone == {
            "kind": "tombstone", "digest": old.digest, "successor": new.digest, "items_removed": removed,
        }  # fmt: skip
        assert (rows[old.digest]["state"], rows[new.digest]["state"], rows[new.digest]["uses"]) == (
            "retired",
            "live",
            2,
        )
        assert rows[new.digest]["items"] == len(new.items)
    assert {row["interaction_id"] for row in rows_of(drawn, schema.suite_items)}.isdisjoint(mine)
    assert not held_out(drawn.home, drawn.registry, drawn.task).interaction_ids & mine
    assert search(drawn.home, *mine) == [], "nor does the registry's file still hold what was deleted in it"


def test_a_wave_of_answers_to_the_old_suite_is_neither_kept_nor_taken_for_one_of_the_new(
    drawn: Any, erased: Any
) -> None:
    (selection,) = rows_of(drawn, schema.selections)
    old, other = load_suite(drawn.home, selection["gate"]), make_suite(drawn.task, "gate", [])
    for name, suite in (("a", old), ("b", other)):
        folder = drawn.home.runs / (name * 64)
        write_json(folder / "spec.json", {"kind": "evaluate"})
        wave = {"suite": suite.digest, "release": "r", "answers": [MARK] * 8}
        write_json(folder / "wave-champion-gate-000000.json", wave)
    assert erased(drawn).counts["runs"] == 1
    assert not list((drawn.home.runs / ("a" * 64)).glob("wave-*")) and list(
        (drawn.home.runs / ("b" * 64)).glob("wave-*")
    )

    new = load_suite(drawn.home, old.digest)
    folder = drawn.home.runs / ("c" * 64)
    for start in range(0, len(new.items), 8):
        wave = {"suite": old.digest, "release": "r", "answers": ["old"] * min(8, len(new.items) - start)}
        write_json(folder / f"wave-champion-gate-{start:06d}.json", wave)
    with pytest.raises(AttributeError):  # it goes on to ask the model, which here is None
        whole: Any = {"adapter": None, "wave": 8, "folder": folder, "role": "champion", "progress": print}
        nobody: Any = None
        answer_suite(nobody, nobody, nobody, new, **whole)


def test_an_unfinished_training_on_rows_that_went_does_not_go_on(drawn: Any, erased: Any) -> None:
    specs = {"a": {"dataset": drawn.loop()["dataset"]}, "b": {"dataset": "f" * 64}, "c": {"dataset": "f" * 64}}
    for name, spec in specs.items():
        folder = drawn.home.runs / (name * 64)
        write_json(folder / "spec.json", {"kind": "train", "task": drawn.task, "init": None} | spec)
        write_json(folder / "resume-00000010" / "progress.json", {})
    write_json(drawn.home.runs / ("a" * 64) / "result.json", {"checkpoint": "9" * 64})
    write_json(drawn.home.checkpoints / ("9" * 64) / "manifest.json", {})
    assert erased(drawn).counts["runs"] == 1
    assert sorted(path.name[0] for path in drawn.home.runs.iterdir()) == ["b", "c"]
    assert not (drawn.home.checkpoints / ("9" * 64)).exists(), "nobody had registered it, so no join would name it"


def test_a_loop_on_erased_rows_ends_and_the_next_one_takes_its_window(drawn: Any, erased: Any) -> None:
    before = drawn.loop()
    assert erased(drawn).counts["loops"] == 1
    row = drawn.loop()
    assert (row["state"], row["reasons"]) == (
        "failed", ["erasure: rows behind this loop were erased; the next loop takes its window"],
    )  # fmt: skip
    drawn.labelled()
    lease = enter(drawn.registry, drawn.task, "next")
    stage = dataset_stage(LoopContext(drawn.config, drawn.home, drawn.registry, lease))
    assert isinstance(stage, DatasetStage)
    after = drawn.loop(2)
    assert after["from_seq"] == before["from_seq"] and after["to_seq"] >= before["to_seq"]
    assert MARK not in json.dumps(load_examples(drawn.home, stage.digest))


def test_a_loop_of_which_nothing_went_goes_on(drawn: Any, erased: Any) -> None:
    assert "loops" not in erased(drawn, "nobody").counts
    assert drawn.loop()["state"] == "running"


def test_nobody_is_erased_while_a_loop_runs(drawn: Any, erased: Any) -> None:
    import os

    with drawn.registry.write() as tx:
        alive = {"pid": os.getpid(), "boot_id": boot_id(), "started": process_started(os.getpid())}
        tx.execute(sa.update(schema.loops).values(**alive))
    with pytest.raises(HomeBusy, match="support_router/1 is running; wait for it, or stop it"):
        erased(drawn)
    assert rows_of(drawn, schema.erasures) == []
    with drawn.registry.write() as tx:
        abandon(tx, "support_router/1", "stopped")
    assert erased(drawn).counts


def test_no_training_or_evaluation_runs_meanwhile(drawn: Any, erased: Any) -> None:
    from flywheel.training.run import compute_lock

    with compute_lock(drawn.home, print), pytest.raises(HomeBusy, match="a training or an evaluation"):
        erased(drawn)
    assert rows_of(drawn, schema.erasures) == []


def test_what_a_crash_left_half_written_goes(drawn: Any, erased: Any, search: Any) -> None:
    from flywheel.store.segments import visible

    with drawn.registry.read() as tx:
        (segment, *_) = visible(tx, "interactions", drawn.task)
    data = drawn.home.data / segment["path"]
    for path in (
        data.with_name(f".{data.name}.0.tmp"),
        data.with_name("0" * 32 + ".parquet"),
        drawn.home.data / f"labels/task={drawn.task}/.x.tmp",
        drawn.home.suites / ".x.json.0.tmp",
        drawn.home.datasets / f".building-{drawn.task}" / "examples.parquet",
        drawn.home.log / ".x.jsonl.tmp",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.read_bytes())
    assert pq.ParquetFile(data).metadata.num_rows
    erased(drawn)
    assert search(drawn.home, MARK) == []
    assert not list(drawn.home.root.rglob(".*.tmp"))
