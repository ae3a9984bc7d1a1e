"""The write-ahead log: JSON lines that are on disk before anybody is told so.

Every boot writes files of its own, ``<boot>-<seq>.jsonl``, and never appends to an older one, so a line that a crash
tore stays the last line of a closed file. One thread writes: it takes whatever has gathered, writes it as one block,
syncs once, and only then completes the futures. The writer holds an flock on the file it appends to, which is how a
reader tells a live file (an unterminated last line is 'not yet') from a closed one (it is torn).
"""

from __future__ import annotations

import fcntl
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flywheel.errors import StoreError
from flywheel.store.digests import canonical_json
from flywheel.store.files import fsync_folder

ROTATE_BYTES = 64 * 1024 * 1024
"""A file that has reached this size is closed and the next one opened."""

GROUP_RECORDS = 1024
"""At most this many records share one fsync, so that the first of them does not wait for an endless queue."""

Entry = tuple[bytes, "Future[None]"]

ROTATE = b""
"""In place of a line: give up the file."""


def new_boot() -> str:
    """A name for one run of a writer: sorts by time, never given twice."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}Z-{secrets.token_hex(4)}"


def is_live(path: Path) -> bool:
    """Whether a running writer may still append to this log file."""
    with path.open("rb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class WriteAheadLog:
    """An append-only log in one folder, for one writer process or several with a boot name each.

    Args:
        folder: ``home.log``.
        boot: this writer's name; made anew by default.
        rotate_bytes: size at which the next file begins.
        on_commit: called by the writer thread after each group with (seconds in write and fsync, records).

    Raises StoreError when the first file cannot be made.
    """

    def __init__(
        self,
        folder: Path,
        *,
        boot: str | None = None,
        rotate_bytes: int = ROTATE_BYTES,
        on_commit: Callable[[float, int], None] | None = None,
    ) -> None:
        self.folder = folder
        self.boot = boot or new_boot()
        self._rotate_bytes = rotate_bytes
        self._on_commit = on_commit
        self._seq = 0
        self._size = 0
        self._descriptor: int | None = None
        self._failed_at: float | None = None
        self._closed = False
        self._gate = threading.Lock()
        self._queue: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        try:
            self._open()
        except OSError as error:
            raise StoreError(f"{folder}: cannot open the log: {error.strerror}") from error
        self._writer = threading.Thread(target=self._run, name="write-ahead-log", daemon=True)
        self._writer.start()

    def append(self, record: dict[str, Any]) -> Future[None]:
        """Queue one record; the future completes once it is on disk.

        The future carries StoreError when the disk refused it: the record may or may not be in the log then, so the
        caller must not report success. A record that is not JSON raises at once.
        """
        line = canonical_json(record) + b"\n"
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # an impatient waiter cannot cancel what the writer is about to do
        with self._gate:
            if self._closed:
                raise StoreError(f"{self.folder}: the log is closed; the process is stopping")
            self._queue.put((line, future))
        return future

    def rotate(self) -> None:
        """Close the present file once all that was appended before this call is in it; the next append opens another.

        Raises StoreError when the log is closed.
        """
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._gate:
            if self._closed:
                raise StoreError(f"{self.folder}: the log is closed; the process is stopping")
            self._queue.put((ROTATE, future))
        future.result()

    def failing(self, within_s: float = 1.0) -> bool:
        """Whether the last group could not be written, less than ``within_s`` ago (older: worth another try)."""
        failed = self._failed_at
        return failed is not None and time.monotonic() - failed < within_s

    def close(self) -> None:
        """Write what is queued, then close the file. Later appends are refused; closing twice is fine."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._writer.join()

    def __enter__(self) -> WriteAheadLog:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _run(self) -> None:
        open_for_more = True
        while open_for_more:
            group: list[Entry] = []
            entry = self._queue.get()
            while entry is not None and entry[0] != ROTATE:
                group.append(entry)
                if len(group) == GROUP_RECORDS:
                    break
                try:
                    entry = self._queue.get_nowait()
                except queue.Empty:
                    break
            open_for_more = entry is not None
            if group:
                self._commit(group)
            if entry is not None and entry[0] == ROTATE:
                self._give_up_file()
                entry[1].set_result(None)
        self._give_up_file()

    def _commit(self, group: list[Entry]) -> None:
        started = time.perf_counter()
        try:
            self._write(b"".join(line for line, _ in group))
        except OSError as error:
            self._failed_at = time.monotonic()
            # What reached the file is unknown, and a reader may have seen part of it: it is never truncated, only
            # left behind. An empty one is kept, so that a full disk does not fill the folder with names.
            if self._size:
                self._give_up_file()
            for _, future in group:
                future.set_exception(StoreError(f"{self.folder}: cannot write the log: {error.strerror}"))
            return
        self._failed_at = None
        for _, future in group:
            future.set_result(None)
        if self._on_commit is not None:
            self._on_commit(time.perf_counter() - started, len(group))

    def _write(self, block: bytes) -> None:
        if self._descriptor is not None and self._size >= self._rotate_bytes:
            self._give_up_file()
        descriptor = self._open() if self._descriptor is None else self._descriptor
        rest = memoryview(block)
        while rest:
            written = os.write(descriptor, rest)
            self._size += written
            rest = rest[written:]
        os.fsync(descriptor)

    def _open(self) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.boot}-{self._seq:06d}.jsonl"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
        self._seq += 1
        descriptor = os.open(path, flags, 0o600)  # prompts and answers: for the owner's eyes
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            fsync_folder(self.folder)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor, self._size = descriptor, 0
        return descriptor

    def _give_up_file(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
