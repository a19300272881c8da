"""The viewer's questions over HTTP: thin, read-only endpoints, and the two that fork and stop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from refork import __version__
from refork.errors import BadInput, CannotDo
from refork.registry import part
from refork.serve.gate import PAGE, Gate
from refork.serve.settings import ServerSettings
from refork.serve.stream import error_handlers, json_answer
from refork.serve.web import (
    APIRoute,
    FastAPI,
    HTTPException,
    Request,
    RequestValidationError,
    Response,
    application,
)
from refork.tree.browse import Filter, Order
from refork.types import Json
from refork.viewer.live import answers
from refork.viewer.live.forking import MOST, Forking, Wish
from refork.viewer.live.page import ASSETS, asset, live_page
from refork.viewer.live.shelf import Shelf

#: Bytes of one request's body: a change may replace a long message.
LONGEST = 1 << 20
_NAME = Field(max_length=1000)
Name = Annotated[str, _NAME]
Maybe = Annotated[str | None, _NAME]
Start = Annotated[int, Field(ge=0, le=1 << 40)]
Count = Annotated[int, Field(ge=0, le=500)]


class ForkBody(BaseModel):
    """A fork to run."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tree: str = _NAME
    node: str = Field(max_length=32)
    token: int | None = Field(default=None, ge=0)
    changes: list[str] = Field(default_factory=list, max_length=8)
    draws: int = Field(ge=1, le=MOST)
    seed: int = Field(default=0, ge=0, lt=1 << 53)
    score: str = _NAME


class StopBody(BaseModel):
    """A fork to stop."""

    model_config = ConfigDict(extra="forbid", strict=True)

    job: str = Field(max_length=20)


def create_viewer_app(
    shelf: Shelf, forking: Forking | None = None, *, names: Collection[str] = ()
) -> FastAPI:
    """The application that shows trees; it forks only where ``forking`` says who does.

    ``names``: those that it is reached by, beside this machine's own.

    Raises:
        BadInput: one of the names is none.
        MissingExtra: fastapi is not installed (extra ``serve``).
    """
    app = application(
        "Refork viewer",
        gate=Gate(names=frozenset(names), policy=f"{PAGE}; form-action 'none'; frame-ancestors 'none'"),
        settings=ServerSettings(max_body=LONGEST, body_s=20.0, timeout_s=300.0),
        handlers=error_handlers(),
        openapi_url=None,
    )
    # Before any route is made: each has the class that is set at that moment.
    app.router.route_class = _reading(shelf)
    _add_page(app, shelf, forking)
    _add_lists(app, shelf)
    _add_paths(app, shelf)
    _add_findings(app, shelf)
    _add_forks(app, forking)
    return app


