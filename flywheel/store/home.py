"""The home folder: where everything of one deployment lies."""

from __future__ import annotations

import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from flywheel.config import Config
from flywheel.store.files import write_atomic

OWN_FOLDERS = (
    *("log", "data", "datasets", "suites", "checkpoints", "evaluations", "runs", "locks", "dagster", "logs"),
)
"""Folders directly below a home that hold what a deployment writes itself."""


@dataclass(frozen=True)
class Home:
    """Paths inside one ``FLYWHEEL_HOME``."""

    root: Path

    @classmethod
    def of(cls, config: Config) -> Home:
        """The home a configuration names, created if missing, then for its owner alone: it holds what people wrote."""
        home = cls(Path(config.home))
        home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (home.log, home.data, home.datasets, home.checkpoints, home.runs, home.suites, home.evaluations):
            folder.mkdir(parents=True, exist_ok=True)
        return home

    @property
    def log(self) -> Path:
        """The gateway's write-ahead log: ``<boot>-<seq>.jsonl``."""
        return self.root / "log"

    @property
    def data(self) -> Path:
        """Parquet segments: ``<table>/task=<task>/day=<day>/<digest>.parquet``."""
        return self.root / "data"

    @property
    def datasets(self) -> Path:
        """``<digest>/{examples.parquet,manifest.json,card.md}``."""
        return self.root / "datasets"

    @property
    def suites(self) -> Path:
        """``<digest>.json``: the items of a suite."""
        return self.root / "suites"

    @property
    def checkpoints(self) -> Path:
        """``<digest>/{adapter_model.safetensors,adapter_config.json,manifest.json}``."""
        return self.root / "checkpoints"

    @property
    def evaluations(self) -> Path:
        """``<digest>.json``: scores per item."""
        return self.root / "evaluations"

    @property
    def runs(self) -> Path:
        """Working folders of training and evaluation children, by input digest."""
        return self.root / "runs"

    @property
    def locks(self) -> Path:
        """Lock files."""
        return self.root / "locks"

    @property
    def dagster(self) -> Path:
        """``DAGSTER_HOME`` of ``flywheel up``."""
        return self.root / "dagster"

    def secret(self) -> bytes:
        """The deployment's key: pseudonymises users and draws the audit sample. Made once, readable by the owner."""
        path = self.root / "secret.key"
        try:
            return path.read_bytes()
        except FileNotFoundError:
            candidate = self.root / f".secret.{os.getpid()}"
            write_atomic(candidate, secrets.token_bytes(32), mode=0o600)
            try:
                os.link(candidate, path)  # fails if another process was first: then theirs is the key
            except FileExistsError:
                pass
            finally:
                candidate.unlink()
            return path.read_bytes()

    def user_key(self, user: str | None) -> str:
        """Keyed hash of a caller's user id; ``""`` when there is none. 32 hex digits."""
        return user_key(self.secret(), user)

    def audited(self, interaction_id: str, share: float) -> bool:
        """Whether an interaction is in the uniform audit sample: a keyed hash, so nobody outside can aim at it."""
        return audited(self.secret(), interaction_id, share=share)


def user_key(secret: bytes, user: str | None) -> str:
    """``Home.user_key`` for a caller that holds the key."""
    return mac(secret, f"user|{user}").hex()[:32] if user else ""


def audited(secret: bytes, interaction_id: str, *, share: float) -> bool:
    """``Home.audited`` for a caller that holds the key."""
    return int.from_bytes(mac(secret, f"audit|{interaction_id}")[:8], "big") < share * 2**64


def mac(secret: bytes, text: str) -> bytes:
    """HMAC-SHA-256 of a text under the deployment's key."""
    return hmac.digest(secret, text.encode("utf-8", "surrogatepass"), "sha256")


def boot_id() -> str:
    """Identifies this boot of the machine, so that a recorded pid can be told from a later namesake."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def process_alive(recorded_boot: str, pid: int, started: str = "") -> bool:
    """Whether a process recorded as (boot id, pid, start ticks) still runs on this machine."""
    if recorded_boot != boot_id():
        return False
    now = process_started(pid)
    return bool(now) and (not started or now == started)


def process_started(pid: int) -> str:
    """Start time of a live, non-zombie process in clock ticks since boot, or ``""``."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]
