"""The labelling policy in ``flywheel.yaml``: what each kind of evidence is worth, and when it is enough."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from flywheel.config_logs import Section
from flywheel.config_verify import JudgeEntry, VerifierEntry, each_once

StrongSource = Literal["reviewer", "verifier", "outcome", "correction"]
Source = Literal["verifier", "reviewer", "correction", "outcome", "thumb", "implicit", "judge"]
Hours = Annotated[float, Field(ge=0, allow_inf_nan=False)]
LogOdds = tuple[Annotated[float, Field(ge=0, le=20)], Annotated[float, Field(ge=-20, le=0)]]

COMPLAINTS = (
    *(
        "no, ",
        "nope",
        "wrong",
        "that's wrong",
        "that is wrong",
        "this is wrong",
        "not correct",
        "that's not",
        "that isn't",
    ),
    *("that is not", "this is not what", "not what i", "you misunderstood", "you didn't", "you did not", "i said"),
    *("i meant", "i asked for", "incorrect", "try again", "that didn't work", "that did not work", "doesn't work"),
)
THANKS = (
    "thanks",
    "thank you",
    "thx",
    "perfect",
    "that worked",
    "that works",
    "great, that",
    "exactly what i",
    "awesome",
)
REFUSALS = (
    *("i can't help with", "i cannot help with", "i can't assist with", "i cannot assist with", "i'm unable to help"),
    *("i am unable to help", "i'm sorry, but i can't", "i'm sorry, but i cannot", "sorry, but i can't help"),
    *("i won't help", "i will not help", "i can't provide", "i cannot provide"),
)


class WeightPolicy(Section):
    """Log-odds that an answer was good, after one piece of evidence for it and after one against it, by source."""

    verifier: LogOdds = (4.0, -4.0)
    reviewer: LogOdds = (3.0, -3.0)
    correction: LogOdds = (3.0, -3.0)
    outcome: LogOdds = (1.5, -2.0)
    thumb: LogOdds = (1.0, -1.5)
    implicit: LogOdds = (0.7, -0.7)
    judge: LogOdds = (1.0, -1.0)

    def of(self, source: Source, good: bool) -> float:
        """The log-odds of one piece of evidence."""
        odds: LogOdds = getattr(self, source)
        return odds[0 if good else 1]


class MaturityPolicy(Section):
    """Hours after an answer until evidence of a source is final, where that is later than for the others."""

    verifier: Hours = 0.0
    reviewer: Hours = 0.0
    correction: Hours = 0.0
    outcome: Hours = Field(168.0, ge=0, allow_inf_nan=False, description="what came of an answer may change for days")
    thumb: Hours = 0.0
    implicit: Hours = 0.0
    judge: Hours = 0.0


class EditPolicy(Section):
    """What the distance between an answer and its correction says: Levenshtein, as a share of the longer text."""

    accept_below: float = Field(0.02, ge=0, lt=1, description="so small an edit confirms the answer")
    rewrite_above: float = Field(0.6, gt=0, le=1, description="beyond this the answer was replaced: no preference pair")

    @model_validator(mode="after")
    def _in_order(self) -> EditPolicy:
        if self.accept_below >= self.rewrite_above:
            raise ValueError(f"accept_below {self.accept_below} is not below rewrite_above {self.rewrite_above}")
        return self


class PhrasePolicy(Section):
    """How messages begin that say something about an answer; compared without case, in whatever language they are."""

    complaints: tuple[str, ...] = Field(COMPLAINTS, description="a follow-up that begins so speaks against the answer")
    thanks: tuple[str, ...] = Field(THANKS, description="a follow-up that begins so speaks for the answer")
    refusals: tuple[str, ...] = Field(REFUSALS, description="an answer that begins so is a refusal, safe from thumbs")

    @field_validator("complaints", "thanks", "refusals")
    @classmethod
    def _some_text(cls, phrases: tuple[str, ...]) -> tuple[str, ...]:
        if not all(phrase.strip() for phrase in phrases):
            raise ValueError("an empty phrase begins every message")
        return phrases


class LabelPolicy(Section):
    """How feedback becomes labels. Its digest is part of every label."""

    maturity_hours: float = Field(
        24.0, ge=0, allow_inf_nan=False, description="a label closes this long after its interaction"
    )
    maturity_hours_of: MaturityPolicy = MaturityPolicy()
    audit_share: float = Field(0.02, ge=0, le=1, description="uniform share of traffic set aside for evaluation")
    gate_labels: tuple[StrongSource, ...] = Field(
        ("reviewer", "verifier", "outcome", "correction"),
        min_length=1,
        description="whose labels may put an audited interaction into the gate or golden suite",
    )
    base_rate: float = Field(0.5, gt=0, lt=1, description="share of answers that are good, before anybody spoke")
    weights: WeightPolicy = WeightPolicy()
    crowd_limit: float = Field(
        2.0, gt=0, description="log-odds that all thumbs, or outcomes, signs, judges, of one answer may add up to"
    )
    certain: float = Field(0.3, ge=0, lt=0.5, description="distance from 0.5 from which an answer teaches as a target")
    certain_kto: float = Field(
        0.2, ge=0, lt=0.5, description="distance from 0.5 from which it teaches as a good or bad answer, without a pair"
    )
    conversation_outcome: Literal["last", "every"] = Field(
        "last", description="turns that an outcome of a whole conversation speaks about; each as much as the last"
    )
    edits: EditPolicy = EditPolicy()
    phrases: PhrasePolicy = PhrasePolicy()
    verifiers: tuple[VerifierEntry, ...] = Field((), description="what tells right answers from wrong ones by itself")
    judge: JudgeEntry | None = Field(None, description="a model that says which answers are good")

    @field_validator("verifiers")
    @classmethod
    def _names(cls, verifiers: tuple[VerifierEntry, ...]) -> tuple[VerifierEntry, ...]:
        return each_once(verifiers)

    def hours(self, source: Source) -> float:
        """How long after an answer evidence of this source may still change."""
        own: float = getattr(self.maturity_hours_of, source)
        return max(self.maturity_hours, own)
