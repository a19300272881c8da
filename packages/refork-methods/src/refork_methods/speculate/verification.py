"""One verification of a batch of blocks: drawing them left to right, and what each branch outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from refork.decoding.speculator import Settled
from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.sampling import distribution
from refork.sampling.distribution import restrict
from refork_methods.speculate.accept import (
    RoundChances,
    chance_of,
    couple,
    decided,
    distribution_of,
    distribution_scores,
    draw_from,
    keep_chance,
    leading,
    pick,
    residual,
    within,
)
from refork_methods.speculate.eagle import Chain as Steps

# Drawing a block's tokens from left to right, each from the distribution that the tokens before it leave.

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

    ``scores`` are float32 logits of the distribution that each token was drawn from, ``chances`` its
    probabilities.
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
    generated: Ints,
    noise: Noise,
    rule: Rule,
) -> Chain:
    """Draw g tokens after each anchor of a group's block.

    Under the coupled rule the tokens are guesses of what plain decoding will draw with the same noise; they
    need no exact distribution. Under the rejection rule each is drawn from its distribution in float64.
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
        first, forced = group.marks(generated + k, base.device)
        if exact:
            kept = distribution_scores(logits, settings, first)
            law = distribution_of(kept)
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
    # In float32 the target can be rounded up to the last edge, behind which there is no token.
    return (edges <= target).sum(dim=-1).clamp(max=scores.shape[1] - 1)


# What the branches of one group say in a round, given the model's logits after each token that was fed.