def _reading(shelf: Shelf) -> type[APIRoute]:
    """Routes on which an error that a tree's damage explains is told as that, and where the damage lies."""

    class Reading(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            answer = super().get_route_handler()

            async def guarded(request: Request) -> Response:
                try:
                    return await answer(request)
                except (HTTPException, RequestValidationError):
                    raise  # what was asked is at fault, not the tree
                except Exception as error:
                    name = request.query_params.get("tree")
                    damage = None if name is None else shelf.damage_behind(error, name)
                    if damage is None:
                        raise
                    raise damage from error

            return guarded

    return Reading


def _add_page(app: FastAPI, shelf: Shelf, forking: Forking | None) -> None:
    @app.get("/")
    def index() -> Response:
        """The page; what it shows is in its address behind the #."""
        start: Json = {"mode": "live", "refork": __version__}
        start["forking"] = None if forking is None else forking.about
        start["only"] = None if shelf.only is None else shelf.only.name
        return Response(live_page(start), media_type="text/html; charset=utf-8")

    @app.get("/web/{name:path}")
    def part(name: str) -> Response:
        """A script, the style, or the licences."""
        if name not in ASSETS:
            raise HTTPException(404, "there is nothing here")
        return Response(asset(name), media_type=ASSETS[name])


def _add_lists(app: FastAPI, shelf: Shelf) -> None:
    @app.get("/api/trees")
    def trees() -> Response:
        """Every tree that is shown."""
        return json_answer({"trees": shelf.trees()})

    @app.get("/api/tree")
    def tree(tree: Name) -> Response:
        """One tree's facts."""
        return json_answer(answers.tree(shelf.view(tree), tree))

    @app.get("/api/version")
    def version(tree: Name) -> Response:
        """Whether it grew: another version says so."""
        return json_answer({"version": shelf.view(tree).version()})

    @app.get("/api/tasks")
    def tasks(  # noqa: PLR0917  # the query's parameters, given by name
        tree: Name, text: Name = "", world: Maybe = None, low: float | None = None,
        high: float | None = None, forked: bool = False, order: Order = "written", start: Start = 0,
        count: Count = 100, score: Maybe = None,
    ) -> Response:  # fmt: skip
        """A page of the tasks that fit a filter."""
        wanted = Filter(text, world, low, high, forked)
        return json_answer(answers.tasks(shelf.view(tree), wanted, order, start, count, score))


def _add_paths(app: FastAPI, shelf: Shelf) -> None:
    @app.get("/api/shape")
    def shape(tree: Name, task: Name, score: Maybe = None, joined: bool = True) -> Response:
        """All lines of a task as columns."""
        view = shelf.view(tree)
        version = view.version()
        return json_answer(answers.shape(view.lines(task, score, joined=joined), version))

    @app.get("/api/lines")
    def lines(
        tree: Name, task: Name, wanted: Annotated[str, Field(max_length=8000)], score: Maybe = None,
        joined: bool = True,
    ) -> Response:  # fmt: skip
        """What some lines show; ``wanted`` are their numbers, commas between."""
        view = shelf.view(tree)
        return json_answer(answers.window(view, view.lines(task, score, joined=joined), _numbers(wanted)))

    @app.get("/api/search")
    def search(
        tree: Name, task: Name, text: Name = "", kind: Maybe = None, errors: bool = False,
        score: Maybe = None, joined: bool = True,
    ) -> Response:  # fmt: skip
        """Lines that hold a text."""
        view = shelf.view(tree)
        found = view.search(view.lines(task, score, joined=joined), text, kind=kind, errors=errors)
        return json_answer({"lines": found.lines, "nodes": len(found.rows), "more": found.more})

    @app.get("/api/place")
    def line_of_node(
        tree: Name, task: Name, node: Name, score: Maybe = None, joined: bool = True
    ) -> Response:
        """The line that holds a node."""
        view = shelf.view(tree)
        return json_answer({"line": view.line_of(view.lines(task, score, joined=joined), node)})

    @app.get("/api/walk")
    def walk(tree: Name, node: Name) -> Response:
        """The steps that lead to a node."""
        return json_answer(answers.walk(shelf.view(tree), node))

    @app.get("/api/nodes")
    def nodes(tree: Name, ids: Annotated[str, Field(max_length=8000)]) -> Response:
        """Nodes with their texts; ids with commas between."""
        return json_answer(answers.nodes(shelf.view(tree), ids.split(",")))

    @app.get("/api/page")
    def page(tree: Name, node: Name, start: Start) -> Response:
        """More of a long node."""
        return json_answer(answers.page(shelf.view(tree), node, start))


def _add_findings(app: FastAPI, shelf: Shelf) -> None:
    @app.get("/api/branches")
    def branches(tree: Name, node: Name, score: Maybe = None) -> Response:
        """What grows from a node."""
        return json_answer(answers.branches(shelf.view(tree), node, score))

    @app.get("/api/diff")
    def diff(tree: Name, left: Name, right: Name) -> Response:
        """Two trajectories behind the point at which they part."""
        return json_answer(answers.diff(shelf.view(tree), left, right))

    @app.get("/api/effects")
    def effects(tree: Name, task: Maybe = None) -> Response:
        """Recorded changes that have a control."""
        view = shelf.view(tree)
        return json_answer(answers.effects(view, None if task is None else view.lines(task)))

    @app.get("/api/effect")
    def effect(tree: Name, control: Name, changed: Name, score: Name = "success") -> Response:
        """One effect with its draws."""
        return json_answer(answers.effect(shelf.view(tree), control, changed, score))

    @app.get("/api/versions")
    def versions(tree: Name, name: Name, start: Start = 0, count: Count = 100) -> Response:
        """The versions of a score side by side."""
        return json_answer(answers.versions(shelf.view(tree), name, start, count))

    @app.get("/api/said")
    def node_scores(tree: Name, node: Name) -> Response:
        """All scores of a node, retired ones too."""
        return json_answer(answers.node_scores(shelf.view(tree), node))

    @app.get("/api/graph")
    def graph(tree: Name, task: Name, score: Maybe = None) -> Response:
        """The merged states of a task."""
        return json_answer(part("view.graph")(shelf.view(tree), task, score))


def _add_forks(app: FastAPI, forking: Forking | None) -> None:
    def known() -> Forking:
        if forking is None:
            raise CannotDo("this viewer only reads", hint="start it with --policy SPEC to fork from the page")
        return forking

    @app.get("/api/forks")
    def jobs() -> Response:
        """Forks that were started here."""
        return json_answer({"jobs": [] if forking is None else [job.to_json() for job in forking.jobs()]})

    @app.get("/api/fork")
    def job(job: Name) -> Response:
        """How far a fork is."""
        return json_answer(known().job(job).to_json())

    @app.post("/api/fork")
    def begin(body: ForkBody) -> Response:
        """Start a fork."""
        told = body.model_dump() | {"changes": tuple(body.changes)}
        return json_answer(known().begin(Wish(**told)).to_json())

    @app.post("/api/stop")
    def stop(body: StopBody) -> Response:
        """Stop a fork; what is drawn stays."""
        return json_answer(known().stop(body.job).to_json())


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError:
        raise BadInput(f"{text[:40]!r} are no numbers of lines", hint="numbers with commas between") from None
