"""A user's file of messages: faults by line, whole clusters on one side, and what is missing said in numbers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from examples.support_desk.phrases import Message
from examples.support_desk.plan import make_plan, needs
from examples.support_desk.similar import near_pairs
from examples.support_desk.userdata import DemoDataError, check_enough, read_rows, split_rows


def _write(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def _rows(labels: int, each: int) -> list[Message]:
    return [
        Message(f"{label:x}{n:x} " * 5 + f"topic {label} case {n}", f"label_{label}")
        for label in range(labels)
        for n in range(each)
    ]


def test_good_rows_are_read_and_exact_repeats_dropped(tmp_path: Path) -> None:
    path = _write(
        tmp_path / "a.jsonl",
        {"text": " where  is it ", "label": "delivery"},
        "",
        {"text": "where is it", "label": "delivery"},
    )
    assert read_rows(path) == [Message("where is it", "delivery")]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", "not JSON"),
        ([1], "expected an object"),
        ({"text": "a"}, "`label` must be a string"),
        ({"text": " ", "label": "x"}, "`text` must be a string that is not empty"),
        ({"text": "a", "label": 3}, "`label` must be a string"),
        ({"text": "a", "label": "x" * 61}, "at most 60"),
        ({"text": "a", "label": "x\ny"}, "one line"),
    ],
)
def test_each_fault_names_its_line(tmp_path: Path, line: object, fault: str) -> None:
    path = _write(tmp_path / "a.jsonl", {"text": "first", "label": "x"}, line)
    with pytest.raises(DemoDataError, match=fault) as caught:
        read_rows(path)
    assert f"{path}:2:" in str(caught.value)


def test_bytes_that_are_not_utf8_are_a_fault_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a", "label": "x"}\n\xff\xfe{}\n')
    with pytest.raises(DemoDataError, match=":2: not UTF-8"):
        read_rows(path)


def test_many_faults_are_cut_off_and_counted(tmp_path: Path) -> None:
    with pytest.raises(DemoDataError, match=r"and 5 more"):
        read_rows(_write(tmp_path / "a.jsonl", *["{"] * 15))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(DemoDataError, match="no such file"):
        read_rows(tmp_path / "none.jsonl")


def test_half_of_the_labels_arrive_later_in_order_of_appearance() -> None:
    material = split_rows(_rows(5, 10))
    assert material.initial == ("label_0", "label_1", "label_2")
    assert material.later == ("label_3", "label_4")


def test_three_labels_are_too_few() -> None:
    with pytest.raises(DemoDataError, match="found 3 labels"):
        split_rows(_rows(3, 10))


def test_near_copies_stay_on_one_side_and_mixed_clusters_leave() -> None:
    rows = _rows(4, 12)
    copies = [Message(rows[0].text + tail, rows[0].queue) for tail in ("!", "?", " ok")]
    contradiction = [
        Message("please do the very same thing", "label_0"),
        Message("please do the very same thing.", "label_1"),
    ]
    material = split_rows([*rows, *copies, *contradiction])
    sides = [
        (side, text) for side in ("traffic", "unseen") for texts in getattr(material, side).values() for text in texts
    ]
    for i, j in near_pairs([text for _, text in sides], 0.7):
        assert sides[i][0] == sides[j][0]
    assert not any("very same thing" in text for _, text in sides)
    assert {text for _, text in sides} >= {row.text for row in [*rows, *copies]}


def test_too_few_rows_say_how_many_per_label_are_needed() -> None:
    material = split_rows(_rows(6, 20))
    with pytest.raises(DemoDataError, match=r"about \d+ different ones per label do") as caught:
        check_enough(material, needs(make_plan(material), material))
    assert "label 'label_0'" in str(caught.value)


def test_as_many_rows_as_asked_for_are_enough() -> None:
    material = split_rows(_rows(6, 400))
    check_enough(material, needs(make_plan(material), material))


def test_the_needs_of_a_side_are_compared_with_that_side() -> None:
    material = split_rows(_rows(4, 10))
    check_enough(material, {"traffic": Counter(label_0=7), "unseen": Counter(label_0=3)})
    with pytest.raises(DemoDataError, match="unseen"):
        check_enough(material, {"traffic": Counter(label_0=7), "unseen": Counter(label_0=5)})


def test_a_large_group_of_near_copies_leaves_enough_messages_on_both_sides() -> None:
    alike = [Message(f"when is it time to change the oil of my car number {n}", "label_0") for n in range(40)]
    material = split_rows([*alike, *_rows(4, 60)])
    assert 20 <= len(material.unseen["label_0"]) <= 30
    assert len(material.traffic["label_0"]) >= 70
