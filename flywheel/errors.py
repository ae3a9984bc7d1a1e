"""Every error Flywheel raises on purpose.

One base class; each error also inherits the standard-library type it refines, so callers may catch either. Messages
say what was found, what was expected, where, and what to do. They never contain log text.
"""

import traceback


class FlywheelError(Exception):
    """Base of all deliberate errors. The command line prints its message on one line and exits 2."""


class ConfigError(FlywheelError, ValueError):
    """``flywheel.yaml`` says something that cannot be."""


class ModelUnavailable(FlywheelError, OSError):
    """A model is neither cached nor obtainable here."""


class CheckpointError(FlywheelError, ValueError):
    """A checkpoint or adapter file is damaged, does not fit its base, or is not what its digest says."""


class StoreError(FlywheelError, OSError):
    """The home folder or the registry cannot be used."""


class StaleAttempt(FlywheelError, RuntimeError):
    """A stage tried to write for a loop attempt that is no longer the current one."""


class HomeBusy(FlywheelError, RuntimeError):
    """Another process holds a lock that this one needs."""


class IntakeError(FlywheelError, ValueError):
    """A source as a whole cannot be read (single bad records go to quarantine instead)."""


class VerifierError(FlywheelError, RuntimeError):
    """A verifier fails on answer after answer, so that its silence would be taken for a word."""


class DatasetError(FlywheelError, ValueError):
    """A dataset cannot be built from what there is."""


class TrainingError(FlywheelError, RuntimeError):
    """A training run failed or produced weights that must not be used."""


class EvaluationError(FlywheelError, RuntimeError):
    """An evaluation could not be completed."""


class PromotionRefused(FlywheelError, PermissionError):
    """A promotion lacks the evidence it needs, or the world moved since the evidence was made."""


class ProbeFailed(FlywheelError, RuntimeError):
    """A replica does not serve what was evaluated."""


class RequestError(FlywheelError, ValueError):
    """A gateway request is wrong; carries what the OpenAI-shaped answer needs.

    Args:
        message: what was wrong and what to do.
        status: HTTP status code.
        code: machine-readable code such as ``model_not_found``.
        param: the request field at fault, if one is.
        retry_after_s: seconds to wait before a retry makes sense, for 429 and 503.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s


def without_message(error: BaseException) -> str:
    """An unforeseen exception by type and innermost places. Its message is left out: it may quote what people wrote."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(error).__name__} at {places}"
