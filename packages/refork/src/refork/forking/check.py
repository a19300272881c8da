"""Whether a policy may run on from what is recorded."""

from __future__ import annotations

from refork.errors import BadInput, WrongTokenizer, WrongWeights
from refork.policies.base import Policy, PolicyCard
from refork.tree.node import Trajectory
from refork.types import IntArray


def recorded_tokenizer(trajectory: Trajectory) -> str | None:
    """Whose token ids a policy sees at the end: a swap's rewritten context names its own."""
    named = (s.node.extra["tokenizer"] for s in reversed(trajectory.steps) if "tokenizer" in s.node.extra)
    return next(named, None)


def check_policy(trajectory: Trajectory, policy: Policy, *, swapped: bool, any_weights: bool) -> None:
    """Raise where a policy is not the one on record and no swap was asked for."""
    if swapped:
        return
    card = policy.card
    tokenizer = recorded_tokenizer(trajectory)
    if tokenizer and card.tokenizer and tokenizer != card.tokenizer:
        raise WrongTokenizer(
            f"policy {card.name!r} has another tokenizer than the one that made these token ids",
            where=f"task {trajectory.root.id[:12]}",
            hint="use the recorded model, or ask for the swap: --change policy:SPEC",
        )
    last = next((s.node for s in reversed(trajectory.steps) if s.node.weights), None)
    # Weights that nobody knows, a server's, are not refused: nothing says that they differ.
    if last is not None and card.weights and card.weights != last.weights and not any_weights:
        raise WrongWeights(
            f"policy {card.name!r} has weights {card.weights[:12]}, the record says {str(last.weights)[:12]}",
            where=f"node {last.id[:12]}",
            hint="load the recorded weights, or ask for the swap: --change policy:SPEC",
        )


def check_ids(tokens: IntArray, card: PolicyCard, where: str) -> None:
    """Raise where a prefix is empty or holds ids outside a policy's vocabulary."""
    if len(tokens) == 0:
        raise BadInput("the prompt is empty: there is nothing to run on from", where=where)
    size = card.vocabulary
    if size is not None and (int(tokens.max()) >= size or int(tokens.min()) < 0):
        bad = int(tokens.max()) if int(tokens.max()) >= size else int(tokens.min())
        raise WrongTokenizer(
            f"recorded token id {bad} is outside the policy's vocabulary of {size}",
            where=where,
            hint="this is another model's tokenizer: swap the policy explicitly",
        )
