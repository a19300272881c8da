"""Plain HTTP of simulated worlds: reset, step, fork, snapshot, restore, close."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from refork.serve.api import ErrorBody
from refork.serve.asking import holder_of
from refork.serve.stream import json_answer
from refork.serve.web import FastAPI, Request, Response
from refork_methods.simulate.serve.sessions import Worlds

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


class RestoreBody(_Body):
    """A snapshot, and its task where that is none of those that are offered."""

    snapshot: str
    task: str | dict[str, Any] | None = None


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

    @app.post("/v1/worlds/{world}/snapshot", responses=_ERRORS)
    async def snapshot(world: str, body: SessionBody, request: Request) -> Response:
        """The exact state as text: transcript and noise key, sealed, for ``restore`` in this run."""
        found = worlds.find(world, body.session, holder_of(request))
        return json_answer({"snapshot": worlds.snapshot(found), **worlds.marks(found)})

    @app.post("/v1/worlds/{world}/restore", responses=_ERRORS)
    async def restore(world: str, body: RestoreBody, request: Request) -> Response:
        """An episode in the state of a snapshot."""
        return json_answer(worlds.about(worlds.restore(world, body.snapshot, holder_of(request), body.task)))

    @app.post("/v1/worlds/{world}/close", responses=_ERRORS)
    async def close(world: str, body: SessionBody, request: Request) -> Response:
        """Forget an episode."""
        worlds.close(worlds.find(world, body.session, holder_of(request)))
        return json_answer({"closed": body.session})
