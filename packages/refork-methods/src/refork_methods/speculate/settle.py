"""What the branches of one group say in a round, given the model's logits after each token that was fed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from refork.decoding.speculator import Settled
from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.sampling import distribution
from refork_methods.speculate.accept import couple, decided, keep_chance, leading, residual, within
from refork_methods.speculate.chain import Chain, Group, Noise
from refork_methods.speculate.chances import RoundChances
from refork_methods.speculate.laws import chance_of, draw_from, law_of, law_scores

Ints = NDArray[np.int64]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Where the logits of a group's branches lie: ``lengths`` [n] drafts each, after the newest token.

    ``row`` and ``place`` [N] of each logit row: whose it is, and how many drafts lie before it.
    """

    lengths: Ints
    start: Ints
    row: Ints
    place: Ints

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
        out[torch.from_numpy(self.row), torch.from_numpy(self.place)] = flat
        return out


@final
@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """A group in a round: how much each branch has ``said`` [n], its ``lengths`` [n] of drafts verified.

    ``logits`` [sum of 1 + lengths, V] are the model's, branch after branch.
    """

    group: Group
    said: Ints
    lengths: Ints
    logits: Tensor

    def marks(self, spread: Spread) -> tuple[Tensor | None, Tensor | None]:
        """:meth:`Group.marks` of the token that each logit row gives."""
        return self.group.marks(self.said[spread.row] + spread.place, self.logits.device)


def settle_coupled(turn: Turn, chain: Chain, noise: Noise) -> list[Settled]:
    """Settle by the model's own draws with the noise of plain decoding, that of offsets from ``said`` on.

    At temperature 0 the noise is not used: drafts are kept while they are the likeliest tokens.
    """
    spread = Spread.of(turn.lengths)
    first, forced = turn.marks(spread)
    values = turn.logits.new_zeros(0, dtype=torch.float64)
    if noise.values is not None:
        values = noise.values[torch.from_numpy(spread.row), torch.from_numpy(spread.place)]
    drawn = distribution.draw(turn.logits, turn.group.settings, values, first=first, forced=forced)
    tokens = drawn.tokens.cpu()
    own = spread.pad(tokens, chain.tokens.shape[1] + 1, -1)
    accepted, _ = couple(own, chain.tokens.cpu(), torch.from_numpy(turn.lengths))
    return _settled(spread, tokens.numpy(), accepted.numpy(), drawn, drawn.ties.cpu().numpy())


def settle_rejection(turn: Turn, chain: Chain, chances: RoundChances) -> list[Settled]:
    """Settle by exact rejection sampling; log-probs are those of plain decoding.

    Raises:
        BadInput: drafts that come without the law they were drawn from, or that it could not have given.
    """
    if chain.scores is None or chain.chances is None:
        raise BadInput("drafts without the law they were drawn from cannot be verified by rejection")
    spread, device = Spread.of(turn.lengths), turn.logits.device
    rows, g = chain.tokens.shape
    first, forced = turn.marks(spread)
    scores = law_scores(turn.logits, turn.group.settings, first)
    padded = F.pad(chain.tokens.cpu(), (0, 1))
    fed = padded[torch.from_numpy(spread.row), torch.from_numpy(spread.place)]
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
    minus = law_of(chain.scores[torch.arange(rows), accepted.clamp(max=g - 1).to(device)])
    refused = (accepted < lengths).to(device)
    left = residual(law_of(scores[there]), minus * refused[:, None])
    token, near = draw_from(left, torch.from_numpy(chances.residual.copy()).to(device))
    if forced is not None:
        token = torch.where(forced[there] >= 0, forced[there], token)
    fed[last] = token.cpu()
    ties = decided(accepted, u_accept, chance, near.cpu())
    return _given(turn, spread, fed, accepted.numpy(), first, ties)


def _given(
    turn: Turn, spread: Spread, tokens: Tensor, accepted: Ints, first: Tensor | None, ties: Tensor
) -> list[Settled]:
    """Answers with the log-probs that plain decoding gives the first accepted + 1 tokens of each branch."""
    rows = torch.from_numpy(np.flatnonzero(spread.place <= accepted[spread.row]))
    index = rows.to(turn.logits.device)
    some = tokens[rows]
    drawn = distribution.draw(
        turn.logits[index],
        _inverse(turn.group),
        torch.zeros(len(rows), dtype=torch.float64, device=turn.logits.device),
        first=None if first is None else first[index],
        forced=some.to(turn.logits.device),
    )
    said = Spread.of(accepted)
    flat = ties[torch.from_numpy(said.row), torch.from_numpy(said.place)].numpy()
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
