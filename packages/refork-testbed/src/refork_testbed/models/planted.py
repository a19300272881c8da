"""A new model whose first heads look back and match from the start, so that it copies before it has learned.

Attention over small contexts is learned in two steps: heads that see the tokens before, and heads that find
where these stood before and copy what followed. Both take a model of this width thousands of steps to find.
Here they are planted as a beginning; all weights are trained on.

Source: the two kinds of heads are those of arXiv 2209.11895; initial weights that imitate trained ones are
the idea of arXiv 2305.09828; this construction is ours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from refork.errors import BadInput

#: How fast positions turn: slow enough that most pairs of a head compare contents at any distance.
THETA = 1e6
#: Pairs slower than SLOW (radians per token) compare contents, those faster than FAST find distances; those
#: between tell newer from older.
SLOW, FAST = 0.006, 0.1
#: How many tokens before each one are kept beside it.
SLOTS = 4
#: What matching heads compare: so many tokens before the present one with so many before each other one.
#: One goes on where the last three tokens stood; one leaves the present token out, so that it goes on behind
#: another sign; one steps over two tokens, so that it copies lines without the names that stand before them;
#: and one goes on where the present token itself stood last, which tells whether that was just before.
PLANTED = (((0, 1), (1, 2), (2, 3)), ((1, 2), (2, 3)), ((0, 3), (1, 4)), ((0, 1),))
#: How much a perfect match counts before the softmax.
SHARP = 30.0
#: How strongly what was found is added, in embeddings.
COPIES = 10.0
#: How much the right distance counts in heads that look back.
NEAR = 3.0
#: How much later tokens are preferred to earlier ones: by heads that match several tokens, by the one that
#: matches one, and by half of those above them.
NEWER, LAST, ABOVE = 0.7, 4.0, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A Llama-type transformer with tied embeddings; ``spread`` is the deviation of its initial weights."""

    layers: int
    width: int
    heads: int
    hidden: int
    context: int
    spread: float = 0.05


