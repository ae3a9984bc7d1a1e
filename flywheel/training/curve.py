"""The loss curve as a small picture."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence


def curve_png(losses: Mapping[str, Sequence[Sequence[float]]], *, title: str = "") -> bytes:
    """Draw a manifest's ``losses`` (``train`` and ``val``: lists of [steps done, loss]) as a PNG under 50 kB."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, colour, marker in (("train", "#4c78a8", ""), ("val", "#e45756", "o")):
        points = losses.get(name, ())
        if points:
            steps, values = zip(*points, strict=True)
            axes.plot(steps, values, color=colour, marker=marker, markersize=4, linewidth=1.5, label=name)
    axes.set_xlabel("step")
    axes.set_ylabel("loss per learned token")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if title:
        axes.set_title(title, loc="left", fontsize=10)
    if any(losses.values()):
        axes.legend(frameon=False)
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()
