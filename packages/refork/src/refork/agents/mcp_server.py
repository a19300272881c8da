"""An MCP server for coding assistants: record a program, list its runs, explain them, fork them, ask why.

It speaks over standard input and output. Paths end at the folder for which it was started, and requests of
programs go to the providers of its environment or to the one address that it was started with: neither is an
assistant's to choose. What leaves holds no key.
"""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from refork import stats
from refork.agents import findings as told
from refork.agents.case import write_case
from refork.agents.diagnosis import Diagnosis, WhySettings, why
from refork.agents.dialects import read_request
from refork.agents.fork import (
    Outcome,
    ProgramChange,
    ProgramForkSettings,
    cost_of,
    fork_run,
    other_files,
    tools_of,
)
from refork.agents.program import RecordSettings, folder_of, record
from refork.agents.tape import (
    ProgramRun,
    counts,
    events_of,
    exchanges,
    find_run,
    runs_of,
    without_variables,
)
from refork.agents.tool_calls import covered, of_tools, tool_events
from refork.errors import BadInput, CannotDo, MissingExtra, UserError
from refork.forking.effect import compare
from refork.formats.redact import Redactor
from refork.tree.tree import Tree
from refork.types import Json

if TYPE_CHECKING:
    import mcp_types
    from mcp.server import Server

#: Characters of a text in a list, and of one that was asked for.
_SHORT: Final = 400
_LONG: Final = 8_000
#: Requests that one call may ask of models, unless it says otherwise.
_REQUESTS: Final = 500
#: Of an interval of a value.
_ERROR: Final = 0.05
INSTRUCTIONS: Final = (
    "Refork finds out why a run of a program that asks language models went wrong. Record the program, then "
    "ask why with what failing looks like in its output. Tell a finding with its control and its interval; "
    "one that is not confirmed is no finding. why and fork run the program many times and ask its models: "
    "say what that may cost first. What was drawn is kept, so a stopped call goes on when made again."
)


class TapeArguments(BaseModel):
    """Which tape."""

    model_config = ConfigDict(extra="forbid")

    tape: Annotated[str, Field(description="The tape's file, within the folder.")] = "tape.db"


class RunArguments(TapeArguments):
    """Which run of it."""

    run: Annotated[str | None, Field(description="Beginning of a run's id; default: the last run.")] = None


class RecordArguments(TapeArguments):
    """A program to record."""

    command: Annotated[
        list[str], Field(min_length=1, description='The program and its arguments: ["python", "agent.py"].')
    ]
    folder: Annotated[str, Field(description="Where it runs, within the folder.")] = "."
    patch: Annotated[
        bool,
        Field(
            description="Put tool calls of LangChain, OpenAI Agents, Pydantic AI, smolagents and MCP's "
            "client on the tape, too: then no tool runs again. Python programs only."
        ),
    ] = False
    snapshots: Annotated[
        bool, Field(description="Keep the folder as it is now, so that contained draws begin in it.")
    ] = False
    limit_s: Annotated[float, Field(gt=0, description="Seconds until it is ended.")] = 600.0


class ExplainArguments(RunArguments):
    """What to explain."""

    step: Annotated[int | None, Field(ge=0, description="Number of an exchange; default: the whole run.")] = (
        None
    )


class DrawArguments(RunArguments):
    """How the program is run again."""

    succeeds: Annotated[
        str | None, Field(description="Regular expression that a good run's output has; default: exit 0.")
    ] = None
    fails: Annotated[
        str | None, Field(description="Regular expression that a good run's output does not have.")
    ] = None
    check: Annotated[
        str | None,
        Field(description="Shell command that ends with 0 in the folder that a good run leaves (pytest -q)."),
    ] = None
    contained: Annotated[
        bool, Field(description="Its tools change copies of files and find no network (Linux).")
    ] = False
    rerun_tools: Annotated[
        bool, Field(description="Its own tools may run once more, for real. Ask the user before.")
    ] = False
    jobs: Annotated[int, Field(ge=1, le=16, description="Programs that run at the same time.")] = 1
    limit_s: Annotated[float, Field(gt=0, description="Seconds until a run is ended.")] = 600.0
    budget: Annotated[int, Field(ge=1, description="Requests to models that this may ask.")] = _REQUESTS


