"""``refork world``: list worlds, show a task, play one by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from refork.cli.common import AsJson, print_json
from refork.errors import BadInput, CannotDo, ReforkError, UserError
from refork.worlds.base import Observation, Split, Task, World
from refork.worlds.environment import DOMAINS
from refork.worlds.open import open_world, task_to_json

app = typer.Typer(help="What a policy acts on.", no_args_is_help=True)

Spec = Annotated[str, typer.Argument(metavar="SPEC", help="A world, e.g. household:2 or maze:3,3,3.")]
Number = Annotated[int, typer.Option("--task", help="Which of the split's tasks, counted from 0.", min=0)]
Part = Annotated[Split, typer.Option("--split", help="train or held-out.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the task list.")]


@app.command("list")
def list_worlds(json: AsJson = False) -> None:
    """List the installed worlds; one's own may also be a module:Name or a file.py:Name.

    Example: refork world list
    """
    from refork.registry import described

    found = described("worlds")
    if json:
        facts = [
            {
                "name": one.name,
                "spec": one.form,
                "what": one.what,
                "package": one.package,
                "lacks": one.lacks,
                "recordable": recordable(one.name),
            }
            for one in found
        ]
        print_json(facts)
        return
    width = max(len(one.form) for one in found)
    for one in found:
        mark = "*" if recordable(one.name) else " "
        typer.echo(f"{one.form:<{width}} {mark} {one.description}")
    typer.echo("* `refork world record` can record it for a simulator")


@app.command()
def show(spec: Spec, task: Number = 0, split: Part = "train", seed: Seed = 0, json: AsJson = False) -> None:
    """Show a world and one of its tasks.

    Example: refork world show household:2 --task 3 --split held-out
    """
    world, chosen = _pick(spec, split, task, seed)
    with _mendable(f"world {world.name}, task {chosen.id}"), closing(world.start(chosen, 0)) as episode:
        first = episode.first
    if json:
        facts = {
            "world": world.name,
            "version": world.version,
            "max_turns": world.max_turns,
            "deterministic": world.deterministic,
            "task": task_to_json(chosen),
            "first": first.text,
        }
        print_json(facts)
        return
    luck = "deterministic" if world.deterministic else "has chance of its own"
    typer.echo(f"{world.name}  version {world.version}, {world.max_turns} turns at most, {luck}")
    typer.echo(f"{chosen.id}  ({chosen.split})")
    typer.echo(chosen.prompt)
    if first.text:
        typer.echo(first.text)


@app.command()
def play(
    spec: Spec,
    actions: Annotated[str, typer.Option("--actions", help="Actions, separated by semicolons.")],
    task: Number = 0,
    split: Part = "train",
    seed: Seed = 0,
    chance: Annotated[int, typer.Option("--chance", help="Seed of the world's own chance.")] = 0,
    json: AsJson = False,
) -> None:
    """Play actions in one task and print the transcript.

    Example: refork world play maze:2,1,2 --actions 'go out;go branch 7;go edge 0;go out'
    """
    world, chosen = _pick(spec, split, task, seed)
    where = f"world {world.name}, task {chosen.id}"
    turns: list[tuple[str, Observation]] = []
    broken: UserError | None = None
    with _mendable(where), closing(world.start(chosen, chance)) as episode:
        first = episode.first
        try:
            for action in filter(None, map(str.strip, actions.split(";"))):
                with _mendable(f"{where}, turn {len(turns) + 1} ({action!r})"):
                    turns.append((action, episode.step(action)))
                if turns[-1][1].done:
                    break
        except UserError as error:  # what was played until here is shown all the same
            broken = error
    if json:
        facts = {"task": chosen.id, "first": _facts(first), "turns": [_turn(*turn) for turn in turns]}
        print_json(facts if broken is None else {**facts, "error": broken.what})
    else:
        _print_turns(chosen, first, turns)
    if broken is not None:
        raise broken


def _print_turns(task: Task, first: Observation, turns: Sequence[tuple[str, Observation]]) -> None:
    typer.echo(task.prompt)
    if first.text:
        typer.echo(first.text)
    for action, seen in turns:
        typer.echo(f"> {action}")
        if seen.text:
            typer.echo(seen.text)
    if turns and turns[-1][1].done:
        reward = turns[-1][1].reward
        typer.echo("ungraded" if reward is None else f"reward {reward:g}")


@contextmanager
def _mendable(where: str, what: str = "the world broke") -> Iterator[None]:
    """Within, whatever a world raises is told without a traceback: most worlds are other people's code."""
    try:
        yield
    except ReforkError:
        raise
    except Exception as error:
        raise CannotDo(
            f"{what}: {type(error).__name__}: {error}",
            where=where,
            hint="what each world needs and takes stands in docs/worlds.md",
        ) from error


