"""Starting, stopping, breaking: one gateway per home, nothing acknowledged is lost, nothing ends in silence."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml

from flywheel.errors import ConfigError, HomeBusy
from flywheel.gateway.server import serve
from flywheel.release.replicas import live
from flywheel.release.rollout import ready_replicas

TASK = "support_router"
LONG = {"model": "tiny", "messages": [{"role": "user", "content": "long"}], "max_tokens": 400, "stream": True}
SCRIPT = """
import sys
from flywheel.config import load_config
from flywheel.gateway.server import serve
serve(load_config(sys.argv[1]), on_ready=lambda gateway: print(gateway.url, flush=True))
"""


@contextmanager
def child(world: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A gateway in a process of its own, and where it answers."""
    path = Path(world.home.root).parent / "flywheel.yaml"
    path.write_text(yaml.safe_dump(json.loads(world.config.model_dump_json(exclude_none=True))))
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def eventually(check: Any, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_second_gateway_on_the_home_is_refused(world: Any, start_gateway: Any) -> None:
    start_gateway(world)
    with pytest.raises(HomeBusy, match="another gateway"):
        serve(world.config)


def test_a_taken_port_is_one_clear_line(make_world: Any, start_gateway: Any) -> None:
    first = start_gateway(make_world())
    second = make_world(port=int(first.url.rsplit(":", 1)[1]))
    with pytest.raises(ConfigError, match="cannot listen"):
        serve(second.config)


def test_each_boot_logs_to_a_file_of_its_own_and_leaves_the_list_of_replicas(world: Any, start_gateway: Any) -> None:
    for boots in (1, 2):
        gateway = start_gateway(world)
        with world.registry.read() as tx:
            assert [replica.replica_id for replica in live(tx)] == [gateway.running.replica_id]
        gateway.sdk().chat.completions.create(model=TASK, messages=[{"role": "user", "content": "x"}], max_tokens=1)
        gateway.stop()
        assert len(list(world.home.log.glob("*.jsonl"))) == boots
        with world.registry.read() as tx:
            assert live(tx) == []
    assert len(world.log()) == 2


def test_stopping_lets_a_running_stream_end(world: Any, start_gateway: Any) -> None:
    gateway = start_gateway(world)
    with gateway.http() as http, http.stream("POST", "/v1/chat/completions", json=LONG) as answer:
        lines = answer.iter_lines()
        next(lines)
        gateway.running.stop()
        eventually(lambda: ready_replicas(world.registry) == [])
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    gateway.thread.join(30)
    assert not gateway.thread.is_alive()
    (row,) = world.log()
    assert row["status"] == "ok" and row["usage"]["completion_tokens"] > 50


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_rows_and_is_logged(world: Any, start_gateway: Any, stream: bool) -> None:
    gateway = start_gateway(world)
    body = {**LONG, "n": 2, "stream": stream}
    with gateway.http() as http:
        if stream:
            with http.stream("POST", "/v1/chat/completions", json=body) as answer:
                next(answer.iter_lines())
        else:
            with pytest.raises(httpx.ReadTimeout):
                http.post("/v1/chat/completions", json=body, timeout=0.15)
        eventually(lambda: [row["status"] for row in world.log()] == ["cancelled"])
        eventually(lambda: 'flywheel_running_rows{base="tiny"} 0.0' in http.get("/metrics").text)
        assert 'flywheel_requests_total{status="cancelled",task="(base)"} 1.0' in http.get("/metrics").text
    (row,) = world.log()
    assert all(choice["finish_reason"] is None for choice in row["choices"])


def test_a_full_queue_is_a_429_that_says_when_to_come_back(make_world: Any, start_gateway: Any) -> None:
    gateway = start_gateway(make_world(max_rows=1, queue_limit=1))
    with gateway.http() as http, http.stream("POST", "/v1/chat/completions", json={**LONG, "n": 1}) as answer:
        next(answer.iter_lines())
        with http.stream("POST", "/v1/chat/completions", json={**LONG, "n": 4}) as refused:
            refused.read()
        assert refused.status_code == 429 and refused.json()["error"]["code"] == "queue_full"
        assert int(refused.headers["retry-after"]) >= 1 and int(refused.headers["retry-after-ms"]) >= 1000
    with pytest.raises(openai.RateLimitError):
        gateway.sdk().chat.completions.create(**{**LONG, "stream": False, "n": 9})
    eventually(lambda: 'flywheel_waiting_rows{base="tiny"} 0.0' in gateway.http().get("/metrics").text)
    answer = gateway.sdk(max_retries=3).chat.completions.create(**{**LONG, "stream": False, "max_tokens": 1})
    assert answer.choices, "the rows of refused requests are free again"


def test_a_failure_in_mid_stream_is_an_error_event_and_no_done(
    world: Any, start_gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flywheel.engine.forwards import Forwards

    gateway = start_gateway(world)
    real, steps = Forwards.decode, 0

    def decode(self: Any, *args: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps > 5:
            raise RuntimeError("SECRET internals")
        return real(self, *args)

    monkeypatch.setattr(Forwards, "decode", decode)
    with gateway.http() as http:
        text = http.post("/v1/chat/completions", json=LONG).text
        assert "[DONE]" not in text and "SECRET" not in text
        assert json.loads(text.strip().rsplit("data: ", 1)[1])["error"]["code"] == "internal_error"
        plain = http.post("/v1/chat/completions", json={**LONG, "stream": False})
        assert plain.status_code == 500 and "SECRET" not in plain.text
    with pytest.raises(openai.APIError):
        list(gateway.sdk().chat.completions.create(**LONG))
    eventually(lambda: [(row["status"], row["error"]) for row in world.log()] == [("error", "internal_error")] * 3)


def test_a_disk_that_refuses_gives_503_and_no_end(
    world: Any, start_gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = start_gateway(world)
    thumb = {"conversation_id": "c", "task": TASK, "kind": "thumb", "value": "up"}
    short = {**LONG, "max_tokens": 3}

    def write(_descriptor: int, _data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with gateway.http() as http:
        with monkeypatch.context() as patch:
            patch.setattr("flywheel.store.wal.os.write", write)
            text = http.post("/v1/chat/completions", json=short).text
            assert "[DONE]" not in text and "log_unavailable" in text and '"finish_reason":"' not in text
            again = http.post("/v1/chat/completions", json=short)
            assert again.status_code == 503 and "retry-after" in again.headers, "refused before any work is done"
            assert http.get("/healthz").status_code == 503
            time.sleep(1.1)
            plain = http.post("/v1/chat/completions", json={**short, "stream": False})
            assert plain.status_code == 503 and plain.json()["error"]["code"] == "log_unavailable"
            assert http.post("/v1/feedback", json=thumb).status_code == 503
        assert http.post("/v1/feedback", json=thumb).status_code == 200
        assert http.post("/v1/chat/completions", json=short).text.endswith("data: [DONE]\n\n")
    assert len(world.log()) == 2


def test_sigterm_ends_in_good_order(world: Any) -> None:
    with child(world) as (process, url):
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=LONG, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert process.wait(30) == 0
    (row,) = world.log()
    assert row["status"] == "ok"
    with world.registry.read() as tx:
        assert live(tx) == []


@pytest.mark.parametrize("rounds", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_kill_9_under_load_loses_nothing_that_was_acknowledged(world: Any, rounds: int) -> None:
    chance = random.Random()
    answered: dict[str, str] = {}
    thanked: list[str] = []
    for _ in range(rounds):
        with child(world) as (process, url):
            threads = [
                threading.Thread(target=_load, args=(url, number, answered, thanked), daemon=True)
                for number in range(4)
            ]
            for thread in threads:
                thread.start()
            enough, deadline = len(thanked) + 21, time.monotonic() + 60
            while len(thanked) < enough and time.monotonic() < deadline:
                time.sleep(0.01)  # a busy machine needs longer
            time.sleep(chance.random())
            process.kill()
            for thread in threads:
                thread.join(30)
                assert not thread.is_alive()
    rows = {row["id"]: row for row in world.log()}
    assert len(answered) > 20 and len(thanked) > 20
    for name, text in answered.items():
        assert rows[name]["choices"][0]["message"]["content"] == text and rows[name]["status"] == "ok"
    assert not [name for name in thanked if name not in rows]


def _load(url: str, number: int, answered: dict[str, str], thanked: list[str]) -> None:
    """Ask and give thanks until the gateway is gone; note only what was received to its end."""
    sdk = openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0, timeout=30)
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
        for turn in range(10_000):
            ask: Any = {"messages": [{"role": "user", "content": f"{number}/{turn}"}], "model": TASK, "max_tokens": 6}
            try:
                if (number + turn) % 2:
                    text, name, ended = "", "", False
                    for chunk in sdk.chat.completions.create(**ask, stream=True):
                        name, text = chunk.id, text + (chunk.choices[0].delta.content or "")
                        ended = ended or chunk.choices[0].finish_reason is not None
                    if not ended:
                        return
                else:
                    whole = sdk.chat.completions.create(**ask)
                    name, text = whole.id, whole.choices[0].message.content or ""
                answered[name] = text
                given = http.post("/v1/feedback", json={"interaction_id": name, "kind": "thumb", "value": "up"})
                if given.status_code == 200:
                    thanked.append(given.json()["id"])
            except (openai.OpenAIError, httpx.HTTPError):
                return
