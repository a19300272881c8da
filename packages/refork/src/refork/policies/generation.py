"""What a model's own generation config says: where ``generate`` stops, and what else it would do."""

from __future__ import annotations

from typing import Any

from refork.types import Json

#: Fields by which ``generate`` chooses or bars tokens, or ends. Its limits of length, its outputs and its
#: caches are not among them: a draw has its own limit, and the others change no token.
_TELLING = (
    "do_sample",
    "num_beams",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "top_h",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "penalty_alpha",
    "repetition_penalty",
    "encoder_repetition_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "sequence_bias",
    "suppress_tokens",
    "begin_suppress_tokens",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "exponential_decay_length_penalty",
    "min_length",
    "min_new_tokens",
    "guidance_scale",
    "watermarking_config",
    "stop_strings",
    "remove_invalid_values",
    "renormalize_logits",
    "dola_layers",
)


def end_ids(model: Any, vocabulary: int) -> frozenset[int]:
    """Ids after which the model's ``generate`` stops; one id or several in its generation config.

    ``generate`` reads nothing else: a model's config counts only where the generation config was made of it.
    """
    found = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ids = found if isinstance(found, (list, tuple)) else [] if found is None else [found]
    return frozenset(int(i) for i in ids if 0 <= int(i) < vocabulary)


def not_applied(model: Any) -> Json:
    """Settings in the model's generation config that ``generate`` would obey and our draws do not.

    What a draw obeys is its own :class:`~refork.policies.base.Sampling`, so these are said and not used.
    """
    config = getattr(model, "generation_config", None)
    if config is None:
        return {}
    # Without the library's defaults, which nobody chose for this model.
    said: Json = config.to_diff_dict()
    return {name: said[name] for name in _TELLING if said.get(name) is not None}
