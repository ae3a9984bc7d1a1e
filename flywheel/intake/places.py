"""Where logs lie: local files, folders and globs, and whatever fsspec can reach by URL."""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import IO, Any, overload
from urllib.parse import urlsplit, urlunsplit
from urllib.request import url2pathname

import fsspec

from flywheel.config_values import is_url
from flywheel.errors import IntakeError
from flywheel.intake.reader import FileFault
from flywheel.store.home import OWN_FOLDERS

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".parquet")
"""What is read from a folder; all but Parquet also with ``.gz`` or ``.zst`` behind."""

_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_PASSWORD = re.compile(r"(?<=://)[^/?#]*@")
_PACKED = (".gz", ".zst")
_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "adlfs"),
    **dict.fromkeys(("http", "https"), "aiohttp"),
}


@dataclass(frozen=True)
class Status:
    """Facts that change when a file does, named as `os.stat_result` names them.

    Args:
        st_ino: of a remote file a number made from its ETag or version, 0 without one.
    """

    st_size: int
    st_mtime_ns: int
    st_ino: int

    @property
    def st_mtime(self) -> float:
        """Seconds since the epoch; 0 when the place does not tell."""
        return self.st_mtime_ns / 1e9


@dataclass(frozen=True, order=True)
class RemoteFile:
    """A file behind an fsspec URL, with the status that the listing gave it."""

    url: str
    status: Status

    def __str__(self) -> str:
        return shown(self.url)

    def stat(self) -> Status:
        """The status when it was listed: no further request."""
        return self.status

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open it for reading. Raises IntakeError when it cannot be reached."""
        with reached(self.url):
            system, path = _system(self.url)
            opened: IO[bytes] = system.open(path, mode)
            return opened


Readable = Path | RemoteFile


def files_at(place: str, home: Path | None = None) -> list[tuple[str, Readable]]:
    """Label and file of all that lies at a path, glob or URL, sorted; nothing there yet is an empty list.

    A folder holds what has one of `SUFFIXES`; a file or glob may have any name. What begins with a dot below a folder
    or glob is hidden. One listing, and nothing is opened.

    Args:
        home: a folder of which nothing is given out.

    Raises IntakeError when the place cannot be reached.
    """
    if place.lower().startswith("file:"):
        place = url2pathname(urlsplit(place).path)
    if is_url(place):
        remote = _remote(place)
        return [(str(item), item) for item in sorted(remote, key=lambda item: item.url)]
    with reached(place):
        return [(shown(str(item)), item) for item in sorted(_outside(home, _local(place)))]


class Files(Sequence[tuple[str, Readable]]):
    """`files_at` a place, listed at the first look at them and then kept: whoever only wants names asks nobody."""

    def __init__(self, place: str, home: Path | None = None) -> None:
        self.place, self.home = place, home

    @cached_property
    def _found(self) -> list[tuple[str, Readable]]:
        return files_at(self.place, self.home)

    @overload
    def __getitem__(self, place: int) -> tuple[str, Readable]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[tuple[str, Readable]]: ...
    def __getitem__(self, place: int | slice) -> tuple[str, Readable] | Sequence[tuple[str, Readable]]:
        return self._found[place]

    def __len__(self) -> int:
        return len(self._found)


def shown(place: str) -> str:
    """A place as it may be shown and stored.

    A web address without its query, which may hold a signature, and without a password; in a name, bytes that are no
    UTF-8 and control characters are written out.
    """
    place = _UNSHOWN.sub(_written_out, _PASSWORD.sub("", place))
    if not _is_web(place):
        return place
    return urlunsplit(urlsplit(place)._replace(query="", fragment=""))


def wanted(name: str) -> bool:
    """Whether a file of a folder is a log by its name."""
    lower = name.lower()
    plain = next((lower.removesuffix(end) for end in _PACKED if lower.endswith(end)), lower)
    return plain.endswith(SUFFIXES) and not (plain != lower and plain.endswith(".parquet"))


@contextmanager
def reached(place: object) -> Iterator[None]:
    """Turn whatever goes wrong at a place into an IntakeError that names it; a file that is gone stays what it is.

    What is not at a web address is an error: it says no more of a server that cannot be reached.
    """
    try:
        yield
    except (IntakeError, FileFault):
        raise
    except FileNotFoundError as error:
        if not _is_web(str(place)):
            raise
        why = type(error.__cause__ or error).__name__
        raise IntakeError(f"{shown(str(place))}: not found, or cannot be reached: {why}") from error
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise IntakeError(f"{shown(str(place))}: cannot be read: {why}") from error
    except Exception as error:  # each remote file system has errors of its own
        if not is_url(str(place)):
            raise
        raise IntakeError(f"{shown(str(place))}: cannot be read: {type(error).__name__}") from error


def _local(place: str) -> list[Path]:
    path = Path(place)
    if path.is_dir():
        below = (item for item in path.rglob("*") if wanted(item.name))
        return [item for item in below if not _hidden(item.relative_to(path).parts) and item.is_file()]
    if path.is_file() or not glob.has_magic(place):
        return [path] if path.is_file() else []
    found = glob.glob(place, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
    return [item for item in map(Path, found) if item.is_file()]


def _outside(home: Path | None, files: list[Path]) -> list[Path]:
    if home is None:
        return files
    own = [home.resolve() / name for name in OWN_FOLDERS]  # a home may well be the folder with everybody's logs
    ours = {
        folder: any(folder.resolve().is_relative_to(one) for one in own) for folder in {item.parent for item in files}
    }
    return [item for item in files if not ours[item.parent]]


def _hidden(parts: Sequence[str], named: Sequence[str] = ()) -> bool:
    """Whether one of the parts of a path begins with a dot, and the place does not name such a one itself."""
    own = [name for name in named if name.startswith(".")]
    return any(part.startswith(".") and not any(fnmatchcase(part, name) for name in own) for part in parts)


def _is_web(place: str) -> bool:
    return place.lower().startswith(("http://", "https://"))


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else ascii(found[0])[1:-1]


def _remote(place: str) -> list[RemoteFile]:
    web = _is_web(place)
    with reached(place):
        system, path = _system(place)
        system.invalidate_cache()
        if web:
            found = [(place, system.info(path))]
        elif glob.has_magic(path):
            found = [*system.glob(path, detail=True).items()]
        else:
            try:
                info = system.info(path)
            except FileNotFoundError:
                return []
            within = system.find(path, detail=True) if info["type"] == "directory" else {}
            found = [item for item in within.items() if wanted(item[0])] if within else [(path, info)]
        return [
            RemoteFile(place if web else system.unstrip_protocol(name), _status(place, info))
            for name, info in found
            if info["type"] == "file" and not _hidden(name.split("/"), path.split("/"))
        ]


def _system(url: str) -> tuple[Any, str]:
    scheme = url.partition("://")[0].rpartition("::")[2].lower()
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(url)
    except ImportError as error:
        package = _PACKAGES.get(scheme)
        what = f"`pip install {package}`" if package else "install fsspec's package for it"
        raise IntakeError(f"{shown(url)}: reading {scheme}:// needs another package: {what}") from error
    except ValueError as error:
        raise IntakeError(f"{shown(url)}: no such kind of place: {scheme}://") from error
    return found


def _status(place: str, info: dict[str, Any]) -> Status:
    """Size, time and version as far as a listing has them; file systems name them differently."""
    version = next((info[key] for key in ("ETag", "etag", "md5Hash", "generation", "crc32c") if info.get(key)), None)
    changed = next(
        (info[key] for key in ("LastModified", "mtime", "updated", "created", "Date") if info.get(key)), None
    )
    if info.get("size") is None:
        raise IntakeError(f"{shown(place)}: the server does not tell its size; fetch it to a file first")
    number = int.from_bytes(hashlib.sha256(str(version).encode()).digest()[:7], "big") if version else 0
    return Status(int(info["size"]), _nanoseconds(changed), number)


def _nanoseconds(changed: Any) -> int:
    if isinstance(changed, str):
        try:
            changed = datetime.fromisoformat(changed)
        except ValueError:
            return 0
    if isinstance(changed, datetime):
        changed = changed.timestamp()
    return int(changed * 1e9) if isinstance(changed, int | float) else 0
