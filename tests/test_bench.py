"""Every benchmark runs, and with ``--json`` ends in a line with its ratios and the peer's name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flywheel.models import ModelDir

BENCH = Path(__file__).parent.parent / "bench"
SMALL = {
    "engine": ["--tokens", "2", "--repeat", "1"],
    "gate": ["--gates", "3"],
    "intake": ["--records", "60", "--rounds", "1"],
    "labels": ["--interactions", "2000"],
    "neardup": ["--texts", "40"],
    "redact": ["--messages", "60"],
    "upstream": ["--requests", "4"],
}


def test_each_benchmark_is_tried_here() -> None:
    assert {path.stem for path in BENCH.glob("*.py")} == SMALL.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_ends_in_its_ratios_and_the_name_of_its_peer(name: str, tiny: ModelDir) -> None:
    model = ["--model", str(tiny.path)] if name == "engine" else []
    command = [sys.executable, str(BENCH / f"{name}.py"), *SMALL[name], *model, "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["benchmark"] == name and figures["peer"]
    rows = figures["formats"].values() if name == "intake" else [figures]
    for row in rows:
        assert row["ratios"] and all(ratio >= 0 for ratio in row["ratios"].values())
