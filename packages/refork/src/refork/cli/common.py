"""What several commands share: options, opening things, printing JSON."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from refork.cli.failing import answer_json
from refork.cli.recipe import Keys
from refork.errors import BadInput, MissingExtra
from refork.registry import part
from refork.tree.address import is_address, parse_address

if TYPE_CHECKING:
    from refork.forking.backend import Backend
    from refork.judge import Judge
    from refork.policies.base import Policy, Sampling
    from refork.progress import Progress
    from refork.runs.recipe import RecipePart
    from refork.tree.node import Trajectory
    from refork.worlds.base import World
    from refork.worlds.simulated import Simulator

R = TypeVar("R", bound="RecipePart")


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TreeFile = Annotated[Path, typer.Option("--tree", help="The tree file.")]
PolicySpec = Annotated[
    str, typer.Option("--policy", help="hf:DIR, organism:NAME, openai:URL#MODEL or scripted:NAME.")
]
WorldSpec = Annotated[
    str | None, typer.Option("--world", help="World to go on in; default: the recorded one; none: no world.")
]
Regex = Annotated[
    str | None, typer.Option("--success-regex", help="Without a world: success is a match in the last turn.")
]
JudgeSpec = Annotated[
    str | None,
    typer.Option(
        "--judge", help="Who grades instead: FILE.py:NAME, a judge or a function of a trajectory; or a name."
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Address of the noise.")]
Settings = Annotated[list[str], typer.Option("--set", help="Override a recipe key, e.g. rate.peak=1e-4.")]
SamplingSettings = Annotated[
    list[str],
    typer.Option("--set", help="Sampling setting, e.g. temperature=0.7."),
    Keys("refork.runs.recipe:TurnSampling"),
]
RecipeFile = Annotated[Path | None, typer.Argument(help="A recipe file (TOML).")]
RunFolder = Annotated[Path, typer.Option("--out", help="The run's folder.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check, and say what it would do.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
AllowHost = Annotated[
    list[str],
    typer.Option("--allow-host", help="Name that it is reached by, such as a proxy's; may be repeated."),
]
AllowOrigin = Annotated[
    list[str],
    typer.Option(
        "--allow-origin",
        help="Site whose pages may ask (https://chat.example), none else; may be repeated.",
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", help="API keys that clients may send, one a line; see REFORK_SERVER_KEY."),
]
Unconfined = Annotated[
    bool,
    typer.Option(
        "--unconfined", help="Run code of models where no sandbox holds it back; says what is open then."
    ),
]
BackendSpec = Annotated[
    str | None,
    typer.Option(
        "--backend", help="Who draws: serial, processes:N or ray[://HOST:PORT]; default: this process."
    ),
]


def print_json(data: Any) -> None:
    """One JSON document on standard output."""
    answer_json(data)


def existing(path: Path) -> Path:
    """A file that must be there; whether a tree on a server is, opening it says."""
    if not is_address(path) and not path.exists():
        raise BadInput("there is no such file", where=str(path))
    return path


def absolute(path: Path) -> str:
    """What a recipe records of a file, whatever folder it is read in; an address says all as it is."""
    return parse_address(path).safe_text if is_address(path) else str(path.resolve())


def tree_name(path: Path) -> str:
    """What messages call a tree."""
    return parse_address(path).safe_text if is_address(path) else str(path)


def world_for(trajectory: Trajectory, spec: str | None, *, simulated: bool = False) -> World | None:
    """The world a command names, else the one the trajectory was recorded in; ``none`` for neither.

    With a simulator at hand (``simulated``), a world that is not installed here is none.
    """
    from refork.worlds.open import open_world, recorded_world

    if spec == "none":
        return None
    recorded = str(trajectory.root.extra.get("world") or "").removeprefix("simulated:")
    try:
        if spec:
            return open_world(spec.removeprefix("simulated:"))
        return recorded_world(recorded) if recorded else None
    except MissingExtra:
        if simulated:
            return None
        raise


def policy_for(spec: str, live: Progress) -> Policy:
    """The policy of a specification; ``organism:NAME`` is built where it is not."""
    from refork.policies.open import open_policy, spell
    from refork.progress import waits

    return open_policy(spell(spec, live), on_wait=waits(live))


@contextmanager
def backend_for(spec: str | None) -> Iterator[Backend | None]:
    """The backend that a command names, closed at the end; None where it names none."""
    if spec is None:
        yield None
        return
    from refork.forking.backend import open_backend

    with open_backend(spec) as backend:
        yield backend


def policies_for(live: Progress, backend: Backend | None) -> Callable[[str], Policy]:
    """What opens policies by name, so that a backend's workers can open them too."""
    from refork.policies.open import spell

    def opened(spec: str) -> Policy:
        name = spell(spec, live)
        policy = policy_for(name, live)
        if backend is not None:
            backend.know(policy, name)
        return policy

    return opened


