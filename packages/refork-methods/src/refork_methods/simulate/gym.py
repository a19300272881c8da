"""A simulated episode as a Gymnasium environment: reset, step, text spaces."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from refork.errors import BadInput, MissingExtra
from refork.types import Json

if TYPE_CHECKING:
    from refork_methods.simulate.episode import SimulatedEpisode

_LONGEST = 100_000


@final
@dataclass(slots=True)
class TextEnv:
    """Gymnasium's API over texts, without Gymnasium; :meth:`native` is the same as one of its environments.

    Every episode begins in the state that ``begin`` has now. ``reset(seed=n)`` draws answers with seed n;
    without a seed, each episode has the seed after the last. The first observation is the task's prompt.
    Rewards are 0.0 until the episode is graded; ``truncated`` after ``max_turns``.
    """

    begin: SimulatedEpisode
    max_turns: int | None = None
    _live: SimulatedEpisode | None = None
    _seed: int | None = None
    _turns: int = 0

    def reset(self, *, seed: int | None = None, options: Json | None = None) -> tuple[str, Json]:
        """Begin again: the first text, and info."""
        last = self.begin.noise.seed - 1 if self._seed is None else self._seed
        self._seed = last + 1 if seed is None else seed
        self._live = self.begin.fork()
        self._live.reseed(self._seed)
        self._turns = 0
        return self.begin.task.prompt, {"task": self.begin.task.id, "simulator": self._live.simulator}

    def step(self, action: str) -> tuple[str, float, bool, bool, Json]:
        """Observation, reward, terminated, truncated, info. Raises BadInput before a reset."""
        if self._live is None:
            raise BadInput("the environment was not reset", hint="call reset() before step()")
        seen = self._live.step(action)
        self._turns += 1
        cut = not seen.done and self.max_turns is not None and self._turns >= self.max_turns
        return seen.text, float(seen.reward or 0.0), seen.done, cut, seen.info

    def close(self) -> None:
        """Nothing is held."""

    def native(self) -> Any:
        """The same as a ``gymnasium.Env`` with text spaces. Raises MissingExtra without Gymnasium."""
        return _native(self)


def _native(inner: TextEnv) -> Any:
    try:
        import gymnasium
    except ImportError:
        raise MissingExtra("gymnasium", "worlds") from None

    class AnyText(gymnasium.spaces.Text):  # type: ignore[misc]
        """Texts of any characters; samples are printable ASCII."""

        def contains(self, x: Any) -> bool:
            return isinstance(x, str) and len(x) <= self.max_length

    class Native(gymnasium.Env):  # type: ignore[misc, type-arg, unused-ignore]
        """The environment with its spaces."""

        metadata: ClassVar[Json] = {"render_modes": []}
        action_space = AnyText(_LONGEST, min_length=0, charset=string.printable)
        observation_space = AnyText(_LONGEST, min_length=0, charset=string.printable)

        def reset(self, *, seed: int | None = None, options: Json | None = None) -> tuple[str, Json]:
            super().reset(seed=seed)
            return inner.reset(seed=seed, options=options)

        def step(self, action: str) -> tuple[str, float, bool, bool, Json]:
            return inner.step(action)

    return Native()
