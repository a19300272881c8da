"""An autoregressive drafter in the manner of EAGLE-3: one layer over what was said and what is drafted.

At position t it joins the embedding of token x_t with a feature of position t - 1, made of some of the
target's hidden states there, and predicts x_{t+1}. Drafting, it feeds back its own output as the next
feature. It is here to be compared with: a step of it is cheap, but a block takes as many as it has tokens.

The context of a draft is the same joining of true tokens and true features. Both halves go through one linear
map, so each position's share is computed once, when the target has said it, and kept.

Source: the layer is that of EAGLE-3 as vllm-project/speculators 0.9 trains it (the residual is taken before
the norm of features); g training steps on its own features, with the loss of arXiv:2607.05147. Ours:
embeddings of context tokens are read as hidden state 0 of the target, which must be the first of its layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from refork.errors import BadInput, CannotDo
from refork_methods.speculate.attention import rotate
from refork_methods.speculate.config import DraftConfig, HeldOut
from refork_methods.speculate.model import Ending, KeysValues, Lesson, TargetEnds, Taught, turning


@final
@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Where the drafts of ``a`` anchors in each of n contexts stand.

    ``context`` are keys and values [n, kv, t, e] and ``visible`` [n, a, t] which of them each anchor attends
    to; ``own`` those [n, a, kv, k, e] of the k steps done; ``feature`` [n, a, d] of the position before the
    next one, which is ``position`` [n, a].
    """

    context: KeysValues
    visible: Bool[Tensor, "n a t"]
    feature: Float[Tensor, "n a d"]
    position: Int[Tensor, "n a"]
    own: KeysValues | None = None

    def rows(self, index: Tensor) -> Chain:
        """Some of the contexts."""
        own = None if self.own is None else (self.own[0][index], self.own[1][index])
        context = self.context[0][index], self.context[1][index]
        return Chain(context, self.visible[index], self.feature[index], self.position[index], own)


@final
class _Attention(nn.Module):
    """Projections of twice the width: of an embedding, then of a feature."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.heads, self.kv, self.size = config.heads, config.kv_heads, config.head_dim
        self.q_proj = nn.Linear(2 * config.hidden, self.heads * self.size, bias=False)
        self.k_proj = nn.Linear(2 * config.hidden, self.kv * self.size, bias=False)
        self.v_proj = None
        if not config.shared_values:
            self.v_proj = nn.Linear(2 * config.hidden, self.kv * self.size, bias=False)
        self.gemma, self.eps = config.family == "gemma4", config.norm_eps
        self.o_proj = nn.Linear(self.heads * self.size, config.hidden, bias=False)
        norm = config.qk_norm
        self.q_norm = nn.RMSNorm(self.size, eps=config.norm_eps) if norm else nn.Identity()
        self.k_norm = nn.RMSNorm(self.size, eps=config.norm_eps) if norm else nn.Identity()

    @property
    def values(self) -> nn.Linear:
        """What makes values of pairs."""
        return self.k_proj if self.v_proj is None else self.v_proj

    def normed(self, values: Tensor) -> Tensor:
        """Values [.., e] as they are attended to."""
        return F.rms_norm(values, (self.size,), eps=self.eps) if self.gemma else values

    def halves(self, projection: nn.Linear, embedded: Tensor, feature: Tensor) -> tuple[Tensor, Tensor]:
        """What each half adds to a projection, [.., kv, e] both; their sum is the projection of the pair."""
        left, right = projection.weight.chunk(2, 1)
        return (
            F.linear(embedded, left).view(*embedded.shape[:-1], self.kv, self.size),
            F.linear(feature, right).view(*feature.shape[:-1], self.kv, self.size),
        )


@final
class _Layer(Ending):
    """The one layer; ``input_layernorm`` is of embeddings, ``hidden_norm`` of features."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__(config)
        self.self_attn = _Attention(config)
        self.input_layernorm = nn.RMSNorm(config.hidden, eps=config.norm_eps)
        self.hidden_norm = nn.RMSNorm(config.hidden, eps=config.norm_eps)


