"""A simulated world as a chat model: the client's messages are the episode so far."""

from __future__ import annotations

import asyncio
import itertools
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, final

from refork.chat import Reply
from refork.errors import BadInput
from refork.policies.base import PolicyCard
from refork.serve.chat_served import ChatAnswer
from refork.serve.refusal import BadParameter, require_text
from refork.serve.served import Asked
from refork.types import Message
from refork.worlds.base import Task
from refork.worlds.environment import Brief, Seen
from refork_methods.simulate.serve.sessions import ServedWorld

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
        draws = [next(self._draws) if asked.seed is None else asked.seed + i for i in range(asked.n)]
        return ChatAnswer(
            [asyncio.ensure_future(self._answer(task, brief, seen, action, draw)) for draw in draws]
        )

    async def stop(self) -> None:
        """Drop who waits."""
        await self._served.rounds.stop()

    def _read(self, messages: Sequence[Message]) -> tuple[Task | None, Brief, list[Seen], str]:
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
        self, task: Task | None, brief: Brief, seen: list[Seen], action: str, draw: int
    ) -> Reply:
        world = self._served.world
        base = world.base if task is not None else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty initial state: the client's own choice
            episode = world.model.env(task, brief, control=world.control, world=base, seed=draw, seen=seen)
        if base is None:
            episode.domain = world.domain
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
