"""Places with logs in ``flywheel.yaml``, and which columns of a table of one's own hold what."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from flywheel.config_values import place_without_password


class Section(BaseModel):
    """A part of the file: immutable, and intolerant of keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ColumnMap(Section):
    """Which columns of a table of one's own hold what; ``a.b`` is ``b`` inside ``a``.

    Without ``messages`` or ``prompt`` a row is feedback only, about the call ``id`` or the ``conversation``.
    """

    messages: str | None = Field(None, min_length=1, description="a chat: messages, a request's body or a text")
    prompt: str | None = Field(None, min_length=1, description="what the user said, to the letter")
    response: str | None = Field(None, min_length=1, description="a completion, its stream, a message or a text")
    completion: str | None = Field(None, min_length=1, description="what the model said, to the letter")
    id: str | None = Field(None, min_length=1, description="of the call; default is made from the content")
    time: str | None = Field(None, min_length=1)
    user: str | None = Field(None, min_length=1)
    conversation: str | None = Field(None, min_length=1)
    model: str | None = Field(None, min_length=1)
    label: str | None = Field(None, min_length=1, description="the right answer")
    thumb: str | None = Field(None, min_length=1, description="true, false, 1, 0, -1, up, down, good, bad ...")
    rating: str | None = Field(None, min_length=1, description="a number; 1 to 5 if the column is called stars")
    correction: str | None = Field(None, min_length=1, description="what should have been said")
    comment: str | None = Field(None, min_length=1)
    outcome: str | None = Field(None, min_length=1, description="whether what came of it was a success")
    metadata: tuple[str, ...] = Field((), description="kept with the call under their own names")

    @field_validator("metadata", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _makes_sense(self) -> ColumnMap:
        for one, other in (("messages", "prompt"), ("response", "completion")):
            if getattr(self, one) and getattr(self, other):
                raise ValueError(f"`{one}` and `{other}` are the same thing in two forms: name one of them")
        if self.prompt and not (self.response or self.completion):
            raise ValueError("`prompt` needs `completion`, or `response`: the column with the answer")
        if not (self.messages or self.prompt):
            if self.response or self.completion:
                raise ValueError("an answer needs `messages` or `prompt`: the column with what was asked")
            if not (self.feedback and (self.id or self.conversation)):
                raise ValueError("expected `messages` or `prompt`, or `id` or `conversation` with a column of feedback")
        return self

    @property
    def feedback(self) -> dict[str, str]:
        """Kind of feedback to column."""
        kinds = ("label", "thumb", "rating", "correction", "comment", "outcome")
        return {kind: column for kind in kinds if (column := getattr(self, kind)) is not None}


class LogEntry(Section):
    """One place with logs."""

    path: str = Field(min_length=1, description="file, folder, glob, or a URL such as s3://bucket/llm/")
    format: str = Field("auto", min_length=1, description="a format's name, `columns`, or auto: look at each record")
    columns: ColumnMap | None = Field(None, description="which column holds what, for a table of your own")

    @field_validator("path")
    @classmethod
    def _no_password(cls, path: str) -> str:
        return place_without_password(path)

    @model_validator(mode="after")
    def _columns_for_a_table(self) -> LogEntry:
        if (self.format == "columns") != (self.columns is not None) and self.format != "auto":
            raise ValueError("`columns` and `format: columns` go together: name the columns, or another format")
        return self
