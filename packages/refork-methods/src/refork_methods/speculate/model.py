"""The target's own ends, which a drafter uses as they are: its embedding and its language-model head."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from refork.decoding.backbone import Backbone
from refork.decoding.loop import packed
from refork.decoding.sites import PassProbe
from refork.errors import BadInput, CannotDo
from refork.policies.local import LocalPolicy
from refork.sampling.noise import stream_of
from refork_methods.speculate.attention import attend_cached, attend_packed, rotate, visible
from refork_methods.speculate.config import DraftConfig, HeldOut
from refork_methods.speculate.heads import make_confidence, make_head

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
        # Detached parameters instead of no_grad: the head stays frozen, and gradients still reach ``hidden``.
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
    # Negated, so that a gap of NaN is refused too.
    if not gap <= _CLOSE * max(spread, 1.0) * (1 if own.dtype == torch.float32 else 100):
        raise CannotDo(
            f"the logits of {type(backbone.model).__name__} are not its head's map of its last hidden state "
            f"(they differ by {gap:.3g})",
            hint="drafters are trained for models whose head comes right after the final norm",
        )


# The parallel drafter: a deep, cheap network that predicts a whole block at once, and its small heads.
#
# Source: arXiv:2607.05147 (DSpark) on the backbone of arXiv:2602.06036 (DFlash). The modules carry the
# names of the published checkpoints. Ours: initial weights that depend on a parameter's name and the seed
# only, so that two drafters that differ in their heads start from the same backbone.

KeysValues = tuple[Tensor, Tensor]
#: Layer number, queries [rows, heads, s, e], keys and values [rows, kv, s, e] of the blocks to what they see.
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """Anchor blocks of n sequences, packed into one pass.

    ``states`` [n, t, m, width] are the context features of positions 0 .. t - 1 (zeros beyond a sequence's
    end), ``anchors`` [n, a] places of anchors, ``tokens`` [n, a, g + 1] each anchor and what follows it,
    ``learned`` [n, a, g] which of those are learned: padding anchors learn nothing.
    """

    states: Float[Tensor, "n t m width"]
    anchors: Int[Tensor, "n a"]
    tokens: Int[Tensor, "n a block"]
    learned: Bool[Tensor, "n a g"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Taught:
    """A drafter's answer to a lesson at its learned positions, in the order of ``learned.nonzero()``.

    ``logits`` [k, V], and confidence logits [k] where there is such a head.
    """

    logits: Float[Tensor, "k v"]
    confidence: Float[Tensor, "k"] | None


class Drafter(Protocol):
    """What training and checkpoints need of a drafter of any kind: a torch module that can be taught.

    ``held_out``: how its drafts fared on answers held out of its training.
    """

    config: DraftConfig
    ends: TargetEnds
    held_out: HeldOut

    def teach(self, lesson: Lesson) -> Taught:
        """Logits of the learned positions of a lesson."""
        ...

    def parameters(self) -> Any:
        """Those of the module."""
        ...

    def named_parameters(self) -> Any:
        """Those of the module, by name."""
        ...

    def state_dict(self) -> Any:
        """Tensors to be stored."""
        ...

    def load_state_dict(self, state_dict: Any) -> Any:
        """Take stored tensors."""
        ...

    def train(self, mode: bool = True) -> Any:
        """Training mode."""
        ...

    def eval(self) -> Any:
        """Evaluation mode."""
        ...


_HEAD_START: Final = 64.0
"""Rank times spread of W1 at the start: the first steps of W2 move the bias by this much times the rate."""

#: Kinds that live in a file of their own: its name and class, made by ``Class(config, ends)``.
_ELSEWHERE: Final = {"eagle": ("refork_methods.speculate.eagle", "EagleDraft")}


def build_draft(config: DraftConfig, target: LocalPolicy, seed: int = 0) -> Drafter:
    """A fresh drafter of any kind for a target.

    Raises:
        BadInput, WrongTokenizer, WrongWeights: the config is not for this target.
        CannotDo: the target's head does not come right after its final norm.
    """
    config.check_target(target)
    ends = TargetEnds(packed(target.decoder).backbone)
    made: Any
    if config.kind in _ELSEWHERE:
        module, name = _ELSEWHERE[config.kind]
        made = getattr(importlib.import_module(module), name)(config, ends)
    else:
        made = DraftModel(config, ends)
    initialise(made, seed)
    return cast("Drafter", made.to(ends.device))


@final
class Norm(nn.RMSNorm):
    """RMSNorm in the precision of its weight, whatever mixed precision makes of the input."""

    def forward(self, x: Tensor) -> Tensor:
        """The normed input, in the weight's precision."""
        weight = cast("Tensor", self.weight)
        return F.rms_norm(x.to(weight.dtype), self.normalized_shape, weight, self.eps)


