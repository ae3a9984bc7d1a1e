"""``flywheel up``: gateway, Dagster webserver and daemon together; one Ctrl-C stops all."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flywheel.cli.shared import ConfigOption, say
from flywheel.store.processes import die_with_parent

if TYPE_CHECKING:
    from flywheel.config import Config
    from flywheel.store.home import Home

STOP_AFTER_S = 25.0
RESTART_PAUSE_S = 2.0
PORT_WAIT_S = 5.0  # the parts of an `up` that was killed need a moment to leave
TEMPLATE = Path(__file__).parent / "templates" / "dagster.yaml"


@dataclass
class Part:
    """One supervised process: restarted when it dies, unless it may end the whole."""

    name: str
    command: list[str]
    essential: bool = False  # its first failure ends `up`, because nothing would work without it
    address: tuple[str, int] | None = None  # where it listens once it is ready
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    started: float = 0.0
    earlier: list[int] = field(default_factory=list)  # pids that died; a run they started may go on in their session

    def answers(self) -> bool:
        """Whether it accepts connections; a part without an address always does."""
        if self.address is None:
            return True
        try:
            with socket.create_connection(self.address, timeout=1):
                return True
        except OSError:
            return False


def up(
    config: ConfigOption = None,
    no_dagster: Annotated[bool, typer.Option("--no-dagster", help="only the gateway")] = False,
) -> None:
    """Start the gateway, the Dagster webserver and the Dagster daemon; stop all with one Ctrl-C."""
    from flywheel.config import config_path, load_config
    from flywheel.store.files import locked
    from flywheel.store.home import Home

    where = config_path(config)
    loaded = load_config(where)
    home = Home.of(loaded)
    with locked(home.locks / "up.lock", wait=False, holder="another `flywheel up` of this home"):
        _demand_free_port("gateway", loaded.gateway.host, loaded.gateway.port)
        if not no_dagster:
            _demand_free_port("dagster", loaded.dagster.host, loaded.dagster.port)
        environment = os.environ | {"FLYWHEEL_CONFIG": str(where), "DAGSTER_HOME": str(home.dagster)}
        workspace = _dagster_home(home)
        command = [sys.executable, "-m", "flywheel.cli.__main__", "serve", "--config", str(where)]
        parts = [Part("gateway", command, True, (loaded.gateway.host, loaded.gateway.port))]
        if not no_dagster:
            _bury_ghosts(environment)
            parts += _dagster_parts(loaded, workspace)
        _supervise(parts, environment, home, _lines(loaded, no_dagster))


def _demand_free_port(section: str, host: str, port: int) -> None:
    """Raise ConfigError when somebody else listens there: a part could never start, yet its address would answer."""
    from flywheel.errors import ConfigError

    deadline = time.monotonic() + PORT_WAIT_S
    while fault := _fault_of_address(host, port):
        if time.monotonic() >= deadline:
            raise ConfigError(f"cannot listen on {host}:{port}: {fault}; choose another {section}.port")
        time.sleep(0.2)


def _fault_of_address(host: str, port: int) -> str:
    """Why nothing can listen there, or an empty string."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _dagster_home(home: Home) -> Path:
    """Write DAGSTER_HOME's ``dagster.yaml`` and ``workspace.yaml``; returns the latter."""
    from flywheel.store.files import write_atomic

    write_atomic(home.dagster / "dagster.yaml", TEMPLATE.read_bytes())
    definitions = Path(__file__).parents[1] / "definitions.py"
    workspace = home.dagster / "workspace.yaml"
    # The location's name is part of every sensor's identity: it must be the same as in the project's own workspace.
    text = f"load_from:\n  - python_file:\n      relative_path: {definitions}\n      location_name: flywheel\n"
    write_atomic(workspace, text.encode())
    return workspace


def _bury_ghosts(environment: dict[str, str]) -> None:
    """Fail the runs whose process is gone, so that nothing queues behind them (needs Dagster: its own process)."""
    # A session of its own: on Ctrl-C it is ended by us, and prints no traceback of its own.
    subprocess.run([sys.executable, "-m", "sensors.ghosts"], env=environment, check=True, start_new_session=True)


def _dagster_parts(config: Config, workspace: Path) -> list[Part]:
    scripts = Path(sys.executable).parent
    address = ["--host", config.dagster.host, "--port", str(config.dagster.port)]
    return [
        Part("dagster-daemon", [str(scripts / "dagster-daemon"), "run", "-w", str(workspace)]),
        Part(
            "dagster-webserver",
            [str(scripts / "dagster-webserver"), "-w", str(workspace), *address],
            address=(config.dagster.host, config.dagster.port),
        ),
    ]


def _lines(config: Config, no_dagster: bool) -> list[str]:
    lines = [
        f"gateway     http://{config.gateway.host}:{config.gateway.port}/v1  (log: {config.home}/logs/gateway.log)"
    ]
    if not no_dagster:
        lines.append(f"Dagster UI  http://{config.dagster.host}:{config.dagster.port}")
    return [*lines, "Ctrl-C stops all of it."]


def _supervise(parts: list[Part], environment: dict[str, str], home: Home, lines: list[str]) -> None:
    stopping = False

    def stop(_signal: int, _frame: object) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    logs = home.root / "logs"
    logs.mkdir(exist_ok=True)
    failure = ""
    try:
        for part in parts:
            _start(part, environment, logs)
        say("starting; this takes some seconds")
        ready = False
        while not stopping and not failure:
            time.sleep(0.2)
            failure = _mend(parts, environment, logs)
            if not ready and (ready := all(part.answers() for part in parts)):
                for line in lines:
                    say(line)
    finally:
        _stop(parts)
    if failure:
        say(failure)
        raise typer.Exit(1)
    say("stopped")


def _start(part: Part, environment: dict[str, str], logs: Path) -> None:
    with (logs / f"{part.name}.log").open("ab") as log:
        # A session of its own: Ctrl-C reaches only the supervisor, which stops the parts in order. Should the
        # supervisor be killed, the kernel ends them.
        part.process = subprocess.Popen(
            part.command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
    part.started = time.monotonic()


def _mend(parts: list[Part], environment: dict[str, str], logs: Path) -> str:
    """Restart parts that died; the reason to end everything, or an empty string."""
    for part in parts:
        if part.process is None or part.process.poll() is None:
            continue
        lived = time.monotonic() - part.started
        what = f"{part.name} ended with code {part.process.returncode} (see {logs / (part.name + '.log')})"
        if part.essential and part.process.returncode > 0 and lived < 60:
            return f"{what}\n{_tail(logs / (part.name + '.log'))}"
        say(f"{what}; starting it again")
        part.earlier.append(part.process.pid)
        time.sleep(RESTART_PAUSE_S)
        _start(part, environment, logs)
    return ""


def _stop(parts: list[Part]) -> None:
    """Dagster first, so that no new run starts; then the gateway, which finishes its answers."""
    from flywheel.store.home import process_started

    for part in reversed(parts):
        if part.process is not None and part.process.poll() is None:
            part.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_AFTER_S
    for part in reversed(parts):
        if part.process is None:
            continue
        try:
            part.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            part.process.kill()
            part.process.wait()
        # What a part started lives in its session: Dagster's code servers and run workers outlive their parent.
        for session in (part.process.pid, *part.earlier):
            if not process_started(session):  # a living process of this number would be somebody else's by now
                with suppress(ProcessLookupError):
                    os.killpg(session, signal.SIGKILL)


def _tail(log: Path, lines: int = 5) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
