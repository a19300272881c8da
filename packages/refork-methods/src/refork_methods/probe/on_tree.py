"""Hidden states of recorded rollouts at the probe's positions, and its scores written back to the tree."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from refork.decoding.states import Layer
from refork.errors import BadInput, CannotDo
from refork.plain import to_json
from refork.policies.base import Policy
from refork.policies.whitebox import white_box
from refork.progress import Progress, silent
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork.types import FloatArray, IntArray, token_array
from refork_methods.probe.cases import Position
from refork_methods.probe.fit import FittedProbe
from refork_methods.probe.hidden_states import Spot, read_states
from refork_methods.probe.rows import Rows
from refork_methods.probe.separability import POSITIONS, Reading, resample_trace

#: Name of a probe's score on a rollout: the chance of refusal it reads, out of fold.
SCORE: Final = "probe-refusal"


def position_states(
    rows: Rows,
    policy: Policy,
    position: Position = "last_prompt",
    layers: Sequence[Layer] = (-1,),
    progress: Progress = silent,
    *,
    folder: Path | None = None,
) -> FloatArray:
    """Hidden states [layers, rows, width] at a position; rollouts that share all before it are read once.

    With ``folder`` they are kept there and not read again.

    Raises:
        CannotDo: the policy does not show hidden states.
        BadInput: a rollout has no first thinking token, or the folder holds other states.
    """
    reader = white_box(policy)
    prompts = [rows.tree.path(case.root).tokens for case in rows.cases]
    spots: dict[tuple[int, bytes | None], Spot] = {}
    where: list[int] = []
    order: dict[tuple[int, bytes | None], int] = {}
    for row in rows.rows:
        key: tuple[int, bytes | None] = (row.case, None)
        asked, root = len(prompts[row.case]), rows.cases[row.case].root
        spot = Spot(root.node.id, prompts[row.case], asked, token_array([asked - 1]), asked - root.keep)
        if position == "first_thinking":
            if row.token is None or row.node.tokens is None:
                raise BadInput("this rollout has no thinking token", where=f"node {row.node.id[:12]}")
            key = (row.case, row.opening)
            tokens = token_array(np.concatenate([prompts[row.case], row.node.tokens[: row.first + 1]]))
            spot = Spot(row.node.id, tokens, asked, token_array([len(tokens) - 1]), asked)
        spots.setdefault(key, spot)
        where.append(order.setdefault(key, len(order)))
    found = read_states(list(spots.values()), reader, layers, folder, progress, f"reading {position}")
    return np.stack([one[:, 0] for one in found], axis=1)[:, where]


def thinking_states(
    rows: Rows,
    policy: Policy,
    layer: Layer = -1,
    how: Reading = "hopping",
    *,
    positions: int = POSITIONS,
    folder: Path | None = None,
    progress: Progress = silent,
) -> NDArray[Any]:
    """States along the thinking of each row, [rows, positions, width] float16.

    With ``folder`` they are memory-mapped from ``thinking.npy`` there, and the tokens' own states are kept in
    ``thinking-HOW`` beside it and not read again: ``hopping`` keeps the tokens it takes, ``pooling`` all.

    Raises:
        CannotDo: the policy does not show hidden states.
        BadInput: a rollout without a thinking token, or the folder holds other states.
    """
    reader = white_box(policy)
    prompts = [rows.tree.path(case.root).tokens for case in rows.cases]
    spots, chosen = [], []
    for row in rows.rows:
        if row.token is None or row.node.tokens is None:
            raise BadInput("a rollout has no thinking to read", where="separability")
        asked, every = len(prompts[row.case]), np.arange(row.end - row.first)
        taken = resample_trace(every[:, None], how, positions)[:, 0] if how == "hopping" else every
        # A trace shorter than the places repeats tokens; each is read and stored once.
        kept, back = np.unique(taken, return_inverse=True)
        tokens = token_array(np.concatenate([prompts[row.case], row.node.tokens[: row.end]]))
        spots.append(Spot(row.node.id, tokens, asked, token_array(kept + asked + row.first), asked))
        chosen.append(back)
    place = None if folder is None else folder / f"thinking-{how}"
    held: NDArray[Any] | None = None
    read = read_states(spots, reader, [layer], place, progress, "reading the thinking")
    for number, (states, back) in enumerate(zip(read, chosen, strict=True)):
        # Only the first states that come tell how wide they are.
        held = _room(len(rows.rows), positions, states.shape[2], folder) if held is None else held
        trace = states[0][back]
        held[number] = trace if how == "hopping" else resample_trace(trace, how, positions)
    if held is None:
        raise BadInput("there is no thinking to read", where="separability")
    return held


def _room(rows: int, positions: int, width: int, folder: Path | None) -> NDArray[Any]:
    shape = (rows, positions, width)
    if folder is None:
        return np.empty(shape, dtype=np.float16)
    return np.lib.format.open_memmap(folder / "thinking.npy", mode="w+", dtype=np.float16, shape=shape)


def content_span(policy: Policy, tokens: IntArray) -> tuple[int, int]:
    """Where the user's words lie in a rendered one-message prompt: tokens ``begin`` to ``end``.

    Found against the same template with nothing in it, so any template will do.

    Raises:
        CannotDo: the two have no common frame, or nothing between.
    """
    empty = policy.render([], token_array([]), [{"role": "user", "content": ""}]).tokens
    most = min(len(empty), len(tokens))
    differ = np.flatnonzero(empty[:most] != tokens[:most])
    begin = int(differ[0]) if len(differ) else most
    back = np.flatnonzero(empty[::-1][: most - begin] != tokens[::-1][: most - begin])
    end = len(tokens) - (int(back[0]) if len(back) else most - begin)
    if end <= begin:
        raise CannotDo("the user's words cannot be found in the rendered prompt", where="prompt sweep")
    return begin, end


def producer_of(probe: FittedProbe, policy: Policy, score: str) -> Producer:
    """Who gives the probe's scores: its settings, the model it read, the score it was fitted to, the fit."""
    # More rollouts make another fit, whose scores must not contradict those of the last one.
    fit = hashlib.blake2b(probe.linear.weight.tobytes() + probe.scores.tobytes(), digest_size=8).hexdigest()
    config = to_json(probe.probe) | {"weights": policy.card.weights, "fitted_to": score, "fit": fit}
    return Producer("first-token-probe", "1", config)


def write_scores(tree: Tree, rows: Rows, probe: FittedProbe, policy: Policy, score: str = "refusal") -> int:
    """Write each rollout's out-of-fold chance of refusal as the score ``probe-refusal``; how many are new.

    Each is by a probe that has not seen the rollout's prompt. Classes were balanced in fitting, so it is a
    chance at even odds. Another fit is another producer.
    """
    from scipy.special import expit

    producer = tree.add_producer(producer_of(probe, policy, score))
    values = expit(probe.scores)
    return tree.add_scores(
        Score(row.node.id, SCORE, float(value), producer)
        for row, value in zip(rows.rows, values, strict=True)
    )
