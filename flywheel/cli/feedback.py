"""``flywheel feedback``: say what was good or wrong about an answer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flywheel.cli.shared import ConfigOption, TaskOption, opened

app = typer.Typer(help="Feedback on answers.", no_args_is_help=True)


@app.command()
def add(
    task: TaskOption,
    kind: Annotated[str, typer.Option(help="thumb, rating, correction, preference, label, comment or outcome")],
    interaction: Annotated[str | None, typer.Option(help="interaction id")] = None,
    conversation: Annotated[str | None, typer.Option(help="conversation id")] = None,
    metadata: Annotated[str | None, typer.Option(help="KEY=VALUE that the caller put on the request")] = None,
    value: Annotated[str | None, typer.Option(help="up or down, a number, true or false, or JSON")] = None,
    text: Annotated[str | None, typer.Option(help="the right answer, the label, or the comment")] = None,
    source: Annotated[str, typer.Option(help="user, reviewer, verifier, judge or implicit")] = "user",
    author: Annotated[str | None, typer.Option(help="who says so")] = None,
    config: ConfigOption = None,
) -> None:
    """Record one piece of feedback durably, through the running gateway or straight into the log."""
    from flywheel.cli.gateway_calls import call_gateway, gateway_url
    from flywheel.gateway.offline import record_offline

    body: dict[str, Any] = {"task": task, "kind": kind, "source": source}
    if interaction is not None:
        body["interaction_id"] = interaction
    if conversation is not None:
        body["conversation_id"] = conversation
    if metadata is not None:
        key, _, wanted = metadata.partition("=")
        body["metadata"] = {"key": key, "value": wanted}
    optional = {"value": _value(value), "text": text, "author": author}
    body |= {name: item for name, item in optional.items() if item is not None}
    with opened(config, task) as o:
        if gateway_url(o) is None:
            feedback_id = record_offline(o.config, o.home, body)
        else:
            feedback_id = call_gateway(o, "POST", "/v1/feedback", json=body)["id"]
    typer.echo(feedback_id)


def _value(raw: str | None) -> Any:
    import json

    if raw is None:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return raw
