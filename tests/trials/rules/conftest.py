"""Shows, at the end of the run, which patch turned which test red."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    found = [
        value
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "red" and report.when == "call"
    ]
    if not found:
        return
    terminalreporter.section("rules broken on purpose")
    for rule, title in sorted({(rule, title) for rule, title, *_ in found}):
        terminalreporter.write_line(f"rule {rule}. {title}")
        for _, _, breaks, tests in (entry for entry in found if entry[0] == rule):
            names = [f"{PurePath(file).stem}::{test}" for file, _, test in (name.partition("::") for name in tests)]
            terminalreporter.write_line(f"    {breaks}")
            for name in names:
                terminalreporter.write_line(f"        red: {name}")
    terminalreporter.write_line(f"{len(found)} patches, each turned its tests red")
