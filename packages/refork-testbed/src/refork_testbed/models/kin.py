"""Words that belong together begin alike: their embeddings share directions before anything is learned.

A large model has learned from much text which tokens are of one kind, and the alphabet. A small one that
begins at random has to find both out word by word, and meanwhile cannot say "the last path" or "the name of
that row", nor sort.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

#: How much of the variance of a new embedding is shared with its kin.
SHARE = 0.35
#: How many turns of a circle, from 1/4 up by doubling, tell the place of a piece in an order.
TURNS = 4
#: Kinds of pieces, the first that fits.
_KINDS = {
    kind: re.compile(pattern, re.DOTALL)
    for kind, pattern in {
        "tag": r"</?[a-z]+>",
        "key": r'.*".*":.*',
        "folder": r"[A-Za-z]+/",
        "file": r"[A-Za-z]+\.[a-z]+",
        "name": r"[A-Z][a-z]:?",
        "number": r"[0-9]+",
        "word": r"[A-Za-z_]{2,}",
        "letter": r"[A-Za-z]",
        "sign": r".*",
    }.items()
}


def families(piece: str) -> tuple[str, ...]:
    """What a piece shares with others: its kind, and the word, letters, number or ending within it.

    The number 3 and the third letter within a name are one family, as are a folder's name and the word.
    """
    spaced = len(piece) > 1 and piece.startswith(" ")
    bare = piece[1:] if spaced else piece
    kind = next(name for name, pattern in _KINDS.items() if pattern.fullmatch(bare))
    found = [kind]
    if kind == "name":
        found += [f"great {bare[0]}", f"place {ord(bare[1]) - ord('a') + 1}"]
    elif kind == "letter" and bare.isupper():
        found.append(f"great {bare}")
    elif kind == "number" and len(bare) == 1:
        found.append(f"place {bare}")
    elif kind == "file":
        found.append(f"ending {bare.partition('.')[2]}")
    elif kind in ("folder", "word"):
        found.append(f"word {bare.removesuffix('/')}")
    return (*found, "space") if spaced else tuple(found)


def orders(pieces: Iterable[str]) -> dict[str, list[tuple[str, float]]]:
    """Of each word and number its place in orders, from 0 to 1: as texts are sorted, and as numbers are."""
    bare = sorted({piece for piece in pieces if re.fullmatch(r"[a-z]{2,}|[0-9]+", piece)})
    found: dict[str, list[tuple[str, float]]] = {}
    numbers = sorted((piece for piece in bare if piece.isdigit()), key=int)
    for kind, row in (("texts", bare), ("numbers", numbers)):
        for place, piece in enumerate(row):
            found.setdefault(piece, []).append((kind, place / max(1, len(row) - 1)))
    return found


def _curve(place: float) -> Tensor:
    """Coordinates [2 TURNS] of unit length, near where places are near."""
    angles = [2 * math.pi * place * 2.0 ** (turn - 2) for turn in range(TURNS)]
    points = [part(angle) / TURNS**0.5 for angle in angles for part in (math.cos, math.sin)]
    return torch.tensor(points)


def relate(words: Tensor, tokenizer: Any, content: int, spread: float) -> None:
    """Give the first ``content`` columns of the embeddings [V, width] their shared directions, in place.

    A piece with a leading space has the rest in common with the piece itself. Directions come from torch's
    present generator.
    """
    known = tokenizer.get_vocab()
    directions: dict[str, Tensor] = {}
    sorts = {kind: torch.randn(2 * TURNS, content) * spread for kind in ("texts", "numbers")}
    places = orders(known)
    own = words[:, :content].clone()
    for piece, number in sorted(known.items(), key=lambda item: item[1]):
        whose = families(piece)
        for name in whose:
            if name not in directions:
                directions[name] = torch.randn(content) * spread
        kin = [directions[name] for name in whose]
        kin += [_curve(place) @ sorts[kind] for kind, place in places.get(piece.removeprefix(" "), ())]
        shared = torch.stack(kin).sum(0) / len(kin) ** 0.5
        base = known.get(piece[1:], number) if whose[-1] == "space" else number
        words[number, :content] = own[base] * (1 - SHARE) ** 0.5 + shared * SHARE**0.5
        words[number, content:] = words[base, content:]
