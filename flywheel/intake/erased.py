"""Records of erased users: recognised by keyed hashes as they come in again, and dropped."""

from __future__ import annotations

from collections.abc import Sequence

from flywheel.intake.records import Json
from flywheel.store.erased import Erased

BY_USER, ABOUT_USER = "erased user", "about an erased user"


def reason(erased: Erased, rows: Sequence[Json]) -> tuple[str, str] | None:
    """Why the rows of one record must not be stored, and the erasure that says so; None when they may.

    ``erased user``: an erased user made the call or gave the feedback. ``about an erased user``: the call is in a
    conversation of theirs, or the feedback is about what went with them.
    """
    first = rows[0]
    call = "interaction_id" in first
    if (erasure := erased.erasure_of(first["user_key"] if call else first["author_key"])) is not None:
        return BY_USER, erasure
    if call:
        erasure = erased.gone(first["interaction_id"], first["conversation_id"])
    else:
        target = first["target_id"] if first["target_kind"] != "metadata" else None
        erasure = erased.gone(first["feedback_id"], target)
    return None if erasure is None else (ABOUT_USER, erasure)


def names(erased: Erased, rows: Sequence[Json], erasure: str) -> dict[str, str]:
    """Keyed hashes of the ids of a dropped call that may be mentioned later, with the erasure they belong to.

    Feedback has none: it is recognised by its author, or by what it is about.
    """
    first = rows[0]
    ids = {first["conversation_id"], *(row["interaction_id"] for row in rows)} if "interaction_id" in first else set()
    return {erased.name(own): erasure for own in ids if erased.gone(own) is None}