class ForkArguments(DrawArguments):
    """What to change, and where."""

    step: Annotated[int, Field(ge=0, description="Number of the exchange at which the run leaves the tape.")]
    change: Annotated[
        str,
        Field(
            description="again (the answer drawn anew), answer:TEXT, part:OLD=>NEW (in the recorded answer), "
            "text:OLD=>NEW (in every request from there on), set:NAME=VALUE, model:NAME, forbid:TOOL."
        ),
    ]
    draws: Annotated[int, Field(ge=2, le=512, description="Runs per arm; the control has as many.")] = 16


class WhyArguments(DrawArguments):
    """How far the search goes."""

    draws: Annotated[int, Field(ge=8, le=256, description="Most runs of an arm.")] = 32
    smallest: Annotated[
        float, Field(gt=0, le=1, description="The smallest loss of success that is looked for.")
    ] = 0.2


@final
class AssistantJob:
    """One call of a tool: within a folder, told of as it goes on, ended once it is ``stop``-ped."""

    def __init__(
        self,
        folder: Path,
        to: str | None,
        stop: threading.Event,
        tell: Callable[[int, str], None],
    ) -> None:
        self._folder, self._to, self._stop, self._tell = folder, to, stop, tell
        self._count = 0

    # -- what it may touch ----------------------------------------------------------------------------

    def within(self, name: str) -> Path:
        """A path within the folder.

        Raises:
            BadInput: it leads out of it.
        """
        found = (self._folder / name).resolve()
        if not found.is_relative_to(self._folder):
            raise BadInput(
                f"{name!r} is outside of the folder that this server was started for",
                where=str(self._folder),
                hint="the user can start it for another one: refork agent mcp --folder DIR",
            )
        return found

    def _tape(self, name: str) -> Path:
        found = self.within(name)
        if not found.is_file():
            raise BadInput(
                f"there is no tape {name!r}", where=str(self._folder), hint="record a program first"
            )
        return found

    def _runnable(self, tree: Tree, run: ProgramRun, given: DrawArguments) -> None:
        self.within(run.folder)
        if not (given.contained or given.rerun_tools or covered(tree, run)):
            raise BadInput(
                "the program would run its own tools once more, and their effects with them",
                where=f"run {run.id}",
                hint="contained: true, and they change copies of files; rerun_tools: true where the user "
                "says that they do no harm; or record it with patch: true",
            )

    # -- the tools ------------------------------------------------------------------------------------

    def record(self, given: RecordArguments) -> told.RecordTold:
        """Run a program and put what it asks of models on a tape."""
        out, place = self.within(given.tape), self.within(given.folder)
        if not out.parent.is_dir():
            raise BadInput(f"there is no folder for {given.tape!r}", where=str(self._folder))
        with Tree.open(out) as tree:
            run = record(
                tree, given.command, folder=place, to=self._to, quiet=True,
                settings=RecordSettings(
                    given.snapshots, given.patch, limit_s=given.limit_s, stop=self._stop
                ),
                then=lambda count: self._tell(count, f"{count} exchanges"),
            )  # fmt: skip
            called = of_tools(tool_events(tree, run))
            return told.RecordTold(
                tape=given.tape,
                run=_listed(tree, run),
                output=_ends(run.output or "", _LONG),
                tool_calls=len(called),
                unkept=sorted({one.name for one in called if not one.replayable}),
            )

    def list(self, given: TapeArguments) -> told.RunsTold:
        """The runs of a tape."""
        with Tree.open(self._tape(given.tape), "r") as tree:
            return told.RunsTold(tape=given.tape, runs=[_listed(tree, run) for run in runs_of(tree)])

    def explain(self, given: ExplainArguments) -> told.RunExplained | told.StepExplained:
        """A run, or one exchange of it."""
        with Tree.open(self._tape(given.tape), "r") as tree:
            run = find_run(tree, given.run)
            rows = exchanges(tree, run)
            values = values_on(tree, run, len(rows))
            if given.step is not None:
                return _step(tree, run, rows, given.step, values)
            return told.RunExplained(
                run=_listed(tree, run),
                output=_ends(run.output or "", _LONG),
                steps=[_row(row, _SHORT) for row in rows],
                tools=[
                    told.RecordedTool(
                        after=one.after,
                        text=_ends(tree.node(one.node).text, _SHORT),
                        replayable=one.replayable,
                    )
                    for one in of_tools(tool_events(tree, run))
                ],
                values=values,
            )

    def fork(self, given: ForkArguments) -> told.ForkTold:
        """Run a program on from one exchange, with one change and without."""
        change = ProgramChange.parse(given.change)
        with Tree.open(self._tape(given.tape)) as tree:
            run = find_run(tree, given.run)
            self._runnable(tree, run, given)
            cost = cost_of(tree, run, given.step, given.draws)
            if cost.calls > given.budget:
                raise BadInput(
                    f"{2 * given.draws} draws may ask {cost.calls:,} requests of models, more than the "
                    f"budget of {given.budget:,}",
                    where=f"step {given.step}",
                    hint="fewer draws, a later step, or a larger budget if the user agrees to the cost",
                )
            base, other = fork_run(
                tree, run, given.step, change, given.draws, outcome=_outcome(given),
                settings=self._settings(given, "tape"), progress=self._progress,
            )  # fmt: skip
            left = [draw.error for arm in (base, other) for draw in arm.draws if draw.error]
            keeps = "the recorded answer" if change.keeps_answer else "the answer drawn anew"
            return told.ForkTold(
                run=run.id,
                change=given.change,
                finding=told.AgentFinding.of(compare(base, other), given.step, keeps, given.change),
                left_out=len(left),
                first_left_out=left[0] if left else None,
                other_files=len(other_files(tree, base, other)),
                tools=tools_of(tree, (base, other)),
            )

    def why(self, given: WhyArguments) -> told.WhyTold:
        """Find the answer that lost a run, and write a case file."""
        # Where tools may run they do: a program whose calls are refused succeeds less often for that.
        settings = self._settings(given, "live" if given.rerun_tools or given.contained else "tape")
        with Tree.open(self._tape(given.tape)) as tree:
            run = find_run(tree, given.run)
            self._runnable(tree, run, given)
            found = why(
                tree, run, outcome=_outcome(given), settings=settings,
                search=WhySettings(draws=given.draws, smallest=given.smallest, budget=given.budget),
                progress=self._progress,
            )  # fmt: skip
            rows = exchanges(tree, run)
        case = self.within(f"case-{run.id}")
        files = write_case(case, str(self.within(given.tape)), run, found, settings, rows)
        return _why_told(found, [str(file.relative_to(self._folder)) for file in files])

    def _settings(self, given: DrawArguments, tools: Any) -> ProgramForkSettings:
        return ProgramForkSettings(
            self._to, limit_s=given.limit_s, jobs=given.jobs, contained=given.contained,
            network=given.rerun_tools, tools=tools, stop=self._stop,
        )  # fmt: skip

    def _progress(
        self, stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
    ) -> None:
        if self._stop.is_set():
            raise CannotDo("it was stopped", hint="what was drawn is on the tape")
        if stage and done:
            self._count += 1  # of all stages: what is told may only grow
            self._tell(self._count, f"{stage}: {done} of {total} of this look")


