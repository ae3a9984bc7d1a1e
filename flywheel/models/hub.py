"""Downloading a model from the Hugging Face hub: safetensors and JSON only."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flywheel.errors import ModelUnavailable
from flywheel.models.directory import PICKLED

WANTED = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model")

TIMEOUT_S = 10.0
"""For the first question to the hub; without a network it must fail at once, not after retries."""


def download(name: str, folder: Path, report: Callable[[str], None]) -> None:
    """Fetch one pinned revision of ``name`` into ``folder``. Raises ModelUnavailable, in one line, when it cannot."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

    # OSError, and the HTTPError of whichever HTTP library this version of the hub's client uses.
    unreachable: Any = HfHubHTTPError.__bases__
    try:
        info = HfApi().model_info(name, timeout=TIMEOUT_S)
        files = [file.rfilename for file in info.siblings or [] if "/" not in file.rfilename]
        _check(name, files)
        report(f"{name}: downloading revision {info.sha}")
        snapshot_download(
            name,
            revision=info.sha,
            local_dir=folder,
            allow_patterns=list(WANTED),
            ignore_patterns=["*/*"],  # other formats of the same weights
            max_workers=4,
        )
    except RepositoryNotFoundError:
        raise ModelUnavailable(f"the hub has no model {name!r}, or it needs a login (`hf auth login`)") from None
    except OfflineModeIsEnabled:
        raise ModelUnavailable(f"model {name!r} is not on this machine and HF_HUB_OFFLINE forbids fetching") from None
    except HfHubHTTPError as error:
        code = error.response.status_code if error.response is not None else "no answer"
        raise ModelUnavailable(f"model {name!r}: the hub refused the download (HTTP {code})") from error
    except unreachable as error:
        if isinstance(error, ModelUnavailable):
            raise
        raise ModelUnavailable(
            f"model {name!r} is not on this machine and the hub cannot be reached ({type(error).__name__})"
        ) from error
    shutil.rmtree(folder / ".cache", ignore_errors=True)


def _check(name: str, files: list[str]) -> None:
    """Refuse before the download what would be refused after it."""
    if any(file.endswith(".safetensors") for file in files):
        return
    pickled = next((file for file in files if file.endswith(PICKLED)), None)
    if pickled:
        raise ModelUnavailable(
            f"model {name!r} has weights only in {pickled}, a pickle that can run code when read; it is refused"
        )
    raise ModelUnavailable(f"model {name!r} has no safetensors weights")
