"""A search in a folder: begun or resumed, run to its end, and the fastest timed against the original."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

from refork.interrupt import Interrupt
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.kernel.bench.calibration import Calibration
from refork_methods.kernel.bench.result import Candidate, Evaluated
from refork_methods.kernel.diagnose import ceilings_of
from refork_methods.kernel.problem import Problem
from refork_methods.kernel.search.folder import (
    SOURCES,
    SearchFolder,
    SearchNode,
    fastest,
    granted_by,
    path_to,
)
from refork_methods.kernel.search.loop import SearchLoop
from refork_methods.kernel.search.model import Evaluator, KernelSearchSettings, Writer
from refork_methods.kernel.tool import Slip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What came of a search: ``best`` as the last duel has it, and timed once more as ``final``.

    Both are on fresh inputs after the search, and where several came to the duel its winner is timed again
    alone: ``final`` is free of the luck by which the best of many noisy times looks faster than it is.
    ``resumed``: whether the folder held a part of it already. ``slips``:
    rules and tools of ours that broke, without which the search went on.
    """

    folder: Path
    nodes: tuple[SearchNode, ...]
    best: SearchNode
    final: Evaluated
    suffix: str = ".c"
    resumed: bool = False
    slips: tuple[Slip, ...] = ()

    @property
    def faster(self) -> bool:
        """Whether the best is faster than the original by more than chance and noise."""
        return self.best.number > 0 and self.final.faster

    @property
    def path(self) -> tuple[int, ...]:
        """Numbers of the nodes from the original to the best."""
        return path_to(self.nodes, self.best.number)

    @property
    def chain(self) -> tuple[str, ...]:
        """The moves from the original to the best."""
        return self.moves_to(self.best.number)

    @property
    def granted(self) -> tuple[str, ...]:
        """What the best takes for granted: by all its moves, each once, and as its last duel showed."""
        return granted_by(self.nodes, self.best.number, self.final)

    def moves_to(self, number: int) -> tuple[str, ...]:
        """The moves from the original to a node."""
        made = (self.nodes[one].proposal for one in path_to(self.nodes, number))
        return tuple(one.move for one in made if one is not None)

    @property
    def source(self) -> Path:
        """The file of the best."""
        return self.folder / SOURCES / f"{self.best.candidate.digest}{self.suffix}"

    def to_json(self) -> Json:
        """Plain JSON, without the nodes."""
        right = sum(node.evaluated.ok for node in self.nodes[1:])
        return {
            "folder": str(self.folder),
            "evaluations": len(self.nodes) - 1,
            "right": right,
            "best": self.best.number,
            "moves": list(self.chain),
            "granted": list(self.granted),
            "source": str(self.source),
            "flags": list(self.best.candidate.flags),
            "final": self.final.to_json(),
            "faster": self.faster,
            "resumed": self.resumed,
            "slips": [one.to_json() for one in self.slips],
        }


def run_search(
    problem: Problem,
    settings: KernelSearchSettings,
    folder: Path,
    *,
    evaluator: Evaluator,
    writer: Writer,
    calibration: Calibration | None = None,
    asked: Json | None = None,
    progress: Progress = silent,
) -> SearchResult:
    """Search for a faster version of a problem's kernel; the same call on the folder resumes it.

    A search that ended may be gone on with by more ``evaluations``. Ctrl-C stops after the try under way.
    ``asked`` is kept with the search: what a command line said of the kernel (``file``, ``set``, ``out``).

    Raises:
        BadInput: the kernel itself fails.
        Mismatch: the folder holds another search.
        KeyboardInterrupt: it was stopped; what was done is kept.
    """
    original = Candidate(problem.source, problem.flags)
    begun = _facts(problem, settings, writer, calibration) | ({} if asked is None else {"asked": asked})
    with SearchFolder(folder, begun, problem.suffix) as record, Interrupt() as stop:
        loop = SearchLoop(problem.entry, original, settings, evaluator, writer, record=record)
        if not loop.run(progress, lambda: stop.asked):
            under = _ceilings(problem, calibration, loop.nodes)
            record.note(state="stopped", best=loop.best.number, tried=loop.done, ceilings=under)
            raise KeyboardInterrupt
        facts = record.facts
        # Where more was tried since, the stored duel is of a best of before.
        if facts["state"] == "done" and facts["tried"] == loop.done:
            best, final, resumed = loop.nodes[facts["best"]], Evaluated.from_json(facts["final"]), True
        else:
            if settings.feedback != "none":
                loop.observe_best(progress)
            best, final = _duel(loop, evaluator, progress)
            under = _ceilings(problem, calibration, loop.nodes)
            told = final.to_json()
            record.note(state="done", best=best.number, tried=loop.done, final=told, ceilings=under)
            resumed = record.resumed
        return SearchResult(
            folder=folder, nodes=tuple(loop.nodes), best=best, final=final, suffix=problem.suffix,
            resumed=resumed, slips=tuple(loop.slips),
        )  # fmt: skip


def _facts(
    problem: Problem, settings: KernelSearchSettings, writer: Writer, calibration: Calibration | None
) -> Json:
    told: Json = {
        "format": 1,
        "settings": settings.to_json(),
        "writer": writer.name,
        "problem": {
            "name": problem.name, "digest": problem.digest, "entry": problem.entry, "suffix": problem.suffix,
            "sizes": problem.sizes, "flops": problem.flops, "bytes": problem.bytes, "rtol": problem.rtol,
            "atol": problem.atol, "flags": list(problem.flags),
            "arguments": [asdict(one) for one in problem.arguments],
        },
        "ceilings": _ceilings(problem, calibration, []),
        "machine": None if calibration is None else calibration.machine,
        "state": "running",
        "best": None,
        "final": None,
    }  # fmt: skip
    return told


def _ceilings(problem: Problem, calibration: Calibration | None, nodes: Sequence[SearchNode]) -> Json | None:
    """Those that a diagnosis sets the problem's kernels under; None on a machine that was not measured.

    Where its arrays lie follows from how many calls a sample of the original takes: one until it was timed.
    """
    if calibration is None:
        return None
    calls = nodes[0].evaluated.calls if nodes else None
    return asdict(ceilings_of(problem, calibration, calls or 1)[0])


def _duel(loop: SearchLoop, evaluator: Evaluator, progress: Progress) -> tuple[SearchNode, Evaluated]:
    """The fastest few timed in turns with the original; the fastest that still stands, timed once more."""
    most = loop.settings.finalists
    # Where nothing else is right the original is timed against itself, so that every end has the same form.
    chosen = fastest(loop.nodes[1:], most) or [loop.nodes[0]]
    progress("last duel", 0, len(chosen))
    times = evaluator.duel([node.candidate for node in chosen])
    progress("last duel", len(chosen), len(chosen))
    right = [(node, told) for node, told in zip(chosen, times, strict=True) if told.ok and told.speedup]
    if not right:
        return loop.nodes[0], loop.nodes[0].evaluated
    if len(right) == 1:
        return right[0]
    # The duel says who; the time by which one of several won is the luckiest of theirs, and says too much.
    for node, _ in sorted(right, key=lambda pair: (-(pair[1].least or 0.0), pair[0].number)):
        (once_more,) = evaluator.duel([node.candidate])
        if once_more.ok and once_more.speedup:
            return node, once_more
    return loop.nodes[0], loop.nodes[0].evaluated
