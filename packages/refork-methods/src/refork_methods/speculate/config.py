"""What a drafter is: its shape, its heads, and whose drafter it is."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final, get_args

from refork.errors import BadInput, WrongTokenizer, WrongWeights
from refork.plain import from_json, to_json
from refork.types import Json

if TYPE_CHECKING:
    from refork.policies.local import LocalPolicy


DraftKind = Literal["dspark", "dflash", "eagle"]
HeadKind = Literal["markov", "gated", "rnn", "none"]
Family = Literal["llama", "gemma4"]
KINDS: Final[tuple[str, ...]] = get_args(DraftKind)
HEADS: Final[tuple[str, ...]] = get_args(HeadKind)
FAMILIES: Final[tuple[str, ...]] = get_args(Family)

_LATER: Final[Json] = {"family": "llama", "shared_values": False, "rotary": 1.0}
"""Fields that came later, as they are without them: a half-done training of before goes on."""

BLOCK: Final = 7
"""Drafted tokens of a round, as in the paper."""
LAYERS: Final = 5
RANK: Final = 256
FEATURES: Final = 5
"""Layers of the target whose hidden states a drafter reads, where there are as many."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DraftConfig:
    """A drafter's shape and the model that it drafts for.

    ``target_layers`` are numbered as ``output_hidden_states`` numbers them (0 is the embedding), strictly
    increasing and below ``target_depth``: the last one is kept after the final norm, so it is refused.
    ``window`` bounds how many context positions before the anchor are seen (None: all). ``mask_token`` is a
    spare id of the target whose embedding fills the slots to be predicted; None: the drafter learns a row of
    its own. ``rank`` 0 or head ``none`` is the parallel drafter. ``hidden`` is the target's width, since its
    embedding and language-model head are used as they are. ``target`` and ``tokenizer`` are digests.
    ``family`` is that of the layers: ``gemma4`` norms what a layer adds too and the values as well, does not
    scale its scores, and gates by GELU. ``shared_values``: values are made by the map of the keys.
    ``rotary`` is the share of a head's pairs that positions turn, the fastest ones.

    Raises:
        BadInput: naming the field that does not fit.

    Source: arXiv:2607.05147 and, for the backbone, arXiv:2602.06036. A learned mask row is ours, for
    vocabularies without a spare id.
    """

    kind: DraftKind = "dspark"
    hidden: int
    layers: int = LAYERS
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    target_layers: tuple[int, ...]
    target_depth: int
    block: int = BLOCK
    rank: int = RANK
    head: HeadKind = "markov"
    confidence: bool = True
    confidence_with_markov: bool = True
    window: int | None = None
    mask_token: int | None = None
    qk_norm: bool = True
    rope_theta: float = 10000.0
    norm_eps: float = 1e-6
    max_positions: int | None = None
    family: Family = "llama"
    shared_values: bool = False
    rotary: float = 1.0
    target: str | None = None
    tokenizer: str | None = None

    def __post_init__(self) -> None:
        _one_of("kind", self.kind, KINDS)
        _one_of("head", self.head, HEADS)
        _one_of("family", self.family, FAMILIES)
        for name in (
            "hidden",
            "layers",
            "heads",
            "kv_heads",
            "head_dim",
            "intermediate",
            "vocabulary",
            "block",
        ):
            _at_least(name, getattr(self, name), 1)
        _at_least("rank", self.rank, 0)
        for name in ("window", "max_positions"):
            if getattr(self, name) is not None:
                _at_least(name, getattr(self, name), 1)
        if self.heads % self.kv_heads:
            raise BadInput(f"{self.heads} heads cannot share {self.kv_heads} keys", where="kv_heads")
        if self.head_dim % 2:
            raise BadInput(
                f"head_dim is {self.head_dim}; rotary positions need an even one", where="head_dim"
            )
        if self.mask_token is not None and not 0 <= self.mask_token < self.vocabulary:
            raise BadInput(
                f"mask token {self.mask_token} is outside the vocabulary of {self.vocabulary}",
                where="mask_token",
                hint="leave it out, and the drafter learns a row of its own",
            )
        if not self.rope_theta > 0 or not self.norm_eps > 0:
            raise BadInput("rope_theta and norm_eps must be above 0", where="draft config")
        _check_family(self)
        check_layers(self.target_layers, self.target_depth)

    @property
    def slots(self) -> int:
        """Positions of a block's input: g for dspark (the anchor's slot predicts too), g + 1 for dflash."""
        return self.block + (self.kind == "dflash")

    @property
    def sequential(self) -> bool:
        """Whether drafted tokens bias the ones after them."""
        return self.head != "none" and self.rank > 0

    @property
    def confidence_reads_token(self) -> bool:
        """Whether the confidence of a position depends on the token drafted before it."""
        return self.confidence and self.confidence_with_markov and self.sequential

    def but(self, **changes: Any) -> DraftConfig:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def to_json(self) -> Json:
        """Plain fields; those of layers as Gemma 4's only where they are not as they were before these."""
        plain: Json = to_json(self)
        return {name: value for name, value in plain.items() if name not in _LATER or value != _LATER[name]}

    @classmethod
    def from_json(cls, data: Json, where: str | None = None) -> DraftConfig:
        """Inverse of :meth:`to_json`; raises BadInput naming the field that does not fit."""
        return from_json(cls, data, where)

    def check_target(self, target: LocalPolicy, where: str | None = None) -> None:
        """Refuse a target that this is no drafter of.

        Raises:
            WrongTokenizer: another tokenizer, or another size of the vocabulary.
            WrongWeights: other weights.
            BadInput: another width or depth.
        """
        card, backbone = target.card, target.decoder.backbone
        if self.vocabulary != backbone.vocabulary:
            raise WrongTokenizer(
                f"the drafter has a vocabulary of {self.vocabulary}, the target one of {backbone.vocabulary}",
                where=where,
                hint="a draft distribution and a target distribution compare only over the same tokens",
            )
        if self.tokenizer is not None and card.tokenizer is not None and self.tokenizer != card.tokenizer:
            raise WrongTokenizer(
                f"the drafter was trained with tokenizer {self.tokenizer[:12]}, the target has "
                f"{card.tokenizer[:12]}",
                where=where,
                hint="load the target that the drafter was trained for",
            )
        width, depth = _width(target), backbone.blocks
        if (self.hidden, self.target_depth) != (width, depth):
            raise BadInput(
                f"the drafter is for {self.target_depth} layers of width {self.hidden}, this target "
                f"has {depth} and {width}",
                where=where,
            )
        if self.target is not None and card.weights is not None and self.target != card.weights:
            raise WrongWeights(
                f"the drafter was trained for weights {self.target[:12]}, the target has {card.weights[:12]}",
                where=where,
                hint="load that checkpoint, or train a drafter for this one",
            )


