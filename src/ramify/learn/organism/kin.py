"""Words that belong together begin alike: their embeddings share directions before anything is learned.

A large model has learned from much text which tokens are of one kind. A small one that begins at random has
to find it out word by word, and meanwhile cannot say "the last path" or "the name of that row".
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

#: How much of the variance of a new embedding is shared with its kin.
SHARE = 0.35
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


def relate(words: Tensor, tokenizer: Any, content: int, spread: float) -> None:
    """Give the first ``content`` columns of the embeddings [V, width] their shared directions, in place.

    A piece with a leading space has the rest in common with the piece itself. Directions come from torch's
    present generator.
    """
    known = tokenizer.get_vocab()
    directions: dict[str, Tensor] = {}
    own = words[:, :content].clone()
    for piece, number in sorted(known.items(), key=lambda item: item[1]):
        whose = families(piece)
        for name in whose:
            if name not in directions:
                directions[name] = torch.randn(content) * spread
        shared = torch.stack([directions[name] for name in whose]).sum(0) / len(whose) ** 0.5
        base = known.get(piece[1:], number) if whose[-1] == "space" else number
        words[number, :content] = own[base] * (1 - SHARE) ** 0.5 + shared * SHARE**0.5
        words[number, content:] = words[base, content:]
