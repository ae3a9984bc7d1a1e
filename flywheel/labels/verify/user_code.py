"""Verifiers of the operator's own: the one place where labels run code that is not Flywheel's, because it was named.

The file is compiled from the very bytes that the version is the digest of: a module that a long-lived process has
imported before, or cached byte code, may be of an older one.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.config_verify import VerifierEntry
from flywheel.errors import ConfigError, without_message

if TYPE_CHECKING:
    from flywheel.labels.verify.answers import Answer


def source_file(entry: VerifierEntry) -> Path:
    """The file of a verifier's module, found without running anything.

    Looked for where Python looks for modules, then beside flywheel.yaml. Raises ConfigError when it is not there.
    """
    module, _, _ = (entry.python or "").partition(":")
    importlib.invalidate_caches()
    spec, within, name = None, None, ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = _find(name, within, entry.folder)
        if spec is None:
            beside = f" nor beside {entry.folder}/flywheel.yaml" if entry.folder else ""
            raise ConfigError(f"verifier {entry.name}: no module {name}: neither on Python's path{beside}")
        within = spec.submodule_search_locations or []
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise ConfigError(f"verifier {entry.name}: {module} is no Python file")
    return Path(spec.origin)


def user_check(entry: VerifierEntry, path: Path, source: bytes) -> Callable[[Answer], tuple[bool | None, str]]:
    """The check that a function of the operator's makes.

    ``verify(messages, answer)`` returns True, False, None for what it cannot say, or one of them with the right answer.
    Raises ConfigError when the file fails or has no such function.
    """
    module, _, name = (entry.python or "").partition(":")
    function = getattr(_run(entry, module, path, source), name, None)
    if not callable(function):
        raise ConfigError(f"verifier {entry.name}: {path} has no function {name}")

    def check(answer: Answer) -> tuple[bool | None, str]:
        return _finding(function(answer.messages, answer.message))

    return check


def _finding(returned: Any) -> tuple[bool | None, str]:
    good, text = returned if isinstance(returned, tuple) else (returned, "")
    if not (good is None or isinstance(good, bool)) or not isinstance(text, str):
        raise TypeError("expected True, False, None, or (one of them, the right answer)")
    return good, text


def _find(name: str, within: list[str] | None, folder: str) -> ModuleSpec | None:
    for finder in sys.meta_path:  # also the one that knows packages under development
        if (spec := finder.find_spec(name, within)) is not None:
            return spec
    return PathFinder.find_spec(name, [folder]) if within is None and folder else None


def _run(entry: VerifierEntry, module: str, path: Path, source: bytes) -> Any:
    if entry.folder and entry.folder not in sys.path:
        sys.path.append(entry.folder)
    before = sys.modules.get(module)
    try:
        if package := module.rpartition(".")[0]:
            importlib.import_module(package)
        spec = importlib.util.spec_from_file_location(module, path)
        assert spec is not None, path
        found = importlib.util.module_from_spec(spec)
        sys.modules[module] = found
        exec(compile(source, str(path), "exec"), found.__dict__)
    except Exception as error:
        if before is None:
            sys.modules.pop(module, None)
        else:
            sys.modules[module] = before
        raise ConfigError(f"verifier {entry.name}: {path} fails: {without_message(error)}") from error
    return found
