"""Choices that a key makes: the same for the same value in the same conversation, on every machine."""

from __future__ import annotations

from collections.abc import Sequence


class Draw:
    """A supply of choices out of one HMAC: 256 bits, more than any surrogate needs."""

    def __init__(self, seed: bytes) -> None:
        self._pool = int.from_bytes(seed, "big")

    def below(self, limit: int) -> int:
        """A number from 0 to ``limit`` - 1."""
        self._pool, chosen = divmod(self._pool, limit)
        return chosen

    def pick(self, options: Sequence[str]) -> str:
        """One of the options."""
        return options[self.below(len(options))]

    def digits(self, count: int) -> str:
        """That many decimal digits."""
        return f"{self.below(10**count):0{count}}" if count else ""

    def hex(self, count: int) -> str:
        """That many hexadecimal digits, in lower case."""
        return f"{self.below(16**count):0{count}x}"

    def like(self, pattern: str) -> str:
        """Digits where the pattern has digits and capitals where it has letters."""
        return "".join(self.digits(1) if c.isdigit() else chr(65 + self.below(26)) for c in pattern)


def reform(shown: str, new: str) -> str:
    """``new`` in the spacing, punctuation and case of ``shown``; both have as many letters and digits."""
    left = iter(new)
    return "".join(_cased(next(left), c) if c.isalnum() else c for c in shown)


def _cased(new: str, like: str) -> str:
    return new.lower() if like.islower() else new
