"""One forward pass of an unmodified causal language model over packed tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, final

import torch
from torch import Tensor

from ramify.core.errors import CannotDo
from ramify.core.policy.decoder import attention
from ramify.core.policy.decoder.attention import Step
from ramify.core.policy.decoder.packed import PackedLinears
from ramify.core.policy.decoder.plan import align
from ramify.core.policy.decoder.sites import Look, Sites
from ramify.core.policy.decoder.stack import KvShape, LayerShape

_SPLIT = 32768
"""Elements from which on PyTorch's element-wise kernels share the work among threads."""

_FEW = 16
"""Rows below which products of a model's own unit were found to be steady (PackedLinears.unit)."""


@final
class Backbone:
    """A Hugging Face causal model, seen as a function of packed tokens.

    The model is left as it is: only while a pass runs does its config name our attention.

    Raises:
        CannotDo: the architecture does not use transformers' attention interface.
    """

    def __init__(self, model: Any) -> None:
        attention.register()
        self.model = _unwrap(model)
        self._configs = _configs(self.model)
        self.linears = PackedLinears(self.model)
        parameter = self.model.get_input_embeddings().weight
        self.device: torch.device = parameter.device
        self.vocabulary: int = parameter.shape[0]
        widths = _activation_widths(self.model)
        self.widest = max(widths)
        self._common = math.gcd(*widths)
        self.context: int | None = getattr(self._text_config, "max_position_embeddings", None)
        self._sites: Sites | None = None
        self.shape = self._probe()

    @property
    def granule(self) -> int:
        """Rows of a packed batch are padded to a multiple of this.

        Element-wise kernels treat the tail of a vector apart. With this many rows each thread's share
        of every activation is a whole number of vectors, so no element's bits depend on the batch.
        """
        vectors = 32 * max(torch.get_num_threads(), 1)
        return min(math.lcm(8, vectors // math.gcd(vectors, self._common)), 64)

    def padded(self, count: int) -> int:
        """How many rows a pass over ``count`` rows computes, so that no bit depends on the batch.

        A few rows stay few where the model's products allow it, and where element-wise kernels leave them
        to one thread.
        """
        vector = 32 // math.gcd(32, self._common)
        few = align(count, math.lcm(self.linears.unit, vector))
        return few if few < _FEW and few * self.widest < _SPLIT else align(count, self.granule)

    @property
    def _text_config(self) -> Any:
        return self.model.config.get_text_config()

    @contextmanager
    def _attending(self) -> Iterator[None]:
        """While inside, the model runs our attention, in evaluation mode, without gradients."""
        before = [config._attn_implementation for config in self._configs]
        training = self.model.training
        for config in self._configs:
            config._attn_implementation = attention.NAME
        if training:
            self.model.eval()
        try:
            with torch.inference_mode(), self.linears.attached():
                yield
        finally:
            for config, name in zip(self._configs, before, strict=True):
                config._attn_implementation = name
            if training:
                self.model.train()

    def run(
        self,
        tokens: Tensor,
        positions: Tensor,
        step: Step,
        wanted: Tensor | None = None,
        look: Look | None = None,
    ) -> Tensor:
        """Logits [n, V] of packed tokens [N] at absolute positions [N]; ``wanted`` picks rows [n].

        At least eight rows should be wanted, or their bits depend on how many there are. ``look`` changes and
        keeps hidden states on the way.

        Raises:
            CannotDo: the hidden states of this architecture cannot be reached.
        """
        inside = nullcontext() if look is None or look.idle else self.sites.attached(look)
        with self._attending(), inside:
            out = self.model(
                input_ids=tokens[None],
                position_ids=positions[None],
                use_cache=False,
                logits_to_keep=0 if wanted is None else wanted,
                branches=step,
            )
        return torch.as_tensor(out.logits[0])

    @property
    def sites(self) -> Sites:
        """Where hidden states pass; found on first use."""
        if self._sites is None:
            self._sites = Sites(self.model, len(self.shape.layers))
            with self._sites.watching():
                self.run(*self._few())
        return self._sites

    def _few(self, seen: dict[int, LayerShape] | None = None) -> tuple[Tensor, Tensor, Step]:
        """Eight tokens with nothing before them."""
        zeros = torch.zeros(8, dtype=torch.long, device=self.device)
        nothing = zeros[:, None].float()
        return zeros, zeros, Step(nothing, zeros[:, None], zeros, 0, (), seen=seen)

    def _probe(self) -> KvShape:
        """Run a few tokens to see what each attention layer hands over."""
        seen: dict[int, LayerShape] = {}
        logits = self.run(*self._few(seen))
        layers = getattr(self._text_config, "num_hidden_layers", len(seen))
        if sorted(seen) != list(range(layers)):
            raise CannotDo(
                f"{type(self.model).__name__} does not run all its layers through transformers' attention "
                f"interface ({len(seen)} of {layers} do)",
                hint="the local decoder takes Llama-, Qwen-, Gemma- and GPT-NeoX-style models",
            )
        return KvShape(tuple(seen[i] for i in range(layers)), logits.dtype, self.device)


def _unwrap(model: Any) -> Any:
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
    return [m.out_features for m in layers]
