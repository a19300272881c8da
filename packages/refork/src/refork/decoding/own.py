"""The general path: a model's own forward pass and its own cache, one branch at a time.

It knows nothing about how a model attends or what it remembers: a prompt is read by the model's forward pass
as ``generate`` would read it, the cache that this leaves (keys and values, states of a recurrence, whatever
it is) is copied for every branch, and each branch goes on alone. So its bits depend on its own tokens only,
in any batch, order or worker, for every architecture that transformers can generate with. It is slow.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refork.decoding.backbone import context_of, unwrapped
from refork.decoding.loop import Decoder, ForwardOutput, Wanted
from refork.decoding.plan import Traces, traces
from refork.decoding.prefill import Ints
from refork.decoding.sites import PassProbe, Rows, Sites
from refork.decoding.states import Edit
from refork.errors import CannotDo
from refork.types import IntArray

_CACHES = ("past_key_values", "cache_params", "state")
"""Under which names models give their caches back, and take them."""


@dataclass(slots=True)
class CachedContext:
    """One context on its way: its tokens [n], how many of them are the prompt, and the model's cache."""

    tokens: Tensor
    prompt: int
    cache: dict[str, Any] = field(default_factory=dict)

    def branch(self) -> CachedContext:
        """Another one that goes on from here."""
        # A cache is changed in place by every pass.
        return CachedContext(self.tokens, self.prompt, copy.deepcopy(self.cache))


@final
class OwnForward:
    """A causal model seen as a function of one sequence at a time.

    ``cached``: contexts go on from the model's own cache; otherwise every token reads its whole context anew.
    ``steady``: beyond so many tokens a longer sequence changes the logits of earlier places (scalings that
    ask for the length do that), so that each place there is read by a pass of its own. None: nowhere.

    Raises:
        CannotDo: an adapter of virtual tokens.
    """

    def __init__(self, model: Any, *, cached: bool = True, steady: int | None = None) -> None:
        self.model = unwrapped(model)
        self.cached, self.steady = cached, steady
        weight = self.model.get_input_embeddings().weight
        self.device: torch.device = weight.device
        self.dtype: torch.dtype = self.model.dtype
        text = self.model.config.get_text_config()
        self.vocabulary: int = weight.shape[0]
        self.context: int | None = context_of(text)
        self.blocks: int = int(getattr(text, "num_hidden_layers", 0))
        takes = inspect.signature(self.model.forward).parameters
        self._narrows = "logits_to_keep" in takes
        self._plain: dict[str, Any] = {"use_cache": False} if "use_cache" in takes else {}
        self._sites: Sites | None = None

    def refresh(self) -> None:
        """The weights were changed in place; nothing is kept of them."""

    @property
    def sites(self) -> Sites:
        """Where hidden states pass; found on first use, and compared with those that the model shows.

        Raises:
            CannotDo: they cannot be reached.
        """
        if self._sites is None:
            sites = Sites(self.model, self.blocks)
            few = torch.arange(8, device=self.device) % self.vocabulary
            probe = PassProbe(layers=tuple(range(self.blocks + 1)))
            with self._running(None):
                with sites.watching():
                    self.model(input_ids=few[None], **self._plain)
                with sites.attached(probe):
                    shown = self.model(input_ids=few[None], output_hidden_states=True, **self._plain)
            if not _alike(probe, shown.get("hidden_states")):
                raise CannotDo(
                    f"the hidden states of {type(self.model).__name__} cannot be reached: what enters and "
                    "leaves its blocks is not what it shows"
                )
            self._sites = sites
        return self._sites

    @contextmanager
    def _running(self, probe: PassProbe | None) -> Iterator[None]:
        """While inside, the model is in evaluation mode, without gradients, and is looked into."""
        training = self.model.training
        if training:
            self.model.eval()
        inside = nullcontext() if probe is None or probe.idle else self.sites.attached(probe)
        try:
            with torch.inference_mode(), inside:
                yield
        finally:
            if training:
                self.model.train()

    def read(self, tokens: Tensor, wanted: Tensor | None = None, probe: PassProbe | None = None) -> Tensor:
        """Logits [k, V] at ``wanted`` places [k] (None: all) of a sequence [n], by a pass without a cache."""
        narrow = {"logits_to_keep": wanted} if wanted is not None and self._narrows else {}
        with self._running(probe):
            logits = self.model(input_ids=tokens[None], **self._plain, **narrow).logits[0]
        return torch.as_tensor(logits if wanted is None or narrow else logits[wanted])

    def begin(
        self, tokens: Tensor, prompt: int, probe: PassProbe | None = None
    ) -> tuple[CachedContext, Tensor]:
        """A context whose tokens [n] are read, and the logits [V] behind it."""
        line = CachedContext(tokens, prompt)
        return line, self._go(line, probe, first=True)

    def feed(self, line: CachedContext, token: int, probe: PassProbe | None = None) -> Tensor:
        """One token more: the logits [V] behind it."""
        more = torch.tensor([token], dtype=torch.long, device=self.device)
        line.tokens = torch.cat([line.tokens, more])
        return self._go(line, probe, first=False)

    def _go(self, line: CachedContext, probe: PassProbe | None, first: bool) -> Tensor:
        if not self.cached:
            last = torch.tensor([len(line.tokens) - 1], device=self.device)
            return self.read(line.tokens, last, probe)[0]
        ids = line.tokens[None]
        with self._running(probe):
            given = self.model.prepare_inputs_for_generation(
                ids,
                next_sequence_length=None if first else 1,
                attention_mask=torch.ones_like(ids),
                use_cache=True,
                is_first_iteration=first,
                **line.cache,
            )
            if self._narrows:
                given["logits_to_keep"] = 1
            out = self.model(**given)
        line.cache = {name: found for name in _CACHES if (found := out.get(name)) is not None}
        return torch.as_tensor(out.logits[0, -1])


