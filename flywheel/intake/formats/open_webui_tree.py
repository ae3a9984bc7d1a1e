"""The messages of an Open WebUI chat: a tree, since a question may be asked and answered again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flywheel.intake.formats import chat
from flywheel.intake.formats.open_webui_content import take_apart
from flywheel.intake.records import BadRecord, Json

MAX_UNFOLDED = 64 * 2**20
"""Most characters that all requests of one chat may hold together: each repeats what came before it."""


@dataclass(frozen=True)
class Tree:
    """The messages of one chat by id.

    Args:
        nodes: each has its ``id``; ``parentId`` names another one or nothing.
        system: the chat's system prompt, or "".
        params: its other parameters.
    """

    own_id: Any
    nodes: dict[str, Json]
    system: str
    params: Json

    @classmethod
    def of(cls, found: Any) -> Tree:
        """Read the ``chat`` object of an export: its tree, or the plain list of older ones.

        Raises BadRecord when there are no messages, or their parents go in a circle.
        """
        body = chat.mapping(found)
        history = chat.mapping(body.get("history")).get("messages")
        nodes: dict[str, Json] = {}
        if isinstance(history, dict):
            rows = [row if "id" in row else row | {"id": key} for key, row in history.items() if isinstance(row, dict)]
        else:
            listed = body.get("messages")
            rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
        before = None
        for row in rows:
            if (own := chat.call_id(row.get("id"))) is None:
                raise BadRecord("a message has no id")
            nodes[own] = {"parentId": before, **row, "id": own}
            before = None if isinstance(history, dict) else own
        if not nodes:
            raise BadRecord("no messages")
        given = chat.mapping(body.get("params"))
        system = chat.text(chat.first(given.get("system"), body.get("system"))) or ""
        params = {key: value for key, value in given.items() if key != "system"}
        return cls(body.get("id"), nodes, system, chat.present(params))

    def answers(self) -> Iterator[Json]:
        """The messages of the assistant."""
        return (node for node in self.nodes.values() if node.get("role") == "assistant")

    def before(self, node: Json) -> list[Json]:
        """The messages from the root to the one before ``node``."""
        way: list[Json] = []
        seen = {node["id"]}
        while (above := self._parent(node)) is not None:
            if above["id"] in seen:
                raise BadRecord("the messages go in a circle")
            seen.add(above["id"])
            way.append(above)
            node = above
        return way[::-1]

    def history(self, node: Json) -> list[Json]:
        """The request that led to ``node``: the system prompt and all before it, answers as the user read them."""
        first = [{"role": "system", "content": self.system}] if self.system else []
        if not (way := self.before(node)):
            raise BadRecord("no messages")
        return first + [chat.message(_sent(above)) for above in way]

    def answer_before(self, node: Json) -> str | None:
        """The id of the answer before ``node`` on its branch."""
        return next((above["id"] for above in self.before(node)[::-1] if above.get("role") == "assistant"), None)

    def asked_again(self) -> dict[str, Json]:
        """By the id of an answer, the next one that the same model gave to the same message, in the same column.

        Their times say which is the next: the order of an object's keys does not outlive every tool.
        """
        last: dict[tuple[str, ...], str] = {}
        found = {}
        for node in sorted(self.answers(), key=lambda node: chat.number(node.get("timestamp")) or 0):
            place = (str(node.get("parentId")), str(node.get("model")), str(node.get("modelIdx")))
            if place in last:
                found[last[place]] = node
            last[place] = node["id"]
        return found

    def has_files(self, node: Json) -> bool:
        """Whether the user gave documents with the question."""
        above = self._parent(node)
        return above is not None and any(not _is_image(file) for file in _files(above))

    def check_size(self) -> None:
        """Raise BadRecord when the chat holds too much to be written out as calls."""
        sizes: dict[str, int] = {}
        total = 0
        for node in self.answers():
            missing = [node]
            while (above := self._parent(missing[-1])) is not None and above["id"] not in sizes:
                if len(missing) > len(self.nodes):
                    raise BadRecord("the messages go in a circle")
                missing.append(above)
            size = sizes[above["id"]] if above is not None else 0
            for one in reversed(missing):
                size += _size(one)
                sizes[one["id"]] = size
            total += size
        if total > MAX_UNFOLDED:
            raise BadRecord("the chat is too long")

    def _parent(self, node: Json) -> Json | None:
        name = node.get("parentId")
        return self.nodes.get(str(name)) if isinstance(name, str | int) else None


_OVERHEAD = 40  # characters that a message takes besides its content


def _sent(node: Json) -> Json:
    """A message as it was sent to the model."""
    content = node.get("content")
    if node.get("role") == "assistant" and isinstance(content, str):
        content = take_apart(content).text
    images = [{"type": "image_url", "image_url": {"url": file.get("url")}} for file in _files(node) if _is_image(file)]
    if images and isinstance(content, str | None):
        content = [*([{"type": "text", "text": content}] if content else []), *images]
    return {"role": node.get("role"), "content": content}


def _files(node: Json) -> list[Json]:
    files = node.get("files")
    return [file for file in files if isinstance(file, dict)] if isinstance(files, list) else []


def _is_image(file: Json) -> bool:
    return file.get("type") == "image" and isinstance(file.get("url"), str)


def _size(node: Json) -> int:
    images = sum(len(file["url"]) for file in _files(node) if _is_image(file))
    content = node.get("content")
    return _OVERHEAD + images + (len(content) if isinstance(content, str) else 0)
