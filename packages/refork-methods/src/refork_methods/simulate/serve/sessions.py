"""Episodes of simulated worlds that clients act in: bounded, each its key's own, forgotten when idle."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

from refork.serve.refusal import BadParameter, Refused, require_text, too_busy
from refork.serve.settings import ServerSettings
from refork.types import Json
from refork.worlds.base import Observation, Task
from refork.worlds.environment import Brief
from refork.worlds.open import task_to_json
from refork_methods.simulate.episode import SimulatedEpisode
from refork_methods.simulate.world import SimulatedWorld

# Many episodes answered together: who asks while the model works is in its next batch.

_Due: TypeAlias = "tuple[SimulatedEpisode, str, asyncio.Future[Observation]]"


@final
class Rounds:
    """Steps of episodes in rounds of up to ``width``, one round after the other, in a thread of their own.

    A step whose client left before its round began is not made. Used from the event loop's thread only.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.rounds = self.steps = self.running = 0
        self._waiting: deque[_Due] = deque()
        self._work: asyncio.Task[None] | None = None
        self._thread: ThreadPoolExecutor | None = None

    def gauges(self) -> Mapping[str, float]:
        """Steps that are being answered and those that wait for the next round."""
        return {"running": self.running, "waiting": len(self._waiting)}

    async def step(self, episode: SimulatedEpisode, action: str) -> Observation:
        """What one step of one episode shows; raises what the model raised."""
        due: asyncio.Future[Observation] = asyncio.get_running_loop().create_future()
        self._waiting.append((episode, action, due))
        if self._work is None or self._work.done():
            self._work = asyncio.ensure_future(self._run())
        return await due

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        if self._thread is None:
            # One thread: a model answers one batch at a time.
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="refork-world")
        while self._waiting:
            part = self._next()
            if not part:
                continue
            self.running = len(part)
            episodes, actions = [one[0] for one in part], [one[1] for one in part]
            said: list[Observation | Exception]
            try:
                said = await loop.run_in_executor(
                    self._thread, SimulatedEpisode.step_together, episodes, actions
                )
            except Exception as error:
                said = [error] * len(part)
            self.running = 0
            self.rounds, self.steps = self.rounds + 1, self.steps + len(part)
            for (_, _, due), one in zip(part, said, strict=True):
                if due.done():
                    continue
                if isinstance(one, Exception):
                    due.set_exception(one)
                else:
                    due.set_result(one)

    def _next(self) -> list[_Due]:
        """The oldest steps that somebody still waits for."""
        part: list[_Due] = []
        while self._waiting and len(part) < self.width:
            one = self._waiting.popleft()
            if not one[2].done():
                part.append(one)
        return part

    async def stop(self) -> None:
        """Drop who waits; the round under way runs to its end."""
        while self._waiting:
            self._waiting.popleft()[2].cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None


#: Tasks of each split that are offered by id; any other can be sent whole.
OFFERED = 64


@final
@dataclass(slots=True, eq=False)
class Session:
    """One episode and whose it is. ``last``: the newest step's number, action and answer."""

    id: str
    world: str
    task: Task
    episode: SimulatedEpisode
    holder: str | None
    used: float
    done: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    last: tuple[int, str, Json] | None = None

    @property
    def turn(self) -> int:
        """How many turns were made."""
        return len(self.episode.history)


def _require_texts(found: Any, param: str) -> None:
    """Refuse what a client sent where any text in it is none."""
    require_text(json.dumps(found, ensure_ascii=False, default=str), param)


