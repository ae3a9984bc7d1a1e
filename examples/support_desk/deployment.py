"""The demo's folder and the ``flywheel up`` that runs in it. Whatever happens, no process outlives the demo."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from examples.support_desk.client import FLYWHEEL, DemoError, Gateway

FOLDER = Path(".flywheel-demo")
BOOT_LIMIT_S = 300.0
STOP_LIMIT_S = 40.0
PR_SET_PDEATHSIG = 1


@contextmanager
def fresh_folder(folder: Path = FOLDER) -> Iterator[Path]:
    """An empty folder that is ours for as long as the context lasts; an earlier demo's content is removed.

    Raises DemoError when another demo runs in it, or somebody looks at it with ``flywheel up``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "demo.lock").open("w") as ours:
        if not _free(ours.fileno()):
            raise DemoError(f"another demo runs in {folder.absolute()}; wait for it or stop it")
        for path in sorted((folder / "home" / "locks").glob("*.lock")):
            with path.open("r") as theirs:
                if not _free(theirs.fileno()):
                    raise DemoError(
                        f"a running Flywheel uses {folder.absolute()} ({path.name}); stop it first (Ctrl-C)"
                    )
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != "demo.lock":
                path.unlink()
        yield folder


@contextmanager
def running(config: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``flywheel up`` on the configuration; stopped as by Ctrl-C at the end, and killed if that takes too long."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("FLYWHEEL_HOME", "FLYWHEEL_CONFIG")
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*FLYWHEEL, "up", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches only the demo, which stops the rest in order
            preexec_fn=_die_with_parent,
        )
    try:
        yield process
    finally:
        _stop(process)


def wait_until_up(process: subprocess.Popen[bytes], gateway: Gateway, log: Path) -> None:
    """Wait for the gateway to serve. Raises DemoError with the end of the log when it does not come up."""
    deadline = time.monotonic() + BOOT_LIMIT_S
    while not gateway.healthy():
        if process.poll() is not None or time.monotonic() > deadline:
            state = "ended" if process.poll() is not None else f"did not serve within {BOOT_LIMIT_S:.0f} s"
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
            raise DemoError(f"`flywheel up` {state}; the end of {log}:\n{tail}")
        time.sleep(0.5)


def free_port(wanted: int) -> int:
    """``wanted`` if nobody listens there, else any free port."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise DemoError("no free TCP port on 127.0.0.1")


def _free(descriptor: int) -> bool:
    """Take the lock, if nobody has it. It goes with the file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        if process.poll() is not None:
            break
        process.send_signal(number)
        try:
            process.wait(STOP_LIMIT_S if number == signal.SIGINT else 5)
        except subprocess.TimeoutExpired:
            continue
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
