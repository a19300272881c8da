"""Continuous batching: requests join a running batch of branches, and leave it, at any step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from refork.decoding.draw import Draw, DrawRequest, RunningRequest, groups, unusable
from refork.decoding.loop import Decoder, packed
from refork.decoding.plan import align
from refork.decoding.prefill import Ints
from refork.decoding.prompts import Prompts, Reading, begins_alike
from refork.decoding.rows import LiveRows, StepOutput, Verified, failed, say, say_settled
from refork.decoding.speculator import ActiveRows, Drafts, Settled, Speculator
from refork.errors import BadInput, CannotDo, InternalError, ReforkError
from refork.sampling.settings import Sampling

__all__ = ["DrawRequest", "LiveDecoder", "StepOutput"]


@final
class LiveDecoder:
    """A batch of at most ``width`` rows of a branching decoder, for one thread to drive.

    A request's tokens and log-probs are those of :meth:`BranchDecoder.sample` for the same noise, whoever
    joins or leaves beside it. Prompts are read in passes of at most ``chunk`` rows while branches run.
    Prompts that begin alike are computed once and equal ones are held once, for as long as
    somebody continues them or the decoder's cache remembers. Memory is bounded as the decoder's is. With a
    ``speculator`` branches may say several tokens per step.

    Raises:
        BadInput: a width or chunk below 1, or a layer of the speculator that does not exist.
        CannotDo: a decoder whose branches are not packed, or hidden states that cannot be reached.
    """

    def __init__(
        self,
        decoder: Decoder[Any],
        *,
        width: int = 64,
        speculator: Speculator | None = None,
        chunk: int = 128,
    ) -> None:
        self.decoder = packed(decoder)
        if speculator is not None and self.decoder.switch is not None:
            raise CannotDo(
                f"drafts cannot be verified with this model, which computes contexts of more than "
                f"{self.decoder.switch} tokens otherwise than shorter ones"
            )
        if width < 1 or chunk < 1:
            raise BadInput(f"a width of {width} and a chunk of {chunk} must be at least 1")
        self.chunk = chunk
        layers = () if speculator is None else self.decoder.number(speculator.layers)
        self._width, self._layers, self._speculator = width, layers, speculator
        self._next = 0
        self._begin()

    def _begin(self) -> None:
        """Nobody is here."""
        decoder, speculator = self.decoder, self._speculator
        self.prompts = Prompts(decoder, self._layers, 0 if speculator is None else speculator.window)
        self._intake = Intake(self.prompts, self._width)
        self._rows = LiveRows(decoder, self.prompts, self._layers)
        self._rounds = None if speculator is None else Rounds(self._rows, speculator)
        self._refused: list[StepOutput] = []

    @property
    def waiting(self) -> int:
        """Requests that have said nothing yet."""
        return len(self._intake)

    @property
    def running(self) -> int:
        """Requests that say something in every step."""
        return len(self._rows.where)

    @property
    def idle(self) -> bool:
        """Whether a step would do nothing."""
        return not (self._rows.where or self.waiting or self._refused)

    @property
    def passes(self) -> int:
        """Passes over running rows so far."""
        return self._rows.passes

    @property
    def bytes(self) -> int:
        """Memory of keys and values: of branches, of their prompts, and of the decoder's cache."""
        held = self._rows.bytes + self._intake.bytes + self.prompts.prefix_cache.bytes
        return held + self.decoder.cache.bytes

    def submit(self, request: DrawRequest) -> int:
        """Its request id. What is wrong with a request is said by the next step, with finish ``error``."""
        request_id, self._next = self._next, self._next + 1
        wrong = self._wrong(request)
        if wrong is not None:
            self._refused.append(failed(request_id, wrong))
            return request_id
        limit = request.settings.max_tokens
        if self.decoder.backbone.context is not None:
            limit = min(limit, self.decoder.backbone.context - len(request.tokens))
        try:
            self._intake.add(RunningRequest(request_id, request, limit))
        except BadInput as error:
            self._refused.append(failed(request_id, str(error)))
        return request_id

    def cancel(self, request_id: int) -> None:
        """Forget a request; nothing more is said of it. One that is over or unknown changes nothing."""
        self._refused = [said for said in self._refused if said.request_id != request_id]
        row = self._rows.where.get(request_id)
        if row is not None:
            with torch.inference_mode():  # rows move up, and were made in that mode
                self._rows.leave(row)
                self._rows.tidy()
            self._forget()
        else:
            self._intake.drop(request_id)

    def clear(self) -> None:
        """Forget every request, in whatever state a step that failed has left them."""
        rows = self._rows
        # A speculator keeps states of them, also where the step that failed was not its own.
        rows.left += [branch.request_id for branch in rows.living if branch.joined]
        self._forget()
        self._begin()

    def step(self) -> list[StepOutput]:
        """A pass over running branches, then one over prompts that wait; what was said, once per request id.

        Raises:
            BadInput: an edit gave something of the wrong shape in a pass over running branches. Nothing is
                said then, and they are still there to be cancelled. After any other error :meth:`clear`.
        """
        said, self._refused = self._refused, []
        rows = self._rows
        with torch.inference_mode():
            if rows.where:
                # First those who speak: a new prompt makes nobody wait for his next token.
                said += self._advance()
                if not rows.where:
                    rows.tidy()
            self._intake.admit(rows.living, self._limit)
            ready, lost = self._intake.advance()
            said += [failed(branch.request_id, why) for branch, why in lost]
            if ready:
                said += self._open(ready)
        self._forget()
        return said

    def _forget(self) -> None:
        """Tell the speculator who left."""
        if self._rows.left:
            left, self._rows.left = self._rows.left, []
            if self._rounds is not None:
                self._rounds.speculator.leave(np.array(left, dtype=np.int64))

    def _limit(self) -> int:
        """Rows of the next pass over prompts."""
        granule = self.decoder.backbone.granule
        if self._rows.where:
            # A short pass, for everybody who speaks waits for it.
            return max(self.chunk // granule, 1) * granule
        return self.decoder.pass_rows

    def _wrong(self, ask: DrawRequest) -> str | None:
        """What keeps a request from being run at all."""
        backbone, count = self.decoder.backbone, len(ask.tokens)
        if count == 0:
            return "the prompt is empty"
        if backbone.context is not None and count >= backbone.context:
            return f"{count} tokens leave no room in a context of {backbone.context}"
        settings = ask.settings
        ids = np.array([*settings.forced, *settings.banned, *settings.banned_first], dtype=np.int64)
        for tokens in (np.asarray(ask.tokens), ids):
            if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < backbone.vocabulary:
                return f"a token id is outside the vocabulary of {backbone.vocabulary}"
        return None

    def _open(self, ready: Sequence[RunningRequest]) -> list[StepOutput]:
        """Seat requests whose prompts are read, and draw their first tokens."""
        fresh = self._rows.admit(ready)
        logits = torch.stack([branch.prompt.opening for branch in ready if branch.prompt is not None])
        said = np.zeros(len(ready), dtype=np.int64)
        drawn = Draw(ready, fresh, said, logits, self._rows.noises).all(groups(ready))
        spoken = say(self._rows, fresh, drawn, logits)
        if self._rounds is not None:
            self._rounds.join(fresh)
        return spoken

    def _advance(self) -> list[StepOutput]:
        """A pass over the running branches: a round of the speculator, or one token each."""
        rows, rounds = self._rows, self._rounds
        rows.tidy()
        if rounds is not None:
            said = rounds.run()
            if said is not None:
                return said
        logits, states = rows.plain()
        every = np.arange(len(rows.branches))
        drawn = Draw(rows.branches, every, rows.batch.generated, logits, rows.noises).all(rows.groups)
        if rounds is not None:
            rounds.fed_one_each(logits, states)
        return say(rows, every, drawn, logits)


# From submitted requests to read prompts: who may join, and whose prompt is read next.


@dataclass(slots=True, eq=False)
class _Batch:
    """Prompts being read, and the requests that wait for each of them, by its number."""

    reading: Reading
    branches: list[tuple[int, RunningRequest]]


@final
class Intake:
    """Requests that have said nothing yet, first come, first served."""

    def __init__(self, prompts: Prompts, width: int) -> None:
        self.prompts, self.width = prompts, width
        self._waiting: dict[int, RunningRequest] = {}
        self._batches: deque[_Batch] = deque()
        self._ready: list[RunningRequest] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._admitted())

    @property
    def bytes(self) -> int:
        """Keys and values of prompts that are not read to their end."""
        return sum(batch.reading.bytes for batch in self._batches)

    def add(self, branch: RunningRequest) -> None:
        """One more request."""
        self._waiting[branch.request_id] = branch

    def drop(self, request_id: int) -> bool:
        """Forget a request; whether it was here."""
        before = len(self)
        self._waiting.pop(request_id, None)
        for batch in self._batches:
            batch.branches = [pair for pair in batch.branches if pair[1].request_id != request_id]
        self._batches = deque(batch for batch in self._batches if batch.branches)
        return len(self) < before

    def admit(self, running: Sequence[RunningRequest], limit: Callable[[], int]) -> None:
        """Begin with requests that wait, as far as rows and memory go; ``limit`` bounds the passes."""
        inside = [*running, *self._admitted()]
        fresh: list[RunningRequest] = []
        for branch in list(self._waiting.values()):
            # In order of arrival: who came later passes nobody, or a long prompt would wait for ever.
            if len(inside) >= self.width or not self._fits(branch, inside, fresh):
                break
            tokens = branch.request.tokens
            known = self.prompts.find(tokens)
            if known is not None:
                branch.prompt = self.prompts.hold(known)
                self._ready.append(branch)
            elif not self._joins(branch):
                if any(begins_alike(tokens, batch.reading) for batch in self._batches):
                    # What is being read now need not be read again.
                    continue
                fresh.append(branch)
            del self._waiting[branch.request_id]
            inside.append(branch)
        if fresh:
            numbers: dict[bytes, int] = {}
            pairs = [(numbers.setdefault(b.request.tokens.tobytes(), len(numbers)), b) for b in fresh]
            distinct = {number: branch.request.tokens for number, branch in pairs}
            self._batches.append(_Batch(self.prompts.start(list(distinct.values()), limit), pairs))

    def advance(self) -> tuple[list[RunningRequest], list[tuple[RunningRequest, str]]]:
        """Run one pass over prompts: requests whose prompts are read, and those that failed, and why."""
        failed: list[tuple[RunningRequest, str]] = []
        if self._batches:
            batch = self._batches.popleft()
            try:
                prompts = self.prompts.advance(batch.reading)
            except (ReforkError, RuntimeError) as error:
                # One prompt that memory does not hold, or an edit that fails, must not end the others.
                failed = [(branch, str(error)) for _, branch in batch.branches]
            else:
                if prompts is None:
                    self._batches.append(batch)
                else:
                    for number, branch in batch.branches:
                        branch.prompt = self.prompts.hold(prompts[number])
                        self._ready.append(branch)
                    # Those who asked for some of them may have left.
                    for prompt in prompts:
                        self.prompts.release(prompt)
        ready, self._ready = self._ready, []
        return ready, failed

    def _admitted(self) -> list[RunningRequest]:
        return [*self._ready, *(branch for batch in self._batches for _, branch in batch.branches)]

    def _joins(self, branch: RunningRequest) -> bool:
        """Whether an equal prompt is being read; then they share it."""
        for batch in self._batches:
            number = batch.reading.find_equal(branch.request.tokens)
            if number is not None:
                batch.branches.append((number, branch))
                return True
        return False

    def _fits(
        self, branch: RunningRequest, inside: Sequence[RunningRequest], fresh: Sequence[RunningRequest]
    ) -> bool:
        """Whether memory holds one more; somebody always may run."""
        if not inside:
            return True
        decoder = self.prompts.decoder
        longest = max(len(b.request.tokens) for b in (branch, *inside))
        most = max(b.limit for b in (branch, *inside))
        if len(inside) >= decoder.rows_within(longest, most):
            return False
        if self.prompts.find(branch.request.tokens) is not None:
            return True
        held = self.prompts.prefix_cache.bytes + self.bytes
        tokens = sum(align(len(b.request.tokens)) for b in (branch, *fresh))
        return held + tokens * decoder.backbone.shape.bytes_per_token <= decoder.memory // 2


