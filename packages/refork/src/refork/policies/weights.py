"""Digests of weights: which parameters a model really holds."""

from __future__ import annotations

import hashlib

import torch

from refork.errors import WrongWeights


def weights_digest(model: torch.nn.Module) -> str:
    """Sha256 (hex) over name, dtype, shape and bytes of every parameter, in the order of their names.

    Adapters count, since their parameters are the model's. Tied parameters count once.
    """
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters(), key=lambda pair: pair[0]):
        # Separators that no name holds: else one parameter's end could pass for the next one's beginning.
        head = f"{name}\x1f{parameter.dtype}\x1f{tuple(parameter.shape)}\x1e"
        digest.update(head.encode())
        # By bytes, since numpy has no bfloat16.
        flat = parameter.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def require_weights(recorded: str | None, actual: str | None, where: str) -> None:
    """Refuse a policy whose weights are not those a record names; None on either side is not known.

    Raises:
        WrongWeights: both digests are known and differ.
    """
    if recorded is not None and actual is not None and recorded != actual:
        raise WrongWeights(
            f"the record was sampled with weights {recorded[:12]}, this policy has {actual[:12]}",
            where=where,
            hint="load the checkpoint that the record names, or record a new fork with this policy",
        )
