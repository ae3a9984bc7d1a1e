"""Chat messages to token ids and back, the same way for serving, training and evaluation."""

from __future__ import annotations

from typing import Any

from flywheel.errors import DatasetError, ModelUnavailable, RequestError
from flywheel.models.directory import ModelDir, eos_ids

Message = dict[str, Any]

UNFINISHED = "\ufffd"
"""What decoding gives for bytes that are not, or not yet, a whole UTF-8 character."""


class StreamDecoder:
    """Turns token ids into text as they come. The pieces join to the text of all ids."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._context = 0  # decoding starts here: one emitted piece back, for tokenizers whose text depends on the left
        self._emitted = 0  # ids before this one are emitted

    def push(self, token_id: int) -> str:
        """Text that became certain with this token: never half a UTF-8 character, so often ``""``."""
        self._ids.append(token_id)
        before, after = self._window()
        if after.endswith(UNFINISHED) or len(after) <= len(before):
            return ""
        self._context, self._emitted = self._emitted, len(self._ids)
        return after[len(before) :]

    def flush(self) -> str:
        """What is left at the end of the answer, with U+FFFD for bytes that never became a character."""
        before, after = self._window()
        self._context = self._emitted = len(self._ids)
        return after[len(before) :]

    def _window(self) -> tuple[str, str]:
        decode = self._tokenizer.decode
        return decode(self._ids[self._context : self._emitted]), decode(self._ids[self._context :])


class ChatTokenizer:
    """A model's tokenizer and chat template. Safe to use from several threads.

    Attributes:
        eos_ids: ids that end an answer.
    """

    def __init__(self, model: ModelDir) -> None:
        from transformers import AutoTokenizer

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(
                str(model.path), trust_remote_code=False, local_files_only=True
            )
        except (OSError, ValueError, KeyError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ModelUnavailable(f"{model.path}: the tokenizer cannot be loaded: {reason}") from error
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ModelUnavailable(f"{model.path}: its tokenizer has no form for the `tokenizers` library")
        # Calls go to the backend directly: the wrapper changes its state in every call, and two threads then collide.
        backend.no_padding()
        backend.no_truncation()
        self._backend = backend
        own = self._tokenizer.eos_token_id
        self.eos_ids: frozenset[int] = eos_ids(model.path) | (frozenset() if own is None else {own})
        if not self.eos_ids:
            raise ModelUnavailable(f"{model.path}: names no end-of-text token")
        self._eos_id: int = own if own is not None else min(self.eos_ids)

    def __len__(self) -> int:
        return len(self._tokenizer)

    def encode_prompt(self, messages: list[Message], tools: list[dict[str, Any]] | None = None) -> list[int]:
        """Ids of the messages up to where the assistant's answer begins. Raises RequestError (400) if the template
        cannot take them."""
        return self.encode(self._render(messages, tools, prompt=True))

    def encode_example(
        self, messages: list[Message], train_mask: list[bool], tools: list[dict[str, Any]] | None = None
    ) -> tuple[list[int], list[bool]]:
        """Ids of a conversation up to its last trained message, and for each id whether it is learned.

        Learned are the ids of the trained messages with their end-of-turn token: exactly what generation has to emit
        after ``encode_prompt(messages[:i])``. Messages after the last trained one are left out.

        Raises DatasetError when nothing is to be learned or the template rewrites earlier turns.
        """
        if len(train_mask) != len(messages):
            raise DatasetError(f"train_mask has {len(train_mask)} entries for {len(messages)} messages")
        trained = [i for i, learn in enumerate(train_mask) if learn]
        if not trained:
            raise DatasetError("no message of the example is marked to be learned")
        *earlier, last = trained
        text = self._render(messages[:last], tools, prompt=True)
        encoding = self._encoding(text)
        learned = [False] * len(encoding.ids)
        for i in earlier:
            start, answer = self._answer(messages, i, tools)
            if not text.startswith(answer, start):
                raise DatasetError("the chat template rewrites earlier turns; mark only the last message as learned")
            end = start + self._first_turn(answer)
            for position, (begin, finish) in enumerate(encoding.offsets):
                learned[position] = learned[position] or (begin >= start and finish <= end and finish > begin)
        answer_ids = self._answer_ids(self._answer(messages, last, tools)[1])
        return [*encoding.ids, *answer_ids], [*learned, *([True] * len(answer_ids))]

    def encode(self, text: str) -> list[int]:
        """Ids of a text as it stands; special tokens in it are recognised, none is added."""
        ids: list[int] = self._encoding(text).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        """Text of ids without special tokens."""
        text: str = self._backend.decode(ids, skip_special_tokens=True)
        return text

    def stream_decoder(self) -> StreamDecoder:
        """A decoder for one answer."""
        return StreamDecoder(self)

    def _encoding(self, text: str) -> Any:
        # Half a surrogate pair can arrive in JSON, but has no UTF-8 form.
        return self._backend.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False)

    def _answer(self, messages: list[Message], i: int, tools: list[dict[str, Any]] | None) -> tuple[int, str]:
        """Where message ``i`` begins in the rendered text, and its text with whatever ends the turn."""
        prompt = self._render(messages[:i], tools, prompt=True)
        whole = self._render(messages[: i + 1], tools, prompt=False)
        if not whole.startswith(prompt):
            raise DatasetError("the chat template does not begin an answer with its generation prompt; cannot train it")
        return len(prompt), whole[len(prompt) :]

    def _answer_ids(self, answer: str) -> list[int]:
        ids = self.encode(answer)
        for position, token in enumerate(ids):
            if token in self.eos_ids:
                return ids[: position + 1]
        return [*self.encode(answer.rstrip("\n")), self._eos_id]

    def _first_turn(self, answer: str) -> int:
        """Characters of ``answer`` up to and with its end-of-turn token."""
        encoding = self._encoding(answer)
        ends = (
            offset[1] for token, offset in zip(encoding.ids, encoding.offsets, strict=True) if token in self.eos_ids
        )
        return next(ends, len(answer))

    def _render(self, messages: list[Message], tools: list[dict[str, Any]] | None, *, prompt: bool) -> str:
        from jinja2 import TemplateError

        plain = [_plain(message) for message in messages]
        try:
            text: str = self._tokenizer.apply_chat_template(
                plain, tools=tools or None, add_generation_prompt=prompt, tokenize=False
            )
        except (TemplateError, TypeError, KeyError, ValueError, IndexError):
            # The cause may quote a message, so it is not chained into what people see.
            raise RequestError(
                f"the model's chat template cannot take these {len(plain)} messages; look at their roles and order",
                code="invalid_messages",
                param="messages",
            ) from None
        return text


def load_tokenizer(model: ModelDir) -> ChatTokenizer:
    """The tokenizer and chat template of a model."""
    return ChatTokenizer(model)


def _plain(message: Message) -> Message:
    """One message as templates know it: text content, and ``system`` for its newer name ``developer``."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError("each message must be an object with a role", code="invalid_messages", param="messages")
    content = message.get("content")
    if isinstance(content, list):
        parts = [
            part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content
        ]
        if not all(isinstance(part, str) for part in parts):
            raise RequestError("message content may hold text parts only", code="invalid_messages", param="messages")
        content = "".join(str(part) for part in parts)
    elif content is None:
        content = ""
    elif not isinstance(content, str):
        raise RequestError("message content must be text", code="invalid_messages", param="messages")
    role = "system" if message["role"] == "developer" else message["role"]
    return {**message, "role": role, "content": content}
