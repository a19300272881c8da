"""Traps: work that fooled the incumbent judge, for its successor to refuse; controls, for it to accept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from refork.errors import BadInput

_UNIT = 2**64


@final
@dataclass(frozen=True, slots=True)
class Trap:
    """One item: its artifact's key, the right verdict (0 refuse, 1 accept), and whether a person gave it."""

    artifact: str
    label: int
    verified: bool

    @property
    def is_control(self) -> bool:
        """Whether it is good work, here to catch a judge that refuses everything of its kind."""
        return self.label == 1


@final
@dataclass(frozen=True, slots=True)
class TrapSet:
    """Traps and controls that editors may see (``train``), and those for the examination (``held_out``)."""

    train: tuple[Trap, ...]
    held_out: tuple[Trap, ...]


def trap_set(
    accepted: Iterable[tuple[str, str]],
    truth: Mapping[str, int],
    cap: int,
    *,
    seed: int,
    held_out: float = 0.5,
) -> TrapSet:
    """Traps and controls out of machine-made artifacts that the incumbent accepted.

    ``accepted``: (artifact key, digest of its content); one content counts once. ``truth``: labels that a
    person gave, by key, 0 or 1. Good work becomes a control, all else a trap, unverified work too. Where
    there are controls, each side keeps as many traps as controls; without any, it keeps traps alone. At
    most ``cap`` items are held out (the anchor's size, so that they
    weigh no more than it), and as many shown.

    Which side an item is on, and which items a cap keeps, is a pure function of ``seed`` and content:
    what was held out once is never shown to editors in a later epoch.

    Raises: BadInput for a label that is not 0 or 1, a cap below 1, or a share outside (0, 1).
    Source: arXiv:2606.26294 names trap training without its details; the set, its balance and the split
    are ours.
    """
    if cap < 1 or not 0 < held_out < 1:
        raise BadInput(f"cap {cap}, held-out share {held_out!r}", hint="the anchor's size, and 0.5")
    found: dict[str, Trap] = {}
    # Sorted, so that of two keys with one content the same one is kept whatever the order of the records.
    for key, content in sorted(accepted):
        label = truth.get(key)
        if label not in (None, 0, 1):
            raise BadInput(f"the label is {label!r}, not 0 or 1", where=f"artifact {key}")
        known = found.get(content)
        if known is None or (label is not None and not known.verified):
            found[content] = Trap(key, int(label == 1), label is not None)
    sides: tuple[list[Trap], list[Trap]] = ([], [])
    for content in sorted(found, key=lambda text: _position("order", seed, text)):
        # False and True are places here: shown, held out.
        sides[_position("side", seed, content) < held_out * _UNIT].append(found[content])
    return TrapSet(_cut(sides[0], cap), _cut(sides[1], cap))


def _position(what: str, seed: int, content: str) -> int:
    # A digest, not hash(), which differs from process to process.
    name = f"{what}\x1f{seed}\x1f{content}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _cut(items: list[Trap], cap: int) -> tuple[Trap, ...]:
    """The first items of each kind: as many of both where there are both, ``cap`` in all."""
    kinds = [[item for item in items if item.is_control == kind] for kind in (False, True)]
    if not kinds[1]:
        return tuple(kinds[0][:cap])
    size = min(len(kinds[0]), len(kinds[1]), cap // 2)
    return tuple(sorted((*kinds[0][:size], *kinds[1][:size]), key=lambda item: item.artifact))
