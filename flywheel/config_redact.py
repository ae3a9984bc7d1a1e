"""What is taken out of the texts that train: the part ``data.redact`` of a task."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from flywheel.config_logs import Section

Family = Literal["secret", "iban", "national_id", "card", "crypto", "ip", "email", "phone"]


class RedactPolicy(Section):
    """Which personal data and secrets leave the texts of a dataset. Its digest is part of the dataset's."""

    enabled: bool = Field(True, description="replace personal data and secrets before anything is stored for training")
    kinds: tuple[Family, ...] = Field(get_args(Family), description="what is replaced; names are apart")
    names: bool = Field(False, description="also people's names; needs the extra `presidio`, and is slow")
