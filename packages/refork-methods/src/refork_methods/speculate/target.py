"""The target's own ends, which a drafter uses as they are: its embedding and its language-model head."""

from __future__ import annotations

from typing import Any, cast, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from refork.decoding.backbone import Backbone
from refork.decoding.sites import PassProbe
from refork.errors import CannotDo

_CLOSE = 1e-3
"""By how much of their spread logits from the last hidden state may differ from the model's own."""


@final
class TargetEnds:
    """Embedding and head of a target: frozen, shared, and not part of what a drafter stores.

    Raises:
        CannotDo: the model's logits are not its head's map of its last hidden state.
    """

    def __init__(self, backbone: Backbone) -> None:
        model = backbone.model
        self._embed: nn.Module = model.get_input_embeddings()
        self._head: nn.Module = model.get_output_embeddings()
        self._frozen = {name: part.detach() for name, part in self._head.named_parameters()}
        text = model.config.get_text_config()
        self._cap: float | None = getattr(text, "final_logit_softcapping", None)
        self._scale = _scale(text)
        self.width: int = int(model.get_input_embeddings().embedding_dim)
        self.vocabulary, self.device = backbone.vocabulary, backbone.device
        _check(backbone, self)

    @property
    def head(self) -> nn.Module:
        """The target's language-model head."""
        return self._head

    def embed(self, tokens: Int[Tensor, "*n"]) -> Float[Tensor, "*n d"]:
        """Embeddings of tokens, float32, without gradient."""
        with torch.no_grad():
            return cast("Tensor", self._embed(tokens)).float()

    def logits(self, hidden: Float[Tensor, "*n d"]) -> Float[Tensor, "*n v"]:
        """What the target's head makes of hidden states, float32; gradients reach ``hidden`` only."""
        given = hidden.to(next(iter(self._frozen.values())).dtype)
        if torch.is_grad_enabled():
            found = cast("Tensor", functional_call(self._head, self._frozen, (given,)))
        else:
            found = cast("Tensor", self._head(given))
        found = found.float() * self._scale if self._scale != 1.0 else found.float()
        return found if self._cap is None else torch.tanh(found / self._cap) * self._cap


def _scale(text: Any) -> float:
    """The factor that some families put on their logits."""
    divided = getattr(text, "logits_scaling", None)
    return float(1.0 / divided if divided else getattr(text, "logit_scale", None) or 1.0)


def _check(backbone: Backbone, ends: TargetEnds) -> None:
    """A few tokens through the model and through its head alone must give the same logits."""
    tokens, places, step = backbone._few()
    last = len(backbone.shape.layers)
    probe = PassProbe(layers=(last,))
    own = backbone.run(tokens, places, step, probe=probe)
    with torch.inference_mode():
        found = ends.logits(probe.states()[:, 0])
        gap = float((found - own.float()).abs().max())
        spread = float(own.float().std())
    if not gap <= _CLOSE * max(spread, 1.0) * (1 if own.dtype == torch.float32 else 100):
        raise CannotDo(
            f"the logits of {type(backbone.model).__name__} are not its head's map of its last hidden state "
            f"(they differ by {gap:.3g})",
            hint="drafters are trained for models whose head comes right after the final norm",
        )
