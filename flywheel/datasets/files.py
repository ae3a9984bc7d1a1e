"""A dataset from the user's own files, for ``flywheel train --data``: no log, no labels, the same manifest.

One JSON object a line, in one of three shapes: ``{"messages": [..., {"role": "assistant", ...}]}``,
``{"prompt": ..., "completion": ...}`` (text, or lists of messages), ``{"text": ..., "label": ...}``. A row may also
carry ``user``, ``conversation_id``, ``tools`` and ``weight``. The user answers for the file, so no caps apply.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.datasets.manifest import firewall_counts, make_manifest
from flywheel.datasets.neardup import cluster_ids
from flywheel.datasets.prompts import Message, clean, prompt_text, target_text, with_prompt
from flywheel.datasets.publish import DatasetBuild, publish, welcome
from flywheel.datasets.redact.examples import RowRedaction
from flywheel.datasets.rows import Row, make_row, to_columns
from flywheel.datasets.select import settle
from flywheel.datasets.split import split
from flywheel.errors import DatasetError
from flywheel.store.digests import digest
from flywheel.store.erased import Erased
from flywheel.store.home import Home
from flywheel.store.registry import Registry

SHOWN_ERRORS = 10
NOTHING_DRAWN = {"candidates": 0, "drawn": 0, "dropped": {}}


def from_jsonl(
    config: Config, home: Home, registry: Registry, task: str, train: Path, val: Path | None = None
) -> DatasetBuild:
    """Publish a dataset of the rows of one or two files.

    Args:
        train: rows to learn. Without ``val``, a share of them (``data.val_share``) becomes the validation side. Rows
            of erased users are dropped and counted, in either file.
        val: rows to validate on. Rows of ``train`` with an exact or near copy of a prompt in it, or with a user or
            conversation of it, are dropped and counted: what is measured on this file is not memorised.

    Raises:
        DatasetError: a file cannot be read, has bad rows (named by line), or leaves nothing to train on.
    """
    settings = config.task(task)
    policy = settings.data
    read = read_jsonl(home, train, settings.prompt)
    with registry.read() as tx:
        erased = Erased(home, tx, task)
    settled, dropped = settle(row for row in read if welcome(erased, vars(row)))
    stopped: Counter[str] = Counter()
    if val is None:
        ids = cluster_ids([row.text for row in settled], threshold=policy.near_duplicate)
        clustered = [replace(row, cluster_id=name) for row, name in zip(settled, ids, strict=True)]
        rows = split(clustered, policy.val_share)
    else:
        held = read_jsonl(home, val, settings.prompt)
        judges, repeated = settle(row for row in held if welcome(erased, vars(row)))
        rows, stopped = _apart(settled, judges, policy.near_duplicate)
        dropped += repeated + stopped
        read = [*read, *held]
    considered = len(read)
    dropped += +Counter({"erased_user": sum(not welcome(erased, vars(row)) for row in read)})
    if not any(row.side == "train" for row in rows):
        raise DatasetError(f"{train}: no row is left to train on, of {len(read)} ({dict(dropped)} dropped)")
    secret = home.secret()
    rows, redacted = RowRedaction(policy.redact, secret, settings.prompt).rows(rows)
    columns = [to_columns(row, secret) for row in rows]
    manifest = make_manifest(
        task=task,
        parent=None,
        lineage=[],
        policies=[digest([policy.near_duplicate, policy.val_share, policy.redact.model_dump(), settings.prompt])],
        columns=columns,
        rows=rows,
        considered=considered,
        dropped=dropped,
        caps={"per_user": None, "capped_users": 0, "capped_rows": 0},
        firewall=firewall_counts(stopped.total(), len(settled)),
        replay=dict(NOTHING_DRAWN),
        anchors=dict(NOTHING_DRAWN),
        redaction=redacted,
        window=None,
        notes=[] if any(row.side == "val" for row in rows) else ["no validation side: too few unlinked rows"],
    )
    return publish(home, registry, columns, manifest, loop_id=None)


def read_jsonl(home: Home, path: Path, prompt: str | None) -> list[Row]:
    """The rows of a file. A byte-order mark, CRLF and blank lines are fine.

    Raises DatasetError naming each bad line (the first ten) and what is wrong with it, never what it says.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({error.strerror})") from error
    rows: list[Row] = []
    errors: list[str] = []
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append(_row(home, _parse(line), prompt, number))
        except _BadRow as error:
            errors.append(f"{path}:{number}: {error}")
    if errors:
        more = [f"and {len(errors) - SHOWN_ERRORS} more bad rows"] if len(errors) > SHOWN_ERRORS else []
        raise DatasetError("\n".join([*errors[:SHOWN_ERRORS], *more]))
    if not rows:
        raise DatasetError(f'{path}: no rows; expected one JSON object a line, such as {{"text": ..., "label": ...}}')
    return rows


