"""Which drafted tokens are kept, and what is said after them: two exact rules, as pure functions.

``rejection`` keeps a draft with probability min(1, p/q) and else draws from what p has more than q: of all
exact rules that see one draft at a time it keeps most. ``coupled`` draws the model's own token with the noise
that plain decoding uses, and keeps the draft while it is the same token: what is said is then, token for
token, what plain decoding says, whatever drafter, schedule or batch. At temperature 0 the two are one.

Source: arXiv 2607.05147, section 2 (rejection); the coupled rule is ours, in the sense of arXiv 2408.07978
(drafter-invariant coupling), by addressed noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from refork.errors import BadInput
from refork.sampling.distribution import TIE
from refork_methods.speculate.laws import check_law, draw_from


@final
@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Per row: how many drafts are ``accepted`` [R], the ``token`` [R] said after them, ``ties`` [R, g + 1].

    ``ties`` marks the decisions that rounding might have turned: the acceptances looked at, then the draw.
    """

    accepted: Int64[Tensor, "rows"]
    token: Int64[Tensor, "rows"]
    ties: Bool[Tensor, "rows g1"]


def acceptance(
    p: Float64[Tensor, "*n vocabulary"], q: Float64[Tensor, "*n vocabulary"]
) -> Float64[Tensor, "*n"]:
    """Probability that a draft from q is kept under p: the sum of min(p, q), which is 1 - TV(p, q)."""
    return torch.minimum(p, q).sum(dim=-1)


def residual(
    p: Float64[Tensor, "*n vocabulary"], q: Float64[Tensor, "*n vocabulary"]
) -> Float64[Tensor, "*n vocabulary"]:
    """The law after a rejection: max(p - q, 0), normalised. Where q covers p nothing is ever rejected: p."""
    more = (p - q).clamp(min=0.0)
    total = more.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, more / total, p)


def keep_chance(p_token: Float64[Tensor, "*n"], q_token: Float64[Tensor, "*n"]) -> Float64[Tensor, "*n"]:
    """Probability min(1, p/q) of keeping a drafted token, from its probabilities under both laws.

    Raises:
        BadInput: a drafted token has probability 0 under q: q is not what it was drawn from.
    """
    if not bool((q_token > 0).all()):
        raise BadInput(
            "a drafted token has probability 0 under the draft law",
            hint="q must be the law that drafts were sampled from, after temperature, top-k and top-p",
        )
    return (p_token / q_token).clamp(max=1.0)


def leading(kept: Bool[Tensor, "rows g"]) -> Int64[Tensor, "rows"]:
    """How many are kept before the first that is not."""
    return kept.to(torch.int64).cumprod(dim=-1).sum(dim=-1)


def within(lengths: Int64[Tensor, "rows"], g: int) -> Bool[Tensor, "rows g"]:
    """Which of g drafts are verified."""
    return torch.arange(g, device=lengths.device) < lengths[:, None]


def reject(
    p: Float64[Tensor, "rows g1 vocabulary"],
    q: Float64[Tensor, "rows g vocabulary"],
    drafted: Int64[Tensor, "rows g"],
    u_accept: Float64[Tensor, "rows g"],
    u_residual: Float64[Tensor, "rows"],
    lengths: Int64[Tensor, "rows"] | None = None,
) -> Verdict:
    """Exact rejection sampling of drafted chains; the first ``lengths`` [R] drafts of each row are verified.

    ``p`` holds the model's law before each draft and after the last, ``q`` the law each draft was drawn from.
    Uniforms are in (0, 1).

    Raises:
        BadInput: shapes that do not fit, what is no law in float64, or a draft that q could not have given.

    Source: arXiv 2607.05147, section 2.
    """
    rows, g = drafted.shape
    if p.shape[:2] != (rows, g + 1) or q.shape[:2] != (rows, g) or p.shape[2] != q.shape[2]:
        raise BadInput(
            f"p {tuple(p.shape)} and q {tuple(q.shape)} do not fit {rows} rows of {g} drafts",
            hint="p is [rows, g + 1, vocabulary] and q [rows, g, vocabulary] over one vocabulary",
        )
    check_law(p, "p")
    check_law(q, "q")
    verified = within(torch.full_like(drafted[:, 0], g) if lengths is None else lengths, g)
    p_token = p[:, :g].gather(2, drafted[:, :, None])[..., 0]
    q_token = q.gather(2, drafted[:, :, None])[..., 0]
    chance = keep_chance(p_token, torch.where(verified, q_token, 1.0))
    accepted = leading((u_accept < chance) & verified)
    row = torch.arange(rows, device=p.device)
    refused = accepted < verified.sum(dim=-1)
    # What is said after the last draft has no draft law to take away.
    q_there = torch.cat([q, torch.zeros_like(p[:, :1])], dim=1)[row, accepted] * refused[:, None]
    token, near = draw_from(residual(p[row, accepted], q_there), u_residual)
    return Verdict(accepted, token, decided(accepted, u_accept, chance, near))


def decided(
    accepted: Int64[Tensor, "rows"],
    u_accept: Float64[Tensor, "rows g"],
    chance: Float64[Tensor, "rows g"],
    near: Bool[Tensor, "rows"],
) -> Bool[Tensor, "rows g1"]:
    """Ties of a round: of each acceptance, and for the last token of its refusal or of its draw."""
    close = (u_accept - chance).abs() < TIE
    close = torch.cat([close, torch.zeros_like(near)[:, None]], dim=1)
    last = torch.arange(close.shape[1], device=close.device) == accepted[:, None]
    return torch.where(last, close | near[:, None], close)


def couple(
    own: Int64[Tensor, "rows g1"], drafted: Int64[Tensor, "rows g"], lengths: Int64[Tensor, "rows"]
) -> tuple[Int64[Tensor, "rows"], Int64[Tensor, "rows"]]:
    """How many drafts are the model's own tokens, from the left, and its own token after them."""
    accepted = leading((own[:, :-1] == drafted) & within(lengths, drafted.shape[1]))
    return accepted, own.gather(1, accepted[:, None])[:, 0]


def expected_tokens(survival: Float64[Tensor, "*n g"]) -> Float64[Tensor, "*n"]:
    """Tokens of a round: 1 + the chances that each draft and all before it are kept."""
    return 1.0 + survival.sum(dim=-1)
