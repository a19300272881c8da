"""The closed loop: propose, gate, observe, score, judge, revise; recorded, and resumed at any step."""

from refork_methods.theory.search.loop import Outcome, TheorySearch
from refork_methods.theory.search.participants import (
    Participants,
    RecordedPeople,
    SimulatedPeople,
    open_participants,
)
from refork_methods.theory.search.scientist import Scientist
from refork_methods.theory.search.scripted import ScriptedScientist
from refork_methods.theory.search.settings import TheorySettings

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
