"""Drawing the suites of a loop: which labelled audit items judge its candidate.

Golden items are drawn first, until there are enough, and are frozen from then on. The rest of the window makes the gate
suite. A loop draws once: a second attempt gets the same suites, whatever has arrived in between.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import sqlalchemy as sa

from flywheel.config import Config, SuitePolicy, TaskConfig
from flywheel.datasets.neardup import clusters, near_any
from flywheel.datasets.prompts import prompt_text
from flywheel.evaluation.items import Suite, SuiteItem, load_suite, make_item, make_suite, read_golden_file, write_suite
from flywheel.evaluation.life import ITEMS, SUITES, graduated, held_out, live_suite
from flywheel.evaluation.pool import Candidate, compare, draw_key, labelled
from flywheel.store.home import Home
from flywheel.store.registry import Registry, Transaction, schema

SELECTIONS = schema.selections

POWER = 0.8


@dataclass(frozen=True)
class SuiteSelection:
    """The suites of one loop.

    Attributes:
        missing: how many more labelled audit items the gate needs before it can decide; 0 when there are enough.
        counts: how many labelled audit items went where, and why others were left out.
    """

    gate: Suite
    golden: Suite
    missing: int
    counts: dict[str, int]

    @property
    def notes(self) -> tuple[str, ...]:
        """The counts in words, and what is missing."""
        lines = [f"{name}: {count}" for name, count in sorted(self.counts.items())]
        if self.missing:
            lines.insert(0, f"{self.missing} more labelled audit items are needed before the gate can decide")
        return tuple(lines)


def select_suites(
    config: Config,
    home: Home,
    registry: Registry,
    task: str,
    *,
    from_seq: int,
    to_seq: int,
    loop_id: str,
    lineage: Sequence[str],
) -> SuiteSelection:
    """Draw and record the suites of a loop, or return those it has.

    Args:
        from_seq, to_seq: the loop's window ``from_seq < seq <= to_seq`` of label versions.
        lineage: digests of the datasets the champion has learned; their near copies judge nobody.

    Raises EvaluationError when the operator's golden file, or a recorded suite file, is damaged.
    """
    policy = config.task(task)
    with registry.read() as tx:
        recorded = _recorded(tx, home, policy.suites, loop_id)
        states = {row["interaction_id"]: row for row in tx.rows(sa.select(ITEMS).where(ITEMS.c.task == task))}
        frozen = live_suite(tx, task, "golden")
    if recorded is not None:
        return recorded
    found, counts = labelled(config, home, registry, task, from_seq=from_seq, to_seq=to_seq)
    found, used = _without_spent(found, states, counts)
    found = compare(found, home, registry, task, lineage=lineage, threshold=policy.data.near_duplicate)
    known = load_suite(home, frozen).items if frozen is not None else ()
    if policy.suites.golden_file is not None:
        golden, rest = _from_file(Path(policy.suites.golden_file), policy), found
        counts["items of the golden file"] = len(golden)
    else:
        golden, rest = _draw_golden(home, policy, found, list(known), used)
        counts["newly drawn into the golden suite"] = len(golden) - len(known)
    gate = _draw_gate(home, policy, rest, used, counts)
    selection = _assemble(task, policy.suites, gate, golden, counts)
    for suite in (selection.gate, selection.golden):
        write_suite(home, suite)
    with registry.write() as tx:
        if (recorded := _recorded(tx, home, policy.suites, loop_id)) is not None:
            return recorded  # another attempt was faster
        _record(tx, task, loop_id, selection)
    return selection


def _without_spent(
    found: Iterable[Candidate], states: dict[str, dict[str, object]], counts: Counter[str]
) -> tuple[list[Candidate], dict[str, int]]:
    """The candidates that may still judge, and the number of uses of those that were drawn before."""
    free, used = [], {}
    for candidate in found:
        row = states.get(candidate.interaction_id)
        if row is not None and row["state"] == "graduated":
            counts["graduated"] += 1
        elif row is None or row["kind"] == "gate":
            free.append(candidate)
            if row is not None:
                used[candidate.interaction_id] = int(str(row["uses"]))
    return free, used


def _draw_golden(
    home: Home, policy: TaskConfig, found: Sequence[Candidate], known: list[SuiteItem], drawn: dict[str, int]
) -> tuple[list[SuiteItem], list[Candidate]]:
    """The golden items, old ones first, and the candidates left for the gate.

    An item is drawn by its own keyed hash, so the draw is uniform over time. Golden items are independent of one
    another: no near copies, one per conversation.
    """
    golden = list(known)
    conversations = {item.conversation_id for item in golden}
    texts = [prompt_text(item.messages) for item in golden]
    copies = near_any([c.text for c in found], texts, threshold=policy.data.near_duplicate) if texts else []
    taken = {candidate.cluster for candidate, is_copy in zip(found, copies, strict=False) if is_copy}
    chosen: set[str] = set()
    for candidate in sorted(found, key=lambda c: draw_key(home, "golden", c.interaction_id)):
        if len(golden) >= policy.suites.golden_target:
            break
        lucky = draw_key(home, "golden", candidate.interaction_id) < policy.suites.golden_share
        seen = candidate.near or candidate.large or candidate.interaction_id in drawn
        if not lucky or seen or candidate.cluster in taken or candidate.conversation_id in conversations:
            continue
        golden.append(_item(candidate, cluster=len(golden), novel=True))
        taken.add(candidate.cluster)
        conversations.add(candidate.conversation_id)
        chosen.add(candidate.interaction_id)
    return golden, [candidate for candidate in found if candidate.interaction_id not in chosen]


def _from_file(path: Path, policy: TaskConfig) -> list[SuiteItem]:
    """The operator's own golden items; of near copies the first decides."""
    rows = read_golden_file(path)
    ordinals = clusters([prompt_text(messages) for messages, _, _ in rows], threshold=policy.data.near_duplicate)
    items: dict[str, SuiteItem] = {}
    seen: set[int] = set()
    for (messages, tools, label), cluster in zip(rows, ordinals, strict=True):
        item = make_item("", "", messages, tools, label, cluster=cluster, novel=cluster not in seen)
        items.setdefault(item.item_id, item)
        seen.add(cluster)
    return list(items.values())


