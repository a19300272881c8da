"""Continuous batching: requests join a running batch of branches, and leave it, at any step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch

from refork.decoding.live_draw import Draw, DrawRequest, RunningRequest, groups
from refork.decoding.live_intake import Intake
from refork.decoding.live_prompts import Prompts
from refork.decoding.live_round import Rounds
from refork.decoding.live_rows import LiveRows
from refork.decoding.live_say import Said, failed, say
from refork.decoding.loop import Decoder, packed
from refork.decoding.speculator import Speculator
from refork.errors import BadInput, CannotDo

__all__ = ["DrawRequest", "LiveDecoder", "Said"]


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
        self._refused: list[Said] = []

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
        rows.left += [branch.request_id for branch in rows.living if branch.joined]
        self._forget()
        self._begin()

    def step(self) -> list[Said]:
        """A pass over running branches, then one over prompts that wait; what was said, once per request id.

        Raises:
            BadInput: an edit gave something of the wrong shape in a pass over running branches. Nothing is
                said then, and they are still there to be cancelled. After any other error :meth:`clear`.
        """
        said, self._refused = self._refused, []
        rows = self._rows
        with torch.inference_mode():
            if rows.where:
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

    def _open(self, ready: Sequence[RunningRequest]) -> list[Said]:
        """Seat requests whose prompts are read, and draw their first tokens."""
        fresh = self._rows.admit(ready)
        logits = torch.stack([branch.prompt.opening for branch in ready if branch.prompt is not None])
        said = np.zeros(len(ready), dtype=np.int64)
        drawn = Draw(ready, fresh, said, logits, self._rows.noises).all(groups(ready))
        spoken = say(self._rows, fresh, drawn, logits)
        if self._rounds is not None:
            self._rounds.join(fresh)
        return spoken

    def _advance(self) -> list[Said]:
        """A pass over the running branches: a round of the speculator, or one token each."""
        rows, rounds = self._rows, self._rounds
        rows.tidy()
        if rounds is not None:
            said = rounds.run()
            if said is not None:
                return said
        logits, states = rows.plain()
        every = np.arange(len(rows.branches))
        drawn = Draw(rows.branches, every, rows.batch.said, logits, rows.noises).all(rows.groups)
        if rounds is not None:
            rounds.fed_one_each(logits, states)
        return say(rows, every, drawn, logits)
