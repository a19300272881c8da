"""A search's folder: its settings, its tries as JSON lines that are only appended to, and the sources.

``search.json``: settings, writer, problem, machine, and at the end the best kernel. ``rounds.jsonl``: every
choice before it was tried. ``nodes.jsonl``: every kernel that was tried. ``findings.jsonl``: what was
measured of a node before it was written from. ``slips.jsonl``: rules and tools that broke.
``sources/``: a file for each candidate, by its digest.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, final

from refork.errors import DiskFull, Mismatch, TreeBusy
from refork.plain import canonical
from refork.types import Json
from refork_methods.kernel.bench.result import Candidate
from refork_methods.kernel.search.folder_read import (
    FINDINGS,
    NODES,
    ROUNDS,
    SEARCH,
    SLIPS,
    SOURCES,
    read_facts,
    read_history,
)
from refork_methods.kernel.search.model import Observation, Proposal
from refork_methods.kernel.search.record import Round, SearchNode
from refork_methods.kernel.slip import Slip

#: Settings that a search may be resumed with another value of.
FREE = ("evaluations", "finalists")


@final
class SearchFolder:
    """A folder open for one search; takes its record. A context: it is nobody else's meanwhile."""

    def __init__(self, path: Path, facts: Json, suffix: str = ".c") -> None:
        """``facts``: settings, writer and problem (JSON); a folder that holds others is refused.

        Raises:
            Mismatch: the folder holds a search with other settings, which are named.
            BadInput: a line in it that is not ours.
            TreeBusy: another process searches there.
            DiskFull: it cannot be written.
        """
        self.path, self._suffix = path, suffix
        with _writing(path):
            (path / SOURCES).mkdir(parents=True, exist_ok=True)
        self._lock = _locked(path)
        try:
            self.facts, self.resumed = _agreed(path, facts)
            with _writing(path):
                for name in (ROUNDS, NODES, FINDINGS, SLIPS):
                    _mend(path / name)
            self.history = read_history(path)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others search here."""
        os.close(self._lock)

    def note(self, **facts: Any) -> None:
        """Put facts into ``search.json``."""
        self.facts |= facts
        with _writing(self.path):
            _replace(self.path / SEARCH, json.dumps(self.facts, indent=2, ensure_ascii=False) + "\n")

    def add_round(self, choice: Round) -> None:
        """A choice, with the sources of what it proposes."""
        for one in choice.proposals:
            self._save(one.candidate)
        told = [_proposal_json(one) for one in choice.proposals]
        body = {"round": choice.number, "parent": choice.parent, "spent": choice.spent, "proposals": told}
        self._append(ROUNDS, body)

    def add_node(self, node: SearchNode) -> None:
        """A kernel that was tried."""
        self._save(node.candidate)
        made = node.proposal
        told = {"move": "", "why": ""} if made is None else _proposal_json(made)
        self._append(NODES, {
            "number": node.number, "parent": node.parent, **told,
            "source": node.candidate.digest, "flags": list(node.candidate.flags),
            "evaluated": node.evaluated.to_json(), "notes": list(node.notes),
        })  # fmt: skip

    def add_observation(self, number: int, observation: Observation) -> None:
        """What was measured of a node."""
        told = [one.to_json() for one in observation.findings]
        body = {"number": number, "findings": told, "counters": observation.counters}
        self._append(FINDINGS, body | {"absent": observation.absent})

    def add_slip(self, slip: Slip) -> None:
        """A rule or a tool that broke."""
        self._append(SLIPS, slip.to_json())

    def _save(self, candidate: Candidate) -> None:
        file = self.path / SOURCES / f"{candidate.digest}{self._suffix}"
        if not file.exists():
            with _writing(file):
                _replace(file, candidate.source)

    def _append(self, name: str, body: Json) -> None:
        file = self.path / name
        with _writing(file), file.open("ab") as stream:
            stream.write(canonical(body).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


def _proposal_json(made: Proposal) -> Json:
    return {
        "move": made.move, "family": made.family, "why": made.why, "answers": list(made.answers),
        "refused": made.refused, "granted": list(made.granted), "source": made.candidate.digest,
        "flags": list(made.flags),
    }  # fmt: skip


def _agreed(path: Path, facts: Json) -> tuple[Json, bool]:
    """The folder's facts where it holds the same search, else the new ones; and whether it resumes."""
    if not (path / SEARCH).exists():
        with _writing(path):
            _replace(path / SEARCH, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
        return facts, False
    before = read_facts(path)
    now: Json = json.loads(canonical(facts))
    old, new = _identity(before), _identity(now)
    differ = [
        f"{key} (was {old.get(key)!r}, now {new.get(key)!r})"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
    if differ:
        raise Mismatch(
            "this folder holds another search; it differs in: " + "; ".join(differ),
            where=str(path),
            hint="use the same settings to resume, or another --out for a new search",
        )
    return before | {"settings": now["settings"]}, True


def _identity(facts: Json) -> Json:
    """What a resumed search must share with the one that began."""
    settings = {key: value for key, value in facts["settings"].items() if key not in FREE}
    problem = facts["problem"]
    return settings | {"writer": facts["writer"], "problem": [problem.get("name"), problem.get("digest")]}


def _locked(path: Path) -> int:
    """The folder to ourselves, where the system has such locks, until the descriptor is closed."""
    with _writing(path):
        lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        pass
    except OSError as error:
        os.close(lock)
        raise TreeBusy("another process is searching in this folder", where=str(path)) from error
    return lock


def _mend(file: Path) -> None:
    """Cut off the last line where a crash left it unfinished."""
    if not file.exists():
        return
    data = file.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(file, whole)


def _replace(file: Path, text: str) -> None:
    """Write a text whole or not at all."""
    half = file.with_name(f".{file.name}.part")
    with half.open("w", encoding="utf-8", newline="") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    half.replace(file)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Raise DiskFull where the system refuses."""
    try:
        yield
    except OSError as error:
        raise DiskFull(f"the search cannot be recorded: {error.strerror}", where=str(path)) from error
