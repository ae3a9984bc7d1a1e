"""Records a second of an import, against DuckDB writing the same file's columns to Parquet with all its threads.

    python bench/intake.py [--records 1000000] [--formats openai_chat langfuse otel] [--json]

Each record is one call of about 1.5 KB. The peer reads its outermost keys as JSON and writes them with zstd; ours reads
every message, makes ids, hashes, keyed users and the audit draw, looks for duplicates, numbers turns, writes Parquet
and its registry, with fsync. The bare loop is what Python needs at the least: orjson reads each line and writes its
outermost values, pyarrow writes them to Parquet with zstd; nothing is looked at. Each measurement is a process of its
own, timed inside, in turns; the table shows the medians. ``--json`` prints one line of JSON last.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

BARE = "bare loop of orjson and pyarrow, one process"
PEER = "DuckDB COPY read_ndjson to Parquet zstd, all threads"
ROUNDS = 3
TASK = "support_router"
SAMPLE = 5_000
BARE_CHUNK = 5_000
VOCABULARY = (
    "parcel refund card invoice password delivery subscription voucher account receipt never came is wrong was charged"
    " twice has expired got lost does not work please help with my order number and tell me what now because I need it"
    " by friday thank you"
)
WORDS = VOCABULARY.split()

Json = dict[str, Any]


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--formats", nargs="+", choices=sorted(MAKERS), default=list(MAKERS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="print one line of JSON last")
    parser.add_argument("--child", choices=["peer", "bare", "ours", "stages"], help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        ran = {"peer": _peer, "bare": _bare, "ours": _ours, "stages": _stages}[options.child]
        print(json.dumps(ran(options.file, options.workers)))
        return
    results = {fmt: _measure(fmt, options.records, options.rounds) for fmt in options.formats}
    if options.json:
        print(json.dumps({"benchmark": "intake", "peer": PEER, "cores": _cores(), "formats": results}))


def _measure(fmt: str, records: int, rounds: int) -> Json:
    with tempfile.TemporaryDirectory() as folder:
        whole, tenth = Path(folder) / "whole.jsonl", Path(folder) / "tenth.jsonl"
        for path, count in ((whole, records), (tenth, records // 10)):
            _write(path, MAKERS[fmt], count)
        size = whole.stat().st_size
        print(f"{fmt}: {records:,} records of {size / records:,.0f} bytes, {_cores()} cores")
        many = _cores()
        cases: list[tuple[str, list[str], Path]] = [
            (PEER, ["peer"], whole),
            (BARE, ["bare"], whole),
            ("Flywheel, one process", ["ours"], whole),
            (f"Flywheel, {many} worker processes", ["ours", "--workers", str(many)], whole),
            ("Flywheel, one process, a tenth of it", ["ours"], tenth),
        ]
        found: dict[str, list[Json]] = {name: [] for name, _, _ in cases}
        for _ in range(rounds):
            for name, arguments, path in cases:
                found[name].append(_child(arguments, path))
        rates = {
            name: statistics.median(one["records"] / one["seconds"] for one in found[name]) for name, _, _ in cases
        }
        print(f"{'':<52}{'records/s':>11}{'MB/s':>7}{'ratio':>7}{'peak MB':>9}")
        for name, _, _ in cases:
            peak = max(one["peak_mb"] for one in found[name])
            rate = rates[name]
            print(f"{name:<52}{rate:>11,.0f}{rate * size / records / 1e6:>7.0f}{rate / rates[PEER]:>7.2f}{peak:>9,.0f}")
        stages = _child(["stages"], tenth)
        total = sum(stages.values())
        print("where the time goes, in one process, us a record:")
        print("  " + ", ".join(f"{name} {us:.1f} ({us / total:.0%})" for name, us in stages.items()))
        print()
        return {
            "records": records,
            "ratios": {name: round(rates[name] / rates[PEER], 3) for name, _, _ in cases[1:]},
            "records_per_second": {name: round(rate) for name, rate in rates.items()},
            "peak_mb": {name: round(max(one["peak_mb"] for one in runs)) for name, runs in found.items()},
            "stages_us": {name: round(us, 2) for name, us in stages.items()},
        }


def _child(arguments: list[str], path: Path) -> Json:
    with path.open("rb") as whole:  # all read from the page cache
        while whole.read(2**24):  # in pieces: a child's peak of memory begins with its parent's
            pass
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, __file__, "--file", str(path), "--child", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found: Json = json.loads(done.stdout.splitlines()[-1])
    return found


def _peer(path: Path, _workers: int) -> Json:
    import duckdb

    with path.open() as lines:
        keys = list(json.loads(next(lines)))
    columns = ", ".join(f"{key}: 'JSON'" for key in keys)
    target = path.with_suffix(".parquet")
    start = time.perf_counter()
    with duckdb.connect() as connection:
        (count,) = connection.execute(
            f"COPY (FROM read_ndjson('{path}', columns={{{columns}}})) TO '{target}' (FORMAT parquet, COMPRESSION zstd)"
        ).fetchall()[0]
    return {"records": count, "seconds": time.perf_counter() - start, "peak_mb": _peak_mb()}


def _bare(path: Path, _workers: int) -> Json:
    import orjson
    import pyarrow as pa
    import pyarrow.parquet as pq

    start = time.perf_counter()
    count = 0
    writer: Any = None
    with path.open("rb") as lines:
        while found := [orjson.loads(line) for line in islice(lines, BARE_CHUNK)]:
            columns = {key: pa.array([orjson.dumps(row[key]) for row in found], pa.string()) for key in found[0]}
            table = pa.table(columns)
            writer = writer or pq.ParquetWriter(path.with_suffix(".bare.parquet"), table.schema, compression="zstd")
            writer.write_table(table)
            count += len(found)
    writer.close()
    return {"records": count, "seconds": time.perf_counter() - start, "peak_mb": _peak_mb()}


def _ours(path: Path, workers: int) -> Json:
    from flywheel.intake import import_path

    with _wheel() as (config, home, registry):
        start = time.perf_counter()
        report = import_path(config, home, registry, TASK, path, workers=workers)
        seconds = time.perf_counter() - start
        if report.kept != report.read:
            raise SystemExit(f"{report.read} records read but {report.kept} kept: {report.reasons}")
        registry.close()
    return {"records": report.read, "seconds": seconds, "peak_mb": _peak_mb()}


def _stages(path: Path, _workers: int) -> Json:
    """Microseconds a record of each step over some records, one step after the other."""
    from datetime import UTC, datetime

    from flywheel.intake.batch import Item, make_batch
    from flywheel.intake.chunk import ChunkWriter
    from flywheel.intake.decode import decode
    from flywheel.intake.detect import detect
    from flywheel.intake.normalise import Normaliser
    from flywheel.intake.reader import read_lines
    from flywheel.intake.records import Context

    found: Json = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = work()
        found[name] = 1e6 * (time.perf_counter() - start) / len(lines)
        return result

    lines = list(islice(read_lines(path), SAMPLE))
    with _wheel() as (_, home, registry):
        now, context = datetime.now(UTC), Context(TASK, frozenset([TASK]))
        timed("read", lambda: list(islice(read_lines(path), SAMPLE)))
        records = timed("decode", lambda: [decode(line.raw)[0] for line in lines])
        formats = timed("detect", lambda: [detect(record) for record in records])
        parsed = timed("parse", lambda: [f.records(r, context) for f, r in zip(formats, records, strict=True)])
        items = [Item("file", line.offset, line.raw, one) for line, one in zip(lines, parsed, strict=True)]
        make_batch(items[:1], Normaliser(home, TASK, 0.3, now))  # what is imported at first use is not what is measured
        batch = timed("rows", lambda: make_batch(items, Normaliser(home, TASK, 0.3, now)))
        writer = ChunkWriter(home, registry, TASK, "bench", now)
        timed("classify and write", lambda: writer.take("file", [batch], {"files": {}}, None))
        registry.close()
    return found


class _wheel:
    """An empty deployment in a temporary folder."""

    def __enter__(self) -> Any:
        from flywheel.config import load_config
        from flywheel.store.home import Home
        from flywheel.store.registry import Registry

        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name) / "flywheel.yaml"
        file.write_text(f"home: home\ntasks: {{{TASK}: {{base: tiny, prompt: Route the message.}}}}\n")
        config = load_config(file)
        return config, Home.of(config), Registry.of(config)

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def _write(path: Path, make: Callable[[random.Random, int], Json], count: int) -> None:
    rng = random.Random(7)
    with path.open("w") as lines:
        for number in range(count):
            lines.write(json.dumps(make(rng, number), separators=(",", ":")) + "\n")


def _say(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words)) + "."


def _messages(rng: random.Random) -> list[Json]:
    return [
        {"role": "system", "content": "You route support messages to queues. " + _say(rng, 30)},
        {"role": "user", "content": _say(rng, 50)},
        {"role": "assistant", "content": _say(rng, 20)},
        {"role": "user", "content": _say(rng, 35)},
    ]


def _openai(rng: random.Random, number: int) -> Json:
    created = 1764500000 + number // 20
    request = {
        "model": "support-7b",
        "messages": _messages(rng),
        "temperature": 0.2,
        "max_tokens": 128,
        "user": f"user-{rng.randrange(10**5)}",
        "metadata": {"conversation_id": f"conv-{number // 3}"},
    }
    message = {"role": "assistant", "content": _say(rng, 25)}
    response = {
        "id": f"chatcmpl-{rng.getrandbits(96):024x}",
        "object": "chat.completion",
        "created": created,
        "model": "support-7b-2026",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 200, "completion_tokens": 30, "total_tokens": 230},
    }
    return {"timestamp": created, "request": request, "response": response}


def _langfuse(rng: random.Random, number: int) -> Json:
    second = (
        f"2026-11-{1 + number // 86400 % 28:02d} {number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
    )
    return {
        "id": f"{rng.getrandbits(96):024x}",
        "trace_id": f"{number // 3:032x}",
        "type": "GENERATION",
        "name": "route",
        "start_time": f"{second}.120000",
        "end_time": f"{second}.480000",
        "input": json.dumps({"messages": _messages(rng)}),
        "output": json.dumps({"role": "assistant", "content": _say(rng, 25)}),
        "provided_model_name": "support-7b",
        "model_parameters": '{"temperature":0.2}',
        "usage_details": {"input": 200, "output": 30},
        "user_id": f"user-{rng.randrange(10**5)}",
        "session_id": f"session-{number // 3}",
    }


def _otel(rng: random.Random, number: int) -> Json:
    def parts(message: Json) -> Json:
        return {"role": message["role"], "parts": [{"type": "text", "content": message["content"]}]}

    answer = {**parts({"role": "assistant", "content": _say(rng, 25)}), "finish_reason": "stop"}
    texts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "support-7b",
        "gen_ai.response.id": f"chatcmpl-{rng.getrandbits(96):024x}",
        "gen_ai.conversation.id": f"conv-{number // 3}",
        "gen_ai.input.messages": json.dumps([parts(message) for message in _messages(rng)]),
        "gen_ai.output.messages": json.dumps([answer]),
    }
    start = (1764500000 + number // 20) * 10**9
    span = {
        "traceId": f"{number + 1:032x}",
        "spanId": f"{number + 1:016x}",
        "name": "chat support-7b",
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 360_000_000),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in texts.items()],
    }
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "vllm"}, "spans": [span]}]}]}


MAKERS: dict[str, Callable[[random.Random, int], Json]] = {
    "openai_chat": _openai,
    "langfuse": _langfuse,
    "otel": _otel,
}


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _peak_mb() -> float:
    """Peak memory of this process and of its largest child, together."""
    own, child = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return (own + child) / 1024


if __name__ == "__main__":
    main()
