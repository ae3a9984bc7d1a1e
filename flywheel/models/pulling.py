"""Getting models into the cache, and finding them there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from flywheel.errors import ModelUnavailable
from flywheel.models.directory import ModelDir, cache_root, describe
from flywheel.models.tiny import make_tiny_once
from flywheel.store.files import locked, publish_folder, remove_tree

TINY, SMOLLM2 = "tiny", "smollm2-135m"

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?\Z")


def pull(name: str, *, report: Callable[[str], None] = print) -> ModelDir:
    """Have a model ready on this disk; if it is, do nothing.

    Args:
        name: ``smollm2-135m``, ``tiny``, a hub id such as ``org/model``, or a folder, which is used where it is.
        report: gets a line per step of the work.

    Raises ModelUnavailable with one line that says what is missing.
    """
    if name == TINY or Path(name).is_dir():
        return resolve(name)
    target = _cached(name)
    if target.is_dir():
        return describe(name, target)
    with locked(target.with_name(f".{target.name}.lock")):
        if not target.is_dir():
            temporary = target.with_name(f".{target.name}.part")
            remove_tree(temporary)  # what an interrupted pull left
            temporary.mkdir(parents=True)
            try:
                if name == SMOLLM2:
                    from flywheel.models.smollm2 import build

                    build(temporary, report)
                else:
                    from flywheel.models.hub import download

                    download(name, temporary, report)
                describe(name, temporary)
                publish_folder(temporary, target)
            except BaseException:
                remove_tree(temporary)
                raise
            report(f"{name}: ready in {target}")
    return describe(name, target)


def resolve(name: str) -> ModelDir:
    """The model as it lies on this disk, without any network; ``tiny`` is made when missing.

    Raises ModelUnavailable naming the command that gets it.
    """
    if name == TINY:
        make_tiny_once(cache_root() / TINY)
        return describe(name, cache_root() / TINY)
    if name != SMOLLM2 and Path(name).is_dir():
        return describe(name, Path(name))
    target = _cached(name)
    if not target.is_dir():
        raise ModelUnavailable(f"model {name!r} is not on this machine; run `flywheel model pull {name}`")
    return describe(name, target)


def _cached(name: str) -> Path:
    if name == SMOLLM2:
        return cache_root() / SMOLLM2
    if not HUB_ID.match(name) or ".." in name:
        raise ModelUnavailable(f"{name!r} is neither {SMOLLM2}, {TINY}, an existing folder nor a hub id")
    return cache_root() / "hub" / name.replace("/", "--")
