"""A language model as a world: it is asked what the environment will answer, many episodes in one batch."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from refork.errors import BadInput
from refork.policies.base import Cost, Policy, Request, Sampling, sample_all, total_cost
from refork.policies.one_at_a_time import one_at_a_time
from refork.sampling.noise import NoiseKey, stream_of
from refork.types import IntArray, Json, token_array
from refork.worlds.base import Split, Task, World
from refork.worlds.dice import digest
from refork.worlds.environment import ActionObservation, Brief, DomainName, Environment, ScriptedAgent
from refork_methods.simulate.control.base import Control
from refork_methods.simulate.episode import SimulatedEpisode, brief_of, identity_of, read_turn
from refork_methods.simulate.prompt import NO_TAG, TAG, THINK, Asked, Prediction, extract_prediction, messages

# A world whose tasks and grading are a real one's and whose answers are a model's.


@final
@dataclass(frozen=True, slots=True)
class SimulatedWorld:
    """Tasks, briefs and grading of ``base``, answers of ``model``: a world, an environment and a simulator.

    The base is never stepped, so it need not run here: only its tasks are made. A fork that goes on in this
    world continues the recorded texts, whoever said them.
    """

    model: WorldModel
    base: Environment
    control: Control | None = None

    @property
    def name(self) -> str:
        """``simulated:`` and the base's name."""
        return f"simulated:{self.base.name}"

    @property
    def identity(self) -> Json:
        """The model, its settings and the control."""
        return identity_of(self.model, self.control)

    @property
    def version(self) -> str:
        """The base's version and who simulates it."""
        return f"{self.base.version}+{digest(self.identity)[:12]}"

    @property
    def max_turns(self) -> int:
        """As in the base."""
        return self.base.max_turns

    @property
    def deterministic(self) -> bool:
        """No: an answer is drawn."""
        return False

    @property
    def domain(self) -> DomainName:
        """As of the base."""
        return self.base.domain

    def tasks(self, split: Split, count: int, seed: int = 0) -> Sequence[Task]:
        """The base's own tasks."""
        return self.base.tasks(split, count, seed)

    def brief(self, task: Task) -> Brief:
        """What the model is told."""
        return self.base.brief(task)

    def agent(self, task: Task, seed: int) -> ScriptedAgent:
        """The base's scripted agent."""
        return self.base.agent(task, seed)

    def standing(self, task: Task, history: Sequence[ActionObservation]) -> tuple[bool, float | None]:
        """As the base reads it from the texts."""
        return self.base.standing(task, history)

    def start(self, task: Task, seed: int) -> SimulatedEpisode:
        """Begin an episode; the seed addresses the noise of its answers."""
        return self.model.env(task, control=self.control, world=self.base, seed=seed)

    def restore(self, task: Task, snapshot: bytes) -> SimulatedEpisode:
        """The episode of a snapshot. Raises BadInput where it is none of a simulated episode of this task."""
        return self.model.restore(snapshot, task, control=self.control, world=self.base)

    def resume(
        self, task: Task, world: World | None, history: Sequence[ActionObservation], seed: int
    ) -> SimulatedEpisode:
        """An episode after these turns, real or simulated; this world's own base grades it."""
        return self.model.env(task, control=self.control, world=self.base, seed=seed, history=history)

    def action_in(self, turn: str) -> str:
        """What of an agent's turn is its action."""
        return read_turn(self.base, turn)


# A language model as a world: it is asked what the environment will answer, many episodes in one batch.
#
# Noise: the answer to turn t of an episode is drawn with ``NoiseKey(seed, stream, draw, t)``, the stream
# being that of the task's id. So the same seed, actions and model give the same texts, in any batch and on
# any worker (for policies that honour noise keys), and arms that differ in actions or control stay paired.

#: The likeliest answer under the model.
GREEDY = Sampling(temperature=0.0)

