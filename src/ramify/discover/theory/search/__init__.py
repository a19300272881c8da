"""The closed loop: propose, gate, observe, score, judge, revise; recorded, and resumed at any step."""

from ramify.discover.theory.search.loop import Outcome, TheorySearch
from ramify.discover.theory.search.participants import (
    Participants,
    RecordedPeople,
    SimulatedPeople,
    open_participants,
)
from ramify.discover.theory.search.scientist import Scientist
from ramify.discover.theory.search.scripted import ScriptedScientist
from ramify.discover.theory.search.settings import TheorySettings

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
