"""How fast the embedded engine decodes, as ratios to `transformers.generate` with a static batch in the same run.

    python bench/engine.py [--model smollm2-135m] [--tokens 48] [--repeat 2] [--json]

Prints tokens per second of wall time and of CPU time, and four ratios. All forwards use the same dtype and threads.
The adapters are random and of rank 16 on every linear layer; their answers mean nothing, their cost is real.
``--json`` prints one line of JSON last.
"""

from __future__ import annotations

import argparse
import json
import queue
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from flywheel.engine.adapters import AdapterConfig, write_adapter
from flywheel.engine.engine import Engine
from flywheel.engine.requests import Event, Failed, Finished
from flywheel.engine.sampling import SamplingParams
from flywheel.models import ModelDir, choose_compute, load_model, load_tokenizer, resolve

PEER = "transformers.generate, static batch 8"
ROWS = 8

MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def main() -> None:
    """Run all measurements and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print one line of JSON last")
    options = parser.parse_args()
    model, compute = resolve(options.model), choose_compute()
    print(f"{options.model}: {compute.machine_class}, {options.tokens} tokens an answer, best of {options.repeat}")
    tokenizer = load_tokenizer(model)
    asked = [f"Tell me about the number {n}." for n in range(ROWS)]
    prompts = [tokenizer.encode_prompt([{"role": "user", "content": text}]) for text in asked]
    plain = load_model(model, compute)
    layers = {name: m.weight.shape[::-1] for name, m in plain.named_modules() if isinstance(m, torch.nn.Linear)}
    peer = _static_generate(plain, prompts, options.tokens)

    def measure(name: str, run: Callable[[], int]) -> float:
        best_wall, best_cpu = 0.0, 0.0
        for _ in range(options.repeat):
            wall, cpu = time.perf_counter(), time.process_time()
            tokens = run()
            best_wall = max(best_wall, tokens / (time.perf_counter() - wall))
            best_cpu = max(best_cpu, tokens / (time.process_time() - cpu))
        print(f"{name:<44}{best_wall:8.1f} tok/s {best_cpu:8.1f} tok/CPU-s", flush=True)
        return best_cpu

    with tempfile.TemporaryDirectory() as scratch, Engine(model, compute) as engine:
        for n in range(3):
            engine.load_adapter(f"adapter-{n}", _adapter(model, layers, Path(scratch) / str(n), seed=n))
        mixed = [None if n % 4 == 3 else f"adapter-{n % 4}" for n in range(ROWS)]

        def flight(rows: int, adapters: list[str | None]) -> int:
            return _flight(engine, prompts[:rows], adapters[:rows], options.tokens)

        static = measure(f"{PEER}, base", peer)
        one = measure("engine, 1 in flight, base", lambda: flight(1, [None]))
        base = measure("engine, 8 in flight, base", lambda: flight(ROWS, [None] * ROWS))
        same = measure("engine, 8 in flight, one adapter", lambda: flight(ROWS, ["adapter-0"] * ROWS))
        several = measure("engine, 8 in flight, 3 adapters and base", lambda: flight(ROWS, mixed))
    ratios = {
        "engine at 8 / static generate": base / static,
        "engine at 8 / engine at 1": base / one,
        "one adapter / base, both at 8": same / base,
        "3 adapters and base / base, both at 8": several / base,
    }
    for name, ratio in ratios.items():
        print(f"{name:<40}{ratio:6.2f}")
    if options.json:
        rounded = {name: round(ratio, 3) for name, ratio in ratios.items()}
        print(json.dumps({"benchmark": "engine", "peer": PEER, "machine": compute.machine_class, "ratios": rounded}))


def _static_generate(model: Any, prompts: list[list[int]], tokens: int) -> Callable[[], int]:
    shortest = min(len(prompt) for prompt in prompts)
    ids = torch.tensor([prompt[-shortest:] for prompt in prompts])  # equal lengths: no padding to pay for

    def run() -> int:
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
        )
        return tokens * len(prompts)

    return run


def _flight(engine: Engine, prompts: list[list[int]], adapters: list[str | None], tokens: int) -> int:
    """Have all prompts in flight until every one has ended; an answer that ends early is asked for again."""
    left = dict.fromkeys(range(len(prompts)), tokens)

    def submit(n: int) -> None:
        def on_event(event: Event, n: int = n) -> None:
            if isinstance(event, Finished | Failed):
                ended.put((n, event))

        engine.submit(prompts[n], SamplingParams(max_tokens=left[n]), adapter=adapters[n], on_event=on_event)

    ended: queue.SimpleQueue[tuple[int, Event]] = queue.SimpleQueue()
    for n in left:
        submit(n)
    running, made = len(left), 0
    while running:
        n, event = ended.get()
        if isinstance(event, Failed):
            raise event.error
        assert isinstance(event, Finished)
        made += event.completion_tokens
        left[n] -= event.completion_tokens
        if left[n] > 0:
            submit(n)
        else:
            running -= 1
    return made


def _adapter(model: ModelDir, layers: dict[str, tuple[int, int]], folder: Path, *, seed: int) -> Path:
    config = AdapterConfig(rank=16, alpha=32.0, target_modules=MODULES, base=model.name)
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for name, (inputs, outputs) in layers.items():
        if name.rsplit(".", 1)[-1] in MODULES:
            key = f"base_model.model.{name}"
            tensors[f"{key}.lora_A.weight"] = torch.randn(16, inputs, generator=generator) / inputs**0.5
            tensors[f"{key}.lora_B.weight"] = torch.randn(outputs, 16, generator=generator) * 0.01
    write_adapter(folder, config, tensors)
    return folder


if __name__ == "__main__":
    main()
