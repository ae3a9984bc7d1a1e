"""Log formats, one module each. The order of import is the order in which detection asks them."""

from flywheel.intake.formats import (
    gateway,
    helicone,
    langfuse,
    litellm,
    nvidia_flywheel,
    open_webui,
    openai_chat,
    openai_preference,
    openai_responses,
    otel,
    tensorzero,
)
from flywheel.intake.formats.columns import columns_format
from flywheel.intake.formats.custom import load_formats
from flywheel.intake.formats.registry import FORMATS, LogFormat, log_format, named

__all__ = [
    "FORMATS",
    "LogFormat",
    "columns_format",
    "gateway",
    "helicone",
    "langfuse",
    "litellm",
    "load_formats",
    "log_format",
    "named",
    "nvidia_flywheel",
    "open_webui",
    "openai_chat",
    "openai_preference",
    "openai_responses",
    "otel",
    "tensorzero",
]
