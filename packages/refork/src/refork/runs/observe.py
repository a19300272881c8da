"""Watch what a process does as one long run: its record on disk, spans and metrics, a profile."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from refork.errors import UserError
from refork.runs import sections
from refork.runs.attach import Attachment, Named, Wrap
from refork.runs.join import PARTS
from refork.runs.otel import open_telemetry
from refork.runs.profile import Profile, read_parts, together, trace_of, write_json
from refork.runs.record import RunRecord, new_record, trace_file
from refork.runs.running import Run
from refork.runs.sections import SectionStack, Watcher
from refork.types import Json

_run: Run | None = None


def current() -> Run | None:
    """The run that is under way in this process; None outside of :func:`observed`."""
    return _run


@contextmanager
def observed(
    command: str,
    arguments: Sequence[str] = (),
    *,
    out: str | None = None,
    profile: Path | bool = False,
    record: bool = True,
) -> Iterator[Run]:
    """Watch everything this process does in the block, as one run; inside another run, nothing more.

    ``profile``: time all seams; the trace goes to this file, or for True beside the records. ``record``
    keeps a status record under REFORK_HOME. Spans and metrics go where ``OTEL_*`` variables say.
    """
    global _run  # noqa: PLW0603
    if _run is not None:
        yield _run
        return
    run = Run(new_record(command, arguments, out), keep=record)
    failed: BaseException | None = None
    _run = run
    with ExitStack() as stack:
        _count(run, stack)
        finish = _watch(run, profile, stack)
        run.begin()
        try:
            yield run
        except BaseException as error:
            failed = error
            raise
        finally:
            wrong, status = _outcome(failed)
            # Before the record's own end, which names the profile that is written here.
            finish(wrong)
            run.end(wrong, status)
            _run = None


def _outcome(error: BaseException | None) -> tuple[BaseException | None, int]:
    """What went wrong, and the exit status; an exit that is asked for is no error."""
    if error is None:
        return None, 0
    # By its name: no module of the command line is imported here.
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return error, 130
    if isinstance(error, UserError):
        return error, error.exit_code
    if isinstance(error, SystemExit):
        if isinstance(error.code, str):  # Python prints it as what went wrong
            return error, 1
        return None, error.code or 0
    status = getattr(error, "exit_code", None)  # the command line's own exit
    return (error, 1) if status is None else (None, int(status))


@contextmanager
def counting(run: Run) -> Iterator[None]:
    """Let a run hear what this process stores, and nothing else: it is part of another process's run."""
    with ExitStack() as stack:
        _count(run, stack)
        yield


def _count(run: Run, stack: ExitStack) -> None:
    """Hear what is stored (draws, their errors, arms), and of workers."""
    from refork.runs.seams import noticed

    # Draws that each open tree has, by arm.
    known: WeakKeyDictionary[Any, dict[str, set[int]]] = WeakKeyDictionary()

    def stored(order: Sequence[str]) -> Wrap:
        def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(method)
            def watched(tree: Any, *arguments: Any, **named: Any) -> Any:
                given = dict(zip(order, arguments, strict=False)) | named
                draws = given.get("draws") or given.get("records") or ()
                arms = known.setdefault(tree, {})
                for fork in {draw.fork for draw in draws} - arms.keys():
                    arms[fork] = {draw.draw for draw in tree.draws(fork)}
                done = method(tree, *arguments, **named)
                # A draw that is stored again, by a worker that went on, is no rollout more.
                new = {(one.fork, one.draw): one for one in draws if one.draw not in arms[one.fork]}
                for one in new.values():
                    arms[one.fork].add(one.draw)
                if new:
                    run.draws(list(new.values()))
                run.saved(tree.uri)
                return done

            return watched

        return wrap

    def begun(tree: Any, given: Mapping[str, Any]) -> None:
        run.group(given["record"].id)

    def manned(roster: Any, given: Mapping[str, Any]) -> None:
        run.shows(roster)

    named: Named = {
        "refork.runs.workers": {"Roster": {"open": noticed(manned, ())}},
        "refork.tree.tree": {
            "Tree": {
                "commit": stored(("new_nodes", "draws", "scores")),
                "finish_draws": stored(("records",)),
                "begin_fork": noticed(begun, ("record",)),
            }
        },
    }
    counting = Attachment(named)
    counting.attach()
    stack.callback(counting.detach)


def _watch(run: Run, profile: Path | bool, stack: ExitStack) -> Callable[[BaseException | None], None]:
    """Attach what is asked for; what ends it, told what the run failed of."""
    try:
        run.telemetry = open_telemetry()
    except UserError as error:  # a variable meant for other programs must not stop this one
        run.complain(f"no traces or metrics: {error}")
    timing = Profile(time.perf_counter_ns(), time.time()) if profile else None
    watchers: list[Watcher] = [one for one in (run.telemetry, timing) if one is not None]
    if not watchers:
        return lambda error: None
    from refork.runs.seams import watch_all

    content = run.telemetry is not None and run.telemetry.content
    keeper = run.recorder = SectionStack(watchers, content=content)
    stack.callback(watch_all().detach)
    stack.callback(sections.keep, sections.keep(keeper))
    whole = keeper.open(f"refork {run.record.command}", "run", **_facts(run.record, content=content))
    keeper.enter(whole)
    parts = Path(tempfile.mkdtemp(prefix="refork-profile-")) if timing is not None else None
    given = run.telemetry.headers(whole) if run.telemetry is not None else {}
    # Worker processes find the trace and the folder of the profile in their environment.
    stack.callback(_with_environment(given | ({PARTS: str(parts)} if parts is not None else {})))

    def finish(error: BaseException | None) -> None:
        run.finish_spans()
        keeper.leave(whole)
        whole.attributes |= {"refork.rollouts": run.record.rollouts, "refork.stage": run.record.stage}
        keeper.close(whole, error)
        if run.telemetry is not None:
            run.telemetry.close()
        if timing is not None and parts is not None:
            _write_profile(run, timing, parts, profile)

    return finish


def _facts(record: RunRecord, *, content: bool) -> Json:
    facts: Json = {"refork.run": record.id, "refork.command": record.command}
    return facts | ({"process.command_args": list(record.arguments)} if content else {})


def _with_environment(values: Mapping[str, str]) -> Callable[[], None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)

    def restore() -> None:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    return restore


def _write_profile(run: Run, timing: Profile, parts: Path, asked: Path | bool) -> None:
    own, workers = timing.to_json(), read_parts(parts)
    shutil.rmtree(parts, ignore_errors=True)
    run.rows, run.worker_rows = timing.rows(), together(workers)
    file = asked if isinstance(asked, Path) else trace_file(run.record)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, trace_of(f"refork {run.record.command}", own, workers))
        run.record.profile = str(file.resolve())
    except OSError as error:
        run.complain(f"the profile could not be written: {error.strerror}")


def complain(run: Run) -> None:
    """Say once what could not be watched, on standard error."""
    for what in run.unsaid():
        print(f"note: {what}", file=sys.stderr)
