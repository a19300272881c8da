"""The seams of the search: who writes a kernel, who tries it, and what passes between them."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Literal, Protocol, TypeAlias, final, runtime_checkable

from refork.errors import BadInput
from refork.types import Json
from refork_methods.kernel.bench.result import Candidate, Evaluated
from refork_methods.kernel.search.strategy import MOST, SearchSettings
from refork_methods.kernel.tool import Finding, Slip

#: What a writer is told of a kernel beside its time: findings, the profilers' plain numbers, or nothing.
Feedback: TypeAlias = Literal["diagnosed", "raw", "none"]


def _unheard(slip: Slip) -> None:
    """Nobody listens."""


@final
@dataclass(frozen=True, slots=True)
class Observation:
    """What was measured of one kernel. ``counters``: ``source.metric`` -> value; ``absent``: source -> why.

    ``findings`` are the gravest first. A writer is shown findings or counters, as the feedback says.
    ``slips``: tools that broke; the search keeps them apart.
    """

    findings: tuple[Finding, ...] = ()
    counters: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    slips: tuple[Slip, ...] = ()


@final
# Without slots: the cached candidate needs the instance's dict.
@dataclass(frozen=True)
class Proposal:
    """A kernel that a writer wants tried.

    ``move``: what was changed, the name that it is not tried under again at this node. ``family``: the
    kind of change. ``answers``: tools whose findings on the parent it acts on; none for an unguided one.
    ``refused``: why there is nothing to try (an answer without code); it counts as one that fails.
    ``granted``: what the change takes for granted, such as that arrays do not overlap.
    """

    source: str
    flags: tuple[str, ...]
    move: str
    why: str = ""
    family: str = ""
    answers: tuple[str, ...] = ()
    refused: str = ""
    granted: tuple[str, ...] = ()

    @cached_property
    def candidate(self) -> Candidate:
        """What is built."""
        return Candidate(self.source, self.flags)


@final
@dataclass(frozen=True, slots=True)
class Trial:
    """One try of the search so far. ``gain``: parent's seconds over its own; None where one of them fails.

    Both are first set against the reference that was timed beside them.
    """

    number: int
    parent: int
    move: str
    family: str
    answers: tuple[str, ...]
    ok: bool
    gain: float | None
    why: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WriterState:
    """All that a writer may know. ``number`` is the node to write a child of, ``path`` leads to it from 0.

    ``observation``: None where the feedback is ``none`` or the kernel fails. ``tried``: moves made from this
    node already, those of this round too. ``trials``: every try so far. ``known``: digests of candidates
    that need no second try. ``noise``: gains up to this ratio are none. ``key``: seed, round and
    number within the round, from which all randomness comes. ``report`` takes a rule
    of the writer's that broke.
    """

    entry: str
    number: int
    path: tuple[int, ...]
    candidate: Candidate
    evaluated: Evaluated
    observation: Observation | None
    tried: tuple[str, ...]
    trials: Sequence[Trial]
    notes: Sequence[str]
    known: Container[str]
    noise: float
    key: tuple[int, int, int]
    report: Callable[[Slip], None] = _unheard


@runtime_checkable
class Writer(Protocol):
    """Writes the next kernel. The same state gives the same proposal where the writer can promise that."""

    @property
    def name(self) -> str:
        """Who writes, with the settings that matter, for the record."""
        ...

    def propose(self, state: WriterState) -> Proposal | None:
        """A child of a node; None where nothing is left to try there."""
        ...


@runtime_checkable
class Evaluator(Protocol):
    """Builds, checks, times and profiles candidates of one problem."""

    @property
    def noise(self) -> float:
        """The widest ratio of times in repeated runs of one program; 1 or more."""
        ...

    def prepare(self, candidates: Sequence[Candidate]) -> None:
        """Build ahead, several at once; nothing is timed meanwhile. What fails to build is told later."""
        ...

    def evaluate(self, candidate: Candidate) -> Evaluated:
        """Build, check and time one, alone on the machine. A kernel that fails is no error."""
        ...

    def observe(self, candidate: Candidate, evaluated: Evaluated) -> Observation:
        """Profile one that is right; ``evaluated`` is what was found of it before."""
        ...

    def duel(self, candidates: Sequence[Candidate]) -> list[Evaluated]:
        """Time candidates and the reference in turns, for the last word."""
        ...


#: For budgets of tens: a node is worth the best below it, and little weight is on what was seldom tried. The
#: means and the weight of .7 that the tree has by itself want hundreds.
TREE = SearchSettings(explore=0.2, value="max")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSearchSettings:
    """``evaluations``: kernels that are tried, the original not counted; ``batch`` of them from one node.

    ``search``: ``mcts``, or ``hill``, which goes on from the fastest alone. ``unguided``: the share of tries
    that follow no advice. ``plateau``: tries without a new best after which a note says so. ``finalists``:
    how many are timed again at the end. ``most``: the speed-up that earns the whole reward. ``tree``: of
    ``mcts``.

    Source: arXiv 2606.26453 for two candidates per iteration; the share of unguided moves is ours.
    """

    evaluations: int = 40
    search: Literal["mcts", "hill"] = "mcts"
    feedback: Feedback = "diagnosed"
    seed: int = 0
    batch: int = 2
    unguided: float = 0.15
    plateau: int = 8
    finalists: int = 3
    most: float = MOST
    tree: SearchSettings = TREE

    def __post_init__(self) -> None:
        where = "kernel search"
        if self.search not in ("mcts", "hill"):
            raise BadInput(f"search {self.search!r}", where=where, hint="mcts or hill")
        if self.feedback not in ("diagnosed", "raw", "none"):
            raise BadInput(f"feedback {self.feedback!r}", where=where, hint="diagnosed, raw or none")
        for name in ("evaluations", "batch", "plateau", "finalists"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}", where=where, hint="1 or more")
        if self.seed < 0 or not 0 <= self.unguided <= 1 or self.most <= 1:
            raise BadInput(
                f"seed {self.seed}, unguided {self.unguided}, most {self.most}",
                where=where,
                hint="a seed of 0 or more, a share from 0 to 1, most above 1",
            )

    def to_json(self) -> Json:
        """Plain JSON."""
        return asdict(self)
