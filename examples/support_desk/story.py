"""The story in acts: baseline, three loops of which the last has two parts, rollback and forward again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from examples.support_desk import measure
from examples.support_desk.measure import Accuracy, Live
from examples.support_desk.phrases import Material
from examples.support_desk.plan import SHOTS, TASK, Plan, Supply, mixed, spread
from examples.support_desk.simulator import Exchange, burst
from examples.support_desk.turn import Desk, agents, attackers, last_number, reviewers, watch_loop

SPARE_REVIEWS = 6
"""Reviewed beyond the suites' targets: a few may be near copies of what was trained on, and count no more."""


@dataclass(frozen=True)
class Turn:
    """One loop and what it did to live accuracy."""

    name: str
    loop: dict[str, Any]
    before: Live
    after: Live
    rows: int
    failed: int
    wrong_corrections: int = 0
    doubted: int = 0

    @property
    def promoted(self) -> bool:
        """Whether the candidate became the champion."""
        return bool(self.loop["verdict"] == "promote")

    @property
    def stopped(self) -> int:
        """Wrong corrections that did not get as far as the training data."""
        return self.doubted + self.capped_rows

    @property
    def capped_rows(self) -> int:
        """Examples that the caps on users and near copies kept out."""
        return int((self.loop["dataset"] or {}).get("caps", {}).get("capped_rows", 0))


@dataclass
class Story:
    """What the report is made of."""

    zero_shot: Accuracy | None = None
    few_shot: Accuracy | None = None
    turns: list[Turn] = field(default_factory=list)
    champion_kept: bool = False
    rolled_back: bool = False
    forward_again: bool = False

    @property
    def baseline(self) -> Accuracy:
        """The better of the two prompts."""
        return max((self.zero_shot or Accuracy(0, 0), self.few_shot or Accuracy(0, 0)), key=lambda one: one.value)


