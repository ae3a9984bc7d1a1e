"""Recall, precision and messages a second of redaction, against DataFog's patterns on the same messages.

    python bench/redact.py [--messages 12000] [--seed 1] [--locales en_US de_DE ...] [--json]

The messages are made by Faker in twelve locales, with published test vectors for cards and accounts, made-up keys of
over fifty vendors, and look-alikes (`bench/personal/`). A value counts as found when one span of its kind covers it
and no more than a bracket beside it. Names are not among the kinds: they need Presidio. Speed is that of conversations
of one message through `redact`, and of the peer's scan of the same texts, in seconds of one core. ``--json`` prints
one line of JSON last.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from personal.corpus import Item, Truth, make
from personal.values import LANGUAGES

from flywheel.datasets.redact import redact
from flywheel.datasets.redact.find import find
from flywheel.datasets.redact.spans import settle
from flywheel.datasets.redact.views import View

PEER = "DataFog 4 regex engine"
PEER_KINDS = {
    "EMAIL": "email",
    "PHONE": "phone",
    "CREDIT_CARD": "card",
    "IP_ADDRESS": "ip",
    "SSN": "national_id:us_ssn",
}
BESIDE = 2
ROUNDS = 3

Found = list[tuple[int, int, str]]


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=12_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--locales", nargs="+", choices=sorted(LANGUAGES), default=list(LANGUAGES))
    parser.add_argument("--misses", type=int, default=0, help="show that many values missed and wrongly found")
    parser.add_argument("--json", action="store_true", help="print one line of JSON last")
    options = parser.parse_args()
    items = list(make(options.messages, seed=options.seed, locales=options.locales))
    print(f"{len(items):,} messages, seed {options.seed}, {len(options.locales)} locales")
    print(f"{sum(len(item.text) for item in items) / len(items):.0f} characters on average")
    ours, theirs = score(items, _ours, options.misses), score(items, _peer(), 0, kinds=set(PEER_KINDS.values()))
    print(f"{'':<32}{'values':>8}{'recall':>9}{'precision':>11}   {PEER}: recall, precision")
    for kind, (values, recall, precision) in ours.items():
        peer = f"{theirs[kind][1]:>12.4f}{theirs[kind][2]:>9.4f}" if kind in theirs else ""
        print(f"{kind:<32}{values:>8}{recall:>9.4f}{precision:>11.4f}   {peer}")
    texts = [item.text for item in items]
    rates = {"Flywheel": _rate(texts, _redact), PEER: _rate(texts, _scan())}
    for name, rate in rates.items():
        print(f"{name:<32}{rate:>8,.0f} messages/s")
    ratio = rates["Flywheel"] / rates[PEER]
    print(f"{ratio:.2f} times the messages a second of {PEER}")
    if options.json:
        figures = {kind: {"values": n, "recall": r, "precision": p} for kind, (n, r, p) in ours.items()}
        speed = {name: round(rate) for name, rate in rates.items()}
        line = {"benchmark": "redact", "peer": PEER, "ratios": {"messages/s": round(ratio, 3)}}
        print(json.dumps({**line, "seed": options.seed, "kinds": figures, "messages_per_second": speed}))


def score(
    items: Iterable[Item], finder: Callable[[str], Found], misses: int, kinds: set[str] | None = None
) -> dict[str, tuple[int, float, float]]:
    """Values, recall and precision by kind; national ids and secrets also all together, and ``all``."""
    counts: dict[str, Counter[str]] = {"values": Counter(), "hit": Counter(), "found": Counter(), "right": Counter()}
    for item in items:
        found = finder(item.text)
        for truth in item.truths:
            hit = any(_covers(one, truth) for one in found)
            _count(counts["values"], truth.kind)
            if hit:
                _count(counts["hit"], truth.kind)
            elif misses:
                misses -= 1
                print(f"missed {truth.kind}: {item.text[truth.start : truth.end]!r} in {item.text!r}: {found}")
        for one in found:
            right = any(_covers(one, truth) for truth in item.truths)
            _count(counts["found"], one[2])
            if right:
                _count(counts["right"], one[2])
            elif misses and (kinds is None or one[2] in kinds):
                misses -= 1
                print(f"wrong {one[2]}: {item.text[one[0] : one[1]]!r} in {item.text!r}")
    values, hit, found_, right_ = counts.values()
    return {
        kind: (n, hit[kind] / n, right_[kind] / found_[kind] if found_[kind] else 1.0)
        for kind, n in sorted(values.items())
        if kinds is None or kind in kinds
    }


def _count(counter: Counter[str], kind: str) -> None:
    counter.update({kind, kind.partition(":")[0], "all"} if not kind.startswith("secret:") else {"secret", "all"})


def _covers(one: tuple[int, int, str], truth: Truth) -> bool:
    start, end, kind = one
    same = kind == truth.kind or (kind.startswith("secret:") and truth.kind.startswith("secret:"))
    return same and truth.start - BESIDE <= start <= truth.start and truth.end <= end <= truth.end + BESIDE


def _ours(text: str) -> Found:
    spans = settle(span for span in find(View(text).text) if span.sure)
    return [(span.start, span.end, span.kind.name) for span in spans]


def _redact(text: str) -> object:
    return redact([{"role": "user", "content": text}], key=b"bench", conversation="one")


def _scan() -> Callable[[str], Any]:
    import datafog

    return lambda text: datafog.scan(text, engine="regex")


def _peer() -> Callable[[str], Found]:
    scan = _scan()

    def found(text: str) -> Found:
        entities = scan(text).entities
        return [(one.start, one.end, PEER_KINDS[one.type]) for one in entities if one.type in PEER_KINDS]

    return found


def _rate(texts: Sequence[str], work: Callable[[str], object]) -> float:
    """Messages a second of a core, the best of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for text in texts:
            work(text)
        best = min(best, time.process_time() - start)
    return len(texts) / best


if __name__ == "__main__":
    main()
