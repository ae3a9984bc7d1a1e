"""Limits, order, cancelling, crashes and closing: no request is ever left hanging."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flywheel.engine.engine import Engine
from flywheel.engine.limits import Throughput
from flywheel.engine.requests import Failed
from flywheel.engine.sampling import SamplingParams
from flywheel.errors import RequestError
from flywheel.models import Compute, ModelDir

Ask = Callable[..., Any]


@pytest.fixture
def narrow(tiny: ModelDir, fp32: Compute) -> Any:
    """One row, two places in the queue, a short context."""
    with Engine(tiny, fp32, max_rows=1, max_context=64, queue_limit=2) as engine:
        yield engine


class Gate:
    """An on_event that holds the engine's thread inside a step until it is opened."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, event: object) -> None:
        self.reached.set()
        assert self.open.wait(30)


def hold(engine: Engine, **sampling: Any) -> Gate:
    gate = Gate()
    engine.submit([5, 6], SamplingParams(**sampling), adapter=None, on_event=gate)
    assert gate.reached.wait(10)
    return gate


def test_a_full_queue_answers_429_with_a_time_to_retry(narrow: Engine, ask: Ask) -> None:
    gate = hold(narrow, max_tokens=3)
    waiting = [ask(narrow, [7, 8], max_tokens=2) for _ in range(2)]
    with pytest.raises(RequestError) as caught:
        ask(narrow, [7, 8], max_tokens=2)
    assert (caught.value.status, caught.value.code) == (429, "queue_full")
    assert caught.value.retry_after_s is not None and 1 <= caught.value.retry_after_s <= 60
    gate.open.set()
    assert all(answer.wait().finished for answer in waiting)
    assert ask(narrow, [7, 8], max_tokens=2).wait().finished


def test_an_overlong_prompt_is_a_400_in_the_words_clients_look_for(narrow: Engine) -> None:
    with pytest.raises(RequestError, match="This model's maximum context length is 64 tokens") as caught:
        narrow.submit([5] * 64, SamplingParams(), adapter=None, on_event=lambda event: None)
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")


def test_an_answer_ends_where_the_context_does(narrow: Engine) -> None:
    done = narrow.generate([5] * 60, SamplingParams(max_tokens=100))
    assert (done.finish_reason, len(done.ids)) in {("length", 4), ("stop", len(done.ids))}
    assert len(done.ids) <= 4


@pytest.mark.parametrize("prompt", [[], [5, 10_000], [-1]])
def test_a_prompt_the_model_cannot_read_is_a_400_and_harms_nobody(narrow: Engine, prompt: list[int]) -> None:
    with pytest.raises(RequestError) as caught:
        narrow.submit(prompt, SamplingParams(), adapter=None, on_event=lambda event: None)
    assert caught.value.status == 400
    assert narrow.generate([5], SamplingParams(max_tokens=1)).ids


def test_higher_priority_goes_first_and_equals_in_their_order(tiny: ModelDir, fp32: Compute) -> None:
    finished: list[str] = []
    done = threading.Event()

    def noting(name: str) -> Callable[[Any], None]:
        def note(event: Any) -> None:
            finished.append(name)
            if len(finished) == 4:
                done.set()

        return note

    with Engine(tiny, fp32, max_rows=1) as engine:
        gate = hold(engine, max_tokens=1)
        for name, priority in [("background", -1), ("first", 0), ("second", 0), ("urgent", 1)]:
            end_only = noting(name)
            engine.submit(
                [7],
                SamplingParams(max_tokens=2),
                adapter=None,
                priority=priority,
                on_event=lambda event, tell=end_only: tell(event) if hasattr(event, "finish_reason") else None,
            )
        gate.open.set()
        assert done.wait(20)
    assert finished == ["urgent", "first", "second", "background"]


def test_a_cancelled_request_frees_its_row_and_its_place(narrow: Engine, ask: Ask) -> None:
    gate = hold(narrow, max_tokens=60)
    waiting = ask(narrow, [7, 8], max_tokens=2)
    other = ask(narrow, [9], max_tokens=2)
    waiting.handle.cancel()
    gate.open.set()
    assert other.wait().finished
    assert waiting.end is None
    running = ask(narrow, [7], max_tokens=60)
    running.begun.wait(10)
    running.handle.cancel()
    assert ask(narrow, [7], max_tokens=1).wait().finished
    assert narrow.stats()["running"] == narrow.stats()["waiting"] == 0


