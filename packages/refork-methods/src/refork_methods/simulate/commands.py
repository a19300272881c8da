"""``refork method simulate``: learn an environment from its records, and act in what was learned."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import (
    AllowHost,
    AllowOrigin,
    AsJson,
    DryRun,
    KeyFile,
    Port,
    RecipeFile,
    Seed,
    print_json,
    settings_for,
)
from refork.cli.recipe import Keys
from refork.cli.serve import Host
from refork.errors import BadInput
from refork.types import Json

if TYPE_CHECKING:
    from refork.worlds.environment import Environment
    from refork_methods.simulate.data import Prepared, Row
    from refork_methods.simulate.fidelity import Comparison, Fidelity, Figure
    from refork_methods.simulate.simulating import EvalResult
    from refork_methods.simulate.world import WorldModel


# ``refork simulate data``.

Sources = Annotated[
    list[Path], typer.Argument(help="Trajectories, trees or logs.", show_default=False, metavar="SOURCES...")
]
Items = Annotated[
    list[str] | None,
    typer.Option("--thresholds", help="Bounds of turn classes, name=value; may be repeated."),
]


def data(
    sources: Sources,
    out: Annotated[Path, typer.Option("--out", help="The folder to write.", show_default=False)],
    test_source: Annotated[list[Path] | None, typer.Option(help="A source to test on only.")] = None,
    test_fraction: Annotated[float, typer.Option(help="Share to test on, where no source is named.")] = 0.2,
    by: Annotated[str, typer.Option(help="Split by source or, in records of one world, by task.")] = "source",
    thresholds: Items = None,
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 0,
    json: AsJson = False,
) -> None:
    """Check, filter, split and weigh environment trajectories, and write them to train on.

    Example: refork simulate data tools.db terminal.jsonl --out data --by task
    """
    from refork.cli.live import LiveProgress
    from refork_methods.simulate.data import Choices, Thresholds, prepare, write

    choices = Choices(
        thresholds=Thresholds.parse(thresholds or []),
        test_fraction=test_fraction,
        by=by,
        seed=seed,
    )
    with LiveProgress() as progress:
        prepared = prepare(sources, test_source or [], choices, progress)
    write(prepared, out)
    if json:
        print_json({"folder": str(out), **prepared.to_json()})
    else:
        _tell(prepared, out)


def _tell(prepared: Prepared, out: Path) -> None:
    facts = prepared.to_json()
    typer.echo(f"{out}: {facts['train']} trajectories to train on, {facts['test']} to test on")
    refused = [problem for problem in prepared.problems if problem.refused and problem.kind != "doubled"]
    for problem in refused[:10]:
        typer.echo(f"refused: {problem}")
    for line in prepared.unread[:10]:
        typer.echo(f"not read: {line}")
    for kind, count in facts["problems"].items():
        typer.echo(f"{kind}: {count}")
    typer.echo(f"retry turns dropped: {prepared.dropped}; context only: {prepared.context_only}")
    kinds = list(prepared.table[0].shares) if prepared.table else []
    typer.echo("domain    trajectories  turns  targets  exact  weight  " + "  ".join(kinds))
    for row in prepared.table:
        typer.echo(_line(row))


def _line(row: Row) -> str:
    exact = "    -" if row.exact is None else f"{row.exact:5.0%}"
    shares = "  ".join(f"{share:>{len(kind)}.0%}" for kind, share in row.shares.items())
    return (
        f"{row.domain:<10}{row.trajectories:12d}  {row.turns:5d}  {row.targets:7d}  {exact}  "
        f"{row.weight:6.2f}  {shares}"
    )


# ``refork simulate train``.


class StageName(StrEnum):
    """The three stages."""

    cpt = "cpt"
    sft = "sft"
    rl = "rl"


def train(
    stage: Annotated[StageName, typer.Option("--stage", help="cpt, then sft, then rl.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the run.", show_default=False)],
    recipe: RecipeFile = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of `simulate data`, or a file of trajectories.")
    ] = None,
    policy: Annotated[str | None, typer.Option("--policy", help="hf:DIR or organism:NAME.")] = None,
    lora: Annotated[bool, typer.Option("--lora", help="Train an adapter, not all weights.")] = False,
    judge: Annotated[
        str | None, typer.Option("--judge", help="rule, or the model that grades (sft with a teacher, rl).")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a recipe key, e.g. rate.peak=1e-4."),
        Keys(
            "refork_methods.simulate.recipes:CptRecipe",
            "refork_methods.simulate.recipes:SftRecipe",
            "refork_methods.simulate.recipes:RlRecipe",
        ),
    ] = None,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Train a model to answer as environments do; the same command again resumes.

    Example: refork simulate train --stage cpt --data data --policy hf:DIR --set steps=500 --out runs/cpt
    """
    from refork.cli.live import LiveProgress
    from refork.policies.open import spell
    from refork.runs.recipe import resolve
    from refork_methods.simulate.recipes import recipe_class
    from refork_methods.simulate.run import plan_stage, run_stage

    changes = [*(settings or []), *(["lora={}"] if lora and not _sets_lora(settings or []) else [])]
    chosen = resolve(
        recipe_class(stage.value), recipe, changes, policy=None if policy is None else spell(policy),
        judge=None if judge is None else spell(judge),
        data=None if data is None else str(data),
    )  # fmt: skip
    if dry_run:
        _print_trained(plan_stage(stage.value, chosen), json)
        return
    with LiveProgress() as live:
        summary = run_stage(stage.value, chosen, out, live)
    _print_trained(summary, json)


def _sets_lora(settings: list[str]) -> bool:
    return any(item.startswith("lora") for item in settings)


def _print_trained(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            shown = ", ".join(f"{key} {_short(inner)}" for key, inner in value.items())
        else:
            shown = _short(value)
        typer.echo(f"{name.replace('_', ' '):<22} {shown}")


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)


# ``refork simulate eval``.

Model = Annotated[
    str, typer.Argument(help="Folder of a run or model, organism:NAME or any policy.", show_default=False)
]
Trajectories = Annotated[
    Path, typer.Argument(help="Trajectories, a tree or a log that it did not learn from.", show_default=False)
]
Judge = Annotated[str | None, typer.Option("--judge", help="rule, or the policy that grades; not MODEL.")]
Against = Annotated[
    list[str] | None, typer.Option("--against", help="Another simulator on the same turns; may be repeated.")
]
Baseline = Annotated[
    list[str] | None, typer.Option("--baseline", help="copy, common or nearest; may be repeated.")
]
Train = Annotated[Path | None, typer.Option("--train", help="Trajectories that common and nearest look up.")]
Turns = Annotated[
    str, typer.Option("--turns", help="all, one of each trajectory, or so many drawn ones of each.")
]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Turns predicted at the same time.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder for predictions and report; the same command goes on.")
]


def evaluate_command(
    model: Model,
    trajectories: Trajectories,
    judge: Judge = None,
    against: Against = None,
    baseline: Baseline = None,
    train: Train = None,
    turns: Turns = "all",
    think: Annotated[bool, typer.Option("--think", help="Let the model reason first.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Draws the turns and the model's answers.")] = 0,
    batch: Batch = 32,
    out: Out = None,
    json: AsJson = False,
) -> None:
    """How near a simulator's answers come to what the world said, each with the real history before it.

    Turns without a valid prediction count as wrong. With a tree the figures become scores of its
    observations.

    Example: refork simulate eval runs/cpt test.jsonl --judge rule --baseline nearest --train train.jsonl
    """
    from refork.cli.live import LiveProgress
    from refork_methods.simulate.evaluate import report, write_report
    from refork_methods.simulate.simulating import EvalPlan, chosen_turns, run_eval

    plan = EvalPlan(
        model=model, trajectories=trajectories, judge=judge, against=tuple(against or ()),
        baselines=tuple(baseline or ()), train=train, turns=chosen_turns(turns), seed=seed, batch=batch,
        think=think, out=out,
    )  # fmt: skip
    with LiveProgress() as live:
        found = run_eval(plan, live)
    told = report(found.first, found.others, found.comparisons)
    if out is not None:
        from refork_methods.simulate.fidelity_picture import fidelity_figure

        write_report(out, told, found.first)
        shown = [found.first.fidelity, *(other.fidelity for other in found.others)]
        (out / "fidelity.svg").write_text(fidelity_figure(shown).svg(), encoding="utf-8")
    if json:
        print_json(told)
    else:
        _print(found)
    if found.stopped:
        raise typer.Exit(130)


def _print(found: EvalResult) -> None:
    from refork.cli.screen import print_table

    fidelity = found.first.fidelity
    names = [name for name in _NAMES if name in fidelity.micro]
    rows = [_row("all turns", fidelity.micro, names), _row("mean of domains", fidelity.macro, names)]
    for kind, groups in (("", fidelity.domains), ("class ", fidelity.classes), ("turn ", fidelity.depths)):
        rows += [_row(f"{kind}{name}", figures, names) for name, figures in groups.items()]
    typer.echo(f"{fidelity.name}: {fidelity.turns} turns of {fidelity.trajectories} trajectories")
    print_table(["", "turns", *(_NAMES[name] for name in names)], rows)
    for line in _remarks(fidelity):
        typer.echo(line)
    for one in found.comparisons:
        _difference(one)
    for why in found.unread[:5]:
        typer.echo(f"not read: {why}")
    if found.scores:
        typer.echo(f"{found.scores} scores written to the tree")


_NAMES = {
    "coverage": "coverage", "exact": "exact", "exact_deterministic": "exact where determined",
    "rule": "rules kept", "rubric": "rubric",
}  # fmt: skip


def _row(label: str, figures: dict[str, Figure], names: list[str]) -> list[str]:
    cells = [
        "-" if (one := figures.get(name)) is None else f"{one.estimate:.3f} ({one.low:.2f} to {one.high:.2f})"
        for name in names
    ]
    return [label, str(figures["coverage"].n), *cells]


def _remarks(fidelity: Fidelity) -> list[str]:
    step = fidelity.per_step
    parts = [
        f"{step.tokens_in:.0f} tokens read" if step.tokens_in is not None else "",
        f"{step.tokens_out:.1f} said" if step.tokens_out is not None else "",
        f"{step.seconds:.3f} s" if step.seconds is not None else "",
    ]
    told = ", ".join(part for part in parts if part)
    lines = [f"one step: {told}"] if told else []
    if fidelity.padded:
        lines.append(f"{fidelity.padded} answers say something beside their tag, as one that flatters does")
    if fidelity.scorers:
        shown = ", ".join(
            f"{name} {'-' if value is None else f'{value:.2f}'}" for name, value in fidelity.scorers.items()
        )
        lines.append(f"judge {fidelity.judge}, 0 to 100: {shown}; {fidelity.ungraded} ungraded")
    if fidelity.retried or fidelity.cut:
        lines.append(f"{fidelity.retried} turns took several tries, {fidelity.cut} had their history cut")
    return lines


def _difference(one: Comparison) -> None:
    typer.echo(f"{one.other} minus {one.base}:")
    for name, gap in one.overall.items():
        if gap.low is None:
            typer.echo(f"  {_NAMES.get(name, name):<24} {gap.difference:+.3f}")
        else:
            typer.echo(
                f"  {_NAMES.get(name, name):<24} {gap.difference:+.3f} "
                f"({gap.low:+.3f} to {gap.high:+.3f}, p = {gap.p:.2g}, {gap.n} turns)"
            )


# ``refork simulate serve``.

Worlds = Annotated[
    list[str], typer.Option("--world", help="[NAME=]SPEC of a world to simulate; may be repeated.")
]
Width = Annotated[int, typer.Option("--width", min=1, help="Steps answered at the same time.")]
Temperature = Annotated[float, typer.Option("--temperature", min=0.0, help="0: the likeliest answer.")]
Think = Annotated[bool, typer.Option("--think", help="Let the model reason first; nobody sees it.")]
Changes = Annotated[
    list[str],
    typer.Option("--set", help="Any setting of refork serve as NAME=VALUE: world_sessions=64, ..."),
    Keys("refork.serve.settings:ServerSettings"),
]


def serve_command(
    model: Model,
    worlds: Worlds,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    key_file: KeyFile = None,
    hosts: AllowHost = [],  # noqa: B006
    origins: AllowOrigin = [],  # noqa: B006
    width: Width = 16,
    temperature: Temperature = 0.0,
    think: Think = False,
    changes: Changes = [],  # noqa: B006
) -> None:
    """Serve simulated worlds that any agent can act in: OpenAI chat (world/NAME), MCP, and plain HTTP.

    Every answer says that it is simulated. Keys, limits, metrics and Ctrl-C are those of refork serve.

    Example: refork simulate serve runs/cpt --world terminal --world tools:shop --port 8000
    """
    from refork.cli.live import LiveProgress
    from refork.serve import serve
    from refork.serve.keys import read_keys
    from refork.serve.settings import ServerSettings, changed
    from refork_methods.simulate.simulating import open_simulator, simulated_worlds
    from refork_methods.simulate.world import GREEDY

    told: dict[str, Any] = {"host": host, "port": port, "width": width, "keys": read_keys(key_file)}
    told |= {"hosts": frozenset(hosts), "origins": frozenset(origins)}
    settings = changed(ServerSettings(**told), changes)
    with LiveProgress() as live:
        sampling = GREEDY.but(temperature=temperature)
        opened, _ = open_simulator(model, think=think, settings=sampling, progress=live)
        served = simulated_worlds(opened, worlds)

    def ready(address: str) -> None:
        typer.echo(f"{opened.name} simulates at {address}; Ctrl-C lets running answers end", err=True)
        for name in served:
            base = f"{address}/worlds/{name}"
            typer.echo(f"  chat model world/{name}; MCP {base}/mcp; HTTP {base}/reset", err=True)

    serve({}, settings, worlds=served, ready=ready)


