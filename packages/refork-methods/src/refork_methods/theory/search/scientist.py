"""The seam of the three roles: who proposes experiments, who judges theories, who writes their successors.

All that a role may know is in a :class:`View`; observations that are held out are not. A role that fails says
so by a :class:`Fault`, which is recorded, and the search goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, final, runtime_checkable

from refork.sandbox import Sandbox
from refork.types import Json
from refork_methods.theory.chooser import Chooser
from refork_methods.theory.experiment import Experiment
from refork_methods.theory.grammar import Domain
from refork_methods.theory.pool import Verdict
from refork_methods.theory.search.observed import Observed, Predicted
from refork_methods.theory.search.settings import TheorySettings
from refork_methods.theory.search.spec import TheorySpec
from refork_methods.theory.search.statistic import Agreement, Code, Named, ShareAt


@final
@dataclass(frozen=True, slots=True)
class Fault:
    """A role gave nothing that could be used, and why."""

    why: str


@final
@dataclass(frozen=True, slots=True)
class Designed:
    """An experiment and the statistics by which it is to tell the two theories apart, in order of choice."""

    experiment: Experiment
    statistics: tuple[Named | ShareAt | Agreement | Code, ...]
    why: str = ""


@final
@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and why."""

    verdict: Verdict
    why: str = ""


@final
@dataclass(frozen=True, slots=True)
class Candidate:
    """A theory that was tried as a successor. ``loss`` is None where its code failed, as ``why`` says."""

    spec: TheorySpec
    loss: float | None
    accepted: bool
    why: str = ""


@final
@dataclass(frozen=True, slots=True)
class View:
    """What is known at a point of a round. ``slots``: labels of the two theories that stand.

    ``predicted`` maps labels to a prediction for each of ``observed``. ``offers``: experiments that people
    can still answer; None: any. ``key``: seed, round, side (0: none) and number of the try: all randomness
    comes from it.
    """

    domain: Domain
    settings: TheorySettings
    sandbox: Sandbox
    theories: Mapping[str, TheorySpec]
    slots: tuple[str, str]
    observed: Sequence[Observed]
    predicted: Mapping[str, Sequence[Predicted]]
    losses: Mapping[str, float]
    offers: tuple[Experiment, ...] | None
    key: tuple[int, int, int, int]

    def chooser(self, label: str) -> Chooser:
        """A theory, ready to run."""
        return self.theories[label].chooser(label, self.domain, self.sandbox)


Proposed: TypeAlias = Designed | Fault
Ruled: TypeAlias = Judged | Fault
#: None: nothing better can be thought of.
Revised: TypeAlias = TheorySpec | Fault | None


@runtime_checkable
class Scientist(Protocol):
    """The three roles. The same view gives the same answer where the scientist can promise that."""

    @property
    def name(self) -> str:
        """Who it is, with the settings that matter, for the record."""
        ...

    def transcript(self) -> list[Json]:
        """Questions and answers since the last call, for the record."""
        ...

    def propose(self, view: View, side: int, refused: Sequence[str]) -> Proposed:
        """An experiment where the theory of slot ``side`` (1 or 2) should be right, and the other wrong.

        ``refused``: what the gate said of this side's designs of this round.
        """
        ...

    def judge(self, view: View) -> Ruled:
        """Which slot loses its theory, and whether to a revision of its model or to a new theory."""
        ...

    def revise(self, view: View, verdict: Verdict, tried: Sequence[Candidate]) -> Revised:
        """A successor. The accepted one among ``tried`` with the least loss is the one to start from."""
        ...
