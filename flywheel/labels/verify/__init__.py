"""Verifiers and judges: what looks at answers by itself, and says as feedback whether they are right.

What is on disk after a crash: the words up to the last ones written together, with the position that they mean, and
perhaps one segment file that no registry row names. The next run looks at the rest; nobody is asked twice for a word
that was written.
"""

from flywheel.labels.verify.agreement import agreement
from flywheel.labels.verify.checks import load_all
from flywheel.labels.verify.position import verifiers_due
from flywheel.labels.verify.report import VerifyReport
from flywheel.labels.verify.run import run_verifiers

__all__ = ["VerifyReport", "agreement", "load_all", "run_verifiers", "verifiers_due"]
