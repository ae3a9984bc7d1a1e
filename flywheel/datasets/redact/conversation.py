"""Redaction of one conversation: the same value becomes the same surrogate wherever in it the value is written.

A surrogate is a function of the deployment's key, the conversation, the kind and the value. What has been redacted
stays as it is when it is redacted again: surrogates are recognised.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flywheel.config_redact import RedactPolicy
from flywheel.datasets.prompts import Message
from flywheel.datasets.redact.draw import Draw
from flywheel.datasets.redact.find import find
from flywheel.datasets.redact.people import NAME, find_names, presidio, words_of
from flywheel.datasets.redact.spans import Kind, Span, settle
from flywheel.datasets.redact.views import View
from flywheel.store.home import mac

PASSES = 8
"""A surrogate may stand next to what then looks like more; a second pass has nothing to do in almost all texts."""


Value = tuple[Kind, str]


@dataclass(frozen=True)
class Redacted:
    """A conversation without personal data and secrets, and how many spans of each kind were in it."""

    messages: list[Message]
    tools: list[Any] | None
    counts: Counter[str]


def redact(
    messages: Sequence[Message],
    tools: Sequence[Any] | None = None,
    *,
    key: bytes,
    conversation: str,
    policy: RedactPolicy | None = None,
    public: str | None = None,
) -> Redacted:
    """The messages and tools with surrogates for personal data and placeholders for secrets.

    Texts, tool calls' arguments and tools' values are redacted; roles, ids and names of tools stay. Arguments stay the
    JSON that they were. Give answers that are learned or rejected in the same call, as further messages: a number that
    the prompt calls a phone is then the same phone in the answer, where no word says so.

    Args:
        key: the deployment's secret.
        conversation: its id; another conversation gives the same value another surrogate.
        policy: what is redacted; everything but names unless it says otherwise.
        public: a text whose values are nobody's, such as a system prompt with the address of a help desk: they stay
            wherever they stand. Secrets do not.

    Raises:
        ConfigError: names are wanted, and Presidio is not installed.
    """
    policy = policy or EVERYTHING
    same = Redacted(list(messages), None if tools is None else list(tools), Counter())
    if not policy.enabled:
        return same
    texts: dict[str, str] = {}

    def note(text: str) -> str:
        return texts.setdefault(text, text)

    for message in messages:
        _message(message, note)
    for tool in tools or ():
        _tool(tool, note)
    replaced = _Redactor(key, conversation, policy, public).replace(texts)
    if not replaced:
        return same

    def change(text: str) -> str:
        new, counts = replaced.get(text, (text, {}))
        same.counts.update(counts)
        return new

    said = [_message(message, change) for message in messages]
    return Redacted(said, None if tools is None else [_tool(tool, change) for tool in tools], same.counts)


EVERYTHING = RedactPolicy()


class _Redactor:
    """Finds values over all texts of a conversation before it replaces any."""

    def __init__(self, key: bytes, conversation: str, policy: RedactPolicy, public: str | None) -> None:
        self._secret, self._conversation = key, conversation
        self._families = frozenset(policy.kinds)
        self._names_of = presidio() if policy.names else None
        self._seen: dict[str, tuple[View, list[Span]]] = {}
        self._public = {(s.kind, s.value) for s in self._look(public or "")[1] if s.kind.family != "secret"}

    def replace(self, texts: Iterable[str]) -> dict[str, tuple[str, Counter[str]]]:
        """The texts in which something was found: what each becomes, and how many spans of each kind it had."""
        now = {text: text for text in texts}
        counts: dict[str, Counter[str]] = {}
        for _ in range(PASSES):
            names = self._names(now.values())
            known = self._known(now.values(), names)
            if not known:
                break
            for original, text in now.items():
                new, kinds = self._rewrite(text, known, names)
                if kinds:
                    now[original] = new
                    counts.setdefault(original, Counter()).update(kinds)
        return {text: (now[text], found) for text, found in counts.items()}

    def _known(self, texts: Iterable[str], names: Iterable[str]) -> set[Value]:
        """What is to be replaced: values that are sure somewhere, and those whose surrogate stands there already."""
        values: dict[bool, set[Value]] = {True: {(NAME, name.lower()) for name in names}, False: set()}
        invented: set[Value] = set()
        for text in texts:
            for span in self._look(text)[1]:
                value = span.kind, span.value
                if span.kind.invented(span.value):
                    invented.add(value)
                elif value not in self._public:
                    values[span.sure].add(value)
        if invented:
            values[True].update((k, v) for k, v in values[False] if (k, self._surrogate(k, v, v)) in invented)
        return values[True]

    def _look(self, text: str) -> tuple[View, list[Span]]:
        if text not in self._seen:
            view = View(text)
            self._seen[text] = view, find(view.text, self._families)
        return self._seen[text]

    def _names(self, texts: Iterable[str]) -> frozenset[str]:
        if self._names_of is None:
            return frozenset()
        words = words_of(name for text in texts for name in self._names_of(self._look(text)[0].text))
        return frozenset(word for word in words if not NAME.invented(word))

    def _rewrite(self, text: str, known: set[Value], names: frozenset[str]) -> tuple[str, list[str]]:
        """The text with what is known replaced, and the kind of each span that was."""
        view, spans = self._look(text)
        held = [s for s in spans if s.sure or (s.kind, s.value) in known or s.kind.invented(s.value)]
        if names:
            held += find_names(view.text, names)
        changes, kinds = [], []
        for span in settle(held):
            if (span.kind, span.value) in known:
                shown = view.text[span.start : span.end]
                changes.append((span.start, span.end, self._surrogate(span.kind, span.value, shown)))
                kinds.append(span.kind.name)
        return (view.changed(changes), kinds) if changes else (text, kinds)

    def _surrogate(self, kind: Kind, value: str, shown: str) -> str:
        return kind.surrogate(value, shown, Draw(mac(self._key, f"{kind.name}|{value}")))

    @cached_property
    def _key(self) -> bytes:
        """Of this conversation alone."""
        return mac(self._secret, f"redact|{self._conversation}")


Change = Callable[[str], str]


def _message(message: Message, change: Change) -> Message:
    """The message with every text in it changed."""
    new = dict(message)
    content = message.get("content")
    if isinstance(content, str):
        new["content"] = change(content)
    elif isinstance(content, list):
        new["content"] = [_part(part, change) for part in content]
    if isinstance(message.get("name"), str) and message.get("role") not in ("tool", "function"):
        new["name"] = change(message["name"])
    if isinstance(message.get("tool_calls"), list):
        new["tool_calls"] = [_call(call, change) for call in message["tool_calls"]]
    return new


def _part(part: Any, change: Change) -> Any:
    if isinstance(part, str):
        return change(part)
    if isinstance(part, Mapping):
        return {k: change(v) if k in ("text", "refusal") and isinstance(v, str) else v for k, v in part.items()}
    return part


def _call(call: Any, change: Change) -> Any:
    """A tool call with its arguments changed, wherever its shape has them."""
    if not isinstance(call, Mapping):
        return call
    new = {k: _call(v, change) if k in ("function", "custom") else v for k, v in call.items()}
    for field in ("arguments", "input"):
        if field in call:
            new[field] = _arguments(call[field], change)
    return new


def _arguments(value: Any, change: Change) -> Any:
    """JSON text, or what it says: then it is read as text, in which keys stand beside their values."""
    if isinstance(value, str):
        return change(value)
    text = json.dumps(value, ensure_ascii=False)
    new = change(text)
    return value if new == text else json.loads(new)


def _tool(value: Any, change: Change) -> Any:
    """A tool's texts changed: descriptions, defaults, examples. Its name and types are no texts."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {k: v if k in ("name", "type") and isinstance(v, str) else _tool(v, change) for k, v in value.items()}
    return [_tool(one, change) for one in value] if isinstance(value, list | tuple) else value