def test_a_crash_in_a_step_fails_its_requests_and_the_engine_goes_on(engine: Engine, ask: Ask) -> None:
    crash = threading.Event()
    model: Any = engine._forwards.adapters.model

    def break_once(*_args: object) -> None:
        if crash.is_set():
            crash.clear()
            raise RuntimeError("broken on purpose")

    hook = model.model.layers[1].register_forward_pre_hook(break_once)
    running = [ask(engine, [7, n], max_tokens=400) for n in range(5, 8)]
    assert all(answer.begun.wait(10) for answer in running)
    crash.set()
    failures = [answer.wait().end for answer in running]
    assert any(isinstance(end, Failed) and "broken on purpose" in str(end.error) for end in failures)
    crash.set()
    reading = ask(engine, [7, 8, 9], max_tokens=4)
    assert isinstance(reading.wait().end, Failed)
    hook.remove()
    assert ask(engine, [7], max_tokens=4).wait().finished
    assert engine.stats()["running"] == 0


def test_a_callback_that_raises_ends_only_its_own_request(engine: Engine, ask: Ask) -> None:
    def angry(event: object) -> None:
        raise ValueError("the caller's fault")

    beside = ask(engine, [8, 9], max_tokens=30)
    engine.submit([7], SamplingParams(max_tokens=100), adapter=None, on_event=angry)
    assert beside.wait().finished
    assert engine.generate([7], SamplingParams(max_tokens=2)).ids
    assert engine.stats()["running"] == 0


def test_closing_fails_what_is_unfinished_and_refuses_what_comes(tiny: ModelDir, fp32: Compute, ask: Ask) -> None:
    engine = Engine(tiny, fp32, max_rows=1)
    engine.start()
    answers = [ask(engine, [7, 8], max_tokens=1500) for _ in range(3)]
    answers[0].begun.wait(10)
    engine.close()
    for answer in answers:
        error = answer.wait(5).error
        assert isinstance(error, RequestError) and error.status == 503
    with pytest.raises(RequestError) as caught:
        ask(engine, [7])
    assert caught.value.status == 503
    with pytest.raises(RequestError):
        engine.teacher_forced([5], [6], adapter=None)
    engine.close()


def test_an_idle_engine_sleeps(engine: Engine) -> None:
    engine.generate([5], SamplingParams(max_tokens=2))
    time.sleep(0.1)
    before = times_awake(engine)
    time.sleep(0.4)
    assert times_awake(engine) == before


def times_awake(engine: Engine) -> int:
    """How often the engine's thread has given up the processor, which it does once for each time it woke up."""
    assert engine._thread is not None
    lines = Path(f"/proc/self/task/{engine._thread.native_id}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("voluntary_ctxt_switches")))


def test_the_time_to_retry_grows_with_the_queue_and_shrinks_with_the_rate() -> None:
    busy, idle = Throughput(), Throughput()
    for _ in range(5):
        busy.count()
        time.sleep(0.02)
    assert idle.retry_after_s(100) == 1.0
    short, long = busy.retry_after_s(150), busy.retry_after_s(600)
    assert 1 < short < long < 60
    assert long == pytest.approx(4 * short)
    assert busy.retry_after_s(10**6) == 60


def test_the_log_names_a_callers_fault_by_type_and_place_and_quotes_nothing(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    def angry(event: object) -> None:
        raise ValueError("what a customer wrote")

    engine.submit([7], SamplingParams(max_tokens=100), adapter=None, on_event=angry)
    assert engine.generate([7], SamplingParams(max_tokens=2)).ids  # the request before it is over then
    assert "ValueError at " in caplog.text and "test_requests_and_faults.py" in caplog.text
    assert "customer" not in caplog.text


def test_the_log_names_a_fault_of_a_step_by_type_and_place_and_quotes_nothing(
    engine: Engine, ask: Ask, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("what a customer wrote")

    monkeypatch.setattr(engine._forwards, "decode", broken)
    assert isinstance(ask(engine, [7], max_tokens=9).wait().error, ValueError)
    assert "ValueError at " in caplog.text and "test_requests_and_faults.py" in caplog.text
    assert "customer" not in caplog.text
