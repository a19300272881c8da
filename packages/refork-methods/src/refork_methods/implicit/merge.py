"""References between two checkpoints: reference + alpha * (policy - reference), plain or thinned out.

A reference too near to the policy gives noise, one too far away format drift; merged weights lie between.
``linear`` takes the whole difference. ``ties`` keeps the share ``density`` of each tensor's entries that
is largest in size. ``dare`` keeps a random share and divides what it keeps by it, so that the
difference stays what it was on average. With one pair there is no sign to vote on.

Source: TIES arXiv 2306.01708, DARE arXiv 2311.03099; as references arXiv 2606.26080.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from refork.errors import BadInput
from refork.policies.load import load_model, load_tokenizer, quiet

MergeMethod = Literal["linear", "ties", "dare"]
MERGE_METHODS: tuple[MergeMethod, ...] = get_args(MergeMethod)


def merged_tensor(
    reference: Tensor,
    policy: Tensor,
    alpha: float,
    method: MergeMethod = "linear",
    density: float = 0.2,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Reference + alpha * (thinned) difference, of the reference's shape and dtype; computed in float32.

    ``ties`` keeps exactly ``density`` of the entries, rounded down but at least one (more where sizes tie).

    Raises:
        BadInput: shapes that differ, an unknown method, alpha outside [0, 1], density outside (0, 1].
    """
    _check(alpha, method, density)
    if reference.shape != policy.shape:
        raise BadInput(
            f"tensors of shape {tuple(reference.shape)} and {tuple(policy.shape)} cannot be merged"
        )
    if alpha == 0.0 or not reference.dtype.is_floating_point:
        return reference.clone()
    # Computed, r + (p - r) may miss p by rounding, and the ends should be the checkpoints themselves.
    if method == "linear" and alpha == 1.0:
        return policy.to(reference.dtype).clone()
    difference = policy.float() - reference.float()
    if density < 1.0 and method == "ties":
        kept = max(1, int(density * difference.numel()))
        least = torch.kthvalue(difference.abs().flatten(), difference.numel() - kept + 1).values
        difference = torch.where(difference.abs() >= least, difference, 0.0)
    elif density < 1.0 and method == "dare":
        chosen = torch.rand(difference.shape, generator=generator) < density
        difference = torch.where(chosen, difference / density, 0.0)
    return (reference.float() + alpha * difference).to(reference.dtype)


def _check(alpha: float, method: str, density: float) -> None:
    if method not in MERGE_METHODS:
        raise BadInput(f"unknown merge method {method!r}", hint=f"known: {', '.join(MERGE_METHODS)}")
    if not 0.0 <= alpha <= 1.0 or not 0.0 < density <= 1.0:
        raise BadInput(f"alpha {alpha} must be in [0, 1] and density {density} in (0, 1]", where="merge")


def merged_model(
    policy: Any,
    reference: Any,
    alpha: float,
    method: MergeMethod = "linear",
    density: float = 0.2,
    seed: int = 0,
) -> Any:
    """The reference model, its weights moved towards the policy's in place; returned.

    Raises:
        BadInput: parameters of other names or shapes.
    """
    _check(alpha, method, density)
    ours, theirs = dict(reference.named_parameters()), dict(policy.named_parameters())
    odd = sorted(set(ours) ^ set(theirs))
    if odd:
        raise BadInput(
            f"the two models do not have the same parameters: {odd[0]} is in one only",
            hint="merge checkpoints of one architecture",
        )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        # Sorted, since one generator serves all tensors: what is kept must not depend on the order of the
        # modules.
        for name in sorted(ours):
            own, other = ours[name], theirs[name].to(ours[name].device)
            try:
                own.copy_(merged_tensor(own.cpu(), other.cpu(), alpha, method, density, generator))
            except BadInput as error:
                raise BadInput(error.what, where=name, hint=error.hint) from error
    return reference


def merge_reference(
    policy: str,
    reference: str,
    out: Path,
    alpha: float,
    *,
    method: MergeMethod = "linear",
    density: float = 0.2,
    seed: int = 0,
    dtype: str = "float32",
) -> Path:
    """Save a merged reference as a usual Hugging Face folder, with the reference's tokenizer.

    Raises:
        BadInput: the folder is not empty, or the two checkpoints do not fit.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput("this folder holds something already", where=str(out), hint="name a new folder")
    _check(alpha, method, density)
    target = load_model(reference, adapter=None, dtype=dtype, device="cpu")
    source = load_model(policy, adapter=None, dtype=dtype, device="cpu")
    merged = merged_model(source, target, alpha, method, density, seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    with quiet():
        merged.save_pretrained(out)
    load_tokenizer(reference).save_pretrained(out)
    return out
