"""The unmodified OpenAI SDK against a real gateway."""

from __future__ import annotations

import threading
from typing import Any

import openai
import pytest

TASK = "support_router"
ASK: list[Any] = [{"role": "user", "content": "Where is my parcel?"}]


def test_a_plain_answer_is_what_the_sdk_expects_and_what_the_log_holds(live: Any) -> None:
    raw = live.sdk().chat.completions.with_raw_response.create(
        model=TASK,
        messages=ASK,
        max_completion_tokens=9,
        user="u1",
        metadata={"conversation_id": "c7", "ticket": "42"},
    )
    answer = raw.parse()
    (choice,) = answer.choices
    assert choice.finish_reason in ("stop", "length") and choice.message.role == "assistant"
    assert answer.usage and answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    row = live.world.logged(answer.id)
    release = live.world.champion().release
    assert row["release"] == release == raw.headers["x-flywheel-release"]
    assert answer.system_fingerprint == release[:12] and answer.model == f"{TASK}@{release[:12]}"
    assert raw.headers["x-request-id"].startswith("req-")
    assert row["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": choice.message.content},
            "finish_reason": choice.finish_reason,
        }
    ]
    assert row["request"]["messages"] == ASK, "as sent: the release's prompt is the release's"
    assert row["request"]["params"]["max_tokens"] == 9
    assert (row["task"], row["user"], row["conversation_id"], row["model"]) == (TASK, "u1", "c7", TASK)
    assert row["metadata"] == {"conversation_id": "c7", "ticket": "42"}
    assert row["usage"] == answer.usage.model_dump(include={"prompt_tokens", "completion_tokens", "total_tokens"})
    assert row["status"] == "ok" and row["stream"] is False and row["latency_ms"] > 0


def test_a_stream_carries_the_same_text_then_its_reason_usage_and_end(live: Any) -> None:
    plain = live.sdk().chat.completions.create(model=TASK, messages=ASK, max_tokens=20)
    chunks = list(
        live.sdk().chat.completions.create(
            model=TASK, messages=ASK, max_tokens=20, stream=True, stream_options={"include_usage": True}
        )
    )
    *body, usage = chunks
    assert "".join(c.choices[0].delta.content or "" for c in body) == plain.choices[0].message.content
    assert body[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in body if c.choices[0].finish_reason] == [plain.choices[0].finish_reason]
    assert usage.choices == [] and usage.usage == plain.usage
    assert len({chunk.id for chunk in chunks}) == 1
    row = live.world.logged(chunks[0].id)
    assert row["stream"] is True and row["choices"][0]["message"]["content"] == plain.choices[0].message.content
    with live.http() as http:
        raw = http.post("/v1/chat/completions", json={"model": TASK, "messages": ASK, "stream": True}).text
    assert raw.endswith("data: [DONE]\n\n") and '"usage"' not in raw


def test_the_systems_prompt_of_the_release_is_used_unless_the_caller_brings_one(live: Any) -> None:
    def tokens(*messages: Any) -> int:
        return live.sdk().chat.completions.create(model=TASK, messages=list(messages), max_tokens=1).usage.prompt_tokens

    user = ASK[0]
    with_own = tokens({"role": "developer", "content": "Route."}, user)
    assert tokens(user) == with_own == tokens({"role": "system", "content": "Route."}, user)
    assert tokens({"role": "system", "content": "Route.."}, user) == with_own + 1


def test_the_base_model_answers_by_name_without_prompt_or_task(live: Any) -> None:
    answer = live.sdk().chat.completions.create(model="tiny", messages=ASK, max_tokens=4)
    row = live.world.logged(answer.id)
    assert row["task"] == "" and row["release"] == live.world.tiny.base_digest
    routed = live.sdk().chat.completions.create(model=TASK, messages=ASK, max_tokens=4)
    assert answer.usage.prompt_tokens < routed.usage.prompt_tokens


def test_a_version_is_named_by_six_digits_or_more(live: Any) -> None:
    digest = live.world.champion().release
    for length in (6, 12, 64):
        answer = live.sdk().chat.completions.create(model=f"{TASK}@{digest[:length]}", messages=ASK, max_tokens=2)
        assert answer.system_fingerprint == digest[:12]
    for name in (f"{TASK}@{digest[:5]}", f"{TASK}@{'0' * 12}", f"summary@{digest[:12]}", f"nobody@{digest[:12]}"):
        with pytest.raises(openai.NotFoundError):
            live.sdk().chat.completions.create(model=name, messages=ASK)