def _draw_gate(
    home: Home, policy: TaskConfig, found: Sequence[Candidate], used: dict[str, int], counts: Counter[str]
) -> list[SuiteItem]:
    """Up to ``gate_target`` items: one of each near-duplicate cluster decides, others are reported as repeats."""
    members: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in found:
        if candidate.near and not candidate.large:
            counts["near copy of training data"] += 1
        else:
            members[candidate.cluster].append(candidate)
    order = {c.interaction_id: draw_key(home, "gate", c.interaction_id) for c in found}
    fresh: list[Candidate] = []
    worn: list[Candidate] = []
    repeats: list[Candidate] = []
    for group in members.values():
        # An item that has judged before stands for its near copies: they are no fresh evidence.
        group.sort(key=lambda c: (-used.get(c.interaction_id, 0), order[c.interaction_id]))
        first, others = group[0], group[1:]
        if first.large:
            repeats.extend(group)
            continue
        (worn if used.get(first.interaction_id, 0) else fresh).append(first)
        repeats.extend(others)
    for pile in (fresh, worn, repeats):
        pile.sort(key=lambda c: order[c.interaction_id])
    target = policy.suites.gate_target
    novel = fresh[:target]
    if _reuse_pays(policy, len(novel), min(len(worn), target - len(novel))):
        novel += worn[: target - len(novel)]
    repeats = repeats[: target - len(novel)]
    groups = _groups([*novel, *repeats])
    counts["gate items that decide"] = len(novel)
    counts["gate items of them used before"] = sum(used.get(c.interaction_id, 0) > 0 for c in novel)
    counts["gate items that repeat"] = len(repeats)
    counts["beyond the gate's target"] = sum(map(len, members.values())) - len(novel) - len(repeats)
    deciding = {c.interaction_id for c in novel}
    return [
        _item(candidate, cluster=groups[candidate.interaction_id], novel=candidate.interaction_id in deciding)
        for candidate in (*novel, *repeats)
    ]