def _outcome(given: DrawArguments) -> Outcome:
    return Outcome(given.succeeds, given.fails, given.check)


# -- what is told ---------------------------------------------------------------------------------------


def _listed(tree: Tree, run: ProgramRun) -> told.ListedRun:
    return told.ListedRun(
        run=run.id, command=list(run.command), folder=run.folder, exit=run.exit, **counts(tree, run)
    )


def _ends(text: str, most: int) -> str:
    """The beginning and the end of a text that is longer."""
    return text if len(text) <= most else f"{text[: most // 2]}\n[...]\n{text[-most // 2 :]}"


def _row(row: Json, most: int) -> told.RecordedStep:
    kept = {key: row[key] for key in told.RecordedStep.model_fields if key in row}
    return told.RecordedStep(
        **kept | {"asked": _ends(row["asked"], most), "answered": _ends(row["said"], most)}
    )


def _step(
    tree: Tree, run: ProgramRun, rows: list[Json], step: int, values: list[told.StepValue]
) -> told.StepExplained:
    if step >= len(rows):
        raise BadInput(f"run {run.id} has no exchange {step}", hint=f"it has 0 to {len(rows) - 1}")
    node, wire = tree.node(rows[step]["node"]), events_of(tree, run)[step].wire
    messages = read_request(wire.path, wire.json).messages
    if messages is None:
        messages = ({"role": "user", "content": rows[step]["asked"]},)
    return told.StepExplained(
        run=run.id,
        exchange=_row(rows[step], _LONG),
        messages=[_shortened(dict(message)) for message in messages],
        settings=dict(node.settings or {}) | dict(node.extra.get("request") or {}),
        answer=None if node.message is None else _shortened(dict(node.message)),
        values=[one for one in values if one.step in (step, step + 1)],
    )


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return _ends(value, _LONG)
    if isinstance(value, dict):
        return {key: _shortened(one) for key, one in value.items()}
    return [_shortened(one) for one in value] if isinstance(value, list) else value


