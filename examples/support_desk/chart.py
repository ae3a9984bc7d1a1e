"""The picture: live accuracy over time, with the baseline and every promotion, rejection and rollback."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from examples.support_desk.ledger import Mark, Sample

WINDOW_S = 20.0
LEAST = 15
COLOURS = {"promote": "#1a7f37", "reject": "#cf222e", "queues": "#6e7781", "rollback": "#bf8700", "forward": "#0969da"}
CURVE, BASELINE = "#24292f", "#8250df"


def rolling(samples: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """Share of right answers over the last 20 s (at least 15 answers) at each answer: times and shares."""
    window: deque[Sample] = deque()
    hits = 0
    times, shares = [], []
    for sample in sorted(samples, key=lambda one: one.at):
        window.append(sample)
        hits += sample.right
        while window[0].at < sample.at - WINDOW_S and len(window) > LEAST:
            hits -= window.popleft().right
        if len(window) >= LEAST:
            times.append(sample.at / 60)
            shares.append(hits / len(window))
    return times, shares


def draw(path: Path, samples: Sequence[Sample], marks: Sequence[Mark], baseline: float) -> None:
    """Write the chart as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.8), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    times, shares = rolling(samples)
    axes.plot(times, shares, color=CURVE, linewidth=1.8, label=f"live traffic, last {WINDOW_S:.0f} s")
    axes.axhline(baseline, color=BASELINE, linestyle="--", linewidth=1.2, label="untrained model, queue list in prompt")
    axes.text(
        0.995, baseline + 0.015, f"{baseline:.0%}", color=BASELINE, ha="right", transform=axes.get_yaxis_transform()
    )
    last = -1.0
    level = 0
    span = max([sample.at for sample in samples] + [mark.at for mark in marks], default=60.0) / 60
    for mark in sorted(marks, key=lambda one: one.at):
        at = mark.at / 60
        colour = COLOURS.get(mark.kind, CURVE)
        # Labels that would overlap go to the next of three rows.
        level = (level + 1) % 3 if at - last < span * 0.11 else 0
        last = at
        axes.axvline(at, color=colour, linewidth=1.3, linestyle=":" if mark.kind == "queues" else "-", alpha=0.85)
        axes.annotate(
            mark.text, (at, 1.06 + 0.075 * level), xytext=(3, 0), textcoords="offset points", color=colour, fontsize=9
        )
    axes.set(ylim=(0, 1.3), xlim=(0, span * 1.06), xlabel="minutes since the start", ylabel="right queue")
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0], ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"])
    axes.set_title("Support desk: routing accuracy of live traffic while the loop turns", loc="left", fontsize=12)
    axes.grid(axis="y", color="#d0d7de", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=9)
    figure.savefig(path)
