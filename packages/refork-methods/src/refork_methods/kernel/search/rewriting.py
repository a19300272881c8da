"""The writer that needs no model: legal rewrites of the source, those that answer findings first.

How advice is weighed, silenced and mixed with unguided moves is ours.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol, final

import numpy as np

from refork.errors import UserError
from refork_methods.kernel.rewrite import Move
from refork_methods.kernel.search.model import Proposal, Trial, WriterState
from refork_methods.kernel.tool import Slip

#: The next finding's advice weighs so much of the one before it.
_NEXT = 0.5
#: Largest change of speed, as a factor, that one try counts for in what is known of a family; and a failure.
_CLIP, _FAILED = 4.0, 0.5
#: Tries of a family on the way here without a gain after which a finding's advice for it is silenced.
_PATIENCE = 2
REORDERED = "results may be rounded in another way"


class Library(Protocol):
    """Rewrites of a source: which are legal, and what each makes of it. A module will do."""

    def moves(
        self, source: str, entry: str, flags: tuple[str, ...], slips: list[Slip] | None = None
    ) -> Sequence[Move]:
        """All legal ones, in a stable order; rules that break are put into ``slips``."""
        ...

    def apply(
        self, source: str, entry: str, flags: tuple[str, ...], move: Move
    ) -> tuple[str, tuple[str, ...]]:
        """The source and flags after a move; BadInput where it cannot be made after all."""
        ...


@final
class RewriteWriter:
    """Draws one legal move at a time, by the findings' order and by what its kind has brought so far.

    A share ``unguided`` of the tries follows no advice. A tool's advice for one kind of move is silenced on a
    path where two tries of it (one, where the kind has no parameters to vary) brought nothing. A rule that
    breaks offers nothing, and is reported. Moves that one of the kinds ``keys`` makes legal are offered with
    that before them.
    """

    def __init__(self, library: Library, unguided: float = 0.15, keys: Sequence[str] = ()) -> None:
        self._library, self._unguided, self._keys = library, unguided, tuple(keys)
        self._moves = lru_cache(maxsize=512)(self._listed)

    @property
    def name(self) -> str:
        """Rewrites, with the share that follows no advice."""
        return f"rewrite(unguided={self._unguided:g})"

    def propose(self, state: WriterState) -> Proposal | None:
        """A legal move that gives code which was not tried; None where there is none, or the kernel fails."""
        if not state.evaluated.ok:
            return None
        source, flags = state.candidate.source, state.candidate.flags
        try:
            legal, slips = self._moves(source, state.entry, flags)
        except UserError as error:
            if state.number == 0:
                raise  # the user's own source, which the user can mend
            legal, slips = (), (Slip.of(f"reading node {state.number}", error),)
        for slip in slips:
            state.report(slip)
        left = [one for one in legal if one.id not in state.tried]
        rng = np.random.default_rng(state.key)
        free = bool(rng.random() < self._unguided)
        while left:
            advice = {} if free else advised(left, state)
            weights = advice or plain_weights(left, state.trials)
            names = [one for one in left if one.id in weights]
            share = np.array([weights[one.id] for one in names])
            move = names[int(rng.choice(len(names), p=share / share.sum()))]
            left.remove(move)
            made = self._made(state, move, bool(advice))
            if made is not None and made.candidate.digest not in state.known:
                return made
        return None

    def _listed(
        self, source: str, entry: str, flags: tuple[str, ...]
    ) -> tuple[Sequence[Move], tuple[Slip, ...]]:
        """Legal moves, those that a key opens last, and what broke while they were looked for."""
        slips: list[Slip] = []
        try:
            own = self._library.moves(source, entry, flags, slips)
        except UserError:
            raise
        except Exception as error:  # the reader itself: no rule can be asked
            return (), (*slips, Slip.of(f"reading {entry}", error))
        known, found = {one.id for one in own}, [*own]
        for key in (one for one in own if one.name in self._keys):
            try:
                opened = self._library.apply(source, entry, flags, key)
                after = self._library.moves(opened[0], entry, opened[1], slips)
            except UserError:
                continue
            except Exception as error:
                slips.append(Slip.of(f"rule {key.id}", error))
                continue
            found += [one.after(key) for one in after if one.id not in known]
        return found, tuple(slips)

    def _made(self, state: WriterState, move: Move, guided: bool) -> Proposal | None:
        """The move's code; None where it cannot be applied after all."""
        source, flags = state.candidate.source, state.candidate.flags
        try:
            for step in (move,) if move.first is None else (move.first, move):
                source, flags = self._library.apply(source, state.entry, flags, step)
        except UserError:
            return None
        except Exception as error:
            state.report(Slip.of(f"rule {move.id}", error))
            return None
        seen = state.observation.findings if state.observation and guided else ()
        answered = [one for one in seen if answers(move, one.tool)]
        why = answered[0].sentence if answered else "no advice"
        tools = tuple(dict.fromkeys(one.tool for one in answered))
        granted = [one for one in move.assumes.split("; ") if one] + [REORDERED] * move.reassociates
        return Proposal(source, flags, move.id, why, move.name, tools, granted=tuple(granted))


def answers(move: Move, tool: str) -> bool:
    """Whether a move acts on a tool's findings; tools of one name on GPU and CPU count as one."""
    return tool in move.answers or tool.removeprefix("Cpu") in move.answers


def advised(left: Sequence[Move], state: WriterState) -> dict[str, float]:
    """Weights of the moves that answer a finding whose advice is not silenced; empty where none does."""
    if state.observation is None:
        return {}
    quiet = silenced(state)
    known = worth(state.trials)
    size = Counter(one.name for one in left)
    found: dict[str, float] = {}
    # A finding that no move answers takes no rank: the next one moves up.
    rank = 0
    for finding in state.observation.findings:
        answering = [
            one for one in left if answers(one, finding.tool) and (finding.tool, one.name) not in quiet
        ]
        for one in answering:
            # Shared out among the moves of a kind, or the one with most parameters would be drawn the most.
            weight = _NEXT**rank * known.get(one.name, 1.0) / size[one.name]
            found[one.id] = found.get(one.id, 0.0) + weight
        rank += bool(answering)
    return found


def plain_weights(left: Sequence[Move], trials: Sequence[Trial]) -> dict[str, float]:
    """Weights without advice: every kind alike, but for what it has brought so far."""
    known = worth(trials)
    size = Counter(one.name for one in left)
    return {one.id: known.get(one.name, 1.0) / size[one.name] for one in left}


def worth(trials: Sequence[Trial]) -> dict[str, float]:
    """What each kind of move has brought in this search: the geometric mean gain, with one try of 1 added."""
    logs: Mapping[str, list[float]] = defaultdict(lambda: [0.0])
    for one in trials:
        gain = one.gain if one.gain is not None else None if one.ok else _FAILED
        if gain is not None:
            logs[one.family].append(math.log(min(max(gain, 1 / _CLIP), _CLIP)))
    return {family: math.exp(sum(found) / len(found)) for family, found in logs.items()}


def silenced(state: WriterState) -> set[tuple[str, str]]:
    """Pairs of a tool and a kind of move that were tried on its advice from this path, without a gain."""
    path = set(state.path)
    failed: Counter[tuple[str, str]] = Counter()
    for one in state.trials:
        if one.parent in path and (one.gain is None or one.gain <= state.noise):
            # A move without parameters has nothing left to vary.
            step = 1 if "(" in one.move and not one.move.endswith("()") else _PATIENCE
            failed.update({(tool, one.family): step for tool in one.answers})
    return {pair for pair, number in failed.items() if number >= _PATIENCE}
