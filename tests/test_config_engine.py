"""``tasks.<task>.engine``: an address without secrets in it, and the name of a variable for the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flywheel.config import Config, parse_config
from flywheel.errors import ConfigError


def config(**task: Any) -> Config:
    return parse_config({"tasks": {"router": {"base": "acme/model", **task}}}, Path("/etc/flywheel.yaml"))


def test_an_engine_is_an_address_and_its_last_slash_is_none_of_it() -> None:
    parsed = config(engine="http://vllm:8000/v1/", engine_key_env="VLLM_API_KEY")
    assert parsed.task("router").engine == "http://vllm:8000/v1" and parsed.embedded == {}
    assert set(config().embedded) == {"router"}


def test_a_task_may_be_called_what_its_own_engine_calls_the_model() -> None:
    task = {"router": {"base": "router", "engine": "http://vllm/v1"}}
    assert parse_config({"tasks": task}, Path("/etc/flywheel.yaml")).tasks


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ({"engine": "vllm:8000"}, "expected an address such as"),
        ({"engine": "ftp://vllm/v1"}, "expected an address such as"),
        ({"engine": "http://"}, "expected an address such as"),
        ({"engine": "http://vllm:99999/v1"}, "expected an address such as"),
        ({"engine": "http://vllm/v1\nx: y"}, "expected an address such as"),
        ({"engine": "http://[::1/v1"}, "expected an address such as"),
        ({"engine": "http://me:SECRET@vllm/v1"}, "no user, query or fragment"),
        ({"engine": "http://vllm/v1?key=SECRET"}, "no user, query or fragment"),
        ({"engine": "http://vllm/v1", "engine_key_env": "sk-SECRET"}, "the name of an environment variable"),
        ({"engine_key_env": "VLLM_API_KEY"}, "engine_key_env needs `engine`"),
    ],
)
def test_what_cannot_be_is_refused_and_never_quoted(task: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**task)
    assert says in str(caught.value) and "SECRET" not in str(caught.value)
