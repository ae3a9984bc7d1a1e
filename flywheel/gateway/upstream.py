"""Engines that are not ours: one connection pool for all of them, and per task what it needs to be asked.

Only the caller's own words go on: neither their key nor their cookies, which are meant for this gateway. The answer is
asked for without compression, so that the log can read along.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from flywheel.config import Config
from flywheel.errors import ConfigError, RequestError
from flywheel.gateway.envelope import Envelope, open_envelope

CONNECT_S = 5.0
READ_S = 600.0
"""Longest silence of an engine that is bearable: as long as the OpenAI client itself waits for an answer."""
KEEP_ALIVE_S = 4.0
"""An idle connection is closed by us before vLLM and SGLang do, after 5 s: a request could meet its end."""
REMEMBERED = 20_000
"""Ids of answers that are remembered, with their tasks."""

Headers = list[tuple[bytes, bytes]]

_PER_CONNECTION = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_NOT_PASSED_ON = _PER_CONNECTION | {
    b"host",
    b"content-length",
    b"accept-encoding",
    b"authorization",
    b"cookie",
    b"expect",
}
_NOT_PASSED_BACK = _PER_CONNECTION | {b"date", b"set-cookie", b"x-flywheel-interaction"}
_CHOICE = re.compile(r"#\d+\Z")


@dataclass
class Upstream:
    """The engine of one task.

    Attributes:
        base: what the engine calls the model.
        in_flight: requests that it has not answered to the end.
        reachable: whether it could be reached when it was last asked; None before.
    """

    task: str
    base: str
    url: str
    key: str | None
    limit: int
    in_flight: int = 0
    reachable: bool | None = None

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place among the requests in flight. Raises RequestError (429) when there is none."""
        if self.in_flight >= self.limit:
            message = f"{self.in_flight} requests of {self.task} are under way, as many as may be; try again."
            raise RequestError(message, status=429, code="queue_full", retry_after_s=1.0)
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1


class Upstreams:
    """The engines of all tasks that have one of their own.

    Raises ConfigError for a key that its environment variable does not hold.
    """

    def __init__(self, config: Config) -> None:
        self._by_task = {
            task: Upstream(
                task, policy.base, policy.engine, _key(task, policy.engine_key_env), config.gateway.engine_limit
            )
            for task, policy in config.tasks.items()
            if policy.engine is not None
        }
        self._answered: dict[str, str] = {}  # id of an answer -> task, oldest first
        self._timeout = httpx.Timeout(READ_S, connect=CONNECT_S)
        self._client = httpx.AsyncClient(
            trust_env=False,  # no proxy that is meant for the world outside
            verify=ssl.create_default_context(),  # the machine's own authorities, or those in SSL_CERT_FILE
            limits=httpx.Limits(max_keepalive_connections=config.gateway.engine_limit, keepalive_expiry=KEEP_ALIVE_S),
        )

    @property
    def by_task(self) -> Mapping[str, Upstream]:
        """The engines by task."""
        return self._by_task

    def addressed(self, raw: bytes) -> tuple[Upstream, Envelope] | None:
        """The engine that a request's body asks for, and the body; None when it asks for none of these."""
        envelope = open_envelope(raw) if self._by_task else None
        upstream = self._by_task.get(envelope.model) if envelope is not None else None
        return None if upstream is None or envelope is None else (upstream, envelope)

    async def ask(self, upstream: Upstream, envelope: Envelope, headers: Headers) -> httpx.Response:
        """Pass a request on, and wait for the head of its answer; whoever gets it reads the body and closes it.

        Raises RequestError: 504 when the engine is too slow, 502 when it cannot be reached or breaks off.
        """
        request = httpx.Request(
            "POST",
            f"{upstream.url}/chat/completions",
            headers=_passed_on(headers, upstream.key),
            content=envelope.readdressed(upstream.base),
            extensions={"timeout": self._timeout.as_dict()},
        )
        try:
            response = await self._client.send(request, stream=True)
        except httpx.TransportError as error:
            upstream.reachable = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            raise failure(upstream, error) from None
        upstream.reachable = True
        return response

    def remember(self, answer: str, task: str) -> bool:
        """Note which task an answer is of. False when there is one with this id already, which this one is not."""
        if answer in self._answered:
            return False
        self._answered[answer] = task
        if len(self._answered) > REMEMBERED:
            del self._answered[next(iter(self._answered))]
        return True

    def task_of(self, answer: str) -> str | None:
        """The task of a remembered answer, or of one of its choices."""
        return self._answered.get(answer) or self._answered.get(_CHOICE.sub("", answer))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def passed_back(response: httpx.Response) -> Headers:
    """The headers of an answer that are for the caller, as they came."""
    return [(name.lower(), value) for name, value in _kept(response.headers.raw, _NOT_PASSED_BACK)]


def _passed_on(headers: Headers, key: str | None) -> Headers:
    own = [(b"accept-encoding", b"identity")]
    if key is not None:
        own.append((b"authorization", b"Bearer " + key.encode()))
    return [*_kept(headers, _NOT_PASSED_ON), *own]


def _kept(headers: Headers, without: frozenset[bytes]) -> Headers:
    named = b",".join(value for name, value in headers if name.lower() == b"connection")
    dropped = without | {name.strip().lower() for name in named.split(b",")}
    return [(name, value) for name, value in headers if name.lower() not in dropped]


def failure(upstream: Upstream, error: httpx.TransportError) -> RequestError:
    """What a caller is told when the engine gave no answer, or not all of it."""
    if isinstance(error, httpx.TimeoutException):
        status, code, what = 504, "upstream_timeout", "has not answered in time"
    elif isinstance(error, httpx.ConnectError):
        status, code, what = 502, "upstream_unreachable", "cannot be reached"
    else:
        status, code, what = 502, "upstream_broken", "closed the connection before its answer was complete"
    return RequestError(
        f"The engine of {upstream.task} {what}; try again.", status=status, code=code, retry_after_s=1.0
    )


def _key(task: str, variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        found = "is not set" if not key else "holds what no HTTP header can"
        raise ConfigError(f"tasks.{task}.engine_key_env: the environment variable {variable} {found}")
    return key
