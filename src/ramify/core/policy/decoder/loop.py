"""The branching decoder: many continuations of many prefixes as one batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from ramify.core.policy.base import Sampling
from ramify.core.policy.decoder.backbone import Backbone
from ramify.core.policy.decoder.cache import BlockCache
from ramify.core.policy.decoder.plan import Traces, align, traces
from ramify.core.policy.decoder.prefill import Forest, Ints
from ramify.core.policy.decoder.record import Sampled
from ramify.core.policy.decoder.session import NEVER, Ends, Session, Waiting
from ramify.core.policy.noise import NoiseKey
from ramify.core.types import IntArray

CPU_CACHE = 2 << 20
"""Rows whose widest activation takes more bytes than this leave a processor's caches, and gain nothing."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Positions of traces, in pairs [w]."""

    trace: Ints
    position: Ints


@final
class BranchDecoder:
    """Samples, scores and reads hidden states of packed branches; prefixes are computed once.

    ``memory`` bytes bound what one batch holds (keys, values, scores, logits) and, a second time, what
    the cache of earlier prefixes keeps. ``max_branches`` bounds the rows of a batch
    (None: what memory allows, on a processor no more than its caches hold).
    """

    def __init__(self, backbone: Backbone, memory: int = 2 << 30, max_branches: int | None = None) -> None:
        self.backbone = backbone
        self.memory = memory
        self.max_branches = max_branches
        self.cache = BlockCache(memory // 2)

    def sample(
        self,
        prefixes: Sequence[IntArray],
        noise: Sequence[NoiseKey],
        settings: Sampling,
        ends: Ends = NEVER,
    ) -> Iterator[Sampled]:
        """One continuation per prefix, yielded as they finish.

        Raises:
            BadInput: logits that are not finite, or a law that leaves no token.
        """
        if not prefixes:
            return
        folded = traces(prefixes)
        order = np.lexsort((folded.keep, folded.owner))
        for part in self.sessions(folded, order):
            with torch.inference_mode():
                session = self._session(folded, part, noise, settings, ends)
            yield from session.run()

    def _session(
        self, folded: Traces, requests: Ints, noise: Sequence[NoiseKey], settings: Sampling, ends: Ends
    ) -> Session:
        """Fill the traces of some requests and take the logits after each distinct prefix."""
        owners, trace = np.unique(folded.owner[requests], return_inverse=True)
        tokens, keep = [folded.tokens[i] for i in owners], folded.keep[requests]
        limit = np.full(len(requests), settings.max_tokens, dtype=np.int64)
        if self.backbone.context is not None:
            limit = np.minimum(limit, self.backbone.context - keep)
        counts = np.bincount(trace, minlength=len(tokens))
        forest, whose, passes = self.read(tokens, counts, Wanted(trace, keep - 1))
        parts = [part for part in passes if len(part[0])]
        opening = torch.cat([logits for _, logits in parts])
        width = min(self.rows_within(int(keep.max()), int(limit.max())), len(requests))
        waiting = Waiting(requests, trace, keep, limit, whose)
        return Session(
            self.backbone,
            forest.seats,
            waiting,
            opening,
            width=width,
            noise=noise,
            settings=settings,
            ends=ends,
        )

    def rows_within(self, prefix: int, own: int) -> int:
        """How many branches with this many prefix and own positions fit the memory."""
        shape = self.backbone.shape
        heads = max(s.heads * s.group for s in shape.layers)
        scores = heads * (align(prefix) + align(own, shape.own_unit)) * 4
        row = own * shape.bytes_per_token + scores + 24 * self.backbone.vocabulary
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
            if held and held + size > self.memory // 2:
                yield order[start:place]
                start, held = place, 0
            held += size
        yield order[start:]

    def read(
        self, tokens: Sequence[IntArray], rows: Ints, wanted: Wanted, layers: Sequence[int] | None = None
    ) -> tuple[Forest, Ints, Iterator[tuple[Ints, Tensor]]]:
        """Logits, or hidden states, at wanted positions of sorted traces.

        Returns the forest, each wanted pair's answer number, and passes of (answer numbers [k], logits
        [k, V] or hidden states [k, layers, width]). Once the passes are exhausted the forest is complete.
        """
        forest = Forest(self.backbone, tokens, rows, self.cache)
        whose, passes = forest.fill(wanted.trace, wanted.position, self.pass_rows)

        def run() -> Iterator[tuple[Ints, Tensor]]:
            for answers, ids, places, step, asked in passes:
                if layers is None:
                    out = self.backbone.run(ids, places, step, asked)
                else:
                    states = self.backbone.hidden(ids, places, step, asked)
                    out = torch.stack([states[layer] for layer in layers], dim=1)
                yield answers, out[: len(answers)]
            forest.remember()

        return forest, whose, run()

    @property
    def pass_rows(self) -> int:
        """Rows of a prefill pass: few enough for their logits to stay small."""
        rows = min(1024, (128 << 20) // (4 * self.backbone.vocabulary))
        return align(max(rows, 1), self.backbone.granule)
