"""Hidden states at chosen tokens of many sequences; with a folder, read once and from its shards after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from refork.decoding.states import Layer
from refork.errors import BadInput
from refork.policies.whitebox import WhiteBox
from refork.progress import Progress, silent
from refork.types import FloatArray, IntArray
from refork_methods.activations import Activations, ActivationStore

#: Sequences that are read in one call.
_AT_ONCE: Final = 32


@final
@dataclass(frozen=True, slots=True, eq=False)
class Spot:
    """What is read of one sequence: its ids, how many of them were asked, the places [m] (rising).

    ``node`` is whose tokens they are, ``offset`` the place of that node's first token.
    """

    node: str
    tokens: IntArray
    asked: int
    positions: IntArray
    offset: int


def read_states(
    spots: Sequence[Spot],
    policy: WhiteBox,
    layers: Sequence[Layer],
    folder: Path | None = None,
    progress: Progress = silent,
    stage: str = "reading hidden states",
) -> Iterator[FloatArray]:
    """States [layers, places, width] of each spot, in order. Spots have different nodes.

    With ``folder`` they are kept there as float32, so a run that was stopped goes on where it stopped and
    the next one runs no model.

    Raises: BadInput where the folder holds other layers, another policy's states or other tokens of a node.
    """
    if folder is None:
        progress(stage, 0, len(spots))
        for start in range(0, len(spots), _AT_ONCE):
            part = spots[start : start + _AT_ONCE]
            yield from _read(part, policy, layers)
            progress(stage, start + len(part), len(spots))
        return
    store = ActivationStore.create(folder, layers, policy.card, dtype="float32")
    _fill(store, spots, policy, progress, stage)
    yield from _stored_states(store, spots)


def _read(spots: Sequence[Spot], policy: WhiteBox, layers: Sequence[Layer]) -> Iterator[FloatArray]:
    # Places rise, so no state before the first one has to be kept.
    begin = [int(spot.positions[0]) for spot in spots]
    asked = [spot.asked for spot in spots]
    found = policy.hidden_states([spot.tokens for spot in spots], layers, asked, begin)
    for spot, first, states in zip(spots, begin, found, strict=True):
        yield states[:, spot.positions - first]


def _fill(
    store: ActivationStore, spots: Sequence[Spot], policy: WhiteBox, progress: Progress, stage: str
) -> None:
    done = store.done()
    missing = [spot for spot in spots if spot.node not in done]
    told = len(spots) - len(missing)
    progress(stage, told, len(spots))
    try:
        for start in range(0, len(missing), _AT_ONCE):
            part = missing[start : start + _AT_ONCE]
            store.append(
                Activations(s.node, s.positions - s.offset, s.tokens[s.positions], states.swapaxes(0, 1))
                for s, states in zip(part, _read(part, policy, store.layers), strict=True)
            )
            told += len(part)
            progress(stage, told, len(spots))
    finally:
        # Also where reading fails: what was read until then is not read again.
        store.flush()


def _stored_states(store: ActivationStore, spots: Sequence[Spot]) -> Iterator[FloatArray]:
    rows: dict[str, list[int]] = {}
    for row, node in enumerate(store.nodes):
        rows.setdefault(node, []).append(row)
    index, tokens = store.index, store.tokens
    for spot in spots:
        mine = np.array(rows[spot.node])
        same = np.array_equal(index[mine], spot.positions - spot.offset)
        if not same or not np.array_equal(tokens[mine], spot.tokens[spot.positions]):
            raise BadInput(
                f"other tokens of node {spot.node[:12]} are kept here",
                where=str(store.folder),
                hint="name another folder, or remove this one",
            )
        yield np.stack([store.states(layer, mine) for layer in store.layers])
