"""Worlds whose answers a model can learn: what such a model is told, and what it learns from.

An environment trajectory is what the environment saw and said: actions and observations, without the
agent's reasoning.

Source: arXiv 2606.24597 for the seven domains, the five parts of the brief and trajectories without
reasoning; the record and its checks are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.base import Task, World

DomainName: TypeAlias = Literal["terminal", "swe", "search", "tools", "phone", "web", "desktop"]
DOMAINS: tuple[DomainName, ...] = get_args(DomainName)

#: What was done and what was seen.
ActionObservation: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What a simulator is told before the first action.

    It has no machine behind it, so what ``initial_state`` leaves out it has to make up.
    """

    task_description: str = ""
    action_space: str = ""
    initial_state: str = ""
    demonstrations: str = ""
    simulation_instruction: str = ""

    @property
    def text(self) -> str:
        """The parts that are not empty, each under its name."""
        parts = [(item.name, getattr(self, item.name)) for item in fields(self)]
        return "\n\n".join(f"# {name.replace('_', ' ')}\n{text}" for name, text in parts if text)

    def to_json(self) -> Json:
        """The parts that are not empty."""
        return {key: value for key, value in asdict(self).items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Brief:
        """Inverse of :meth:`to_json`; an unknown part is refused."""
        unknown = sorted(set(data) - {item.name for item in fields(cls)})
        if unknown:
            raise BadInput(f"a brief has no part {unknown[0]!r}", where="brief")
        return cls(**{key: str(value) for key, value in data.items()})


@dataclass(frozen=True, slots=True)
class Transition:
    """One action and its answer.

    ``exact``: whether the answer follows from what was said before it, so that it can be predicted to the
    letter (None: not known). ``note``: what decides the answer, in words; a model may learn to say it first.
    ``target`` False: it stands in the context of later turns, and nothing is learned from it.
    """

    action: str
    observation: str
    exact: bool | None = None
    note: str | None = None
    state_key: str | None = None
    target: bool | None = None

    def to_json(self) -> Json:
        """Fields that are known."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvTrajectory:
    """One episode as its environment saw it.

    ``source`` is where it comes from (a world, a benchmark, a log); train and test never share one, or,
    within a world, never share a task. ``domain`` None: not one of the seven.
    """

    id: str
    source: str
    brief: Brief
    turns: tuple[Transition, ...]
    domain: DomainName | None = None
    split: str | None = None
    extra: Json = field(default_factory=dict)

    def history(self, before: int | None = None) -> tuple[ActionObservation, ...]:
        """Actions and observations of the turns before one (None: of all)."""
        return tuple((turn.action, turn.observation) for turn in self.turns[:before])

    def to_json(self) -> Json:
        """Plain fields; the inverse of :meth:`from_json`."""
        return {
            "id": self.id,
            "source": self.source,
            "domain": self.domain,
            "split": self.split,
            "brief": self.brief.to_json(),
            "turns": [turn.to_json() for turn in self.turns],
            "extra": self.extra,
        }

    @classmethod
    def from_json(cls, data: Any, where: str = "trajectory") -> EnvTrajectory:
        """A record as :meth:`to_json` writes it.

        Raises:
            BadInput: keys are missing, unknown or of the wrong type, the domain is none of the seven, or a
                text is no Unicode.
        """
        if not isinstance(data, dict) or not {"id", "source", "turns"} <= set(data):
            raise BadInput("a trajectory has at least the keys id, source and turns", where=where)
        domain = data.get("domain")
        if domain is not None and domain not in DOMAINS:
            raise BadInput(
                f"there is no domain {domain!r}", where=where, hint="domains: " + ", ".join(DOMAINS)
            )
        try:
            turns = tuple(Transition(**turn) for turn in data["turns"])
            body = {key: value for key, value in data.items() if key not in ("turns", "brief")}
            found = cls(brief=Brief.from_json(data.get("brief") or {}), turns=turns, **body)
        except TypeError as error:
            raise BadInput(f"not a trajectory: {error}", where=where) from error
        for number, turn in enumerate(turns, start=1):
            if not isinstance(turn.action, str) or not isinstance(turn.observation, str):
                raise BadInput(f"turn {number} lacks the text of its action or observation", where=where)
        # JSON may spell half of a surrogate pair, which Python reads and no file in UTF-8 can hold.
        try:
            f"{found.id} {found.source} {found.brief.text}".encode()
            for turn in turns:
                f"{turn.action} {turn.observation} {turn.note}".encode()
        except UnicodeEncodeError as error:
            raise BadInput(f"a text that no file can hold: {error}", where=where) from error
        return found


@runtime_checkable
class ScriptedAgent(Protocol):
    """Who acts while trajectories are recorded."""

    def act(self, history: Sequence[ActionObservation]) -> str | None:
        """The next action after these turns; None where it has nothing more to do."""
        ...


@runtime_checkable
class Environment(World, Protocol):
    """A world that can be recorded for a simulator, and graded from its texts alone.

    Its observations carry in ``info``: ``exact`` and, where something decides the answer that can be said in
    words, ``note`` (see :class:`Transition`).
    """

    @property
    def domain(self) -> DomainName:
        """Which of the seven."""
        ...

    def brief(self, task: Task) -> Brief:
        """What a simulator of a task is told."""
        ...

    def agent(self, task: Task, seed: int) -> ScriptedAgent:
        """A scripted agent that explores, solves and errs; which of it is drawn by the seed."""
        ...

    def standing(self, task: Task, history: Sequence[ActionObservation]) -> tuple[bool, float | None]:
        """Whether an episode is over, and its reward: read from its texts alone, as in the real world.

        So a simulated episode is graded by the same rule.
        """
        ...
