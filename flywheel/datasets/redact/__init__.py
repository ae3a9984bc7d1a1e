"""Personal data and secrets out of what trains: surrogates of the same type, and placeholders."""

from flywheel.datasets.redact.conversation import Redacted, redact

__all__ = ["Redacted", "redact"]
