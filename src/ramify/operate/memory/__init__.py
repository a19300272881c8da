"""Experience as text, and as code only where it was used again and again."""

from ramify.operate.memory.build import Built, codify_due
from ramify.operate.memory.gate import RecurrenceGate
from ramify.operate.memory.guard import AdmissionGuard, Guard
from ramify.operate.memory.item import MemoryItem
from ramify.operate.memory.memory import ExperienceMemory, Selection
from ramify.operate.memory.roles.lesson import Lesson
from ramify.operate.memory.roles.team import Roles, roles_by
from ramify.operate.memory.tool import Tool
from ramify.operate.memory.trajectory import RunStep, RunTrajectory

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
