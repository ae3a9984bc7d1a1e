"""What the benchmark measures, at a size for every day."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench" / "redact.py"


@pytest.mark.parametrize("seed", ["1", "2026"])
def test_of_made_up_messages_in_twelve_locales_nearly_all_values_are_found_and_little_else(seed: str) -> None:
    command = [sys.executable, str(BENCH), "--messages", "3000", "--seed", seed, "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert set(figures["kinds"]) >= {"email", "phone", "card", "iban", "national_id", "ip", "crypto", "secret"}
    for kind, scores in figures["kinds"].items():
        if scores["values"] >= 100:
            assert scores["recall"] >= 0.99 and scores["precision"] >= 0.98, (kind, scores)
    assert figures["kinds"]["all"]["recall"] >= 0.99
    assert figures["kinds"]["all"]["precision"] >= 0.98
