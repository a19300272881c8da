"""The verbs of judges and their evolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refork.stats import Interval


def span(found: Interval | None) -> str:
    """An estimate with its interval, for a table."""
    return "-" if found is None else f"{found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]"