def draft_config(target: LocalPolicy, kind: DraftKind = "dspark", **changes: Any) -> DraftConfig:
    """A drafter's config for a target: its heads and widths, five feature layers, the paper's sizes.

    ``dflash`` has neither sequential nor confidence head, as published; nor has ``eagle``, which is one layer
    without norms of queries and keys. ``changes`` are fields that win.
    """
    backbone = target.decoder.backbone
    text = backbone.model.config.get_text_config()
    width, depth = _width(target), backbone.blocks
    heads = int(_field_of(text, "num_attention_heads") or max(1, width // 64))
    plain = kind != "dspark"
    fields: dict[str, Any] = {
        "kind": kind,
        "hidden": width,
        "heads": heads,
        "kv_heads": int(_field_of(text, "num_key_value_heads") or heads),
        "head_dim": _head_dim(text, width, heads),
        "intermediate": int(_field_of(text, "intermediate_size") or 4 * width),
        "vocabulary": backbone.vocabulary,
        "target_layers": feature_layers(depth),
        "target_depth": depth,
        "head": "none" if plain else "markov",
        "confidence": not plain,
        "rope_theta": _theta(text),
        "norm_eps": float(getattr(text, "rms_norm_eps", 1e-6)),
        "max_positions": backbone.context,
        "target": target.card.weights,
        "tokenizer": target.card.tokenizer,
    }
    if kind == "eagle":
        fields |= {"layers": 1, "target_layers": eagle_layers(depth), "qk_norm": False}
    return DraftConfig(**(fields | changes))


def feature_layers(depth: int, count: int = FEATURES) -> tuple[int, ...]:
    """Evenly spaced layers of a target with ``depth`` blocks, from its second to its last but two.

    A target of 36 blocks gives (2, 10, 18, 26, 34), which the paper writes as 1, 9, 17, 25, 33 since it
    counts blocks. Ours: one with few blocks gives all of them, the embedding first.

    Source: arXiv:2607.05147.
    """
    low, high = 2, depth - 2
    if high - low + 1 < count:
        return tuple(range(max(depth - count, 0), depth))
    step = (high - low) / (count - 1) if count > 1 else 0.0
    return tuple(low + round(step * i) for i in range(count))


def eagle_layers(depth: int) -> tuple[int, ...]:
    """The embedding, and a low, a middle and a high layer of a target with ``depth`` blocks, where there are.

    Source: the choice of vllm-project/speculators 0.9 (2, half the depth, the last but three).
    """
    chosen = sorted({layer for layer in (2, depth // 2, depth - 3) if 1 <= layer < depth})
    return (0, *(chosen or [depth - 1]))


def check_layers(layers: tuple[int, ...], depth: int) -> None:
    """Refuse layers that are none, unordered, outside 0 .. depth - 1, or the one after the final norm."""
    if not layers:
        raise BadInput("a drafter needs hidden states of the target", where="target_layers")
    if any(b <= a for a, b in itertools.pairwise(layers)):
        raise BadInput(f"target layers {list(layers)} must be strictly increasing", where="target_layers")
    if depth in layers or -1 in layers:
        raise BadInput(
            f"layer {depth} is kept after the final norm, so it cannot be read as the others are",
            where="target_layers",
            hint=f"use layers 0 to {depth - 1}",
        )
    if layers[0] < 0 or layers[-1] > depth:
        raise BadInput(f"target layers {list(layers)} must lie in 0 to {depth - 1}", where="target_layers")


def _width(target: LocalPolicy) -> int:
    return int(target.decoder.backbone.model.get_input_embeddings().embedding_dim)


def _field_of(text: Any, name: str) -> Any:
    """A field of the target's config; where its layers differ in it, that of the last one."""
    try:
        return getattr(text, name, None)
    except RuntimeError:
        # Transformers refuses to name one value for layers that have several.
        return getattr(text.per_layer_config[text.num_hidden_layers - 1], name)


def _head_dim(text: Any, width: int, heads: int) -> int:
    told = _field_of(text, "head_dim")
    # Rotary positions turn pairs, so a width that nobody told is rounded down to an even one.
    even = width // heads - (width // heads) % 2
    return int(told) if told else max(2, even)


def _theta(text: Any) -> float:
    """The base of the target's rotary positions, 10,000 where it has none."""
    told = getattr(text, "rope_parameters", None) or {}
    # Models with several kinds of layers keep one dict of parameters for each kind; the first gives the base.
    nested = next((v for v in told.values() if isinstance(v, dict)), told) if isinstance(told, dict) else {}
    return float(nested.get("rope_theta") or getattr(text, "rope_theta", None) or 10000.0)


def _check_family(config: DraftConfig) -> None:
    if not 0 < config.rotary <= 1:
        raise BadInput(f"rotary is {config.rotary}; it is a share of a head", where="rotary")
    if config.family == "gemma4" and not config.qk_norm:
        raise BadInput("layers of family gemma4 norm their queries and keys", where="qk_norm")
    if config.family != "gemma4" and config.shared_values:
        raise BadInput("only layers of family gemma4 share a map of keys and values", where="shared_values")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise BadInput(f"{name} is {value!r}", where="draft config", hint=f"one of {', '.join(known)}")


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise BadInput(f"{name} is {value}; it must be at least {least}", where="draft config")


# What is known of a drafter before its first round: how it fared on answers held out of its training.

Rates: TypeAlias = tuple[float, ...]


@final
@dataclass(frozen=True, slots=True)
class HeldOut:
    """How often the draft at each position [g] was kept after all before it; None: never measured.

    ``drawn`` in answers drawn with chance, ``greedy`` in such of temperature 0: greedy text is the easier to
    draft for, where the drafter has read some.
    """

    drawn: Rates | None = None
    greedy: Rates | None = None

    @classmethod
    def read(cls, figures: Any, block: int) -> HeldOut:
        """From the figures of a training; drafters from before the two were told apart know one for both."""
        body: Json = figures if isinstance(figures, dict) else {}
        found = cls(*(known_rates(body.get(name), block) for name in ("kept_drawn", "kept_greedy")))
        # Where one of them is known the rate of both is that one's: the other was never measured.
        return found if found.known else cls(known_rates(body.get("accept_rate"), block))

    def of(self, greedy: bool) -> Rates | None:
        """Those of a distribution; where they were never measured, the other's."""
        mine, other = (self.greedy, self.drawn) if greedy else (self.drawn, self.greedy)
        return mine if mine is not None else other

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return self.of(True) is not None


def known_rates(rates: Any, block: int) -> Rates | None:
    """Rates of a block of ``block`` drafts; None where they are not known.

    A position that no block got to is taken to be as good as the one before it.
    """
    if not isinstance(rates, Sequence) or len(rates) != block:
        return None
    found: list[float] = []
    for rate in rates:
        value = found[-1] if rate is None and found else rate
        if not isinstance(value, float | int) or not 0 <= value <= 1:
            return None
        found.append(float(value))
    return tuple(found)
