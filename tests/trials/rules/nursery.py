"""Pytest over and over in one folder, without importing the world each time.

``python nursery.py FOLDER PACKAGE...`` imports what is slow to import and is not under test, then reads jobs as JSON
lines, ``{"arguments": [...], "output": path}``. Each runs in a fork of this process, in which the packages must come
from the folder; its exit status is answered.
"""

import importlib
import json
import os
import sys
import threading
from pathlib import Path

SLOW = (
    "alembic.command",
    "dagster",
    "duckdb",
    "fastapi",
    "openai",
    "pyarrow.parquet",
    "torch",
    "transformers.models.llama.modeling_llama",
    "uvicorn",
)


def main() -> None:
    """Serve jobs until the input ends."""
    folder, *packages = sys.argv[1:]
    for name in SLOW:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork takes no threads along"
    assert not {name.split(".")[0] for name in sys.modules}.intersection(packages)
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(run(Path(folder), packages, job))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run(folder: Path, packages: list[str], job: dict[str, object]) -> int:
    """One job, in a process of its own; returns its exit status."""
    import pytest

    output = os.open(str(job["output"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for target, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
        os.dup2(source, target)
    for name in packages:
        place = Path(str(importlib.import_module(name).__file__))
        if folder not in place.parents:
            print(f"{name} comes from {place}, not from {folder}", flush=True)
            return 70
    status = int(pytest.main(job["arguments"]))  # type: ignore[arg-type]  # a list of strings, as read from JSON
    sys.stdout.flush()
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    main()
