from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from flywheel.datasets import load_examples
from flywheel.errors import DatasetError
from flywheel.store.registry import schema
from flywheel.store.tables import EXAMPLES

# Builds in a process of its own that kills itself when it is about to call the named function for the given time.
CHILD = """
import os, signal, sys
from flywheel.config import load_config
from flywheel.datasets import HeldOut, build, publish
from flywheel.store.home import Home
from flywheel.store.registry import Registry

path, seq, name, calls = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
config = load_config(path)
home, registry = Home.of(config), Registry.of(config)
module = sys.modules["flywheel.datasets.publish"]
real = getattr(module, name)

def fatal(*args, **kwargs):
    global calls
    calls -= 1
    if not calls:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **kwargs)

setattr(module, name, fatal)
build(config, home, registry, "support_router", from_seq=0, to_seq=seq, loop_id="support_router/1", parent=None,
      lineage=[], held_out=HeldOut())
"""

CONFIG = """
home: {home}
tasks:
  support_router:
    base: tiny
    prompt: Route the message to a queue.
    data: {{min_examples: 1}}
"""


@pytest.mark.parametrize(
    ("function", "calls"),
    [("write_atomic", 2), ("write_json", 1), ("publish_folder", 1), ("load_manifest", 1)],
)
def test_a_build_killed_anywhere_gives_the_same_dataset_when_run_again(
    make_world: Callable[..., Any], tmp_path: Any, function: str, calls: int
) -> None:
    undisturbed = make_world("calm")
    undisturbed.teach_many(12)
    expected = undisturbed.build()

    world = make_world("killed")
    world.teach_many(12)
    world.commit()
    config = tmp_path / "flywheel.yaml"
    config.write_text(CONFIG.format(home=world.at.home.root))
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(config), str(world.seq), function, str(calls)], capture_output=True, text=True
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    published = [path for path in world.at.home.datasets.iterdir() if not path.name.startswith(".")]
    assert all((path / "manifest.json").exists() for path in published)
    with world.at.registry.read() as tx:
        assert tx.rows(sa.select(schema.datasets)) == []

    built = world.build()
    assert built.digest == expected.digest
    assert sorted(path.name for path in world.at.home.datasets.iterdir()) == [built.digest]
    assert sorted(path.name for path in built.path.iterdir()) == ["card.md", "examples.parquet", "manifest.json"]
    with world.at.registry.read() as tx:
        assert tx.scalar(sa.select(schema.datasets.c.digest)) == built.digest


def test_examples_have_the_columns_of_the_store_and_one_order(world: Any) -> None:
    world.teach_many(4)
    built = world.build()
    assert pq.read_schema(built.path / "examples.parquet").equals(EXAMPLES)
    rows = load_examples(world.at.home, built.digest)
    assert all(len(row["row_key"]) == 32 for row in rows)
    assert [row["example_id"] for row in rows] == sorted(row["example_id"] for row in rows)


def test_rows_that_are_not_the_manifests_are_refused(world: Any) -> None:
    world.teach_many(4)
    one = world.build()
    world.teach_many(1, first=9)
    other = world.build()
    shutil.copy(other.path / "examples.parquet", one.path / "examples.parquet")
    with pytest.raises(DatasetError, match="not those of the manifest"):
        load_examples(world.at.home, one.digest)


def test_a_folder_without_manifest_is_no_dataset(world: Any) -> None:
    world.teach_many(4)
    built = world.build()
    (built.path / "manifest.json").unlink()
    with pytest.raises(DatasetError, match="no dataset"):
        load_examples(world.at.home, built.digest)


def test_a_dataset_of_a_later_version_is_refused(world: Any) -> None:
    world.teach_many(4)
    built = world.build()
    manifest = built.path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(DatasetError, match="schema version 2"):
        load_examples(world.at.home, built.digest)