def spelled(recipe: R, live: Progress) -> R:
    """The recipe with the name that its policy's name stands for, as its folder will keep it."""
    from refork.policies.open import spell

    return recipe.model_copy(update={"policy": spell(getattr(recipe, "policy"), live)})  # noqa: B009


def simulator_for(spec: str | None, control: str | None, live: Progress) -> Simulator | None:
    """The simulator that a command names, under its control; None where none is named."""
    if spec is None:
        if control is not None:
            raise BadInput("a control steers a simulator, and none is named", hint="--simulator SPEC")
        return None
    made: Simulator = part("fork.simulator")(spec, control, live)
    return made


def judge_for(pattern: str | None, spec: str | None = None) -> Judge | None:
    """A judge that looks for a pattern in the last turn, or the one that is named; None for neither."""
    from refork.judge import MatchJudge, load_judge

    if pattern and spec:
        raise BadInput("one judge grades: --success-regex or --judge")
    if spec:
        return load_judge(spec)
    return MatchJudge(pattern) if pattern else None


def ask_for_grading(
    world: World | None, judge: Judge | None, *, as_json: bool
) -> tuple[World | None, Judge | None]:
    """World and judge; asked for where there are none and somebody sits at a terminal.

    Nothing is asked with ``--json``, or where input or output is no terminal.
    """
    from refork.forking.grading import is_graded
    from refork.worlds.open import open_world

    people = sys.stdin.isatty() and sys.stdout.isatty()
    if is_graded("success", world, judge) or as_json or not people:
        return world, judge
    typer.echo("Nothing says yet which draws succeed. It may be said by\n")
    for number, (flag, what) in enumerate(_GRADERS, 1):
        typer.echo(f"  {number}  {what} ({flag})")
    chosen = typer.prompt("\nwhich (0: none, stop)", type=int, default=1)
    if not 1 <= chosen <= len(_GRADERS):
        return world, judge
    flag, what = _GRADERS[chosen - 1]
    given = typer.prompt(what)
    typer.echo(f"next time: {flag} {shlex.quote(given)}")
    if flag == "--world":
        return open_world(given), judge
    return world, judge_for(given) if flag == "--success-regex" else judge_for(None, given)


_GRADERS: Final = (
    ("--success-regex", "a pattern that a right last turn matches"),
    ("--world", "the world that the log is from"),
    ("--judge", "a judge of yours, FILE.py:NAME"),
)


def settings_for(base: Sampling, items: list[str]) -> Sampling | None:
    """Settings with ``name=value`` items changed; None where there are none, so the record's stand."""
    from refork.policies.base import Sampling
    from refork.runs.recipe import TurnSampling, resolve

    if not items:
        return None
    sampling = base.to_json() | {
        k: v for k, v in resolve(TurnSampling, overrides=items, environment={}) if v is not None
    }
    # Reading the items fills in defaults, too; only what was named may replace what the record says.
    given = {item.partition("=")[0].partition(".")[0] for item in items}
    return Sampling.from_json(base.to_json() | {k: v for k, v in sampling.items() if k in given})
