"""One example while a dataset is being made: the stored columns plus what the steps compare it by.

There are three kinds. ``sft``: a prompt and the answer to learn. ``pair``: a prompt, the better of two answers and the
worse one. ``kto``: a prompt and the model's answer, which was found good or bad, for Kahneman-Tversky optimisation
(Ethayarajh et al. 2024, https://arxiv.org/abs/2402.01306). In all of them the last message is the answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from flywheel.datasets.prompts import Message, prompt_key, prompt_text, target_text
from flywheel.store.digests import canonical_json, digest
from flywheel.store.home import mac

SFT, PAIR, KTO = "sft", "pair", "kto"
KINDS = (SFT, PAIR, KTO)

ANONYMOUS = ""
"""User key of callers that named no user. They are nobody in particular: never linked, never counted as one user."""


@dataclass(frozen=True)
class Row:
    """One prompt with its target.

    ``text``, ``key`` and ``target`` are what near copies, equal inputs and equal answers are recognised by.
    ``example_id`` covers interaction, messages and tools, so a relabelled interaction is another example.

    Args:
        prompt_mac: `prompt_mac` of the prompt as it was before redaction; "" while it is ``text``.
        learned: places of earlier messages that are learned besides the answer.
        rejected: of a pair, the worse answer.
        desirable: of a ``kto`` row, whether the answer was good.
    """

    example_id: str
    interaction_id: str
    user_key: str
    conversation_id: str
    messages: tuple[Message, ...]  # the last one is the answer
    tools: tuple[Any, ...]
    text: str
    key: str
    target: str
    weight: float
    generated_by: str
    label_source: str = ""
    policy_digest: str = ""
    seq: int = 0
    cluster_id: str = ""
    side: str = "train"
    origin: str = "new"
    line: int = 0  # of the file that the row came from, when it came from one
    kind: str = SFT
    prompt_mac: str = ""
    learned: tuple[int, ...] = ()
    rejected: Message | None = None
    desirable: bool | None = None

    @property
    def self_generated(self) -> bool:
        """Whether the answer is a model's own."""
        return bool(self.generated_by)

    @property
    def preference(self) -> tuple[float, str]:
        """Sort key of which rows stay when some must go: heavier first, then by digest, which nobody can aim at."""
        return (-self.weight, self.example_id)

    @property
    def voter(self) -> str:
        """Who speaks through this row when labels contradict each other: the user, or else the conversation or line."""
        return self.user_key or f"conversation {self.conversation_id}|line {self.line}"


def make_row(
    messages: Sequence[Message],
    target: Message,
    tools: Sequence[Any] | None,
    *,
    interaction_id: str = "",
    user_key: str = ANONYMOUS,
    conversation_id: str = "",
    weight: float = 1.0,
    generated_by: str = "",
    label_source: str = "",
    policy_digest: str = "",
    seq: int = 0,
    line: int = 0,
    kind: str = SFT,
    rejected: Message | None = None,
    desirable: bool | None = None,
) -> Row:
    """A row of a prompt (system message included) and an answer."""
    whole = (*messages, target)
    beyond = [] if kind == SFT else [kind, rejected, desirable]
    return Row(
        example_id=digest([interaction_id, whole, list(tools or []), *beyond])[:32],
        interaction_id=interaction_id,
        user_key=user_key,
        conversation_id=conversation_id,
        messages=whole,
        tools=tuple(tools or ()),
        text=prompt_text(messages),
        key=prompt_key(messages, tools),
        target=target_text(target),
        weight=weight,
        generated_by=generated_by,
        label_source=label_source,
        policy_digest=policy_digest,
        seq=seq,
        line=line,
        kind=kind,
        rejected=rejected,
        desirable=desirable,
    )


def prompt_mac(secret: bytes, text: str) -> str:
    """Keyed hash of a prompt's text: equal prompts are known as such without the text. 32 hex digits."""
    return mac(secret, f"prompt|{text}").hex()[:32]


def rewritten(row: Row, messages: Sequence[Message], tools: Sequence[Any], rejected: Message | None) -> Row:
    """The row with other texts: its id, and what it is compared by, are those of the new ones."""
    *before, answer = messages
    made = make_row(
        before,
        answer,
        tools,
        interaction_id=row.interaction_id,
        kind=row.kind,
        rejected=rejected,
        desirable=row.desirable,
    )
    names = ("example_id", "messages", "tools", "text", "key", "target", "rejected")
    return replace(row, **{name: getattr(made, name) for name in names})


def to_columns(row: Row, secret: bytes) -> dict[str, Any]:
    """The row as columns of EXAMPLES; of rows other than ``sft`` nothing is learned as it stands."""
    last = len(row.messages) - 1
    learned = {*row.learned, last} if row.kind == SFT else set()
    columns = {
        "example_id": row.example_id,
        "interaction_id": row.interaction_id,
        "user_key": row.user_key,
        "conversation_id": row.conversation_id,
        # Keyed: a cluster is named by a digest of one of its raw texts, which could be guessed when it is short.
        "cluster_id": mac(secret, f"cluster|{row.cluster_id}").hex()[:32] if row.cluster_id else "",
        "prompt_mac": row.prompt_mac or prompt_mac(secret, row.text),
        "side": row.side,
        "kind": row.kind,
        "messages": canonical_json(row.messages).decode(),
        "tools": canonical_json(row.tools).decode() if row.tools else "",
        "train_mask": [place in learned for place in range(last + 1)],
        "rejected": canonical_json(row.rejected).decode() if row.rejected else "",
        "desirable": row.desirable,
        "weight": row.weight,
        "origin": row.origin,
        "generated_by": row.generated_by,
    }
    content = canonical_json([columns["messages"], columns["tools"], columns["rejected"]])
    columns["row_key"] = mac(secret, f"row|{content.decode()}").hex()[:32]
    return columns


def from_columns(columns: dict[str, Any]) -> Row:
    """The row behind stored columns, as an earlier dataset's example; label details are not stored with it."""
    messages = json.loads(columns["messages"])
    tools = json.loads(columns["tools"] or "[]")
    return Row(
        example_id=columns["example_id"],
        interaction_id=columns["interaction_id"] or "",
        user_key=columns["user_key"] or ANONYMOUS,
        conversation_id=columns["conversation_id"] or "",
        messages=tuple(messages),
        tools=tuple(tools),
        text=prompt_text(messages[:-1]),
        key=prompt_key(messages[:-1], tools),
        target=target_text(messages[-1]),
        weight=columns["weight"],
        generated_by=columns["generated_by"] or "",
        side=columns["side"],
        origin=columns["origin"],
        kind=columns["kind"],
        prompt_mac=columns["prompt_mac"] or "",
        learned=tuple(place for place, mask in enumerate(columns["train_mask"][:-1]) if mask),
        rejected=json.loads(columns["rejected"]) if columns["rejected"] else None,
        desirable=columns["desirable"],
    )


CONTENT = (
    "interaction_id",
    "conversation_id",
    "side",
    "kind",
    "messages",
    "tools",
    "train_mask",
    "rejected",
    "desirable",
    "weight",
    "origin",
    "generated_by",
)
"""Columns that a dataset's digest covers. Not `user_key`, `prompt_mac` and `row_key`, which differ between deployments
for equal traffic, nor `cluster_id`, whose name may change with texts that are not in the dataset."""


def content(columns: dict[str, Any]) -> dict[str, Any]:
    """What of a stored row the dataset's digest covers."""
    return {name: columns[name] for name in CONTENT}
