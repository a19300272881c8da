"""Decoders: many continuations of many prefixes. The branching decoder makes them as one batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from refork.decoding.backbone import Backbone
from refork.decoding.batch import Batch
from refork.decoding.cache import BlockCache
from refork.decoding.plan import Traces, align, traces
from refork.decoding.prefill import Forest, Ints, Pass
from refork.decoding.record import CapturedStates, Sampled
from refork.decoding.session import NEVER, BatchRows, Ends, Session, Waiting
from refork.decoding.sites import PassProbe, Sites, all_prompt
from refork.decoding.states import Capture, Edit, Layer, layer_numbers
from refork.errors import CannotDo
from refork.sampling.distribution import SoFar
from refork.sampling.noise import NoiseKey
from refork.sampling.settings import Sampling
from refork.types import IntArray

CPU_CACHE = 2 << 20
"""Rows whose widest activation takes more bytes than this leave a processor's caches, and gain nothing."""


def usual_memory(device: torch.device) -> int:
    """Bytes that a decoder may take where nothing was said."""
    return torch.cuda.mem_get_info(device)[0] // 4 if device.type == "cuda" else 2 << 30


@dataclass(frozen=True, slots=True)
class Wanted:
    """Positions of traces, in pairs [w]."""

    trace: Ints
    position: Ints


@dataclass(frozen=True, slots=True)
class ForwardOutput:
    """What one pass found: answer numbers [k], logits [k, V], hidden states [k, layers, width]."""

    answers: Ints
    logits: Tensor
    states: Tensor | None


@dataclass(frozen=True, slots=True)
class Terms:
    """What each request [n] has of its own: the most tokens it may say (1 or more), what not to begin with.

    ``without``: the token that its first free one must not be, -1: any. ``generated``: how many of its
    prefix's last tokens are of its own turn, which penalties count.
    """

    limit: Ints
    without: Ints
    generated: Ints


class Causal(Protocol):
    """A causal model as a decoder sees it."""

    model: Any
    device: torch.device
    vocabulary: int
    context: int | None

    @property
    def blocks(self) -> int:
        """How many blocks it has."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Of its logits."""
        ...

    @property
    def sites(self) -> Sites:
        """Where hidden states pass."""
        ...

    def refresh(self) -> None:
        """The weights were changed in place."""
        ...


B = TypeVar("B", bound=Causal)