def _reuse_pays(policy: TaskConfig, fresh: int, worn: int) -> bool:
    """Whether adding used items shows smaller gains, although alpha is then divided by the suite's shelf life."""
    if not worn:
        return False
    if fresh < policy.suites.gate_min:
        return True

    def detectable(items: int, alpha: float) -> float:
        normal = NormalDist()
        return float((normal.inv_cdf(1 - alpha) + normal.inv_cdf(POWER)) / items**0.5)

    alpha = policy.gate.alpha
    return detectable(fresh + worn, alpha / policy.suites.max_uses) < detectable(fresh, alpha)


def _groups(chosen: Sequence[Candidate]) -> dict[str, int]:
    """Ordinal of each item's group of dependent items: near copies, and turns of one conversation, linked together."""
    group: dict[str, str] = {}

    def root(name: str) -> str:
        while group.setdefault(name, name) != name:
            name = group[name]
        return name

    for candidate in chosen:
        one, other = root(f"cluster {candidate.cluster}"), root(f"conversation {candidate.conversation_id}")
        group[max(one, other)] = min(one, other)
    roots = [root(f"cluster {candidate.cluster}") for candidate in chosen]
    ordinals = {name: ordinal for ordinal, name in enumerate(dict.fromkeys(roots))}
    return {candidate.interaction_id: ordinals[name] for candidate, name in zip(chosen, roots, strict=True)}


def _item(candidate: Candidate, *, cluster: int, novel: bool) -> SuiteItem:
    return make_item(
        candidate.interaction_id,
        candidate.conversation_id,
        candidate.messages,
        candidate.tools,
        candidate.label,
        cluster=cluster,
        novel=novel,
    )


def _assemble(
    task: str, policy: SuitePolicy, gate: Sequence[SuiteItem], golden: Sequence[SuiteItem], counts: Counter[str]
) -> SuiteSelection:
    suite = make_suite(task, "gate", gate)
    missing = max(0, policy.gate_min - suite.novel())
    return SuiteSelection(suite, make_suite(task, "golden", golden), missing, dict(+counts))


def _recorded(tx: Transaction, home: Home, policy: SuitePolicy, loop_id: str) -> SuiteSelection | None:
    row = tx.row(sa.select(SELECTIONS).where(SELECTIONS.c.loop_id == loop_id))
    if row is None:
        return None
    gate, golden = load_suite(home, row["gate"]), load_suite(home, row["golden"])
    return SuiteSelection(gate, golden, max(0, policy.gate_min - gate.novel()), row["counts"])


def _record(tx: Transaction, task: str, loop_id: str, selection: SuiteSelection) -> None:
    """One transaction: items live, suites live and their forerunners retired, and which loop drew them."""
    known = {row["interaction_id"] for row in tx.rows(sa.select(ITEMS.c.interaction_id).where(ITEMS.c.task == task))}
    for suite in (selection.gate, selection.golden):
        for item in suite.items:
            mine = sa.and_(ITEMS.c.task == task, ITEMS.c.interaction_id == item.interaction_id)
            if item.interaction_id not in known:
                row = {"task": task, "interaction_id": item.interaction_id, "kind": suite.kind, "state": "live"}
                tx.execute(sa.insert(ITEMS).values(**row, uses=0, loop_id=loop_id, **tx.stamp()))
            elif suite.kind == "gate":
                tx.execute(sa.update(ITEMS).where(mine).values(loop_id=loop_id))
        same_kind = sa.and_(SUITES.c.task == task, SUITES.c.kind == suite.kind)
        tx.execute(sa.update(SUITES).where(same_kind, SUITES.c.state == "live").values(state="retired"))
        if tx.execute(sa.update(SUITES).where(SUITES.c.digest == suite.digest).values(state="live")) == 0:
            size = len(suite.items)
            tx.execute(
                sa.insert(SUITES).values(
                    digest=suite.digest, task=task, kind=suite.kind, items=size, state="live", uses=0, **tx.stamp()
                )
            )
    drawn = {"gate": selection.gate.digest, "golden": selection.golden.digest, "counts": selection.counts}
    tx.execute(sa.insert(SELECTIONS).values(loop_id=loop_id, task=task, **drawn, **tx.stamp()))


__all__ = ["Suite", "SuiteItem", "SuiteSelection", "graduated", "held_out", "select_suites"]