def test_n_choices_are_one_record_and_a_seed_repeats_them(live: Any) -> None:
    def ask(seed: int) -> Any:
        return live.sdk().chat.completions.create(
            model=TASK, messages=ASK, n=3, temperature=1.0, seed=seed, max_tokens=12
        )

    first, again, other = ask(1), ask(1), ask(2)
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2] and len(set(texts)) > 1
    assert texts == [choice.message.content for choice in again.choices]
    assert texts != [choice.message.content for choice in other.choices]
    row = live.world.logged(first.id)
    assert [choice["message"]["content"] for choice in row["choices"]] == texts
    assert first.usage.completion_tokens == row["usage"]["completion_tokens"] > 12
    streamed: dict[int, str] = {}
    for chunk in live.sdk().chat.completions.create(
        model=TASK, messages=ASK, n=3, temperature=1.0, seed=1, max_tokens=12, stream=True
    ):
        for choice in chunk.choices:
            streamed[choice.index] = streamed.get(choice.index, "") + (choice.delta.content or "")
    assert [streamed[k] for k in range(3)] == texts


def test_stop_strings_end_the_answer_and_are_not_part_of_it(live: Any) -> None:
    whole = live.sdk().chat.completions.create(model=TASK, messages=ASK, max_tokens=20).choices[0].message.content
    stop = whole[4:6]
    for given in (stop, [stop, "never said"]):
        answer = live.sdk().chat.completions.create(model=TASK, messages=ASK, max_tokens=20, stop=given).choices[0]
        assert answer.message.content == whole[: whole.index(stop)] and answer.finish_reason == "stop"


def test_models_lists_tasks_versions_and_bases(live: Any) -> None:
    digest = live.world.champion().release
    listed = {model.id: model for model in live.sdk().models.list()}
    assert {TASK, "summary", "tiny", f"{TASK}@{digest[:12]}"} <= set(listed)
    assert listed[TASK].root == f"{TASK}@{digest[:12]}" and listed[TASK].parent == "tiny"
    assert live.sdk().models.retrieve(TASK).id == TASK
    with pytest.raises(openai.NotFoundError):
        live.sdk().models.retrieve("gpt-4")


def test_text_parts_unknown_fields_and_harmless_wishes_are_accepted(live: Any) -> None:
    parts = [{"type": "text", "text": "Where is "}, {"type": "text", "text": "my parcel?"}]
    answer = live.sdk().chat.completions.create(
        model=TASK,
        messages=[{"role": "user", "content": parts, "name": "ann"}],
        max_tokens=3,
        frequency_penalty=0,
        response_format={"type": "text"},
        tool_choice="none",
        store=True,
        extra_body={"top_k": 3, "something": {"new": 1}},
    )
    assert live.world.logged(answer.id)["request"]["messages"] == ASK


def test_a_conversation_can_come_by_header(live: Any) -> None:
    answer = live.sdk().chat.completions.create(
        model=TASK, messages=ASK, max_tokens=2, extra_headers={"x-conversation-id": "h1"}
    )
    assert live.world.logged(answer.id)["conversation_id"] == "h1"


def test_many_callers_at_once_get_what_they_get_alone(live: Any) -> None:
    prompts = [f"message number {n} about {'x' * n}" for n in range(10)]
    client = live.sdk()

    def ask(prompt: str) -> str:
        answer = client.chat.completions.create(model=TASK, messages=[{"role": "user", "content": prompt}])
        return str(answer.choices[0].message.content)

    alone = [ask(prompt) for prompt in prompts]
    together: dict[int, str] = {}

    def work(index: int) -> None:
        together[index] = ask(prompts[index])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[index] for index in range(len(prompts))] == alone


def test_health_and_metrics_tell_counts_but_no_text_and_no_users(live: Any) -> None:
    live.sdk().chat.completions.create(
        model=TASK, messages=[{"role": "user", "content": "SECRETWORD"}], user="SECRETUSER", max_tokens=2
    )
    with live.http() as http:
        assert http.get("/healthz").json() == {"status": "ok", "state": "ready", "down": []}
        text = http.get("/metrics").text
    assert "SECRET" not in text
    for name in (
        f'flywheel_requests_total{{status="200",task="{TASK}"}}',
        f'flywheel_tokens_total{{kind="completion",task="{TASK}"}}',
        f'flywheel_request_seconds_bucket{{le="0.025",task="{TASK}"}}',
        "flywheel_first_token_seconds_count",
        "flywheel_log_commit_seconds_count",
        'flywheel_running_rows{base="tiny"} 0.0',
        'flywheel_waiting_rows{base="tiny"} 0.0',
        f'flywheel_release_info{{release="{live.world.champion().release[:12]}",task="{TASK}"}} 1.0',
    ):
        assert name in text, name
