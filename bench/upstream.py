"""What the gateway adds to the first token of an engine that is not ours, against asking that engine directly.

    python bench/upstream.py [--requests 400] [--concurrency 1] [--json]

The engine is a process that streams chunks of a chat completion as fast as it can, so that nothing hides what the
gateway costs; the peer is the same engine, asked without the gateway, in turns with it. Each request reads its stream
to the end; the gateway logs every answer with fsync. Time runs from sending the request to the first bytes of the body.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

PEER = "the same engine without the gateway"
TOKENS = 32
SERVE = """
import sys
from flywheel.config import load_config
from flywheel.gateway.server import serve
serve(load_config(sys.argv[1]), on_ready=lambda gateway: print(gateway.url, flush=True))
"""


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=400, help="of each kind")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one line of JSON last")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        told, tell = multiprocessing.Pipe(duplex=False)
        engine = multiprocessing.Process(target=_engine, args=(tell,), daemon=True)
        engine.start()
        port = told.recv()
        gateway = _gateway(Path(folder), port)
        try:
            assert gateway.stdout is not None
            front = int(gateway.stdout.readline().rsplit(":", 1)[1])
            direct, through = asyncio.run(_measure(port, front, options.requests, options.concurrency))
        finally:
            gateway.terminate()
            gateway.wait()
            engine.terminate()
    _report(direct, through, options)


def _report(direct: list[float], through: list[float], options: argparse.Namespace) -> None:
    added = [b - a for a, b in zip(direct, through, strict=True)]
    rows = {PEER: direct, "through the gateway": through}
    print(f"{options.requests} streams each way, {options.concurrency} at a time; first token in ms")
    print(f"{'':<40}{'median':>9}{'p95':>9}")
    for name, times in rows.items():
        print(f"{name:<40}{_median(times):>9.2f}{_p95(times):>9.2f}")
    more = {"median": _median(through) - _median(direct), "p95": _p95(through) - _p95(direct)}
    print(f"{'added by the gateway':<40}{more['median']:>9.2f}{more['p95']:>9.2f}")
    print(f"{'added, request by request':<40}{_median(added):>9.2f}{_p95(added):>9.2f}")
    if options.json:
        figures = {
            "benchmark": "upstream",
            "peer": PEER,
            "first_token_ms": {name: [round(_median(t), 3), round(_p95(t), 3)] for name, t in rows.items()},
            "added_ms_median": round(more["median"], 3),
            "added_ms_p95": round(more["p95"], 3),
            "ratios": {"median first token, gateway / direct": round(_median(through) / _median(direct), 3)},
        }
        print(json.dumps(figures))


def _median(seconds: list[float]) -> float:
    return 1000 * statistics.median(seconds)


def _p95(seconds: list[float]) -> float:
    return 1000 * statistics.quantiles(seconds, n=20)[-1]


async def _measure(direct: int, through: int, requests: int, concurrency: int) -> tuple[list[float], list[float]]:
    """Seconds to the first token, each request directly and then through the gateway, after some that do not count."""
    times: dict[int, list[float]] = {direct: [], through: []}

    async def caller(share: int) -> None:
        clients = {port: await _Client.open(port) for port in (direct, through)}
        for number in range(-20, share):
            for port, client in clients.items():
                seconds = await client.first_token()
                if number >= 0:
                    times[port].append(seconds)
        for client in clients.values():
            client.close()

    await asyncio.gather(*(caller(requests // concurrency) for _ in range(concurrency)))
    return times[direct], times[through]


class _Client:
    """One connection that asks again and again, with next to no cost of its own."""

    def __init__(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        messages = [{"role": "user", "content": "Where is my parcel? " * 20}]
        body = json.dumps({"model": "task", "messages": messages, "stream": True}).encode()
        lines = ["POST /v1/chat/completions HTTP/1.1", f"host: 127.0.0.1:{port}", "content-type: application/json"]
        self.request = "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body

    @classmethod
    async def open(cls, port: int) -> _Client:
        return cls(port, *await asyncio.open_connection("127.0.0.1", port))

    async def first_token(self) -> float:
        """Seconds from sending to the first body bytes; then the rest is read."""
        started = time.perf_counter()
        self.writer.write(self.request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        await self.reader.readuntil(b"data: ")
        seconds = time.perf_counter() - started
        await self.reader.readuntil(b"0\r\n\r\n")
        return seconds

    def close(self) -> None:
        self.writer.close()


def _engine(tell: Any) -> None:
    """An engine on a free port: each request gets the same stream, chunk by chunk."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = 0
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.split(b":")[1]))
                number += 1
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for piece in _stream(f"chatcmpl-{id(writer):x}-{number}"):
                    writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                    await asyncio.sleep(0)
                writer.write(b"0\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        tell.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def _stream(name: str) -> list[bytes]:
    def chunk(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        whole = {"id": name, "object": "chat.completion.chunk", "created": 1, "model": "base", "choices": [choice]}
        return b"data: " + json.dumps(whole).encode() + b"\n\n"

    words = [chunk({"content": f" word{n}"}) for n in range(TOKENS)]
    return [*words, chunk({}, "stop"), b"data: [DONE]\n\n"]


def _gateway(folder: Path, port: int) -> subprocess.Popen[str]:
    """A gateway of its own process in front of the engine."""
    task = {"base": "base", "engine": f"http://127.0.0.1:{port}/v1"}
    path = folder / "flywheel.yaml"
    path.write_text(yaml.safe_dump({"home": "home", "gateway": {"port": 0}, "tasks": {"task": task}}))
    return subprocess.Popen([sys.executable, "-c", SERVE, str(path)], stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    main()
