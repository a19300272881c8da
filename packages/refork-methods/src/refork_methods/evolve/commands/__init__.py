"""The verbs of judges and their evolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refork.stats import Interval


def span(interval: Interval | None) -> str:
    """An estimate with its interval, for a table."""
    return "-" if interval is None else f"{interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
