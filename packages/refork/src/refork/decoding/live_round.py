"""One round of a speculator over the running branches: draft, verify in one pass, settle, learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

import numpy as np
import torch
from torch import Tensor

from refork.decoding.live_draw import Draw, RunningRequest, groups, unusable
from refork.decoding.live_rows import LiveRows
from refork.decoding.live_say import Said, Verified, failed, say_settled
from refork.decoding.prefill import Ints
from refork.decoding.speculator import ActiveRows, Drafts, Settled, Speculator
from refork.errors import BadInput, InternalError
from refork.sampling.settings import Sampling


@final
class Rounds:
    """A speculator at work on some rows."""

    def __init__(self, rows: LiveRows, speculator: Speculator) -> None:
        self.rows, self.speculator = rows, speculator

    def join(self, which: Ints) -> None:
        """Newcomers in these rows [n] that did not end with their first token."""
        rows = self.rows
        branches = [rows.branches[row] for row in which if rows.batch.alive[row]]
        prompts = [branch.prompt for branch in branches if branch.prompt is not None]
        if not branches:
            return
        for branch in branches:
            branch.joined = True
        request_ids = np.array([branch.request_id for branch in branches], dtype=np.int64)
        self.speculator.join(request_ids, [p.tokens for p in prompts], [p.states for p in prompts])

    def run(self) -> list[Said] | None:
        """What the branches say in one round, or None where a plain step is to be made."""
        rows = self.rows
        living = np.flatnonzero(rows.batch.alive)
        if self._bound(living):
            return None
        branches = self._branches(living)
        drafts = self.speculator.draft(branches)
        if drafts is None:
            return None
        drafts = _within(drafts, branches)
        spread = 1 + drafts.lengths
        table = np.concatenate([branches.newest[:, None], drafts.tokens], axis=1)
        tokens = table[np.arange(table.shape[1]) < spread[:, None]]
        lengths = np.zeros(len(rows.branches), dtype=np.int64)
        lengths[living] = spread
        logits, states = rows.spread(lengths, tokens)
        verified, refused = self._settled(living, branches, drafts, logits)
        kept = np.ones(len(living), dtype=np.int64)
        kept[[item.place for item in verified]] = [1 + item.settled.accepted for item in verified]
        self.speculator.fed(branches, spread, kept, _some(states, logits))
        return say_settled(rows, verified, logits) + refused

    def fed_one_each(self, logits: Tensor, states: Tensor | None) -> None:
        """A plain step was made: hidden states [n, layers, width] of the tokens it fed."""
        living = np.flatnonzero(self.rows.batch.alive)
        ones = np.ones(len(living), dtype=np.int64)
        mine = torch.from_numpy(living).to(logits.device)
        self.speculator.fed(self._branches(living), ones, ones, _some(states, logits)[mine])

    def _bound(self, living: Ints) -> bool:
        """Whether some next token is not free to be proposed: it is forced, or the first after those."""
        return any(
            int(self.rows.batch.said[row]) <= self.rows.branches[row].forced
            for row in living
            if self.rows.branches[row].forced
        )

    def _branches(self, living: Ints) -> ActiveRows:
        rows, batch = self.rows, self.rows.batch
        mine = [rows.branches[row] for row in living]
        said = batch.said[living]
        return ActiveRows(
            request_id=np.array([branch.request_id for branch in mine], dtype=np.int64),
            newest=rows.newest[living],
            place=batch.keep[living] + said - 1,
            said=said,
            room=np.array([_room(b, int(n)) for b, n in zip(mine, said, strict=True)], dtype=np.int64),
            settings=[_drafted(branch.request.settings) for branch in mine],
            noise=[branch.request.noise for branch in mine],
        )

    def _settled(
        self, living: Ints, branches: ActiveRows, drafts: Drafts, logits: Tensor
    ) -> tuple[list[Verified], list[Said]]:
        """What each branch says, and those that can say nothing."""
        spread = 1 + drafts.lengths
        first = np.cumsum(spread) - spread
        rows = self.rows
        broken = unusable(logits)
        if broken:
            # The others must be settled; what comes of these rows is not used.
            logits = logits.index_fill(0, torch.tensor(sorted(broken), device=logits.device), 0.0)
        refused: list[Said] = []
        try:
            settled: Sequence[Settled | None] = self.speculator.settle(branches, drafts, logits)
        except BadInput:
            settled = [None] * len(living)
            redo = np.arange(len(living))
        else:
            redo = np.flatnonzero(np.array([_stepwise(rows.branches[row]) for row in living], dtype=np.bool_))
        if len(redo):
            opening = logits[torch.from_numpy(first[redo]).to(logits.device)]
            alone, refused = self._one_each(living[redo], opening)
            settled = list(settled)
            for place, item in zip(redo.tolist(), alone, strict=True):
                settled[place] = item
        if len(settled) != len(living):
            raise InternalError(f"a speculator settled {len(settled)} of {len(living)} branches")
        found = []
        for place, item in enumerate(settled):
            if item is None:
                continue
            low, fed = int(first[place]), int(spread[place])
            bad = next((row for row in range(fed) if low + row in broken), None)
            why = None if bad is None else broken[low + bad]
            found.append(Verified(place, int(living[place]), low, fed, item, bad, why))
        return found, refused

    def _one_each(self, living: Ints, logits: Tensor) -> tuple[list[Settled | None], list[Said]]:
        """One token for each of some branches, drawn as without drafts; what is wrong is said of that one."""
        rows = self.rows
        mine = [rows.branches[row] for row in living]
        drawn = Draw(mine, living, rows.batch.said[living], logits, rows.noises).all(groups(mine))
        settled: list[Settled | None] = []
        refused = []
        for place, row in enumerate(living.tolist()):
            if place in drawn.wrong:
                refused.append(failed(mine[place].request_id, drawn.wrong[place]))
                rows.leave(row, spoilt=True)
                settled.append(None)
                continue
            one = slice(place, place + 1)
            nats = drawn.logprobs[one], drawn.logprobs_t1[one]
            entropy = None if drawn.entropy is None else drawn.entropy[one]
            ties = drawn.ties[one].astype(np.int64)
            settled.append(Settled(drawn.tokens[one], 0, *nats, entropy, ties))
        return settled, refused


def _stepwise(branch: RunningRequest) -> bool:
    """Whether a token's distribution depends on those before by more than the model: grammar, penalties."""
    return branch.guide is not None or branch.law.penalised


def _drafted(settings: Sampling) -> Sampling:
    """Settings as a speculator sees them: of penalised branches it settles nothing that is used."""
    if not settings.penalised:
        return settings
    return settings.but(repetition_penalty=None, presence_penalty=None, frequency_penalty=None)


def _room(branch: RunningRequest, said: int) -> int:
    """Tokens that a branch may say; one that is drawn token by token is drafted nothing."""
    return 1 if _stepwise(branch) else branch.limit - said


def _within(drafts: Drafts, branches: ActiveRows) -> Drafts:
    """Drafts that leave room for the token that every round adds."""
    lengths = np.minimum(drafts.lengths, branches.room - 1)
    return drafts if (lengths == drafts.lengths).all() else replace(drafts, lengths=lengths)


def _some(states: Tensor | None, like: Tensor) -> Tensor:
    return like.new_zeros((len(like), 0, 0)) if states is None else states
