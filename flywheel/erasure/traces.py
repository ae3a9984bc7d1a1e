"""Finding what belongs to a person: from their calls and feedback in the tables, the gateway's log and datasets."""

from __future__ import annotations

import json
from typing import Any

from flywheel.datasets.publish import load_examples, read_manifest
from flywheel.erasure.log_lines import log_files, read_log
from flywheel.erasure.scope import Scope
from flywheel.evaluation.items import make_item
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import query

Row = dict[str, Any]


def trace(home: Home, registry: Registry, scope: Scope, tasks: list[str]) -> None:
    """Fill ``scope`` with all that is known to belong to the person now.

    Their own calls first; then every turn of the conversations of these; then what feedback is about any of it.
    """
    for task in tasks:
        _own_calls(home, registry, scope, task)
    _own_lines(home, scope)
    for task in tasks:
        _other_turns(home, registry, scope, task)
    _other_lines(home, scope)
    for task in tasks:
        _feedback(home, registry, scope, task)
    _file_items(home, scope)


def _own_calls(home: Home, registry: Registry, scope: Scope, task: str) -> None:
    sql = "SELECT DISTINCT interaction_id, conversation_id FROM rows WHERE user_key = $1"
    for row in query(home, registry, "interactions", task, sql, [scope.user_key]).to_pylist():
        scope.add(task, row["interaction_id"], row["conversation_id"])


def _own_lines(home: Home, scope: Scope) -> None:
    for path in log_files(home):
        for line in read_log(path):
            if line.call and scope.is_user(line.user):
                scope.add(line.task, *line.names, line.about, *line.known_as)


def _other_turns(home: Home, registry: Registry, scope: Scope, task: str) -> None:
    if scope.gone.get(task):
        sql = "SELECT interaction_id, conversation_id FROM rows"
        for batch in query(home, registry, "interactions", task, sql).to_batches():
            for row in batch.to_pylist():
                if scope.has(task, row["conversation_id"]):
                    scope.add(task, row["interaction_id"])


def _other_lines(home: Home, scope: Scope) -> None:
    for path in log_files(home):
        for line in read_log(path):
            if line.call and scope.has(line.task, line.about):
                scope.add(line.task, *line.names, *line.known_as)


def _feedback(home: Home, registry: Registry, scope: Scope, task: str) -> None:
    """Feedback ids that go, and the interactions of others whose labels may rest on the person's feedback.

    Feedback on a conversation labels its last turn at that moment, and may have labelled others before a late turn
    arrived: all its turns count as touched.
    """
    columns = "feedback_id, target_kind, target_id, author_key"
    conversations = set()
    for table in ("feedback", "orphans"):
        for row in query(home, registry, table, task, f"SELECT {columns} FROM rows").to_pylist():
            if not scope.takes_feedback(task, row):
                continue
            scope.add(task, row["feedback_id"])
            if row["author_key"] != scope.user_key or scope.has(task, row["target_id"]):
                continue
            if row["target_kind"] == "interaction":
                scope.touch(task, row["target_id"])
            elif row["target_kind"] == "conversation":
                conversations.add(row["target_id"])
    sql = "SELECT interaction_id FROM rows WHERE conversation_id IN (SELECT unnest($1))"
    if conversations:
        for row in query(home, registry, "interactions", task, sql, [sorted(conversations)]).to_pylist():
            scope.touch(task, row["interaction_id"])


def _file_items(home: Home, scope: Scope) -> None:
    """Suite items that were made of the person's rows in a file for ``flywheel train``: known by their content."""
    for folder in sorted(home.datasets.glob("[!.]*")):
        manifest = read_manifest(home, folder.name)
        if manifest.get("kind") != "dataset":
            continue
        for row in load_examples(home, folder.name):
            if row["user_key"] == scope.user_key and not row["interaction_id"]:
                *messages, target = json.loads(row["messages"])
                tools = json.loads(row["tools"]) if row["tools"] else None
                item = make_item("", "", messages, tools, target.get("content") or "", cluster=0, novel=True)
                scope.add(manifest["task"], item.interaction_id)
