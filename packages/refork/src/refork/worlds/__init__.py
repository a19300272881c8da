"""What a policy acts on."""

from refork.core.world.base import Episode, Observation, Split, Task, World
from refork.core.world.fork import resume
from refork.core.world.open import open_world

__all__ = ["Episode", "Observation", "Split", "Task", "World", "open_world", "resume"]
