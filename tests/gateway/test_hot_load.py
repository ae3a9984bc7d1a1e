"""Releases come and go under running answers; every answer is whole and of the release its log row names."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from flywheel.gateway.backends import Backend
from flywheel.gateway.replica import KEEP_LOADED
from flywheel.release.replicas import ReplicaClient, live, operator_token
from flywheel.release.rollback import rollback

TASK = "support_router"
PROMPTS = [f"question {n}: {'ab' * n}" for n in range(6)]


def ask(client: openai.OpenAI, model: str, prompt: str, tokens: int = 24) -> Any:
    messages: list[Any] = [{"role": "user", "content": prompt}]
    return client.chat.completions.create(model=model, messages=messages, max_tokens=tokens)


def admin(gateway: Any) -> ReplicaClient:
    return ReplicaClient(gateway.url, operator_token(gateway.world.home))


def test_streams_around_flips_are_whole_and_of_one_release(world: Any, start_gateway: Any) -> None:
    releases = [world.release(seed) for seed in (1, 2)]
    gateway = start_gateway(world)
    client = gateway.sdk()
    with admin(gateway) as operator:
        for release in releases:
            operator.load(release.digest)
            assert operator.probe(release.digest)["passed"]
    expected = {
        (release.digest, prompt): ask(client, release.name, prompt, 60).choices[0].message.content
        for release, prompt in itertools.product(releases, PROMPTS)
    }
    assert all(expected[releases[0].digest, p] != expected[releases[1].digest, p] for p in PROMPTS)
    world.point(releases[0])
    with admin(gateway) as operator:
        operator.route(TASK)
    stop, answers, failures = threading.Event(), [], []

    def stream(worker: int) -> None:
        for turn in itertools.count():
            prompt = PROMPTS[(worker + turn) % len(PROMPTS)]
            try:
                chunks = list(
                    client.chat.completions.create(
                        model=TASK, messages=[{"role": "user", "content": prompt}], max_tokens=60, stream=True
                    )
                )
            except openai.OpenAIError as error:
                failures.append(error)
                return
            text = "".join(c.choices[0].delta.content or "" for c in chunks)
            answers.append((chunks[0].id, prompt, text, chunks[-1].choices[0].finish_reason))
            if stop.is_set():
                return

    workers = [threading.Thread(target=stream, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    with admin(gateway) as operator:
        for release in [releases[1], releases[0]] * 5:
            wanted = world.point(release)
            assert operator.route(TASK) == {"task": TASK, "release": release.digest, "version": wanted.version}
            time.sleep(0.15)
    stop.set()
    for worker in workers:
        worker.join()
    assert not failures and all(reason in ("stop", "length") for *_, reason in answers)
    rows = {row["id"]: row for row in world.log()}
    for name, prompt, text, _ in answers:
        assert text == expected[rows[name]["release"], prompt]
        assert rows[name]["choices"][0]["message"]["content"] == text
    assert {rows[name]["release"] for name, *_ in answers} == {release.digest for release in releases}
    assert f'flywheel_swaps_total{{task="{TASK}"}} 1' in gateway.http().get("/metrics").text


def test_an_operators_rollback_and_forward_again_reach_the_gateway_at_once(world: Any, start_gateway: Any) -> None:
    first, second = world.release(1), world.release(2)
    world.point(first)
    world.point(second)
    gateway = start_gateway(world)
    assert ask(gateway.sdk(), TASK, "x", 2).system_fingerprint == second.digest[:12]
    for target in (first, second):
        report = rollback(world.config, world.home, world.registry, TASK, to=target.digest, actor="ann")
        assert ask(gateway.sdk(), TASK, "x", 2).system_fingerprint == target.digest[:12]
        assert report.replicas == 1 and not report.notes


def test_a_rollback_whose_call_never_came_arrives_with_the_heartbeat(world: Any, start_gateway: Any) -> None:
    gateway = start_gateway(world)
    client = gateway.sdk()
    base = world.champion()
    assert ask(client, TASK, "x", 2).system_fingerprint == base.release[:12]
    release = world.release(3)
    moved = world.point(release)
    deadline = time.monotonic() + 15
    while ask(client, TASK, "x", 2).system_fingerprint != release.digest[:12]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    while True:
        with world.registry.read() as tx:
            (row,) = live(tx)
        if row.observed[TASK] == {"release": release.digest, "version": moved.version}:
            break
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert row.state == "ready" and row.url == gateway.url


def test_a_champion_that_cannot_be_proven_takes_its_task_down_and_no_other(world: Any, start_gateway: Any) -> None:
    unproven = world.release(4, record=False)
    world.point(unproven)
    gateway = start_gateway(world)
    with pytest.raises(openai.InternalServerError) as caught:
        ask(gateway.sdk(), TASK, "x")
    assert caught.value.status_code == 503 and "no probe recording" in caught.value.message
    assert "retry-after" in caught.value.response.headers
    assert ask(gateway.sdk(), "summary", "x", 2).choices
    with gateway.http() as http:
        assert http.get("/healthz").status_code == 503 and http.get("/healthz").json()["down"] == [TASK]
        assert TASK in http.get("/admin/status").json()["faults"]
        assert f'flywheel_task_up{{task="{TASK}"}} 0.0' in http.get("/metrics").text
    assert not [row for row in world.log() if row["task"] == TASK], "the base did not answer in its place"


def test_a_damaged_or_missing_checkpoint_never_replaces_a_release_that_works(world: Any, start_gateway: Any) -> None:
    good, damaged, missing = (world.release(seed) for seed in (5, 6, 7))
    world.point(good)
    gateway = start_gateway(world)
    weights = world.home.checkpoints / damaged.checkpoint / "adapter_model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(raw)
    shutil.rmtree(world.home.checkpoints / missing.checkpoint)
    for broken in (damaged, missing):
        world.point(broken)
        with gateway.http() as http:
            answer = http.post("/admin/route", json={"task": TASK})
            assert answer.status_code == 409 and answer.json()["error"]["message"]
        assert ask(gateway.sdk(), TASK, "x", 2).system_fingerprint == good.digest[:12]


def test_a_known_release_is_loaded_on_demand_for_operators_only(world: Any, start_gateway: Any) -> None:
    from flywheel.gateway.keys import create_key

    release = world.release(8)
    keys = {scope: create_key(world.registry, scope, [scope]) for scope in ("infer", "operate")}
    gateway = start_gateway(world)
    name = f"{TASK}@{release.digest[:8]}"
    with pytest.raises(openai.NotFoundError, match="not loaded"):
        ask(gateway.sdk(keys["infer"]), name, "x", 2)
    assert ask(gateway.sdk(keys["operate"]), name, "x", 2).model == release.name
    assert ask(gateway.sdk(keys["infer"]), name, "x", 2).model == release.name


def test_unload_lets_running_answers_end_and_refuses_what_is_routed(world: Any, start_gateway: Any) -> None:
    release = world.release(9)
    gateway = start_gateway(world)
    client = gateway.sdk()
    with admin(gateway) as operator:
        operator.load(release.digest)
        whole = ask(client, release.name, PROMPTS[0], 200).choices[0]
        stream = client.chat.completions.create(
            model=release.name, messages=[{"role": "user", "content": PROMPTS[0]}], max_tokens=200, stream=True
        )
        next(stream)
        assert operator.unload(release.name) == {"unloaded": release.name}
        assert release.name not in operator.status()["loaded"]
        with pytest.raises(Exception, match="409"):
            operator.unload(f"{TASK}@{world.champion().release[:12]}")
    texts = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert whole.message.content.endswith("".join(texts)) and texts
    with gateway.http() as http:
        body = {"model": release.name, "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        assert http.post("/v1/chat/completions", content=json.dumps(body)).status_code == 200  # loaded again on demand


def test_unload_waits_for_a_request_that_is_on_its_way_to_the_engine(
    world: Any, start_gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = world.release(10)
    gateway = start_gateway(world)
    arrived, go_on = threading.Event(), threading.Event()
    encode = Backend.encode

    async def slowly(self: Backend, messages: list[dict[str, Any]]) -> list[int]:
        arrived.set()
        await asyncio.to_thread(go_on.wait, 10)
        return await encode(self, messages)

    with admin(gateway) as operator, ThreadPoolExecutor(2) as pool:
        operator.load(release.digest)
        monkeypatch.setattr(Backend, "encode", slowly)
        answer = pool.submit(ask, gateway.sdk(), release.name, "x", 4)
        assert arrived.wait(10)
        unloading = pool.submit(operator.unload, release.name)
        time.sleep(0.5)
        too_early = unloading.done()
        go_on.set()
        assert answer.result().model == release.name and not too_early
        assert unloading.result() == {"unloaded": release.name}
        assert release.name not in operator.status()["loaded"]


def test_old_champions_are_unloaded_and_the_way_back_stays_loaded(world: Any, start_gateway: Any) -> None:
    releases = [world.release(seed) for seed in range(1, KEEP_LOADED + 3)]
    world.champion()
    gateway = start_gateway(world)
    for release in releases:
        world.point(release)
        with ReplicaClient(gateway.url, operator_token(world.home)) as client:
            assert client.route(TASK)["release"] == release.digest
    kept = {release.name for release in releases[-KEEP_LOADED:]}
    deadline = time.monotonic() + 30
    with gateway.http() as http:
        while set(http.get("/admin/status").json()["loaded"]) != kept:
            assert time.monotonic() < deadline, http.get("/admin/status").json()["loaded"]
            time.sleep(0.2)
    assert ask(gateway.sdk(), TASK, "x", 2).system_fingerprint == releases[-1].digest[:12]
