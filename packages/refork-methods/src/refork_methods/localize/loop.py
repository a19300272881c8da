"""The model loop: any chat model explores a snapshot with the tools until it gives a case file.

Source: arXiv:2606.24820 (one tool call or the case file a turn, at most 20 turns, the five recovery parts).
The paper's prompts, limits and repairs are not published; ours are in :mod:`.prompts`, :mod:`.session`
and :mod:`.calls`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from refork.chat import ChatModel, Reply
from refork.compaction import Counter, approximate_tokens
from refork.errors import BadInput, CannotDo, InternalError, ReplayDiverged
from refork.progress import Progress, silent
from refork.types import Json, Message
from refork_methods.localize.casefile import CaseFile
from refork_methods.localize.session import LoopSettings, Session
from refork_methods.localize.tools import RepoTools
from refork_methods.localize.trace import Trace


@final
class Localizer:
    """A chat model with tools over one snapshot.

    ``counter`` counts the tokens of a question; without it a quarter of the characters is taken.
    """

    def __init__(
        self,
        model: ChatModel,
        tools: RepoTools,
        settings: LoopSettings | None = None,
        *,
        counter: Counter = approximate_tokens,
    ) -> None:
        self.model, self.tools = model, tools
        self.settings = settings or LoopSettings()
        self._counter = counter

    def run(self, issue: str, *, start: CaseFile | None = None, draw: int = 0) -> CaseFile:
        """The case file of one run. Raises BadInput for an empty issue; all else is in the case file."""
        return self.trace(issue, start=start, draw=draw).case

    def trace(
        self,
        issue: str,
        *,
        start: CaseFile | None = None,
        draw: int = 0,
        replies: Sequence[Reply] = (),
        progress: Progress = silent,
    ) -> Trace:
        """One run with all its turns.

        ``start``: another investigator's case file, shown to the model. ``draw`` numbers repeated runs.
        ``replies``: answers that were given before; they are taken first, and the model is asked from there.

        Raises: BadInput for an empty issue, or more replies than the run has turns.
        """
        session = self.session(issue, start=start)
        for reply in replies:
            if session.over:
                raise BadInput("there are more answers than turns in this run")
            session.take(reply)
        while not session.over:
            progress("reading the repository", session.number - 1, self.settings.max_turns)
            said = self.ask(session, draw)
            if said is not None:
                session.take(said)
        return finished(session, self.model.name, draw)

    def fork(self, trace: Trace, turn: int, *, draw: int) -> Trace:
        """Run on from before ``turn`` (1: all of it) with another draw; earlier turns stay as they are.

        Raises:
            BadInput: the trace has no such turn.
            ReplayDiverged: the tools now answer an earlier turn otherwise: another snapshot, or settings.
        """
        if not 1 <= turn <= len(trace.turns):
            raise BadInput(f"there is no turn {turn}; the run has {len(trace.turns)}")
        made = self.trace(trace.issue, start=trace.start, draw=draw, replies=trace.replies(turn))
        check_prefix(trace, made, turn)
        return made

    def session(self, issue: str, *, start: CaseFile | None = None) -> Session:
        """A run at its beginning, for a caller that keeps its own record."""
        return Session(self.tools, issue, self.settings, start=start, counter=self._counter)

    def ask(self, session: Session, draw: int) -> Reply | None:
        """The model's answer to a run's next question; None where it failed, which ends the run.

        Tools that a model cannot be offered ("auto") are left to the prompt, which says them as well.
        """
        messages, schemas = session.context().messages, session.offered()
        try:
            return self._asked(messages, schemas, draw)
        except InternalError:
            raise
        except Exception as error:  # a model is the user's: whatever it raises ends its run, not the caller's
            session.fail(f"{type(error).__name__}: {error}")
            return None

    def _asked(self, messages: Sequence[Message], schemas: Sequence[Json], draw: int) -> Reply:
        try:
            return self.model.reply(messages, tools=schemas, draw=draw)
        except CannotDo:
            if not schemas or self.settings.calls != "auto":
                raise
            return self.model.reply(messages, draw=draw)


def finished(session: Session, model: str, draw: int) -> Trace:
    """The trace of a run that is over."""
    bare = session.case()
    made = Trace(
        session.issue, model, draw, tuple(session.first), tuple(session.turns), bare, session.error,
        session.start,
    )  # fmt: skip
    meta = bare.meta | {"model": model, "draw": draw, "ledger": made.ledger.to_json()}
    return replace(made, case=replace(bare, meta=meta))


def check_prefix(old: Trace, new: Trace, turn: int) -> None:
    """Raise ReplayDiverged unless the turns before ``turn`` are the same, byte for byte."""
    if old.first != new.first:
        raise ReplayDiverged("the run begins with other messages", hint="use the settings it was made with")
    for before, after in zip(old.turns[: turn - 1], new.turns[: turn - 1], strict=True):
        if before.bytes() != after.bytes():
            raise ReplayDiverged(
                f"turn {before.number} is answered otherwise than recorded",
                hint="the snapshot or the settings are not those of the record",
            )