def turning(config: DraftConfig) -> Float[Tensor, "half"]:
    """How fast positions turn each pair of a head: 0 beyond its share ``rotary``."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    turned = torch.arange(len(half)) < int(config.rotary * config.head_dim // 2)
    return torch.where(turned, config.rope_theta**-half, 0.0)


@final
class _Attention(nn.Module):
    """Projections of one layer; keys and values are made of the context and of the block alike."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.heads, self.kv, self.size = config.heads, config.kv_heads, config.head_dim
        self.q_proj = nn.Linear(config.hidden, self.heads * self.size, bias=False)
        self.k_proj = nn.Linear(config.hidden, self.kv * self.size, bias=False)
        self.v_proj = None
        if not config.shared_values:
            self.v_proj = nn.Linear(config.hidden, self.kv * self.size, bias=False)
        self.gemma, self.eps = config.family == "gemma4", config.norm_eps
        self.o_proj = nn.Linear(self.heads * self.size, config.hidden, bias=False)
        norm = config.qk_norm
        self.q_norm = Norm(self.size, eps=config.norm_eps) if norm else nn.Identity()
        self.k_norm = Norm(self.size, eps=config.norm_eps) if norm else nn.Identity()

    def queries(self, x: Tensor) -> Tensor:
        """Queries [rows, heads, s, e], not yet turned."""
        found = cast("Tensor", self.q_norm(self.q_proj(x).unflatten(-1, (self.heads, self.size))))
        # All attention here divides by the root of a head's size; this family's does not.
        return (found * self.size**0.5 if self.gemma else found).transpose(-2, -3)

    def keys_values(self, x: Tensor, positions: Tensor, frequencies: Tensor) -> KeysValues:
        """Keys (turned) and values [rows, kv, s, e]."""
        raw = self.k_proj(x).unflatten(-1, (self.kv, self.size))
        keys = cast("Tensor", self.k_norm(raw))
        values = raw if self.v_proj is None else self.v_proj(x).unflatten(-1, (self.kv, self.size))
        if self.gemma:
            values = F.rms_norm(values, (self.size,), eps=self.eps)
        return rotate(keys.transpose(-2, -3), positions, frequencies), values.transpose(-2, -3)


@final
class Mlp(nn.Module):
    """A gated pair of maps: SwiGLU, or with family gemma4 the same by GELU."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.gemma = config.family == "gemma4"
        self.gate_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.down_proj = nn.Linear(config.intermediate, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Hidden states [.., d] after the layer's second half."""
        gate = self.gate_proj(x)
        opened = F.gelu(gate, approximate="tanh") if self.gemma else F.silu(gate)
        return cast("Tensor", self.down_proj(opened * self.up_proj(x)))


class Ending(nn.Module):
    """What follows the attention of a layer: its second half, and in family gemma4 norms of what is added."""

    layer_scalar: Tensor

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.mlp = Mlp(config)
        self.gemma = config.family == "gemma4"
        self.post_attention_layernorm = Norm(config.hidden, eps=config.norm_eps)
        if self.gemma:
            self.pre_feedforward_layernorm = Norm(config.hidden, eps=config.norm_eps)
            self.post_feedforward_layernorm = Norm(config.hidden, eps=config.norm_eps)
            self.register_buffer("layer_scalar", torch.ones(1))

    def end(self, x: Tensor, attended: Tensor) -> Tensor:
        """The layer's output, of its input [.., d] and what its attention adds."""
        if not self.gemma:
            x = x + attended
            return x + cast("Tensor", self.mlp(self.post_attention_layernorm(x)))
        x = x + self.post_attention_layernorm(attended)
        x = x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))
        return x * self.layer_scalar


