"""Texts as they are read, and as they are written: JSON is searched without its escapes and stays what it was."""

from __future__ import annotations

import re
from collections.abc import Sequence

Change = tuple[int, int, str]
"""Start and end in the readable text, and what takes the place of what is there."""

DEEPEST = 4
"""How often escapes are resolved: JSON in a string of JSON has escaped escapes, and so has code."""

_ESCAPE = re.compile(r'\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt])')
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class View:
    """A text to search: ``text`` is what it says, without the escapes of JSON if it has any."""

    def __init__(self, written: str) -> None:
        self.text = self._written = written
        self._places: Sequence[int] | None = None
        for _ in range(DEEPEST):
            if "\\" not in self.text or not _ESCAPE.search(self.text):
                break
            self.text, places = _unescaped(self.text)
            self._places = [self._places[place] for place in places] if self._places else places

    def changed(self, changes: Sequence[Change]) -> str:
        """The text as it was written, with the changes; they come in order and do not overlap.

        What is put in needs no escapes at any depth: it has no quotation marks, backslashes or control characters.
        """
        parts: list[str] = []
        done = 0
        for start, end, new in changes:
            first, last = (self._places[start], self._places[end]) if self._places else (start, end)
            parts += (self._written[done:first], new)
            done = last
        return "".join((*parts, self._written[done:]))


def _unescaped(written: str) -> tuple[str, list[int]]:
    """A text with its escapes resolved, and where each character begins in what was written, the end included."""
    text: list[str] = []
    places: list[int] = []
    done = 0
    for escape in _ESCAPE.finditer(written):
        text.append(written[done : escape.start()])
        places.extend(range(done, escape.start() + 1))
        done = escape.end()
        code = escape[0][1:]
        text.append(chr(int(code[1:], 16)) if code[0] == "u" else _SHORT.get(code, code))
    text.append(written[done:])
    places.extend(range(done, len(written) + 1))
    return "".join(text), places
