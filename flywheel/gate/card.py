"""A decision as a person reads it: a card in Markdown and the rows of its comparison table. Never any log text."""

from __future__ import annotations

from typing import Any

from flywheel.gate.record import Decision
from flywheel.store.digests import short

LIMIT = 1000
"""Longest card, in characters: it is shown as metadata beside an asset."""

_NAMES = {"gate": "gate (novel)", "repeat": "gate (repeat)", "golden": "golden"}


def comparison_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per suite and slice: ``suite, n, champion, candidate, gain, interval, p`` as text and numbers.

    ``p`` is of "better" on the gate and of "worse by the margin" on the golden suite.
    """
    rows = []
    for key, name in _NAMES.items():
        found = record["numbers"].get(key)
        if not found or not found["items"]:
            continue
        p = found.get("p_inferior", found["p_better"])
        rows.append(
            {
                "suite": name,
                "n": found["items"],
                "champion": round(found["champion"], 3),
                "candidate": round(found["candidate"], 3),
                "gain": f"{100 * found['gain']:+.1f} pt",
                "interval": "{:+.1f} to {:+.1f} pt".format(*(100 * end for end in found["gain_interval"])),
                "p": f"{p:.2g}",
            }
        )
    return rows


def card(decision: Decision) -> str:
    """The decision card: verdict, releases, reasons and the table, in fewer than ``LIMIT`` characters."""
    head = [
        f"**{decision.verdict}** {decision.task}@{short(decision.candidate)} against @{short(decision.champion)} "
        f"(pointer version {decision.pointer_version})",
        "",
    ]
    columns = ("suite", "n", "champion", "candidate", "gain", "interval", "p")
    table = ["|" + "|".join(columns) + "|", "|" + "---|" * len(columns)]
    table += ["|" + "|".join(str(row[column]) for column in columns) + "|" for row in comparison_rows(decision.record)]
    foot = ["", f"decision `{short(decision.digest)}`, evaluation `{short(decision.evaluation)}`"]
    fixed = len("\n".join([*head, "", *table, *foot]))
    room = LIMIT - 1 - fixed
    reasons: list[str] = []
    for number, reason in enumerate(decision.reasons):
        line = f"- {reason}"
        more = len(decision.reasons) - number
        if sum(len(kept) + 1 for kept in reasons) + len(line) + 1 > room - 30:
            reasons.append(f"- and {more} more in the record" if reasons else f"{line[: max(0, room - 35)]}...")
            break
        reasons.append(line)
    return "\n".join([*head, *reasons, "", *table, *foot])
