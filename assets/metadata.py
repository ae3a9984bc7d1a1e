"""Turning plain reports into Dagster metadata: numbers that plot, tables, short markdown; never log text.

Dagster draws every int or float key as a line over materializations and shows markdown under 1,000 characters inline.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from flywheel.store.digests import short

INLINE_MARKDOWN = 1000
PICTURE_BYTES = 50_000


def numbers(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Ints, floats and bools of a report as metadata; numpy scalars are converted, NaN and infinities dropped."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        plain = value.item() if hasattr(value, "item") else value
        if isinstance(plain, bool | int) or (isinstance(plain, float) and math.isfinite(plain)):
            result[prefix + key] = plain
    return result


def table(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A table; every row needs the same keys. Empty rows give a dash."""
    if not rows:
        return dg.MetadataValue.text("-")
    schema = dg.TableSchema(columns=[dg.TableColumn(name, _column_type(rows[0][name])) for name in rows[0]])
    return dg.MetadataValue.table(
        [dg.TableRecord({k: _cell(v) for k, v in row.items()}) for row in rows], schema=schema
    )


def name_of(digest: str | None, otherwise: str = "-") -> str:
    """A digest as people write it: 12 digits, which also keeps tables within the page."""
    return short(digest) if digest else otherwise


def counts(values: Mapping[str, int], name: str) -> Any:
    """A two-column table of counts, largest first."""
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    return table([{name: key, "rows": value} for key, value in ordered])


def picture(png: bytes, title: str) -> Any:
    """A PNG as inline markdown; a picture too large for the event log is left out with its size."""
    if len(png) > PICTURE_BYTES:
        return dg.MetadataValue.text(f"{title}: {len(png)} bytes, too large to show here")
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{base64.b64encode(png).decode()})")


def _column_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "int" if isinstance(value, int) else "float" if isinstance(value, float) else "string"


def _cell(value: Any) -> Any:
    plain = value.item() if hasattr(value, "item") else value
    return plain if isinstance(plain, bool | int | float | str) else "" if plain is None else str(plain)