def _pick(spec: str, split: Split, task: int, seed: int) -> tuple[World, Task]:
    with _mendable(f"world {spec}", "the world cannot be opened"):
        world = open_world(spec)
        tasks = world.tasks(split, task + 1, seed)
        if task >= len(tasks):
            what = f"there are {len(tasks)} {split} tasks, and so no task {task}"
            raise BadInput(what, where=f"world {world.name}", hint="--task counts from 0")
        return world, tasks[task]


def _facts(seen: Observation) -> dict[str, Any]:
    return {
        "text": seen.text,
        "state_key": seen.state_key,
        "done": seen.done,
        "reward": seen.reward,
        "info": seen.info,
    }


def _turn(action: str, seen: Observation) -> dict[str, Any]:
    return {"action": action, **_facts(seen)}


def recordable(spec: str) -> bool:
    """Whether a world's name is that of a domain that can be recorded."""
    return spec.partition(":")[0].partition("?")[0] in DOMAINS


@app.command("record")
def record_world(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="A world that can be recorded, e.g. terminal.")],
    out: Annotated[Path, typer.Option("--out", help="Tree to write to; what it holds is not redone.")],
    tasks: Annotated[int, typer.Option("--tasks", help="Tasks of the split.", min=1)] = 20,
    seeds: Annotated[int, typer.Option("--seeds", help="Episodes of each task, by other actors.", min=1)] = 1,
    split: Part = "train",
    seed: Seed = 0,
    jsonl: Annotated[Path | None, typer.Option("--jsonl", help="Also write all trajectories here.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Run each episode twice and compare.")] = False,
    policy: Annotated[
        str | None, typer.Option("--policy", help="Record token ids of this policy, which can then fork it.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Record scripted actors in a real environment: actions, observations, and what decides them.

    Example: refork world record terminal --out shell.db --tasks 100 --seeds 2 --jsonl shell.jsonl
    """
    from refork.cli.live import LiveProgress
    from refork.growing.recorder import record, trajectories, write_trajectories
    from refork.policies.open import open_policy
    from refork.tree.tree import Tree
    from refork.worlds.environment import Environment

    world = open_world(spec)
    if not isinstance(world, Environment):
        raise BadInput(
            f"{world.name} cannot be recorded: it has no brief and no scripted actors",
            where="world record",
            hint="worlds: " + ", ".join(DOMAINS),
        )
    chosen = world.tasks(split, tasks, seed)
    reader = None if policy is None else open_policy(policy)
    with Tree.open(out) as tree:
        with LiveProgress() as live:
            found = record(
                world, chosen, tree,
                seeds=range(seeds), verify=verify, policy=reader, progress=live,
            )  # fmt: skip
        refused: list[str] = []
        written = write_trajectories(jsonl, trajectories(tree, refused=refused)) if jsonl else None
    facts = {"world": world.name, "tree": str(out), "split": split, **found.to_json()}
    facts |= {"layers": [[layer.name, layer.on, layer.note] for layer in getattr(world, "layers", ())]}
    facts |= {} if jsonl is None else {"jsonl": str(jsonl), "written": written, "refused": refused}
    if json:
        print_json(facts)
    else:
        typer.echo(_summary_lines(facts))
    if found.stopped:
        raise typer.Exit(130)


def _summary_lines(facts: dict[str, object]) -> str:
    """A few lines on what was recorded."""
    lines = [
        f"{facts['world']} ({facts['split']}): {facts['trajectories']} episodes, {facts['turns']} turns, "
        f"{facts['exact']} of them exact; {facts['accepted']} episodes solved",
    ]
    if facts["present"]:
        lines.append(f"{facts['present']} episodes were there already")
    if facts["unsteady"] is not None:
        lines.append(f"run twice: {facts['unsteady']} turns called exact were answered otherwise")
    if facts["errors"]:
        reasons = facts["reasons"]
        lines.append(
            f"{facts['errors']} episodes broke; the first: {reasons[0] if isinstance(reasons, list) else ''}"
        )
    layers = facts["layers"]
    for name, on, note in layers if isinstance(layers, list) else []:
        lines.append(f"  {name}: {'on' if on else 'off'}{f' ({note})' if note else ''}")
    lines.append(f"tree {facts['tree']}")
    if "jsonl" in facts:
        lines.append(f"{facts['written']} trajectories in {facts['jsonl']}")
        refused = facts["refused"]
        if isinstance(refused, list) and refused:
            lines.append(f"{len(refused)} trajectories were refused; the first: {refused[0]}")
    if facts["stopped"]:
        lines.append("stopped; the same command goes on")
    return "\n".join(lines)