def values_on(tree: Tree, run: ProgramRun, steps: int) -> list[told.StepValue]:
    """The values along a run that the draws on its tape show, for each way in which they were graded."""
    graded: dict[tuple[int, str], list[float]] = {}
    # No call of this server grades by a judge.
    graders = {
        one.id: one.config for one in tree.producers() if one.name == "outcome" and "judge" not in one.config
    }
    for fork in tree.forks():
        if fork.extra.get("program") != run.id or fork.change is not None:
            continue
        # With the answer at the last step kept nothing is asked any more.
        keeps = bool(fork.extra.get("keeps"))
        step = int(fork.extra["event"]) + keeps
        leaves = [draw.leaf for draw in tree.draws(fork.id) if draw.end != "error" and draw.leaf is not None]
        for producer in graders:
            known = tree.score_map("success", leaves, producer)
            graded.setdefault((step, producer), []).extend(known[one] for one in leaves if one in known)
    found = []
    for (step, producer), values in sorted(graded.items()):
        if values and step <= steps:
            seen = stats.mean_sequence(np.array(values), _ERROR)
            found.append(_value(step, values, seen.low, seen.high, graders[producer], 1 - _ERROR))
    return found


def _value(
    step: int, values: list[float], low: float, high: float, outcome: Json, level: float
) -> told.StepValue:
    rate = float(np.mean(values))
    return told.StepValue(
        step=step,
        rate=rate,
        interval=told.SureRange(low=max(0.0, low), high=min(1.0, high), level=level),
        draws=len(values),
        succeeds=outcome.get("succeeds"),
        fails=outcome.get("fails"),
        check=outcome.get("check"),
    )


