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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self, final

from refork.errors import BadInput, DiskFull, Mismatch, TreeBusy
from refork.jsonl import json_objects
from refork.plain import canonical, from_json
from refork.types import Json
from refork_methods.kernel.bench.result import Candidate, Evaluated
from refork_methods.kernel.search.model import Observation, Proposal
from refork_methods.kernel.tool import Slip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SearchNode:
    """A kernel that was tried. The original is number 0, with the parent -1 and no proposal.

    ``notes`` are those that it added to the search's memory.
    """

    number: int
    parent: int
    candidate: Candidate
    evaluated: Evaluated
    proposal: Proposal | None = None
    notes: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Round:
    """A choice: the node, what was proposed there, and whether nothing is left to try on it."""

    number: int
    parent: int
    proposals: tuple[Proposal, ...]
    spent: bool


@final
@dataclass(slots=True)
class History:
    """All of a search so far; its order is that of the work."""

    nodes: list[SearchNode] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    observations: dict[int, Observation] = field(default_factory=dict)
    slips: list[Slip] = field(default_factory=list)


def path_to(nodes: Sequence[SearchNode], number: int) -> tuple[int, ...]:
    """Numbers of the nodes from the original to one."""
    found = [number]
    while (parent := nodes[found[-1]].parent) >= 0:
        found.append(parent)
    return tuple(found[::-1])


def granted_by(nodes: Sequence[SearchNode], number: int, final: Evaluated | None) -> tuple[str, ...]:
    """What a kernel takes for granted by all moves on the way to it, each once, and as its timing showed."""
    moves = [nodes[at].proposal for at in path_to(nodes, number)]
    apart = () if final is None else (f"{pair} do not overlap" for pair in final.overlaps)
    return tuple(
        dict.fromkeys([*(one for move in moves if move is not None for one in move.granted), *apart])
    )


def fastest(nodes: Sequence[SearchNode], most: int = 1) -> list[SearchNode]:
    """The right kernels with the largest measured speed-ups, the oldest of equals first; ``most`` of them."""
    right = [node for node in nodes if node.evaluated.ok and node.evaluated.least is not None]
    return sorted(right, key=lambda node: (-(node.evaluated.least or 0.0), node.number))[:most]


