"""The gate: paired statistics, the rule that turns an evaluation into a verdict, and the decision record."""

from flywheel.gate.card import card, comparison_rows
from flywheel.gate.policy import Verdict, foresee, judge
from flywheel.gate.record import Decision, decide, load_decision, retire

__all__ = ["Decision", "Verdict", "card", "comparison_rows", "decide", "foresee", "judge", "load_decision", "retire"]
