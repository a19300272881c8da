"""Simulated worlds over HTTP: as chat models, and as plain routes."""

from __future__ import annotations

import asyncio
import itertools
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, final

from pydantic import BaseModel, ConfigDict, Field

from refork.chat import Reply
from refork.errors import BadInput
from refork.policies.base import PolicyCard
from refork.serve.api import ErrorBody
from refork.serve.asking import holder_of
from refork.serve.chat_served import ChatAnswer
from refork.serve.refusal import BadParameter, require_text
from refork.serve.served import Asked
from refork.serve.stream import json_answer
from refork.serve.web import FastAPI, Request, Response
from refork.types import Message
from refork.worlds.base import Task
from refork.worlds.environment import ActionObservation, Brief
from refork_methods.simulate.serve.sessions import ServedWorld, Worlds

# A simulated world as a chat model: the client's messages are the episode so far.

_PART = re.compile(
    r"^# (task description|action space|initial state|demonstrations|simulation instruction)$", re.M
)


@final
class WorldServed:
    """Answers as the environment does: system message = a task's id or a brief, user = action.

    Only the observation is said: no tag, no reasoning. Nothing is kept between requests.
    """

    card: PolicyCard | None = None
    broken: str | None = None

    def __init__(self, served: ServedWorld, slots: int) -> None:
        self._served = served
        self.slots = slots
        self._draws = itertools.count()

    @property
    def name(self) -> str:
        """The simulating model's own name."""
        return self._served.world.model.name

    def gauges(self) -> Mapping[str, float]:
        """Steps under way and waiting, of all clients of this world."""
        return self._served.rounds.gauges()

    async def complete(self, asked: Asked) -> ChatAnswer:
        """Answer ``n`` times; draw i is the seed plus i. Raises BadInput for messages that are no episode."""
        if asked.messages is None:
            raise BadInput("a world answers messages only", hint="use /v1/chat/completions")
        task, brief, seen, action = self._read(asked.messages)
        # Without a seed every answer has other chance, as clients expect.
        draws = [next(self._draws) if asked.seed is None else asked.seed + i for i in range(asked.n)]
        return ChatAnswer(
            [asyncio.ensure_future(self._answer(task, brief, seen, action, draw)) for draw in draws]
        )

    async def stop(self) -> None:
        """Drop who waits."""
        await self._served.rounds.stop()

    def _read(self, messages: Sequence[Message]) -> tuple[Task | None, Brief, list[ActionObservation], str]:
        """Task, brief, turns and the action that is to be answered."""
        require_text("".join(map(_text, messages)), "messages")
        told = [_text(m) for m in messages if m.get("role") in ("system", "developer")]
        talk = [m for m in messages if m.get("role") not in ("system", "developer")]
        roles = ["user" if number % 2 == 0 else "assistant" for number in range(len(talk))]
        if not talk or len(talk) % 2 == 0 or [m.get("role") for m in talk] != roles:
            said = (
                "messages: after the system message come actions (user) and observations (assistant) in turn"
            )
            raise BadParameter("messages", said, "the last is the action that is to be answered")
        texts = [_text(message) for message in talk]
        seen = list(zip(texts[0:-1:2], texts[1::2], strict=True))
        system = "\n\n".join(told).strip()
        task = self._served.tasks.get(system)
        if task is not None:
            return task, self._served.world.brief(task), seen, texts[-1]
        if not system:
            hint = "the system message is a task's id (GET /v1/worlds/NAME/tasks) or a brief"
            raise BadParameter("messages", "messages: nothing says which world it is", hint)
        return None, brief_from_text(system), seen, texts[-1]

    async def _answer(
        self, task: Task | None, brief: Brief, seen: list[ActionObservation], action: str, draw: int
    ) -> Reply:
        world = self._served.world
        base = world.base if task is not None else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty initial state: the client's own choice
            episode = world.model.env(task, brief, control=world.control, world=base, seed=draw, history=seen)
        found = await self._served.rounds.step(episode, action)
        note = {
            "simulated": True,
            "simulator": episode.simulator,
            "done": found.done,
            "reward": found.reward,
            **({"info": found.info} if found.info else {}),
        }
        return Reply({"role": "assistant", "content": found.text}, note=note)


