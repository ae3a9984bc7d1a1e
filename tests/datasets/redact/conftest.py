"""The benchmark's made-up messages are also what tests redact."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from flywheel.config_redact import RedactPolicy
from flywheel.datasets.redact import Redacted, redact

sys.path.append(str(Path(__file__).parents[3] / "bench"))

KEY = bytes(range(32))


@pytest.fixture
def clean() -> Callable[..., str]:
    """``clean(text, conversation="c", kinds=...)``: a message's text without what is personal."""

    def run(text: str, conversation: str = "c", **policy: Any) -> str:
        said = [{"role": "user", "content": text}]
        content = redact(said, key=KEY, conversation=conversation, policy=RedactPolicy(**policy)).messages[0]["content"]
        assert isinstance(content, str)
        return content

    return run


@pytest.fixture
def talk() -> Callable[..., Redacted]:
    """``talk("said", "answered", ...)``: a conversation of texts or messages, users first, in turns."""

    def run(*said: Any, conversation: str = "c", tools: Sequence[Any] | None = None, **policy: Any) -> Redacted:
        roles = ("user", "assistant")
        messages = [
            one if isinstance(one, dict) else {"role": roles[n % 2], "content": one} for n, one in enumerate(said)
        ]
        return redact(messages, tools, key=KEY, conversation=conversation, policy=RedactPolicy(**policy))

    return run
