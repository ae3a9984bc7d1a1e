"""API keys: made once, shown once, stored as a SHA-256 and checked against six scopes.

``infer`` asks for completions, ``feedback`` posts the caller's own feedback, ``ingest`` sends telemetry, which may tell
of any call and its evaluation, ``read`` sees metrics, ``review`` sees what waits for review and posts a reviewer's
feedback, ``operate`` does everything, also the operator's routes and feedback in anybody's name. Processes of the same
home use the token that the gateway writes at every boot. A home that has ever had a key asks for one everywhere, so
that revoking the last key locks the door instead of opening it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import sqlalchemy as sa

from flywheel.errors import ConfigError, RequestError
from flywheel.release.replicas import TOKEN_FILE
from flywheel.store.files import write_atomic
from flywheel.store.home import Home
from flywheel.store.registry import Registry, schema

KEYS = schema.keys
Scope = Literal["infer", "feedback", "ingest", "read", "review", "operate"]
SCOPES: frozenset[str] = frozenset(get_args(Scope))


@dataclass(frozen=True)
class Principal:
    """Who calls, as far as a key can tell."""

    name: str
    scopes: frozenset[str]

    def allows(self, scope: Scope) -> bool:
        """Whether the caller may do what needs ``scope``."""
        return scope in self.scopes or "operate" in self.scopes


ANYONE = Principal("anyone", SCOPES)
"""The caller of a gateway without keys on loopback."""


def create_key(registry: Registry, name: str, scopes: Iterable[str]) -> str:
    """Make a key and return it; it cannot be shown again.

    Raises ConfigError for a scope that does not exist, or none at all.
    """
    wanted = sorted(set(scopes))
    unknown = [scope for scope in wanted if scope not in SCOPES]
    if unknown or not wanted:
        found = f"unknown scope {unknown[0]!r}" if unknown else "no scope given"
        raise ConfigError(f"{found}; a key has one or more of: {', '.join(sorted(SCOPES))}")
    key = f"fw-{secrets.token_urlsafe(32)}"
    row = {"key_id": f"k-{secrets.token_hex(4)}", "name": name, "hash": _hash(key), "scopes": wanted}
    with registry.write() as tx:
        tx.execute(sa.insert(KEYS).values(**row, revoked_at=None, **tx.stamp()))
    return key


def revoke_key(registry: Registry, key_id: str) -> bool:
    """Make a key worthless, for running gateways within seconds. False when no such key was valid."""
    with registry.write() as tx:
        valid = sa.update(KEYS).where(KEYS.c.key_id == key_id, KEYS.c.revoked_at.is_(None))
        return tx.execute(valid.values(revoked_at=schema.utc_now())) == 1


def list_keys(registry: Registry) -> list[dict[str, Any]]:
    """All keys, oldest first: key_id, name, scopes, at, actor, revoked_at. Never the key or its hash."""
    columns = (KEYS.c.key_id, KEYS.c.name, KEYS.c.scopes, KEYS.c.at, KEYS.c.actor, KEYS.c.revoked_at)
    with registry.read() as tx:
        return tx.rows(sa.select(*columns).order_by(KEYS.c.at, KEYS.c.key_id))


def write_operator_token(home: Home) -> str:
    """A new token for processes of this home, readable by the owner only."""
    token = f"fwo-{secrets.token_urlsafe(32)}"
    path: Path = home.root / TOKEN_FILE
    write_atomic(path, token.encode(), mode=0o600)
    return token


class KeyRing:
    """The keys as a running gateway knows them; ``refresh`` reads them again.

    Args:
        registry: where the keys are.
        operator_token: always valid, with every scope.
        required: whether a key is needed even when the home has none.
    """

    def __init__(self, registry: Registry, operator_token: str, *, required: bool) -> None:
        self._registry = registry
        self._operator_hash = _hash(operator_token)
        self._always = required
        self._known: dict[str, Principal] = {}
        self._any = False
        self.refresh()

    @property
    def required(self) -> bool:
        """Whether a call must bring a key."""
        return self._always or self._any

    @property
    def usable(self) -> bool:
        """Whether there is a key that is not revoked."""
        return bool(self._known)

    def refresh(self) -> None:
        """Read the keys again: new ones work, revoked ones stop."""
        with self._registry.read() as tx:
            rows = tx.rows(sa.select(KEYS.c.hash, KEYS.c.name, KEYS.c.scopes, KEYS.c.revoked_at))
        self._known = {
            row["hash"]: Principal(row["name"], frozenset(row["scopes"])) for row in rows if row["revoked_at"] is None
        }
        self._any = bool(rows)

    def authenticate(self, key: str) -> Principal | None:
        """Who holds this key, or None."""
        hashed = _hash(key)
        if hmac.compare_digest(hashed, self._operator_hash):
            return Principal("operator", SCOPES)
        return self._known.get(hashed)

    async def authorize(self, authorization: str | None, scope: Scope | None, *others: Scope) -> Principal:
        """The caller, from the ``Authorization`` header; scope None asks for any valid key.

        Args:
            others: scopes of which each will do as well.

        Raises RequestError: 401 without a valid key, 403 without the scope.
        """
        if not self.required:
            return ANYONE
        kind, _, key = (authorization or "").partition(" ")
        key = key.strip()
        if kind.lower() != "bearer" or not key:
            message = "No API key given; send it in the header `Authorization: Bearer KEY`."
            raise RequestError(message, status=401, code="invalid_api_key")
        principal = self.authenticate(key)
        if principal is None:
            await asyncio.to_thread(self.refresh)  # it may have been made a moment ago
            principal = self.authenticate(key)
        if principal is None:
            raise RequestError("The API key is not valid.", status=401, code="invalid_api_key")
        if scope is not None and not any(principal.allows(each) for each in (scope, *others)):
            raise RequestError(f"This API key lacks the scope `{scope}`.", status=403, code="missing_scope")
        return principal


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
