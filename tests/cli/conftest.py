"""The command line in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flywheel.cli.__main__ import main


class Ran:
    """What a command printed and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def flywheel(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ran]:
    """``flywheel("status", "--json")`` runs the command in an empty folder, through the entry point of the package."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*words: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["flywheel", *map(str, words)])
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        return Ran(code, *capfd.readouterr())

    return run
