"""The white-box seam: a policy on this machine whose hidden states can be read and changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from refork.decoding.states import Capture, Edit, Layer, States
from refork.errors import CannotDo
from refork.policies.base import Continuation, Policy, PolicyCard, Request
from refork.sampling.settings import Sampling
from refork.types import FloatArray, IntArray


@runtime_checkable
class WhiteBox(Protocol):
    """A policy on this machine whose hidden states can be read and changed."""

    @property
    def card(self) -> PolicyCard:
        """Name, digests and capabilities."""
        ...

    def encode(self, text: str) -> IntArray:
        """Token ids of plain text."""
        ...

    def sample_captured(
        self, requests: Sequence[Request], settings: Sampling, capture: Capture
    ) -> Iterator[tuple[Continuation, States]]:
        """Continuations with the hidden states of the pass that drew them."""
        ...

    def logprobs(
        self, sequences: Sequence[IntArray], prompts: Sequence[int] | None = None
    ) -> list[FloatArray]:
        """Log-prob of every token but the first given those before it, temperature 1: [n - 1] each."""
        ...

    def hidden_states(
        self,
        sequences: Sequence[IntArray],
        layers: Sequence[Layer],
        prompts: Sequence[int] | None = None,
        starts: Sequence[int] | None = None,
    ) -> list[FloatArray]:
        """Hidden states [layers, n - start, width] of given tokens."""
        ...

    def edited(self, *edits: Edit) -> WhiteBox:
        """A view of the policy with hidden states changed as it runs."""
        ...


def white_box(policy: Any) -> WhiteBox:
    """The policy, if its inside can be seen.

    Raises:
        CannotDo: it cannot.
    """
    if isinstance(policy, WhiteBox) and policy.card.can("whitebox"):
        return policy
    card = getattr(policy, "card", None)
    raise CannotDo(
        f"hidden states need a local model; {getattr(card, 'name', type(policy).__name__)!r} is "
        f"{getattr(card, 'kind', 'none')}",
        hint="open the weights on this machine (a folder or hub id) as the policy",
    )


def prompted_logprobs(
    policy: Policy, sequences: Sequence[IntArray], prompts: Sequence[int]
) -> list[FloatArray]:
    """``policy.logprobs`` of recorded draws, where an edited policy must know how long their prompts were."""
    if "edits" in policy.card.extra and isinstance(policy, WhiteBox):
        return policy.logprobs(sequences, prompts)
    return policy.logprobs(sequences)
