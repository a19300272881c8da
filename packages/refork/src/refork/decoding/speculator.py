"""The seam of speculative decoding: who proposes tokens for a batch, and who says which are kept.

A speculator never changes what may be said, only how many passes it takes: the distribution of the tokens it
settles on is that of plain decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from refork.decoding.states import Layer
from refork.sampling.noise import NoiseKey
from refork.sampling.settings import Sampling
from refork.types import IntArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ActiveRows:
    """The living rows [n] of a batch before a pass, in the order of its rows.

    ``request_id`` names each request for as long as it lives. ``newest`` is the token that is fed next,
    ``position`` its absolute position, ``generated`` how many tokens the branch has emitted (the newest
    included), ``room`` how many more it may. ``settings`` and ``noise`` are each request's own.
    """

    request_id: Ints
    newest: Ints
    position: Ints
    generated: Ints
    room: Ints
    settings: Sequence[Sampling]
    noise: Sequence[NoiseKey]

    def __len__(self) -> int:
        return len(self.request_id)


@dataclass(frozen=True, slots=True, eq=False)
class Drafts:
    """Proposed tokens [n, g], of which the first ``lengths`` [n] (0 .. g) of each row are verified.

    ``distribution`` is whatever the speculator needs to settle them (the distribution they were drawn from).
    """

    tokens: Ints
    lengths: Ints
    distribution: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """What one branch says in one round: ``accepted`` drafts and one token more, k = accepted + 1 in all.

    ``logprobs`` and ``logprobs_t1`` [k] in nats are what plain decoding gives these tokens; ``entropy`` [k]
    where it is asked for. ``ties`` [k] is 1 where rounding might have chosen another token.
    """

    tokens: Ints
    accepted: int
    logprobs: NDArray[np.float32]
    logprobs_t1: NDArray[np.float32]
    entropy: NDArray[np.float32] | None = None
    ties: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


class Speculator(Protocol):
    """Drafts for a batch of branches, one round at a time.

    The decoder calls, for every round: :meth:`draft`; then it runs the model over each branch's newest
    token and the drafts to be verified; :meth:`settle`; :meth:`fed`. Where :meth:`draft` gives None it draws
    one token of each branch as usual and calls :meth:`fed` only. Hidden states are those of ``layers``
    (numbered as in :mod:`refork.decoding.states`).
    """

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Which hidden states of the model it reads; none: it reads none."""
        ...

    @property
    def window(self) -> int:
        """Of how many of a prompt's last tokens it reads them, at most."""
        ...

    def join(self, request_ids: Ints, prompts: Sequence[IntArray], states: Sequence[Tensor]) -> None:
        """New branches; ``states[i]`` [k, layers, width] are those of the last k tokens of ``prompts[i]``."""
        ...

    def leave(self, request_ids: Ints) -> None:
        """Branches that ended or were cancelled."""
        ...

    def draft(self, branches: ActiveRows) -> Drafts | None:
        """Proposals for every branch, or None where a plain step is better."""
        ...

    def settle(self, branches: ActiveRows, drafts: Drafts, logits: Tensor) -> list[Settled]:
        """What each branch says, given the pass's logits [sum of 1 + lengths, V], branch after branch."""
        ...

    def fed(self, branches: ActiveRows, spread: Ints, kept_tokens: Ints, states: Tensor) -> None:
        """Hidden states [sum of spread, layers, width] of the tokens just fed, branch after branch.

        ``spread`` [n] says how many tokens of each branch were fed; the first ``kept_tokens`` [n] of them
        are part of what it has said.
        """
        ...
