"""Pulling from a hub: a small HTTP server stands in for the hub's side of the wire, the client is the real one."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from flywheel.models import ModelDir

SHA = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves one folder as the repository ``some/model``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.extra: dict[str, bytes] = {}
        self.hidden: set[str] = set()
        self.fetched: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)

    def files(self) -> dict[str, bytes]:
        own = {path.name: path.read_bytes() for path in self.folder.iterdir() if path.name not in self.hidden}
        return {**own, **self.extra}


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        files = self.server.files()
        if path.startswith("/api/models/some/model/tree/"):
            rows = [{"type": "file", "path": name, "size": len(files[name]), "oid": SHA} for name in files]
            return self._answer(json.dumps(rows).encode())
        if path.startswith("/api/models/some/model"):
            info = {"id": "some/model", "sha": SHA, "siblings": [{"rfilename": name} for name in files]}
            return self._answer(json.dumps(info).encode())
        name = path.removeprefix(f"/some/model/resolve/{SHA}/")
        if name not in files:
            return self._answer(b"", 404)
        if self.command == "GET":
            self.server.fetched.append(name)
        return self._answer(files[name])

    def _answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha1(body, usedforsecurity=False).hexdigest()}"')
        self.send_header("X-Repo-Commit", SHA)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Quiet."""


@pytest.fixture
def hub(tiny: ModelDir) -> Iterator[Hub]:
    with Hub(tiny.path) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run_pull(hub: Hub, cache: Path, name: str = "some/model") -> str:
    code = (
        "from flywheel.models import pull\nfrom flywheel.errors import ModelUnavailable\n"
        f"try: print(pull({name!r}, report=lambda line: None).base_digest)\n"
        "except ModelUnavailable as error: print(error)"
    )
    hub_settings = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}"}
    environment = {**os.environ, **hub_settings, "HF_HOME": str(cache / "hf"), "FLYWHEEL_CACHE": str(cache)}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_hub_model_is_fetched_once_without_anything_but_data(hub: Hub, tiny: ModelDir, tmp_path: Path) -> None:
    hub.extra = {"modeling_x.py": b"raise SystemExit", "pytorch_model.bin": b"pickle", "onnx/model.safetensors": b"x"}
    assert run_pull(hub, tmp_path).strip() == tiny.base_digest
    assert not {"modeling_x.py", "pytorch_model.bin", "onnx/model.safetensors"} & set(hub.fetched)
    before = list(hub.fetched)
    assert run_pull(hub, tmp_path).strip() == tiny.base_digest
    assert hub.fetched == before


def test_a_hub_model_with_pickled_weights_only_is_refused_before_the_download(hub: Hub, tmp_path: Path) -> None:
    hub.hidden, hub.extra = {"model.safetensors"}, {"pytorch_model.bin": b"pickle"}
    assert "pytorch_model.bin, a pickle" in run_pull(hub, tmp_path)
    assert hub.fetched == []
    assert not list((tmp_path / "hub").glob("[!.]*"))


def test_a_name_the_hub_does_not_know_is_one_clear_line(hub: Hub, tmp_path: Path) -> None:
    said = run_pull(hub, tmp_path, "other/model")
    assert said.count("\n") == 1
    assert "'other/model'" in said
