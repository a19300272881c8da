"""Drawing tokens for rows that each have their own settings, ends and noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refork.decoding.prefill import Ints
from refork.decoding.prompts import Prompt, Prompts
from refork.decoding.record import Noises
from refork.decoding.session import NEVER, Ends
from refork.errors import BadInput
from refork.sampling import distribution
from refork.sampling.guide import Guide, masks
from refork.sampling.noise import NoiseKey, gumbels
from refork.sampling.settings import Sampling
from refork.types import FloatArray, IntArray

NOT_FINITE = "the model gave logits that are not finite"


@dataclass(frozen=True, slots=True, eq=False)
class DrawRequest:
    """One request: its prompt, the address of its noise, how it is drawn, and when it ends.

    ``top``: how many of the likeliest tokens to report beside each drawn one. ``without``: the token that its
    first free one must not be, -1: any. ``guide`` makes what says which tokens it may say. ``generated``:
    how many of the last tokens are of the turn itself, which penalties count.
    """

    tokens: IntArray
    noise: NoiseKey
    settings: Sampling
    ends: Ends = NEVER
    top: int = 0
    without: int = -1
    guide: Callable[[], Guide] | None = None
    generated: int = 0


@final
class RunningRequest:
    """A request on its way. ``sampling`` is how its tokens are drawn; those of equal settings share a draw.

    ``words`` are kept only where its end depends on all that was said, a ``guide`` and what penalties read
    (``so_far``) only until it ends.

    Raises: BadInput as the maker of its guide.
    """

    def __init__(self, request_id: int, request: DrawRequest, limit: int) -> None:
        settings = request.settings
        self.request_id, self.request, self.limit = request_id, request, limit
        self.prompt: Prompt | None = None
        self.joined = False
        self.guide = None if request.guide is None else request.guide()
        self.forced = len(settings.forced)
        # What says when a branch ends is its own; all else decides how its tokens are drawn.
        self.sampling = settings.but(
            max_tokens=1, stop=(), stop_ids=(), forced=(), ignore_eos=False, grammar=None
        )
        self.so_far = distribution.SoFar(request.tokens, request.generated) if settings.penalised else None
        # The turn so far: a stop string may span the place where the request goes on.
        self.begun = request.generated
        begun = request.tokens[len(request.tokens) - self.begun :]
        self.words: IntArray | None = (
            None if request.ends.check is None else np.concatenate([begun, np.zeros(32, dtype=np.int32)])
        )

    def leave(self, prompts: Prompts) -> None:
        """Let go of the prompt, the guide and what penalties read."""
        self.guide = self.so_far = None
        if self.prompt is not None:
            prompts.release(self.prompt)
            self.prompt = None

    def ended(self, token: int, generated: int) -> Literal["stop", "length"] | None:
        """How ``token``, the ``generated``-th, ends it, if it does; call once per token, in order."""
        stop = token in self.request.ends.ids
        if self.so_far is not None:
            self.so_far.take(token)
        if self.words is not None and self.request.ends.check is not None:
            count = self.begun + generated
            if count > len(self.words):
                self.words = np.concatenate([self.words, np.zeros_like(self.words)])
            self.words[count - 1] = token
            stop = stop or self.request.ends.check(self.words[:count])
        # A guide hears of tokens that did not end the turn; an end that is forced before its time is one.
        if self.guide is not None and not (token in self.request.ends.ids and generated >= self.forced):
            self.guide.take(token)
            stop = stop or self.guide.over
        # A forced token never ends a turn before all forced tokens are out.
        if stop and generated >= self.forced:
            return "stop"
        return "length" if generated >= self.limit else None


@dataclass(slots=True, eq=False)
class DrawnTokens:
    """One token for each of n rows; ``wrong`` says what is the matter with some, by row."""

    tokens: Ints
    logprobs: FloatArray
    logprobs_t1: FloatArray
    ties: NDArray[np.bool_]
    entropy: FloatArray | None = None
    wrong: dict[int, str] = field(default_factory=dict)


Groups = list[tuple[Sampling, Ints]]


def groups(branches: Sequence[RunningRequest]) -> Groups:
    """Places in ``branches`` by distribution."""
    found: dict[Sampling, list[int]] = {}
    for place, branch in enumerate(branches):
        found.setdefault(branch.sampling, []).append(place)
    return [(settings, np.array(mine, dtype=np.int64)) for settings, mine in found.items()]


@final
@dataclass(slots=True, eq=False)
class Draw:
    """One token for each of some branches, given their logits [n, V].

    ``rows`` [n] are their rows in ``noises``, ``generated`` [n] how many tokens each has emitted. What is
    wrong with one branch is said of that branch, and the others are drawn.
    """

    branches: Sequence[RunningRequest]
    rows: Ints
    generated: Ints
    logits: Tensor
    noises: Noises

    def all(self, parts: Groups) -> DrawnTokens:
        """The tokens of all branches, distribution after distribution."""
        count = len(self.logits)
        nats = np.zeros((2, count), dtype=np.float32)
        out = DrawnTokens(np.zeros(count, dtype=np.int64), nats[0], nats[1], np.zeros(count, dtype=np.bool_))
        out.wrong = unusable(self.logits)
        for settings, places in parts:
            self._draw(settings, places, out)
        return out

    def _draw(self, settings: Sampling, places: Ints, out: DrawnTokens) -> None:
        """Draw the branches of one distribution; where that is refused, each alone."""
        logits = self.logits
        if len(places) < len(logits):
            logits = logits[torch.from_numpy(places).to(logits.device)]
        forced, first, without = self._fixed(settings, places)
        noise = self._noise(settings, places)
        allowed = self._allowed(places, out)
        history = None
        if settings.penalised:
            history = distribution.History.of(
                [self.branches[place].so_far for place in places], logits.device
            )
        try:
            drawn = distribution.draw(
                logits,
                settings,
                noise,
                first=first,
                forced=forced,
                without=without,
                allowed=allowed,
                history=history,
            )
        except BadInput as error:
            if len(places) == 1:
                out.wrong.setdefault(int(places[0]), str(error))
                return
            for place in places:
                self._draw(settings, np.array([place], dtype=np.int64), out)
            return
        out.tokens[places] = drawn.tokens.cpu().numpy()
        out.logprobs[places] = drawn.logprobs.cpu().numpy()
        out.logprobs_t1[places] = drawn.logprobs_t1.cpu().numpy()
        out.ties[places] = drawn.ties.cpu().numpy()
        if drawn.entropy is not None:
            if out.entropy is None:
                out.entropy = np.zeros(len(out.tokens), dtype=np.float32)
            out.entropy[places] = drawn.entropy.cpu().numpy()

    def _fixed(self, settings: Sampling, places: Ints) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Forced tokens [k] (-1: free), who is at the first free token, and what it must not be (-1).

        Each where it matters.
        """
        device, offset = self.logits.device, self.generated[places]
        lengths = np.array([self.branches[place].forced for place in places], dtype=np.int64)
        forced = first = without = None
        if (lengths > offset).any():
            table = np.full(len(places), -1, dtype=np.int64)
            for i in np.flatnonzero(lengths > offset):
                table[i] = self.branches[places[i]].request.settings.forced[offset[i]]
            forced = torch.from_numpy(table).to(device)
        if settings.banned_first:
            first = torch.from_numpy(offset == lengths).to(device)
        barred = [self.branches[place].request.without for place in places]
        left_out = np.where(offset == lengths, np.array(barred, dtype=np.int64), -1)
        if (left_out >= 0).any():
            without = torch.from_numpy(left_out).to(device)
        return forced, first, without

    def _allowed(self, places: Ints, out: DrawnTokens) -> Tensor | None:
        """What the branches may say [k, V], where some have a guide; what is wrong with one is said of it."""
        guides = {i: guide for i, place in enumerate(places) if (guide := self.branches[place].guide)}
        if not guides:
            return None
        mask, wrong = masks(guides, len(places), self.logits.shape[1])
        for i, why in wrong.items():
            out.wrong.setdefault(int(places[i]), why)
        return torch.from_numpy(mask).to(self.logits.device)

    def _noise(self, settings: Sampling, places: Ints) -> Tensor:
        """Uniforms [k] or Gumbels [k, V] of the next tokens, from their addresses alone."""
        if settings.temperature == 0.0:
            return self.logits.new_zeros(0, dtype=torch.float64)
        keys = [self.branches[place].request.noise for place in places]
        if settings.coupling == "gumbel":
            values = gumbels(keys, self.generated[places], self.logits.shape[1])
        else:
            values = self.noises.take(keys, self.rows[places], self.generated[places])
        return torch.from_numpy(values).to(self.logits.device)


def unusable(logits: Tensor) -> dict[int, str]:
    """What is wrong with rows of logits [n, V] that are not finite."""
    # The maximum is enough: NaN comes through it, and a single minus infinity is a token never drawn.
    peak = logits.amax(dim=-1)
    finite = torch.isfinite(peak)
    if bool(finite.all()):
        return {}
    bad = np.flatnonzero(~finite.cpu().numpy())
    return {int(row): f"{NOT_FINITE} (maximum {float(peak[row])})" for row in bad}
