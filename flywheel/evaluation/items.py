"""Suite items and suite files: the exact prompts and labels that a candidate is judged by.

A suite file is named by the digest of its content and never changes, but for an erasure: then a tombstone in its place
names the suite that has the other items. Messages are kept as the caller sent them; each
release under evaluation puts its own system prompt before messages that bring none, as the gateway does for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flywheel.datasets.prompts import clean
from flywheel.errors import EvaluationError
from flywheel.evaluation.report import Slice
from flywheel.store.digests import digest
from flywheel.store.files import read_json, write_json
from flywheel.store.home import Home

SCHEMA_VERSION = 1

TOMBSTONE = "tombstone"
"""Kind of what stays of a suite that lost items to an erasure: {digest, successor, items_removed}."""


@dataclass(frozen=True)
class SuiteItem:
    """One prompt with its right answer.

    Attributes:
        item_id: digest of the content, 32 hex digits; suites are ordered by it.
        interaction_id: where it came from; ``file:<item_id>`` for an item of the operator's own file.
        cluster: ordinal, within the suite, of the group of items that depend on each other.
        slice: ``novel`` items decide, ``repeat`` items are reported.
        messages: what the caller sent.
        tools: what the caller offered, or None.
        label: the right answer.
    """

    item_id: str
    interaction_id: str
    conversation_id: str
    cluster: int
    slice: Slice
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    label: str


@dataclass(frozen=True)
class Suite:
    """An immutable set of items in a fixed order."""

    digest: str
    task: str
    kind: str  # gate | golden
    items: tuple[SuiteItem, ...]

    def novel(self) -> int:
        """How many independent items decide: one per cluster."""
        return len({item.cluster for item in self.items if item.slice == "novel"})


def make_item(
    interaction_id: str,
    conversation_id: str,
    messages: Sequence[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    label: str,
    *,
    cluster: int,
    novel: bool,
) -> SuiteItem:
    """An item with its content digest; fields of a message that no chat template reads are left out."""
    kept = clean(messages)
    name = digest({"from": interaction_id, "messages": kept, "tools": tools, "label": label})[:32]
    part: Slice = "novel" if novel else "repeat"
    return SuiteItem(name, interaction_id or f"file:{name}", conversation_id, cluster, part, kept, tools, label)


def make_suite(task: str, kind: str, items: Sequence[SuiteItem]) -> Suite:
    """Order the items, renumber their clusters by first appearance, and name the suite by its content."""
    ordinals: dict[int, int] = {}
    numbered = []
    for item in sorted(items, key=lambda item: item.item_id):
        ordinal = ordinals.setdefault(item.cluster, len(ordinals))
        numbered.append(SuiteItem(**{**vars(item), "cluster": ordinal}))
    ordered = tuple(numbered)
    return Suite(digest(_content(task, kind, ordered)), task, kind, ordered)


def write_suite(home: Home, suite: Suite) -> None:
    """Write the suite file durably under its digest; one that is there already is the same."""
    path = suite_path(home, suite.digest)
    if not path.exists():
        write_json(path, _content(suite.task, suite.kind, suite.items))


def load_suite(home: Home, name: str) -> Suite:
    """Read a suite and check that it is what its name says. Of a suite that lost items to an erasure, its successor.

    Raises EvaluationError when it is missing, malformed or not what the digest names.
    """
    path = suite_path(home, name)
    try:
        raw = read_json(path)
        if raw["kind"] == TOMBSTONE:
            return load_suite(home, raw["successor"])
        suite = Suite(name, raw["task"], raw["kind"], tuple(SuiteItem(**item) for item in raw["items"]))
    except FileNotFoundError:
        raise EvaluationError(f"{path}: the suite file is missing") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise EvaluationError(f"{path}: not a suite file of this version") from error
    if (found := digest(_content(suite.task, suite.kind, suite.items))) != name:
        raise EvaluationError(f"{path}: the content has digest {found}, not its name; it was changed by hand")
    return suite


def bury_suite(home: Home, name: str, *, successor: str, items_removed: int) -> None:
    """Put a tombstone in the place of a suite file."""
    stone = {"kind": TOMBSTONE, "digest": name, "successor": successor, "items_removed": items_removed}
    write_json(suite_path(home, name), stone)


def suite_path(home: Home, name: str) -> Path:
    """Where a suite file lies."""
    return home.suites / f"{name}.json"


def read_golden_file(path: Path) -> list[tuple[list[dict[str, Any]], list[dict[str, Any]] | None, str]]:
    """Messages, tools and label of each line of an operator's JSONL file of ``{text, label}`` or ``{messages, label}``.

    Raises EvaluationError naming the line and field at fault.
    """
    found = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise EvaluationError(
            f"{path}: the golden file cannot be read as UTF-8 text: {type(error).__name__}"
        ) from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            found.append(_golden_row(line, f"{path}, line {number}"))
    return found


def _golden_row(line: str, where: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None, str]:
    try:
        row = json.loads(line)
    except ValueError:
        raise EvaluationError(f"{where}: not JSON") from None
    if not isinstance(row, dict) or not isinstance(row.get("label"), str) or not row["label"].strip():
        raise EvaluationError(f"{where}: expected an object with a non-empty string `label`")
    if isinstance(row.get("text"), str):
        return [{"role": "user", "content": row["text"]}], row.get("tools"), row["label"]
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise EvaluationError(f"{where}: expected a string `text` or a non-empty list `messages`")
    if not all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages):
        raise EvaluationError(f"{where}: each of `messages` must be an object with a string `role`")
    if messages[-1]["role"] == "assistant":
        raise EvaluationError(f"{where}: the last message must not be the assistant's; put the answer into `label`")
    return messages, row.get("tools"), row["label"]


def _content(task: str, kind: str, items: Sequence[SuiteItem]) -> dict[str, Any]:
    rows = [asdict(item) for item in items]
    return {"schema_version": SCHEMA_VERSION, "task": task, "kind": kind, "items": rows}