@final
class EagleDraft(nn.Module):
    """A drafter of kind ``eagle``; embedding and language-model head are the target's.

    A round is :meth:`start` and then :meth:`next_logits`, token by token. :meth:`block` and
    :meth:`base_logits` are there for callers that know parallel drafters: they say nothing.

    Raises:
        BadInput: more than one layer, heads, a window, or layers that do not begin with the embedding.
    """

    def __init__(self, config: DraftConfig, ends: TargetEnds) -> None:
        super().__init__()
        check_eagle(config)
        self.config, self.ends = config, ends
        self.held_out = HeldOut()
        self.fc = nn.Linear((len(config.target_layers) - 1) * config.hidden, config.hidden, bias=False)
        self.layers = nn.ModuleList([_Layer(config)])
        self.norm = nn.RMSNorm(config.hidden, eps=config.norm_eps)
        self.register_buffer("frequencies", turning(config), persistent=False)

    # -- the context -----------------------------------------------------------------------------

    def context(self, states: Float[Tensor, "*n m width"]) -> Float[Tensor, "*n twice"]:
        """Embedding and feature of positions, side by side, from the target's hidden states there."""
        given = states.to(self.fc.weight.dtype)
        return torch.cat([given[..., 0, :], self.fc(given[..., 1:, :].flatten(-2))], -1)

    def keys_values(
        self, features: Float[Tensor, "rows t twice"], positions: Int[Tensor, "rows t"]
    ) -> list[KeysValues]:
        """What is kept of each position: its shares of keys and values, and its feature.

        A list of pairs of one shape [rows, kv, t, 2 e], as caches keep layers. First the shares in keys and
        in values, each of the pair that it is the token of and of the one that it is the feature of; then the
        feature.
        """
        embedded, feature = features.chunk(2, -1)
        attention = self._layer.self_attn
        pair = self._layer.input_layernorm(embedded), self._layer.hidden_norm(feature)
        keys = torch.cat(attention.halves(attention.k_proj, *pair), -1).transpose(-2, -3)
        values = torch.cat(attention.halves(attention.values, *pair), -1).transpose(-2, -3)
        return [(keys, values), *self._packed(feature)]

    def start(
        self,
        positions: Int[Tensor, "rows"],
        context: Sequence[KeysValues],
        visible: Bool[Tensor, "rows t"] | None = None,
    ) -> Chain:
        """Chains of one anchor per row, over what :meth:`keys_values` gave of positions 0 .. t - 1.

        Raises:
            CannotDo: a row whose context does not reach from position 0 to its anchor.
        """
        known = context[0][0].shape[2]
        held = (
            torch.ones(len(positions), known, dtype=torch.bool, device=positions.device)
            if visible is None
            else visible
        )
        before = torch.arange(known, device=positions.device) < positions[:, None]
        if known < int(positions.max()) or bool((before & ~held).any()):
            raise CannotDo("an eagle drafter needs the hidden states of all positions before its anchor")
        feature = self._unpacked(context[1:], (positions - 1).clamp(min=0))
        # An anchor at position 0 has no feature before it: zeros, as :meth:`teach` gives it.
        feature = torch.where(positions[:, None] > 0, feature, 0.0)
        return self._chain(context[0], feature[:, None], positions[:, None])

    def _chain(self, shares: KeysValues, feature: Tensor, places: Tensor) -> Chain:
        """Chains over joined context: the key of position t is its own share and that of t - 1."""
        size = self.config.head_dim
        # The pair of position 0 would need the feature of a token before the first: the context begins at 1.
        keys, values = (part[:, :, 1:, :size] + part[:, :, :-1, size:] for part in shares)
        positions = torch.arange(1, keys.shape[2] + 1, device=keys.device)
        # A norm is not linear: shares are kept without it, and their sum is normed.
        attention = self._layer.self_attn
        keys, values = attention.k_norm(keys), attention.normed(values)
        turned = rotate(keys, positions.expand(len(keys), -1), self._turns)
        return Chain((turned, values), positions < places[..., None], feature, places)

    def _packed(self, feature: Tensor) -> list[KeysValues]:
        """Features [rows, t, d] in the shape of shares."""
        kv, width = self.config.kv_heads, 2 * self.config.head_dim
        count = -(-self.config.hidden // (2 * kv * width))
        padded = F.pad(feature, (0, count * 2 * kv * width - self.config.hidden))
        parts = padded.view(*feature.shape[:2], count, 2, kv, width).permute(2, 3, 0, 4, 1, 5)
        return [(part[0], part[1]) for part in parts]

    def _unpacked(self, packed: Sequence[KeysValues], places: Tensor) -> Tensor:
        """Features [rows, d] at one position of each row."""
        row = torch.arange(len(places), device=places.device)
        parts = [part[row, :, places].flatten(1) for pair in packed for part in pair]
        return torch.cat(parts, 1)[:, : self.config.hidden]

    # -- one step --------------------------------------------------------------------------------

    def step(self, chain: Chain, tokens: Int[Tensor, "n a"]) -> tuple[Float[Tensor, "n a d"], Chain]:
        """What the head reads, after one token more of every chain."""
        layer, attention = self._layer, self._layer.self_attn
        pair = torch.cat(
            [layer.input_layernorm(self.ends.embed(tokens)), layer.hidden_norm(chain.feature)], -1
        )

        def projected(linear: nn.Linear, heads: int) -> Tensor:
            found = cast("Tensor", linear(pair))
            return found.view(*found.shape[:-1], heads, attention.size)

        def turned(x: Tensor) -> Tensor:
            return rotate(x.unsqueeze(-2), chain.position[..., None], self._turns)

        query = turned(attention.q_norm(projected(attention.q_proj, attention.heads))).squeeze(-2)
        # Attention here divides by the root of a head's size; this family's does not.
        query = query * attention.size**0.5 if attention.gemma else query
        key = turned(attention.k_norm(projected(attention.k_proj, attention.kv)))
        value = attention.normed(projected(attention.values, attention.kv)).unsqueeze(-2)
        if chain.own is not None:
            key, value = torch.cat([chain.own[0], key], -2), torch.cat([chain.own[1], value], -2)
        seen = attention.o_proj(attend_chain(query, chain, (key, value)).flatten(-2))
        x = layer.end(chain.feature, seen)
        return self.norm(x), replace(chain, feature=x, position=chain.position + 1, own=(key, value))

    def next_logits(
        self,
        k: int,
        base: Float[Tensor, "rows v"],
        hidden: Float[Tensor, "rows d"],
        previous: Int[Tensor, "rows"],
        state: Chain | None = None,
    ) -> tuple[Float[Tensor, "rows v"], Chain]:
        """Logits of position k given the token before it, and the chain for the next one.

        ``base`` and ``hidden`` are not read. The softmax of these logits is the exact distribution that a
        draft is drawn from.

        Raises:
            BadInput: no chain was started.
        """
        if state is None:
            raise BadInput("an eagle drafter goes on from a chain", hint="begin with start()")
        found, chain = self.step(state, previous[:, None])
        return self.ends.logits(found[:, 0]), chain

    def block(
        self,
        anchors: Int[Tensor, "rows"],
        positions: Int[Tensor, "rows"],
        context: Sequence[KeysValues],
        visible: Bool[Tensor, "rows t"] | None = None,
    ) -> Float[Tensor, "rows g d"]:
        """Nothing is known of any slot before the tokens before it are drawn: zeros."""
        return torch.zeros(1, device=positions.device).expand(
            len(positions), self.config.block, self.config.hidden
        )

    def base_logits(self, hidden: Float[Tensor, "*n d"]) -> Float[Tensor, "*n v"]:
        """Zeros, as :meth:`block` gives."""
        return torch.zeros(1, device=hidden.device).expand(*hidden.shape[:-1], self.config.vocabulary)

    def confidence(self, hidden: Float[Tensor, "*n d"], previous: Int[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """There is no such head."""
        raise CannotDo("an eagle drafter has no confidence head", hint="train one of kind dspark")

    def teach(self, lesson: Lesson) -> Taught:
        """Logits at the learned positions: the tokens before them are those of the text, features its own."""
        features = self.context(lesson.states)
        length = lesson.states.shape[1]
        positions = torch.arange(length, device=features.device).expand(len(features), -1)
        shares = self.keys_values(features, positions)[0]
        row = torch.arange(len(features), device=features.device)[:, None]
        feature = features[row, (lesson.anchors - 1).clamp(min=0), self.config.hidden :]
        feature = torch.where(lesson.anchors[..., None] > 0, feature, 0.0)
        chain = self._chain(shares, feature, lesson.anchors)
        found = []
        for k in range(self.config.block):
            hidden, chain = self.step(chain, lesson.tokens[..., k])
            found.append(hidden)
        return Taught(self.ends.logits(torch.stack(found, -2)[lesson.learned]), None)

    @property
    def _layer(self) -> _Layer:
        return cast("_Layer", self.layers[0])

    @property
    def _turns(self) -> Tensor:
        return cast("Tensor", self.frequencies)


def attend_chain(query: Float[Tensor, "n a h e"], chain: Chain, own: KeysValues) -> Float[Tensor, "n a h e"]:
    """Attention of one position of every chain over its context and its own steps [n, a, kv, k, e]."""
    keys, values = chain.context
    n, a, heads, size = query.shape
    kv = keys.shape[1]
    folded = query.view(n, a, kv, heads // kv, size) * size**-0.5
    before = torch.einsum("nakge,nkte->nakgt", folded, keys)
    before = before.masked_fill(~chain.visible[:, :, None, None], -torch.inf)
    inside = torch.einsum("nakge,nakte->nakgt", folded, own[0])
    weights = torch.softmax(torch.cat([before, inside], -1).float(), -1).to(values.dtype)
    early, late = weights[..., : keys.shape[2]], weights[..., keys.shape[2] :]
    found = torch.einsum("nakgt,nkte->nakge", early, values)
    return (found + torch.einsum("nakgt,nakte->nakge", late, own[1])).reshape(n, a, heads, size)


def check_eagle(config: DraftConfig) -> None:
    """Refuse a config that is none of an eagle drafter."""
    if config.layers != 1 or config.window is not None:
        raise BadInput("an eagle drafter has one layer, and sees its whole context", where="draft config")
    if config.sequential or config.confidence:
        raise BadInput(
            "an eagle drafter has neither sequential nor confidence head",
            where="draft config",
            hint="head='none', confidence=False",
        )
    if config.target_layers[0] != 0 or len(config.target_layers) < 2:
        raise BadInput(
            f"target layers {list(config.target_layers)} must be 0, the embedding, and at least one more",
            where="target_layers",
        )
