"""A parallel drafter trained here inside transformers' own DFlash generation.

``target.generate(..., assistant_model=as_assistant(draft), speculation_type="dflash")`` drafts with it there.
The network is transformers' own class of DFlash assistants, filled with our weights: nothing of ours runs.

Source: arXiv:2602.06036; transformers 5.23 (``DFlashTokenCandidateGenerator``, ``muse_glimmer_assistant``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch

from refork.errors import CannotDo
from refork.policies.load import quiet
from refork_methods.speculate.config import DraftConfig
from refork_methods.speculate.layouts import write_whole
from refork_methods.speculate.model import Drafter

_RENAMED: Final = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}


def as_assistant(draft: Drafter) -> Any:
    """The drafter as a transformers assistant model, in evaluation mode; ``save_pretrained`` writes it.

    Transformers numbers what blocks give, from 0, so its ``target_layer_ids`` are ours less one (-1: the
    embedding). Its ``block_size`` counts the anchor. A confidence head stays behind: nothing there asks it.

    Raises:
        CannotDo: the drafter is not a parallel one of kind ``dflash``, or this transformers has no DFlash.
    """
    config = draft.config
    _check(config)
    try:
        from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel
    except ImportError as error:
        raise CannotDo(
            "this transformers has no DFlash generation", hint="pip install 'transformers>=5.23'"
        ) from error
    model = MuseGlimmerAssistantModel(MuseGlimmerAssistantConfig(**_fields(config)))
    tensors = {
        _RENAMED.get(name, name): part
        for name, part in draft.state_dict().items()
        if not name.startswith("confidence_head.")
    }
    model.load_state_dict(tensors)
    return model.to(device=draft.ends.device, dtype=torch.float32).eval()


def save_assistant(draft: Drafter, folder: Path | str) -> None:
    """Write :func:`as_assistant`'s model, for ``MuseGlimmerAssistantModel.from_pretrained``; all or nothing.

    Raises:
        CannotDo: as :func:`as_assistant`.
        BadInput: the folder holds something.
        DiskFull: it cannot be written.
    """
    model = as_assistant(draft)
    with quiet():
        write_whole(Path(folder), model.save_pretrained)


def _check(config: DraftConfig) -> None:
    if config.kind != "dflash":
        raise CannotDo(
            f"transformers takes no token from the anchor's slot, where a {config.kind} drafter gives one",
            hint="train one of kind dflash",
        )
    if config.sequential:
        raise CannotDo("transformers' DFlash generation has no sequential head", hint="head='none'")
    if config.mask_token is None:
        raise CannotDo(
            "transformers fills slots with a token's embedding, this drafter with a row that it learned",
            hint="train it with mask_token, the id of a token that the target never says",
        )
    if config.family != "llama":
        raise CannotDo("transformers' DFlash drafters have other layers than Gemma 4's")
    if config.window is not None or not config.qk_norm:
        raise CannotDo("transformers' DFlash drafters see all context and norm their queries and keys")


def _fields(config: DraftConfig) -> dict[str, Any]:
    return {
        "hidden_size": config.hidden,
        "intermediate_size": config.intermediate,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "max_position_embeddings": config.max_positions or 32768,
        "layer_types": ["full_attention"] * config.layers,
        "block_size": config.block + 1,
        "mask_token_id": config.mask_token,
        "target_layer_ids": [layer - 1 for layer in config.target_layers],
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
