"""Drawing a block's tokens from left to right, each from the law that the tokens before it leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refork.policies.base import Sampling
from refork.sampling.distribution import restrict
from refork_methods.speculate.eagle import Chain as Steps
from refork_methods.speculate.laws import law_of, law_scores, pick

Ints = NDArray[np.int64]
Rule: TypeAlias = Literal["rejection", "coupled"]


class NextLogits(Protocol):
    """A drafter's logits of position k, given h there and the token before it."""

    def __call__(
        self, k: int, base: Tensor, hidden: Tensor, previous: Tensor, state: Any = None
    ) -> tuple[Tensor, Any]:
        """Logits [n, V] from base logits [n, V], h [n, d] and tokens [n]; a state for the next position."""
        ...


@final
@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Rows [n] that share their settings; ``whole``: they are all rows of the batch, in order."""

    settings: Sampling
    rows: Ints
    whole: bool

    def some(self, part: Ints) -> Group:
        """Some of its rows."""
        return Group(self.settings, self.rows[part], whole=False)

    def marks(self, offset: Ints, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
        """For tokens at these offsets in their turns: which are the first free one; what is forced, or -1."""
        forced, first = self.settings.forced, None
        if self.settings.banned_first:
            first = torch.from_numpy(offset == len(forced)).to(device)
        if not forced or int(offset.min(initial=len(forced))) >= len(forced):
            return first, None
        table = np.array([*forced, -1], dtype=np.int64)
        return first, torch.from_numpy(table[np.minimum(offset, len(forced))]).to(device)


def grouped(settings: Sequence[Sampling]) -> list[Group]:
    """The rows of a batch by their settings: equal ones must be one object."""
    one = settings[0]
    if all(item is one for item in settings):
        return [Group(one, np.arange(len(settings)), whole=True)]
    found: dict[int, list[int]] = {}
    for row, item in enumerate(settings):
        found.setdefault(id(item), []).append(row)
    return [Group(settings[rows[0]], np.array(rows, dtype=np.int64), whole=False) for rows in found.values()]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """What a drafter says before anything is drawn: ``anchors`` [n], h [n, g, d], base logits [n, g, V].

    ``state`` is where the chains of a drafter begin that reads its own steps, None for the others.
    """

    anchors: Tensor
    hidden: Tensor
    base: Tensor
    state: Steps | None = None

    def some(self, part: Ints) -> Block:
        """That of some rows."""
        index = torch.from_numpy(part).to(self.base.device)
        state = None if self.state is None else self.state.rows(index)
        return Block(self.anchors[index], self.hidden[index], self.base[index], state)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """What a group's drafts are drawn with: uniforms [n, g], or Gumbels [n, g, V]; None where greedy."""

    values: Tensor | None
    gumbel: bool

    def some(self, part: Ints) -> Noise:
        """That of some rows."""
        return Noise(_rows(self.values, part), self.gumbel)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Drafts of a group: tokens [n, g]; under the rejection rule scores [n, g, V] and chances [n, g].

    ``scores`` are float32 logits of the law that each token was drawn from, ``chances`` its probabilities.
    """

    tokens: Tensor
    scores: Tensor | None
    chances: Tensor | None

    def some(self, part: Ints) -> Chain:
        """That of some rows."""
        index = torch.from_numpy(part).to(self.tokens.device)
        return Chain(self.tokens[index], _rows(self.scores, part), _rows(self.chances, part))


def _rows(tensor: Tensor | None, part: Ints) -> Tensor | None:
    return None if tensor is None else tensor[torch.from_numpy(part).to(tensor.device)]


def draw_chain(
    step: NextLogits,
    block: Block,
    group: Group,
    said: Ints,
    noise: Noise,
    rule: Rule,
) -> Chain:
    """Draw g tokens after each anchor of a group's block.

    Under the coupled rule the tokens are guesses of what plain decoding will draw with the same noise; they
    need no exact law. Under the rejection rule each is drawn from its law in float64.
    """
    settings, base = group.settings, block.base
    exact = rule == "rejection" and settings.temperature != 0.0
    previous: Tensor = block.anchors
    state: Any = block.state
    tokens: list[Tensor] = []
    scores: list[Tensor] = []
    chances: list[Tensor] = []
    for k in range(base.shape[1]):
        logits, state = step(k, base[:, k], block.hidden[:, k], previous, state)
        first, forced = group.marks(said + k, base.device)
        if exact:
            kept = law_scores(logits, settings, first)
            law = law_of(kept)
            assert noise.values is not None
            previous = pick(law, noise.values[:, k])
            scores.append(kept)
            chances.append(law.gather(1, previous[:, None])[:, 0])
        else:
            previous = _guess(restrict(logits.float(), settings, first), k, noise)
        if forced is not None:
            previous = torch.where(forced >= 0, forced, previous)
            if exact:
                chances[-1] = torch.where(forced >= 0, 1.0, chances[-1])
        tokens.append(previous)
    found = torch.stack(tokens, dim=1)
    if not exact:
        return Chain(found, None, None)
    return Chain(found, torch.stack(scores, dim=1), torch.stack(chances, dim=1))


def _guess(scores: Tensor, k: int, noise: Noise) -> Tensor:
    """What these scores [n, V] give with the noise of plain decoding, up to rounding."""
    if noise.values is None:
        return scores.argmax(dim=-1)
    if noise.gumbel:
        return (scores + noise.values[:, k]).argmax(dim=-1)
    edges = torch.softmax(scores, dim=-1).cumsum(dim=-1)
    target = noise.values[:, k, None].to(edges.dtype) * edges[:, -1:]
    return (edges <= target).sum(dim=-1).clamp(max=scores.shape[1] - 1)
