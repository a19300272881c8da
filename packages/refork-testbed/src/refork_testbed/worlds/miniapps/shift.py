"""What a shifted version of the apps does differently: a convention, and its documentation with it."""

from __future__ import annotations

from dataclasses import dataclass

from refork.errors import BadInput

#: The conventions that can change, with what changes.
SHIFTS = {
    "pages": "pages are numbered from 1, and page 0 is empty",
    "cents": "amounts that are sent or requested are in cents",
    "ids": "a playlist is named by its id instead of its name",
}


@dataclass(frozen=True, slots=True)
class Shift:
    """Which conventions are changed; all False is the usual version."""

    pages: bool = False
    cents: bool = False
    ids: bool = False

    @classmethod
    def parse(cls, text: str) -> Shift:
        """Read ``pages``, ``cents``, ``ids``, or several joined by ``+``; empty is the usual version.

        Raises:
            BadInput: there is no such shift.
        """
        names = [name.strip() for name in text.split("+")] if text else []
        for name in names:
            if name not in SHIFTS:
                raise BadInput(
                    f"there is no shift {name!r}", where="miniapps", hint=f"shifts: {', '.join(SHIFTS)}"
                )
        return cls(**dict.fromkeys(names, True))

    @property
    def first_page(self) -> int:
        """The number of the first page."""
        return 1 if self.pages else 0

    @property
    def cents_per_unit(self) -> int:
        """What one unit of a sent or requested amount is worth, in cents."""
        return 1 if self.cents else 100

    def __str__(self) -> str:
        return "+".join(name for name in SHIFTS if getattr(self, name))
