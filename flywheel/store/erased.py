"""Recognising what belongs to an erased person by keyed hashes alone: neither their id nor any of theirs is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from flywheel.store.home import Home, mac, user_key
from flywheel.store.registry import Transaction
from flywheel.store.registry.erasures import erased_names, erased_users

_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


class Pseudonyms:
    """The home's keyed hashes for whoever needs very many: the key is read once."""

    def __init__(self, home: Home) -> None:
        self._secret = home.secret()

    def user(self, user: str | None) -> str:
        """As ``Home.user_key``."""
        return user_key(self._secret, user)

    def name(self, task: str, name: str) -> str:
        """By what an id that went with an erased user is recognised: 32 hex digits."""
        return mac(self._secret, f"erased|{task}|{name}").hex()[:32]


class Erased:
    """Who and what of a task is erased, as of one moment."""

    def __init__(self, home: Home, tx: Transaction, task: str) -> None:
        self._task = task
        self._pseudonyms = Pseudonyms(home)
        self._users = erased_users(tx)
        self._names = erased_names(tx, task) if self._users else {}

    @property
    def anybody(self) -> bool:
        """Whether anybody was ever erased here."""
        return bool(self._users)

    def erasure_of(self, user_key: str) -> str | None:
        """The erasure of a user, by keyed hash; None for a user who was not erased."""
        return self._users.get(user_key)

    def gone(self, *names: str | None) -> str | None:
        """The erasure with which one of these ids went; None when none did."""
        hashed = (self.name(name) for name in names if name) if self._names else ()
        return next((self._names[name] for name in hashed if name in self._names), None)

    def name(self, name: str) -> str:
        """The keyed hash of an id of this task."""
        return self._pseudonyms.name(self._task, name)

    def mentioned(self, raw: str) -> bool:
        """Whether a text in which JSON was meant has an erased user, or an id that went with one, as a string."""
        return self.anybody and any(
            self._pseudonyms.user(text) in self._users or self.gone(text) is not None for text in json_strings(raw)
        )

    def add(self, names: Mapping[str, str]) -> None:
        """Take in further keyed hashes of ids, with their erasures."""
        self._names |= names


def json_strings(raw: str) -> Iterator[str]:
    """The string literals in a text that is JSON, or was to become it."""
    for found in _JSON_STRING.findall(raw):
        try:
            yield json.loads(found, strict=False)
        except ValueError:
            continue
