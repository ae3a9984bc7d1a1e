"""``flywheel serve``: the gateway with the embedded engine."""

from __future__ import annotations

from flywheel.cli.shared import ConfigOption, say


def serve(config: ConfigOption = None) -> None:
    """Serve the OpenAI-compatible API, the feedback API and metrics until Ctrl-C."""
    import logging

    from flywheel.config import load_config
    from flywheel.gateway.server import serve as serve_gateway

    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("flywheel").setLevel(logging.INFO)
    serve_gateway(load_config(config), on_ready=lambda running: say(f"serving on {running.url}/v1, Ctrl-C stops it"))