SEARCH, ROUNDS, NODES, FINDINGS, SLIPS, SOURCES = (
    "search.json", "rounds.jsonl", "nodes.jsonl", "findings.jsonl", "slips.jsonl", "sources",
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class _Tried:
    """A line of a try; what it proposed and how it did are read apart."""

    number: int
    parent: int
    source: str
    flags: tuple[str, ...]
    evaluated: dict[str, Any]
    notes: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class _Choice:
    """A line of a round; in its proposals ``source`` is the candidate's digest."""

    round: int
    parent: int
    spent: bool
    proposals: tuple[dict[str, Any], ...]


def read_facts(path: Path) -> Json:
    """The ``search.json`` of a folder.

    Raises:
        BadInput: it is not the folder of a search.
    """
    hint = "name the folder that `refork kernel search --out` wrote"
    try:
        found = json.loads((path / SEARCH).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput("this is not the folder of a search", where=str(path), hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"this is not JSON: {error}", where=str(path / SEARCH), hint=hint) from error
    if not isinstance(found, dict) or not {"settings", "writer", "problem"} <= found.keys():
        raise BadInput("this is not the record of a search", where=str(path / SEARCH), hint=hint)
    return found


def read_history(path: Path) -> History:
    """All that a folder holds of a search; last lines that a crash cut short are passed over.

    Raises:
        BadInput: a line that is not ours, or a source that is gone or was changed.
    """
    sources = _Sources(path / SOURCES)
    found = History()
    for place, body in _lines(path / NODES):
        node = sources.node(body, place)
        if node.number != len(found.nodes) or not -1 <= node.parent < max(node.number, 0):
            raise BadInput(f"node {node.number} is out of order", where=place)
        found.nodes.append(node)
    for place, body in _lines(path / ROUNDS):
        told = from_json(_Choice, body, place)
        made = tuple(sources.proposal(one, place) for one in told.proposals)
        found.rounds.append(Round(told.round, told.parent, made, told.spent))
    for place, body in _lines(path / FINDINGS):
        number = from_json(int, body.pop("number", None), place)
        found.observations[number] = from_json(Observation, body, place)
    found.slips = [from_json(Slip, body, place) for place, body in _lines(path / SLIPS)]
    return found


@final
class _Sources:
    """Candidates by digest, each read once."""

    def __init__(self, folder: Path) -> None:
        self._files = {file.name.partition(".")[0]: file for file in folder.glob("*.*")}
        self._read: dict[str, Candidate] = {}

    def candidate(self, digest: str, flags: tuple[str, ...], place: str) -> Candidate:
        if digest not in self._read:
            file = self._files.get(digest)
            if file is None:
                raise BadInput(f"the source {digest} is gone", where=place)
            # The digest is of the text as it was written, so line ends must come back unchanged.
            with file.open(encoding="utf-8", newline="") as stream:
                self._read[digest] = Candidate(stream.read(), flags)
        found = self._read[digest]
        if found.digest != digest or found.flags != flags:
            raise BadInput(f"the source {digest} is not what was tried", where=place)
        return found

    def proposal(self, body: Json, place: str) -> Proposal:
        """What a line proposes, its digest taken for the source that it names."""
        flags = tuple(body.get("flags", ()))
        found = self.candidate(str(body.get("source")), flags, place)
        return from_json(Proposal, body | {"source": found.source}, place)

    def node(self, body: Json, place: str) -> SearchNode:
        told = from_json(_Tried, body, place)
        return SearchNode(
            number=told.number,
            parent=told.parent,
            candidate=self.candidate(told.source, told.flags, place),
            evaluated=Evaluated.from_json(told.evaluated, place),
            proposal=None if told.parent < 0 else self.proposal(body, place),
            notes=told.notes,
        )


def _lines(file: Path) -> Iterator[tuple[str, Json]]:
    """The whole lines of a file, none where it is not there."""
    if not file.exists():
        return
    text = file.read_text(encoding="utf-8", errors="replace")
    # Not splitlines: it also cuts at separators that may stand unescaped inside a JSON string.
    yield from json_objects(text[: text.rfind("\n") + 1].split("\n"), str(file))


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
        # Before anything is read or mended: a half line may be one that another process is writing.
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
            # What is recorded is not done again, so it must outlast a crash before the next step begins.
            stream.flush()
            os.fsync(stream.fileno())


def _proposal_json(made: Proposal) -> Json:
    return asdict(made) | {"source": made.candidate.digest}


def _agreed(path: Path, facts: Json) -> tuple[Json, bool]:
    """The folder's facts where it holds the same search, else the new ones; and whether it resumes."""
    if not (path / SEARCH).exists():
        with _writing(path):
            _replace(path / SEARCH, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
        return facts, False
    before = read_facts(path)
    # As it will be read back: a tuple is a list there, and that is no difference.
    now: Json = json.loads(canonical(facts))
    old, new = _identity(before), _identity(now)
    # All that differs is named at once: one error a try would make a guessing game of it.
    differ = [
        f"{key} (was {old.get(key)!r}, now {new.get(key)!r})"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
        and not (key.startswith("machine's ") and not (key in old and key in new))
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
    # Times of two machines cannot be told apart later. Where none was measured there is nothing to compare.
    machine = {f"machine's {key}": value for key, value in (facts.get("machine") or {}).items()}
    told = {"writer": facts["writer"], "problem": [problem.get("name"), problem.get("digest")]}
    return settings | told | machine


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
        # To the disk before the rename: a crash could leave the new name without the text.
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