#: What a model that was not trained to simulate is told about the form of its answer.
FORM = (
    "You are this environment. Answer the last action as the environment would, to the letter, between "
    f"<{TAG}> and </{TAG}>."
)
REASON = f"Before that, say between <{THINK}> and </{THINK}> what decides the answer."


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A rendered question."""

    tokens: IntArray
    chat: tuple[Json, ...]
    cut: int
    room: int | None


@final
class WorldModel:
    """A policy that answers as environments do.

    ``settings`` default to the likeliest answer. An answer without a valid prediction is asked for again,
    up to ``retries`` times, each with noise of its own (at temperature 1 where the settings are greedy).
    ``think`` makes the model reason before it answers. ``prompted`` tells it the form of its answer, for
    models that were not trained here (None: remote ones are told).
    """

    def __init__(
        self,
        model: Policy,
        *,
        settings: Sampling | None = None,
        think: bool = False,
        retries: int = 2,
        prompted: bool | None = None,
    ) -> None:
        if retries < 0:
            raise BadInput(f"retries is {retries}; it must be 0 or more", where="world model")
        self.model = model
        self.settings = settings or GREEDY
        self.think = think
        self.retries = retries
        self.prompted = model.card.kind == "remote" if prompted is None else prompted
        if think and not self.prompted and model.card.can("tokens"):
            # Such a model is told nothing of the form, so its reasoning is begun for it.
            opening = tuple(int(token) for token in model.encode(f"<{THINK}>"))
            self.settings = self.settings.but(forced=opening)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.card.name

    @property
    def identity(self) -> Json:
        """What the answers depend on, the transcript and a control aside."""
        card = self.model.card
        plain: Json = {
            "model": card.name, "weights": card.weights, "settings": self.settings.to_json(),
            "retries": self.retries,
        }  # fmt: skip
        return plain | {name: True for name in ("think", "prompted") if getattr(self, name)}

    # -- asking -------------------------------------------------------------------------------

    def predict(self, asked: Sequence[Asked]) -> list[Prediction]:
        """An answer to every question, in order: one batch, and one more per round of retries."""
        made: dict[int, Prediction] = {}
        prompts: dict[int, _Prompt] = {}
        shared: dict[bytes, IntArray] = {}
        for number, item in enumerate(asked):
            found = self._prompt(item)
            if isinstance(found, Prediction):
                made[number] = found
                continue
            # Equal prompts are one array: the decoder computes it once.
            kept = shared.setdefault(found.tokens.tobytes(), found.tokens)
            prompts[number] = replace(found, tokens=kept)
        spent: dict[int, list[Cost]] = {number: [] for number in prompts}
        for attempt in range(1 + self.retries):
            due = [n for n in prompts if n not in made or made[n].text is None]
            if not due:
                break
            for number, raw, cost, error in self._sample(asked, prompts, due, attempt):
                spent[number].append(cost)
                text = None if error else extract_prediction(raw)
                problem = error or (None if text is not None else NO_TAG)
                made[number] = Prediction(
                    text, raw, total_cost(spent[number]), problem, attempt + 1, prompts[number].cut
                )
        return [made[number] for number in range(len(asked))]

    def _sample(
        self, asked: Sequence[Asked], prompts: dict[int, _Prompt], due: Sequence[int], attempt: int
    ) -> list[tuple[int, str, Cost, str | None]]:
        """What the model says to the questions that are due."""
        sampling = self.settings
        if attempt and sampling.temperature == 0:
            # The likeliest answer would be the same invalid one again.
            sampling = sampling.but(temperature=1.0)
        requests = [
            Request(
                prompts[n].tokens,
                _again(asked[n].noise, attempt),
                prompts[n].chat,
                max_tokens=prompts[n].room,
            )
            for n in due
        ]
        with one_at_a_time(self.model):
            said = sample_all(self.model, requests, sampling)
        return [(n, one.text, one.cost, one.error) for n, one in zip(due, said, strict=True)]

    def _prompt(self, asked: Asked) -> _Prompt | Prediction:
        """The question with as much history as fits; where not even the brief does, a failed prediction."""
        history, context = asked.history, self.model.card.context
        chat, tokens = self._render(asked, history)
        if context is None or not len(tokens):
            return _Prompt(tokens, chat, 0, None)
        room = max(min(self.settings.max_tokens, context // 4), 1)
        cut = 0
        if len(tokens) + room > context:
            # Fewer turns never need more room, so how many go is found by halving: each try renders the chat.
            cut = bisect_left(
                range(len(history)), True,
                key=lambda n: len(self._render(asked, history[n:])[1]) + room <= context,
            )  # fmt: skip
            chat, tokens = self._render(asked, history[cut:])
            if len(tokens) + room > context:
                why = (
                    f"the brief and this action need {len(tokens)} tokens, the model's context has {context}"
                )
                return Prediction(None, "", Cost(0, 0), why, 0, cut)
        return _Prompt(tokens, chat, cut, min(self.settings.max_tokens, context - len(tokens)))

    def _render(
        self, asked: Asked, history: Sequence[ActionObservation]
    ) -> tuple[tuple[Json, ...], IntArray]:
        told = [asked.instruction]
        if self.prompted:
            told += [REASON] if self.think else []
            told += [FORM]
        instruction = "\n".join(filter(None, told))
        chat = messages(asked.brief, history, asked.action, instruction)
        with one_at_a_time(self.model):
            rendered = self.model.render([], token_array([]), chat)
        return tuple(chat), rendered.tokens

    # -- acting -------------------------------------------------------------------------------

    def env(
        self,
        task: Task | None = None,
        initial_state: str | Brief = "",
        *,
        control: Control | None = None,
        world: Environment | None = None,
        seed: int = 0,
        history: Sequence[ActionObservation] = (),
    ) -> SimulatedEpisode:
        """An episode that this model answers, after the turns in ``history``.

        The brief is ``initial_state`` where that is one, else the world's, else of the task's prompt and
        the text given. ``world`` grades; without one nothing is ever over. An empty initial state warns: what
        is not said there the model has to make up.
        """
        chosen = task or Task("free", "simulated", "train", "")
        brief = brief_of(chosen, initial_state, world)
        if not brief.initial_state and not history:
            warnings.warn(
                f"the initial state of task {chosen.id!r} is empty: the simulator has to make it up",
                UserWarning,
                stacklevel=2,
            )
        return SimulatedEpisode(self, chosen, brief, control=control, world=world, history=history, seed=seed)

    def restore(
        self,
        snapshot: bytes,
        task: Task | None = None,
        *,
        control: Control | None = None,
        world: Environment | None = None,
    ) -> SimulatedEpisode:
        """The episode of a snapshot, exactly; under the control that is given here.

        Raises:
            BadInput: it is no snapshot of a simulated episode, or of another task.
        """
        return SimulatedEpisode.restored(self, snapshot, task, control=control, world=world)

    def world(self, base: Environment, control: Control | None = None) -> SimulatedWorld:
        """A world with the tasks, briefs and grading of ``base`` and the answers of this model."""
        return SimulatedWorld(self, base, control)


def _again(noise: NoiseKey, attempt: int) -> NoiseKey:
    """The noise of a retry: a stream of its own, so that it is no other draw's."""
    return noise if not attempt else replace(noise, stream=stream_of("again", noise.stream, attempt))


# A world model as the simulator that forks fall back on.


@final
@dataclass(frozen=True, slots=True)
class LearnedSimulator:
    """Goes on where a world can neither be restored nor replayed, under a control if one is given."""

    model: WorldModel
    control: Control | None = None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def identity(self) -> Json:
        """The model, its settings and the control."""
        return identity_of(self.model, self.control)

    def resume(
        self, task: Task, world: World | None, history: Sequence[ActionObservation], seed: int
    ) -> SimulatedEpisode:
        """An episode after these turns; a world that can grade texts grades it, another's is ungraded."""
        known = world if isinstance(world, Environment) else None
        with warnings.catch_warnings():
            # What the initial state lacks, the transcript may hold; the arm says that it is simulated.
            warnings.simplefilter("ignore", UserWarning)
            return self.model.env(task, control=self.control, world=known, history=history, seed=seed)
