"""Children that end with their parent, whoever that is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from flywheel.store.home import process_started
from flywheel.store.processes import cores

CHILD = """
import sys, time
from flywheel.store.processes import die_with_parent
die_with_parent(int(sys.argv[1]))
print("alive", flush=True)
time.sleep(60)
"""
PARENT = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid())], stdout=subprocess.PIPE, text=True)
print(child.stdout.readline().strip(), child.pid, flush=True)
sys.stdin.read()
"""


def test_a_child_lives_beside_the_parent_that_it_was_told_and_dies_with_it() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    told, pid = parent.stdout.readline().split()
    assert told == "alive"
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 30
    while process_started(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not process_started(int(pid))


def test_a_child_whose_parent_is_gone_before_it_could_be_tied_ends_at_once() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    child = subprocess.run([sys.executable, "-c", CHILD, str(gone.pid)], capture_output=True, timeout=60)
    assert (child.returncode, child.stdout) == (-signal.SIGTERM, b"")


def test_a_parent_may_be_the_first_process_of_a_container() -> None:
    # What `getppid` says there is 1, as it does for an orphan elsewhere: only the parent's own word tells them apart.
    code = (
        "import os\nfrom flywheel.store import processes\nprocesses.os.getppid = lambda: 1\n"
        "processes.die_with_parent(1)\nprint('alive')"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert child.stdout == "alive\n"


def test_there_is_a_core_and_no_more_than_the_machine_has() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)
