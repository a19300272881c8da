"""What a policy acts on."""

from refork.worlds.base import Episode, Observation, Split, Task, World
from refork.worlds.fork import resume
from refork.worlds.open import open_world

__all__ = ["Episode", "Observation", "Split", "Task", "World", "open_world", "resume"]
