"""Logs of the operator's own, wherever and in whatever they lie: named when they hold the person, never rewritten."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec

from flywheel.erasure import plan_erasure
from flywheel.erasure.foreign import UNREADABLE
from flywheel.intake import import_path

ROW = b"q,a,id,who\nhi,ho,c1,ann\nhi,ho,c2,bob\nhey,ho,c3,ann\n"
COLUMNS = {"prompt": "q", "completion": "a", "id": "id", "user": "who"}


def test_a_table_an_archive_and_a_url_that_hold_the_person_are_named(
    make_deployment: Callable[..., Any], tmp_path: Path
) -> None:
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pipe("/acme/b.csv", ROW)
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(ROW))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"{}\n" * 99)[:-9])
    entries = [{"path": place, "columns": COLUMNS} for place in (str(packed), "memory://acme/")]
    it = make_deployment(task={"logs": [*entries, str(tmp_path / "cut.gz"), "nowhere://acme/", "memory://gone/"]})
    before = packed.read_bytes()
    found = plan_erasure(it.config, it.home, it.registry, "ann").foreign
    assert found == [
        {"task": it.task, "path": str(packed), "rows": 2},
        {"task": it.task, "path": "memory:///acme/b.csv", "rows": 2},
        {"task": it.task, "path": "nowhere://acme/", "rows": UNREADABLE},
    ]
    assert (packed.read_bytes(), system.cat("/acme/b.csv")) == (before, ROW)
    system.store.clear()


def test_an_import_from_a_url_is_looked_at_too_and_one_that_went_is_no_trouble(deployment: Any, traffic: Any) -> None:
    system = fsspec.filesystem("memory")
    system.store.clear()
    calls = [traffic.call(1, user="ann"), traffic.call(2, user="bob")]
    system.pipe("/acme/a.jsonl", "".join(json.dumps(call) + "\n" for call in calls).encode())
    import_path(deployment.config, deployment.home, deployment.registry, deployment.task, "memory://acme/a.jsonl")
    look = deployment.config, deployment.home, deployment.registry, "ann"
    assert [row["path"] for row in plan_erasure(*look).foreign] == ["memory:///acme/a.jsonl"]
    system.store.clear()
    assert plan_erasure(*look).foreign == []
