"""The judge's verdicts: every question in both orders, and a verdict only where both replies say the same.

One answer is called good or bad, with the two words named in either order. Of two answers one is better, with either in
the first place. Where the order decides there is no verdict: the position did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from flywheel.config_verify import JudgeEntry
from flywheel.labels.verify.answers import Answer
from flywheel.labels.verify.endpoint import Endpoint, Refused, Unreachable, connect
from flywheel.labels.verify.prompt import SIDES, VERDICTS, about_one, about_two, read_reply
from flywheel.labels.verify.words import FLIP, REFUSED, SILENT, UNREADABLE, Word

Question = Answer | tuple[Answer, Answer]
"""An answer, or an earlier and a later one to the same prompt."""


@dataclass(frozen=True)
class Round:
    """What some questions came to.

    Args:
        words: in the order of the questions; None where the endpoint could not be asked.
        down: what came from the endpoint instead of replies, or "".
    """

    words: list[Word | None]
    down: str = ""


def ask(entry: JudgeEntry, questions: Sequence[Question]) -> Round:
    """Put questions to the judge. Raises ConfigError when its key is not in the environment."""
    return asyncio.run(_ask(entry, questions))


async def _ask(entry: JudgeEntry, questions: Sequence[Question]) -> Round:
    async with connect(entry) as endpoint:
        asked = [_judge(endpoint, entry.rubric, question) for question in questions]
        found = await asyncio.gather(*asked, return_exceptions=True)
    for item in found:
        if isinstance(item, BaseException) and not isinstance(item, Unreachable):
            raise item
    down = next((str(item) for item in found if isinstance(item, Unreachable)), "")
    return Round([item if isinstance(item, Word) else None for item in found], down)


async def _judge(endpoint: Endpoint, rubric: str, question: Question) -> Word:
    if isinstance(question, Answer):
        return await _one(endpoint, rubric, question)
    return await _two(endpoint, rubric, *question)


async def _one(endpoint: Endpoint, rubric: str, answer: Answer) -> Word:
    orders = (about_one(rubric, answer, VERDICTS), about_one(rubric, answer, VERDICTS[::-1]))
    try:
        replies = await asyncio.gather(*(endpoint.ask(order) for order in orders))
    except Refused:
        return Word(answer.interaction_id, REFUSED)
    first, second = (read_reply(reply, VERDICTS) for reply in replies)
    if first is None or second is None:
        return Word(answer.interaction_id, UNREADABLE)
    return Word(answer.interaction_id, FLIP if first != second else first == VERDICTS[0])


async def _two(endpoint: Endpoint, rubric: str, earlier: Answer, later: Answer) -> Word:
    target, other = later.interaction_id, earlier.interaction_id
    if not (earlier.text.strip() and later.text.strip()) or earlier.text.strip() == later.text.strip():
        return Word(target, SILENT, other=other)  # calls of tools are not compared: a preference holds two texts
    orders = (about_two(rubric, earlier, later), about_two(rubric, later, earlier))
    try:
        replies = await asyncio.gather(*(endpoint.ask(order) for order in orders))
    except Refused:
        return Word(target, REFUSED, other=other)
    first, second = (read_reply(reply, SIDES) for reply in replies)
    if first is None or second is None:
        return Word(target, UNREADABLE, other=other)
    if first == second:  # the same letter is another answer
        return Word(target, FLIP, other=other)
    chosen, rejected = (earlier, later) if first == SIDES[0] else (later, earlier)
    return Word(target, {"chosen": chosen.text, "rejected": rejected.text}, other=other)
