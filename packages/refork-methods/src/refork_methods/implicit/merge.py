"""References between two checkpoints: reference + alpha * (policy - reference), plain or thinned out.

A reference too near to the policy gives noise, one too far away format drift; merged weights lie between.
``linear`` takes the whole difference. ``ties`` keeps the share ``density`` of each tensor's entries that
is largest in size. ``dare`` keeps a random share and divides what it keeps by it, so that the
difference stays what it was on average. With one pair there is no sign to vote on.

``emr`` is for several checkpoints that were trained from one reference: it elects one difference for all of
them, and the policy takes of it what has the policy's sign, rescaled to the size of its own. Of one
checkpoint that is its own difference, so ``emr`` without others is ``linear``.

Source: TIES arXiv 2306.01708, DARE arXiv 2311.03099, EMR arXiv 2405.17461; as references arXiv 2606.26080.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from refork.errors import BadInput
from refork.policies.load import load_model, load_tokenizer, quiet

MergeMethod = Literal["linear", "ties", "dare", "emr"]
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
        BadInput: shapes that differ, an unknown method, alpha outside [0, 1], density outside (0, 1], or
            ``emr``, which rescales over whole models.
    """
    _check(alpha, method, density)
    if method == "emr":
        raise BadInput("emr merges whole models, not single tensors", where="merge", hint="merged_model")
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


def elected(differences: Sequence[Tensor]) -> Tensor:
    """The one difference of several, entry by entry: the sign of their sum, the largest size with that sign.

    0 where the sum is 0.
    """
    stacked = torch.stack([difference.float() for difference in differences])
    sign = stacked.sum(0).sign()
    return sign * (stacked * sign).clamp(min=0.0).amax(0)


def own_part(difference: Tensor, chosen: Tensor) -> Tensor:
    """What one difference takes of the elected one: the entries that have its sign, 0 elsewhere."""
    return torch.where(difference.float() * chosen > 0, chosen, 0.0)


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
    others: Sequence[Any] = (),
) -> Any:
    """The reference model, its weights moved towards the policy's in place; returned.

    ``others``: for ``emr``, further models that were trained from the reference.

    Raises:
        BadInput: parameters of other names or shapes, or ``others`` of another method than ``emr``.
    """
    _check(alpha, method, density)
    if others and method != "emr":
        raise BadInput(
            f"{method} merges one checkpoint with its reference", where="merge", hint="emr takes more"
        )
    ours, theirs = dict(reference.named_parameters()), dict(policy.named_parameters())
    models = [theirs, *(dict(model.named_parameters()) for model in others)]
    odd = sorted(set().union(*(ours.keys() ^ model.keys() for model in models)))
    if odd:
        raise BadInput(
            f"the two models do not have the same parameters: {odd[0]} is in one only",
            hint="merge checkpoints of one architecture",
        )
    if method == "emr" and others:
        return _emr(reference, ours, models, alpha)
    method = "linear" if method == "emr" else method
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


def _emr(reference: Any, ours: dict[str, Tensor], models: Sequence[dict[str, Tensor]], alpha: float) -> Any:
    names = [name for name in sorted(ours) if ours[name].dtype.is_floating_point]
    parts: dict[str, Tensor] = {}
    size = taken = 0.0
    with torch.no_grad():
        for name in names:
            if {model[name].shape for model in models} != {ours[name].shape}:
                raise BadInput("tensors of different shapes cannot be merged", where=name)
            base = ours[name].cpu().float()
            differences = [model[name].cpu().float() - base for model in models]
            parts[name] = own_part(differences[0], elected(differences))
            size += float(differences[0].abs().sum(dtype=torch.float64))
            taken += float(parts[name].abs().sum(dtype=torch.float64))
        if taken == 0.0 < size:
            raise BadInput("no entry of this policy's difference has the elected sign", where="merge")
        scale = alpha * (size / taken if size else 1.0)
        for name in names:
            ours[name].copy_((ours[name].cpu().float() + scale * parts[name]).to(ours[name].dtype))
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
    others: Sequence[str] = (),
) -> Path:
    """Save a merged reference as a usual Hugging Face folder, with the reference's tokenizer.

    ``others``: for ``emr``, further checkpoints that were trained from the reference.

    Raises:
        BadInput: the folder is not empty, or the two checkpoints do not fit.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput("this folder holds something already", where=str(out), hint="name a new folder")
    _check(alpha, method, density)
    target = load_model(reference, adapter=None, dtype=dtype, device="cpu")
    source = load_model(policy, adapter=None, dtype=dtype, device="cpu")
    more = [load_model(other, adapter=None, dtype=dtype, device="cpu") for other in others]
    merged = merged_model(source, target, alpha, method, density, seed, more)
    out.parent.mkdir(parents=True, exist_ok=True)
    with quiet():
        merged.save_pretrained(out)
    load_tokenizer(reference).save_pretrained(out)
    return out
