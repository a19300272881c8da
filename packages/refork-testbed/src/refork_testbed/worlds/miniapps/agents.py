"""A scripted agent for the apps: it acts turn by turn, slips at stated rates, reads answers and recovers.

What a memory gives it works only through what it is. A *text* is read: what it states replaces a slip by
knowledge, or misleads until an answer shows otherwise. A *tool* is called: everything inside it happens in
one turn, and the agent sees nothing but the value that comes back. That is why a defect in a tool costs more
than the same defect in a text; no rate says so.

Source: the two ways of use, and their asymmetry, are those of arXiv 2606.24151; the agent is ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, final, runtime_checkable

from refork.errors import ReplayDiverged
from refork.sampling.noise import NoiseKey, uniforms
from refork.types import Json
from refork_methods.memory.grammar import call_text, done_text, tool_text
from refork_testbed.worlds.miniapps.advice import Text, documented
from refork_testbed.worlds.miniapps.hand import SCRIPTS, Call, Hand, Skill, ToolFailed
from refork_testbed.worlds.miniapps.mind import THOUGHTS, Mind, Rates
from refork_testbed.worlds.miniapps.scenarios import SIMPLE, Part, query_of, read_query
from refork_testbed.worlds.miniapps.service import is_refused
from refork_testbed.worlds.miniapps.world import Caller, MiniAppsEpisode, ToolLike


@runtime_checkable
class Bindable(ToolLike, Protocol):
    """A tool that can tell whether a request is one for it."""

    def bind(self, sentence: str) -> Mapping[str, Any] | None:
        """Its arguments for a request of one sentence; None where it is not made for it."""
        ...


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a run: what was said, the calls it made (a tool's own among them), and what came back."""

    output: str
    calls: tuple[Json, ...]
    observation: str


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run. ``reward`` is the world's, ``info`` what its last answer says beside."""

    query: str
    turns: tuple[Turn, ...]
    reward: float
    info: Json = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Turns, the last ``done()`` included."""
        return len(self.turns)


@final
@dataclass(frozen=True)
class Agent:
    """A scripted agent and what its memory gives it."""

    rates: Rates = field(default_factory=Rates)
    texts: tuple[Text, ...] = ()
    tools: tuple[Bindable, ...] = ()

    def open(self, prompt: str) -> Session:
        """Begin a task; everything it knows of it is in the prompt."""
        return Session(self, prompt)

    def resume(self, prompt: str, turns: Sequence[tuple[str, str]]) -> Session:
        """A session after recorded turns (said, seen), which this agent must have said.

        Raises:
            ReplayDiverged: it would have said something else.
        """
        session = self.open(prompt)
        for number, (said, seen) in enumerate(turns, 1):
            own = session.say(thought_in(said))
            if own.strip() != said.strip():
                raise ReplayDiverged(
                    f"turn {number} was {said.strip()!r}; this agent says {own.strip()!r}",
                    hint="resume with the agent that was recorded, then give it another memory with read()",
                )
            session.see(seen)
        return session


@final
class Session:
    """One task in work. ``say`` gives a turn, ``see`` takes the answer to it."""

    def __init__(self, agent: Agent, prompt: str) -> None:
        self.query = query_of(prompt)
        self._parts = tuple(read_query(self.query))
        self._mind = Mind(agent.rates, documented(prompt), agent.texts)
        self._tools = agent.tools
        self._hand = Hand(self._mind)
        self._work = self._go()
        self._turn = 0
        self._seen: Json | None = None
        self._said = ""

    def read(self, texts: Sequence[Text], tools: Sequence[Bindable] = ()) -> None:
        """Have this memory instead from the next turn on: how forks of one prefix differ."""
        self._mind.read(texts)
        self._tools = tuple(tools)

    def say(self, thought: int) -> str:
        """The next turn; its ``thought``, 0 to 4095, is the noise of all its decisions and begins it."""
        self._turn += 1
        self._mind.think(f"{self.query}/{self._turn}/{thought}")
        try:
            act = next(self._work) if self._seen is None else self._work.send(self._seen)
            write = tool_text if act.tool else call_text
            body = write(act.name, act.arguments)
        except StopIteration as stop:
            body = done_text(stop.value)
        return f"# {thought:04d}\n{body}"

    def see(self, text: str) -> None:
        """Take the answer to the last turn."""
        try:
            seen = json.loads(text)
        except ValueError:
            seen = {"status_code": 400, "message": text}
        self._seen = seen if isinstance(seen, dict) else {"result": seen}

    def _go(self) -> Skill[str | None]:
        answer: str | None = None
        for part in self._parts:
            self._mind.turn_to(part.sentence)
            told = yield from self._do(part)
            answer = told if told is not None else answer
        return answer

    def _do(self, part: Part) -> Skill[str | None]:
        """One sentence: by the first tool that is made for it, else by hand."""
        for tool in self._tools:
            given = tool.bind(part.sentence)
            if given is None:
                continue
            seen = yield Call(tool.name, dict(given), tool=True)
            if not is_refused(seen):
                value = seen.get("result")
                return str(value) if isinstance(value, str | int | float) else None
            if not self._mind.chance(self._mind.rates.by_hand):
                return None
            break
        return (yield from SCRIPTS[part.template](self._hand, part.slots))


def thought_in(output: str) -> int:
    """The thought that a turn begins with; 0 where it shows none."""
    head = output.lstrip().removeprefix("#").strip()[:4]
    return int(head) % THOUGHTS if head.isascii() and head.isdigit() else 0


def thought_of(noise: NoiseKey) -> int:
    """The thought of a turn, drawn by its noise key."""
    return int(uniforms([noise], 1)[0][0] * THOUGHTS)


def play(session: Session, episode: MiniAppsEpisode, noise: NoiseKey) -> Run:
    """Let a session act in an episode to its end; turn t thinks by the noise key at turn t.

    Two runs under one key differ only by what differs in memory, version or rates.
    """
    turns: list[Turn] = []
    number = noise.turn
    while True:
        said = session.say(thought_of(noise.at_turn(number)))
        seen = episode.step(said)
        turns.append(Turn(said, tuple(seen.info.get("calls", ())), seen.text))
        number += 1
        if seen.done:
            return Run(session.query, tuple(turns), float(seen.reward or 0.0), dict(seen.info))
        session.see(seen.text)


@final
@dataclass(frozen=True)
class ScriptTool:
    """A request of one sentence as a tool: the scripted procedure, run as code.

    It goes by what the documentation said when it was made (``facts``), or by what was written into it by
    mistake, looks at nothing that it was not written to look at, and fails where a call is refused or
    nothing is found.
    """

    template: str
    facts: Mapping[str, str]

    @property
    def name(self) -> str:
        """The template's name as an identifier."""
        return self.template.replace("-", "_")

    @property
    def doc(self) -> str:
        """The sentence that it is for."""
        return SIMPLE[self.template].sentence

    @property
    def parameters(self) -> Json:
        """The slots of the sentence, all texts."""
        slots = list(SIMPLE[self.template].pattern.groupindex)
        return {"type": "object", "properties": {s: {"type": "string"} for s in slots}, "required": slots}

    @property
    def digest(self) -> str:
        """What it was made of."""
        return json.dumps([self.template, sorted(self.facts.items())])

    def bind(self, sentence: str) -> Mapping[str, Any] | None:
        """The slots of a sentence of its template."""
        return SIMPLE[self.template].read(sentence)

    def run(self, arguments: Mapping[str, Any], call: Caller) -> Any:
        """Do it all. Raises ToolFailed where an answer is not what it was written for."""
        hand = Hand(Mind(Rates.code(), self.facts), code=True)
        work = SCRIPTS[self.template](hand, {key: str(value) for key, value in arguments.items()})
        try:
            act = next(work)
            while True:
                act = work.send(call(act.name, act.arguments))
        except StopIteration as stop:
            return stop.value
        except (KeyError, TypeError, IndexError) as error:
            raise ToolFailed(f"an answer has another form: {error!r}") from error


def expert(prompt: str) -> Session:
    """A session that makes no mistake."""
    return Agent(Rates.perfect()).open(prompt)
