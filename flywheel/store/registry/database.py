"""Opening the registry, and the one way to write to it.

On SQLite the driver's own transaction handling is off, readers see a WAL snapshot, and every write transaction is
``BEGIN IMMEDIATE`` with a 30 s busy timeout: deferred transactions were measured to lose updates in silence.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from flywheel.config import Config
from flywheel.errors import StoreError
from flywheel.store.files import locked
from flywheel.store.home import Home
from flywheel.store.registry.schema import utc_now

MIGRATIONS = Path(__file__).parent / "migrations"
REVISION = "0002"
"""The newest migration."""


@dataclass(frozen=True)
class Transaction:
    """An open transaction. ``rows``/``row``/``scalar`` read; ``execute`` writes."""

    connection: sa.Connection
    environment: str
    actor: str

    def stamp(self) -> dict[str, str]:
        """The environment, actor and time columns of a new or changed row."""
        return {"environment": self.environment, "actor": self.actor, "at": utc_now()}

    def execute(self, statement: sa.Executable, parameters: Sequence[dict[str, Any]] | None = None) -> int:
        """Run a write and return how many rows it touched."""
        if parameters is not None and not parameters:
            return 0
        result = self.connection.execute(statement, parameters) if parameters else self.connection.execute(statement)
        return int(getattr(result, "rowcount", 0))

    def rows(self, statement: sa.Select[Any]) -> list[dict[str, Any]]:
        """All rows as dictionaries by column name."""
        return [dict(row) for row in self.connection.execute(statement).mappings()]

    def row(self, statement: sa.Select[Any]) -> dict[str, Any] | None:
        """The first row, or None."""
        found = self.connection.execute(statement).mappings().first()
        return dict(found) if found is not None else None

    def scalar(self, statement: sa.Select[Any]) -> Any:
        """The first column of the first row, or None."""
        return self.connection.execute(statement).scalar()


class Registry:
    """The registry of one deployment.

    Args:
        url: SQLAlchemy URL.
        environment: written into every row (``dev``, ``staging``, ``production``).
        actor: who or what acts; default the operating-system user.
    """

    def __init__(self, url: str, *, environment: str = "dev", actor: str | None = None) -> None:
        self.url = url
        self.environment = environment
        self.actor = actor or os.environ.get("FLYWHEEL_ACTOR") or getpass.getuser()
        self._engine = _make_engine(url)

    @classmethod
    def of(cls, config: Config, *, actor: str | None = None) -> Registry:
        """Open (and create or migrate, when needed) the registry a configuration names."""
        home = Home.of(config)
        url = config.registry or f"sqlite:///{home.root / 'registry.db'}"
        try:
            registry = cls(url, environment=config.environment, actor=actor)
            with locked(home.locks / "migrate.lock"):
                registry.migrate()
        except (sa.exc.ArgumentError, sa.exc.DBAPIError, ImportError) as error:
            # Not the URL itself: it may hold a password.
            shown = "that `registry` in flywheel.yaml names" if config.registry else str(home.root / "registry.db")
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise StoreError(f"cannot open the registry {shown}: {reason}") from error
        return registry

    def migrate(self) -> None:
        """Bring the schema to this version. Raises StoreError when the database is newer than this code."""
        current = self._revision()
        if current == REVISION:
            return
        from alembic import command  # a quarter of a second that not every command should pay

        try:
            command.upgrade(_alembic_config(self.url), "head")
        except Exception as error:
            raise StoreError(
                f"{self.url}: cannot migrate the registry from {current} to {REVISION}: {error}"
            ) from error

    def _revision(self) -> str | None:
        with self._engine.connect() as connection:
            if not sa.inspect(connection).has_table("alembic_version"):
                return None
            current = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
        return None if current is None else str(current)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A write transaction: all of it happens or none."""
        with self._engine.connect() as connection:
            connection.execution_options(flywheel_write=True)
            with connection.begin():
                yield Transaction(connection, self.environment, self.actor)

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """A consistent snapshot."""
        with self._engine.connect() as connection, connection.begin():
            yield Transaction(connection, self.environment, self.actor)

    def settle(self) -> None:
        """Move what SQLite's log holds into the database file, so that old copies of rows linger nowhere.

        Does nothing for other databases, and as much as it can while other processes read.
        """
        if self._engine.dialect.name == "sqlite":
            connection = self._engine.raw_connection()
            try:
                connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
            finally:
                connection.close()

    def close(self) -> None:
        """Give back the connections."""
        self._engine.dispose()


def _alembic_config(url: str) -> Any:
    from alembic.config import Config as AlembicConfig

    config = AlembicConfig()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def _make_engine(url: str) -> sa.Engine:
    if not url.startswith("sqlite"):
        return sa.create_engine(url, pool_pre_ping=True)
    engine = sa.create_engine(url, connect_args={"timeout": 30, "check_same_thread": False})

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # SQLAlchemy's events below emit BEGIN themselves
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA busy_timeout=30000")
        cursor.execute("PRAGMA secure_delete=ON")  # what is deleted is overwritten: an erasure must not leave it behind
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        write = connection.get_execution_options().get("flywheel_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine
