"""``refork simulate steer``: act in a simulator by hand, or measure what a control does to a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, Seed, policy_for, print_json, settings_for
from refork.cli.recipe import Keys
from refork.errors import BadInput
from refork.types import Json

if TYPE_CHECKING:
    from refork.worlds.environment import Environment
    from refork_methods.simulate.world import WorldModel

Model = Annotated[str, typer.Option("--model", help="Folder of a run or model, organism:NAME or any policy.")]
Worlds = Annotated[
    str, typer.Option("--world", help="The world it stands for: terminal, tools:DATABASE, ...")
]
#: Tasks are drawn in turn, so a number beyond would take long to reach.
_LAST = 999
Number = Annotated[
    int, typer.Option("--task", help="Which of the split's tasks, counted from 0.", min=0, max=_LAST)
]
Split = Annotated[str, typer.Option("--split", help="train or held-out.")]
Control = Annotated[
    str | None,
    typer.Option("--control", help="perturb:rate=0.3, stingy or fictional; several with semicolons."),
]
Actions = Annotated[str | None, typer.Option("--actions", help="Actions, separated by semicolons.")]
Who = Annotated[
    str | None, typer.Option("--policy", help="Measure this policy with and without the control.")
]
Tasks = Annotated[int, typer.Option("--tasks", help="Tasks of the comparison.", min=2)]
Draws = Annotated[int, typer.Option("--draws", help="Rollouts of each task and arm.", min=1)]
Model_ = Annotated[
    list[str],
    typer.Option("--set", help="The simulator's settings, e.g. temperature=1."),
    Keys("refork.runs.recipe:TurnLaw", first=True),
]
Longest = Annotated[int, typer.Option("--max-tokens", help="Longest turn of the policy.")]


def steer(
    model: Model, world: Worlds, task: Number = 0, split: Split = "train", control: Control = None,
    actions: Actions = None, policy: Who = None, tasks: Tasks = 8, draws: Draws = 4, settings: Model_ = [],  # noqa: B006
    max_tokens: Longest = 256, seed: Seed = 0, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Act in a simulator, under a control if one is named; or compare a policy's success with and without it.

    Example: refork simulate steer --model runs/sft --world terminal --control perturb:rate=0.3 --actions 'ls'
    """
    from refork.cli.live import LiveProgress
    from refork.policies.base import Sampling
    from refork_methods.simulate.control.parse import parse_control
    from refork_methods.simulate.simulating import open_environment, open_simulator
    from refork_methods.simulate.steering import compare_control
    from refork_methods.simulate.world import GREEDY

    actions = (actions or "").strip() or None
    if (actions is None) == (policy is None) or (policy is not None and control is None):
        raise BadInput("give --actions, or --policy with --control", where="steer")
    if split not in ("train", "held-out"):
        raise BadInput(f"there is no split {split!r}", hint="train or held-out")
    base = open_environment(world)
    steered = parse_control(control) if control else None
    with LiveProgress() as live:
        made, _ = open_simulator(model, settings=settings_for(GREEDY, settings), progress=live)
        if actions is not None:
            report = _acted(made, base, split, task, steered, actions, seed)
        else:
            found = compare_control(
                policy_for(str(policy), live), made.world(base), made.world(base, steered),
                base.tasks("held-out" if split == "held-out" else "train", tasks), draws=draws,
                settings=Sampling(max_tokens=max_tokens), seed=seed, progress=live,
            )  # fmt: skip
            report = found.to_json()
    if as_json:
        print_json(report)
    elif actions is not None:
        _show(report)
    else:
        typer.echo(found.sentence)


def _acted(
    made: WorldModel, base: Environment, split: str, number: int, control: Any, actions: str, seed: int
) -> Json:
    """The transcript of actions in one task."""
    task = base.tasks("held-out" if split == "held-out" else "train", number + 1)[number]
    episode = made.world(base, control).start(task, seed)
    turns = []
    for action in actions.split(";"):
        seen = episode.step(action.strip())
        turns.append({"action": action.strip(), "text": seen.text, "done": seen.done, "reward": seen.reward}
                     | ({"info": seen.info} if seen.info else {}))  # fmt: skip
        if seen.done:
            break
    return {
        "task": task.id,
        "prompt": task.prompt,
        "first": episode.first.text,
        "simulator": episode.simulator,
        "turns": turns,
    }


def _show(report: Json) -> None:
    typer.echo("\n".join(part for part in (report["prompt"], report["first"]) if part))
    for turn in report["turns"]:
        info = turn.get("info", {})
        marks = [f"{one['control']}: {one.get('kind', 'steered')}" for one in info.get("control", ())]
        marks += [f"drift: {one['why']}" for one in info.get("drift", ())]
        why = info.get("simulated", {}).get("error")
        marks += [str(why)] if why else []
        typer.echo(f"> {turn['action']}")
        typer.echo(turn["text"])
        typer.echo("  [" + " ; ".join(["simulated", *marks]) + "]")
    last = report["turns"][-1]
    if last["done"]:
        typer.echo("ungraded" if last["reward"] is None else f"reward {last['reward']:g} (simulated)")


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command("steer")(steer)