def _text(message: Message) -> str:
    """A message's text; the text parts of one that has several parts."""
    content: Any = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    return str(content or "")


def brief_from_text(text: str) -> Brief:
    """The brief whose text this is (:attr:`Brief.text`); any other text is an initial state."""
    pieces = _PART.split(text)
    if pieces[0].strip() or len(pieces) < 3:
        return Brief(initial_state=text)
    parts = {
        name.replace(" ", "_"): body.strip("\n")
        for name, body in zip(pieces[1::2], pieces[2::2], strict=True)
    }
    return Brief.from_json(parts)


# Plain HTTP of simulated worlds: reset, step, fork, close.

_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "What was asked cannot be had; `param` names the field."},
    404: {"model": ErrorBody, "description": "No such world, or no such episode of this key."},
    429: {"model": ErrorBody, "description": "Too many episodes or steps; see Retry-After."},
}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ResetBody(_Body):
    """``task``: an offered id, or a whole task; none: the next one. ``brief``: in place of the task's own."""

    task: str | dict[str, Any] | None = None
    seed: int = 0
    brief: dict[str, str] | None = None


class SessionBody(_Body):
    """An episode."""

    session: str


class StepBody(SessionBody):
    """``turn``: how many turns were seen; with it, a step that is sent again is not made twice."""

    action: str
    turn: int | None = Field(default=None, ge=0)


class ForkBody(SessionBody):
    """``draw``: other chance from here on; none: the same answers to the same actions."""

    draw: int | None = Field(default=None, ge=0)


def add_worlds(app: FastAPI, worlds: Worlds) -> None:
    """The endpoints on an application."""

    @app.get("/v1/worlds", responses=_ERRORS)
    async def listed() -> Response:
        """What is simulated here."""
        rows = [worlds.listing(worlds.worlds[name]) for name in sorted(worlds.worlds)]
        return json_answer({"object": "list", "data": rows})

    @app.get("/v1/worlds/{world}/tasks", responses=_ERRORS)
    async def tasks(world: str) -> Response:
        """Tasks that can be named."""
        return json_answer({"object": "list", "data": worlds.tasks(world)})

    @app.get("/v1/worlds/{world}/sessions/{session}", responses=_ERRORS)
    async def transcript(world: str, session: str, request: Request) -> Response:
        """All turns of an episode, and how it stands."""
        return json_answer(worlds.transcript(worlds.find(world, session, holder_of(request))))

    @app.post("/v1/worlds/{world}/reset", responses=_ERRORS)
    async def reset(world: str, body: ResetBody, request: Request) -> Response:
        """Begin an episode."""
        made = worlds.reset(world, holder_of(request), body.task, body.seed, body.brief)
        return json_answer(worlds.about(made) | {"observation": made.episode.first.text})

    @app.post("/v1/worlds/{world}/step", responses=_ERRORS)
    async def step(world: str, body: StepBody, request: Request) -> Response:
        """Act and see."""
        found = worlds.find(world, body.session, holder_of(request))
        return json_answer(await worlds.step(found, body.action, body.turn))

    @app.post("/v1/worlds/{world}/fork", responses=_ERRORS)
    async def fork(world: str, body: ForkBody, request: Request) -> Response:
        """Another episode in the same state."""
        found = worlds.find(world, body.session, holder_of(request))
        return json_answer(worlds.about(worlds.fork(found, body.draw)))

    @app.post("/v1/worlds/{world}/close", responses=_ERRORS)
    async def close(world: str, body: SessionBody, request: Request) -> Response:
        """Forget an episode."""
        worlds.close(worlds.find(world, body.session, holder_of(request)))
        return json_answer({"closed": body.session})
