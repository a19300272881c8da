"""Stand-ins for people and scientist while a record is read: whatever would be new is our bug."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, final

from refork.errors import InternalError
from refork.types import Json
from refork_methods.theory.domains import Domain
from refork_methods.theory.experiment import Experiment
from refork_methods.theory.pool import Verdict
from refork_methods.theory.search.scientist import Candidate, View


def _refuse(*given: object) -> NoReturn:
    raise InternalError(f"a search that is read asked for something new: {given!r:.200}")


@final
class ReplayedPeople:
    """People who answered already."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def offers(self) -> tuple[Experiment, ...] | None:
        """Nothing more."""
        return ()

    def remaining_people(self, experiment: Experiment, planned: int) -> int:
        """Never asked."""
        _refuse(experiment, planned)

    def answer(self, experiment: Experiment, people: int, seed: int) -> NoReturn:
        """Never asked."""
        _refuse(experiment, people, seed)

    def held_out(self, domain: Domain, count: int, people: int, seed: int) -> NoReturn:
        """Never asked."""
        _refuse(domain, count, people, seed)


@final
class ReplayedScientist:
    """A scientist who answered already."""

    def __init__(self, name: str) -> None:
        self.name = name

    def transcript(self) -> list[Json]:
        """Nothing more."""
        return []

    def propose(self, view: View, side: int, refused: Sequence[str]) -> NoReturn:
        """Never asked."""
        _refuse(view, side, refused)

    def judge(self, view: View) -> NoReturn:
        """Never asked."""
        _refuse(view)

    def revise(self, view: View, verdict: Verdict, tried: Sequence[Candidate]) -> NoReturn:
        """Never asked."""
        _refuse(view, verdict, tried)