def _why_told(found: Diagnosis, files: list[str]) -> told.WhyTold:
    kept, anew = "the recorded answer kept", "the answer drawn anew"
    rescue = found.rescue
    outcome = {name: getattr(found.outcome, name) for name in ("succeeds", "fails", "check")}
    return told.WhyTold(
        run=found.run,
        verdict=found.verdict,
        says=found.sentence,
        findings=[
            told.AgentFinding.of(
                one.effect,
                one.step,
                kept if one.step == one.last else f"the recorded answers at {one.where} kept",
                anew if one.step == one.last else "all of them drawn anew",
                confirmed=one.confirmed,
            )
            for one in found.findings
        ],
        rescue=None
        if rescue is None
        else told.AgentFinding.of(
            rescue.effect, found.findings[0].step, "the whole answer", "the answer without the part",
            confirmed=rescue.confirmed,
        ),
        rescue_part=None if rescue is None else _ends(rescue.part, _LONG),
        values=[
            _value(
                one.step, [1.0] * one.successes + [0.0] * (one.draws - one.successes), one.low, one.high,
                outcome, 1 - found.settings.error,
            )
            for one in found.values
        ],
        ruled_out=[
            told.RuledOut(first=first, last=last, most=min(1.0, most)) for first, last, most in found.bounds
        ],
        requests=found.calls,
        runs=found.runs,
        case_files=files,
    )  # fmt: skip


def without_secrets(value: Any) -> Any:
    """JSON without what the environment's secret variables hold, and without what looks like a key."""
    return Redactor().json(without_variables(value))


# -- the server -----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class AssistantTool:
    """A tool: what it takes and gives. ``alone``: no other such runs beside it, for they share a folder."""

    description: str
    arguments: type[BaseModel]
    answer: tuple[type[BaseModel], ...]
    run: Callable[[AssistantJob, Any], BaseModel]
    alone: bool = False


TOOLS: Final = {
    "record": AssistantTool(
        "Run a program, once and for real, and put all that it asks of language models on a tape. The "
        "program is not changed. Then use list, explain and why.",
        RecordArguments, (told.RecordTold,), AssistantJob.record, alone=True,
    ),
    "list": AssistantTool(
        "List the runs on a tape: command, exit status, exchanges.",
        TapeArguments, (told.RunsTold,), AssistantJob.list,
    ),
    "explain": AssistantTool(
        "Tell a run step by step, or one step in full: what was asked, what was said, and the values that "
        "draws on the tape show. Nothing runs and no model is asked.",
        ExplainArguments, (told.RunExplained, told.StepExplained), AssistantJob.explain,
    ),
    "fork": AssistantTool(
        "Go back to one step of a recorded run, change one thing, run the program on many times with the "
        "change and as often without, and compare how it ends. Asks models.",
        ForkArguments, (told.ForkTold,), AssistantJob.fork, alone=True,
    ),
    "why": AssistantTool(
        "Find the answer that lost a recorded run: the program runs on from several steps until it is clear "
        "where its chance of success falls, and the fall is tested on fresh draws. Writes a case file. Asks "
        "models; takes minutes. Stopped or out of budget, the same call goes on from what was drawn.",
        WhyArguments, (told.WhyTold,), AssistantJob.why, alone=True,
    ),
}  # fmt: skip


def output_schema(tool: AssistantTool) -> Json:
    """The JSON schema of what a tool gives."""
    schemas = [one.model_json_schema(mode="serialization") for one in tool.answer]
    if len(schemas) == 1:
        return schemas[0]
    shared = {key: value for one in schemas for key, value in one.pop("$defs", {}).items()}
    return {"type": "object", "anyOf": schemas, "$defs": shared}


def assistant_server(folder: str | Path, to: str | None = None) -> Server[Any]:
    """The server. ``folder``: all that it reads, writes and runs lies within; ``to``: as of ``record``.

    Raises:
        BadInput: there is no such folder.
        MissingExtra: the ``mcp`` package is not installed.
    """
    place = folder_of(folder).resolve()
    try:
        from mcp.server import Server
    except ImportError as error:
        raise MissingExtra("mcp", "mcp") from error
    serves = _Serves(place, to)
    return Server(
        "refork", instructions=INSTRUCTIONS, on_list_tools=serves.listed, on_call_tool=serves.called
    )


