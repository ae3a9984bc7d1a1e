"""Where logs may lie: files, globs, folders and URLs; what comes is found, what goes is missed by nobody."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from flywheel.errors import IntakeError
from flywheel.intake import import_path, run_intake, unread_bytes
from flywheel.intake.places import files_at, shown, wanted


def record(n: int) -> bytes:
    row = {"messages": [{"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": f"a{n}"}], "id": f"c{n}"}
    return json.dumps(row).encode() + b"\n"


@pytest.fixture
def bucket() -> Iterator[MemoryFileSystem]:
    """fsspec's file system in memory, emptied before and after."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture
def at(make_deployment: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *logs: make_deployment(task={"logs": list(logs)})


def intake(deployment: Any) -> tuple[int, int]:
    """Kept and duplicate in the one configured log."""
    report = run_intake(deployment.config, deployment.home, deployment.registry, deployment.task).sources[-1]
    return report.kept, report.duplicate


def unread(deployment: Any) -> int:
    return unread_bytes(deployment.config, deployment.home, deployment.registry, deployment.task)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        *((f"a{suffix}", True) for suffix in (".jsonl", ".ndjson", ".json", ".csv", ".parquet")),
        *((f"a{suffix}{packed}", True) for suffix in (".jsonl", ".JSON", ".csv") for packed in (".gz", ".zst")),
        *((name, False) for name in ("a.txt", "a", "a.gz", "a.jsonl.bak", "a.parquet.gz", "jsonl", "a.gz.gz")),
    ],
)
def test_a_folder_is_read_by_known_names(name: str, read: bool) -> None:
    assert wanted(name) is read


def test_a_folder_is_read_to_its_bottom_and_new_files_are_picked_up(at: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    it = at(str(folder))
    assert (unread(it), intake(it)) == (0, (0, 0))
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "a.jsonl").write_bytes(record(1))
    (folder / "notes.txt").write_bytes(b"no log")
    assert (unread(it), intake(it)) == (len(record(1)), (1, 0))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(record(2)))
    assert (intake(it), intake(it), unread(it)) == ((1, 0), (0, 0), 0)


def test_a_file_that_goes_is_missed_by_nobody(at: Callable[..., Any], tmp_path: Path) -> None:
    for n in (1, 2):
        (tmp_path / f"{n}.jsonl").write_bytes(record(n))
    it = at(str(tmp_path / "*.jsonl"))
    assert intake(it) == (2, 0)
    (tmp_path / "1.jsonl").unlink()
    (tmp_path / "3.jsonl").write_bytes(record(3))
    assert (intake(it), unread(it)) == ((1, 0), 0)


def test_a_glob_takes_what_it_matches_at_any_depth_and_nothing_else(at: Callable[..., Any], tmp_path: Path) -> None:
    for n, name in enumerate(("a.log.gz", "x/y/b.log.gz", "x/c.log", ".hidden.log.gz")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(record(n)))
    assert [label for label, _ in files_at(f"{tmp_path}/**/*.log.gz")] == [
        f"{tmp_path}/{name}" for name in ("a.log.gz", "x/y/b.log.gz")
    ]
    assert intake(at(f"{tmp_path}/**/*.log.gz")) == (2, 0)


def test_a_path_that_is_there_is_no_glob_however_it_is_written(at: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "a[1].jsonl").write_bytes(record(1))
    assert intake(at(str(tmp_path / "a[1].jsonl"))) == (1, 0)


def test_a_file_url_is_a_path(at: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "with space.jsonl").write_bytes(record(1))
    assert intake(at(f"file://{tmp_path}/with%20space.jsonl")) == (1, 0)


def test_a_folder_behind_a_url_is_read_like_a_local_one(at: Callable[..., Any], bucket: MemoryFileSystem) -> None:
    bucket.pipe(
        {"/acme/llm/a.jsonl": record(1), "/acme/llm/deep/b.json.gz": gzip.compress(record(2)), "/acme/llm/c.txt": b"x"}
    )
    it = at("memory://acme/llm")
    assert (unread(it) > 0, intake(it), unread(it), intake(it)) == (True, (2, 0), 0, (0, 0))
    bucket.pipe("/acme/llm/a.jsonl", record(1) + record(3))
    bucket.pipe("/acme/llm/d.jsonl", record(4))
    bucket.rm("/acme/llm/deep/b.json.gz")
    assert (unread(it) > 0, intake(it), intake(it)) == (True, (2, 0), (0, 0))


