"""Records that cannot be used: kept with their place and reason, bounded, for a person to look at."""

from __future__ import annotations

from datetime import datetime

from flywheel.intake.records import Json

MAX_RAW = 4096
"""Bytes of a bad record that are kept."""


def quarantine_row(source: str, offset: int, raw: bytes, reason: str, now: datetime) -> Json:
    """A row of the quarantine table; undecodable bytes and NULs are replaced so that it can always be stored."""
    text = raw[:MAX_RAW].decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return {"source": source, "source_offset": offset, "raw": text, "reason": reason, "ts": now}
