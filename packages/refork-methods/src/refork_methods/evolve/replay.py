"""A run again from its journal alone: every choice made anew, every answer read from the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from refork.errors import Mismatch, ReplayDiverged
from refork.plain import canonical, from_json
from refork.types import Json
from refork_methods.evolve.archive import BEGIN, CELLS, CHECKPOINT, EXPAND, MEASURE, Archive
from refork_methods.evolve.promote import Decision, Tally
from refork_methods.evolve.records import Cell, EvaluatorSlot
from refork_methods.evolve.search import Runtime, Search, Settings, Watch
from refork_methods.journal import Entry, Journal


class _LogEnds(Exception):
    """The log says no more: a run that was cut short."""


def replay(journal: Journal) -> Archive:
    """The archive of a recorded run, which is run again on its own answers and compared entry by entry.

    No editor, evaluator or anchor is asked. A journal that was cut short replays as far as it goes.

    Raises:
        ReplayDiverged: an entry is not the one that the run would have written.
        Mismatch: the journal does not begin with a run.
    """
    entries = list(journal)
    # An entry's id covers its time, so the replay takes the recorded times in place of the clock.
    times = iter([entry.time for entry in entries])
    again = Journal(clock=lambda: next(times))
    return _search(entries, _Checked(entries, again, live=False), None)


def resume(journal: Journal, runtime: Runtime, watch: Watch | None = None) -> Archive:
    """Go on with a run where its journal stops: what is recorded is checked and not asked again.

    ``watch`` is told of recorded events too.

    Raises:
        ReplayDiverged: an entry is not the one that the run would have written.
        Mismatch: the journal does not begin with a run, or another anchor is examined on.
    """
    entries = list(journal)
    if not entries:
        raise Mismatch("the journal is empty", hint="run, not resume")
    if entries[0].body.get("anchor") != runtime.examiner.fingerprint:
        raise Mismatch("the run was examined on another anchor", hint="resume with the anchor it began with")
    return _search(entries, _Checked(entries, journal, live=True), runtime, watch)


def _search(
    entries: Sequence[Entry], log: _Checked, live: Runtime | None, watch: Watch | None = None
) -> Archive:
    if not entries or entries[0].kind != BEGIN:
        raise Mismatch("the journal does not begin with a run", hint="is it another journal?")
    first = entries[0].body
    answers = _Answers(log, live, first["anchor"])
    search = Search(
        from_json(Settings, first["settings"]),
        first["workspace"],
        [from_json(EvaluatorSlot, slot) for slot in first["slots"]],
        Runtime(answers, answers, answers),
        log,
        watch,
    )
    try:
        return search.run()
    except _LogEnds:
        return search.archive


@final
class _Checked:
    """A log that compares with recorded entries as long as there are any, then writes on, or ends."""

    def __init__(self, entries: Sequence[Entry], journal: Journal, *, live: bool) -> None:
        self._entries, self._journal, self._live = entries, journal, live
        self._at = 0

    def __len__(self) -> int:
        return self._at

    @property
    def next(self) -> Entry | None:
        """The recorded entry that comes next; None after the last."""
        return self._entries[self._at] if self._at < len(self._entries) else None

    def append(self, kind: str, body: Json) -> Entry:
        """The recorded entry, where it is this one; else a new one."""
        recorded = self.next
        if recorded is None and not self._live:
            raise _LogEnds
        if self._live and recorded is not None:
            entry = recorded
            same = kind == entry.kind and canonical(body) == canonical(entry.body)
        else:
            entry = self._journal.append(kind, body)
            # The id covers the number, the time, the content and every entry before it.
            same = recorded is None or entry.id == recorded.id
        if not same:
            assert recorded is not None
            raise ReplayDiverged(
                f"the run would have written {kind!r} {canonical(body)[:200]}",
                where=f"journal entry {recorded.n}, {recorded.kind!r} {canonical(recorded.body)[:200]}",
                hint="the journal was altered, or written by another version",
            )
        self._at += 1
        return entry


@final
class _Answers:
    """Editor, evaluator and examiner in one: what the log says, and after its end a live one, or nobody."""

    def __init__(self, log: _Checked, live: Runtime | None, fingerprint: str) -> None:
        self._log, self._live, self.fingerprint = log, live, fingerprint

    def _recorded(self, kind: str) -> Json | None:
        entry = self._log.next
        if entry is None:
            if self._live is None:
                raise _LogEnds
            return None
        if entry.kind != kind:
            raise ReplayDiverged(
                f"the run comes to {kind!r}", where=f"journal entry {entry.n}, {entry.kind!r}"
            )
        return entry.body

    def edit(self, archive: Archive, parent: int, step: int) -> Json | None:
        body = self._recorded(EXPAND)
        if body is None:
            assert self._live is not None
            return self._live.editor.edit(archive, parent, step)
        child: Json | None = body["workspace"]
        return child

    def cells(self, archive: Archive) -> Sequence[Cell]:
        body = self._recorded(CELLS)
        if body is None:
            assert self._live is not None
            return self._live.evaluator.cells(archive)
        return [from_json(Cell, cell) for cell in body["cells"]]

    def evaluate(self, archive: Archive, node: int, cell: Cell, artifact: str | None) -> tuple[int, str, str]:
        body = self._recorded(MEASURE)
        if body is None:
            assert self._live is not None
            return self._live.evaluator.evaluate(archive, node, cell, artifact)
        return body["outcome"], body["judge"], body["artifact"]

    def examine(self, archive: Archive, slot: EvaluatorSlot) -> tuple[Tally, Sequence[Tally], Json]:
        body = self._recorded(CHECKPOINT)
        if body is None:
            assert self._live is not None
            return self._live.examiner.examine(archive, slot)
        one = from_json(Decision, body["decisions"][slot.name])
        return one.incumbent.tally, [rival.tally for rival in one.challengers], body["notes"][slot.name]