def test_a_remote_file_that_was_replaced_is_read_again(at: Callable[..., Any], bucket: MemoryFileSystem) -> None:
    bucket.pipe("/acme/a.jsonl", record(1) + record(2))
    it = at("memory://acme/a.jsonl")
    assert intake(it) == (2, 0)
    bucket.pipe("/acme/a.jsonl", record(5) + record(2))
    assert intake(it) == (1, 1)


def test_a_glob_behind_a_url_takes_what_it_matches(at: Callable[..., Any], bucket: MemoryFileSystem) -> None:
    bucket.pipe({"/acme/1/a.jsonl": record(1), "/acme/2/b.jsonl": record(2), "/acme/2/b.json": record(3)})
    assert intake(at("memory://acme/*/*.jsonl")) == (2, 0)


def test_an_import_takes_a_url(deployment: Any, bucket: MemoryFileSystem) -> None:
    bucket.pipe("/acme/a.jsonl", record(1))
    found = import_path(
        deployment.config, deployment.home, deployment.registry, deployment.task, "memory://acme/a.jsonl"
    )
    assert (found.source, found.kept) == ("memory://acme/a.jsonl", 1)


def test_a_place_where_nothing_is_yet_has_nothing(at: Callable[..., Any], bucket: MemoryFileSystem) -> None:
    it = at("memory://acme/later/")
    assert (unread(it), intake(it)) == (0, (0, 0))


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("s3://acme/llm/", r"s3://acme/llm/: .*pip install s3fs"),
        ("nowhere://acme/llm", "nowhere://acme/llm: no such kind"),
    ],
)
def test_a_file_system_that_is_not_installed_is_named_with_what_to_install(
    at: Callable[..., Any], place: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(IntakeError, match=message):
        intake(at(place))


class Down(MemoryFileSystem):
    """Storage that answers with errors of its own kind."""

    protocol = "down"

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        raise RuntimeError("secret of the log")


def test_storage_that_is_down_fails_intake_by_name_and_no_sensor(
    at: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fsspec.register_implementation("down", Down, clobber=True)
    (tmp_path / "a.jsonl").write_bytes(record(1))
    it = at("down://acme/llm", str(tmp_path / "a.jsonl"))
    with pytest.raises(IntakeError, match=r"down://acme/llm: cannot be read: RuntimeError\Z"):
        intake(it)
    assert unread(it) == len(record(1))
    assert "down://acme/llm: cannot be read" in caplog.text
    assert "secret" not in caplog.text


def test_one_look_for_unread_bytes_lists_once_and_opens_nothing(
    at: Callable[..., Any], bucket: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.pipe({f"/acme/{n}.jsonl": record(n) for n in range(9)})
    listed: list[str] = []
    real = MemoryFileSystem.find
    monkeypatch.setattr(
        MemoryFileSystem, "find", lambda self, *args, **more: listed.append("") or real(self, *args, **more)
    )
    monkeypatch.setattr(MemoryFileSystem, "open", lambda *_, **__: pytest.fail("a look opened a file"))
    assert unread(at("memory://acme")) == sum(len(record(n)) for n in range(9))
    assert len(listed) == 1


def test_the_signature_in_a_web_address_is_neither_stored_nor_shown(
    deployment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Web(MemoryFileSystem):
        """A web server of one file, as fsspec shows one."""

        protocol = "https"

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return path

        def info(self, path: str, **_: Any) -> dict[str, Any]:
            return {"name": path, "type": "file", "size": len(record(1)), "ETag": "x"}

        def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
            assert path.endswith("?sig=secret")
            return fsspec.implementations.memory.MemoryFile(None, path, record(1))

    fsspec.register_implementation("https", Web, clobber=True)
    try:
        url = "https://acme.example/a.jsonl?sig=secret"
        found = import_path(deployment.config, deployment.home, deployment.registry, deployment.task, url)
    finally:
        fsspec.register_implementation("https", "fsspec.implementations.http.HTTPFileSystem", clobber=True)
    assert (found.kept, found.source) == (1, "https://acme.example/a.jsonl")
    raw = b"".join(path.read_bytes() for path in deployment.home.root.glob("*") if path.is_file())
    assert b"secret" not in raw.replace(b"secret.key", b"")


def test_what_begins_with_a_dot_below_a_folder_is_hidden_unless_the_place_names_it(
    tmp_path: Path, bucket: MemoryFileSystem
) -> None:
    for n, name in enumerate(("a.jsonl", ".b.jsonl", ".git/c.jsonl", "x/.y/d.jsonl")):
        path = tmp_path / ".logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(record(n))
        bucket.pipe(f"/acme/.logs/{name}", record(n))
    for root in (str(tmp_path), "memory:///acme"):

        def found(place: str, root: str = root) -> list[str]:
            return [label.removeprefix(f"{root}/.logs/") for label, _ in files_at(f"{root}/{place}")]

        assert found(".logs") == ["a.jsonl"]
        assert found(".logs/*.jsonl") == ["a.jsonl"]
        assert found(".logs/.*.jsonl") == [".b.jsonl"]
        assert found(".logs/.git") == [".git/c.jsonl"]
        assert found(".logs/.b.jsonl") == [".b.jsonl"]
    assert files_at("memory://acme") == []


def test_the_deployment_s_own_home_is_never_read_as_a_log(tmp_path: Path) -> None:
    (tmp_path / "home" / "suites").mkdir(parents=True)
    (tmp_path / "a.jsonl").write_bytes(record(1))
    (tmp_path / "home" / "suites" / "manifest.json").write_bytes(record(2))
    for place in (str(tmp_path), f"{tmp_path}/**/*.json*", f"{tmp_path}/home/suites"):
        own = [f"{tmp_path}/a.jsonl"] if place != f"{tmp_path}/home/suites" else []
        assert [label for label, _ in files_at(place, tmp_path / "home")] == own
        assert len(files_at(place)) > len(own)


def test_a_home_that_is_the_folder_with_everybodys_logs_hides_only_its_own(tmp_path: Path) -> None:
    for name in ("exports", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_bytes(record(1))
    assert [label for label, _ in files_at(str(tmp_path), tmp_path)] == [f"{tmp_path}/exports/a.jsonl"]


def test_a_place_around_the_home_gives_nothing_of_it_and_does_not_grow(make_deployment: Callable[..., Any]) -> None:
    it = make_deployment()
    around = it.home.root.parent
    (around / "mine.jsonl").write_bytes(record(1))
    (it.home.suites / "s.json").write_bytes(record(2))
    it = make_deployment(task={"logs": [str(around)]})
    assert intake(it) == (1, 0)
    assert (unread(it), intake(it)) == (0, (0, 0))
    found = import_path(it.config, it.home, it.registry, it.task, around)
    assert (found.duplicate, found.quarantined) == (0, 0)


def test_a_name_that_is_no_utf8_or_holds_a_newline_is_written_out(at: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    odd = os.fsdecode(os.fsencode(str(folder)) + b"/caf\xe9.jsonl")
    Path(odd).write_bytes(record(1) + b"broken\n")
    (folder / "two\nlines\x1b[1m.jsonl").write_bytes(record(2))
    (folder / "plain \u00e9.jsonl").write_bytes(record(3))
    it = at(str(folder))
    assert (intake(it), intake(it), unread(it)) == ((3, 0), (0, 0), 0)
    assert [label.removeprefix(f"{folder}/") for label, _ in files_at(str(folder))] == [
        "caf\\xe9.jsonl",
        "plain \u00e9.jsonl",
        "two\\nlines\\x1b[1m.jsonl",
    ]
    found = import_path(it.config, it.home, it.registry, it.task, odd)
    assert (found.source, found.duplicate, found.quarantined) == (f"{folder}/caf\\xe9.jsonl", 1, 1)


def test_a_web_address_that_nobody_answers_at_is_an_error_that_says_so(at: Callable[..., Any]) -> None:
    it = at("http://127.0.0.1:1/x.jsonl?sig=secret")
    told = r"http://127\.0\.0\.1:1/x\.jsonl: not found, or cannot be reached: \w+\Z"
    with pytest.raises(IntakeError, match=told):
        intake(it)
    assert unread(it) == 0


@pytest.mark.parametrize("place", ["https://user:PW@host.example/x.jsonl", "s3://key:PW@bucket/x"])
def test_a_password_in_an_imported_url_is_refused_and_not_shown(deployment: Any, place: str) -> None:
    at = deployment.config, deployment.home, deployment.registry, deployment.task
    with pytest.raises(IntakeError, match="a place holds no user or password") as refused:
        import_path(*at, place)
    assert "PW" not in str(refused.value)
    assert "user" not in shown(place)


def test_a_strange_file_with_an_odd_name_is_named_in_words_that_can_be_printed(deployment: Any, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(str(tmp_path)) + b"/caf\xe9\n.jsonl"))
    path.write_bytes(b'{"nothing": 1}\n')
    at = deployment.config, deployment.home, deployment.registry, deployment.task
    with pytest.raises(IntakeError) as refused:
        import_path(*at, path)
    assert str(refused.value).startswith(f"{tmp_path}/caf\\xe9\\n.jsonl: none of its first ")
    with pytest.raises(IntakeError, match="no such file") as gone:
        import_path(*at, f"{path}.gone")
    assert str(gone.value).isprintable()
