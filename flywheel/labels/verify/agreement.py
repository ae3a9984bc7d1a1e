"""How often each judge agrees with people, and how often it gave no verdict: what its word is worth.

Compared are the answers on which both spoke, as their words stand now. People are reviewers; of two answers also users
who preferred one. Verifiers are told apart from people. Cohen's kappa takes off the agreement that chance alone would
bring (Cohen 1960, A coefficient of agreement for nominal scales).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from flywheel.config_labels import LabelPolicy
from flywheel.labels.evidence import Row, current, read_evidence
from flywheel.labels.targets import feedback_by_target
from flywheel.labels.verdict import Target
from flywheel.labels.verify.report import SAID, counted_as
from flywheel.labels.verify.words import FLIP, REFUSED, UNREADABLE
from flywheel.store.home import Home
from flywheel.store.registry import Registry

ANSWERS, PAIRS = "answers", "pairs"

Both = tuple[bool, bool]
"""What a judge said, and what somebody else did."""


@dataclass
class _Judge:
    words: Counter[str] = field(default_factory=Counter)
    people: list[Both] = field(default_factory=list)
    verifiers: list[Both] = field(default_factory=list)


def agreement(home: Home, registry: Registry, task: str, policy: LabelPolicy, now: datetime) -> list[dict[str, Any]]:
    """A row for each judge and each thing it judges, ``answers`` and ``pairs``, in order of these.

    Args:
        now: feedback given later does not count.

    Returns rows with ``judge``, ``of``, ``judged`` (verdicts), ``flips``, ``unreadable`` and ``refused``; ``compared``,
    ``agreed`` and ``kappa`` (None where it has no meaning) with people; and the same with verifiers, named
    ``verifiers_...``.
    """
    judges: dict[tuple[str, str], _Judge] = defaultdict(_Judge)
    preferred: dict[str, list[tuple[str, str]]] = defaultdict(list)  # by people, by the interaction they were given on
    pairs: list[tuple[str, Row, tuple[str, str]]] = []
    for target, rows in feedback_by_target(home, registry, task, policy):
        counting = current(rows, now)
        people, verifiers = (_verdict(counting, target, source, policy) for source in ("reviewer", "verifier"))
        for row in counting:
            if row["kind"] == "preference":
                pair = _preference(row, target)
                if row["source"] in ("reviewer", "user") and pair is not None:
                    preferred[target.interaction_id].append(pair)
                elif row["source"] == "judge":
                    judges[row["author_key"], PAIRS].words[_counted(row)] += 1
                    pairs += [(row["author_key"], row, pair)] if pair is not None else []
            elif row["source"] == "judge":
                said = _verdict([row], target, "judge", policy)
                judge = judges[row["author_key"], ANSWERS]
                judge.words[counted_as(said) if said is not None else _counted(row)] += 1
                for truth, both in ((people, judge.people), (verifiers, judge.verifiers)):
                    if said is not None and truth is not None:
                        both.append((said, truth))
    for name, row, (chosen, rejected) in pairs:
        about = row["target_id"], row["source_id"].split("/", 3)[-1].removesuffix("|" + row["target_id"])
        for better, worse in (pair for one in dict.fromkeys(about) for pair in preferred.get(one, ())):
            if {better, worse} == {chosen, rejected}:
                # Of the two answers the one that is first by its text: as good a yes as any.
                judges[name, PAIRS].people.append((chosen < rejected, better < worse))
    return [_row(name, of, judge) for (name, of), judge in sorted(judges.items())]


def kappa(compared: Sequence[Both]) -> float | None:
    """Cohen's kappa of two raters; None without comparisons, or when both always say one and the same."""
    count = len(compared)
    if not count:
        return None
    observed = sum(one == other for one, other in compared) / count
    ours, theirs = (sum(both[rater] for both in compared) / count for rater in (0, 1))
    expected = ours * theirs + (1 - ours) * (1 - theirs)
    return None if expected == 1 else (observed - expected) / (1 - expected)


def _verdict(rows: Sequence[Row], target: Target, source: str, policy: LabelPolicy) -> bool | None:
    """What those of one source say about an answer; None when nothing, or not the same."""
    own = [row for row in rows if row["source"] == source]
    said = {item.good for item in read_evidence(own, target.answer, policy.edits)}
    return said.pop() if len(said) == 1 else None


def _preference(row: Row, target: Target) -> tuple[str, str] | None:
    value = json.loads(row["value"]) if row["value"] else None
    value = value if isinstance(value, dict) else {"chosen": row["text"], "rejected": target.answer}
    chosen, rejected = value.get("chosen"), value.get("rejected")
    if not (isinstance(chosen, str) and isinstance(rejected, str) and chosen.strip() and rejected.strip()):
        return None
    return chosen.strip(), rejected.strip()


def _counted(row: Row) -> str:
    return counted_as(json.loads(row["value"] or "null"))


def _row(name: str, of: str, judge: _Judge) -> dict[str, Any]:
    words = judge.words
    found: dict[str, Any] = {"judge": name, "of": of, "judged": sum(words[said] for said in SAID)}
    found |= {"flips": words[FLIP], "unreadable": words[UNREADABLE], "refused": words[REFUSED]}
    for prefix, both in (("", judge.people), ("verifiers_", judge.verifiers)):
        agreed = sum(one == other for one, other in both)
        share = kappa(both)
        found[f"{prefix}compared"], found[f"{prefix}agreed"] = len(both), agreed
        found[f"{prefix}kappa"] = None if share is None else round(share, 4)
    return found
