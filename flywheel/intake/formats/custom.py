"""Log formats of the operator's own, each a Python file that ``formats`` in flywheel.yaml names.

This is the one place where intake runs code that is not Flywheel's, and it runs only what was named there.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from flywheel.errors import IntakeError, without_message
from flywheel.intake.formats.registry import FORMATS, LogFormat

_RESERVED = ("auto", "columns")
_loaded: set[str] = set()


def load_formats(paths: Sequence[str]) -> None:
    """Run each file once in this process; the formats that it registers are asked before all others.

    Raises:
        IntakeError: a file is not there, fails, registers nothing, or takes a name that is taken. Nothing of it stays.
    """
    for path in paths:
        if path not in _loaded:
            _load(path)
            _loaded.add(path)


def _load(path: str) -> None:
    before = dict(FORMATS)
    try:
        found = _run(path, before)
    except BaseException:
        _replace(before)
        raise
    _replace(found | before)


def _run(path: str, before: dict[str, LogFormat]) -> dict[str, LogFormat]:
    if not Path(path).is_file():
        raise IntakeError(f"{path}: no such file; `formats` names it")
    spec = importlib.util.spec_from_file_location(f"flywheel_format_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise IntakeError(f"{path}: not a Python file; `formats` names it")
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except Exception as error:
        raise IntakeError(f"{path}: fails: {without_message(error)}") from error
    taken = [name for name, known in FORMATS.items() if name in _RESERVED or before.get(name, known) is not known]
    if taken:
        raise IntakeError(f"{path}: the format name {taken[0]!r} is taken; choose another")
    found = {name: known for name, known in FORMATS.items() if name not in before}
    if not found:
        raise IntakeError(f"{path}: registers no format; decorate a function with @log_format(name, matches)")
    return found


def _replace(formats: dict[str, LogFormat]) -> None:
    FORMATS.clear()
    FORMATS.update(formats)