def _alike(probe: PassProbe, shown: Sequence[Tensor] | None) -> bool:
    """Whether what was kept of every layer is what the model shows."""
    if shown is None or len(shown) != len(probe.layers) or sorted(probe.captured) != list(probe.layers):
        return False
    mine = [probe.captured[layer] for layer in probe.layers]
    return all(
        one.shape == two[0].shape and torch.allclose(one, two[0], rtol=1e-3, atol=1e-4)
        for one, two in zip(mine, shown, strict=True)
    )


@final
class OwnRows:
    """The rows of a running batch, each with a context of its own; see :class:`Batch`."""

    def __init__(self, forward: OwnForward, lines: Sequence[CachedContext]) -> None:
        self.forward, self._slots = forward, lines
        self._lines: list[CachedContext] = []
        none = np.zeros(0, dtype=np.int64)
        self.request, self.generated = none, none
        self.alive: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self._lines)

    def padded(self, count: int) -> int:
        """How many rows a pass over ``count`` rows computes."""
        return count

    def reseat(self, request: Ints, trace: Ints, keep: Ints) -> None:
        """Drop the dead, move the living together, and seat newcomers behind them."""
        stay = np.flatnonzero(self.alive)
        self._lines = [self._lines[row] for row in stay] + [self._slots[slot].branch() for slot in trace]
        self.request = np.concatenate([self.request[stay], request])
        self.generated = np.concatenate([self.generated[stay], np.zeros_like(request)])
        self.alive = np.ones(len(self._lines), dtype=np.bool_)

    def feed(
        self, newest: IntArray, edits: tuple[Edit, ...] = (), layers: tuple[int, ...] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Feed every row's newest token: logits [n, V], and hidden states [n, layers, width] if wanted."""
        logits, states = [], []
        for line, token in zip(self._lines, newest.tolist(), strict=True):
            probe = None
            if edits or layers:
                probe = look_at(self.forward, line, len(line.tokens) + 1, edits, layers)
            logits.append(self.forward.feed(line, token, probe))
            if probe is not None and layers:
                states.append(probe.states()[-1])
        return torch.stack(logits), torch.stack(states) if states else None


def look_at(
    forward: OwnForward, line: CachedContext, count: int, edits: tuple[Edit, ...], layers: tuple[int, ...]
) -> PassProbe:
    """What the pass changes and keeps that brings a context to ``count`` tokens."""
    first = count - 1 if forward.cached else 0
    return PassProbe(edits, layers, _rows(torch.arange(first, count, device=forward.device), line.prompt))


def _rows(places: Tensor, prompt: int) -> Rows:
    return Rows(places, places < prompt, places == prompt - 1)


@final
class OwnDecoder(Decoder[OwnForward]):
    """Draws and scores with the model's own forward pass, one branch at a time.

    Only equal prompts are read once. ``max_branches`` changes nothing, and no prompt is remembered.
    """

    def fold(self, sequences: Sequence[IntArray], starts: Sequence[int]) -> Traces:
        """Equal sequences as one: in a longer one, a shorter one's logits would have other last bits."""
        return traces(sequences, starts)

    def rows_within(self, prefix: int, own: int) -> int:
        """One: what a model's own kernels give a row may depend on the rows beside it."""
        return 1

    def sessions(self, folded: Traces, order: Ints) -> Iterator[Ints]:
        """The requests of one prompt at a time."""
        if not len(order):
            return
        owner = folded.owner[order]
        yield from np.split(order, np.flatnonzero(np.diff(owner)) + 1)

    def _branches(self, slots: list[CachedContext], width: int, longest: int) -> OwnRows:
        return OwnRows(self.backbone, slots)

    def read(
        self,
        folded: Traces,
        owners: Ints,
        rows: Ints,
        wanted: Wanted,
        layers: tuple[int, ...] = (),
        logits: bool = True,
    ) -> tuple[list[CachedContext], Ints, Iterator[ForwardOutput]]:
        """Logits and hidden states of numbered ``layers`` at wanted positions of some sequences."""
        span = max(len(tokens) for tokens in folded.tokens) + 1
        # A pair as one number, so that what is asked for twice is read once.
        pairs, whose = np.unique(wanted.trace * span + wanted.position, return_inverse=True)
        lines: list[CachedContext] = []

        def run() -> Iterator[ForwardOutput]:
            for place, owner in enumerate(owners):
                mine = np.flatnonzero(pairs // span == place)
                tokens = torch.from_numpy(folded.tokens[owner].astype(np.int64)).to(self.backbone.device)
                prompt = len(tokens) if folded.ends is None else int(folded.ends[owner])
                positions = pairs[mine] % span
                # Only the end is asked for: sampling goes on from there, so the cache of that pass is kept.
                if len(positions) == 1 and positions[0] == len(tokens) - 1:
                    probe = self._look(len(tokens), prompt, layers)
                    line, found = self.backbone.begin(tokens, prompt, probe)
                    lines.append(line)
                    yield ForwardOutput(mine, found[None], probe.states()[-1:] if layers else None)
                    continue
                for part, found, states in self._passes(tokens, prompt, positions, layers):
                    yield ForwardOutput(mine[part], found, states)

        return lines, whose, run()

    def _passes(
        self, tokens: Tensor, prompt: int, positions: Ints, layers: tuple[int, ...]
    ) -> Iterator[tuple[Ints, Tensor, Tensor | None]]:
        """Which of some positions [k] a pass answers, their logits, and their hidden states."""
        steady, count = self.backbone.steady, len(tokens)
        together = np.arange(len(positions)) if steady is None else np.flatnonzero(positions < steady)
        if steady is not None:
            count = min(count, steady)
        limit = max(1, self.memory // (8 * self.backbone.vocabulary))
        parts = [(together[at : at + limit], count) for at in range(0, len(together), limit)]
        parts += [(np.array([i]), int(positions[i]) + 1) for i in range(len(together), len(positions))]
        for part, length in parts:
            probe = self._look(length, prompt, layers)
            asked = torch.from_numpy(positions[part]).to(self.backbone.device)
            found = self.backbone.read(tokens[:length], asked, probe)
            yield part, found, probe.states()[asked] if layers else None

    def _look(self, count: int, prompt: int, layers: tuple[int, ...]) -> PassProbe:
        places = torch.arange(count, device=self.backbone.device)
        return PassProbe(self.edits, layers, _rows(places, prompt))
