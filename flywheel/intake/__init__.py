"""Intake: production logs to interactions and feedback, every record accounted for.

What is on disk after a crash: the tables and positions of the last committed chunk, and perhaps segment files that no
registry row names. The next run reads the lost chunk again from its source and makes the same rows.
"""

from flywheel.intake.anew import import_again
from flywheel.intake.backfill import run_backfill
from flywheel.intake.digest import intake_digest
from flywheel.intake.pending import unread_bytes
from flywheel.intake.replay import ReplayReport, replay
from flywheel.intake.report import IntakeReport, SourceReport
from flywheel.intake.run import import_path, run_intake

__all__ = [
    "IntakeReport",
    "ReplayReport",
    "SourceReport",
    "import_again",
    "import_path",
    "intake_digest",
    "replay",
    "run_backfill",
    "run_intake",
    "unread_bytes",
]
