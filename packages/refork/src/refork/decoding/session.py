"""One batch of requests whose traces lie in memory together: draw, step, leave, join."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refork.decoding.prefill import Ints
from refork.decoding.record import CapturedStates, Noises, RowOutputs, Sampled
from refork.decoding.states import Edit, States
from refork.errors import BadInput
from refork.sampling import distribution
from refork.sampling.guide import Guide, masks
from refork.sampling.noise import NoiseKey, gumbels
from refork.sampling.settings import Sampling
from refork.types import IntArray


@dataclass(frozen=True, slots=True)
class Ends:
    """When a continuation stops: after one of ``ids``, or when ``check`` of its turn's tokens so far says so.

    Of a request, by the caller's number, ``guide`` makes the guide, where a grammar says what may be said,
    and ``begun`` gives what its turn has said already, where ``check`` is to see that too.
    """

    ids: frozenset[int] = frozenset()
    check: Callable[[IntArray], bool] | None = None
    guide: Callable[[int], Guide] | None = None
    begun: Callable[[int], IntArray] | None = None


NEVER = Ends()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Requests [n] in the order of their traces.

    ``request`` is the caller's number, ``trace`` and ``keep`` the prefix, ``limit`` the most tokens it may
    say, ``without`` the token that its first free one must not be (-1: any), ``opening`` its row of the
    logits after the distinct prefixes.
    """

    request: Ints
    trace: Ints
    keep: Ints
    limit: Ints
    without: Ints
    opening: Ints