class Teller:
    """Plays the acts at the desk and fills the story."""

    def __init__(self, desk: Desk, material: Material, plan: Plan, story: Story) -> None:
        self.desk, self.material, self.plan, self.story = desk, material, plan, story
        self.supply = Supply(material)
        self._mark = (0, 0)
        self._customers = 0
        self._test = self.supply.take("unseen", spread(plan.test, material.initial))
        self._shots = self.supply.take("traffic", spread(SHOTS, material.initial))
        desk.background.add(self._background(material.initial))

    def baseline(self) -> None:
        """The untrained model with the queue list in its prompt, without and with solved examples."""
        self.desk.progress.phase("Baseline: the untrained model with the queue list in its prompt")
        for shots in ([], self._shots):
            found = measure.baseline(
                self.desk.gateway,
                self._test,
                shots,
                self.material.initial,
                self.plan.max_tokens,
                self._counter(f"{len(shots)} shots"),
            )
            if shots:
                self.story.few_shot = found
            else:
                self.story.zero_shot = found
            self.desk.progress.note(f"{len(shots)} solved examples: {found}")

    def first_loop(self) -> None:
        """Customers write, agents correct, the model learns the desk's queues."""
        self.desk.progress.phase("Loop 1: the desk's own queues")
        before = self._live(self._test)
        exchanges = self._customers_write(spread(self.plan.first, self.material.initial))
        said = agents(self.desk, exchanges, self.material.initial)
        said += reviewers(self.desk, exchanges, self.plan.gate + self.plan.golden + SPARE_REVIEWS)
        self._turn("1", before, said, self._test)

    def second_loop(self) -> None:
        """New queues appear; nobody told the model."""
        self.desk.progress.phase(f"Loop 2: new queues appear ({', '.join(self.material.later[:8])})")
        self.desk.background.add(self._background(self.material.later))
        self.desk.ledger.mark("queues", "new queues")
        self._test = self.supply.take("unseen", mixed(self.plan.test, self.material))
        before = self._live(self._test)
        exchanges = self._customers_write(mixed(self.plan.second, self.material))
        said = agents(self.desk, exchanges, self.material.queues)
        said += reviewers(self.desk, exchanges, self.plan.gate + SPARE_REVIEWS)
        self._turn("2", before, said, self._test)

    def poisoned_loops(self) -> None:
        """First a few users send hundreds of wrong corrections; then many users do, past the caps."""
        plan = self.plan
        self._test = self.supply.take("unseen", spread(plan.test, self.material.queues))
        acts = (
            ("3a", "a few users send hundreds of wrong corrections", plan.honest, plan.few_poison, plan.few_users),
            (
                "3b",
                "many users send wrong corrections, past the caps",
                plan.honest // 2,
                plan.many_poison,
                plan.many_users,
            ),
        )
        before: Live | None = None
        for name, title, honest, wrong, users in acts:
            self.desk.progress.phase(f"Loop {name}: {title}")
            champion = self.desk.cli.task()["champion"]["release"]
            before = before or self._live(self._test)
            exchanges = self._customers_write(spread(honest, self.material.queues))
            poisoned = self._write(spread(wrong, self.material.queues), [f"{name}-rogue-{n}" for n in range(users)])
            said = agents(self.desk, exchanges, self.material.queues) + attackers(poisoned, self.material.queues)
            said += reviewers(self.desk, [*exchanges, *poisoned], plan.gate + SPARE_REVIEWS)
            turn = self._turn(name, before, said, self._test, wrong=len(poisoned))
            before = turn.after
            doubted = self.desk.cli.doubted()
            turn = replace(turn, doubted=sum(exchange.answer.interaction_id in doubted for exchange in poisoned))
            self.story.turns[-1] = turn
            self.desk.progress.note(
                f"{len(poisoned)} wrong corrections by {users} users: {turn.doubted} of them not believed, "
                f"{turn.capped_rows} rows beyond the caps"
            )
            self.story.champion_kept = self.desk.cli.task()["champion"]["release"] == champion

    def there_and_back(self) -> None:
        """Roll back to the release before, then forward again, while customers write."""
        self.desk.progress.phase("Rollback, and forward again, live")
        current = self.desk.cli.task()["champion"]["release"]
        back = self.desk.cli.rollback()
        self.desk.ledger.mark("rollback", "rollback")
        self.story.rolled_back = self._served_by(back["release"]) and back["release"] != current
        forward = self.desk.cli.rollback(to=current)
        self.desk.ledger.mark("forward", "forward")
        self.story.forward_again = self._served_by(forward["release"]) and forward["release"] == current
        moves = " -> ".join(f"{move['kind']} {move['release'][:12]}" for move in self.desk.cli.history())
        self.desk.progress.note(f"champion history: {moves}")

    def _turn(self, name: str, before: Live, said: list[dict[str, Any]], test: Sequence[Any], wrong: int = 0) -> Turn:
        desk = self.desk
        number = last_number(desk.cli.task())
        desk.rng.shuffle(said)
        desk.gateway.post_feedback(said)
        desk.progress.note(f"{len(said)} pieces of feedback posted")
        loop = watch_loop(desk, after=number)
        desk.ledger.mark("promote" if loop["verdict"] == "promote" else "reject", f"loop {name}: {loop['verdict']}")
        for reason in loop["reasons"]:
            desk.progress.note(f"  {reason}")
        after = self._live(test)
        answered, _, failed = desk.ledger.counts()
        turn = Turn(name, loop, before, after, answered - self._mark[0], failed - self._mark[1], wrong)
        self._mark = (answered, failed)
        self.story.turns.append(turn)
        desk.progress.note(f"live accuracy {before.all} -> {after.all}")
        return turn

    def _live(self, test: Sequence[Any]) -> Live:
        return measure.live(self.desk.gateway, test, self.material.later, self._counter("test messages"))

    def _served_by(self, release: str) -> bool:
        found = self._live(self._test[:40])
        self.desk.progress.note(f"{', '.join(sorted(found.releases))} answers: {found.all}")
        return found.releases == {f"{TASK}@{release[:12]}"}

    def _customers_write(self, counts: Counter[str]) -> list[Exchange]:
        # Two messages per customer: real users come back, but none of them owns the data.
        users = [f"customer-{self._customers + n}" for n in range((counts.total() + 1) // 2)]
        self._customers += len(users)
        return self._write(counts, users)

    def _write(self, counts: Counter[str], users: Sequence[str]) -> list[Exchange]:
        messages = self.supply.take("traffic", counts)
        return burst(self.desk.gateway, messages, users, self._counter("messages"), seed=len(users))

    def _background(self, queues: Sequence[str]) -> list[Any]:
        return self.supply.take("unseen", Counter(dict.fromkeys(queues, self.plan.background_per_queue)))

    def _counter(self, what: str) -> Callable[[int, int], None]:
        return lambda done, total: self.desk.progress.count(what, done, total)
