"""The operator's own examples in every dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flywheel.datasets import HeldOut
from flywheel.errors import DatasetError


def anchors(tmp_path: Path, *texts: str) -> str:
    path = tmp_path / "anchors.jsonl"
    path.write_text("".join(json.dumps({"prompt": text, "completion": f"about {text}"}) + "\n" for text in texts))
    return str(path)


def anchored(world: Any, built: Any) -> list[str]:
    return sorted(row["prompt"] for row in world.rows(built) if row["origin"] == "anchor")


def test_a_share_of_the_training_rows_are_anchors(make_world: Any, tmp_path: Path, phrases: Any) -> None:
    world = make_world(anchors=anchors(tmp_path, *phrases(range(900, 940))), anchor_share=0.2, val_share=0)
    world.teach_many(16)
    built = world.build()
    assert built.manifest["rows"]["anchor"] == 4 and built.train == 20
    assert built.manifest["anchors"] == {"candidates": 40, "drawn": 4, "dropped": {}}
    assert built.manifest["considered"] == 16
    world.teach_many(16, first=100)
    later = world.build(from_seq=16, parent=built.digest, lineage=[built.digest])
    assert anchored(world, later) != anchored(world, built) and later.manifest["replay"]["candidates"] == 16


def test_an_anchor_yields_to_new_rows_and_to_what_judges(make_world: Any, tmp_path: Path, phrases: Any) -> None:
    asked, held, free = phrases([1, 901, 902])
    world = make_world(anchors=anchors(tmp_path, asked, held, free), anchor_share=0.5, val_share=0)
    world.teach_many(8)
    built = world.build(held_out=HeldOut(prompts=(held,)))
    assert anchored(world, built) == [free]
    assert built.manifest["anchors"]["dropped"] == {"held_out_copy": 1, "in_new": 1}


def test_where_the_file_lies_does_not_change_the_digest(make_world: Any, tmp_path: Path, phrases: Any) -> None:
    digests = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        world = make_world(name, anchors=anchors(tmp_path / name, *phrases(range(900, 910))), val_share=0)
        world.teach_many(40)
        digests.add(world.build().digest)
    assert len(digests) == 1


def test_a_bad_anchor_is_named_by_its_line(make_world: Any, tmp_path: Path) -> None:
    path = tmp_path / "anchors.jsonl"
    path.write_text("{}\n")
    world = make_world(anchors=str(path))
    world.teach_many(4)
    with pytest.raises(DatasetError, match=r"anchors\.jsonl:1: expected `messages`"):
        world.build()
