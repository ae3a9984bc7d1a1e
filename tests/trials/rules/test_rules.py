"""Breaking every rule on purpose: for each rule, patches of a few lines, and the tests that turn red under them.

The patches are data: ``rule_NN.toml`` beside this file. Each is applied alone to a copy of the source tree, the tests
it names run there in a process of their own, and every one of them must fail: not be left out, and not stumble over an
import. A patch whose old text is not found exactly once is an error: the code has moved, and the patch must follow.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
PACKAGES = ("flywheel", "assets", "sensors")
MOST_LINES = 12
TEST_TIMEOUT_S = 300

WHERE = "import flywheel, assets, sensors; print(*(m.__file__ for m in (flywheel, assets, sensors)))"


@dataclass(frozen=True)
class Patch:
    """One way of breaking a rule.

    Attributes:
        breaks: what no longer holds, in words.
        file: where, from the root of the source tree.
        old, new: exact text found once in the file, and what takes its place.
        red: node ids of tests that must fail; without parameters, at least one case must.
    """

    rule: int
    title: str
    breaks: str
    file: str
    old: str
    new: str
    red: tuple[str, ...]


def read_patches() -> list[Patch]:
    """All patches, in order of their rules."""
    found = []
    for path in sorted(FOLDER.glob("rule_*.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        head = {"rule": table["rule"], "title": table["title"]}
        found += [Patch(**head, **entry | {"red": tuple(entry["red"])}) for entry in table["patch"]]
    return found


PATCHES = read_patches()
NAMES = [f"rule {patch.rule}: {patch.breaks}" for patch in PATCHES]


def copy_sources(folder: Path) -> None:
    """The files of the checkout, tracked or about to be, into a folder."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def environment(copy: Path) -> dict[str, str]:
    """The copy comes before the installed project, in this process and in every child of it. Nothing is compiled to
    disk: two versions of a file may have one size and one second."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "FLYWHEEL"))}
    quiet = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    return kept | quiet | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True)
class Outcome:
    """How the tests ended: the outcomes of their cases by node id, with parameters and without."""

    cases: dict[str, list[str]]
    output: str

    def having(self, outcome: str) -> set[str]:
        """Tests with a case that ended so."""
        return {name for name, outcomes in self.cases.items() if outcome in outcomes}


class Workshop:
    """A copy of the source tree to break things in."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.copy = folder, folder / "copy"
        copy_sources(self.copy)
        nursery = self.copy / FOLDER.relative_to(ROOT) / "nursery.py"
        self._process = subprocess.Popen(
            [sys.executable, str(nursery), str(self.copy), *PACKAGES],
            cwd=self.copy,
            env=environment(self.copy),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready"

    def run(self, tests: list[str]) -> Outcome:
        """Run tests in the copy. Outcomes are ``passed``, ``failed`` (the test itself), ``error`` (set-up, import, out
        of time), ``skipped``."""
        report, output = self.folder / "report.xml", self.folder / "output.txt"
        report.unlink(missing_ok=True)
        options = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=short", f"--timeout={TEST_TIMEOUT_S}"]
        options.append("--hypothesis-profile=first_failure")
        places = [f"--junit-xml={report}", f"--basetemp={self.folder / 'run'}"]
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"arguments": [*options, *places, *tests], "output": str(output)}) + "\n")
        self._process.stdin.flush()
        status, said = self._answer(), output.read_text(errors="replace")
        assert report.is_file(), f"pytest did not come to its end (status {status}):\n{said[-4000:]}"
        cases: dict[str, list[str]] = defaultdict(list)
        for case in ElementTree.parse(report).iter("testcase"):
            name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '')}"
            for called in {name, name.partition("[")[0]}:
                cases[called].append(_ended(case))
        return Outcome(dict(cases), said)

    @contextmanager
    def broken(self, patch: Patch) -> Iterator[None]:
        """The copy with one patch in it."""
        path = self.copy / patch.file
        before = path.read_text(encoding="utf-8")
        times = before.count(patch.old)
        assert times == 1, f"{patch.file} has the old text of this patch {times} times; the code has moved, follow it"
        after = before.replace(patch.old, patch.new)
        assert after != before
        compile(after, patch.file, "exec")  # a patch that is no Python breaks everything and shows nothing
        path.write_text(after, encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(before, encoding="utf-8")

    def close(self) -> None:
        """End the nursery."""
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def _ended(case: ElementTree.Element) -> str:
    """How a case ended. One that was stopped for its time is an ``error``: on a slow machine that shows nothing."""
    for child in case:
        if child.tag == "failure":
            return "error" if "Timeout" in child.get("message", "") else "failed"
        if child.tag in ("error", "skipped"):
            return child.tag
    return "passed"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """One for all patches: each is taken back before the next."""
    made = Workshop(tmp_path_factory.mktemp("rules"))
    yield made
    made.close()


def test_every_rule_has_small_patches_of_its_own() -> None:
    count = {number: sum(patch.rule == number for patch in PATCHES) for number in range(1, 13)}
    assert min(count.values()) >= 3, count
    assert len(set(NAMES)) == len(NAMES)
    for patch in PATCHES:
        assert patch.red and patch.file.split("/")[0] in PACKAGES, patch
        assert max(len(patch.old.splitlines()), len(patch.new.splitlines())) <= MOST_LINES, patch


def test_the_copy_is_what_is_imported_also_by_child_processes(workshop: Workshop, tmp_path: Path) -> None:
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WHERE!r}], cwd='/', check=True)"
    for code in (WHERE, child):
        command = [sys.executable, "-c", code]
        found = subprocess.run(
            command, cwd=tmp_path, env=environment(workshop.copy), check=True, capture_output=True, text=True
        )
        assert found.stdout.split() == [str(workshop.copy / name / "__init__.py") for name in PACKAGES]


def test_the_named_tests_pass_unpatched(workshop: Workshop) -> None:
    tests = sorted({name for patch in PATCHES for name in patch.red})
    outcome = workshop.run(tests)
    assert outcome.having("failed") | outcome.having("error") == set(), outcome.output[-8000:]
    assert set(tests) - outcome.having("passed") == set(), "some were not found, or skipped"


@pytest.mark.parametrize("patch", PATCHES, ids=NAMES)
def test_a_patch_that_breaks_the_rule_turns_its_tests_red(
    workshop: Workshop, patch: Patch, record_property: Callable[[str, Any], None]
) -> None:
    with workshop.broken(patch):
        outcome = workshop.run(list(patch.red))
    green = set(patch.red) - outcome.having("failed")
    assert not green, f"{patch.breaks}: {sorted(green)} did not fail\n{outcome.output[-4000:]}"
    record_property("red", (patch.rule, patch.title, patch.breaks, patch.red))
