"""Hidden states of recorded rollouts at the probe's positions, and its scores written back to the tree."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ramify.core.errors import BadInput, CannotDo
from ramify.core.policy.base import Policy
from ramify.core.policy.inside import Layer, WhiteBox, white_box
from ramify.core.run.progress import Progress, silent
from ramify.core.tree.score import Producer, Score
from ramify.core.tree.tree import Tree
from ramify.core.types import FloatArray, IntArray, token_array
from ramify.examine.probe.cases import Position
from ramify.examine.probe.fit import FittedProbe
from ramify.examine.probe.rows import Rows
from ramify.examine.probe.separability import POSITIONS, Reading, resample_trace

#: Sequences that are read in one call.
_AT_ONCE: Final = 32
#: Name of a probe's score on a rollout: the chance of refusal it reads, out of fold.
SCORE: Final = "probe-refusal"


def position_states(
    rows: Rows,
    policy: Policy,
    position: Position = "last_prompt",
    layers: Sequence[Layer] = (-1,),
    progress: Progress = silent,
) -> FloatArray:
    """Hidden states [layers, rows, width] at a position; rollouts that share all before it are read once.

    Raises:
        CannotDo: the policy does not show hidden states.
        BadInput: a rollout has no first thinking token.
    """
    reader = white_box(policy)
    prompts = [rows.tree.path(case.root).tokens for case in rows.cases]
    wanted: dict[tuple[int, int | None], IntArray] = {}
    where: list[int] = []
    order: dict[tuple[int, int | None], int] = {}
    for row in rows.rows:
        key: tuple[int, int | None] = (row.case, None)
        tokens = prompts[row.case]
        if position == "first_thinking":
            if row.token is None or row.node.tokens is None:
                raise BadInput("this rollout has no thinking token", where=f"node {row.node.id[:12]}")
            key = (row.case, row.token)
            tokens = token_array(np.concatenate([tokens, row.node.tokens[: row.first + 1]]))
        wanted.setdefault(key, tokens)
        where.append(order.setdefault(key, len(order)))
    ends = [[len(tokens) - 1] for tokens in wanted.values()]
    asked = [len(prompts[case]) for case, _ in wanted]
    found = states_at(reader, list(wanted.values()), asked, ends, layers, progress, f"reading {position}")
    return np.stack([one[:, 0] for one in found], axis=1)[:, where]


def states_at(
    policy: WhiteBox,
    sequences: Sequence[IntArray],
    prompts: Sequence[int],
    places: Sequence[Sequence[int]],
    layers: Sequence[Layer],
    progress: Progress = silent,
    stage: str = "reading hidden states",
) -> list[FloatArray]:
    """States [layers, places, width] of each sequence; ``prompts`` is how much of it was asked, not drawn."""
    found: list[FloatArray] = []
    progress(stage, 0, len(sequences))
    for start in range(0, len(sequences), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        begin = [min(at) for at in places[part]]
        read = policy.hidden_states(sequences[part], layers, prompts[part], begin)
        found += [
            states[:, np.asarray(at) - first]
            for states, at, first in zip(read, places[part], begin, strict=True)
        ]
        progress(stage, len(found), len(sequences))
    return found


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
    """States along the thinking of each row, [rows, positions, width] float16; memory-mapped with ``folder``.

    Raises:
        CannotDo: the policy does not show hidden states.
        BadInput: a rollout without a thinking token.
    """
    reader = white_box(policy)
    prompts = [rows.tree.path(case.root).tokens for case in rows.cases]
    held: NDArray[Any] | None = None
    stage = "reading the thinking"
    progress(stage, 0, len(rows.rows))
    for start in range(0, len(rows.rows), _AT_ONCE):
        part = rows.rows[start : start + _AT_ONCE]
        if any(row.token is None or row.node.tokens is None for row in part):
            raise BadInput("a rollout has no thinking to read", where="separability")
        said = [row.node.tokens[: row.end] for row in part if row.node.tokens is not None]
        whole = [token_array(np.concatenate([prompts[r.case], s])) for r, s in zip(part, said, strict=True)]
        asked = [len(prompts[row.case]) for row in part]
        begin = [n + row.first for n, row in zip(asked, part, strict=True)]
        for offset, states in enumerate(reader.hidden_states(whole, [layer], asked, begin)):
            held = _room(len(rows.rows), positions, states.shape[2], folder) if held is None else held
            held[start + offset] = resample_trace(states[0], how, positions)
        progress(stage, min(start + _AT_ONCE, len(rows.rows)), len(rows.rows))
    assert held is not None
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
    config = probe.probe.to_json() | {"weights": policy.card.weights, "fitted_to": score, "fit": fit}
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
