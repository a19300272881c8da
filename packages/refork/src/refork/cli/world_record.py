"""``refork world record``: real environments, recorded for a simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refork.cli.common import AsJson, print_json
from refork.errors import BadInput
from refork.worlds.base import Split
from refork.worlds.environment import DOMAINS


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command("record")(record_world)


def recordable(spec: str) -> bool:
    """Whether a world's name is that of a domain that can be recorded."""
    return spec.partition(":")[0].partition("?")[0] in DOMAINS


def record_world(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="A world that can be recorded, e.g. terminal.")],
    out: Annotated[Path, typer.Option("--out", help="Tree to write to; what it holds is not redone.")],
    tasks: Annotated[int, typer.Option("--tasks", help="Tasks of the split.", min=1)] = 20,
    seeds: Annotated[int, typer.Option("--seeds", help="Episodes of each task, by other actors.", min=1)] = 1,
    split: Annotated[str, typer.Option("--split", help="train or held-out.")] = "train",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the task list.")] = 0,
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
    from refork.worlds.open import open_world

    if split not in ("train", "held-out"):
        raise BadInput(f"there is no split {split!r}", hint="train or held-out")
    part: Split = "train" if split == "train" else "held-out"
    world = open_world(spec)
    if not isinstance(world, Environment):
        raise BadInput(
            f"{world.name} cannot be recorded: it has no brief and no scripted actors",
            where="world record",
            hint="worlds: " + ", ".join(DOMAINS),
        )
    chosen = world.tasks(part, tasks, seed)
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
            lines.append(f"{len(refused)} walks were refused; the first: {refused[0]}")
    if facts["stopped"]:
        lines.append("stopped; the same command goes on")
    return "\n".join(lines)
