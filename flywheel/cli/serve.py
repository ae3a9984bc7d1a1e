"""``flywheel serve``: the gateway with the embedded engine."""

from __future__ import annotations

from flywheel.cli.shared import ConfigOption


def serve(config: ConfigOption = None) -> None:
    """Serve the OpenAI-compatible API, the feedback API and metrics until Ctrl-C."""
    from flywheel.config import load_config
    from flywheel.gateway.server import serve as serve_gateway

    serve_gateway(load_config(config))
