"""The small heads of a drafter: how drafted tokens bias those after them, and how sure it is of each.

Source: arXiv:2607.05147. The gated form and the bias of the confidence head are in its code, not its text.
"""

from __future__ import annotations

from typing import cast, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from refork_methods.speculate.config import DraftConfig, HeadKind


@final
class SequentialHead(nn.Module):
    """A bias of rank r on the logits of each position, from the token before it.

    ``markov``: B_k = W1[x_{k-1}] W2. ``gated``: W1[x_{k-1}] is first multiplied by
    sigmoid(G [h_k; W1[x_{k-1}]]). ``rnn``: a state runs through the block, z = [s; W1[x_{k-1}]; h_k], one
    linear map to (gate, candidate, out), s <- sigmoid(gate) s + (1 - sigmoid(gate)) tanh(candidate),
    B_k = tanh(out) W2, and s starts at 0.
    """

    def __init__(self, kind: HeadKind, rank: int, vocabulary: int, hidden: int) -> None:
        super().__init__()
        self.kind, self.rank = kind, rank
        self.markov_w1 = nn.Embedding(vocabulary, rank)
        self.markov_w2 = nn.Linear(rank, vocabulary, bias=False)
        if kind == "gated":
            self.gate_proj = nn.Linear(hidden + rank, rank)
        if kind == "rnn":
            self.joint_proj = nn.Linear(2 * rank + hidden, 3 * rank)

    def embed(self, previous: Int[Tensor, "*n"]) -> Float[Tensor, "*n r"]:
        """W1 of the tokens before."""
        return cast("Tensor", self.markov_w1(previous))

    def step(
        self,
        k: int,
        previous: Int[Tensor, "*n"],
        hidden: Float[Tensor, "*n d"],
        state: Float[Tensor, "*n r"] | None = None,
    ) -> tuple[Float[Tensor, "*n v"], Float[Tensor, "*n r"] | None]:
        """The bias of position ``k`` (from 0) given the token before it and h_k, and the state for k + 1."""
        factor, state = self.factor(k, self.embed(previous), hidden, state)
        return self.bias(factor), state

    def factor(
        self,
        k: int,
        embedded: Float[Tensor, "*n r"],
        hidden: Float[Tensor, "*n d"],
        state: Float[Tensor, "*n r"] | None,
    ) -> tuple[Float[Tensor, "*n r"], Float[Tensor, "*n r"] | None]:
        """What W2 maps to the bias of position ``k``, and the state for k + 1 (None where there is none)."""
        hidden = hidden.to(embedded.dtype)
        if self.kind == "gated":
            return torch.sigmoid(self.gate_proj(torch.cat([hidden, embedded], -1))) * embedded, None
        if self.kind != "rnn":
            return embedded, None
        before = torch.zeros_like(embedded) if k == 0 or state is None else state
        gate, new, out = self.joint_proj(torch.cat([before, embedded, hidden], -1)).chunk(3, -1)
        keep = torch.sigmoid(gate)
        return torch.tanh(out), keep * before + (1 - keep) * torch.tanh(new)

    def factors(
        self, previous: Int[Tensor, "*n g"], hidden: Float[Tensor, "*n g d"]
    ) -> Float[Tensor, "*n g r"]:
        """:meth:`factor` of all positions of blocks whose tokens before are known."""
        embedded = self.embed(previous)
        if self.kind != "rnn":
            return self.factor(0, embedded, hidden, None)[0]
        state, found = None, []
        for k in range(previous.shape[-1]):
            out, state = self.factor(k, embedded[..., k, :], hidden[..., k, :], state)
            found.append(out)
        return torch.stack(found, -2)

    def bias(self, factor: Float[Tensor, "*n r"]) -> Float[Tensor, "*n v"]:
        """Logits that are added: the factor times W2."""
        return cast("Tensor", self.markov_w2(factor))


@final
class ConfidenceHead(nn.Module):
    """The logit of the chance that a position's token survives, given that those before it did."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.proj = nn.Linear(inputs, 1)

    def forward(self, features: Float[Tensor, "*n f"]) -> Float[Tensor, "*n"]:
        """Logits of features (h_k, and W1 of the token before where it is read)."""
        return cast("Tensor", self.proj(features)).squeeze(-1)


def make_head(config: DraftConfig) -> SequentialHead | None:
    """The sequential head of a config, None for a parallel drafter."""
    if not config.sequential:
        return None
    return SequentialHead(config.head, config.rank, config.vocabulary, config.hidden)


def make_confidence(config: DraftConfig) -> ConfidenceHead | None:
    """The confidence head of a config, None where it has none."""
    if not config.confidence:
        return None
    return ConfidenceHead(config.hidden + (config.rank if config.confidence_reads_token else 0))
