"""What a chat-completion request may say. Unknown fields are ignored, known ones that cannot be honoured refused.

An ignored ``tools`` or ``response_format`` would give an answer of another kind than the caller asked for, in silence;
a penalty of 0 or ``tool_choice: none`` asks for nothing and passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from flywheel.errors import RequestError
from flywheel.gateway.errors import from_validation

MAX_CHOICES = 16
MAX_STOPS = 4

_ASKS_NOTHING: dict[str, Callable[[Any], bool]] = {
    "tools": lambda value: value == [],
    "functions": lambda value: value == [],
    "tool_choice": lambda value: value in ("none", "auto"),
    "function_call": lambda value: value in ("none", "auto"),
    "response_format": lambda value: isinstance(value, dict) and value.get("type") == "text",
    "logprobs": lambda value: value is False,
    "top_logprobs": lambda value: value == 0,
    "logit_bias": lambda value: value == {},
    "frequency_penalty": lambda value: value == 0,
    "presence_penalty": lambda value: value == 0,
    "modalities": lambda value: value == ["text"],
    "audio": lambda value: False,
    "web_search_options": lambda value: False,
}
"""Fields that change what an answer is; each with the values that ask for nothing. ``null`` always does."""


def _join_parts(value: Any) -> Any:
    """Text parts as one string; other content as it is."""
    if value is None:
        raise PydanticCustomError("string_type", "Input should be a string or a list of text parts, found null")
    if not isinstance(value, list):
        return value
    texts: list[str] = []
    for index, part in enumerate(value):
        if not isinstance(part, dict):
            raise PydanticCustomError("dict_type", "part {index} should be an object", {"index": index})
        if part.get("type") != "text":
            message = "part {index} is not of type `text`; this model reads text only"
            raise PydanticCustomError("unsupported", message, {"index": index})
        if not isinstance(part.get("text"), str):
            raise PydanticCustomError("string_type", "part {index} should have a string `text`", {"index": index})
        texts.append(part["text"])
    return "".join(texts)


def _stops(value: Any) -> Any:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class ChatMessage(_Strict):
    """One message; ``developer`` is the newer word for ``system``."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_join_parts)]

    @model_validator(mode="before")
    @classmethod
    def _no_tools(cls, value: Any) -> Any:
        if isinstance(value, dict):
            if value.get("tool_calls") or value.get("function_call") or value.get("role") in ("tool", "function"):
                raise PydanticCustomError("unsupported", "tool calls and their results are not supported")
            if value.get("role") == "developer":
                return {**value, "role": "system"}
        return value


class StreamOptions(_Strict):
    """What a stream carries besides text."""

    include_usage: bool | None = None


class ChatRequest(_Strict):
    """The honoured fields of ``POST /v1/chat/completions``, checked."""

    model: str = Field(min_length=1, max_length=512)
    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_stops)] = Field(
        [], max_length=MAX_STOPS
    )
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = Field(None, max_length=512)
    metadata: dict[str, Annotated[str, Field(max_length=512)]] | None = Field(None, max_length=16)

    @field_validator("metadata")
    @classmethod
    def _short_keys(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        if any(len(key) > 64 for key in value or ()):
            raise PydanticCustomError("string_too_long", "Keys should have at most 64 characters")
        return value

    @property
    def wanted_tokens(self) -> int | None:
        """The caller's own bound on the answer, by either of its names."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def choices(self) -> int:
        """How many answers."""
        return self.n or 1

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def conversation(self) -> list[dict[str, Any]]:
        """The messages as plain dictionaries of role and content."""
        return [{"role": message.role, "content": message.content} for message in self.messages]


def parse_chat(body: dict[str, Any]) -> ChatRequest:
    """Check a body. Raises RequestError (400) naming the first field at fault."""
    try:
        request = ChatRequest.model_validate(body)
    except ValidationError as error:
        raise from_validation(error) from None
    for field, asks_nothing in _ASKS_NOTHING.items():
        value = body.get(field)
        if value is not None and not asks_nothing(value):
            message = f"{field}: not supported by this gateway's engine; leave it out"
            raise RequestError(message, code="unsupported_value", param=field)
    if request.stream_options is not None and not request.stream:
        message = "stream_options: only allowed when `stream` is true"
        raise RequestError(message, code="invalid_value", param="stream_options")
    return request
