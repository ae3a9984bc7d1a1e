"""The sampling engine: one thread that lets requests join and leave a running batch between steps.

A step is: apply what was asked for from outside (install or drop adapters, teacher-forced passes), read some prompt
tokens of whoever is next, then one decode forward over all rows, whatever adapters they have. Short prompts that wait
together are read in one forward, a long one in pieces. Callers talk to the thread through a queue and get events back
on it, so an ``on_event`` must return quickly.
"""

from __future__ import annotations

import heapq
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import torch

from flywheel.engine.adapters import read_adapter
from flywheel.engine.forwards import Forwards
from flywheel.engine.limits import Throughput, check_prompt
from flywheel.engine.requests import Completion, Event, Failed, Handle, OnEvent, Request, collect
from flywheel.engine.sampling import RowSampler, SamplingParams, choose_tokens
from flywheel.engine.table import AdapterTable
from flywheel.engine.text import AnswerText
from flywheel.errors import RequestError, without_message
from flywheel.models import Compute, ModelDir, load_tokenizer

log = logging.getLogger(__name__)

READ_TOKENS_PER_STEP = 256
"""Prompt tokens read between two decode steps: long prompts are read in pieces, so that running answers go on."""

T = TypeVar("T")


class Engine:
    """Answers requests on one base model with many adapters. Use as a context manager, or ``start`` and ``close``.

    Args:
        model: the base.
        compute: dtype and threads.
        max_rows: rows in one decode forward.
        max_context: prompt plus answer, in tokens; at most what the model's positions allow.
        queue_limit: requests that may wait; further ones get a 429.
    """

    def __init__(
        self, model: ModelDir, compute: Compute, *, max_rows: int = 8, max_context: int = 2048, queue_limit: int = 64
    ) -> None:
        self.model, self.compute = model, compute
        self.tokenizer = load_tokenizer(model)
        self._forwards = Forwards(model, compute, rows=max_rows, max_context=max_context)
        self.max_rows, self.max_context, self.queue_limit = max_rows, self._forwards.max_context, queue_limit
        self._changed = threading.Condition()
        self._waiting: list[Request] = []
        self._asked: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._adapters = AdapterTable()
        self._reading: Request | None = None
        self._rows: list[Request] = []
        self._thread: threading.Thread | None = None
        self._closed = False
        self._sweep = False
        self._throughput = Throughput()
        self._totals = {"requests": 0, "failed": 0, "prompt_tokens": 0, "completion_tokens": 0, "steps": 0}

    # For callers, from any thread.

    def start(self) -> None:
        """Start the engine thread."""
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="flywheel-engine", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop after the running step. Requests that are not finished get `Failed` with status 503."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(
        self,
        prompt_ids: list[int],
        params: SamplingParams,
        *,
        adapter: str | None,
        on_event: OnEvent,
        priority: int = 0,
    ) -> Handle:
        """Queue a request; its events come on the engine's thread, ending with `Finished` or `Failed`.

        Args:
            prompt_ids: the whole prompt.
            params: how to draw. ``max_tokens`` is cut to what the context leaves.
            adapter: a loaded adapter, pinned until the request ends, or None for the base.
            on_event: called with each event; must not block.
            priority: higher goes first; one below 0 is admitted only when nothing of priority 0 waits.

        Raises RequestError: 400 for a prompt that does not fit, 404 for an unknown adapter, 429 when the queue is full,
        503 when the engine is closed.
        """
        self._check_prompt(prompt_ids)
        request = Request(
            prompt_ids=list(prompt_ids),
            params=params,
            adapter=adapter,
            on_event=on_event,
            priority=priority,
            budget=min(params.max_tokens, self.max_context - len(prompt_ids)),
            answer=AnswerText(self.tokenizer.stream_decoder(), params.stop),
            sampler=RowSampler(params),
        )
        with self._changed:
            self._check_open()
            if len(self._waiting) >= self.queue_limit:
                raise RequestError(
                    f"the engine's queue is full ({self.queue_limit} requests wait); try again later",
                    status=429,
                    code="queue_full",
                    retry_after_s=self._throughput.retry_after_s(len(self._waiting)),
                )
            self._adapters.pin(adapter)
            heapq.heappush(self._waiting, request)
            self._totals["requests"] += 1
            self._changed.notify_all()
        return Handle(request, self._wake)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Requests submitted inside start at the same step, so which rows share a batch depends on them alone.

        The engine pauses until the block ends; do nothing slow in it.
        """
        with self._changed:
            yield

    def generate(self, prompt_ids: list[int], params: SamplingParams, *, adapter: str | None = None) -> Completion:
        """Submit and wait for the whole answer. Raises what the request failed with. Not for the engine's thread."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.submit(prompt_ids, params, adapter=adapter, on_event=events.put)
        return collect(events)

    def teacher_forced(self, prompt_ids: list[int], answer_ids: list[int], *, adapter: str | None) -> torch.Tensor:
        """Log-softmax [len(answer_ids), vocab] in float32 before each token of a given answer.

        Computed alone, in one forward without a cache, between two steps: bitwise the same whatever else is loaded or
        running.
        """
        if not answer_ids:
            raise RequestError("teacher_forced needs at least one answer token")
        self._check_prompt([*prompt_ids, *answer_ids[:-1]])

        def compute() -> torch.Tensor:
            self._adapters.require(adapter)
            return self._forwards.teacher_forced(prompt_ids, answer_ids, adapter)

        return self._ask(compute)

    def load_adapter(self, name: str, folder: Path) -> str:
        """Read, check and install a PEFT adapter folder; return the weights digest read back from memory.

        Reading and checking happen on the caller's thread, the installation between two steps. A name is never reused:
        the same name with the same weights changes nothing. Raises CheckpointError for a damaged or unfit adapter, and
        for other weights under a name in use.
        """
        adapter = read_adapter(folder)
        live = self._forwards.adapters.prepare(adapter, str(folder))

        def install() -> None:
            with self._changed:
                new = self._adapters.add(name, live)
            if new:
                self._forwards.adapters.install(name, live)

        self._ask(install)
        return self.adapter_digest(name)

    def unload_adapter(self, name: str) -> None:
        """Take no new requests for an adapter, and drop it when its last request ends. Unknown names are fine."""
        with self._changed:
            if self._adapters.retire(name):
                self._asked.append((lambda: self._drop(name), Future()))
                self._changed.notify_all()

    def adapter_digest(self, name: str) -> str:
        """Weights digest of a loaded adapter, hashed now from the tensors in use. RequestError if unknown."""
        with self._changed:
            live = self._adapters.live(name)
        return live.digest()

    def adapters(self) -> list[str]:
        """Names that new requests may use."""
        with self._changed:
            return self._adapters.names()

    def stats(self) -> dict[str, int]:
        """Rows running and reading, requests waiting, and totals since the start."""
        with self._changed:
            return {
                "running": len(self._rows) + (self._reading is not None),
                "waiting": len(self._waiting),
                "adapters": len(self._adapters.names()),
                **self._totals,
            }

    # On the engine's thread.

    def _run(self) -> None:
        torch.set_num_threads(self.compute.threads)
        try:
            while self._await_work():
                self._answer_asked()
                self._drop_cancelled()
                self._read_prompts()
                self._decode()
        finally:
            self._fail_everything()

    def _await_work(self) -> bool:
        with self._changed:
            while not (self._closed or self._asked or self._waiting or self._reading or self._rows or self._sweep):
                self._changed.wait()
            return not self._closed

    def _answer_asked(self) -> None:
        while self._asked:
            task, future = self._asked.popleft()
            try:
                future.set_result(task())
            except Exception as error:  # noqa: BLE001 - whatever it is belongs to the caller who waits for it
                future.set_exception(error)

    def _drop_cancelled(self) -> None:
        if not self._sweep:
            return
        with self._changed:
            self._sweep = False
            gone = [request for request in self._waiting if request.cancelled]
            self._waiting = [request for request in self._waiting if not request.cancelled]
            heapq.heapify(self._waiting)
        if self._reading is not None and self._reading.cancelled:
            gone.append(self._reading)
            self._reading = None
        for request in gone:
            self._release(request)

    def _read_prompts(self) -> None:
        budget = READ_TOKENS_PER_STEP
        while budget > 0:
            group = self._next_to_read(budget)
            if len(group) > 1:
                budget -= sum(len(request.prompt_ids) for request in group)
                self._read_together(group)
            elif self._reading is not None:
                budget -= self._read_piece(self._reading, budget)
            else:
                return

    def _next_to_read(self, budget: int) -> list[Request]:
        """Waiting prompts that are short enough to be read in one forward; a single one is read by itself."""
        group: list[Request] = []
        if self._reading is not None:
            return group
        longest = 0
        with self._changed:
            while self._waiting and len(self._rows) + len(group) < self.max_rows:
                longest = max(longest, len(self._waiting[0].prompt_ids))
                if group and (len(group) + 1) * longest > budget:
                    break
                group.append(heapq.heappop(self._waiting))
        self._totals["prompt_tokens"] += sum(len(request.prompt_ids) for request in group)
        if len(group) == 1:
            self._reading = group[0]
        return group

    def _read_piece(self, request: Request, budget: int) -> int:
        """Read on in a prompt; returns how many tokens that took."""
        piece = request.prompt_ids[request.read : request.read + budget]
        try:
            logits = self._forwards.read(piece, request.read, request.adapter)
            request.read += len(piece)
            if request.read < len(request.prompt_ids):
                return len(piece)
            ended = self._first_token(request, logits)
            if not ended:
                self._forwards.join(len(self._rows), len(request.prompt_ids))
        except Exception as error:  # noqa: BLE001 - whatever it is must fail this request, not hang it
            self._fail(request, error)
            self._forwards.discard()
            ended = True
        self._reading = None
        if ended:
            self._release(request)
        else:
            self._rows.append(request)
        return len(piece)

    def _read_together(self, group: list[Request]) -> None:
        first, count = len(self._rows), len(group)
        try:
            logits = self._forwards.read_together(
                [request.prompt_ids for request in group], first, [request.adapter for request in group]
            )
        except Exception as error:  # noqa: BLE001 - it must fail the request whose fault it is, and no other
            log.warning("%d prompts are read one by one, as together failed: %s", count, without_message(error))
            for row in range(first, first + count):
                self._forwards.clear(row)
            for request in group:
                self._reading = request
                self._read_piece(request, len(request.prompt_ids))
            return
        for row, request in enumerate(group, first):
            try:
                ended = self._first_token(request, logits[row - first])
            except Exception as error:  # noqa: BLE001 - one row's fault must not reach the others
                self._fail(request, error)
                self._forwards.clear(row)
                ended = True
            if ended:
                self._release(request)
            else:
                self._forwards.move(row, len(self._rows), len(request.prompt_ids))
                self._rows.append(request)

    def _first_token(self, request: Request, logits: torch.Tensor) -> bool:
        (token,), (logprob,) = choose_tokens(logits.unsqueeze(0), [request.sampler])
        return self._advance(request, token, logprob)

    def _decode(self) -> None:
        rows = self._rows
        if not rows:
            return
        self._totals["steps"] += 1
        try:
            logits = self._forwards.decode(
                [r.last_token for r in rows], [r.length for r in rows], [r.adapter for r in rows]
            )
            tokens, logprobs = choose_tokens(logits, [r.sampler for r in rows])
        except Exception as error:  # noqa: BLE001 - whatever it is must fail these requests, not hang them
            log.error("a decode step failed with %d rows: %s", len(rows), without_message(error))
            for request in rows:
                self._fail(request, error)
            self._remove(dict.fromkeys(range(len(rows)), True))
            return
        leaving: dict[int, bool] = {}
        for row, request in enumerate(rows):
            try:
                if self._advance(request, tokens[row], logprobs[row]):
                    leaving[row] = False
            except Exception as error:  # noqa: BLE001 - one row's fault must not reach the others
                self._fail(request, error)
                leaving[row] = True
        self._remove(leaving)

    def _advance(self, request: Request, token: int, logprob: float) -> bool:
        """Account for a token of a request and tell its caller; whether the answer is complete."""
        event, finished = request.take(token, logprob, self.tokenizer.eos_ids)
        self._totals["completion_tokens"] += 1
        self._emit(request, event)
        if finished is not None:
            self._emit(request, finished)
            self._throughput.count()
        return finished is not None or request.cancelled

    def _emit(self, request: Request, event: Event) -> None:
        if request.cancelled:
            return
        try:
            request.on_event(event)
        except Exception as error:  # noqa: BLE001 - a caller's fault must not reach the other rows
            log.error("a caller's on_event raised; its request is cancelled: %s", without_message(error))
            request.cancelled = True

    def _fail(self, request: Request, error: Exception) -> None:
        self._totals["failed"] += 1
        self._emit(request, Failed(error))

    def _remove(self, leaving: dict[int, bool]) -> None:
        """Take rows out of the batch, given whether their cache may hold values that are not finite."""
        for row in sorted(leaving, reverse=True):
            request, last = self._rows[row], len(self._rows) - 1
            self._forwards.leave(row, last, self._rows[last].length, broken=leaving[row])
            self._rows[row] = self._rows[last]
            self._rows.pop()
            self._release(request)

    def _release(self, request: Request) -> None:
        with self._changed:
            unused = self._adapters.unpin(request.adapter)
        if unused and request.adapter is not None:
            self._drop(request.adapter)

    def _drop(self, name: str) -> None:
        with self._changed:
            gone = self._adapters.remove_unused(name)
        if gone:
            self._forwards.adapters.remove(name)

    def _fail_everything(self) -> None:
        error = RequestError("the engine was closed before the answer was complete", status=503, code="engine_closed")
        with self._changed:
            self._closed = True
            unfinished = [*self._rows, *([self._reading] if self._reading else []), *self._waiting]
            asked = list(self._asked)
            self._rows, self._reading, self._waiting = [], None, []
            self._asked.clear()
        for request in unfinished:
            self._fail(request, error)
        for _, future in asked:
            future.set_exception(error)

    # Helpers.

    def _ask(self, task: Callable[[], T]) -> T:
        """Have the engine's thread run something between two steps, and wait for its result."""
        future: Future[T] = Future()
        with self._changed:
            self._check_open()
            self._asked.append((task, future))
            self._changed.notify_all()
        return future.result()

    def _wake(self) -> None:
        with self._changed:
            self._sweep = True
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed or self._thread is None:
            raise RequestError("the engine is not running", status=503, code="engine_closed")

    def _check_prompt(self, prompt_ids: list[int]) -> None:
        check_prompt(prompt_ids, max_context=self.max_context, vocab_size=self._forwards.vocab_size)
