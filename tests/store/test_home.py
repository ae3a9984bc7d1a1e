"""The home folder: its key, what the key makes, and who is alive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from flywheel.config import parse_config
from flywheel.store.home import Home, boot_id, process_alive, process_started

RACE = """
import sys
from pathlib import Path
from flywheel.store.home import Home

sys.stdin.readline()
print(Home(Path(sys.argv[1])).secret().hex())
"""


def test_processes_that_race_for_the_key_all_get_the_same_one(tmp_path: Path) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    with ThreadPoolExecutor(4) as pool:
        keys = set(pool.map(lambda child: child.communicate("\n")[0].strip(), children))
    assert keys == {(tmp_path / "secret.key").read_bytes().hex()}
    assert [path.name for path in tmp_path.iterdir()] == ["secret.key"]


def test_a_new_home_is_for_its_owner_only_and_an_existing_one_is_left_as_it_is(tmp_path: Path) -> None:
    def mode_of_home(name: str) -> int:
        config = parse_config({"home": name, "tasks": {"router": {"base": "tiny"}}}, tmp_path / "flywheel.yaml")
        return Home.of(config).root.stat().st_mode & 0o777

    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o750)
    assert (mode_of_home("new"), mode_of_home("shared")) == (0o700, 0o750)


def test_the_key_is_for_the_owner_only_and_stays(tmp_path: Path) -> None:
    home = Home(tmp_path)
    key = home.secret()
    assert len(key) == 32 and home.secret() == key
    assert (tmp_path / "secret.key").stat().st_mode & 0o777 == 0o600


def test_a_user_key_is_stable_here_and_different_elsewhere(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = Home(tmp_path / "one"), Home(tmp_path / "two")
    assert one.user_key("mallory") == one.user_key("mallory") != two.user_key("mallory")
    assert one.user_key("mallory") != one.user_key("alice")
    assert one.user_key(None) == one.user_key("") == ""
    assert len(one.user_key("half a pair \ud800")) == 32


def test_the_audit_sample_is_a_stable_share(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ids = [f"chatcmpl-{number}" for number in range(2000)]
    drawn = {own for own in ids if home.audited(own, 0.3)}
    assert 500 < len(drawn) < 700
    assert drawn == {own for own in ids if home.audited(own, 0.3)}
    assert drawn <= {own for own in ids if home.audited(own, 0.4)}
    assert not any(home.audited(own, 0.0) for own in ids) and all(home.audited(own, 1.0) for own in ids)


def test_a_home_makes_its_folders(deployment: Any) -> None:
    home = deployment.home
    for folder in (home.log, home.data, home.datasets, home.checkpoints, home.runs, home.suites, home.evaluations):
        assert folder.is_dir() and folder.parent == home.root


def test_a_process_is_alive_until_it_is_not() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    started = process_started(child.pid)
    assert started and process_alive(boot_id(), child.pid, started)
    assert not process_alive(boot_id(), child.pid, str(int(started) + 1))  # a later namesake
    assert not process_alive("another boot", child.pid, started)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process_alive(boot_id(), child.pid, started)  # a zombie is dead
    child.communicate()
    assert not process_alive(boot_id(), child.pid, started)
