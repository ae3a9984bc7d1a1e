"""The judge at work: which answers and pairs it is asked about, at most so many in a run, and when it gives up.

Conversations are drawn as the audit sample is, by a keyed hash: uniformly, and the same ones every time. Answers with
content that is no text are left out, since the judge would not see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

import pyarrow as pa

from flywheel.config_verify import JudgeEntry
from flywheel.intake.marks import PARTS
from flywheel.labels.verify.answers import Answer, read_answers
from flywheel.labels.verify.judge import Question, ask
from flywheel.labels.verify.looking import is_there, looked_at, newest_first, without
from flywheel.labels.verify.position import JUDGE
from flywheel.labels.verify.recorder import Recorder
from flywheel.labels.verify.verifying import FIRST, Held
from flywheel.labels.verify.words import REFUSED, pair_subject
from flywheel.store.home import audited
from flywheel.store.segments import query

ROUND = 32
"""Questions that are asked together, and whose verdicts are then written."""

KEY = f"judge/{JUDGE}"

_TEXT_ONLY = f"""status = 'ok' AND NOT contains(metadata, '"{PARTS}"')"""
_ONE = f"SELECT interaction_id, conversation_id FROM rows WHERE {_TEXT_ONLY} ORDER BY ts, interaction_id"
_TWO = f"""
SELECT interaction_id, conversation_id, prompt_hash, content_hash FROM rows WHERE {_TEXT_ONLY}
QUALIFY count(DISTINCT content_hash) OVER (PARTITION BY conversation_id, prompt_hash) > 1
ORDER BY conversation_id, prompt_hash, turn_index, choice_index, interaction_id
"""


@dataclass
class _Sitting:
    """One run of the judge.

    Args:
        left: questions that it may still be asked.
    """

    recorder: Recorder
    entry: JudgeEntry
    left: int
    seen: pa.Array
    secret: bytes
    held: Held = field(default_factory=Held)
    stopped: bool = False

    def drawn(self, conversation: str) -> bool:
        """Whether a conversation is among those that are judged."""
        return audited(self.secret, conversation, share=self.entry.share)

    def put(self, questions: Sequence[Question]) -> bool:
        """Ask, round by round, and take down what was said; False when some could not be asked."""
        may = questions[: self.left]
        for start in range(0, len(may), ROUND):
            if self.stopped:
                break
            found = ask(self.entry, may[start : start + ROUND])
            for word in found.words:
                if word is not None:
                    self.left -= 1
                    self.recorder.add(self.recorder.author(KEY), *self.held.after(word, failed=word.said == REFUSED))
            self.recorder.flush()
            if found.down:
                self._stop(f"got {found.down} from its endpoint")
            elif len(self.held.words) >= FIRST:
                self._stop("its endpoint refuses every question")
        return not self.stopped and len(may) == len(questions)

    def _stop(self, why: str) -> None:
        self.stopped = True
        self.recorder.note(f"judge: {why}; labels go on without it, and a later run asks on")


def let_judge(recorder: Recorder, entry: JudgeEntry) -> bool:
    """Ask the judge about pairs and answers that it has not seen; returns whether any are left to a later run.

    Raises ConfigError when its key is not in the environment.
    """
    if not entry.share:
        return False
    home, registry, task = recorder.home, recorder.registry, recorder.task
    seen = looked_at(home, registry, task, recorder.author(KEY))
    sitting = _Sitting(recorder, entry, entry.max_per_run, seen, home.secret())
    pairs = _pairs(sitting)
    whole = sitting.put(_texts(sitting, pairs[: sitting.left])) and len(pairs) <= entry.max_per_run
    for path in newest_first(registry, task):
        if recorder.has_seen(KEY, path) or not is_there(registry, path):
            continue
        if not whole:
            return True
        rows = query(home, registry, "interactions", task, _ONE, among=[path]).to_pylist()
        drawn = pa.array([row["interaction_id"] for row in rows if sitting.drawn(row["conversation_id"])], pa.string())
        unseen = without(drawn, seen)
        whole = sitting.put([*read_answers(home, registry, task, unseen, among=[path])] if unseen else [])
        if whole and not sitting.held.words:
            recorder.saw(KEY, path)
    return not whole or bool(sitting.held.words)


def _pairs(sitting: _Sitting) -> list[tuple[str, str]]:
    """Neighbouring answers to one prompt of one conversation, the earlier one first: choices, and what came instead."""
    recorder = sitting.recorder
    rows = query(recorder.home, recorder.registry, "interactions", recorder.task, _TWO).to_pylist()
    found: dict[str, tuple[str, str]] = {}
    for (conversation, _), group in groupby(rows, key=lambda row: (row["conversation_id"], row["prompt_hash"])):
        if sitting.drawn(conversation):
            for earlier, later in pairwise(group):
                if earlier["content_hash"] != later["content_hash"]:
                    ids = earlier["interaction_id"], later["interaction_id"]
                    found[pair_subject(*ids)] = ids
    return [found[subject] for subject in without(pa.array(found.keys(), pa.string()), sitting.seen)]


def _texts(sitting: _Sitting, pairs: Sequence[tuple[str, str]]) -> list[tuple[Answer, Answer]]:
    """The answers of some pairs."""
    recorder = sitting.recorder
    ids = {name for pair in pairs for name in pair}
    found = read_answers(recorder.home, recorder.registry, recorder.task, ids) if ids else ()
    by_id = {answer.interaction_id: answer for answer in found}
    return [(by_id[earlier], by_id[later]) for earlier, later in pairs if earlier in by_id and later in by_id]
