"""The registry: transactions that happen whole or not at all, from many processes at once."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import sqlalchemy as sa

from flywheel.errors import StoreError
from flywheel.store.registry import Registry, schema
from flywheel.store.registry.database import REVISION

WRITER = """
import sys
import sqlalchemy as sa
from flywheel.store.registry import Registry, schema

registry = Registry(sys.argv[1], actor=sys.argv[2])
mine = schema.champions.c.task == "counter"
for _ in range(int(sys.argv[3])):
    with registry.write() as tx:
        version = tx.scalar(sa.select(schema.champions.c.version).where(mine))
        tx.execute(sa.update(schema.champions).where(mine).values(version=version + 1))
"""


def champion(**fields: Any) -> dict[str, Any]:
    return {"task": "counter", "tenant": "", "release": "r", "version": 0, **fields}


def test_concurrent_writers_in_processes_lose_no_update(deployment: Any) -> None:
    with deployment.registry.write() as tx:
        tx.execute(sa.insert(schema.champions).values(**champion(), **tx.stamp()))
    rounds, writers = 40, 4
    children = [
        subprocess.Popen([sys.executable, "-c", WRITER, deployment.registry.url, f"w{number}", str(rounds)])
        for number in range(writers)
    ]
    assert [child.wait(timeout=120) for child in children] == [0] * writers
    with deployment.registry.read() as tx:
        assert tx.scalar(sa.select(schema.champions.c.version)) == rounds * writers


def test_a_failed_transaction_leaves_nothing(deployment: Any) -> None:
    with pytest.raises(RuntimeError), deployment.registry.write() as tx:
        tx.execute(sa.insert(schema.champions).values(**champion(), **tx.stamp()))
        raise RuntimeError
    with deployment.registry.read() as tx:
        assert tx.rows(sa.select(schema.champions)) == []


def test_a_reader_sees_one_state_while_a_writer_commits(deployment: Any) -> None:
    with deployment.registry.read() as reader:
        assert reader.rows(sa.select(schema.champions)) == []
        with deployment.registry.write() as tx:
            tx.execute(sa.insert(schema.champions).values(**champion(), **tx.stamp()))
        assert reader.rows(sa.select(schema.champions)) == []
    with deployment.registry.read() as reader:
        assert len(reader.rows(sa.select(schema.champions))) == 1


def test_every_row_says_who_wrote_it_and_where(deployment: Any) -> None:
    with deployment.registry.write() as tx:
        tx.execute(sa.insert(schema.champions).values(**champion(), **tx.stamp()))
    with deployment.registry.read() as tx:
        row = tx.row(sa.select(schema.champions))
    assert row is not None and (row["environment"], row["actor"]) == ("dev", "test") and row["at"].endswith("+00:00")


def test_sqlite_is_safe_against_power_cuts_and_waits_for_locks(deployment: Any) -> None:
    with deployment.registry.read() as tx:
        settings = {
            name: tx.connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 30000}


def test_a_write_transaction_takes_the_write_lock_at_once(deployment: Any) -> None:
    other = sa.create_engine(deployment.registry.url, connect_args={"timeout": 0})
    with deployment.registry.write(), other.connect() as connection, pytest.raises(sa.exc.OperationalError):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    other.dispose()


def test_the_migrations_make_exactly_the_declared_schema(deployment: Any) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with deployment.registry.read() as tx:
        assert compare_metadata(MigrationContext.configure(tx.connection), schema.metadata) == []


def test_a_new_registry_ends_at_the_revision_that_opening_looks_for(deployment: Any) -> None:
    with deployment.registry.read() as tx:
        assert tx.scalar(sa.text("select version_num from alembic_version")) == REVISION


def test_opening_a_migrated_registry_again_changes_nothing(deployment: Any) -> None:
    Registry.of(deployment.config).close()
    with deployment.registry.read() as tx:
        assert tx.scalar(sa.text("select count(*) from alembic_version")) == 1


def test_a_registry_of_a_newer_version_is_refused(deployment: Any) -> None:
    with deployment.registry.write() as tx:
        tx.execute(sa.text("update alembic_version set version_num = '9999'"))
    with pytest.raises(StoreError, match="cannot migrate the registry from 9999"):
        Registry.of(deployment.config)


def test_a_write_of_no_rows_does_nothing(deployment: Any) -> None:
    with deployment.registry.write() as tx:
        assert tx.execute(sa.insert(schema.champions), []) == 0
