"""Experience as text, and as code only where it was used again and again."""

from refork_methods.memory.admission import AdmissionGuard, Guard
from refork_methods.memory.gate import RecurrenceGate
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.memory import Built, ExperienceMemory, Selection, codify_due
from refork_methods.memory.roles.lesson import Lesson
from refork_methods.memory.roles.team import Roles, roles_by
from refork_methods.memory.tool import Tool
from refork_methods.memory.trajectory import RunStep, RunTrajectory

__all__ = [
    "AdmissionGuard",
    "Built",
    "ExperienceMemory",
    "Guard",
    "Lesson",
    "MemoryItem",
    "RecurrenceGate",
    "Roles",
    "RunStep",
    "RunTrajectory",
    "Selection",
    "Tool",
    "codify_due",
    "roles_by",
]
