"""What a conversation shows about an answer that nobody judged: regenerated, accepted, thanked for, complained of.

Signs are derived from the turns that followed and never stored: a late turn may change which answer they are about. An
answer after which nothing followed was perhaps abandoned; that is unknown, not bad.

- The same prompt asked once more in the same conversation, with another answer: the first was regenerated.
- The conversation went on after an answer that came instead of another: it was accepted.
- The user's next message begins with thanks or with a complaint, as the policy's phrases have it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from flywheel.config_labels import PhrasePolicy
from flywheel.labels.evidence import SAYS, Row
from flywheel.store.home import Home
from flywheel.store.registry import Registry
from flywheel.store.segments import query

_REPEATED = """
SELECT interaction_id, conversation_id, prompt_hash, content_hash, response, user_key, ts, turn_index FROM rows
WHERE choice_index = 0 AND status = 'ok'
QUALIFY count(DISTINCT content_hash) OVER (PARTITION BY conversation_id, prompt_hash) > 1
ORDER BY conversation_id, prompt_hash, turn_index, interaction_id
"""

_FOLLOWED = """
SELECT interaction_id, parent_interaction_id, prompt_hash, request, user_key, ts FROM rows
WHERE choice_index = 0 AND parent_interaction_id IN (SELECT unnest($1)) ORDER BY ts, interaction_id
"""


@dataclass
class Signs:
    """What was found.

    Args:
        rows: implicit feedback by interaction, as `evidence` reads it.
        before: of an answer that came instead of another one, the id of that.
    """

    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    before: dict[str, str] = field(default_factory=dict)


def find_signs(
    home: Home, registry: Registry, task: str, spoken_about: Collection[str], phrases: PhrasePolicy
) -> Signs:
    """The signs of a task's conversations.

    Args:
        spoken_about: interactions with feedback. Other answers cannot be labelled by a message alone, so only for these
            and for answers that were regenerated is what followed looked at.
    """
    signs = Signs()
    repeated = query(home, registry, "interactions", task, _REPEATED).to_pylist()
    again: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in repeated:
        again[row["conversation_id"], row["prompt_hash"]].append(row)
    for turns in again.values():
        for earlier, later in pairwise(turns):
            if earlier["content_hash"] != later["content_hash"]:
                _note(signs, earlier["interaction_id"], "regenerate", None, later)
                signs.before[later["interaction_id"]] = earlier["interaction_id"]
    parents = sorted({*spoken_about, *signs.before})
    prompts = {row["interaction_id"]: row["prompt_hash"] for row in repeated}
    for row in query(home, registry, "interactions", task, _FOLLOWED, [parents]).to_pylist() if parents else []:
        about = row["parent_interaction_id"]
        if prompts.get(about) == row["prompt_hash"]:
            continue  # asked again: that is no next message
        if about in signs.before:
            _note(signs, about, "accept", None, row)
        if (thanked := _says(json.loads(row["request"])["messages"], phrases)) is not None:
            _note(signs, about, SAYS, thanked, row)
    return signs


def begins(text: str, phrases: Sequence[str]) -> bool:
    """Whether a text begins with one of the phrases, whatever the case, white space and kind of apostrophe."""
    start = " ".join(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").casefold().split())
    return start.startswith(tuple(phrase.casefold() for phrase in phrases))


def _says(messages: Sequence[dict[str, Any]], phrases: PhrasePolicy) -> bool | None:
    """Whether a user's message thanks (true) or complains (false); None when it does neither."""
    said = messages[-1].get("content")
    if messages[-1].get("role") != "user" or not isinstance(said, str):
        return None
    return False if begins(said, phrases.complaints) else True if begins(said, phrases.thanks) else None


def _note(signs: Signs, about: str, kind: str, value: bool | None, shown_by: Row) -> None:
    signs.rows[about].append(
        {
            "feedback_id": f"sign-{kind}-{shown_by['interaction_id']}",
            "target_kind": "interaction",
            "target_id": about,
            "kind": kind,
            "value": json.dumps(value),
            "text": "",
            "source": "implicit",
            "author_key": shown_by["user_key"],
            "ts": shown_by["ts"],
            "supersedes": "",
        }
    )