class Decoder(ABC, Generic[B]):
    """Samples, scores and reads hidden states of branches.

    ``memory`` is in bytes (None: 2 GiB, on a GPU a quarter of what is free). ``edits`` change hidden states
    of every pass.

    Raises:
        BadInput: an edit of a layer that the model does not have.
        CannotDo: an edit of hidden states that cannot be reached.
    """

    def __init__(
        self,
        backbone: B,
        memory: int | None = None,
        max_branches: int | None = None,
        edits: tuple[Edit, ...] = (),
    ) -> None:
        self.backbone = backbone
        self.memory = memory = usual_memory(backbone.device) if memory is None else memory
        self.max_branches = max_branches
        self.edits = edits
        self.number([edit.layer for edit in edits])
        # What depends on where a prompt ends is not the same for the next prompt that begins alike.
        self.by_request = any(edit.by_request for edit in edits)
        if self.by_request and self.switch is not None:
            raise CannotDo(
                f"an edit that asks where a prompt ends cannot act here: contexts of more than {self.switch} "
                "tokens are read anew"
            )
        self.cache = BlockCache(0 if self.by_request else memory // 2)

    @property
    def switch(self) -> int | None:
        """The longest context whose places are read with each other, where those behind it are read anew."""
        return None

    def edited(self, *edits: Edit) -> Self:
        """This decoder with further changes of the hidden states, and a cache of its own."""
        return type(self)(self.backbone, self.memory, self.max_branches, (*self.edits, *edits))

    def number(self, layers: Sequence[Layer]) -> tuple[int, ...]:
        """Places of layers in a model whose hidden states can be reached."""
        return tuple(layer_numbers(layers, len(self.backbone.sites.blocks))) if layers else ()

    def sample(
        self,
        prefixes: Sequence[IntArray],
        noise: Sequence[NoiseKey],
        settings: Sampling,
        ends: Ends = NEVER,
        capture: Capture | None = None,
        terms: Terms | None = None,
    ) -> Iterator[Sampled]:
        """One continuation per prefix, yielded as they finish, with the hidden states that are asked for.

        ``terms``: what requests have of their own, beside ``settings``.

        Raises:
            BadInput: logits that are not finite, a distribution that leaves no token, or no such layer.
        """
        if not prefixes:
            return
        if capture is not None:
            self.number(capture.layers)
        so_far = None
        if settings.penalised:
            begun = np.zeros(len(prefixes), dtype=np.int64) if terms is None else terms.generated

            def so_far(number: int) -> SoFar:
                return SoFar(prefixes[number], int(begun[number]))

        folded = self.fold(prefixes, [len(prefix) for prefix in prefixes])
        # Requests of one trace side by side, so that a session reads it once.
        order = np.lexsort((folded.keep, folded.owner))
        for part in self.sessions(folded, order):
            with torch.inference_mode():
                session = self._session(folded, part, noise, settings, ends, capture, terms, so_far)
            # Outside, or what a caller does between two continuations would run in inference mode too.
            yield from session.run()

    @abstractmethod
    def fold(self, sequences: Sequence[IntArray], starts: Sequence[int]) -> Traces:
        """The traces of some sequences whose first ``starts`` tokens are prompts."""

    @abstractmethod
    def rows_within(self, prefix: int, own: int) -> int:
        """How many branches with this many prefix and own positions fit the memory."""

    @abstractmethod
    def sessions(self, folded: Traces, order: Ints) -> Iterator[Ints]:
        """Cut the requests (in order of their traces) so that the traces of each part fit."""

    @abstractmethod
    def read(
        self,
        folded: Traces,
        owners: Ints,
        rows: Ints,
        wanted: Wanted,
        layers: tuple[int, ...] = (),
        logits: bool = True,
    ) -> tuple[Any, Ints, Iterator[ForwardOutput]]:
        """Logits and hidden states of numbered ``layers`` at wanted positions of some traces.

        Returns where the traces lie, for :meth:`_branches`, each wanted pair's answer number, and the passes,
        of which all must be run.
        """

    @abstractmethod
    def _branches(self, slots: Any, width: int, longest: int) -> BatchRows:
        """A batch of ``width`` rows that continue read traces by up to ``longest`` tokens."""

    def _session(  # noqa: PLR0917 (all of them what the caller was asked for)
        self,
        folded: Traces,
        requests: Ints,
        noise: Sequence[NoiseKey],
        settings: Sampling,
        ends: Ends,
        capture: Capture | None,
        terms: Terms | None,
        so_far: Callable[[int], SoFar] | None,
    ) -> Session:
        """Fill the traces of some requests and take the logits after each distinct prefix."""
        owners, trace = np.unique(folded.owner[requests], return_inverse=True)
        keep = folded.keep[requests]
        limit = np.full(len(requests), settings.max_tokens, dtype=np.int64)
        without = np.full(len(requests), -1, dtype=np.int64)
        if terms is not None:
            limit, without = np.minimum(limit, terms.limit[requests]), terms.without[requests]
        if self.backbone.context is not None:
            limit = np.minimum(limit, self.backbone.context - keep)
        counts = np.bincount(trace, minlength=len(owners))
        layers = () if capture is None else self.number(capture.layers)
        before = layers if capture is not None and capture.prefix == "last" else ()
        slots, whose, passes = self.read(folded, owners, counts, Wanted(trace, keep - 1), before)
        parts = [part for part in passes if len(part.answers)]
        opening = torch.cat([part.logits for part in parts])
        kept = None
        if capture is not None:
            found = [part.states for part in parts if part.states is not None]
            kept = CapturedStates(capture, layers, torch.cat(found) if found else None)
        longest = int(limit.max())
        width = min(self.rows_within(int(keep.max()), longest), len(requests))
        return Session(
            self._branches(slots, width, longest),
            Waiting(requests, trace, keep, limit, without, whose),
            opening,
            width=width,
            noise=noise,
            settings=settings,
            ends=ends,
            edits=self.edits,
            captured=kept,
            so_far=so_far,
        )


@final
class BranchDecoder(Decoder[Backbone]):
    """Packs branches into one pass, on shared prefixes that are computed once.

    ``memory`` bytes bound what one batch holds (keys, values, scores, logits) and, a second time, what
    the cache of earlier prefixes keeps. ``max_branches`` bounds the rows of a batch
    (None: what memory allows, on a processor no more than its caches hold).
    """

    @property
    def switch(self) -> int | None:
        """The longest context that the model computes as a short one."""
        return self.backbone.switch

    def fold(self, sequences: Sequence[IntArray], starts: Sequence[int]) -> Traces:
        """The traces of some sequences whose first ``starts`` tokens are prompts."""
        return traces(sequences, starts if self.by_request else None, self.backbone.switch)

    def _branches(self, slots: Forest, width: int, longest: int) -> Batch:
        return Batch(self.backbone, slots.slots, width, longest)

    def rows_within(self, prefix: int, own: int) -> int:
        """How many branches with this many prefix and own positions fit the memory."""
        shape = self.backbone.shape
        heads = max(s.heads * s.group for s in shape.layers)
        wide = 4 if self.backbone.device.type == "cpu" else 8
        scores = heads * (align(prefix) + align(own, shape.own_unit)) * wide
        row = own * shape.bytes_per_token + scores + 24 * self.backbone.vocabulary
        # Half of the memory, since prompts have the other (sessions); eight rows run in any case.
        rows = max(8, self.memory // (2 * row))
        most = self.max_branches
        if most is None:
            most = rows
            if self.backbone.device.type == "cpu":
                most = max(256, CPU_CACHE // (4 * self.backbone.widest))
        return min(rows, most)

    def sessions(self, folded: Traces, order: Ints) -> Iterator[Ints]:
        """Cut the requests (in order of their traces) so that the traces of each part fit."""
        cost = self.backbone.shape.bytes_per_token
        start, held, last = 0, 0, -1
        for place, request in enumerate(order):
            owner = int(folded.owner[request])
            if owner == last:
                continue
            last = owner
            size = align(len(folded.tokens[owner])) * cost
            # Half of the memory is for prompts, the other for what branches say (rows_within).
            if held and held + size > self.memory // 2:
                yield order[start:place]
                start, held = place, 0
            held += size
        yield order[start:]

    def read(
        self,
        folded: Traces,
        owners: Ints,
        rows: Ints,
        wanted: Wanted,
        layers: tuple[int, ...] = (),
        logits: bool = True,
    ) -> tuple[Forest, Ints, Iterator[ForwardOutput]]:
        """Logits and hidden states of numbered ``layers`` at wanted positions of some traces.

        Returns the forest, each wanted pair's answer number, and the passes. Once these are exhausted the
        forest is complete.
        """
        ends = None if folded.ends is None else folded.ends[owners]
        tokens = [folded.tokens[owner] for owner in owners]
        forest = Forest(self.backbone, tokens, rows, self.cache, ends)
        whose, passes = forest.fill(wanted.trace, wanted.position, self.pass_rows)

        def run() -> Iterator[ForwardOutput]:
            for item in passes:
                probe = self.probe(item, layers)
                # States alone need no logits; eight rows keep the shape in which products are exact.
                asked = item.wanted if logits else item.wanted[:8]
                found = self.backbone.run(item.tokens, item.positions, item.step, asked, probe)
                count = len(item.answers)
                yield ForwardOutput(item.answers, found[:count], probe.states()[:count] if layers else None)
            forest.remember()

        return forest, whose, run()

    def probe(self, item: Pass, layers: tuple[int, ...]) -> PassProbe:
        """What a pass over prompts changes and keeps of the hidden states."""
        rows = all_prompt(item.positions) if item.rows is None and self.edits else item.rows
        return PassProbe(self.edits, layers, rows, item.wanted)

    @property
    def pass_rows(self) -> int:
        """Rows of a prefill pass: few enough for their logits to stay small."""
        rows = min(1024, (128 << 20) // (4 * self.backbone.vocabulary))
        return align(max(rows, 1), self.backbone.granule)


def packed(decoder: Decoder[Any]) -> BranchDecoder:
    """A decoder whose branches share a pass.

    Raises:
        CannotDo: it is not one.
    """
    if isinstance(decoder, BranchDecoder):
        return decoder
    raise CannotDo(
        f"requests cannot share the passes of {type(decoder.backbone.model).__name__}: it is run by its own "
        "forward pass, one branch at a time",
        hint="draw with the policy itself (refork fork, sweep, grow)",
    )
