"""A simulated episode: its state is its transcript, so it can be saved, forked and answered exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from refork.errors import BadInput
from refork.sampling.noise import NoiseKey, stream_of
from refork.thoughts import without_thoughts
from refork.types import Json
from refork.worlds.base import Observation, Task
from refork.worlds.dice import digest
from refork.worlds.environment import ActionObservation, Brief, Environment
from refork.worlds.trajectories import Reads
from refork_methods.simulate.actions import tool_call
from refork_methods.simulate.control.base import Control, Moment, steer
from refork_methods.simulate.prompt import Asked, Prediction

if TYPE_CHECKING:
    from refork_methods.simulate.world import WorldModel


# A simulated episode under Gymnasium's names: reset, step.


@final
@dataclass(slots=True)
class TextEnv:
    """Gymnasium's API over texts, without Gymnasium.

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
        # One less, so that a first reset without a seed has the seed that the episode was made with.
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


#: What an agent sees where the model gave no valid answer, retries included.
NO_ANSWER = "(the simulator gave no answer)"
_OVER = "(the episode is over)"
_FENCE = re.compile(r"```[^\n`]*\n(.*?)\n?```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Step:
    """An action that is being answered."""

    action: str
    asked: Asked


@final
class SimulatedEpisode:
    """One live run that a :class:`~refork_methods.simulate.world.WorldModel` answers.

    ``history`` is the transcript, controls included. Where a log's agent acts by tool calls and no world
    knows better, a turn without a call ends the episode, ungraded.

    Observations say in ``info["simulated"]`` what is notable about an answer (``tries`` beyond the first,
    turns ``cut`` from the context, the ``error`` where there is no answer), in ``info["control"]`` what a
    control did.
    """

    def __init__(
        self,
        model: WorldModel,
        task: Task,
        brief: Brief,
        *,
        control: Control | None = None,
        world: Environment | None = None,
        history: Sequence[ActionObservation] = (),
        seed: int = 0,
    ) -> None:
        self.model = model
        self.task = task
        self.brief = brief
        self.control = control
        self.world = world
        self.history: list[ActionObservation] = list(history)
        self.noise = NoiseKey(seed, stream_of("simulate", task.id), 0)
        self._calls_only = world is None and task.data.get("tools") is True
        self._over = world is not None and bool(history) and world.standing(task, self.history)[0]

    @property
    def simulator(self) -> Json:
        """Who answers, under which control."""
        return identity_of(self.model, self.control)

    @property
    def graded(self) -> bool:
        """Whether a world's rule reads the end of the episode from its texts."""
        return self.world is not None

    @property
    def first(self) -> Observation:
        """Nothing: the task's prompt says it all, and a model is never asked before an action."""
        return Observation("", state_key=self._key())

    def _key(self) -> str:
        return digest("simulated", self.task.id, self.history)

    # -- acting -------------------------------------------------------------------------------

    def step(self, action: str) -> Observation:
        """The answer to one whole turn of an agent (its reasoning is left out)."""
        answer = self.step_together([self], [action])[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @classmethod
    def step_together(
        cls, episodes: Sequence[SimulatedEpisode], actions: Sequence[str]
    ) -> list[Observation | Exception]:
        """The answers of many episodes, one batch per model; each is what :meth:`step` would give."""
        found: list[Observation | Exception | None] = [None] * len(episodes)
        due: dict[int, list[tuple[int, _Step]]] = {}
        for number, (episode, action) in enumerate(zip(episodes, actions, strict=True)):
            if episode._over:
                found[number] = Observation(_OVER, done=True)
                continue
            if episode._ends(action):
                episode._over = True
                found[number] = Observation("", done=True)
                continue
            try:
                due.setdefault(id(episode.model), []).append((number, episode._asking(action)))
            except Exception as error:  # of one episode, not of the others
                found[number] = error
        for group in due.values():
            model = episodes[group[0][0]].model
            said = model.predict([step.asked for _, step in group])
            for (number, step), prediction in zip(group, said, strict=True):
                try:
                    found[number] = episodes[number]._answered(step, prediction)
                except Exception as error:
                    found[number] = error
        return [item for item in found if item is not None]

    def _ends(self, turn: str) -> bool:
        return self._calls_only and not any(tool_call(line) for line in action_of(turn).splitlines())

    def _asking(self, turn: str) -> _Step:
        action = read_turn(self.world, turn)
        # The turn is the transcript's length, so a restored episode draws what the first would have drawn.
        noise = self.noise.at_turn(len(self.history))
        at = Moment(self.task, self.history, action, noise)
        told = self.control.instruction(at) if self.control is not None else ""
        return _Step(action, Asked(self.brief, tuple(self.history), action, noise, told))

    def _answered(self, step: _Step, prediction: Prediction) -> Observation:
        predicted = NO_ANSWER if prediction.text is None else prediction.text
        info: Json = {}
        if prediction.text is None or prediction.tries > 1 or prediction.cut:
            info["simulated"] = {
                "tries": prediction.tries,
                "cut": prediction.cut,
                "error": prediction.error,
            }
        text = predicted
        done_to: list[Json] = []
        if prediction.text is not None:
            at = Moment(self.task, self.history, step.action, step.asked.noise)
            text, done_to = steer(self.control, at, predicted)
        if done_to:
            info["control"] = done_to
        before = len(self.history)
        self.history.append((step.action, text))
        try:
            done, reward = (
                (False, None) if self.world is None else self.world.standing(self.task, self.history)
            )
        except Exception:
            # The world could not read the transcript: the turn was not made and can be made again.
            del self.history[before:]
            raise
        self._over = done
        return Observation(text, self._key(), done, reward, info)

    # -- going back ---------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The transcript, the noise key and the control, as JSON."""
        state = {
            "simulated": 1,
            "task": self.task.id,
            "brief": self.brief.to_json(),
            "seen": [list(turn) for turn in self.history],
            "noise": self.noise.to_json(),
            "control": None if self.control is None else self.control.to_json(),
        }
        # A turn without a call ends an episode and leaves nothing in the transcript.
        if self._over and self._calls_only:
            state["over"] = True
        return json.dumps(state, sort_keys=True, ensure_ascii=False).encode()

    @classmethod
    def restored(
        cls,
        model: WorldModel,
        snapshot: bytes,
        task: Task | None = None,
        *,
        control: Control | None = None,
        world: Environment | None = None,
    ) -> SimulatedEpisode:
        """The episode of a snapshot; raises BadInput where it is of none, or another task's."""
        state = _state(snapshot)
        if task is not None and state["task"] != task.id:
            raise BadInput(f"the snapshot is of task {state['task']!r}", where=f"task {task.id}")
        episode = cls(
            model,
            task or Task(str(state["task"]), "simulated", "train", ""),
            Brief.from_json(state["brief"]),
            control=control,
            world=world,
            history=[(str(action), str(text)) for action, text in state["seen"]],
        )
        episode.noise = NoiseKey.from_json(state["noise"])
        episode._over = episode._over or state.get("over") is True
        return episode

    def fork(self, draw: int | None = None, *, control: Control | None = None) -> SimulatedEpisode:
        """Another episode in this state, going on with another draw of chance or another control."""
        twin = self.restored(
            self.model, self.snapshot(), self.task, control=control or self.control, world=self.world
        )
        if draw is not None:
            twin.noise = replace(self.noise, draw=draw)
        return twin

    def reseed(self, seed: int) -> None:
        """Draw answers anew from here on."""
        self.noise = replace(self.noise, seed=seed)

    def close(self) -> None:
        """Nothing is held."""

    def gym(self, *, max_turns: int | None = None) -> TextEnv:
        """A Gymnasium-style environment of this episode's beginning state."""
        turns = max_turns or (None if self.world is None else self.world.max_turns)
        return TextEnv(self, turns)


def _state(snapshot: bytes) -> dict[str, Any]:
    try:
        state = json.loads(snapshot)
    except ValueError:
        state = None
    keys = {"simulated", "task", "brief", "seen", "noise", "control"}
    if not isinstance(state, dict) or not keys <= set(state) or state["simulated"] != 1:
        raise BadInput("these bytes are no snapshot of a simulated episode", where="snapshot")
    return state


def identity_of(model: WorldModel, control: Control | None) -> Json:
    """What a controlled model's answers depend on."""
    return model.identity | ({"control": control.to_json()} if control is not None else {})


def brief_of(task: Task, initial_state: str | Brief, world: Environment | None) -> Brief:
    """The brief of a task: what is given, else what its world says, else what the task itself does."""
    if isinstance(initial_state, Brief):
        return initial_state
    if world is not None:
        known = world.brief(task)
    elif isinstance(task.data.get("brief"), dict):
        known = Brief.from_json(task.data["brief"])
    else:
        known = Brief(task_description=task.prompt)
    return replace(known, initial_state=initial_state) if initial_state else known


def read_turn(world: object, turn: str) -> str:
    """The action of an agent's turn, as the world reads it where it can say."""
    return world.action_in(turn) if isinstance(world, Reads) else action_of(turn)


def action_of(turn: str) -> str:
    """What of an agent's turn is its action: without reasoning, the last fenced block if there is one."""
    rest = without_thoughts(turn)
    blocks = _FENCE.findall(rest)
    return str(blocks[-1] if blocks else rest).strip()