class BatchRows(Protocol):
    """The rows of a running batch; row i is a branch, as in :class:`Batch`."""

    request: Ints
    generated: Ints
    alive: NDArray[np.bool_]

    def __len__(self) -> int:
        """How many rows there are, the dead among them."""
        ...

    def reseat(self, request: Ints, trace: Ints, keep: Ints) -> None:
        """Drop the dead, move the living together, and seat newcomers behind them."""
        ...

    def feed(
        self, newest: IntArray, edits: tuple[Edit, ...] = (), layers: tuple[int, ...] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """Feed every row's newest token: logits [n, V], and hidden states [n, layers, width] if wanted."""
        ...

    def padded(self, count: int) -> int:
        """How many rows a pass over ``count`` rows computes."""
        ...


@final
class Session:
    """A ``batch`` of at most ``width`` rows that works off its waiting requests."""

    def __init__(
        self,
        batch: BatchRows,
        waiting: Waiting,
        opening: Tensor,
        *,
        width: int,
        noise: Sequence[NoiseKey],
        settings: Sampling,
        ends: Ends,
        edits: tuple[Edit, ...] = (),
        captured: CapturedStates | None = None,
        so_far: Callable[[int], distribution.SoFar] | None = None,
    ) -> None:
        self.edits, self.captured = edits, captured
        self.batch, self.waiting, self.opening = batch, waiting, opening
        self.noise, self.settings, self.ends = noise, settings, ends
        self.end_ids = np.array(sorted(ends.ids), dtype=np.int64)
        self.width = width
        self._guides: dict[int, Guide] = {}
        # What penalties read of each request, by the caller's number; ``so_far`` says how it begins.
        self._so_far: dict[int, distribution.SoFar] = {}
        self._begin = so_far
        self.noises = Noises()
        self.record = RowOutputs(width, int(waiting.limit.max()), settings.entropy_top_k is not None)

    def run(self) -> Iterator[Sampled]:
        """Seat, step and drop until nobody waits; yields continuations as they finish."""
        batch, count, seated = self.batch, len(self.waiting.request), 0
        while seated < count or batch.alive.any():
            living = int(batch.alive.sum())
            joining = min(self.width - living, count - seated)
            # Reseating copies keys and values, so it waits until enough rows would be put to use.
            if self._should_reseat(living, joining):
                finished = self._reseat(np.arange(seated, seated + joining))
                seated += joining
            else:
                with torch.inference_mode():
                    finished = self._advance()
            yield from finished

    def _should_reseat(self, living: int, joining: int) -> bool:
        """Whether an eighth of the rows would be put to better use."""
        if joining:
            return joining * 8 >= self.width or living == 0
        # Nobody waits: moving pays only where the pass over what is left has fewer rows, padding counted.
        before, after = self.batch.padded(len(self.batch)), self.batch.padded(living)
        return before > after and (before - after) * 8 >= before

    def _reseat(self, arriving: Ints) -> list[Sampled]:
        """Drop the dead, seat newcomers, and draw the newcomers' first tokens."""
        batch, waiting = self.batch, self.waiting
        with torch.inference_mode():
            # Before the batch moves its rows, for the living are found by their old places.
            stay = np.flatnonzero(batch.alive)
            self.record.keep(stay, arriving)
            self.noises.move_rows(np.concatenate([stay, np.full(len(arriving), -1)]))
            batch.reseat(arriving, waiting.trace[arriving], waiting.keep[arriving])
            if not len(arriving):
                return []
            rows = torch.from_numpy(waiting.opening[arriving]).to(self.opening.device)
            return self._draw(self.opening[rows], len(batch) - len(arriving))

    def _advance(self) -> list[Sampled]:
        """Feed every row's newest token and draw the next one."""
        kept = self.captured
        layers = kept.layers if kept is not None and kept.fresh != "none" else ()
        logits, states = self.batch.feed(self.record.newest(self.batch.generated), self.edits, layers)
        closed = [] if states is None or kept is None else self._keep(kept, states)
        return closed + self._draw(logits, 0)

    def _keep(self, kept: CapturedStates, found: Tensor) -> list[Sampled]:
        """Keep the states of the tokens just fed; returns branches that only waited for them."""
        batch, states = self.batch, found.float().cpu().numpy()
        closed = []
        for row in np.flatnonzero(batch.alive):
            request = int(batch.request[row])
            kept.put(request, int(batch.generated[row]), states[row])
            waiting = kept.waiting.pop(request, None)
            if waiting is not None:
                batch.alive[row] = False
                closed.append(replace(waiting, states=self._states(request)))
        return closed

    def _states(self, request: int) -> States | None:
        return (
            None if self.captured is None else self.captured.take(request, int(self.waiting.opening[request]))
        )

    def _draw(self, logits: Tensor, start: int) -> list[Sampled]:
        """Draw one token for rows ``start ..`` of the batch; returns those that are finished."""
        batch = self.batch
        rows = slice(start, len(batch))
        offset, whose = batch.generated[rows], self.waiting.request[batch.request[rows]]
        self._check(logits, whose, offset, batch.alive[rows])
        forced = self.settings.forced
        fixed = first = None
        if forced:
            # Beyond the last forced token every offset reads the -1 at the end: free.
            table = np.array([*forced, -1], dtype=np.int64)
            fixed = torch.from_numpy(table[np.minimum(offset, len(forced))]).to(logits.device)
        if self.settings.banned_first:
            first = torch.from_numpy(offset == len(forced)).to(logits.device)
        noise = self._noise(whose, offset, rows, logits)
        without = self._without(batch.request[rows], offset, logits)
        alive = batch.alive[rows]
        allowed, wrong = self._allowed(batch.request[rows], offset, alive, logits)
        history = self._history(whose, offset, alive, logits)
        drawn = distribution.draw(
            logits,
            self.settings,
            noise,
            first=first,
            forced=fixed,
            without=without,
            allowed=allowed,
            history=history,
        )
        tokens = drawn.tokens.cpu().numpy()
        if history is not None:
            for i in np.flatnonzero(alive).tolist():
                self._so_far[int(whose[i])].take(int(tokens[i]))
        self.record.put(rows, offset, alive, tokens, drawn)
        # Dead rows were drawn for too, which costs nothing, and do not count.
        batch.generated[rows] += alive
        return self._finished(rows, tokens, wrong)

    def _history(
        self, whose: Ints, offset: Ints, alive: NDArray[np.bool_], logits: Tensor
    ) -> distribution.History | None:
        """What penalties read of the living rows, where there are any."""
        if self._begin is None:
            return None
        rows: list[distribution.SoFar | None] = []
        for number, said, living in zip(whose.tolist(), offset.tolist(), alive.tolist(), strict=True):
            if living and said == 0:
                self._so_far[number] = self._begin(number)
            rows.append(self._so_far[number] if living else None)
        return distribution.History.of(rows, logits.device)

    def _without(self, request: Ints, offset: Ints, logits: Tensor) -> Tensor | None:
        """What rows at their first free token must not say (-1: anything), where some must not."""
        found = np.where(offset == len(self.settings.forced), self.waiting.without[request], -1)
        return torch.from_numpy(found).to(logits.device) if (found >= 0).any() else None

    def _allowed(
        self, request: Ints, offset: Ints, alive: NDArray[np.bool_], logits: Tensor
    ) -> tuple[Tensor | None, dict[int, str]]:
        """Which tokens the rows may draw [n, V], where a grammar says so, and why some may draw none."""
        make = self.ends.guide
        if make is None:
            return None, {}
        guides: dict[int, Guide] = {}
        for i in np.flatnonzero(alive).tolist():
            number = int(self.waiting.request[request[i]])
            if offset[i] == 0:
                self._guides[number] = make(number)
            guides[i] = self._guides[number]
        settings, without = self.settings, self.waiting.without

        def barred(row: int) -> list[int]:
            if offset[row] != len(settings.forced):
                return list(settings.banned)
            left_out = int(without[request[row]])
            return [*settings.banned, *settings.banned_first, *([left_out] if left_out >= 0 else [])]

        mask, wrong = masks(guides, len(request), logits.shape[1], barred)
        return torch.from_numpy(mask).to(logits.device), wrong

    def _guided(self, whose: Ints, said: Ints, tokens: Ints, stop: NDArray[np.bool_]) -> None:
        """Tell the guides of rows what these said; marks those that are over with it."""
        for i, number in enumerate(whose.tolist()):
            guide = self._guides.get(number)
            if guide is None or (stop[i] and said[i] >= len(self.settings.forced)):
                continue
            guide.take(int(tokens[i]))
            # A grammar may be whole where no end id was drawn.
            stop[i] |= guide.over

    def _finished(self, rows: slice, tokens: Ints, wrong: dict[int, str]) -> list[Sampled]:
        """Mark rows that end with this token and hand out their continuations; ``wrong`` ones before it."""
        batch = self.batch
        said, request = batch.generated[rows], batch.request[rows]
        stop = np.isin(tokens, self.end_ids)
        whose = self.waiting.request[request]
        if self._guides:
            self._guided(whose, said, tokens, stop)
        if self.ends.check is not None:
            for i in np.flatnonzero(~stop & batch.alive[rows]):
                turn = self.record.tokens[rows.start + i, : said[i]]
                if self.ends.begun is not None:
                    turn = np.concatenate([self.ends.begun(int(whose[i])), turn])
                stop[i] = self.ends.check(turn)
        # A forced token never ends a turn before all forced tokens are out.
        stop &= said >= len(self.settings.forced)
        done = (stop | (said >= self.waiting.limit[request])) & batch.alive[rows]
        # A row whose grammar allows nothing ends here, before the token that stands for none.
        done[list(wrong)] = True
        batch.alive[rows] &= ~done
        finished = []
        for place in np.flatnonzero(done).tolist():
            row, mine, why = rows.start + place, int(request[place]), wrong.get(place)
            self._guides.pop(int(whose[place]), None)
            self._so_far.pop(int(whose[place]), None)
            count = int(said[place]) - (why is not None)
            item = self.record.get(row, count, int(whose[place]), bool(stop[place]), why)
            if why is None and self.captured is not None and self.captured.due(int(said[place])):
                # Its newest token was never fed, so its states are still to come.
                batch.alive[row] = True
                self.captured.waiting[mine] = item
            else:
                finished.append(replace(item, states=self._states(mine)))
        return finished

    def _noise(self, whose: Ints, offset: Ints, rows: slice, logits: Tensor) -> Tensor:
        """Uniforms [n] or Gumbels [n, V] of the rows' next tokens, from their addresses alone."""
        if self.settings.temperature == 0.0:
            return logits.new_zeros(0, dtype=torch.float64)
        keys = [self.noise[i] for i in whose]
        if self.settings.coupling == "gumbel":
            values = gumbels(keys, offset, logits.shape[1])
        else:
            values = self.noises.take(keys, np.arange(rows.start, rows.stop), offset)
        return torch.from_numpy(values).to(logits.device)

    def _check(self, logits: Tensor, whose: Ints, offset: Ints, alive: NDArray[np.bool_]) -> None:
        """Refuse logits of a living row that are not finite."""
        peak = logits.amax(dim=-1)
        bad = (~torch.isfinite(peak)).cpu().numpy() & alive
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise BadInput(
                f"the model gave logits that are not finite (maximum {float(peak[row])})",
                where=f"request {whose[row]}, new token {offset[row]}",
                hint="check the weights and the dtype; float32 rarely overflows",
            )
