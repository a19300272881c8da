"""What a verification finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not hold: ``error`` contradicts the record, ``warning`` could not be checked.

    ``token`` is the first that differs, counted in its node; ``cause`` is the likely one.
    """

    severity: Literal["error", "warning"]
    node: str | None
    token: int | None
    what: str
    cause: str | None = None
