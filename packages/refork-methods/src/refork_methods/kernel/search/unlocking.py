"""Moves that cost nothing and open others, taken together with what they open.

A promise (``restrict``) may change no instruction by itself, so a search that moves for gains alone never
takes it, and the moves that need it are never offered. Here they are offered at once, as one move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, final

from refork.errors import UserError
from refork_methods.kernel.search.rewriting import Library, Rewrite
from refork_methods.kernel.slip import Slip

M = TypeVar("M", bound=Rewrite)

#: Kinds of moves that open others.
KEYS = ("restrict",)


@final
@dataclass(frozen=True)
class Both(Generic[M]):
    """A move and the one before it that makes it legal; of the second one's kind."""

    first: M
    second: M

    @property
    def id(self) -> str:
        """Both names."""
        return f"{self.first.id}+{self.second.id}"

    @property
    def name(self) -> str:
        """The second one's."""
        return self.second.name

    @property
    def answers(self) -> tuple[str, ...]:
        """The second one's."""
        return self.second.answers

    @property
    def reassociates(self) -> bool:
        """Where one of them does."""
        return self.first.reassociates or self.second.reassociates

    @property
    def assumes(self) -> str:
        """What both take."""
        return "; ".join(one for one in (self.first.assumes, self.second.assumes) if one)


@final
@dataclass(frozen=True)
class One(Generic[M]):
    """A move by itself."""

    only: M

    @property
    def id(self) -> str:
        """Its own."""
        return self.only.id

    @property
    def name(self) -> str:
        """Its own."""
        return self.only.name

    @property
    def answers(self) -> tuple[str, ...]:
        """Its own."""
        return self.only.answers

    @property
    def reassociates(self) -> bool:
        """Its own."""
        return self.only.reassociates

    @property
    def assumes(self) -> str:
        """Its own."""
        return self.only.assumes


Step: TypeAlias = One[M] | Both[M]


@final
class Unlocked(Generic[M]):
    """A library whose moves are its own, and those that one of its ``keys`` opens, with that before them."""

    def __init__(self, library: Library[M], keys: Sequence[str] = KEYS) -> None:
        self._library, self._keys = library, tuple(keys)

    def moves(
        self, source: str, entry: str, flags: tuple[str, ...], slips: list[Slip] | None = None
    ) -> list[Step[M]]:
        """Moves that are legal as it stands first, then those that a key opens."""
        own = self._library.moves(source, entry, flags, slips)
        known = {one.id for one in own}
        found: list[Step[M]] = [One(one) for one in own]
        for key in (one for one in own if one.name in self._keys):
            try:
                opened = self._library.apply(source, entry, flags, key)
                after = self._library.moves(opened[0], entry, opened[1], slips)
            except UserError:
                continue
            except Exception as error:
                if slips is None:
                    raise
                slips.append(Slip.of(f"rule {key.id}", error))
                continue
            found += [Both(key, one) for one in after if one.id not in known]
        return found

    def apply(
        self, source: str, entry: str, flags: tuple[str, ...], move: Step[M]
    ) -> tuple[str, tuple[str, ...]]:
        """One after the other. Raises BadInput where either cannot be made."""
        if isinstance(move, One):
            return self._library.apply(source, entry, flags, move.only)
        source, flags = self._library.apply(source, entry, flags, move.first)
        return self._library.apply(source, entry, flags, move.second)