class _BadRow(ValueError):
    """What is wrong with a line, in words that do not quote it."""


def _apart(train: list[Row], judges: list[Row], threshold: float) -> tuple[list[Row], Counter[str]]:
    """All rows with their side, less the training rows that are tied to the evaluation file."""
    everything = [*judges, *train]
    ids = cluster_ids([row.text for row in everything], threshold=threshold)
    clustered = [replace(row, cluster_id=name) for row, name in zip(everything, ids, strict=True)]
    val = [replace(row, side="val") for row in clustered[: len(judges)]]
    texts, groups = {row.text for row in val}, {row.cluster_id for row in val}
    users, conversations = {row.user_key for row in val} - {""}, {row.conversation_id for row in val} - {""}
    kept: list[Row] = []
    dropped: Counter[str] = Counter()
    for row in clustered[len(judges) :]:
        if row.text in texts:
            dropped["eval_copy"] += 1
        elif row.cluster_id in groups:
            dropped["eval_near_copy"] += 1
        elif row.user_key in users or row.conversation_id in conversations:
            dropped["eval_user"] += 1
        else:
            kept.append(row)
    return [*val, *kept], dropped


def _parse(line: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise _BadRow("not UTF-8") from None
    except (ValueError, RecursionError):
        raise _BadRow("not JSON") from None
    if not isinstance(value, dict):
        raise _BadRow("expected a JSON object")
    return value


def _row(home: Home, value: Mapping[str, Any], prompt: str | None, line: int) -> Row:
    messages = _messages(value)
    tools = value.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise _BadRow("tools must be a list")
    weight = value.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight) or weight <= 0:
        raise _BadRow("weight must be a number above 0")
    for name in ("user", "conversation_id"):
        if value.get(name) is not None and not isinstance(value[name], str):
            raise _BadRow(f"{name} must be text")
    *before, target = clean(messages)
    if not prompt_text(before):
        raise _BadRow("the prompt is empty")
    if not target_text(target):
        raise _BadRow("the answer is empty")
    return make_row(
        with_prompt(before, prompt),
        target,
        tools,
        user_key=home.user_key(value.get("user")),
        conversation_id=value.get("conversation_id") or "",
        weight=float(weight),
        label_source="file",
        line=line,
    )


def _messages(value: Mapping[str, Any]) -> list[Message]:
    """The row's messages, the answer last."""
    if "messages" in value:
        messages = _checked(value["messages"], "messages")
        if messages[-1]["role"] != "assistant":
            raise _BadRow("the last message must be the assistant's answer")
        if len(messages) < 2:
            raise _BadRow("there is no message before the answer")
        return messages
    for question, answer in (("prompt", "completion"), ("text", "label")):
        if question in value and answer in value:
            return [*_said(value[question], question, "user"), *_said(value[answer], answer, "assistant")]
    raise _BadRow("expected `messages`, or `prompt` and `completion`, or `text` and `label`")


def _said(value: Any, field: str, role: str) -> list[Message]:
    if isinstance(value, list):
        messages = _checked(value, field)
        if role == "assistant" and (len(messages) != 1 or messages[0]["role"] != "assistant"):
            raise _BadRow(f"{field} must be one message of the assistant")
        return messages
    if isinstance(value, bool | int | float) and role == "assistant":
        value = json.dumps(value)
    if not isinstance(value, str):
        raise _BadRow(f"{field} must be text")
    return [{"role": role, "content": _unicode(value).strip() if role == "assistant" else _unicode(value)}]


def _checked(value: Any, field: str) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise _BadRow(f"{field} must be a list of messages")
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _BadRow(f"each of {field} must be an object with a role")
        content = message.get("content")
        if not (isinstance(content, str | list) or (content is None and message.get("tool_calls"))):
            raise _BadRow(f"each of {field} must have a content")
        _unicode(json.dumps(message, ensure_ascii=False))
    return value


def _unicode(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise _BadRow("half a surrogate pair is no text") from None
    return text


__all__: Sequence[str] = ["from_jsonl", "read_jsonl"]
