"""The investigator on a directory: snapshot, leak checks, index, git's record, case file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from refork.errors import BadInput, UserError
from refork.jsonl import json_objects
from refork.progress import Progress, silent
from refork_methods.decide import Calibration
from refork_methods.localize.casefile import CaseFile
from refork_methods.localize.history import History, read_history
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.investigate import investigate
from refork_methods.localize.leaks import refuse_leaks
from refork_methods.localize.settings import InvestigateSettings
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.spectrum import read_coverage

_STEPS = 4


@final
@dataclass(frozen=True, slots=True)
class Localized:
    """A case file and the snapshot that it speaks of; how many lines that has."""

    case: CaseFile
    snapshot: Snapshot
    lines: int


def localize_path(
    root: str | Path,
    issue: str,
    *,
    commit: str | None = None,
    traceback: str | None = None,
    coverage: str | Path | None = None,
    failed: Sequence[str] = (),
    use_history: bool = True,
    allow_dirty: bool = False,
    settings: InvestigateSettings | None = None,
    calibration: Calibration | None = None,
    progress: Progress = silent,
) -> Localized:
    """Investigate an issue in a directory or one commit of its repository; nothing is run or kept.

    ``coverage``: a report of ``coverage json --show-contexts`` with the tests named in ``failed``.
    ``use_history``: read git's record up to the snapshot's commit, where there is one.

    Raises: BadInput for an empty issue, a diff in it, or a dirty tree that is not allowed.
    """
    if not issue.strip():
        raise BadInput("the issue is empty", hint="say what happens and what should happen")
    if (coverage is None) != (not failed):
        raise BadInput("a coverage report and the failed tests go together")
    progress("reading files", 0, _STEPS)
    snapshot = Snapshot(root, commit)
    refuse_leaks(issue, snapshot=snapshot, allow_dirty=allow_dirty)
    progress("indexing", 1, _STEPS)
    index = RepoIndex.build(snapshot)
    progress("reading git's record", 2, _STEPS)
    history = _history(snapshot) if use_history else None
    progress("ranking", 3, _STEPS)
    case = investigate(
        index,
        issue,
        traceback=traceback,
        history=history,
        spectrum=None if coverage is None else read_coverage(coverage, failed),
        settings=settings,
        calibration=calibration,
    )
    progress("done", _STEPS, _STEPS)
    return Localized(case, snapshot, sum(facts.lines for facts in index.files.values()))


def _history(snapshot: Snapshot) -> History | None:
    """Git's record up to the snapshot's commit; None where there is no repository to read."""
    if snapshot.root is None or snapshot.commit is None:
        return None
    try:
        return read_history(snapshot.root, snapshot.commit)
    except UserError:
        return None  # a shallow or damaged repository: the other evidence still stands


_ALONE = "give the issue alone: in a log it is part of the first message"


def _is_json(text: str) -> bool:
    """Whether a text is one JSON object or array, as logs of agents are."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        return isinstance(json.loads(text), (dict, list))
    except (ValueError, RecursionError):
        return False


def read_issue(text: str, where: str) -> str:
    """An issue's text: the text itself, or of a JSON row with SWE-bench's fields its ``problem_statement``.

    Raises: BadInput for a row without one, or several rows.
    """
    if not where.endswith((".json", ".jsonl")):
        if _is_json(text):
            raise BadInput("this is JSON, and no issue's text", where=where, hint=_ALONE)
        return text
    rows = list(json_objects([text] if where.endswith(".json") else text.split("\n"), where))
    if len(rows) != 1:
        raise BadInput(f"{len(rows)} rows are not one issue", where=where)
    said = rows[0][1].get("problem_statement")
    if not isinstance(said, str):
        raise BadInput('the row has no "problem_statement"', where=where, hint=_ALONE)
    return said
