"""What single values of the configuration must look like: addresses, places and schedules."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]+://")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

CRON_NAMES = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")
CRON_FIELDS = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, MONTHS), (0, 7, WEEKDAYS))
"""Smallest and largest value of each field, and the names it knows, the first of which is the smallest value."""


def is_url(place: str) -> bool:
    """Whether a place is a URL rather than a path."""
    return _URL.match(place) is not None


def place_without_password(place: str) -> str:
    """A place that is no URL with a user or password in it. What it says is never quoted."""
    if is_url(place) and "@" in place.partition("://")[2].partition("/")[0]:
        raise ValueError("a place holds no user or password; credentials go where its file system looks for them")
    return place


def address(text: str, key_env: str = "engine_key_env") -> str:
    """An engine's URL without the slash at its end. What it says is never quoted: it may hold a password.

    Args:
        key_env: the setting that names where its key is.
    """
    try:
        url = urlsplit(text)
        wrong = url.scheme not in ("http", "https") or not url.hostname or url.port == 0
    except ValueError:
        wrong = True
    if wrong or re.search(r"[^!-~]", text):
        raise ValueError("expected an address such as http://vllm:8000/v1")
    if url.username is not None or url.password is not None or url.query or url.fragment or text.endswith(("?", "#")):
        raise ValueError(f"an address holds no user, query or fragment; a key goes where {key_env} says")
    return text.rstrip("/")


def variable_name(text: str) -> str:
    """The name of an environment variable. What it says is never quoted: it may be the key itself."""
    if not _VARIABLE.match(text):
        raise ValueError("expected the name of an environment variable, such as VLLM_API_KEY, never the key itself")
    return text


def is_cron(text: str) -> bool:
    """Whether this is a cron schedule of five fields, or a name such as ``@daily``."""
    fields = text.lower().split()
    if len(fields) != len(CRON_FIELDS):
        return text in CRON_NAMES
    return all(
        _is_cron_part(part, low, high, names)
        for field, (low, high, names) in zip(fields, CRON_FIELDS, strict=True)
        for part in field.split(",")
    )


def _is_cron_part(part: str, low: int, high: int, names: tuple[str, ...]) -> bool:
    """Whether this is ``*``, a value or a range in order, the first and the last with or without ``/step``."""
    span, slash, step = part.partition("/")
    if slash and not (re.fullmatch("[0-9]+", step) and 0 < int(step) <= high):
        return False
    if span == "*":
        return True
    ends = [str(names.index(end) + low) if end in names else end for end in span.split("-")]
    if not all(re.fullmatch("[0-9]+", end) and low <= int(end) <= high for end in ends):
        return False
    return not slash if len(ends) == 1 else len(ends) == 2 and int(ends[0]) <= int(ends[1])
