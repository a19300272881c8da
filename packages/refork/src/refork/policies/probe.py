"""Whether a policy does what its card says, on a few draws."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from refork.policies.base import Continuation, Policy, Request, Sampling, sample_all
from refork.sampling.noise import NoiseKey
from refork.types import Finish, Json, token_array

_TOKENS = 16
#: Two passes of one model in float32 differ by less; half precision does not.
_CLOSE = 1e-3


@dataclass(frozen=True, slots=True)
class Probed:
    """What a policy said, and which promises held."""

    text: str
    finish: Finish
    checks: dict[str, bool]

    def to_json(self) -> Json:
        """Plain fields."""
        return asdict(self)


def probe_policy(policy: Policy, prompt: str, *, seed: int = 0) -> Probed:
    """Draw with one noise key alone, and again with another draw beside it, and hold that against the card.

    Checked as far as the card promises it: tokens decode to the text, equal noise gives equal draws,
    log-probs are log-probs, and scoring the drawn tokens gives the same (within 1e-3 nats).

    Raises:
        ServerError: a remote policy's server failed or contradicted itself.
    """
    card = policy.card
    message = {"role": "user", "content": prompt}
    prefix = policy.render([], token_array([]), [message]).tokens if card.can("tokens") else token_array([])
    one, two = (Request(prefix, NoiseKey(seed, 1, draw), (message,)) for draw in range(2))
    sampling = Sampling(max_tokens=_TOKENS)
    [first] = sample_all(policy, [one], sampling)
    # Behind another draw and in another row: engines whose draws depend on the batch show it here.
    _, again = sample_all(policy, [two, one], sampling)
    checks = {"no error": first.error is None and again.error is None}
    if card.can("tokens"):
        checks["tokens decode to the text"] = policy.decode(first.tokens) == first.text
    if card.can("paired"):
        same = np.array_equal(first.tokens, again.tokens) and first.text == again.text
        checks["equal noise, equal draws"] = same
    if first.logprobs_t1 is not None:
        checks["log-probs are 0 or less"] = bool((first.logprobs_t1 <= 0).all())
        checks["one log-prob for each token"] = len(first.logprobs_t1) == len(first.tokens)
    if card.can("scores") and first.logprobs_t1 is not None and len(first.tokens):
        checks["scores agree with draws"] = _agree(policy, prefix.tolist(), first)
    return Probed(first.text, first.finish, checks)


def _agree(policy: Policy, prefix: list[int], said: Continuation) -> bool:
    [scores] = policy.logprobs([token_array([*prefix, *said.tokens])])
    assert said.logprobs_t1 is not None
    if len(said.logprobs_t1) != len(said.tokens):
        return False
    return bool(np.allclose(scores[len(prefix) - 1 :], said.logprobs_t1, atol=_CLOSE))