def planted_model(shape: Planted, tokenizer: Any) -> Any:
    """A new model with weights from torch's present generator and planted heads in its first two layers.

    Raises:
        BadInput: fewer than two layers, or heads too narrow to hold what they compare.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=shape.width,
            intermediate_size=shape.hidden,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.heads,
            max_position_embeddings=shape.context,
            tie_word_embeddings=True,
            initializer_range=shape.spread,
            rope_theta=THETA,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    if shape.layers < 2:
        raise BadInput("planted heads need two layers", where="planted model")
    with torch.no_grad():
        _plant(model, shape)
        relate(model.model.embed_tokens.weight, tokenizer, shape.width // 2, shape.spread)
    return model


def _plant(model: Any, shape: Planted) -> None:
    """Contents lie in the first half of the width; behind it are slots for the tokens 1, 2, .. before."""
    width, head = shape.width, shape.width // shape.heads
    half, content = head // 2, width // 2
    turns = torch.tensor([THETA ** (-i / half) for i in range(half)])
    slow = [i for i in range(half) if turns[i] < SLOW]
    compared = slow + [i + half for i in slow]
    slots = min(shape.heads, SLOTS)
    slot = min(len(compared), (width - content - 1) // slots)
    if slot < 8:
        raise BadInput("the heads are too narrow to plant", where="planted model")
    words = model.model.embed_tokens.weight
    words.normal_(0, shape.spread)
    words[:, content:] *= 0.1
    # One direction is the same in every token: what heads use that look for a distance.
    words[:, width - 1] = 2 * shape.spread
    view = torch.randn(slot, content) / content**0.5
    places = [content + number * slot for number in range(slots)]
    model.model.layers[0].self_attn.o_proj.weight[:, slots * head :] *= 0.05
    for number, begin in enumerate(places):
        _look_back(model.model.layers[0].self_attn, number, head, turns, view, begin, shape.spread)
    for number in range(shape.heads):
        _match(
            model.model.layers[1].self_attn, number, head, compared, view, places,
            COPIES * shape.spread / shape.heads**0.5,
        )  # fmt: skip
        alone = len(PLANTED[number % len(PLANTED)]) == 1
        _prefer_newer(model.model.layers[1].self_attn, number, head, turns, LAST if alone else NEWER)
    for layer in model.model.layers:
        # Else random output would drown the contents.
        layer.mlp.down_proj.weight *= 0.05
    for layer in model.model.layers[2:]:
        layer.self_attn.o_proj.weight *= 0.1
        for number in range(0, shape.heads, 2):
            _prefer_newer(layer.self_attn, number, head, turns, ABOVE)


def _turn(rows: int, columns: int) -> Tensor:
    """Random orthonormal columns."""
    found: Tensor = torch.linalg.qr(torch.randn(rows, columns))[0]
    return found


def _noise(rows: int, columns: int, spread: float) -> Tensor:
    return torch.randn(rows, columns) * spread


def _look_back(
    attention: Any, number: int, head: int, turns: Tensor, view: Tensor, begin: int, spread: float
) -> None:
    """Head ``number`` sees the token ``number`` + 1 before and writes its view of it into a slot."""
    half, width = head // 2, attention.q_proj.weight.shape[1]
    slot, content = view.shape
    rows = slice(number * head, (number + 1) * head)
    query, key, value = (_noise(head, width, s) for s in (0.01, 0.01, 0.02))
    for i in range(half):
        if turns[i] > FAST:
            angle = (number + 1) * turns[i]
            query[i, width - 1] = NEAR * torch.cos(angle)
            query[i + half, width - 1] = -NEAR * torch.sin(angle)
            key[i, width - 1] = NEAR
    value[:slot] = 0
    value[:slot, :content] = view
    out = _noise(width, head, 0.002)
    out[begin : begin + slot, :slot] += torch.eye(slot) * spread
    attention.q_proj.weight[rows], attention.k_proj.weight[rows] = query, key
    attention.v_proj.weight[rows], attention.o_proj.weight[:, rows] = value, out


def _prefer_newer(attention: Any, number: int, head: int, turns: Tensor, weight: float) -> None:
    """Head ``number`` gives more to what is near, by pairs too fast for contents and too slow for places."""
    half, width = head // 2, attention.q_proj.weight.shape[1]
    between = [i for i in range(half) if SLOW <= turns[i] <= FAST]
    if not between:
        return
    size = (weight * head**0.5 / len(between)) ** 0.5
    for i in between:
        attention.q_proj.weight[number * head + i, width - 1] = size
        attention.k_proj.weight[number * head + i, width - 1] = size


def _match(
    attention: Any,
    number: int,
    head: int,
    compared: list[int],
    view: Tensor,
    places: list[int],
    copies: float,
) -> None:
    """Head ``number`` finds where the last tokens stood before, and adds what followed.

    Each pair of :data:`PLANTED` is compared in dimensions of its own: the token so many before the present
    one with the token so many before each other one, which stands in one of its ``places``.
    """
    width = attention.q_proj.weight.shape[1]
    slot, content = view.shape
    rows = slice(number * head, (number + 1) * head)
    query, key, value = (_noise(head, width, 0.01) for _ in range(3))
    pairs = [pair for pair in PLANTED[number % len(PLANTED)] if pair[1] <= len(places)]
    size = len(compared) // len(pairs)
    sharp = (SHARP * head**0.5 / size / len(pairs)) ** 0.5
    for block, (mine, other) in enumerate(pairs):
        dims = compared[block :: len(pairs)][:size]
        turn = _turn(slot, size).T * (slot / size) ** 0.5 if size < slot else _turn(size, slot)
        key[dims, places[other - 1] : places[other - 1] + slot] = turn * sharp
        if mine == 0:
            query[dims, :content] = turn @ view * sharp
        else:
            query[dims, places[mine - 1] : places[mine - 1] + slot] = turn * sharp
    carried = torch.linalg.qr(torch.randn(content, head))[0].T
    value[:, :content] = carried
    out = _noise(width, head, 0.002)
    out[:content] = carried.T * copies
    attention.q_proj.weight[rows], attention.k_proj.weight[rows] = query, key
    attention.v_proj.weight[rows], attention.o_proj.weight[:, rows] = value, out


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
    # A copy: pieces with a leading space read the first values of pieces that were rewritten before them.
    own = words[:, :content].clone()
    # By number: a vocabulary comes in no fixed order, and directions are drawn as their names first come up.
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
