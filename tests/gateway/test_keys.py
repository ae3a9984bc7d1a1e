"""Keys and scopes: who may do what, and when a key is needed at all."""

from __future__ import annotations

import stat
import time
from typing import Any

import openai
import pytest

from flywheel.errors import ConfigError
from flywheel.gateway.keys import SCOPES, KeyRing, create_key, list_keys, revoke_key
from flywheel.gateway.loopback import is_loopback
from flywheel.gateway.server import serve
from flywheel.release.replicas import operator_token

TASK = "support_router"
ASK = {"model": TASK, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
THUMB = {"conversation_id": "c", "task": TASK, "kind": "thumb", "value": "up"}


def test_only_the_hash_of_a_key_is_stored(world: Any) -> None:
    key = create_key(world.registry, "shop", ["infer", "feedback"])
    assert key.startswith("fw-") and len(key) > 40
    (row,) = list_keys(world.registry)
    assert (row["name"], row["scopes"], row["revoked_at"]) == ("shop", ["feedback", "infer"], None)
    assert "hash" not in row
    for path in world.home.root.glob("registry.db*"):
        assert key.encode() not in path.read_bytes()


@pytest.mark.parametrize("scopes", [[], ["infer", "fly"]])
def test_a_key_needs_scopes_that_exist(world: Any, scopes: list[str]) -> None:
    with pytest.raises(ConfigError, match="operate"):
        create_key(world.registry, "x", scopes)


def test_a_revoked_key_is_worthless_and_its_home_stays_locked(world: Any) -> None:
    key = create_key(world.registry, "x", ["infer"])
    ring = KeyRing(world.registry, "token", required=False)
    assert ring.required and ring.usable and ring.authenticate(key) is not None
    (row,) = list_keys(world.registry)
    assert revoke_key(world.registry, row["key_id"]) and not revoke_key(world.registry, row["key_id"])
    ring.refresh()
    assert ring.authenticate(key) is None and not ring.usable
    assert ring.required, "revoking the last key must not open the door"


def test_each_scope_opens_its_own_doors_only(world: Any, start_gateway: Any) -> None:
    keys = {scope: create_key(world.registry, scope, [scope]) for scope in SCOPES}
    gateway = start_gateway(world)
    doors: dict[str, Any] = {
        "infer": lambda http: http.post("/v1/chat/completions", json=ASK),
        "feedback": lambda http: http.post("/v1/feedback", json=THUMB),
        "ingest": lambda http: http.post("/v1/traces", json={}),
        "read": lambda http: http.get("/metrics"),
        "review": lambda http: http.get("/review/items", params={"task": TASK, "author": "ann"}),
        "operate": lambda http: http.get("/admin/status"),
    }
    for holder, key in keys.items():
        with gateway.http(key) as http:
            assert http.get("/v1/models").status_code == 200
            for scope, knock in doors.items():
                answer = knock(http)
                allowed = holder in (scope, "operate")
                assert answer.status_code == (200 if allowed else 403), (holder, scope)
                assert allowed or f"lacks the scope `{scope}`" in answer.text
    for key_or_none in (None, "fw-wrong", keys["infer"] + "x"):
        with gateway.http(key_or_none) as http:
            assert http.get("/healthz").status_code == 200
            for path in ("/v1/models", "/admin/status", "/metrics"):
                answer = http.get(path)
                assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"
            for knock in doors.values():
                assert knock(http).status_code == 401
    with pytest.raises(openai.AuthenticationError):
        gateway.sdk("fw-wrong").models.list()
    with gateway.http(operator_token(world.home)) as http:
        assert http.get("/admin/status").json()["state"] == "ready"
    token_file = world.home.root / "operator.token"
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600


def test_each_source_of_feedback_needs_a_key_that_may_speak_for_it(world: Any, start_gateway: Any) -> None:
    keys = {scope: create_key(world.registry, scope, [scope]) for scope in ("feedback", "review", "operate")}
    gateway = start_gateway(world)
    user, reviewer, verifier = (THUMB | {"source": source} for source in ("user", "reviewer", "verifier"))
    for holder, body in (
        *(("feedback", [user, said]) for said in (reviewer, verifier)),
        *(("review", [reviewer, said]) for said in (user, verifier)),
    ):
        with gateway.http(keys[holder]) as http:
            answer = http.post("/v1/feedback", json=body)
            assert answer.status_code == 403 and answer.json()["error"]["param"] == "source"
    assert world.log() == [], "not even the half that the caller may say was written"
    for holder, body in (("feedback", [user]), ("review", [reviewer]), ("operate", [user, reviewer, verifier])):
        with gateway.http(keys[holder]) as http:
            assert http.post("/v1/feedback", json=body).status_code == 200


def test_a_key_made_or_revoked_while_running_counts_within_seconds(world: Any, start_gateway: Any) -> None:
    gateway = start_gateway(world)

    def status(key: str | None) -> int:
        with gateway.http(key) as http:
            return http.get("/v1/models").status_code

    def becomes(key: str | None, wanted: int) -> None:
        deadline = time.monotonic() + 10
        while status(key) != wanted:
            assert time.monotonic() < deadline
            time.sleep(0.2)

    assert status(None) == 200
    first = create_key(world.registry, "first", ["infer"])
    becomes(None, 401)
    second = create_key(world.registry, "second", ["infer"])
    assert status(first) == status(second) == 200, "a new key works at once"
    assert revoke_key(world.registry, next(k["key_id"] for k in list_keys(world.registry) if k["name"] == "first"))
    becomes(first, 401)
    assert status(second) == 200


def test_a_public_address_without_a_key_is_refused_before_anything_starts(make_world: Any) -> None:
    world = make_world(host="0.0.0.0")
    with pytest.raises(ConfigError, match="no API key"):
        serve(world.config)
    create_key(world.registry, "x", ["infer"])
    revoke_key(world.registry, list_keys(world.registry)[0]["key_id"])
    with pytest.raises(ConfigError, match="no API key"):
        serve(world.config)
    assert not (world.home.root / "operator.token").exists()


def test_a_public_address_with_a_key_asks_for_it(make_world: Any, start_gateway: Any) -> None:
    world = make_world(host="0.0.0.0")
    key = create_key(world.registry, "x", ["infer"])
    gateway = start_gateway(world)
    assert gateway.url.startswith("http://127.0.0.1:")
    with gateway.http() as http:
        assert http.get("/v1/models").status_code == 401
    with gateway.http(key) as http:
        assert http.get("/v1/models").status_code == 200


def test_loopback_is_told_from_public() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""))


def test_a_web_page_from_elsewhere_cannot_use_a_gateway_without_keys(world: Any, start_gateway: Any) -> None:
    gateway = start_gateway(world)
    # What a browser sends without asking first: a plain-text body and the page's origin.
    label = '{"conversation_id": "c", "task": "support_router", "kind": "label", "text": "x", "source": "reviewer"}'
    with gateway.http(None) as http:
        for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example:8000", "http://[", ""):
            headers = {"origin": origin, "content-type": "text/plain"}
            answer = http.post("/v1/feedback", content=label, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_origin"), origin
            assert http.post("/admin/route", content='{"task": "support_router"}', headers=headers).status_code == 403
        for origin in ("http://localhost:3000", "http://127.0.0.1:8000", "http://[::1]:8000"):
            assert http.get("/v1/models", headers={"origin": origin}).status_code == 200


def test_a_key_opens_the_gateway_to_pages_that_hold_it(world: Any, start_gateway: Any) -> None:
    key = create_key(world.registry, "page", ["infer"])
    with start_gateway(world).http(key) as http:
        assert http.get("/v1/models", headers={"origin": "https://shop.example"}).status_code == 200
