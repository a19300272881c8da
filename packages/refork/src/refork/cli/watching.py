"""Commands that take long, and how they are watched: ``--profile``, some ``--track``.

These stand before the command, where the help shows them once; behind it they are read as well.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from refork.cli.recipe import CHOSEN
from refork.errors import BadInput

if TYPE_CHECKING:
    from refork.runs.running import Run

#: Verbs that leave a record of their run, by command; "" for those without one.
LONG: Final = {
    "": ("fork", "sweep", "why", "grow", "demo"),
    "agent": ("fork", "why"),
    "cliff": ("scan", "verify", "pairs", "train"),
    "crosscoder": ("cache", "train", "steer"),
    "evolve": ("run", "resume"),
    "forensics": ("resample", "sweep", "factorial", "controls"),
    "gate": ("collect", "live"),
    "implicit": ("score",),
    "kernel": ("calibrate", "verify", "diagnose", "search"),
    "learn": ("compare",),
    "localize": ("run", "score"),
    "maze": ("train",),
    "memory": ("ingest", "replay"),
    "organism": ("build",),
    "probe": ("fit", "variance", "cuts", "frontier"),
    "rot": ("run",),
    "route": ("collect", "fit", "evolve", "conduct"),
    "simulate": ("data", "train", "eval", "steer"),
    "speculate": ("train", "import", "export", "profile", "check-lossless", "bench"),
    "theory": ("run", "resume"),
    "train": ("sft", "dpo", "policy", "check"),
    "tree": ("import",),
    "world": ("record",),
}
#: Those of them whose curves a tracker may be told of.
TRACKED: Final = frozenset({
    "crosscoder train", "evolve run", "grow", "learn compare", "route conduct", "route evolve",
    "simulate train", "speculate train", "train dpo", "train policy", "train sft",
})  # fmt: skip

_Profile = Annotated[
    bool,
    typer.Option("--profile", help="Say at the end where the time went, and write a trace.", hidden=True),
]
_Track = Annotated[
    str | None,
    typer.Option(
        "--track",
        help="Show curves in tensorboard, trackio, wandb or mlflow, each with :WHERE; nothing is uploaded.",
        hidden=True, show_default=False,
    ),
]  # fmt: skip
_OPTIONS: Final = {
    "watch_profile": (_Profile, False),
    "watch_track": (_Track, None),
}
#: Where the root command's context keeps what stands before a command: it ends with that one invocation, so
#: that nothing is left for the next one in this process.
_KEPT: Final = "refork.watched"
_ASKED: Final[ContextVar[tuple[bool, str | None]]] = ContextVar("asked", default=(False, None))
_PASSWORD: Final = re.compile(r"(?<=://)[^/@\s]*@")


def watch(context: typer.Context, *, profile: bool, track: str | None) -> None:
    """Keep what stands before the command that comes now."""
    context.meta[_KEPT] = (profile, track)


@contextmanager
def watching(context: typer.Context, callback: Any) -> Iterator[None]:
    """Run a command with what stands before it; refuse to watch one that leaves no record of a run.

    Raises:
        BadInput: ``--profile`` or ``--track`` stands before one.
    """
    profile, track = context.meta.get(_KEPT, (False, None))
    command = getattr(callback, "watched_as", None)
    if profile and command is None:
        raise BadInput("this command is not timed", where="--profile", hint="it stands before long commands")
    if track is not None and command not in TRACKED:
        known = ", ".join(sorted(TRACKED))
        raise BadInput("this command draws no curves", where="--track", hint=f"those that do: {known}")
    token = _ASKED.set((profile, track))
    try:
        yield
    finally:
        _ASKED.reset(token)


def watch_verbs(app: typer.Typer, group_name: str = "") -> None:
    """Let the verbs of an app that take long be watched. Doing it again changes nothing."""
    for info in app.registered_commands:
        made = info.callback
        verb = info.name or str(getattr(made, "__name__", "")).replace("_", "-")
        if made is not None and verb in LONG.get(group_name, ()) and not hasattr(made, "watched_as"):
            info.callback = _watched(f"{group_name} {verb}".strip(), made)
    for group in app.registered_groups:
        if group.typer_instance is not None and not group_name:
            watch_verbs(group.typer_instance, str(group.name))


def _watched(command: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(verb, eval_str=True)
    names = [name for name in _OPTIONS if name != "watch_track" or command in TRACKED]

    @functools.wraps(verb)
    def run(**given: Any) -> Any:
        profile, track = (given.pop(name, None) for name in _OPTIONS)
        before, tracker = _ASKED.get()
        profile, track = profile or before, tracker if track is None else track
        if given.get("dry_run"):
            return verb(**given)
        with _run(command, given, bool(profile), track):
            return verb(**given)

    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _OPTIONS.items()
        if name in names
    ]
    changed: Any = run
    changed.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *extra])
    changed.watched_as = command
    return run


@contextmanager
def _run(command: str, given: dict[str, Any], profile: bool, track: str | None) -> Iterator[None]:
    from refork.runs.observe import complain, observed

    out = given.get("out") or given.get("folder")
    typed = [_PASSWORD.sub("***@", argument) for argument in sys.argv[1:]]
    run: Run | None = None
    try:
        with observed(command, typed, out=None if out is None else str(out), profile=profile) as run:
            # By way of its text, so that passwords deep inside a value go, too.
            told = json.dumps(CHOSEN.get({}), default=str)
            run.record.recipe = json.loads(_PASSWORD.sub("***@", told))
            if track is None:
                yield
                return
            with run.following(track, None if out is None else Path(str(out))):
                complain(run)  # what it finds damaged is said before the work, not days later
                yield
    finally:
        if run is not None:
            complain(run)
            if profile and run.rows:
                _print_profile(run)


def _print_profile(run: Run) -> None:
    """The table, on standard error: results are on the other."""
    from refork.cli.run_tables import profile_table
    from refork.cli.screen import open_console

    console = open_console(err=True)
    console.print(profile_table("where the time went", run.rows))
    if run.worker_rows:
        console.print(profile_table("in the workers, together", run.worker_rows))
    if run.record.profile is not None:
        console.print(
            f"trace: {run.record.profile} (ui.perfetto.dev, speedscope.app, chrome://tracing)",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
