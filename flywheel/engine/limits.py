"""What the engine refuses, and when to come back."""

from __future__ import annotations

import time
from collections import deque

from flywheel.errors import RequestError


def check_prompt(prompt_ids: list[int], *, max_context: int, vocab_size: int) -> None:
    """Raise RequestError (400) for a prompt that the model cannot read or that leaves no room for an answer."""
    if not prompt_ids:
        raise RequestError("the prompt is empty", code="invalid_prompt", param="messages")
    if len(prompt_ids) >= max_context:
        raise RequestError(
            f"This model's maximum context length is {max_context} tokens. "
            f"The prompt has {len(prompt_ids)} tokens, which leaves none for an answer; shorten it.",
            code="context_length_exceeded",
            param="messages",
        )
    if min(prompt_ids) < 0 or max(prompt_ids) >= vocab_size:
        raise RequestError(f"the prompt holds token ids outside 0..{vocab_size - 1}", code="invalid_prompt")


class Throughput:
    """The rate at which requests finish, over the last few."""

    def __init__(self, window: int = 64) -> None:
        self._finished: deque[float] = deque(maxlen=window)

    def count(self) -> None:
        """A request finished now."""
        self._finished.append(time.monotonic())

    def retry_after_s(self, waiting: int) -> float:
        """When half of a queue should be gone at the measured rate; between 1 and 60 seconds."""
        times = list(self._finished)
        if len(times) < 2 or times[-1] <= times[0]:
            return 1.0
        rate = (len(times) - 1) / (times[-1] - times[0])
        return min(60.0, max(1.0, waiting / 2 / rate))
