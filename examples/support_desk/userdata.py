"""The user's own messages instead of ours: ``FLYWHEEL_DEMO_DATA=file.jsonl`` with rows ``{"text", "label"}``."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from examples.support_desk.phrases import Material, Message
from examples.support_desk.similar import clusters

APART = 0.7
UNSEEN_SHARE = 0.3
MAX_TEXT, MAX_LABEL = 2000, 60
MAX_FAULTS = 10
MIN_LABELS = 4


class DemoDataError(ValueError):
    """The file cannot carry the demo; the message says which lines, or how many rows of which labels are missing."""


def read_rows(path: Path) -> list[Message]:
    """The rows of the file, exact repeats dropped; contradictions leave in ``split_rows``.

    Raises DemoDataError with up to ten faults, each with its line number.
    """
    if not path.is_file():
        raise DemoDataError(f"{path}: no such file; FLYWHEEL_DEMO_DATA must name a JSONL file of text and label")
    rows: dict[Message, None] = {}
    faults: list[str] = []
    with path.open("rb") as handle:
        for number, line in enumerate(handle, 1):
            if not line.strip():
                continue
            row, fault = _row(line)
            if row is None:
                faults.append(f"{path}:{number}: {fault}")
            else:
                rows[row] = None
    if faults:
        more = [f"... and {len(faults) - MAX_FAULTS} more"] if len(faults) > MAX_FAULTS else []
        raise DemoDataError("\n".join(faults[:MAX_FAULTS] + more))
    return list(rows)


def split_rows(rows: Iterable[Message], *, seed: int = 0) -> Material:
    """Traffic and unseen messages: whole near-copy clusters on one side; a cluster with two labels is left out.

    The first half of the labels, in order of appearance, exists from the start; the other half appears in loop 2.
    Raises DemoDataError when there are too few labels.
    """
    rows = list(rows)
    labels = list(dict.fromkeys(row.queue for row in rows))
    if len(labels) < MIN_LABELS:
        raise DemoDataError(f"found {len(labels)} labels and need at least {MIN_LABELS}: half of them arrive in loop 2")
    members: dict[int, list[Message]] = defaultdict(list)
    for row, cluster in zip(rows, clusters([row.text for row in rows], APART), strict=True):
        members[cluster].append(row)
    groups: dict[str, list[list[str]]] = defaultdict(list)
    for alike in members.values():
        if len({row.queue for row in alike}) == 1:
            groups[alike[0].queue].append([row.text for row in alike])
    rng = random.Random(seed)
    traffic: dict[str, list[str]] = {}
    unseen: dict[str, list[str]] = {}
    for label in labels:
        rng.shuffle(groups[label])
        wanted = UNSEEN_SHARE * sum(map(len, groups[label]))
        unseen[label], traffic[label] = [], []
        for group in groups[label]:
            side = unseen if len(unseen[label]) + len(group) <= wanted else traffic  # one large group would take it all
            side[label].extend(group)
        rng.shuffle(traffic[label])
    half = (len(labels) + 1) // 2
    return Material(tuple(labels[:half]), tuple(labels[half:]), traffic, unseen)


def check_enough(material: Material, needs: dict[str, Counter[str]]) -> None:
    """Raise DemoDataError when a label has fewer messages on a side than ``needs[side][label]``."""
    missing = []
    for side, wanted in needs.items():
        have: dict[str, list[str]] = getattr(material, side)
        for label, count in wanted.items():
            if len(have[label]) < count:
                missing.append(f"label {label!r}: {len(have[label])} {side} messages and needs {count}")
    if missing:
        rows = max(
            max(needs["traffic"].values()) / (1 - UNSEEN_SHARE),
            max(needs["unseen"].values()) / UNSEEN_SHARE,
        )
        missing = missing[:MAX_FAULTS] + ([f"... and {len(missing) - MAX_FAULTS} more"] if len(missing) > 10 else [])
        raise DemoDataError(f"too few rows; about {rows * 1.05:.0f} different ones per label do\n" + "\n".join(missing))


def _row(line: bytes) -> tuple[Message | None, str]:
    try:
        value = json.loads(line)
    except UnicodeDecodeError:
        return None, "not UTF-8"
    except json.JSONDecodeError as error:
        return None, f"not JSON: {error.msg} at column {error.colno}"
    if not isinstance(value, dict):
        return None, "expected an object with `text` and `label`"
    for name, limit in (("text", MAX_TEXT), ("label", MAX_LABEL)):
        if not isinstance(value.get(name), str) or not value[name].strip():
            return None, f"`{name}` must be a string that is not empty"
        if len(value[name]) > limit:
            return None, f"`{name}` has {len(value[name])} characters; at most {limit} are possible"
    if "\n" in value["label"].strip():
        return None, "`label` must be one line"
    return Message(" ".join(value["text"].split()), value["label"].strip()), ""
