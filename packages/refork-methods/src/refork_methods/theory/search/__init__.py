"""The closed loop: propose, gate, observe, score, judge, revise; recorded, and resumed at any step."""

from refork.discover.theory.search.loop import Outcome, TheorySearch
from refork.discover.theory.search.participants import (
    Participants,
    RecordedPeople,
    SimulatedPeople,
    open_participants,
)
from refork.discover.theory.search.scientist import Scientist
from refork.discover.theory.search.scripted import ScriptedScientist
from refork.discover.theory.search.settings import TheorySettings

__all__ = [
    "Outcome",
    "Participants",
    "RecordedPeople",
    "Scientist",
    "ScriptedScientist",
    "SimulatedPeople",
    "TheorySearch",
    "TheorySettings",
    "open_participants",
]
