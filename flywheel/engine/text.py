"""An answer's text as it grows: whole characters only, and nothing of a stop string."""

from __future__ import annotations

from flywheel.models import StreamDecoder


class AnswerText:
    """Feeds token ids in, gives text out that is certain to belong to the answer.

    Attributes:
        text: all that was given out.
        stopped: whether a stop string was met.
    """

    def __init__(self, decoder: StreamDecoder, stop: tuple[str, ...]) -> None:
        self._decoder = decoder
        self._stop = tuple(text for text in stop if text)
        self._held = ""
        self._pieces: list[str] = []
        self.stopped = False

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._pieces)

    def push(self, token_id: int) -> str:
        """Add a token; return what text is certain now."""
        return self._take(self._decoder.push(token_id), last=False)

    def finish(self) -> str:
        """No token follows: return what was held back."""
        return self._take(self._decoder.flush(), last=True)

    def _take(self, piece: str, *, last: bool) -> str:
        if self.stopped or not (piece or last):
            return ""
        self._held += piece
        found = [at for text in self._stop if (at := self._held.find(text)) >= 0]
        if found:
            self.stopped = True
            keep = min(found)
            certain, self._held = self._held[:keep], ""
        else:
            keep = len(self._held) - (0 if last else self._may_begin_stop())
            certain, self._held = self._held[:keep], self._held[keep:]
        if certain:
            self._pieces.append(certain)
        return certain

    def _may_begin_stop(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        longest = max((len(text) for text in self._stop), default=1) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            tail = self._held[-size:]
            if any(text.startswith(tail) for text in self._stop):
                return size
        return 0