@final
class _Serves:
    """The handlers of one server."""

    def __init__(self, folder: Path, to: str | None) -> None:
        import anyio

        self._folder, self._to, self._alone = folder, to, anyio.Lock()

    async def listed(self, context: Any, params: Any) -> mcp_types.ListToolsResult:
        """The tools."""
        import mcp_types as types

        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=name,
                    description=tool.description,
                    input_schema=tool.arguments.model_json_schema(),
                    output_schema=output_schema(tool),
                    annotations=types.ToolAnnotations(
                        read_only_hint=not tool.alone, destructive_hint=tool.alone, open_world_hint=tool.alone
                    ),
                )
                for name, tool in TOOLS.items()
            ]
        )

    async def called(self, context: Any, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        """One call, in a thread of its own, so that the server goes on answering."""
        import mcp_types as types
        from mcp.shared.exceptions import MCPError

        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name[:100]!r}")
        try:
            given = tool.arguments.model_validate(params.arguments or {})
        except ValidationError as error:
            return _failed(_bad_arguments(error))
        if not tool.alone:
            return await self._ran(context, tool, given)
        async with self._alone:
            return await self._ran(context, tool, given)

    async def _ran(self, context: Any, tool: AssistantTool, given: BaseModel) -> mcp_types.CallToolResult:
        import anyio
        from anyio import from_thread, lowlevel, to_thread

        loop, stop = lowlevel.current_token(), threading.Event()
        send, receive = anyio.create_memory_object_stream[tuple[int, str]](math.inf)

        def put(item: tuple[int, str]) -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                send.send_nowait(item)  # else nobody waits for it any more

        def tell(count: int, message: str) -> None:
            # From any thread: exchanges are counted in the endpoint's own.
            if not stop.is_set():
                from_thread.run_sync(put, (count, message), token=loop)

        def work() -> mcp_types.CallToolResult:
            try:
                done = tool.run(AssistantJob(self._folder, self._to, stop, tell), given)
            except UserError as error:
                return _failed(error)
            return _result(without_secrets(done.model_dump(mode="json")))

        async def pass_on() -> None:
            # A cancelled call ends this at once; its thread is waited for, and ends its programs.
            try:
                async with receive:
                    async for count, message in receive:
                        await context.session.report_progress(count, None, without_secrets(message))
            finally:
                stop.set()

        async with anyio.create_task_group() as group:
            group.start_soon(pass_on)
            async with send:
                result = await to_thread.run_sync(work)
        return result


def _bad_arguments(error: ValidationError) -> BadInput:
    first = error.errors(include_input=False, include_url=False)[0]
    name = ".".join(map(str, first["loc"]))
    return BadInput(f"{name or 'the arguments'}: {first['msg']}", where=name or None)


def _result(body: Json) -> mcp_types.CallToolResult:
    import mcp_types as types

    text = json.dumps(body, ensure_ascii=False)
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=body)


def _failed(error: UserError) -> mcp_types.CallToolResult:
    """An error that the user can mend, as a result: the assistant reads it and may try again."""
    import mcp_types as types

    body = without_secrets({"what": error.what, "where": error.where, "hint": error.hint})
    return types.CallToolResult(
        content=[types.TextContent(text=without_secrets(str(error)))], structured_content=body, is_error=True
    )


def serve_assistant(folder: str | Path, to: str | None = None) -> None:
    """Serve standard input and output until the client closes.

    Raises:
        BadInput: there is no such folder, or no such address.
        MissingExtra: the ``mcp`` package is not installed.
    """
    if to is not None and not to.startswith(("http://", "https://")):
        raise BadInput(f"{to!r} is no address", where="--to", hint="for example http://127.0.0.1:8000/v1")
    server = assistant_server(folder, to)
    import anyio
    from mcp.server.stdio import stdio_server

    async def serve() -> None:
        async with stdio_server() as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())

    # The stream itself: what a command prints is made fit for a screen.
    with redirect_stdout(sys.__stdout__):
        anyio.run(serve)
