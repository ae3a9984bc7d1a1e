"""What an evaluation leaves behind: the score file, named by the digest of its content.

A score file holds ordinals and scores only. It never holds text or users, so erasing a person's rows leaves it whole
and a decision can be recomputed from it for ever.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from flywheel.errors import EvaluationError
from flywheel.store.digests import digest
from flywheel.store.files import read_json, write_json
from flywheel.store.home import Home

SCHEMA_VERSION = 1

Slice = Literal["novel", "repeat"]


class SuiteScores(BaseModel):
    """Scores of two releases on one suite; position in each list is the item's ordinal in the suite file.

    Attributes:
        clusters: ordinal of the group of dependent items (one conversation, near copies) that the item belongs to.
        slices: ``novel`` items decide; ``repeat`` items are reported.
        champion: 0 or 1 per item.
        candidate: 0 or 1 per item.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    suite: str
    kind: str
    clusters: list[int]
    slices: list[Slice]
    champion: list[int]
    candidate: list[int]

    def only(self, wanted: Slice) -> SuiteScores:
        """The items of one slice."""
        keep = [index for index, name in enumerate(self.slices) if name == wanted]
        columns = {name: [getattr(self, name)[index] for index in keep] for name in _COLUMNS}
        return self.model_copy(update=columns)

    def independent(self) -> int:
        """How many clusters of dependent items there are."""
        return len(set(self.clusters))

    def fault(self) -> str | None:
        """What is wrong with these scores as evidence, in words, or None."""
        lengths = {name: len(getattr(self, name)) for name in _COLUMNS}
        if len(set(lengths.values())) != 1:
            counts = ", ".join(f"{count} {name}" for name, count in sorted(lengths.items()))
            return f"the {self.kind} suite's columns disagree on the number of items: {counts}"
        if not set(self.champion) | set(self.candidate) <= {0, 1}:
            return f"the {self.kind} suite has scores other than 0 and 1"
        return None


_COLUMNS = ("clusters", "slices", "champion", "candidate")


class Scores(BaseModel):
    """The whole content of a score file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA_VERSION
    task: str
    tenant: str = ""
    input_digest: str
    champion: str
    candidate: str
    pointer_version: int
    scorer: str
    decode: dict[str, int]
    gate: SuiteScores
    golden: SuiteScores

    def digest(self) -> str:
        """Names the evaluation: equal specification and equal scores give an equal digest."""
        return digest(self.model_dump(mode="json"))


def scores_path(home: Home, evaluation: str) -> Path:
    """Where an evaluation's score file lies."""
    return home.evaluations / f"{evaluation}.json"


def write_scores(home: Home, scores: Scores) -> str:
    """Write the score file durably under its digest, and return the digest."""
    name = scores.digest()
    write_json(scores_path(home, name), scores.model_dump(mode="json"))
    return name


def load_scores(home: Home, evaluation: str) -> Scores:
    """Read a score file and check that it is what its name says.

    Raises EvaluationError when it is missing, malformed or not what the digest names.
    """
    path = scores_path(home, evaluation)
    try:
        scores = Scores.model_validate(read_json(path))
    except FileNotFoundError:
        raise EvaluationError(f"{path}: the score file is missing; evaluate again") from None
    except (json.JSONDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise EvaluationError(f"{path}: not a score file of this version; evaluate again") from error
    if (found := scores.digest()) != evaluation:
        raise EvaluationError(f"{path}: the content has digest {found}, not its name; it was changed after the run")
    return scores


def accuracies(scores: SuiteScores) -> dict[str, Any]:
    """Items and accuracy of both releases, for summaries."""
    n = len(scores.champion)
    return {
        "items": n,
        "novel": scores.slices.count("novel"),
        "champion": sum(scores.champion) / n if n else None,
        "candidate": sum(scores.candidate) / n if n else None,
    }
