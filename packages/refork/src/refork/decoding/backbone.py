"""One forward pass of an unmodified causal language model over packed tokens."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from refork.decoding import attention, experts
from refork.decoding.attention import AttentionPlan, AttentionTrace
from refork.decoding.families import StandIns
from refork.decoding.packed import PackedLinears
from refork.decoding.plan import align
from refork.decoding.sites import PassProbe, Sites
from refork.decoding.stack import KvShape
from refork.errors import CannotDo, ReforkError

_SPLIT = 32768
"""Elements from which on PyTorch's element-wise kernels share the work among threads."""

_FEW = 16
"""Rows below which products of a model's own unit were found to be steady (PackedLinears.unit)."""


@final
class Backbone:
    """A Hugging Face causal model, seen as a function of packed tokens.

    The model is left as it is: only while a pass runs does its config name our attention.

    Raises:
        CannotDo: the architecture does something else than attention of one key and value for each token,
            which this decoder computes, and layers that act on each token alone.
    """

    def __init__(self, model: Any) -> None:
        attention.register()
        experts.register()
        self.model = unwrapped(model)
        self._configs = _configs(self.model)
        self._stand_ins = StandIns(self.model)
        self._takes = frozenset(inspect.signature(self.model.forward).parameters)
        self.linears = PackedLinears(self.model)
        parameter = self.model.get_input_embeddings().weight
        self.device: torch.device = parameter.device
        self.vocabulary: int = parameter.shape[0]
        widths = _activation_widths(self.model)
        self.widest = max(widths)
        self._common = math.gcd(*widths)
        self.context = context_of(self._text_config)
        self._sites: Sites | None = None
        self._steady: bool | None = None
        self.shape = self._probe()

    @property
    def blocks(self) -> int:
        """How many blocks it has."""
        return len(self.shape.layers)

    @property
    def dtype(self) -> torch.dtype:
        """Of its logits."""
        return self.shape.dtype

    def refresh(self) -> None:
        """The weights were changed in place."""
        self.linears.refresh()
        self._steady = None

    @property
    def switch(self) -> int | None:
        """The longest context that is computed as a short one, where longer ones are computed otherwise."""
        found = self._stand_ins.switch
        return None if found is None or (self.context is not None and found >= self.context) else found

    def beyond(self, length: int) -> bool:
        """Whether a context of so many tokens is computed as a long one."""
        return self.switch is not None and length > self.switch

    @property
    def granule(self) -> int:
        """Rows of a packed batch are padded to a multiple of this.

        Element-wise kernels treat the tail of a vector apart. With this many rows each thread's share
        of every activation is a whole number of vectors, so no element's bits depend on the batch.
        """
        if self.device.type != "cpu":
            return self.linears.piece
        vectors = 32 * max(torch.get_num_threads(), 1)
        # No product was seen to need more than 64 rows, whatever the number of threads asks for.
        return min(math.lcm(8, self.linears.unit, vectors // math.gcd(vectors, self._common)), 64)

    def padded(self, count: int) -> int:
        """How many rows a pass over ``count`` rows computes, so that no bit depends on the batch.

        A few rows stay few where the model's products allow it, and where element-wise kernels leave them
        to one thread.
        """
        if self.device.type != "cpu":
            return align(count, self.granule)
        vector = 32 // math.gcd(32, self._common)
        few = align(count, math.lcm(self.linears.unit, vector))
        return few if few < _FEW and few * self.widest < _SPLIT else align(count, self.granule)

    @property
    def _text_config(self) -> Any:
        return self.model.config.get_text_config()

    @contextmanager
    def _attending(self) -> Iterator[None]:
        """While inside, the model runs our attention and experts, in evaluation mode, without gradients."""
        before = [(config._attn_implementation, config._experts_implementation) for config in self._configs]
        training = self.model.training
        for config in self._configs:
            config._attn_implementation = attention.NAME
            # Elsewhere no bits are promised, and the model's own experts are faster.
            if self.device.type == "cpu":
                config._experts_implementation = experts.NAME
        if training:
            self.model.eval()
        try:
            with torch.inference_mode(), self.linears.attached(), self._stand_ins.attached():
                yield
        finally:
            for config, (attending, choosing) in zip(self._configs, before, strict=True):
                config._attn_implementation, config._experts_implementation = attending, choosing
            if training:
                self.model.train()

    def run(
        self,
        tokens: Tensor,
        positions: Tensor,
        step: AttentionPlan,
        wanted: Tensor | None = None,
        probe: PassProbe | None = None,
    ) -> Tensor:
        """Logits [n, V] of packed tokens [N] at absolute positions [N]; ``wanted`` picks rows [n].

        At least eight rows should be wanted, or their bits depend on how many there are. ``probe`` changes
        and keeps hidden states on the way.

        Raises:
            CannotDo: the hidden states of this architecture cannot be reached.
        """
        inside = nullcontext() if probe is None or probe.idle else self.sites.attached(probe)
        given: dict[str, Any] = {"input_ids": tokens[None], "use_cache": False}
        if "position_ids" in self._takes:
            given["position_ids"] = positions[None]
        keeps = "logits_to_keep" in self._takes
        if keeps:
            # To transformers 0 means all of them.
            given["logits_to_keep"] = 0 if wanted is None else wanted
        with self._attending(), attention.passing(step), inside:
            logits = torch.as_tensor(self.model(**given).logits[0])
        return logits if keeps or wanted is None else logits[wanted]

    @property
    def sites(self) -> Sites:
        """Where hidden states pass; found on first use."""
        if self._sites is None:
            self._sites = Sites(self.model, self.blocks)
            with self._sites.watching():
                self.run(*self._few())
        return self._sites

    @property
    def steady(self) -> bool:
        """Whether what layers make of a token has the same bits in passes of other sizes; measured once.

        Attention, which answers zeros here, has them by the way it is computed. Experts that a model runs in
        a loop of its own, by as many rows as a router gives each, have not.
        """
        if self._steady is None:
            sizes = sorted({self.padded(count) for count in (1, 9, 20, 64, self.granule + 1)})
            drawn = np.random.default_rng(0).integers(0, self.vocabulary, sizes[-1])
            tokens = torch.from_numpy(drawn).to(self.device)
            places = torch.arange(sizes[-1], device=self.device)
            if self.context is not None:
                places = places.clamp(max=self.context - 1)
            *fewer, most = (
                self.run(tokens[:size], places[:size], self._nothing(places[:size], AttentionTrace()))
                for size in sizes
            )
            # NaN equals nothing, not even the same NaN.
            whole = most.nan_to_num()
            self._steady = all(torch.equal(few.nan_to_num(), whole[: len(few)]) for few in fewer)
        return self._steady

    def _few(self, seen: AttentionTrace | None = None) -> tuple[Tensor, Tensor, AttentionPlan]:
        """Eight tokens with nothing before them."""
        zeros = torch.zeros(8, dtype=torch.long, device=self.device)
        return zeros, zeros, self._nothing(zeros, seen)

    def _nothing(self, positions: Tensor, seen: AttentionTrace | None) -> AttentionPlan:
        zeros = torch.zeros_like(positions)
        return AttentionPlan(
            zeros[:, None].float(), zeros[:, None], positions, int(positions.max()), (), trace=seen
        )

    def _probe(self) -> KvShape:
        """Run a few tokens: what each attention layer hands over, and that nothing else joins tokens."""
        name = type(self.model).__name__
        try:
            if "position_ids" not in self._takes and not self._stand_ins.by_place:
                raise CannotDo("it takes no positions")
            shape = self._probed()
        except CannotDo as error:
            raise CannotDo(
                f"{name} cannot be run by the branching decoder: {error.what}",
                where=error.where,
                hint=error.hint or "the decoder takes models whose tokens meet in plain attention only",
            ) from error
        except ReforkError:
            raise
        except Exception as error:
            # Whatever a model of unknown make does with a packed pass, it is refused here and not later.
            first = (str(error).strip().splitlines() or [""])[0]
            raise CannotDo(
                f"{name} cannot be run by the branching decoder: {type(error).__name__}: {first}",
                hint="the decoder takes models whose tokens meet in plain attention only",
            ) from error
        return shape

    def _probed(self) -> KvShape:
        """Two passes of the same tokens, in another order and company: attention answers zeros in both.

        What a token gives must depend on the token and its position alone. Convolutions, recurrent states,
        counts of rows in place of positions and frequencies by the longest in a batch all show here.
        """
        tokens = torch.arange(8, device=self.device) % self.vocabulary
        places = torch.arange(8, device=self.device)
        furthest = 64 if self.context is None else self.context - 1
        places = places.clamp(max=furthest)
        one, two = AttentionTrace(), AttentionTrace()
        logits = self.run(tokens, places, self._nothing(places, one))
        layers = getattr(self._text_config, "num_hidden_layers", len(one.shapes))
        if sorted(one.shapes) != list(range(layers)):
            raise CannotDo(
                f"{len(one.shapes)} of its {layers} layers run through transformers' attention interface"
            )
        # Any fixed order will do in which no token keeps its row.
        order = torch.tensor([6, 2, 7, 0, 3, 1, 5, 4], device=self.device)
        others, moved = tokens[order], places[order]
        # A stranger in the last row but three, as far off as the model reaches.
        others[4], moved[4] = tokens[0], furthest
        again = self.run(others, moved, self._nothing(moved, two))
        kept = torch.tensor([0, 1, 2, 3, 5, 6, 7], device=self.device)
        pairs = [(again, logits), *_paired(two, one)]
        for mine, theirs in pairs:
            if not _alike(mine[kept], theirs[order[kept]]):
                raise CannotDo(
                    "what it makes of a token depends on other tokens of the pass without attention"
                )
        return KvShape(tuple(one.shapes[i] for i in range(layers)), logits.dtype, self.device)


def _paired(two: AttentionTrace, one: AttentionTrace) -> Iterator[tuple[Tensor, Tensor]]:
    for layer, given in one.given.items():
        yield from zip(two.given[layer], given, strict=True)


def _alike(mine: Tensor, theirs: Tensor) -> bool:
    """Whether two results of the same computation differ by no more than rounding."""
    near = 1e-4 if theirs.dtype == torch.float32 else 3e-2
    # What is not finite is said where tokens are drawn.
    mine, theirs = (x.float().nan_to_num(0.0, 0.0, 0.0) for x in (mine, theirs))
    scale = max(float(theirs.abs().max()), 1e-6)
    return bool((mine - theirs).abs().max() <= near * scale)


def context_of(config: Any) -> int | None:
    """How many tokens the model reads at most, where its config says so."""
    for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        found = getattr(config, name, None)
        if isinstance(found, int):
            return found
    return None


def unwrapped(model: Any) -> Any:
    """The causal model inside a PEFT wrapper; its adapter layers stay in place."""
    from peft import PeftModel

    if not isinstance(model, PeftModel):
        return model
    if any(config.is_prompt_learning for config in model.peft_config.values()):
        raise CannotDo("prompt-learning adapters put virtual tokens before every prefix", hint="use LoRA")
    return model.get_base_model()


def _configs(model: torch.nn.Module) -> list[Any]:
    """Every distinct config that names an attention implementation."""
    found = {}
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None and hasattr(config, "_attn_implementation"):
            found[id(config)] = config
    return list(found.values())


def _activation_widths(model: Any) -> list[int]:
    """Widths of what linear layers give; logits count where a function acts on them."""
    head = None if getattr(model.config, "final_logit_softcapping", None) else model.get_output_embeddings()
    layers = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    widths = [m.out_features for m in layers]
    # GPT-2's layers are linear ones under another name.
    widths += [m.nf for m in model.modules() if type(m).__name__ == "Conv1D"]
    return widths + [width for p in model.parameters() if p.ndim == 3 for width in p.shape[1:]]
