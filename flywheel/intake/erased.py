"""Records of erased users: recognised by keyed hashes as they come in again, and dropped."""

from __future__ import annotations

from collections.abc import Sequence

from flywheel.intake.records import Json
from flywheel.store.erased import Erased

BY_USER, ABOUT_USER = "erased user", "about an erased user"


def reason(erased: Erased, row: Json) -> tuple[str, str] | None:
    """Why a call or a piece of feedback must not be stored, and the erasure that says so; None when it may.

    ``erased user``: an erased user made the call or gave the feedback. ``about an erased user``: the call is in a
    conversation of theirs, or the feedback is about what went with them.
    """
    call = "interaction_id" in row
    if (erasure := erased.erasure_of(row["user_key"] if call else row["author_key"])) is not None:
        return BY_USER, erasure
    if call:
        erasure = erased.gone(row["interaction_id"], row["conversation_id"])
    else:
        target = row["target_id"] if row["target_kind"] != "metadata" else None
        erasure = erased.gone(row["feedback_id"], target)
    return None if erasure is None else (ABOUT_USER, erasure)


def names(erased: Erased, rows: Sequence[Json], erasure: str) -> dict[str, str]:
    """Keyed hashes of the ids of a dropped call that may be mentioned later, with the erasure they belong to.

    Feedback has none: it is recognised by its author, or by what it is about.

    Args:
        rows: one for each choice of the call.
    """
    ids = {rows[0]["conversation_id"], *(row["interaction_id"] for row in rows)}
    return {erased.name(own): erasure for own in ids if erased.gone(own) is None}
