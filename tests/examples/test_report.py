"""What the demo leaves behind, from a made-up run: the report's shape, the bars, the chart."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from examples.support_desk import chart
from examples.support_desk.ledger import Ledger, Mark, Sample
from examples.support_desk.measure import Accuracy, Live
from examples.support_desk.report import details, missed_bars, print_table, report, write_json
from examples.support_desk.story import Story, Turn


def _live(hits: int, old: int = 48, new: int = 46) -> Live:
    return Live(Accuracy(hits, 100), Accuracy(old, 50), Accuracy(new, 50), frozenset())


def _turn(name: str, number: int, verdict: str, before: Live, after: Live, capped: int = 0) -> Turn:
    loop: dict[str, Any] = {
        "loop_id": f"support_router/{number}",
        "verdict": verdict,
        "reasons": [f"because of {verdict}"],
        "from_seq": 100,
        "to_seq": 390,
        "swap_ms": 812.5 if verdict == "promote" else None,
        "dataset": {"rows": {"train": 180, "val": 20, "new": 150, "replay": 50}, "caps": {"capped_rows": capped}},
        "evaluation": {"gate": {"items": 40}},
    }
    return Turn(name, loop, before, after, rows=700, failed=0, wrong_corrections=capped)


@pytest.fixture
def story() -> Story:
    turns = [
        _turn("1", 1, "promote", _live(0), _live(92)),
        _turn("2", 2, "promote", _live(50), _live(94)),
        _turn("3a", 3, "reject", _live(93), _live(93), capped=170),
        _turn("3b", 4, "reject", _live(93), _live(94)),
    ]
    return Story(Accuracy(6, 100), Accuracy(11, 100), turns, champion_kept=True, rolled_back=True, forward_again=True)


def test_the_report_has_exactly_the_promised_keys(story: Story, tmp_path: Path) -> None:
    ledger = Ledger()
    ledger.answered(True)
    ledger.answered(None)
    ledger.failed("APITimeoutError: no code")
    write_json(tmp_path / "report.json", report(story, ledger, 612.34))
    read = json.loads((tmp_path / "report.json").read_text())
    assert set(read) == {"baseline", "loops", "requests", "failed_requests", "seconds"}
    assert (read["baseline"], read["requests"], read["failed_requests"], read["seconds"]) == (0.11, 3, 1, 612.3)
    assert [loop["loop_id"] for loop in read["loops"]] == [f"support_router/{n}" for n in (1, 2, 3, 4)]
    assert read["loops"][0] == {
        "loop_id": "support_router/1",
        "verdict": "promote",
        "reasons": ["because of promote"],
        "rows": 700,
        "labels": 290,
        "examples": 200,
        "accuracy_before": 0.0,
        "accuracy_after": 0.92,
        "swap_ms": 812.5,
        "failed_requests": 0,
    }


def test_a_run_that_shows_everything_misses_nothing(story: Story) -> None:
    assert missed_bars(story, Ledger()) == []


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("1", {"after": _live(79)}, "loop 1: live accuracy"),
        ("2", {"before": _live(95)}, "should fall"),
        ("2", {"after": _live(90, new=39)}, "new queues"),
        ("2", {"after": _live(90, old=39)}, "old queues"),
        ("3a", {"after": _live(70)}, "loop 3a: live accuracy"),
    ],
)
def test_each_missed_bar_is_named(story: Story, name: str, change: dict[str, Any], said: str) -> None:
    story.turns = [replace(turn, **change) if turn.name == name else turn for turn in story.turns]
    assert any(said in bar for bar in missed_bars(story, Ledger()))


def test_a_high_baseline_is_not_beaten_by_80_percent(story: Story) -> None:
    story.few_shot = Accuracy(75, 100)
    assert any("20 points over the baseline" in bar for bar in missed_bars(story, Ledger()))


def test_a_promoted_poisoning_a_failed_request_and_a_stuck_rollback_are_missed_bars(story: Story) -> None:
    story.turns[3].loop["verdict"] = "promote"
    story.champion_kept = story.rolled_back = False
    ledger = Ledger()
    ledger.failed("the answer ended without a finish reason")
    bars = missed_bars(story, ledger)
    assert [
        sum(word in bar for bar in bars) for word in ("3b should be rejected", "stay", "rollback", "1 requests")
    ] == [1] * 4


def test_what_is_not_believed_counts_as_stopped_like_what_is_capped(story: Story) -> None:
    few = story.turns[2]
    few.loop["dataset"]["caps"]["capped_rows"] = 40
    story.turns[2] = replace(few, doubted=59)
    assert missed_bars(story, Ledger()) == ["loop 3a: 99 wrong corrections were stopped, of which 100 should be"]
    story.turns[2] = replace(few, doubted=60)
    assert missed_bars(story, Ledger()) == []


def test_an_unfinished_story_says_which_loops_are_missing(story: Story) -> None:
    story.turns = story.turns[:2]
    assert missed_bars(story, Ledger()) == ["loop 3a did not run", "loop 3b did not run"]


def test_details_and_table_show_intervals(story: Story) -> None:
    written = StringIO()
    print_table(Console(file=written, width=160), story)
    assert "92 % [85, 96]" in written.getvalue()
    found = details(story, Ledger(), ["x"])
    assert found["loops"][2]["wrong_corrections"] == 170
    assert json.loads(json.dumps(found))["baseline"]["5_shot"]["n"] == 100


def test_the_chart_is_a_png_of_the_right_size(tmp_path: Path) -> None:
    samples = [Sample(at=second / 4, right=second > 800) for second in range(1600)]
    marks = [
        Mark(200, "promote", "loop 1: promote"),
        Mark(210, "queues", "new queues"),
        Mark(390, "rollback", "rollback"),
    ]
    chart.draw(tmp_path / "a.png", samples, marks, 0.11)
    data = (tmp_path / "a.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(data[16:20]), int.from_bytes(data[20:24])) == (1540, 672)


def test_the_chart_draws_without_any_traffic(tmp_path: Path) -> None:
    chart.draw(tmp_path / "a.png", [], [], 0.0)
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_rolling_accuracy_forgets_what_is_older_than_its_window() -> None:
    samples = [Sample(at=float(second), right=second >= 100) for second in range(200)]
    times, shares = chart.rolling(samples)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert times == sorted(times)