@final
class ServedWorld:
    """A simulated world, its offered tasks and its rounds."""

    def __init__(self, name: str, world: SimulatedWorld, width: int) -> None:
        self.name, self.world = name, world
        self.rounds = Rounds(width)
        self.turns = itertools.count()
        self._tasks: dict[str, Task] | None = None

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Tasks by id, held-out ones first."""
        if self._tasks is None:
            held = [*self.world.tasks("held-out", OFFERED), *self.world.tasks("train", OFFERED)]
            self._tasks = {task.id: task for task in held}
        return self._tasks

    def task(self, asked: str | Mapping[str, Any] | None) -> Task:
        """The task that a client names or sends; the next one where he says nothing.

        Raises: BadParameter for an unknown id, or a task that is none of this world.
        """
        if asked is None:
            offered = list(self.tasks.values())
            return offered[next(self.turns) % len(offered)]
        if isinstance(asked, str):
            if asked not in self.tasks:
                some = ", ".join(itertools.islice(self.tasks, 3))
                raise BadParameter("task", f"task: {asked[:100]!r} is not offered", f"offered: {some}, ...")
            return self.tasks[asked]
        _require_texts(asked, "task")
        try:
            task = Task(**asked)
            self.world.brief(task)
            self.world.standing(task, ())
        except Exception as error:  # whatever a world trips over: it is the client's own data
            said = f"task: not a task of {self.name}: {type(error).__name__}: {error}"
            raise BadParameter("task", said[:300]) from error
        return task

    def begin(self, task: Task, seed: int, brief: str | Brief = "") -> SimulatedEpisode:
        """An episode of a task; ``brief`` in place of its own initial state or brief."""
        world = self.world
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty initial state: the client's own choice
            return world.model.env(task, brief, control=world.control, world=world.base, seed=seed)


@final
class Worlds:
    """The simulated worlds of one server and everybody's episodes. Used from the event loop's thread only."""

    def __init__(
        self,
        worlds: Mapping[str, SimulatedWorld],
        settings: ServerSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.worlds = {name: ServedWorld(name, world, settings.width) for name, world in worlds.items()}
        self.settings = settings
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def world(self, name: str) -> ServedWorld:
        """A world by its name. Raises Refused (404)."""
        found = self.worlds.get(name)
        if found is None:
            said = f"there is no world {name[:100]!r}; served here: {', '.join(sorted(self.worlds))}"
            raise Refused(404, said, "invalid_request_error", "world_not_found")
        return found

    def __len__(self) -> int:
        return len(self._sessions)

    # -- sessions -----------------------------------------------------------------------------

    def reset(
        self,
        name: str,
        holder: str | None = None,
        task: str | Mapping[str, Any] | None = None,
        seed: int = 0,
        brief: Mapping[str, Any] | None = None,
    ) -> Session:
        """A new episode; ``brief`` in place of the task's own.

        Raises: BadInput, Refused (429) where there are too many sessions.
        """
        served = self.world(name)
        _require_texts(brief, "brief")
        chosen = served.task(task)
        opening: str | Brief = Brief.from_json(brief) if brief is not None else ""
        return self._keep(name, chosen, served.begin(chosen, seed, opening), holder)

    def _keep(self, name: str, task: Task, episode: SimulatedEpisode, holder: str | None) -> Session:
        self.sweep()
        if len(self._sessions) >= self.settings.world_sessions:
            oldest = min(session.used for session in self._sessions.values())
            wait = max(1.0, self.settings.world_idle_s - (self._clock() - oldest))
            raise too_busy(f"{len(self._sessions)} episodes are open, and no more may be", min(wait, 60.0))
        session = Session(uuid.uuid4().hex, name, task, episode, holder, self._clock())
        session.done = bool(episode.history) and self._standing(session)[0]
        self._sessions[session.id] = session
        return session

    def _standing(self, session: Session) -> tuple[bool, float | None]:
        base = self.world(session.world).world.base
        return base.standing(session.task, session.episode.history)

    def find(self, name: str, session: str, holder: str | None = None) -> Session:
        """A session of this key. Raises Refused (404) for one that is unknown, expired or another's."""
        self.sweep()
        found = self._sessions.get(session)
        if found is None or found.world != name or found.holder != holder:
            raise Refused(
                404,
                f"there is no episode {session[:64]!r} of {name}: never begun, closed, or idle too long",
                "invalid_request_error",
                "session_not_found",
            )
        found.used = self._clock()
        return found

    def close(self, session: Session) -> None:
        """Forget a session. Safe to call twice."""
        self._sessions.pop(session.id, None)

    def drop(self, session: str) -> None:
        """Forget a session by its id, if it is there."""
        self._sessions.pop(session, None)

    async def again(
        self, session: Session, task: str | Mapping[str, Any] | None, seed: int | None
    ) -> Session:
        """The same session at the beginning of its task, or of another; a step under way is awaited.

        Raises: BadParameter for a task that cannot be had; the session is then as it was.
        """
        served = self.world(session.world)
        async with session.lock:
            chosen = session.task if task is None else served.task(task)
            session.task, session.episode = chosen, served.begin(chosen, seed or 0)
            session.done, session.last = False, None
        return session

    def sweep(self) -> None:
        """Forget what was idle too long and is not being answered."""
        before = self._clock() - self.settings.world_idle_s
        idle = [one for one in self._sessions.values() if one.used < before and not one.lock.locked()]
        for session in idle:
            self.close(session)

    # -- acting -------------------------------------------------------------------------------

    async def step(self, session: Session, action: str, turn: int | None = None) -> Json:
        """The answer to an action.

        ``turn``: how many turns the client saw; with it, the last step sent again is not made twice.

        Raises: BadParameter for an action that is no text, or where the client saw another number of turns;
        Refused for one too many waiting.
        """
        require_text(action, "action")
        served = self.world(session.world)
        if served.rounds.gauges()["waiting"] >= self.settings.waiting + self.settings.width:
            raise too_busy("too many steps wait for this world", 1.0)
        # Two steps at once would both be answered from the state before.
        async with session.lock:
            if turn is not None and turn != session.turn:
                if session.last is not None and session.last[:2] == (turn, action):
                    return session.last[2]
                raise BadParameter("turn", f"turn: {turn}, but {session.turn} turns were made")
            at, most = session.turn, served.world.max_turns
            if session.done or at >= most:
                why = "the episode is over" if session.done else f"{most} turns were made, and no more may be"
                raise BadParameter("session", f"session: {why}", "reset begins another")
            seen = await served.rounds.step(session.episode, action)
            session.done = seen.done
            # Idle time begins with the answer: behind a slow model the session would be gone at once.
            session.used = self._clock()
            told: Json = {
                "observation": seen.text,
                "done": seen.done,
                "truncated": not seen.done and session.turn >= most,
                "reward": seen.reward,
                "turn": session.turn,
                "info": seen.info,
                **self.marks(session),
            }
            session.last = (at, action, told)
            return told

    def fork(self, session: Session, draw: int | None = None) -> Session:
        """Another session in the same state; with ``draw`` its answers have other chance."""
        return self._keep(session.world, session.task, session.episode.fork(draw), session.holder)

    # -- telling ------------------------------------------------------------------------------

    def marks(self, session: Session) -> Json:
        """What every answer says of itself: that it is simulated, by whom, and in which session."""
        return {"simulated": True, "simulator": session.episode.simulator, "session": session.id}

    def about(self, session: Session) -> Json:
        """A session as a client learns of it."""
        served = self.world(session.world)
        return {
            "world": session.world,
            "domain": served.world.domain,
            "task": session.task.id,
            "prompt": session.task.prompt,
            "action_space": session.episode.brief.action_space,
            "turn": session.turn,
            "max_turns": served.world.max_turns,
            "done": session.done,
            **self.marks(session),
        }

    def transcript(self, session: Session) -> Json:
        """All turns so far, and how they stand."""
        done, reward = self._standing(session) if session.turn else (False, None)
        turns = [{"action": action, "observation": text} for action, text in session.episode.history]
        return self.about(session) | {"turns": turns, "done": done, "reward": reward}

    def listing(self, served: ServedWorld) -> Json:
        """A world as a client learns of it."""
        world = served.world
        return {
            "id": served.name,
            "object": "world",
            "domain": world.domain,
            "base": world.base.name,
            "max_turns": world.max_turns,
            "simulated": True,
            "simulator": world.identity,
            "chat_model": f"world/{served.name}",
            "mcp": f"/v1/worlds/{served.name}/mcp",
        }

    def tasks(self, name: str) -> list[Json]:
        """Offered tasks, without what a client has no use for."""
        keys = ("id", "split", "prompt")
        return [
            {key: value for key, value in task_to_json(task).items() if key in keys}
            for task in self.world(name).tasks.values()
        ]

    async def stop(self) -> None:
        """Forget everything."""
        self._sessions.clear()
        for served in self.worlds.values():
            await served.rounds.stop()
