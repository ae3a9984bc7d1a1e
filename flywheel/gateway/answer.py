"""An engine's answer as it passes: what may go on to the caller at once, what waits for the log, and what it says.

All goes on as it comes, except the end, which the caller must not see before the log has the answer: of a stream the
bytes from the chunk on that finishes its last choice, or from ``[DONE]`` on; of a whole body all of it, since its first
bytes are worth nothing without its last. What cannot be read passes one piece late, so that its last piece can wait.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

from flywheel.gateway.bodies import finite
from flywheel.gateway.events import Events
from flywheel.intake.formats import chat
from flywheel.intake.formats.deltas import Choices
from flywheel.intake.records import BadRecord, Json

MAX_COPY = 6 * 2**20
"""Longest answer that is logged: bytes of a whole body, characters of a stream. With the longest request, and every
character of both written as an escape, it still makes a line that intake reads."""

BROKEN = "upstream_broken"
TOO_LARGE = "answer_too_large"
UNREADABLE = "unreadable_answer"
INCOMPLETE = "incomplete_answer"
REPORTED = "upstream_error"


class Answer:
    """One answer under way.

    Args:
        headers: of the answer, by lower-case name.
        stream: whether the caller asked for a stream.
        choices: how many choices the caller asked for.

    Attributes:
        fault: a fixed word for what is wrong with the answer; "" while nothing is.
        id: the engine's id of the answer, or "".
        model: the model that the engine says has answered, or "".
        usage: the tokens as the engine counted them, or nothing.
    """

    def __init__(self, status: int, headers: Mapping[str, str], *, stream: bool, choices: int) -> None:
        self.fault = ""
        self._form: Literal["unknown", "events", "whole", "unread"] = "unknown"
        self._held = bytearray()
        self._received = 0
        length = headers.get("content-length", "")
        self._length = int(length) if length.isdigit() else None
        encoding = headers.get("content-encoding", "identity").strip().lower()
        self._decode = _decoder(encoding)
        self._encoded = encoding != "identity"
        self._stream = stream or headers.get("content-type", "").startswith("text/event-stream")
        self._wanted = choices
        self._events = Events(MAX_COPY)
        self._streamed = Choices()
        self._size = 0  # characters of the streamed choices
        self._finished: set[int] = set()  # which of them are
        self._began = False  # whether a chunk has come that could name the answer
        self._ended = False  # whether the end of a stream has come, which waits for the log
        self._early = False  # whether the engine calls choices finished that go on: then it is not known what ends it
        self._copy = bytearray()  # of a whole body
        self._whole: list[Json] = []  # the choices of a whole body
        self.id = ""
        self.model = ""
        self.usage: Json = {}
        if status >= 300:
            self._give_up(f"upstream_{status}")

    @property
    def starts(self) -> bool:
        """Whether nothing of it has come yet."""
        return not self._received

    @property
    def named(self) -> bool:
        """Whether it is known by now what id the answer has, if any."""
        return self._began or self._form == "unread"

    @property
    def choices(self) -> list[Json]:
        """Index, message and finish reason of each choice, as far as it has come; messages as the engine made them."""
        if self.fault == TOO_LARGE:
            return []
        return self._streamed.whole() or [
            {
                "index": chat.whole_number(choice.get("index"), place),
                "message": choice["message"],
                "finish_reason": choice.get("finish_reason"),
            }
            for place, choice in enumerate(self._whole)
        ]

    def feed(self, piece: bytes) -> bytes:
        """Take in the next bytes of the body, and return those that may go on now."""
        self._received += len(piece)
        self._held += piece
        kept = self._read(piece)
        passing = bytes(self._held[: len(self._held) - kept])
        del self._held[: len(passing)]
        return passing

    def end(self, broken: bool = False) -> bytes:
        """The body is over, or has broken off: judge it, and return what is still held, for after the log."""
        if self._form == "whole" and not broken:
            self._read_whole()
        if broken:
            self.fault = self.fault or BROKEN
        elif self._form == "events" and not self._over():
            self.fault = self.fault or INCOMPLETE
        elif not self.choices:
            self.fault = self.fault or UNREADABLE
        held = bytes(self._held)
        self._held.clear()
        return held

    def _read(self, piece: bytes) -> int:
        """Read the next bytes; returns how many of the bytes held now must wait."""
        place = None
        try:
            if self._form != "unread":
                data = self._decode(piece)
                if self._form == "unknown":
                    self._form = self._tell(data.lstrip())
                if self._form != "events":
                    self._copy += data
                elif not self._events.done:
                    place = self._read_events(data)
                if max(len(self._copy), self._size) > MAX_COPY:
                    self._give_up(TOO_LARGE)
        except (BadRecord, RecursionError, zlib.error):
            self._give_up(UNREADABLE)
        if self._form == "unread" or self._early:
            return len(piece)
        if self._form != "events" or (self._ended and place is None):
            return len(self._held)
        if place is not None:
            return len(piece) if self._encoded else len(piece) - place
        return len(piece) if self._received == self._length else 0

    def _tell(self, data: bytes) -> Literal["unknown", "events", "whole"]:
        """What the body is, by its first bytes and what was asked for; what its header says is often wrong."""
        if not data:
            return "unknown"
        if data[:1] in b"{[<":
            return "whole"
        return "events" if self._stream or data.startswith((b"data:", b"event:", b":")) else "whole"

    def _read_events(self, data: bytes) -> int | None:
        """Read the next bytes of a stream; returns where its end begins when that is in them."""
        found = None
        for place, chunk in self._events.feed(data):
            size = self._size
            if chunk is not None:
                self._add(chunk)
            # Some engines begin with a chunk without choices or id; it does not name the answer.
            self._began = self._began or chunk is None or bool(self.id or self.fault or chunk.get("choices"))
            if self._ended and self._size > size:
                self._early = True
            if not self._ended and self._over():
                self._ended, found = True, place
            if self._events.done:
                break
        return found

    def _add(self, chunk: Json) -> None:
        if chunk.get("error"):
            self.fault = self.fault or REPORTED
        self._streamed.add(chunk)
        self._note(chunk)
        choices = chunk.get("choices")
        for place, choice in enumerate(choices if isinstance(choices, list) else []):
            self._size += _letters(choice.get("delta"))
            if chat.text(choice.get("finish_reason")) is not None:
                self._finished.add(chat.whole_number(choice.get("index"), place))

    def _note(self, said: Json) -> None:
        self.id = self.id or chat.text(said.get("id")) or ""
        self.model = self.model or chat.text(said.get("model")) or ""
        self.usage = chat.mapping(said.get("usage")) or self.usage

    def _over(self) -> bool:
        return self._events.done or len(self._finished) >= self._wanted

    def _read_whole(self) -> None:
        try:
            value = json.loads(self._copy.decode("utf-8"), parse_float=finite, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            value = None
        self._copy.clear()
        value = chat.mapping(value)
        choices = value.get("choices")
        if not isinstance(choices, list) or not choices:
            self.fault = self.fault or (REPORTED if value.get("error") else UNREADABLE)
        elif not all(isinstance(choice, dict) and isinstance(choice.get("message"), dict) for choice in choices):
            self.fault = self.fault or UNREADABLE
        else:
            self._whole = choices
            self._note(value)

    def _give_up(self, fault: str) -> None:
        self.fault = self.fault or fault
        self._form = "unread"
        self._copy.clear()


def _letters(value: Any) -> int:
    """Characters of all texts in a delta, but for its role."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_letters(item) for key, item in value.items() if key != "role")
    return sum(map(_letters, value)) if isinstance(value, list) else 0


def _decoder(encoding: str) -> Callable[[bytes], bytes]:
    """What undoes a content encoding, piece by piece. Raises BadRecord on use when it cannot."""
    if encoding == "identity":
        return lambda piece: piece
    inflate = zlib.decompressobj(wbits=47)  # both gzip and zlib, told by their first bytes

    def decode(piece: bytes) -> bytes:
        if encoding not in ("gzip", "x-gzip", "deflate"):
            raise BadRecord("an encoding that cannot be read")
        data = inflate.decompress(piece, MAX_COPY)
        if inflate.unconsumed_tail or inflate.unused_data:
            raise BadRecord("more than can be read, or something after the end")
        return data

    return decode
