"""What a policy acts on."""

from ramify.core.world.base import Episode, Observation, Split, Task, World
from ramify.core.world.fork import resume
from ramify.core.world.open import open_world

__all__ = ["Episode", "Observation", "Split", "Task", "World", "open_world", "resume"]
