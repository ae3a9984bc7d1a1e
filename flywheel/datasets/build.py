"""A task's dataset for one loop: from the labels of a window to a published, immutable set of examples.

The steps, each a module of its own: join -> quality -> settle duplicates and contradictions -> merge a conversation's
turns -> cluster near copies -> firewall -> caps -> share of the model's own answers -> selection -> split -> replay ->
anchors -> redact -> publish. Every row that leaves is counted by reason: rows considered = new rows of all kinds + rows
dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from flywheel.config import Config
from flywheel.datasets import replay as replaying
from flywheel.datasets.anchors import draw_anchors, read_anchors
from flywheel.datasets.caps import cap
from flywheel.datasets.firewall import Firewall, HeldOut, large_clusters
from flywheel.datasets.manifest import firewall_counts, make_manifest
from flywheel.datasets.neardup import cluster_ids
from flywheel.datasets.publish import DatasetBuild, load_examples, publish
from flywheel.datasets.quality import screen
from flywheel.datasets.redact.examples import RowRedaction
from flywheel.datasets.rows import SFT, Row, from_columns, to_columns
from flywheel.datasets.select import cap_self_generated, settle
from flywheel.datasets.source import join, traffic, window
from flywheel.datasets.split import split
from flywheel.datasets.strata import select
from flywheel.datasets.turns import merge_turns
from flywheel.errors import DatasetError
from flywheel.labels import current_labels
from flywheel.store.digests import digest
from flywheel.store.home import Home
from flywheel.store.registry import Registry


def build(
    config: Config,
    home: Home,
    registry: Registry,
    task: str,
    *,
    from_seq: int,
    to_seq: int,
    loop_id: str | None,
    parent: str | None,
    lineage: Sequence[str],
    held_out: HeldOut,
    graduated: frozenset[str] = frozenset(),
) -> DatasetBuild:
    """Build and publish the dataset of a loop; the same inputs give the same digest, in any row order.

    Args:
        from_seq: the last label version that the champion has learned.
        to_seq: the last label version of this loop.
        loop_id: noted in the registry; not part of the digest.
        parent: the dataset that the champion's checkpoint was trained on, if any.
        lineage: digests of all datasets behind the champion, oldest first.
        held_out: what the firewall keeps out.
        graduated: interactions of retired suites; they train if they have not yet.

    Raises:
        DatasetError: fewer new training examples than ``data.min_examples``, or a dataset of the lineage is missing.
    """
    settings = config.task(task)
    policy = settings.data
    earlier = [[from_columns(columns) for columns in load_examples(home, name)] for name in lineage]
    learned = {row.interaction_id for rows in earlier for row in rows}
    labels = current_labels(home, registry, task, up_to_seq=to_seq)
    chosen = window(labels, from_seq=from_seq, graduated=graduated, learned=learned)
    joined, dropped = join(home, registry, task, chosen, settings.prompt)
    considered = len(joined) + dropped.total()
    # Where the anchors' file lies says nothing about the rows.
    policies = [
        *{row.policy_digest for row in joined},
        digest([policy.model_dump(exclude={"anchors"}), settings.prompt]),
    ]

    sound, faulty = screen(joined)
    settled, unsettled = settle(sound)
    # A retired suite's item trains once: it must stay known by its own id.
    settled, repeated = merge_turns(settled, apart=graduated)
    old, outdated = replaying.candidates(earlier)
    anchors = read_anchors(home, policy.anchors, settings.prompt)
    sizes = len(settled), len(old)
    clustered, firewall = _clustered(home, registry, task, [*settled, *old, *anchors], held_out, policy.near_duplicate)
    settled, old, anchors = clustered[: sizes[0]], clustered[sizes[0] : sum(sizes)], clustered[sum(sizes) :]
    free, stopped = _screen(settled, firewall)
    capped = cap(free, policy)
    mixed, own = cap_self_generated(capped.rows, policy.self_share)
    chosen_rows, beyond = select(mixed, policy.max_examples)
    new = split(chosen_rows, policy.val_share)
    dropped += faulty + unsettled + repeated + stopped + capped.dropped + own + beyond

    train = sum(row.side == "train" and row.kind == SFT for row in new)
    if train < policy.min_examples:
        raise DatasetError(_too_few(task, train, policy.min_examples, len(chosen), dropped))
    secret = home.secret()
    redaction = RowRedaction(policy.redact, secret, settings.prompt)
    seed = f"{task}|{from_seq}|{to_seq}"
    drawn = replaying.draw(
        old,
        new,
        share=policy.replay_share,
        self_share=policy.self_share,
        seed=seed,
        outdated=outdated,
        labels=redaction.labels({label["target_id"]: label for label in labels}, old),
        firewall=firewall,
        quota=capped.quota,
    )
    anchored = draw_anchors(anchors, [*new, *drawn.rows], share=policy.anchor_share, seed=seed, firewall=firewall)
    rows, redacted = redaction.rows([*new, *drawn.rows, *anchored.rows])
    columns = [to_columns(row, secret) for row in rows]
    manifest = make_manifest(
        task=task,
        parent=parent,
        lineage=lineage,
        policies=policies,
        columns=columns,
        rows=rows,
        considered=considered,
        dropped=dropped,
        caps={
            "per_user": capped.per_user,
            "capped_users": capped.users,
            "capped_rows": capped.dropped.total(),
        },
        firewall=firewall_counts(stopped.total(), len(settled)),
        replay={
            "candidates": drawn.candidates,
            "drawn": len(drawn.rows),
            "dropped": dict(sorted(drawn.dropped.items())),
        },
        anchors={
            "candidates": anchored.candidates,
            "drawn": len(anchored.rows),
            "dropped": dict(sorted(anchored.dropped.items())),
        },
        redaction=redacted,
        window=(from_seq, to_seq),
        notes=_notes(new, policy.val_share),
    )
    return publish(home, registry, columns, manifest, loop_id=loop_id)


def _clustered(
    home: Home,
    registry: Registry,
    task: str,
    rows: list[Row],
    held_out: HeldOut,
    threshold: float,
) -> tuple[list[Row], Firewall]:
    """The rows with their cluster, in one clustering with the held-out prompts, and the firewall over it."""
    texts = [row.text for row in rows] + list(held_out.prompts)
    ids = cluster_ids(texts, threshold=threshold)
    rows = [replace(row, cluster_id=name) for row, name in zip(rows, ids, strict=False)]
    held = ids[len(rows) :]
    at_stake = set(held) & {row.cluster_id for row in rows}
    members: dict[str, set[str]] = {}
    for text, name in zip(texts, ids, strict=True):
        if name in at_stake:
            members.setdefault(name, set()).add(text)
    total, chunks = traffic(home, registry, task)
    large = large_clusters(members, chunks, total=total, threshold=threshold)
    return rows, Firewall(held_out, held, large, home.secret())


def _screen(rows: Sequence[Row], firewall: Firewall) -> tuple[list[Row], Counter[str]]:
    reasons = [firewall.reason(row) for row in rows]
    free = [row for row, reason in zip(rows, reasons, strict=True) if not reason]
    return free, Counter(reason for reason in reasons if reason)


def _notes(new: Sequence[Row], val_share: float) -> list[str]:
    if val_share and not any(row.side == "val" for row in new):
        return ["no validation side: the rows are linked into too few groups of users, conversations and near copies"]
    return []


def _too_few(task: str, train: int, needed: int, considered: int, dropped: Counter[str]) -> str:
    why = ", ".join(f"{reason} {n}" for reason, n in sorted(dropped.items()))
    return (
        f"{task}: {train} new training examples of {considered} labelled rows, data.min_examples asks for {needed}: "
        f"{needed - train} are missing" + (f" (dropped: {why})" if why else "")
    )
