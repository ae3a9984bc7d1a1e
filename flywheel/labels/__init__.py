"""Labels: what feedback says about each answer, once it has matured.

What is on disk after a crash: the label versions of the last finished run, and perhaps one segment file that no
registry row names. The next run makes the same versions again.
"""

from flywheel.labels.choices import answer_choices
from flywheel.labels.digest import labels_digest
from flywheel.labels.policy import policy_digest
from flywheel.labels.query import review_queue
from flywheel.labels.run import LabelsReport, labels_due, run_labels
from flywheel.labels.versions import current_labels, last_seq, pending_versions

__all__ = [
    "LabelsReport",
    "answer_choices",
    "current_labels",
    "labels_digest",
    "labels_due",
    "last_seq",
    "pending_versions",
    "policy_digest",
    "review_queue",
    "run_labels",
]
