"""Erasure: one person's data leaves every store and dataset, and what has learned from it is named.

Each step finds what it takes by content, under the locks of the stages that write there, and may be killed anywhere:
the registry says that the erasure is unfinished, and running it again finishes it. What is on disk after a crash is
therefore a home in which some steps are done, intake drops the person, and no loop can start.
"""

from flywheel.erasure.run import Erasure, Plan, erase, plan_erasure
from flywheel.erasure.taint import TaskTaint, list_erasures, task_taints

__all__ = ["Erasure", "Plan", "TaskTaint", "erase", "list_erasures", "plan_erasure", "task_taints"]