# One round of a speculator over the running branches: draft, verify in one pass, settle, learn.


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

    def run(self) -> list[StepOutput] | None:
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
        # Of a branch that was refused only the newest token, which is fed first, counts as said.
        kept = np.ones(len(living), dtype=np.int64)
        kept[[item.index for item in verified]] = [1 + item.settled.accepted for item in verified]
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
            int(self.rows.batch.generated[row]) <= self.rows.branches[row].forced
            for row in living
            if self.rows.branches[row].forced
        )

    def _branches(self, living: Ints) -> ActiveRows:
        rows, batch = self.rows, self.rows.batch
        mine = [rows.branches[row] for row in living]
        said = batch.generated[living]
        return ActiveRows(
            request_id=np.array([branch.request_id for branch in mine], dtype=np.int64),
            newest=rows.newest[living],
            position=batch.keep[living] + said - 1,
            generated=said,
            room=np.array([_room(b, int(n)) for b, n in zip(mine, said, strict=True)], dtype=np.int64),
            settings=[_drafted(branch.request.settings) for branch in mine],
            noise=[branch.request.noise for branch in mine],
        )

    def _settled(
        self, living: Ints, branches: ActiveRows, drafts: Drafts, logits: Tensor
    ) -> tuple[list[Verified], list[StepOutput]]:
        """What each branch says, and those that can say nothing."""
        spread = 1 + drafts.lengths
        first = np.cumsum(spread) - spread
        rows = self.rows
        broken = unusable(logits)
        if broken:
            # The others must be settled; what comes of these rows is not used.
            logits = logits.index_fill(0, torch.tensor(sorted(broken), device=logits.device), 0.0)
        refused: list[StepOutput] = []
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

    def _one_each(self, living: Ints, logits: Tensor) -> tuple[list[Settled | None], list[StepOutput]]:
        """One token for each of some branches, drawn as without drafts; what is wrong is said of that one."""
        rows = self.rows
        mine = [rows.branches[row] for row in living]
        drawn = Draw(mine, living, rows.batch.generated[living], logits, rows.noises).all(groups(mine))
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
    return branch.guide is not None or branch.sampling.penalised


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
