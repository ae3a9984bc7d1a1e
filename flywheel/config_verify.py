"""Verifiers and the judge in ``flywheel.yaml``: what looks at answers by itself and says whether they are right."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ConfigDict, Field, PrivateAttr, field_validator, model_validator

from flywheel.config_logs import Section
from flywheel.config_values import address, variable_name

VERIFIER_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z")
_KINDS = ("python", "schema", "regex", "sql")

RUBRIC = "The answer does what was asked, is correct, and leaves out nothing that matters."


class SqlCheck(Section):
    """A question to a SQLite file, which is only read."""

    database: str = Field(min_length=1, description="SQLite file")
    query: str = Field(min_length=1, description="may use :answer, :prompt and :interaction_id")
    answer_is_sql: bool = Field(
        False,
        description="the query names the SQL that would be right, and both must give the same rows in any order; "
        "otherwise the query's one cell says whether the answer is right",
    )


class VerifierEntry(Section):
    """One verifier: a name, and one of four ways to tell a right answer from a wrong one."""

    model_config = ConfigDict(serialize_by_alias=True)

    name: str = Field(description="its words go under this name; another name is another author")
    python: str | None = Field(None, description="package.module:function of your own; its file is run")
    # `schema` is a method of every pydantic model, so the field goes by another name.
    json_schema: str | None = Field(
        None, alias="schema", min_length=1, description="file with a JSON Schema that the answer must satisfy"
    )
    regex: str | None = Field(None, description="must match the whole stripped answer; flags inside it: (?i), (?s)")
    sql: SqlCheck | None = Field(None, description="a question to a SQLite file")
    _folder: str = PrivateAttr("")

    @field_validator("name")
    @classmethod
    def _a_name(cls, name: str) -> str:
        if not VERIFIER_NAME.match(name):
            raise ValueError(f"verifier name {name!r} must match [a-z][a-z0-9_]*")
        return name

    @field_validator("python")
    @classmethod
    def _a_function(cls, python: str | None) -> str | None:
        if python is not None and not _FUNCTION.match(python):
            raise ValueError(f"{python!r} is no import path of a function; expected package.module:function")
        return python

    @field_validator("regex")
    @classmethod
    def _a_regex(cls, regex: str | None) -> str | None:
        try:
            re.compile(regex or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return regex

    @model_validator(mode="after")
    def _one_way(self) -> VerifierEntry:
        if sum(way is not None for way in (self.python, self.json_schema, self.regex, self.sql)) != 1:
            raise ValueError(f"expected exactly one of {', '.join(f'`{kind}`' for kind in _KINDS)}")
        return self

    @property
    def folder(self) -> str:
        """Where user code is looked for behind Python's own path; "" for nowhere."""
        return self._folder

    def based_in(self, folder: Path) -> VerifierEntry:
        """The entry with relative files taken from ``folder``, where user code may lie, too."""
        files: dict[str, object] = {}
        if self.json_schema is not None:
            files["json_schema"] = str(folder / self.json_schema)
        if self.sql is not None:
            files["sql"] = self.sql.model_copy(update={"database": str(folder / self.sql.database)})
        found = self.model_copy(update=files)
        found._folder = str(folder)
        return found


class JudgeEntry(Section):
    """A language model that says whether answers are good, behind any OpenAI-compatible endpoint."""

    endpoint: str = Field(description="URL up to and with `/v1`; conversations and answers are sent there")
    model: str = Field(min_length=1, description="the model's name there; not one that is being judged or trained")
    key_env: str | None = Field(None, description="environment variable that holds the endpoint's API key")
    rubric: str = Field(RUBRIC, min_length=1, description="when an answer is good, in words for the judge")
    share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="uniform share of conversations that are judged; drawn as the audit sample is, so that the smaller "
        "of the two lies in the larger. 0 asks nothing and keeps what was said",
    )
    max_per_run: int = Field(200, ge=1, description="answers and pairs per run of the label stage, two requests each")

    @field_validator("endpoint")
    @classmethod
    def _an_address(cls, endpoint: str) -> str:
        return address(endpoint, "key_env")

    @field_validator("key_env")
    @classmethod
    def _a_variable(cls, name: str | None) -> str | None:
        return None if name is None else variable_name(name)


def each_once(verifiers: tuple[VerifierEntry, ...]) -> tuple[VerifierEntry, ...]:
    """The verifiers, if no two have one name: each is an author of its own."""
    names = [entry.name for entry in verifiers]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"the verifier {twice[0]} is there twice; each needs a name of its own")
    return verifiers
