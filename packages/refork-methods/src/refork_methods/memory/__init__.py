"""Experience as text, and as code only where it was used again and again."""

from refork.operate.memory.build import Built, codify_due
from refork.operate.memory.gate import RecurrenceGate
from refork.operate.memory.guard import AdmissionGuard, Guard
from refork.operate.memory.item import MemoryItem
from refork.operate.memory.memory import ExperienceMemory, Selection
from refork.operate.memory.roles.lesson import Lesson
from refork.operate.memory.roles.team import Roles, roles_by
from refork.operate.memory.tool import Tool
from refork.operate.memory.trajectory import RunStep, RunTrajectory

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
