"""Log formats, one module each. The order of import is the order in which detection asks them."""

from flywheel.intake.formats import gateway, nvidia_flywheel, openai_chat
from flywheel.intake.formats.registry import FORMATS, LogFormat, log_format, named

__all__ = ["FORMATS", "LogFormat", "gateway", "log_format", "named", "nvidia_flywheel", "openai_chat"]
