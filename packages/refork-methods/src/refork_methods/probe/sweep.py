"""Where in the prompt, and at what depth, the outcome can be read: a probe at every anchor and layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np

from refork.errors import BadInput
from refork.policies.base import Policy
from refork.policies.whitebox import white_box
from refork.progress import Progress, silent
from refork.types import FloatArray, Json, token_array
from refork_methods.probe.area import Area
from refork_methods.probe.fit import FirstTokenProbe
from refork_methods.probe.hidden_states import Spot, read_states
from refork_methods.probe.on_tree import content_span, position_states
from refork_methods.probe.rows import Rows
from refork_methods.probe.shuffled import FEWEST_SHUFFLES

ANCHORS: Final = 20


@final
@dataclass(frozen=True, slots=True)
class PromptSweep:
    """Areas [layers][anchors + 1]; the last column is the first thinking token, where all rows have one.

    ``positions`` are the anchors' shares of the way through the user's words.
    """

    layers: tuple[int, ...]
    positions: tuple[float, ...]
    areas: tuple[tuple[Area, ...], ...]
    thinking: bool

    def to_json(self) -> Json:
        """Plain numbers."""
        return {
            "layers": list(self.layers),
            "places": list(self.positions),
            "thinking": self.thinking,
            "areas": [[one.to_json() for one in row] for row in self.areas],
        }


def sweep_layers(blocks: int) -> tuple[int, ...]:
    """The five depths {0, L/4, L/2, 3L/4, L} of a model of L blocks, those that differ.

    Source: arXiv:2606.25013.
    """
    return tuple(dict.fromkeys(blocks * part // 4 for part in range(5)))


def anchors(begin: int, end: int, count: int = ANCHORS) -> list[int]:
    """``count`` evenly spaced tokens of a span, the first and last among them; short spans repeat tokens."""
    if end <= begin:
        raise BadInput(f"tokens {begin} to {end} are no span", where="prompt sweep")
    return [int(place) for place in np.floor(np.linspace(begin, end - 1, count))]


def prompt_sweep(
    rows: Rows,
    policy: Policy,
    layers: Sequence[int],
    *,
    count: int = ANCHORS,
    probe: FirstTokenProbe | None = None,
    resamples: int = 100,
    folder: Path | None = None,
    progress: Progress = silent,
) -> PromptSweep:
    """AUROC beside AUROC* of a probe at ``count`` anchors of the user's words and the first thinking token.

    One rollout of each prompt is the row, as in the source; the ceiling comes from all of ``rows``. With
    ``folder`` the hidden states are kept there and not read again.

    Raises:
        CannotDo: the policy does not show hidden states, or the user's words cannot be found.
    Source: arXiv:2606.25013 (20 anchors and the first thinking token, five layers); the ceiling is ours.
    """
    reader = white_box(policy)
    refusals, rollouts = rows.counts()
    # A rollout that thinks is preferred, so that the last column has as many prompts as the others.
    one = rows.thoughtful().at_most(1)
    if len(one.rows) < (rollouts > 0).sum():
        one = rows.at_most(1)
    spots, back = [], []
    for row in one.rows:
        root = rows.cases[row.case].root
        tokens = rows.tree.path(root).tokens
        places, where = np.unique(anchors(*content_span(policy, tokens), count), return_inverse=True)
        spots.append(Spot(root.node.id, tokens, len(tokens), token_array(places), len(tokens) - root.keep))
        back.append(where)
    kept = None if folder is None else folder / "anchors"
    read = read_states(spots, reader, layers, kept, progress, "reading the prompts")
    # [layers, anchors, rows, width]; short words repeat a token.
    states = np.stack([found[:, where] for found, where in zip(read, back, strict=True)], axis=2)
    counts = (refusals[one.owners].tolist(), rollouts[one.owners].tolist())
    plan = probe or FirstTokenProbe()
    thinking = all(row.token is not None for row in one.rows)
    first = None
    if thinking:
        kept = None if folder is None else folder / "anchors-first-thinking"
        first = position_states(one, policy, "first_thinking", layers, progress, folder=kept)
    table: list[tuple[Area, ...]] = []
    for depth in range(len(layers)):
        found = []
        for place in range(count):
            progress("probing the prompts", depth * count + place, len(layers) * count)
            # One row per prompt, so every row may be a prompt of its own and no names are needed.
            fitted = plan.fit(states[depth, place], one.labels, counts=counts)
            found.append(fitted.area(shuffles=FEWEST_SHUFFLES, resamples=resamples))
        if first is not None:
            found.append(_first_area(plan, first[depth], one, rows, resamples))
        table.append(tuple(found))
    progress("probing the prompts", len(layers) * count, len(layers) * count)
    shares = tuple(float(v) for v in np.linspace(0, 1, count))
    return PromptSweep(tuple(layers), shares, tuple(table), thinking)


def _first_area(plan: FirstTokenProbe, states: FloatArray, one: Rows, rows: Rows, resamples: int) -> Area:
    """The first thinking token's area; its ceiling counts rollouts that share prompt and token."""
    probe = FirstTokenProbe("first_thinking", plan.layer, plan.recipe, plan.folds, plan.seed)
    fitted = probe.fit(
        states,
        one.labels,
        first_tokens=[row.opening for row in one.rows],
        counts=rows.sharing(one, "first_thinking"),
    )
    return fitted.area(shuffles=FEWEST_SHUFFLES, resamples=resamples)
