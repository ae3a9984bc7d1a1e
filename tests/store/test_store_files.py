"""Files that are whole or not there, and locks that end with their process."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from flywheel.errors import HomeBusy
from flywheel.store.files import locked, publish_folder, read_json, remove_tree, write_atomic, write_json


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def fail(_descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_secret_file_is_never_readable_by_others(tmp_path: Path) -> None:
    write_atomic(tmp_path / "key", b"x", mode=0o600)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_json_files_are_the_same_bytes_for_the_same_value(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": "ü", "a": 1})
    write_json(tmp_path / "b.json", {"a": 1, "b": "ü"})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert read_json(tmp_path / "a.json") == {"a": 1, "b": "ü"}


def test_publishing_a_folder_that_exists_keeps_the_first(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
        publish_folder(tmp_path / name, tmp_path / "final" / "digest")
    assert (tmp_path / "final" / "digest" / "file").read_text() == "one"
    assert not (tmp_path / "two").exists()


def test_removing_a_tree_does_not_follow_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "link").symlink_to(outside)
    remove_tree(tree)
    remove_tree(tree)
    assert not tree.exists() and (outside / "kept").exists()


def test_a_held_lock_is_refused_at_once_when_nobody_wants_to_wait(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "a.lock"
    with locked(lock), pytest.raises(HomeBusy, match="the gateway"), locked(lock, wait=False, holder="the gateway"):
        raise AssertionError
    with locked(lock, wait=False):
        pass


def _hold(lock: Path, held: multiprocessing.synchronize.Event) -> None:
    with locked(lock):
        held.set()
        signal.pause()


def test_a_killed_process_loses_its_lock(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    lock, held = tmp_path / "a.lock", context.Event()
    child = context.Process(target=_hold, args=(lock, held))
    child.start()
    assert held.wait(20)
    with pytest.raises(HomeBusy), locked(lock, wait=False):
        raise AssertionError
    child.kill()
    child.join()
    with locked(lock, wait=False):
        pass
