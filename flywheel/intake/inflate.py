"""Compressed logs as streams of bytes: gzip members and zstd frames, as many as follow one another."""

from __future__ import annotations

import io
import zlib
from typing import IO, Any

import zstandard

GZIP, ZSTD = "gzip", "zstd"

ENDS_EARLY = "the compressed file ends early: read so far, and on from there when it has grown"
DAMAGED = "the compressed file is damaged: read up to the damage"

_OUTPUT = 2**20
_INPUT = {GZIP: 2**16, ZSTD: 2**9}
"""Compressed bytes taken at a time. What zstd makes of its input at once cannot be bounded, so it gets little of it."""


def compression(head: bytes) -> str:
    """``gzip``, ``zstd`` or "" for a file with these first bytes."""
    if head.startswith(b"\x1f\x8b"):
        return GZIP
    skippable = head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F
    return ZSTD if head.startswith(b"\x28\xb5\x2f\xfd") or skippable else ""


class Inflated(io.RawIOBase):
    """The content of a compressed file, in bounded memory.

    Attributes:
        fault: why the content ended before it should have; "" as long as nothing is wrong.
    """

    def __init__(self, packed: IO[bytes], kind: str) -> None:
        self.fault = ""
        self._packed, self._kind = packed, kind
        self._decoder: Any = None
        self._left = b""
        self._careful = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """It is."""
        return True

    def close(self) -> None:
        """Close the compressed file too."""
        self._packed.close()
        super().close()

    def readinto(self, target: Any) -> int:
        """Fill ``target``; 0 at the end, also at an early one."""
        while not self._ready:
            if self.fault or not self._more():
                return 0
        count = min(len(target), len(self._ready))
        target[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _more(self) -> bool:
        """Decompress a little more; False at the end."""
        piece = self._left or self._packed.read(_INPUT[self._kind])
        at_end, self._left = not piece, b""
        if self._decoder is None:
            if self._kind == GZIP:
                piece = piece.lstrip(b"\0")  # padding behind a member
            if not piece:
                return not at_end
            self._decoder = (
                zlib.decompressobj(wbits=31) if self._kind == GZIP else zstandard.ZstdDecompressor().decompressobj()
            )
        rest = b""
        if self._careful:
            piece, rest = piece[:1], piece[1:]
        elif self._kind == GZIP:
            before = self._decoder.copy()
        try:
            made = self._decoder.decompress(piece, _OUTPUT) if self._kind == GZIP else self._decoder.decompress(piece)
        except (zlib.error, zstandard.ZstdError):
            if self._kind == GZIP and not self._careful:
                # What it had made of the piece before the damage is lost: once more, byte by byte.
                self._careful, self._decoder, self._left = True, before, piece
                return True
            self.fault = DAMAGED
            return False
        self._ready = memoryview(made)
        if self._decoder.eof:
            self._left, self._decoder = self._decoder.unused_data + rest, None
        elif self._kind == GZIP:
            self._left = self._decoder.unconsumed_tail + rest
        if at_end and not made and self._decoder is not None:
            self.fault = ENDS_EARLY
            return False
        return True
