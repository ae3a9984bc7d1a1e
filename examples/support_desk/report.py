"""What the demo leaves behind: the verdict on itself, ``report.json``, ``details.json`` and a table."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.support_desk.ledger import Ledger
from examples.support_desk.measure import Accuracy
from examples.support_desk.story import Story, Turn

GOOD = 0.80
OVER_BASELINE = 0.20
MANY_STOPPED = 100


def missed_bars(story: Story, ledger: Ledger) -> list[str]:
    """What the demo promised and did not show, in words; empty when all is well."""
    by_name = {turn.name: turn for turn in story.turns}
    missed = [f"loop {name} did not run" for name in ("1", "2", "3a", "3b") if name not in by_name]
    if missed:
        return missed
    one, two, few, many = (by_name[name] for name in ("1", "2", "3a", "3b"))
    bars = {
        f"loop 1 should be promoted; it got {one.loop['verdict']}": one.promoted,
        f"loop 1: live accuracy {one.after.all} should reach 80 %": one.after.all.value >= GOOD,
        f"loop 1: live accuracy {one.after.all} should be 20 points over the baseline {story.baseline}": (
            one.after.all.value >= story.baseline.value + OVER_BASELINE
        ),
        "loop 2: accuracy should fall when new queues appear": two.before.all.value < one.after.all.value,
        f"loop 2 should be promoted; it got {two.loop['verdict']}": two.promoted,
        f"loop 2: old queues at {two.after.old} should reach 80 %": two.after.old.value >= GOOD,
        f"loop 2: new queues at {two.after.new} should reach 80 %": two.after.new.value >= GOOD,
        f"loop 3a: {few.stopped} wrong corrections were stopped, of which {MANY_STOPPED} should be": few.stopped
        >= MANY_STOPPED,
        f"loop 3a: live accuracy {few.after.all} should stay at 80 %": few.after.all.value >= GOOD,
        f"loop 3b should be rejected; it got {many.loop['verdict']}": many.loop["verdict"] == "reject",
        "loop 3b: the champion should stay": story.champion_kept,
        "rollback: the release before should answer": story.rolled_back,
        "forward: the champion should answer again": story.forward_again,
        f"{len(ledger.faults)} requests failed": not ledger.faults,
    }
    return [text for text, met in bars.items() if not met]


def report(story: Story, ledger: Ledger, seconds: float) -> dict[str, Any]:
    """The figures, in the shape of ``report.json``; accuracies and the baseline are shares between 0 and 1."""
    _, requests, failed = ledger.counts()
    return {
        "baseline": round(story.baseline.value, 4),
        "loops": [_loop(turn) for turn in story.turns],
        "requests": requests,
        "failed_requests": failed,
        "seconds": round(seconds, 1),
    }


def details(story: Story, ledger: Ledger, missed: list[str]) -> dict[str, Any]:
    """What ``report.json`` has no room for: intervals, counts of poison, marks and causes of failures."""
    return {
        "baseline": {"0_shot": _span(story.zero_shot), "5_shot": _span(story.few_shot)},
        "loops": [
            {
                "act": turn.name,
                "loop_id": turn.loop["loop_id"],
                "before": {part: _span(getattr(turn.before, part)) for part in ("all", "old", "new")},
                "after": {part: _span(getattr(turn.after, part)) for part in ("all", "old", "new")},
                "wrong_corrections": turn.wrong_corrections,
                "not_believed": turn.doubted,
                "dataset": turn.loop["dataset"],
                "evaluation": turn.loop["evaluation"],
            }
            for turn in story.turns
        ],
        "rolled_back": story.rolled_back,
        "forward_again": story.forward_again,
        "marks": [asdict(mark) for mark in ledger.marks],
        "faults": ledger.faults[:100],
        "missed": missed,
    }


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write the file whole or not at all."""
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(path)


def print_table(console: Console, story: Story) -> None:
    """A column per loop, so that it fits a narrow terminal."""
    table = Table(title=f"Baseline, untrained model with the queue list: {story.baseline}", title_justify="left")
    table.add_column("loop")
    figures = [_loop(turn) for turn in story.turns]
    for turn in story.turns:
        table.add_column(turn.name, justify="right")
    lines: dict[str, list[Any]] = {
        "rows in": [row["rows"] for row in figures],
        "labels": [row["labels"] for row in figures],
        "examples": [row["examples"] for row in figures],
        "not believed": [turn.doubted for turn in story.turns],
        "rows the caps stopped": [turn.capped_rows for turn in story.turns],
        "accuracy before": [turn.before.all for turn in story.turns],
        "accuracy after": [turn.after.all for turn in story.turns],
        "verdict": [row["verdict"] for row in figures],
        "swap, ms": ["-" if row["swap_ms"] is None else f"{row['swap_ms']:.0f}" for row in figures],
        "failed requests": [row["failed_requests"] for row in figures],
    }
    for name, values in lines.items():
        table.add_row(name, *(str(value) for value in values))
    console.print(table)


def _loop(turn: Turn) -> dict[str, Any]:
    rows = (turn.loop["dataset"] or {}).get("rows", {})
    return {
        "loop_id": turn.loop["loop_id"],
        "verdict": turn.loop["verdict"],
        "reasons": list(turn.loop["reasons"]),
        "rows": turn.rows,
        "labels": turn.loop["to_seq"] - turn.loop["from_seq"],
        "examples": rows.get("train", 0) + rows.get("val", 0),
        "accuracy_before": round(turn.before.all.value, 4),
        "accuracy_after": round(turn.after.all.value, 4),
        "swap_ms": turn.loop["swap_ms"],
        "failed_requests": turn.failed,
    }


def _span(accuracy: Accuracy | None) -> dict[str, Any] | None:
    if accuracy is None:
        return None
    low, high = accuracy.interval
    return {"accuracy": round(accuracy.value, 4), "low": round(low, 4), "high": round(high, 4), "n": accuracy.n}