@final
@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Where the logits of a group's branches lie: ``lengths`` [n] drafts each, after the newest token.

    ``row`` and ``position`` [N] of each logit row: whose it is, and how many drafts lie before it.
    """

    lengths: Ints
    start: Ints
    row: Ints
    position: Ints

    @classmethod
    def of(cls, lengths: Ints) -> Spread:
        """The spread of branches one after the other."""
        counts = lengths + 1
        end = np.cumsum(counts)
        start = end - counts
        row = np.repeat(np.arange(len(lengths)), counts)
        return cls(lengths, start, row, np.arange(int(end[-1])) - start[row])

    def of_rows(self, rows: Ints) -> Tensor:
        """Where the logits of some branches (ascending) lie."""
        return torch.from_numpy(np.flatnonzero(np.isin(self.row, rows)))

    def pad(self, flat: Tensor, width: int, fill: float) -> Tensor:
        """Flat [N] as [n, width], the rest filled."""
        out = flat.new_full((len(self.lengths), width), fill)
        out[torch.from_numpy(self.row), torch.from_numpy(self.position)] = flat
        return out


@final
@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """A group in a round: how much each branch has ``generated`` [n], its ``lengths`` [n] of drafts verified.

    ``logits`` [sum of 1 + lengths, V] are the model's, branch after branch.
    """

    group: Group
    generated: Ints
    lengths: Ints
    logits: Tensor

    def marks(self, spread: Spread) -> tuple[Tensor | None, Tensor | None]:
        """:meth:`Group.marks` of the token that each logit row gives."""
        return self.group.marks(self.generated[spread.row] + spread.position, self.logits.device)


def settle_coupled(turn: Turn, chain: Chain, noise: Noise) -> list[Settled]:
    """Settle by the model's own draws with the noise of plain decoding, of offsets from ``generated`` on.

    At temperature 0 the noise is not used: drafts are kept while they are the likeliest tokens.
    """
    spread = Spread.of(turn.lengths)
    first, forced = turn.marks(spread)
    values = turn.logits.new_zeros(0, dtype=torch.float64)
    if noise.values is not None:
        values = noise.values[torch.from_numpy(spread.row), torch.from_numpy(spread.position)]
    drawn = distribution.draw(turn.logits, turn.group.settings, values, first=first, forced=forced)
    tokens = drawn.tokens.cpu()
    own = spread.pad(tokens, chain.tokens.shape[1] + 1, -1)
    accepted, _ = couple(own, chain.tokens.cpu(), torch.from_numpy(turn.lengths))
    return _settled(spread, tokens.numpy(), accepted.numpy(), drawn, drawn.ties.cpu().numpy())


def settle_rejection(turn: Turn, chain: Chain, chances: RoundChances) -> list[Settled]:
    """Settle by exact rejection sampling; log-probs are those of plain decoding.

    Raises:
        BadInput: drafts that come without the distribution they were drawn from, or that it could not have
        given.
    """
    if chain.scores is None or chain.chances is None:
        raise BadInput("drafts without the distribution they were drawn from cannot be verified by rejection")
    spread, device = Spread.of(turn.lengths), turn.logits.device
    rows, g = chain.tokens.shape
    first, forced = turn.marks(spread)
    scores = distribution_scores(turn.logits, turn.group.settings, first)
    padded = F.pad(chain.tokens.cpu(), (0, 1))
    fed = padded[torch.from_numpy(spread.row), torch.from_numpy(spread.position)]
    p = spread.pad(chance_of(scores, fed.to(device)).cpu(), g + 1, 0.0)[:, :g]
    lengths = torch.from_numpy(turn.lengths)
    verified = within(lengths, g)
    chance = keep_chance(p, torch.where(verified, chain.chances.cpu(), 1.0))
    if forced is not None:
        chance = torch.where(spread.pad(forced.cpu(), g + 1, -1)[:, :g] >= 0, 1.0, chance)
    u_accept = torch.from_numpy(np.ascontiguousarray(chances.accept[:, :g]))
    accepted = leading((u_accept < chance) & verified)
    last = torch.from_numpy(spread.start) + accepted
    there = last.to(device)
    # Where all g are kept there is no draft to read: the clamp keeps the index inside, ``refused`` drops it.
    minus = distribution_of(chain.scores[torch.arange(rows), accepted.clamp(max=g - 1).to(device)])
    refused = (accepted < lengths).to(device)
    left = residual(distribution_of(scores[there]), minus * refused[:, None])
    token, near = draw_from(left, torch.from_numpy(chances.residual.copy()).to(device))
    if forced is not None:
        token = torch.where(forced[there] >= 0, forced[there], token)
    # The refused draft makes way for what was drawn in its place; what lies behind it is not said.
    fed[last] = token.cpu()
    ties = decided(accepted, u_accept, chance, near.cpu())
    return _given(turn, spread, fed, accepted.numpy(), first, ties)


def _given(
    turn: Turn, spread: Spread, tokens: Tensor, accepted: Ints, first: Tensor | None, ties: Tensor
) -> list[Settled]:
    """Answers with the log-probs that plain decoding gives the first accepted + 1 tokens of each branch."""
    rows = torch.from_numpy(np.flatnonzero(spread.position <= accepted[spread.row]))
    index = rows.to(turn.logits.device)
    some = tokens[rows]
    drawn = distribution.draw(
        turn.logits[index],
        _inverse(turn.group),
        # Every token is forced, so no uniform is read: the log-probs are what is wanted.
        torch.zeros(len(rows), dtype=torch.float64, device=turn.logits.device),
        first=None if first is None else first[index],
        forced=some.to(turn.logits.device),
    )
    said = Spread.of(accepted)
    flat = ties[torch.from_numpy(said.row), torch.from_numpy(said.position)].numpy()
    return _settled(said, some.numpy(), accepted, drawn, flat)


def _inverse(group: Group) -> Sampling:
    """The group's settings, for log-probs of given tokens: how they were drawn does not matter."""
    settings = group.settings
    return settings if settings.coupling == "inverse" else replace(settings, coupling="inverse")


def _settled(
    spread: Spread, tokens: Ints, accepted: Ints, drawn: distribution.Drawn, ties: NDArray[np.bool_]
) -> list[Settled]:
    """One answer per branch, from flat arrays [N] of which the first accepted + 1 of each branch are said."""
    logprobs, logprobs_t1 = drawn.logprobs.cpu().numpy(), drawn.logprobs_t1.cpu().numpy()
    entropy = None if drawn.entropy is None else drawn.entropy.cpu().numpy()
    marks = ties.astype(np.int64)
    found = []
    for begin, count in zip(spread.start.tolist(), accepted.tolist(), strict=True):
        part = slice(begin, begin + count + 1)
        found.append(
            Settled(
                tokens[part],
                count,
                logprobs[part],
                logprobs_t1[part],
                None if entropy is None else entropy[part],
                marks[part],
            )
        )
    return found