# ``refork simulate steer``: act in a simulator by hand.

Simulator = Annotated[
    str, typer.Option("--model", help="Folder of a run or model, organism:NAME or any policy.")
]
SteeredWorld = Annotated[
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
Actions = Annotated[str, typer.Option("--actions", help="Actions, separated by semicolons.")]
Model_ = Annotated[
    list[str],
    typer.Option("--set", help="The simulator's settings, e.g. temperature=1."),
    Keys("refork.runs.recipe:TurnSampling", first=True),
]


def steer(
    model: Simulator, world: SteeredWorld, actions: Actions, task: Number = 0, split: Split = "train",
    control: Control = None, settings: Model_ = [], seed: Seed = 0, as_json: AsJson = False,  # noqa: B006
) -> None:  # fmt: skip
    """Act in a simulator, under a control if one is named.

    Example: refork simulate steer --model runs/sft --world terminal --control perturb:rate=0.3 --actions 'ls'
    """
    from refork.cli.live import LiveProgress
    from refork_methods.simulate.control.parse import parse_control
    from refork_methods.simulate.simulating import open_environment, open_simulator
    from refork_methods.simulate.world import GREEDY

    if not actions.strip():
        raise BadInput("there is no action to take", where="--actions", hint="--actions 'ls;pwd'")
    if split not in ("train", "held-out"):
        raise BadInput(f"there is no split {split!r}", hint="train or held-out")
    base = open_environment(world)
    steered = parse_control(control) if control else None
    with LiveProgress() as live:
        made, _ = open_simulator(model, settings=settings_for(GREEDY, settings), progress=live)
        report = _acted(made, base, split, task, steered, actions, seed)
    if as_json:
        print_json(report)
    else:
        _show(report)


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
        why = info.get("simulated", {}).get("error")
        marks += [str(why)] if why else []
        typer.echo(f"> {turn['action']}")
        typer.echo(turn["text"])
        typer.echo("  [" + " ; ".join(["simulated", *marks]) + "]")
    last = report["turns"][-1]
    if last["done"]:
        typer.echo("ungraded" if last["reward"] is None else f"reward {last['reward']:g} (simulated)")


app = typer.Typer(help="A language model as the world: train, check, serve, steer.", no_args_is_help=True)


def rules_command(
    known: Annotated[Path, typer.Argument(help="Recorded calls: trajectories, a tree or any log.")],
    held: Annotated[Path, typer.Option("--held", help="Others, on which a rule must replay.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the rules as JSON.")] = None,
    least: Annotated[int, typer.Option("--least", min=1, help="Calls that a rule is learned from.")] = 5,
    replay: Annotated[int, typer.Option("--replay", min=1, help="Held-out calls that must keep it.")] = 3,
    json: AsJson = False,
) -> None:
    """Learn what a tool's answers keep from recorded calls; what does not replay on others is refused.

    Exit status 1 where no rule is left. In Python the file is a rule of rewards: InducedRules.read(FILE).

    Example: refork simulate rules train.jsonl --held test.jsonl --out rules.json
    """
    from refork.cli.common import existing
    from refork.plain import to_json
    from refork_methods.simulate.data import read_source
    from refork_methods.simulate.induced import induce_rules

    unread: list[str] = []
    first, second = (list(read_source(existing(path), unread)) for path in (known, held))
    found = induce_rules(first, second, least=least, replay=replay)
    if out is not None:
        found.write(out)
    if json:
        print_json(to_json(found) | {"not_read": unread})
    else:
        for rule in found.rules:
            typer.echo(str(rule))
        for one in found.refused:
            typer.echo(f"refused: {one.rule} (held in {one.held} of {one.calls} held-out calls)")
        for why in unread[:5]:
            typer.echo(f"not read: {why}")
    if not found.rules:
        raise typer.Exit(1)


app.command("data")(data)
app.command("rules")(rules_command)
app.command("train")(train)
app.command("eval")(evaluate_command)
app.command("serve")(serve_command)
app.command("steer")(steer)
