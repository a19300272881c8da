"""The issue's values held against function bodies: literals, kinds of result, errors they can raise, size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float, Int

from refork_methods.localize.behaviour import Behaviour, behaviours
from refork_methods.localize.bm25f import scaled
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.reported import ENDLESS, Atom, Reported
from refork_methods.localize.spans import parsed

#: What a shared word or number counts against 1 for a shared sign: names in data are seldom those in code.
_PLAIN = 0.25
_SHOWN = 3


@final
@dataclass(frozen=True, slots=True)
class Matched:
    """Evidence by symbol: ``value``, ``result``, ``error``, ``size``; ``told``: what was found, in words."""

    parts: dict[str, Float[np.ndarray, "symbols"]]
    told: Mapping[int, tuple[str, ...]]


def match_bodies(index: RepoIndex, issue: Reported, chosen: Int[np.ndarray, "chosen"]) -> Matched:
    """Match the functions among the ``chosen`` symbols; bodies are read in Python alone, sizes everywhere."""
    parts = {name: np.zeros(len(index.symbols)) for name in ("value", "result", "error", "size")}
    known = _read(index, chosen)
    counts = Counter(atom for one in known.values() for atom in one.atoms)
    told: dict[int, tuple[str, ...]] = {}
    for n, one in known.items():
        shared = sorted(one.atoms & issue.atoms, key=lambda atom: (counts[atom], atom[0], str(atom[1])))
        parts["value"][n] = sum(_worth(atom, counts[atom], len(known)) for atom in shared)
        parts["result"][n] = one.fits(issue.kinds)
        errors = sorted(one.errors & issue.errors)
        parts["error"][n] = float(bool(errors))
        told[n] = tuple(_words(one, issue, shared, errors))
    parts["value"] = scaled(parts["value"])
    for n in chosen:
        symbol = index.symbols[n]
        if symbol.kind in ("function", "method"):
            parts["size"][n] = np.log1p(symbol.end - symbol.start)
    parts["size"] = scaled(parts["size"])
    return Matched(parts, told)


def _read(index: RepoIndex, chosen: Int[np.ndarray, "chosen"]) -> dict[int, Behaviour]:
    """Number of a Python function -> what its body tells."""
    found: dict[int, Behaviour] = {}
    for n in chosen.tolist():
        symbol = index.symbols[n]
        if symbol.kind not in ("function", "method"):
            continue
        tree = parsed(index.snapshot.text(symbol.path), symbol.path)
        one = behaviours(tree).get(symbol.start) if tree is not None else None
        if one is not None:
            found[n] = one
    return found


def _worth(atom: Atom, holding: int, bodies: int) -> float:
    """The inverse document frequency of a literal among the bodies, as BM25 has it."""
    return float(np.log1p((bodies - holding + 0.5) / (holding + 0.5))) * (
        1.0 if atom[0] == "sign" else _PLAIN
    )


def _words(one: Behaviour, issue: Reported, shared: list[Atom], errors: list[str]) -> list[str]:
    told: list[str] = []
    if shared:
        literals = ", ".join(
            repr(value) if isinstance(value, str) else f"{value:g}" for _, value in shared[:_SHOWN]
        )
        told.append(f"its literals stand in the issue's values: {literals}")
    if one.fits(issue.kinds) > 0:
        told.append(f"the kind of its result is one that the issue tells ({', '.join(sorted(one.returns))})")
    if errors:
        named = ", ".join("a loop without end" if error == ENDLESS else error for error in errors)
        told.append(f"its code has the form that can raise {named}")
    return told