@final
class _Layer(Ending):
    """One layer of the backbone."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__(config)
        self.self_attn = _Attention(config)
        self.input_layernorm = Norm(config.hidden, eps=config.norm_eps)


@final
class DraftModel(nn.Module):
    """A drafter of kind ``dspark`` or ``dflash``; embedding and language-model head are the target's.

    The context of a block is what the target said of positions strictly before its anchor. A round is
    :meth:`context` and :meth:`keys_values` of what is new, :meth:`block`, then :meth:`base_logits` and, slot
    by slot, :meth:`next_logits` of the token drafted before.
    """

    def __init__(self, config: DraftConfig, ends: TargetEnds) -> None:
        super().__init__()
        self.config, self.ends = config, ends
        self.held_out = HeldOut()
        self.fc = nn.Linear(len(config.target_layers) * config.hidden, config.hidden, bias=False)
        self.hidden_norm = Norm(config.hidden, eps=config.norm_eps)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.layers))
        self.norm = Norm(config.hidden, eps=config.norm_eps)
        self.mask = nn.Parameter(torch.zeros(config.hidden)) if config.mask_token is None else None
        self.head = make_head(config)
        self.confidence_head = make_confidence(config)
        self.register_buffer("frequencies", turning(config), persistent=False)

    # -- the backbone --------------------------------------------------------------------------

    def context(self, states: Float[Tensor, "*n m width"]) -> Float[Tensor, "*n d"]:
        """Context features of positions from the target's hidden states there, in the order of its layers."""
        return cast("Tensor", self.hidden_norm(self.fc(states.flatten(-2).to(self.fc.weight.dtype))))

    def keys_values(
        self, features: Float[Tensor, "rows t d"], positions: Int[Tensor, "rows t"]
    ) -> list[KeysValues]:
        """Keys and values [rows, kv, t, e] of context features at absolute positions, layer by layer."""
        return [layer.self_attn.keys_values(features, positions, self._turns) for layer in self._layers]

    def inputs(self, anchors: Int[Tensor, "rows"]) -> Float[Tensor, "rows s d"]:
        """A block's input: the anchor's embedding, then masks."""
        slots, config = self.config.slots, self.config
        first = self.ends.embed(anchors)[:, None]
        if self.mask is not None:
            rest = self.mask.expand(len(anchors), slots - 1, -1)
        else:
            filler = torch.full((len(anchors), slots - 1), config.mask_token or 0, device=anchors.device)
            rest = self.ends.embed(filler)
        return torch.cat([first.to(rest.dtype), rest], 1)

    def run(
        self, x: Float[Tensor, "rows s d"], positions: Int[Tensor, "rows"], attend: Attend
    ) -> Float[Tensor, "rows g d"]:
        """The h of the slots that predict; anchors stand at ``positions``; ``attend`` has the context."""
        at = positions[:, None] + torch.arange(x.shape[1], device=x.device)
        for number, layer in enumerate(self._layers):
            normed = layer.input_layernorm(x)
            query = rotate(layer.self_attn.queries(normed), at, self._turns)
            key, value = layer.self_attn.keys_values(normed, at, self._turns)
            seen = attend(number, query, key, value)
            x = layer.end(x, layer.self_attn.o_proj(seen.transpose(1, 2).flatten(2)))
        # A dflash block has one slot more, the anchor's, which predicts nothing.
        return cast("Tensor", self.norm(x[:, -self.config.block :]))

    def block(
        self,
        anchors: Int[Tensor, "rows"],
        positions: Int[Tensor, "rows"],
        context: Sequence[KeysValues],
        visible_mask: Bool[Tensor, "rows t"] | None = None,
    ) -> Float[Tensor, "rows g d"]:
        """H [rows, g, d] of one block per row, over cached keys and values [rows, kv, t, e] of each layer.

        The caller leaves out what lies outside the window, or masks it with ``visible_mask``.
        """

        def attend(number: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attend_cached(query, key, value, context[number], visible_mask)

        return self.run(self.inputs(anchors), positions, attend)

    def packed(
        self,
        states: Float[Tensor, "n t m width"],
        anchors: Int[Tensor, "n a"],
        tokens: Int[Tensor, "n a"],
    ) -> Float[Tensor, "n a g d"]:
        """H of the blocks of many anchors of each sequence, one pass; ``tokens`` are those at the anchors."""
        features = self.context(states)
        length = states.shape[1]
        positions = torch.arange(length, device=states.device).expand(len(states), -1)
        context = self.keys_values(features, positions)
        seen = visible(anchors, length, self.config.window)

        def attend(number: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attend_packed(query, key, value, context[number], seen)

        found = self.run(self.inputs(tokens.flatten()), anchors.flatten(), attend)
        return found.view(*anchors.shape, *found.shape[1:])

    # -- what the slots say --------------------------------------------------------------------

    def base_logits(self, hidden: Float[Tensor, "*n d"]) -> Float[Tensor, "*n v"]:
        """The target's head on h: what the parallel drafter says, float32."""
        return self.ends.logits(hidden)

    def next_logits(
        self,
        k: int,
        base: Float[Tensor, "rows v"],
        hidden: Float[Tensor, "rows d"],
        previous: Int[Tensor, "rows"],
        state: Float[Tensor, "rows r"] | None = None,
    ) -> tuple[Float[Tensor, "rows v"], Float[Tensor, "rows r"] | None]:
        """Logits of position k (from 0) given the token before it, and the head's state for the next one.

        The softmax of these logits is the exact distribution that a draft is drawn from.
        """
        if self.head is None:
            return base, None
        bias, state = self.head.step(k, previous, hidden, state)
        return base + bias.float(), state

    def confidence(self, hidden: Float[Tensor, "*n d"], previous: Int[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """Logits of the chance that each position survives, given h and the token before it, never its own.

        Raises:
            CannotDo: the drafter was built without a confidence head.
        """
        if self.confidence_head is None:
            raise CannotDo("this drafter has no confidence head", hint="train one with confidence=True")
        if self.config.confidence_reads_token and self.head is not None:
            embedded = self.head.embed(previous)
            hidden = torch.cat([hidden.to(embedded.dtype), embedded], -1)
        return cast("Tensor", self.confidence_head(hidden)).float()

    def teach(self, lesson: Lesson) -> Taught:
        """Logits at the learned positions, the tokens before them being those of the text."""
        before, learned = lesson.tokens[..., :-1], lesson.learned
        hidden = self.packed(lesson.states, lesson.anchors, before[..., 0])
        # A row of logits is by far the largest thing here, so only positions that are learned get one.
        logits = self.base_logits(hidden[learned])
        if self.head is not None:
            # Factors of all positions, since an rnn's state runs through what is not learned too.
            logits = logits + self.head.bias(self.head.factors(before, hidden)[learned]).float()
        sure = None
        if self.confidence_head is not None:
            sure = self.confidence(hidden[learned], before[learned])
        return Taught(logits, sure)

    @property
    def _layers(self) -> list[_Layer]:
        return cast("list[_Layer]", list(self.layers))

    @property
    def _turns(self) -> Tensor:
        return cast("Tensor", self.frequencies)


def initialise(model: nn.Module, seed: int) -> None:
    """Fresh weights, each from its name and the seed: normal with variance 1 / inputs, norms 1, biases 0.

    What writes into the residual stream is smaller by the square root of twice the layers. W2 starts at 0, so
    every drafter starts as the parallel one, and W1 with a spread at which biases of all ranks learn equally
    fast; a learned mask row has the spread of the target's embeddings.
    """
    ends = getattr(model, "ends", None)
    depth = max(1, len(getattr(model, "layers", ())))
    with torch.no_grad():
        for name, part in model.named_parameters():
            # A CPU generator for each name: the same weights on every device, in any order of parts.
            generator = torch.Generator().manual_seed(stream_of("draft", seed, name) >> 1)
            noise = torch.randn(part.shape, generator=generator)
            kind, _, leaf = name.rpartition(".")
            if leaf == "bias" or kind.endswith(("markov_w2", "confidence_head.proj")):
                part.zero_()
            elif name == "mask" and isinstance(ends, TargetEnds):
                some = torch.arange(min(1024, ends.vocabulary), device=ends.device)
                part.copy_(noise * ends.embed(some).std().cpu())
            elif part.ndim < 2:
                part.fill_(1.0)
            elif kind.endswith("markov_w1"):
                part.copy_(noise * min(4.0, _HEAD_START / part.shape[1]))
            else:
                out = kind.endswith(("o_proj", "down_proj"))
                part.copy_(noise * part.shape[1] ** -0.5 * ((2 * depth) ** -0.5 if out else 1.0))


def as_draft_model(draft: Any) -> DraftModel:
    """The drafter, if it is a parallel one.

    Raises:
        BadInput: it is of another kind.
    """
    if isinstance(draft, DraftModel):
        return draft
    raise BadInput(f"a parallel drafter is needed, not {type(draft).__name__}", hint="kind dspark or dflash")
