"""``refork gate collect`` and ``live``: record candidates of a writer, and let the gate decide on others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from refork.cli.common import existing, print_json, settings_for
from refork_methods.gate.commands.tables import print_live

if TYPE_CHECKING:
    from refork.errors import ServerError
    from refork.policies.base import Sampling

Writer = Annotated[
    str, typer.Option(help="Policy that writes candidates: scripted:repairer, openai:URL#MODEL.")
]
Store = Annotated[Path, typer.Option("--tree", help="Tree file that keeps every candidate.")]
World = Annotated[
    str, typer.Option(help="Where the tasks are: repair, with options as repair?origin=generated.")
]
Tasks = Annotated[int, typer.Option(min=1, help="How many tasks.")]
Draws = Annotated[int, typer.Option(min=1, help="Episodes of each task.")]
Split = Annotated[Literal["train", "held-out"], typer.Option(help="Which tasks.")]
Seed = Annotated[int, typer.Option(help="Of tasks and noise.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Sampling of the writer, e.g. temperature=0.7.")
]
Critics = Annotated[
    list[str] | None,
    typer.Option(
        "--critic", help="syntax, ruff, public (all by default), or FILE.py:function; once for each."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to ``refork gate``."""
    app.command("collect")(collect_candidates)
    app.command("live")(play_live)


def _settings(given: list[str] | None) -> Sampling:
    from refork.policies.base import Sampling

    plain = Sampling(max_tokens=2048)  # a turn of a writer may hold a whole diff
    return settings_for(plain, given or []) or plain


def collect_candidates(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="JSON lines to write, or to go on with.")],
    tree: Store,
    writer: Writer,
    world: World = "repair",
    tasks: Tasks = 40,
    draws: Draws = 1,
    steps: Annotated[int, typer.Option(min=1, help="Candidates of an episode: a draw, then refined.")] = 3,
    split: Split = "train",
    seed: Seed = 0,
    settings: Settings = None,
    critic: Critics = None,
    as_json: AsJson = False,
) -> None:
    """Draw candidates, run every critic and the verifier on each, and record it all for refork gate fit.

    What is recorded is not done again: after Ctrl-C the same command goes on.

    Example: refork gate collect train.jsonl --tree runs.db --writer scripted:repairer --tasks 60
    """
    from refork.cli.live import LiveProgress
    from refork.policies.open import open_policy
    from refork.progress import waits
    from refork.registry import part
    from refork.tree import Tree
    from refork.worlds.open import open_world
    from refork_methods.gate.collect import collected_json

    collect_repairs = part("gate.collect", "refork-testbed")
    law = _settings(settings)
    cut: list[ServerError] = []
    with LiveProgress() as live:
        place, acting = open_world(world), open_policy(writer, on_wait=waits(live))
        with Tree.open(tree) as store:  # made last: a name that is wrong leaves no empty tree
            found = collect_repairs(
                out, store, place, acting, law, failed=cut.append, split=split, tasks=tasks, draws=draws,
                steps=steps, seed=seed, critics=critic or (), progress=live,
            )  # fmt: skip
    told = collected_json(found) | {"cut": len(cut), "error": cut[0].what if cut else None}
    if cut:
        typer.echo(
            f"note: {len(cut)} chains ended early, the first of: {cut[0]}\n"
            "  next: the same command makes them anew",
            err=True,
        )
    if as_json:
        print_json(told)
        return
    typer.echo(
        f"{told['candidates']} candidates of {told['instances']} tasks, {told['right']} right, "
        f"{told['unknown']} without an outcome"
    )
    typer.echo(str(out))


def play_live(
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="What refork gate fit wrote.")],
    tree: Store,
    writer: Writer,
    world: World = "repair",
    use: Annotated[str, typer.Option(help="Who decides: dp, greedy, or a rule such as gate(public).")] = "dp",
    tasks: Tasks = 40,
    draws: Draws = 1,
    horizon: Annotated[int, typer.Option(min=1, help="Most candidates per episode.")] = 3,
    verify: Annotated[str, typer.Option(help="terminal, or retry: a refused candidate may be refined.")] = (
        "terminal"
    ),
    measured: Annotated[
        bool, typer.Option("--measured", help="Pay what calls really took; prices must be in seconds.")
    ] = False,
    split: Split = "held-out",
    seed: Seed = 0,
    settings: Settings = None,
    critic: Critics = None,
    as_json: AsJson = False,
) -> None:
    """Let a policy decide on real tasks, and put what it earned beside what was promised.

    Episodes on the tree are not played again: after Ctrl-C the same command goes on.

    Example: refork gate live policy.json --tree runs.db --writer scripted:repairer --verify retry
    """
    from refork.cli.live import LiveProgress
    from refork.policies.open import open_policy
    from refork.progress import waits
    from refork.registry import part
    from refork.tree import Tree
    from refork.worlds.open import open_world
    from refork_methods.gate.live_run import setting_from

    setting = setting_from(existing(policy), use, horizon=horizon, verify=verify, measured=measured)
    live_repairs = part("gate.live", "refork-testbed")
    law = _settings(settings)
    with LiveProgress() as live:
        place, acting = open_world(world), open_policy(writer, on_wait=waits(live))
        with Tree.open(tree) as store:
            told = live_repairs(
                store, place, acting, setting, law, split=split, tasks=tasks, draws=draws, seed=seed,
                critics=critic or (), progress=live,
            ).to_json()  # fmt: skip
    if as_json:
        print_json(told)
        return
    print_live(told)
