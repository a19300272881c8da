"""``ramify fork`` and ``ramify sweep``: the one operation, on a recorded tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ramify.app.cli.backends import BackendSpec, backend_for, policies_for
from ramify.app.cli.common import (
    existing,
    judge_for,
    print_json,
    settings_for,
    simulator_for,
    world_for,
)

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
Settings = Annotated[list[str], typer.Option("--set", help="Sampling setting, e.g. temperature=0.7.")]
Seed = Annotated[int, typer.Option("--seed", help="Address of the noise.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SimulatorSpec = Annotated[
    str | None,
    typer.Option(
        "--simulator", help="Who answers where the world cannot go back: a run's folder or any policy."
    ),
]
ControlSpec = Annotated[
    str | None,
    typer.Option("--simulator-control", help="What steers it, e.g. perturb:rate=0.3 or stingy."),
]
Node = Annotated[str, typer.Option("--node", help="Node id, or enough of its beginning.")]
Token = Annotated[int | None, typer.Option("--token", help="Tokens of the node that stand; default: all.")]
Changes = Annotated[
    list[str], typer.Option("--change", help="What differs, e.g. remove:1; may be given twice.")
]
UntilClear = Annotated[
    bool, typer.Option("--until-clear", help="Stop as soon as the answer is clear; --draws is the most.")
]


def fork_command(
    tree: TreeFile,
    node: Node,
    policy: PolicySpec,
    token: Token = None,
    change: Changes = [],  # noqa: B006
    draws: Annotated[int, typer.Option("--draws", help="Continuations per arm.")] = 64,
    world: WorldSpec = None,
    success_regex: Regex = None,
    settings: Settings = [],  # noqa: B006
    seed: Seed = 0,
    simulator: SimulatorSpec = None,
    simulator_control: ControlSpec = None,
    until_clear: UntilClear = False,
    backend: BackendSpec = None,
    as_json: Json = False,
) -> None:
    """Fork a point with and without one change, and compare.

    Example: ramify fork --tree runs/demo/tree.db --node 3f2a --token 2 --change remove:1 --policy hf:DIR

    Example: ramify fork --tree runs/demo/tree.db --node 3f2a --policy hf:DIR --backend processes:4
    """
    from functools import partial

    from ramify.app.cli.cards import LiveProgress, effect_card
    from ramify.core.fork import compare, compare_until, fork, parse_change, recorded_settings
    from ramify.core.tree import Tree
    from ramify.core.world.open import open_world

    with Tree.open(existing(tree)) as store, LiveProgress() as live, backend_for(backend) as crew:
        opened = policies_for(live, crew)
        point = store.at(store.node(node), token)
        walk = store.path(point)
        actor = opened(policy)
        what = parse_change(change, opened, open_world)
        maker = simulator_for(simulator, simulator_control, live)
        place = world_for(walk, world, simulated=maker is not None)
        judge = judge_for(success_regex)
        law = settings_for(recorded_settings(point, walk), settings)
        if until_clear and what is not None:
            effect = compare_until(
                point, actor, what, max_draws=draws, settings=law, world=place, judge=judge,
                seed=seed, simulator=maker, progress=live, backend=crew,
            )  # fmt: skip
        else:
            run = partial(
                fork, point, actor, draws, settings=law, world=place, judge=judge, seed=seed,
                simulator=maker, progress=live, backend=crew,
            )  # fmt: skip
            base = run()
            if what is None:
                live.close()
                _print_arm(base, as_json)
                return
            other = run(change=what)
            effect = compare(base, other)
    if as_json:
        print_json(effect.to_json())
    else:
        from rich.console import Console

        Console().print(effect_card(effect.to_json()))


def _print_arm(base: object, as_json: bool) -> None:
    from ramify.core.fork import Fork, arm_summary

    assert isinstance(base, Fork)
    summary = arm_summary(base)
    if as_json:
        print_json(summary)
        return
    typer.echo(f"{summary['draws']} draws, {summary['graded']} graded, {summary['errors']} failed")
    if summary["rate"] is not None:
        typer.echo(f"success {summary['rate']:.3f} [{summary['low']:.3f}, {summary['high']:.3f}]")
    if summary["simulated"]:
        who = summary["simulator"]["model"]
        typer.echo(f"{100 * summary['simulated']:.0f} % of the answers are simulated, by {who}")
    for text, count in summary["most_common"]:
        typer.echo(f"{count:5d}  {text!r}")


def sweep_command(
    tree: TreeFile,
    node: Annotated[str, typer.Option("--node", help="Last node of the trace (a leaf).")],
    policy: PolicySpec,
    every: Annotated[str, typer.Option("--every", help="token or turn.")] = "token",
    draws: Annotated[int, typer.Option("--draws", help="Draws that serve each point.")] = 64,
    world: WorldSpec = None,
    success_regex: Regex = None,
    reuse: Annotated[bool, typer.Option(help="Let a draw serve every point it passes.")] = True,
    seed: Seed = 0,
    simulator: SimulatorSpec = None,
    simulator_control: ControlSpec = None,
    backend: BackendSpec = None,
    as_json: Json = False,
) -> None:
    """Fork every token of a trace in one batch: where was success won or lost?

    Example: ramify sweep --tree runs/demo/tree.db --node 9c1d --policy hf:DIR --draws 64
    """
    from ramify.app.cli.cards import LiveProgress, trace_strip
    from ramify.core.fork import potential_scores, sweep
    from ramify.core.fork.report import trace_report
    from ramify.core.tree import Tree

    with Tree.open(existing(tree)) as store, LiveProgress() as live, backend_for(backend) as crew:
        end = store.at(store.node(node))
        walk = store.path(end)
        actor = policies_for(live, crew)(policy)
        maker = simulator_for(simulator, simulator_control, live)
        place = world_for(walk, world, simulated=maker is not None)
        result = sweep(
            end, actor, draws, every=every, reuse=reuse, world=place,
            judge=judge_for(success_regex), seed=seed, simulator=maker, progress=live,
            backend=crew,
        )  # fmt: skip
        if every == "token":
            producer, scores = potential_scores(result, actor, seed, draws)
            store.add_producer(producer)
            store.add_scores(scores)
        report = trace_report(result)
    if as_json:
        print_json(report)
    else:
        from rich.console import Console

        Console().print(trace_strip(report))


def register(app: typer.Typer) -> None:
    """Mount the two commands."""
    app.command("fork")(fork_command)
    app.command("sweep")(sweep_command)
