"""Which interactions may judge: audited, labelled by a trusted source, in the loop's window, unseen by the champion."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flywheel.config import Config
from flywheel.datasets import cluster_ids, lineage_prompts, near_any, prompt_text
from flywheel.datasets.firewall import large_clusters
from flywheel.datasets.rows import prompt_mac
from flywheel.datasets.source import traffic
from flywheel.labels import current_labels
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import query

AUTHOR_SHARE, AUTHOR_FLOOR = 0.02, 3
"""Of all labelled items, how many one user's word may decide, and how many in any case."""

BEYOND = "one author's labels beyond a fiftieth of all"

_OF_USERS = ("correction", "outcome")


@dataclass(frozen=True)
class Candidate:
    """An interaction that may become a suite item.

    Attributes:
        text: the prompt as near copies compare it.
        cluster: its near-duplicate cluster.
        uses: how often it has judged; 0 when it was never drawn.
        large: its cluster is so large a part of the traffic that near copies may train.
        near: it is a near copy of something the champion was trained on.
    """

    interaction_id: str
    conversation_id: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    label: str
    text: str
    cluster: str = ""
    uses: int = 0
    large: bool = False
    near: bool = False


def labelled(
    config: Config, home: Home, registry: Registry, task: str, *, from_seq: int, to_seq: int
) -> tuple[list[Candidate], Counter[str]]:
    """Audited interactions with a trusted label of the window ``from_seq < seq <= to_seq``, and why others are out.

    Of labels that users gave, each author's count up to `AUTHOR_SHARE` of all: nobody owns what judges.
    """
    trusted = config.task(task).labels.gate_labels
    left_out: Counter[str] = Counter()
    labels: dict[str, str] = {}
    by_users: set[str] = set()
    for row in current_labels(home, registry, task, up_to_seq=to_seq):
        if row["use"] != "eval" or row["seq"] <= from_seq:
            continue
        if row["target_kind"] != "interaction":
            left_out["label of a whole conversation"] += 1
        elif row["label_source"] not in trusted:
            left_out["label source not trusted"] += 1
        elif not (row["chosen"] or "").strip():
            left_out["label without a right answer"] += 1
        else:
            labels[row["target_id"]] = row["chosen"]
            if row["label_source"] in _OF_USERS:
                by_users.add(row["target_id"])
    found = []
    spoken_by: dict[str, str] = {}
    authors = _authors(home, registry, task, by_users)
    sql = "SELECT interaction_id, conversation_id, user_key, request FROM rows WHERE audit ORDER BY interaction_id"
    for row in query(home, registry, "interactions", task, sql).to_pylist():
        own = row["interaction_id"]
        if (label := labels.pop(own, None)) is not None:
            request = json.loads(row["request"])
            conversation = row["conversation_id"] or own
            messages, tools = request["messages"], request.get("tools") or None
            found.append(Candidate(own, conversation, messages, tools, label, prompt_text(messages)))
            if own in by_users:
                spoken_by[own] = authors.get(own) or row["user_key"] or conversation
    if labels:
        left_out["labelled for evaluation but not in the audit sample"] += len(labels)
    beyond = _beyond_share(home, spoken_by, len(found))
    if beyond:
        left_out[BEYOND] += len(beyond)
    return [candidate for candidate in found if candidate.interaction_id not in beyond], left_out


def _authors(home: Home, registry: Registry, task: str, targets: Collection[str]) -> dict[str, str]:
    """Who spoke last, of users with a name, about each of some interactions."""
    sql = (
        "SELECT target_id, arg_max(author_key, ts) AS author FROM rows WHERE source = 'user' AND author_key <> ''"
        " AND kind IN ('correction', 'label', 'outcome') AND target_id IN (SELECT unnest($1)) GROUP BY target_id"
    )
    rows = query(home, registry, "feedback", task, sql, [sorted(targets)]).to_pylist() if targets else []
    return {row["target_id"]: row["author"] for row in rows}


def _beyond_share(home: Home, spoken_by: Mapping[str, str], total: int) -> set[str]:
    """Interactions that one author too many has labelled; which of an author's stay, nobody outside can foresee."""
    most = max(AUTHOR_FLOOR, math.ceil(AUTHOR_SHARE * total))
    given: Counter[str] = Counter()
    beyond: set[str] = set()
    for own in sorted(spoken_by, key=lambda own: (draw_key(home, "author", own), own)):
        given[spoken_by[own]] += 1
        if given[spoken_by[own]] > most:
            beyond.add(own)
    return beyond


def compare(
    candidates: Sequence[Candidate],
    home: Home,
    registry: Registry,
    task: str,
    *,
    lineage: Sequence[str],
    threshold: float,
) -> list[Candidate]:
    """Fill in ``cluster``, ``near`` and ``large``.

    Args:
        lineage: digests of the datasets that the champion has learned.
        threshold: Jaccard of character 5-grams from which two prompts are near copies.
    """
    known, secret = lineage_prompts(home, lineage), home.secret()
    taught = sorted(set(known.values()))
    texts = [candidate.text for candidate in candidates]
    clusters = cluster_ids([*texts, *taught], threshold=threshold)
    near = near_any(texts, taught, threshold=threshold) if taught else [False] * len(texts)
    near = [found or prompt_mac(secret, text) in known for found, text in zip(near, texts, strict=True)]
    members: dict[str, set[str]] = defaultdict(set)
    mine = set(clusters[: len(texts)])
    for cluster, text in zip(clusters, [*texts, *taught], strict=True):
        if cluster in mine:
            members[cluster].add(text)
    total, texts_of_all = traffic(home, registry, task)
    large = large_clusters(dict(members), texts_of_all, total=total, threshold=threshold)
    return [
        replace(candidate, cluster=cluster, near=is_near, large=cluster in large)
        for candidate, cluster, is_near in zip(candidates, clusters, near, strict=False)
    ]


def draw_key(home: Home, purpose: str, identity: str) -> float:
    """A number in [0, 1) that nobody outside can foresee, equal in every run: the order of a uniform draw."""
    mac = hmac.new(home.secret(), f"suite|{purpose}|{identity}".encode(), hashlib.sha256).digest()
    return int.from_bytes(mac[:6], "big") / 2**48
