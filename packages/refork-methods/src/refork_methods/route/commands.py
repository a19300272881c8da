"""``refork method route``: outcome tables, a selection head, workflows, and a pool behind one name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import (
    AsJson,
    SamplingSettings,
    existing,
    print_json,
    settings_for,
)
from refork.cli.recipe import Keys
from refork.cli.screen import print_table
from refork.errors import BadInput
from refork.jsonl import write_whole

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    from refork_methods.decide import Calibration
    from refork_methods.route.frontier import FrontierReport
    from refork_methods.route.rollouts import Rollouts
    from refork_methods.route.table import OutcomeTable

    Shares = Float[np.ndarray, "queries workers"]
    from refork.chat import ChatModel
    from refork.growing import Group
    from refork.serve.opening import Opened
    from refork.tree.node import Trajectory
    from refork_methods.route.backbone import RouterBackbone, StateFormat
    from refork_methods.route.collect import Swaps
    from refork_methods.route.conduct.conductor import Conducted, Conductor
    from refork_methods.route.decision import Decision
    from refork_methods.route.pool import WorkerPool
    from refork_methods.route.runs import Labels


# ``refork route frontier``: routers beside their baselines on one outcome table.

Low = Annotated[float, typer.Option("--low", help="Least possible reward in tables.")]
High = Annotated[float, typer.Option("--high", help="Largest possible reward in tables.")]


def frontier_command(
    table: Annotated[Path, typer.Argument(help="Outcome table to measure on.")],
    routers: Annotated[
        list[str], typer.Option("--router", help="NAME=FILE.csv of probabilities per query; may be repeated.")
    ] = [],  # noqa: B006
    head: Annotated[Path | None, typer.Option("--head", help="Folder of a selection head.")] = None,
    backbone: Annotated[
        str | None, typer.Option("--backbone", help="hf:DIR that the head reads with.")
    ] = None,
    fit: Annotated[
        Path | None, typer.Option("--fit", help="Other outcomes: choose the best worker and calibrate there.")
    ] = None,
    calls: Annotated[list[int], typer.Option("--calls", help="Votes and retries of so many calls.")] = [3],  # noqa: B006
    picture: Annotated[Path | None, typer.Option("--svg", help="Write the picture.")] = None,
    low: Low = 0.0,
    high: High = 1.0,
    as_json: AsJson = False,
) -> None:
    """Routers beside one worker, chance, votes, retries and the oracle: quality, cost, latency, regret.

    Example: refork route frontier test.csv --fit train.csv --router mine=probabilities.csv --svg frontier.svg
    """
    from refork_methods.route.frontier import best_single, frontier_report
    from refork_methods.route.pictures import frontier_figure
    from refork_methods.route.table import read_table

    tested = read_table(table, low=low, high=high)
    trained = None if fit is None else read_table(fit, workers=tested.workers, low=low, high=high)
    shares, chances = routers_for(routers, head, backbone, tested, trained)
    if trained is not None:
        tested.refuse_shared(trained)
    single = best_of_head(head) if trained is None else best_single(trained)
    report = frontier_report(tested, shares, chances=chances, calls=calls, single=single)
    if picture is not None:
        picture.write_text(
            frontier_figure(report, f"Quality and cost on {table.name}").svg(), encoding="utf-8"
        )
    if as_json:
        print_json(report.to_json())
        return
    _print_report(report, fitted=single is not None)


def _print_report(report: FrontierReport, *, fitted: bool) -> None:
    typer.echo(f"{report.queries} queries of {report.tasks} tasks; intervals are 95 %, over tasks")
    print_table(
        ("", "reward", "cost", "seconds", "unbeaten"),
        [
            (
                option.name,
                f"{option.quality.estimate:.3f} [{option.quality.low:.3f}, {option.quality.high:.3f}]",
                "unknown" if option.cost is None else f"{option.cost:.4g}",
                "unknown" if option.latency is None else f"{option.latency:.3g}",
                {True: "yes", False: "", None: "-"}[on],
            )
            for option, on in zip(report.options, report.on_frontier, strict=True)
        ],
    )
    if report.split_oracle is not None:
        typer.echo(f"oracle chosen on one half of the repeats, paid by the other: {report.split_oracle:.3f}")
    if not fitted:
        typer.echo(
            "votes and retries: of the worker that is best on these very queries (--fit picks it elsewhere)"
        )
    for name, area in report.area.items():
        value = "none, costs are unknown or all equal" if area is None else f"{area:.3f}"
        typer.echo(f"area under the cost curve, {name}: {value}")
    for router in report.routers:
        lost = router.regret.regret
        typer.echo(
            f"{router.name}: regret {lost.estimate:.3f} [{lost.low:.3f}, {lost.high:.3f}] to the oracle"
        )
        typer.echo(f"  {router.verdict.sentence}")
        if router.calibration is not None:
            c = router.calibration
            typer.echo(f"  chance of success: Brier {c.brier:.3f}, calibration error {c.error:.3f}")
        for one in router.removals:
            typer.echo(
                f"  without {one.worker} ({one.share:.0%} of choices): {one.before:.3f} -> {one.after:.3f}"
                f" (oracle without it {one.oracle:.3f})"
            )


def routers_for(
    named: Sequence[str],
    head: Path | None,
    backbone: str | None,
    tested: OutcomeTable,
    trained: OutcomeTable | None,
) -> tuple[dict[str, Shares], dict[str, Calibration]]:
    """Probabilities of every router on the table, and chances of success of those that ``trained`` can teach.

    Raises: BadInput for a router that is not NAME=FILE or does not fit the table, and for a head whose
    fitted queries are among the tested.
    """
    from refork_methods.route.frontier import success_chance
    from refork_methods.route.table import read_shares

    shares: dict[str, Shares] = {}
    for item in named:
        name, equals, file = item.partition("=")
        if not (name and equals and file):
            raise BadInput(f"{item!r} is not NAME=FILE", hint="--router mine=probabilities.csv")
        shares[name] = read_shares(Path(file), tested)
    chances: dict[str, Calibration] = {}
    if head is not None:
        shares["head"] = _of_head(head, backbone, tested, tested=True)
        if trained is not None:
            chances["head"] = success_chance(_of_head(head, backbone, trained, tested=False), trained)
    return shares, chances


def best_of_head(folder: Path | None) -> str | None:
    """The worker that was best where a head was fitted; None without a head, or for one that does not say."""
    from refork_methods.route.head import load_head

    return None if folder is None else load_head(folder)[1].best_single


def _of_head(folder: Path, backbone: str | None, table: OutcomeTable, *, tested: bool) -> Shares:
    import numpy as np

    from refork_methods.route.head import load_head

    head, card = load_head(folder)
    if tested:
        card.refuse_leaks(table.queries, table.texts)
    if head.format is None:
        if table.features is None:
            raise BadInput("the head reads features and the table has none", where=str(folder))
        states = table.features
    else:
        states = _read(head, backbone, table)
    known = head.probabilities(states, open=table.workers)
    # A head and a table may have the same workers in another order.
    return np.stack([known[:, head.workers.index(name)] for name in table.workers], axis=1)


def _read(head: object, spec: str | None, table: OutcomeTable) -> Shares:
    from refork_methods.route.head import SelectionHead

    assert isinstance(head, SelectionHead)
    assert head.format is not None
    texts = [text for text in table.texts or () if text is not None]
    if spec is None or len(texts) != len(table.queries):
        raise BadInput("the head reads texts: give --backbone and a table with a text for every query")
    reader = _reader(spec, head.format)
    head.require(reader)
    if head.offsets is not None:
        reader.settle(head.offsets, head.matrices)
    return reader.states(texts)


def _reader(spec: str, form: StateFormat) -> RouterBackbone:
    """A model read just as it was when a head was fitted on it."""
    from refork.policies.open import open_policy
    from refork_methods.route.backbone import RouterBackbone

    return RouterBackbone(
        open_policy(spec), rendering=form.rendering, token_index=form.token_index, layer=form.layer,
        window=form.window,
    )  # fmt: skip


# Verbs of ``refork route`` about outcomes: collect them, explain choices, compare with baselines.

Runs = Annotated[int, typer.Option("--runs", help="Recorded runs per task, a random worker each turn.")]
Turns = Annotated[list[int], typer.Option("--turn", help="Only this turn, from 0; may be repeated.")]
Rest = Annotated[str, typer.Option("--rest", help="Who says later turns: recorded or swapped.")]
Pool = Annotated[Path, typer.Option("--pool", help="The pool file (TOML): workers, prices, opt-outs.")]


def collect_command(
    pool: Pool,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the tree and the table.")],
    world: Annotated[str, typer.Option("--world", help="Where the workers act.")] = "specialists",
    tasks: Annotated[int, typer.Option("--tasks", help="Tasks of the training split.")] = 20,
    runs: Runs = 1,
    draws: Annotated[int, typer.Option("--draws", help="Repeats of every worker at every turn.")] = 8,
    turns: Turns = [],  # noqa: B006
    rest: Rest = "recorded",
    alone: Annotated[bool, typer.Option("--alone", help="Standalone: each worker does whole tasks.")] = False,
    table: Annotated[str, typer.Option("--table", help="outcomes.csv, .jsonl or .parquet.")] = "outcomes.csv",
    settings: SamplingSettings = [],  # noqa: B006
    seed: Annotated[int, typer.Option("--seed", help="Address of tasks and noise.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Collect outcomes: record runs, then swap only the worker at each turn and let the run go on.

    What is on the tree is not done again: after Ctrl-C the same command goes on.

    Example: refork route collect --pool pool.toml --world specialists --tasks 20 --draws 8 -o runs/labels
    """
    from refork.cli.live import LiveProgress
    from refork.errors import BadInput
    from refork.policies.base import Sampling
    from refork.policies.open import open_policy
    from refork.progress import waits
    from refork.tree import Tree
    from refork.worlds.open import open_world
    from refork_methods.route.collect import label_by_fork
    from refork_methods.route.pool import read_pool
    from refork_methods.route.runs import label_alone, record_runs
    from refork_methods.route.table import write_table

    if rest not in ("recorded", "swapped"):
        raise BadInput(f"--rest is {rest!r}", hint="recorded or swapped")
    place = open_world(world)
    sampling = settings_for(Sampling(), settings) or Sampling()
    wanted = place.tasks("train", tasks, seed)
    found: Swaps | Labels
    with LiveProgress() as live, ExitStack() as stack:
        workers = read_pool(existing(pool), partial(open_policy, on_wait=waits(live)))
        out.mkdir(parents=True, exist_ok=True)
        tree = stack.enter_context(Tree.open(out / "tree.db"))
        if alone:
            found = label_alone(
                tree, workers, place, wanted, draws=draws, settings=sampling, seed=seed, progress=live
            )
        else:
            groups = record_runs(
                tree, workers, place, wanted, draws=runs, settings=sampling, seed=seed, progress=live
            )
            found = label_by_fork(
                tree, workers, runs=_whole_trajectories(groups), world=place,
            turns=turns or None, draws=draws,
                rest=rest, seed=seed, progress=live,  # type: ignore[arg-type]
            )  # fmt: skip
    write_table(found.table, out / table)
    told = _collected(found, out, table)
    if as_json:
        print_json(told)
        return
    _print_collected(told)


def _whole_trajectories(groups: list[Group]) -> list[Trajectory]:
    return [
        trajectory
        for group in groups
        for arm in group.forks
        for draw, trajectory in zip(arm.draws, arm.leaves(), strict=True)
        if draw.end != "error"
    ]


def _print_collected(told: dict[str, Any]) -> None:
    typer.echo(f"{told['rows']} outcomes of {told['queries']} queries, {told['failures']} draws without one")
    typer.echo(f"{told['undecided']} of the queries have equal means for all workers: nothing to learn there")
    typer.echo(f"table: {told['table']}, tree: {told['tree']}")
    if (told["low"], told["high"]) != (0, 1):
        span = f"--low {told['low']:g} --high {told['high']:g}"
        typer.echo(f"rewards lie outside 0 .. 1: read the table with {span}")
    for name, mean in told["means"].items():
        typer.echo(f"  {name:16} mean reward {'not tried' if mean is None else f'{mean:.3f}'}")
    for one in told["effects"]:
        span = (
            "" if one["effect"] is None else f" [{one['effect']['low']:+.3f}, {one['effect']['high']:+.3f}]"
        )
        typer.echo(f"  {one['recorded']} -> {one['worker']}: {one['mean']:+.3f}{span}, {one['points']} turns")
    _bill(told)


def _collected(found: Swaps | Labels, out: Path, table: str) -> dict[str, Any]:
    import numpy as np

    from refork_methods.route.collect import Swaps
    from refork_methods.route.pool import Bill

    means, _ = found.table.means()
    columns = {name: means[:, w] for w, name in enumerate(found.table.workers)}
    bill = Bill.of(None if np.isnan(cost) else float(cost) for cost in found.table.cost)
    return {
        "table": str(out / table),
        "tree": str(out / "tree.db"),
        "rows": len(found.table),
        "low": found.table.low,
        "high": found.table.high,
        "queries": len(found.table.queries),
        "undecided": int((np.nanmax(means, axis=1) == np.nanmin(means, axis=1)).sum()),
        "failures": len(found.failures),
        "first_failure": found.failures[0].reason if found.failures else None,
        "means": {
            name: None if np.isnan(column).all() else float(np.nanmean(column))
            for name, column in columns.items()
        },
        "effects": [one.to_json() for one in found.effects] if isinstance(found, Swaps) else [],
        "money": bill.known,
        "calls_of_unknown_price": bill.unknown,
    }


def _bill(told: dict[str, Any]) -> None:
    unknown = told["calls_of_unknown_price"]
    tail = f", and {unknown} calls of unknown price" if unknown else ""
    typer.echo(f"money of the labelled turns: {told['money']:.4g}{tail}")
    if told["first_failure"]:
        typer.echo(f"first draw without an outcome: {told['first_failure']}")


def explain_command(
    source: Annotated[
        Path, typer.Argument(help="A decision log (.jsonl), or a tree that a routed policy acted on.")
    ],
    query: Annotated[
        str | None, typer.Option("--query", help="Only decisions of this query or node.")
    ] = None,
    last: Annotated[int, typer.Option("--last", help="At most so many, the newest.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Why each worker was chosen: probabilities, margin, expected reward, price, runner-up.

    Example: refork route explain decisions.jsonl --last 3
    """
    from refork.errors import BadInput

    found = _decisions(existing(source))
    if query is not None:
        found = [(where, one, call) for where, one, call in found if query in (one.query, where)]
        if not found:
            raise BadInput(f"there is no decision about {query!r}", where=str(source))
    shown = found[-last:] if last > 0 else found
    if as_json:
        print_json([{"where": where, **one.to_json(), "call": call} for where, one, call in shown])
        return
    if not shown:
        typer.echo("no decision is recorded here", err=True)
    for where, one, call in shown:
        typer.echo(f"{where}: {one.reason}")
        if call.get("error"):
            typer.echo(f"  the call failed: {call['error']}")
        elif call:
            money = "unknown" if call.get("money") is None else f"{call['money']:.4g}"
            typer.echo(f"  the call took {call['seconds']:.3g} s and cost {money}")


def _decisions(source: Path) -> list[tuple[str, Decision, dict[str, Any]]]:
    from refork.tree import Tree
    from refork.tree.address import is_address
    from refork_methods.route.decision import DecisionLog, decisions_on

    if source.suffix == ".db" or is_address(source):
        with Tree.open(source, "r") as tree:
            return [(node[:12], one, {}) for node, one in decisions_on(tree)]
    return [(one.query, one, call) for one, call in DecisionLog(source)]


# ``refork route fit`` and ``evolve``: train the head that picks the worker.

Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything drawn.")]
Reads = Annotated[
    str | None, typer.Option("--backbone", help="A local model (hf:DIR) whose hidden state the head reads.")
]
TokenIndex = Annotated[int, typer.Option("--token-index", help="Which token's state, from the end.")]
Rival = Annotated[bool, typer.Option("--rival", help="Also train by REINFORCE on as many rollouts.")]
Population = Annotated[int | None, typer.Option("--population", help="Candidates; default by size.")]
Window = Annotated[int | None, typer.Option("--window", help="Keep only the last so many tokens.")]


def fit_command(
    table: Annotated[Path, typer.Argument(help="Outcome table: .csv, .jsonl or .parquet.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the head and its card.")],
    backbone: Reads = None,
    tau: Annotated[
        str,
        typer.Option(
            "--tau", help="Temperature of the targets; auto: chosen by folds of the fitted queries."
        ),
    ] = "0.2",
    held_out: Annotated[
        float, typer.Option("--held-out", help="Share of queries kept for the report.")
    ] = 0.2,
    ridge: Annotated[
        str,
        typer.Option(
            "--ridge", help="On the mean square score; auto: chosen by folds of the fitted queries."
        ),
    ] = "auto",
    svf: Annotated[bool, typer.Option("--svf", help="Move the backbone's singular values too.")] = False,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="With --svf: over the fitted queries.")] = 20,
    cold: Annotated[
        list[str], typer.Option("--cold", help="NAME=REWARD assumed of a worker without outcomes.")
    ] = [],  # noqa: B006
    uneven: Annotated[
        str, typer.Option("--uneven", help="Missing outcomes, unequal repeats: weigh or refuse.")
    ] = "weigh",
    token_index: TokenIndex = -2,
    window: Window = None,
    low: Low = 0.0,
    high: High = 1.0,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Stage 1: fit a selection head to what each worker earned on each query.

    The head reads the table's features, or with --backbone the hidden state of its texts.

    Example: refork route fit outcomes.csv --backbone hf:models/qwen3-0.6b --out heads/first
    """
    from refork.cli.live import LiveProgress
    from refork_methods.route.stage1 import JointSettings, Stage1Settings
    from refork_methods.route.table import read_table
    from refork_methods.route.training import fit_head

    plan = Stage1Settings(
        tau=None if tau == "auto" else _number(tau, "--tau"), held_out=held_out,
        ridge=None if ridge == "auto" else _number(ridge, "--ridge"),
        uneven=uneven, cold=dict(map(_assumed, cold)), seed=seed,  # type: ignore[arg-type]
    )  # fmt: skip
    rows = read_table(existing(table), low=low, high=high)
    with LiveProgress() as live:
        told = fit_head(
            rows, out, plan, backbone=_backbone(backbone, token_index, window),
            joint=JointSettings(epochs=epochs) if svf else None, progress=live,
        )  # fmt: skip
    if as_json:
        print_json(told)
        return
    _print_fit(told)


def evolve_command(
    world: Annotated[
        str, typer.Argument(help="Where the pool works; scaffold is a planted one. With --roles: questions.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder: the run's state, the head, its card.")],
    pool: Annotated[Path | None, typer.Option("--pool", help="The pool file (TOML).")] = None,
    backbone: Reads = None,
    start: Annotated[
        Path | None, typer.Option("--from", help="Folder of a head to begin from; default: zeros.")
    ] = None,
    svf: Annotated[bool, typer.Option("--svf", help="Move the backbone's singular values too.")] = False,
    roles: Annotated[
        bool, typer.Option("--roles", help="Turns with roles; WORLD is a file of questions and answers.")
    ] = False,
    iters: Annotated[int, typer.Option("--iters", min=1, help="Generations.")] = 60,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Rollouts of a candidate.")] = 16,
    population: Population = None,
    sigma: Annotated[float, typer.Option("--sigma", help="First step, in units of the head's RMS.")] = 1.0,
    diversity: Annotated[float, typer.Option("--diversity", help="Weight of the entropy of use.")] = 0.0,
    turns: Annotated[float, typer.Option("--turns", help="Weight of the turns not taken.")] = 0.0,
    cost: Annotated[float, typer.Option("--cost", help="Price of money; unknown prices are refused.")] = 0.0,
    tasks: Annotated[int, typer.Option("--tasks", min=1, help="Tasks to train on.")] = 256,
    test: Annotated[int, typer.Option("--test", min=2, help="Held-out tasks of the trial.")] = 200,
    rival: Rival = False,
    settings: SamplingSettings = [],  # noqa: B006
    token_index: TokenIndex = -2,
    window: Window = None,
    seed: Seed = 42,
    as_json: AsJson = False,
) -> None:
    """Stage 2: train a head by what whole rollouts earn, with separable CMA-ES.

    After Ctrl-C the same command goes on where it stopped. Every run in a world is recorded on OUT/tree.db.

    Example: refork route evolve scaffold --out heads/evolved --rival

    Example: refork route evolve questions.jsonl --roles --pool pool.toml --backbone hf:DIR --out heads/cast
    """
    from refork.cli.live import LiveProgress
    from refork.policies.base import Sampling
    from refork_methods.route.evolve import EvolveSettings
    from refork_methods.route.pool import read_pool
    from refork_methods.route.rollouts import open_rollouts, starting_head
    from refork_methods.route.training import train_route

    plan = EvolveSettings(
        iters, repeats, population, sigma, diversity=diversity, turns=turns, cost=cost, seed=seed
    )
    reader = _backbone(backbone, token_index, window)
    workers = read_pool(existing(pool)) if pool is not None else None
    cast: tuple[str, ...] = ()
    train: Rollouts
    tests: Rollouts
    if roles:
        from refork_methods.route.turn_rollouts import open_turns
        from refork_methods.route.turns import ROLES

        cast = ROLES
        train, tests, width = open_turns(Path(world), workers, reader, tasks=tasks, test=test, seed=seed)
    else:
        train, tests, width = open_rollouts(
            world, workers, reader, out, tasks=tasks, test=test, seed=seed,
            settings=settings_for(Sampling(), settings),
        )  # fmt: skip
    head, card = starting_head(
        existing(start) if start else None, train.workers, width, reader, svf=svf, roles=cast
    )
    with LiveProgress() as live:
        told = train_route(
            head, train, tests, plan, folder=out, card=card, runs=test, rival=rival, progress=live
        )
    told["folder"] = str(out)
    if as_json:
        print_json(told)
        return
    _print_evolved(told)


def _number(text: str, name: str) -> float:
    from refork.errors import BadInput

    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{name} is {text!r}; it must be a number") from None


def _assumed(text: str) -> tuple[str, float]:
    from refork.errors import BadInput

    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise BadInput(f"--cold is {text!r}", hint="write NAME=REWARD, for example large=0.5")
    return name, _number(value, "--cold")


def _backbone(spec: str | None, token_index: int, window: int | None) -> RouterBackbone | None:
    if spec is None:
        return None
    from refork.policies.open import open_policy
    from refork_methods.route.backbone import RouterBackbone

    return RouterBackbone(open_policy(spec), token_index=token_index, window=window)


def _print_fit(told: dict[str, Any]) -> None:
    counts = told["queries"]
    typer.echo(
        f"fitted on {counts['fitted']} queries, {counts['held_out']} held out, {counts['dropped']} dropped"
    )
    for row in told["rows"]:
        mark = "*" if row["tau"] == told["tau"] else " "
        told_held = (
            f", held out {row['held']:.4f} (constant {row['constant']:.4f})" if counts["held_out"] else ""
        )
        typer.echo(f"{mark} tau {row['tau']:g}: divergence {row['fitted']:.4f} nats{told_held}")
    if told["moved"] is not None:
        typer.echo(f"  singular values moved: epoch {told['moved']['best']} kept")
        for epoch, fitted, held in told["moved"]["curve"]:
            typer.echo(f"    epoch {epoch}: {fitted:.4f}, validated {held:.4f}")
    if told["constant"]:
        typer.echo(f"the states tell nothing that pays: the head names {told['single']} for every query")
    if (got := told["held_out"]) is not None:
        typer.echo(
            f"held-out reward {got['chosen']:.3f}; best single worker {told['verdict']['single']:.3f} "
            f"({told['single']}, the best on the fitted queries), "
            f"best worker of each query {got['oracle']:.3f} (picked by the same outcomes)"
        )
        typer.echo(told["verdict"]["sentence"])
    else:
        typer.echo(
            "no verdict: fewer than two held-out tasks have an outcome of every worker (--held-out 0.2)"
        )
    typer.echo(f"head: {told['folder']}")


def _print_evolved(told: dict[str, Any]) -> None:
    made, found = told["evolved"], told["trial"]
    typer.echo(
        f"{made['generations']} generations, {made['rollouts']:,} rollouts, {made['failed']} failed, "
        f"{made['flat']} generations without a difference"
    )
    typer.echo(f"on {found['runs']} held-out tasks: evolved {found['mean']:.3f}")
    for name, mean in found["means"].items():
        typer.echo(f"  {name:20} {mean:.3f}")
    for what, gap in (("start", found["reference"]), (found["rule"], found["gap"])):
        typer.echo(f"evolved minus {what}: {gap['estimate']:+.3f} [{gap['low']:+.3f}, {gap['high']:+.3f}]")
    typer.echo(found["verdict"]["sentence"])
    if told["rival"] is not None:
        typer.echo(f"REINFORCE had {told['rival']['rollouts']:,} rollouts")
    typer.echo(f"head: {told['folder']}")


# ``refork route conduct``: run a workflow, have one written, or train who writes them.

Query = Annotated[str | None, typer.Argument(help="What is to be answered; not with --plan or --train.")]
PoolName = Annotated[str, typer.Option("--pool", help="The pool file (TOML), or 'expressions'.")]
PlanFile = Annotated[Path | None, typer.Option("--plan", help="Run this workflow (JSON).")]
Who = Annotated[
    str | None,
    typer.Option("--conductor", help="Who writes the plan: a policy, or organism:conductor."),
]
Train = Annotated[bool, typer.Option("--train", help="Train the conductor on what its plans earn.")]
QueryFile = Annotated[str, typer.Option("--queries", help="For --train: JSON lines, or 'expressions'.")]
Settings = Annotated[
    list[str],
    typer.Option("--set", help="For --train: a recipe key, e.g. per_call=0.05 or updates=60."),
    Keys("refork_methods.route.conduct.training:ConductRecipe"),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Tree file that the run is recorded on; --train: the folder."),
]
SavePlan = Annotated[Path | None, typer.Option("--save-plan", help="Write the workflow (JSON) here.")]


def conduct_command(
    query: Query = None,
    pool: PoolName = "expressions",
    plan: PlanFile = None,
    conductor: Who = None,
    train: Train = False,
    queries: QueryFile = "expressions",
    settings: Settings = [],  # noqa: B006
    without: Annotated[list[str], typer.Option("--without", help="Leave this worker out.")] = [],  # noqa: B006
    most: Annotated[int, typer.Option("--max-steps", help="Steps that a plan may have.", min=1)] = 5,
    rounds: Annotated[int, typer.Option("--rounds", help="How deep plans may ask for plans.", min=1)] = 1,
    temperature: Annotated[float, typer.Option("--temperature", help="Of the conductor.", min=0)] = 0.0,
    draw: Annotated[int, typer.Option("--draw", help="Number of a repeated run.", min=0)] = 0,
    out: Out = None,
    save_plan: SavePlan = None,
    as_json: AsJson = False,
) -> None:
    """Answer a query by a workflow: who does what, in which order, and who sees whose answer.

    With --plan a given workflow runs; else a conductor writes one. With --train the conductor learns from
    what its plans earn: 0 where they cannot run, 0.5 where the answer is wrong, 1 where it is right. The
    same command again resumes.

    Example: refork route conduct "3+4*2" --conductor organism:conductor --pool expressions --json

    Example: refork route conduct --train --set updates=60 --out runs/conductor
    """
    if train:
        _train(conductor, pool, queries, rounds, settings, out, as_json)
        return
    from refork_methods.route.conduct.training import pool_named

    workers = pool_named(pool if pool == "expressions" else str(existing(Path(pool)))).without(*without)
    done = (
        _given(existing(plan), workers, most, draw)
        if plan is not None
        else _written(query, conductor, workers, most, rounds, temperature, draw)
    )
    told = done.to_json()
    if save_plan is not None and done.plan is not None:
        write_whole(save_plan, json.dumps(done.plan.to_json(), indent=2) + "\n")
    if out is not None and done.execution is not None:
        told["node"] = _record(out, query or "", done, conductor, draw)
    print_json(told) if as_json else _show(done)
    if done.fault is not None:
        raise typer.Exit(1)


def _given(file: Path, pool: Any, most: int, draw: int) -> Conducted:
    from refork_methods.route.conduct.conductor import Conducted
    from refork_methods.route.conduct.execute import execute
    from refork_methods.route.conduct.plan import Plan

    plan = Plan.read(file).validate(pool, most)
    return Conducted("", plan, execute(plan, pool, draw=draw, most=most))


def _written(
    query: str | None,
    conductor: str | None,
    pool: Any,
    most: int,
    rounds: int,
    temperature: float,
    draw: int,
) -> Conducted:
    from refork.errors import BadInput

    if query is None or conductor is None:
        raise BadInput(
            "there is nothing to run", hint="give a query and --conductor, --plan FILE, or --train"
        )
    return _conductor(conductor, pool, temperature, rounds=rounds, most=most).run(query, draw=draw)


def _conductor(
    spec: str, pool: WorkerPool, temperature: float, *, rounds: int = 1, most: int = 5
) -> Conductor:
    """Who writes a workflow for every query."""
    from refork.chat import PolicyChat
    from refork.cli.live import LiveProgress
    from refork.policies.base import Sampling
    from refork.policies.open import open_policy, spell
    from refork_methods.route.conduct.conductor import Conductor

    with LiveProgress() as live:
        policy = open_policy(spell(spec, live))
    return Conductor(PolicyChat(policy, Sampling(temperature=temperature)), pool, rounds=rounds, most=most)


def _record(file: Path, query: str, done: Conducted, author: str | None, draw: int) -> str:
    from refork.tree.tree import Tree
    from refork_methods.route.conduct.on_tree import record

    assert done.execution is not None
    with Tree.open(file) as tree:
        text = done.text or None
        return record(tree, query, done.execution, text=text, author=author, planning=done.cost, draw=draw).id


def _show(done: Conducted) -> None:
    if done.execution is None:
        typer.echo(f"the plan cannot run: {done.fault}\n{done.text}")
        return
    for step in done.execution.steps:
        seen = ", ".join(str(one.step) for one in step.earlier_steps) or "nothing"
        said = step.output if step.output is not None else f"failed: {step.error}"
        typer.echo(f"{step.step}. {step.worker:<12} {step.subtask}   (sees {seen})\n   {said}")
    bill = done.execution.bill
    money = "unknown" if bill.total is None else f"{bill.total:g}"
    typer.echo(f"answer: {done.answer}\ncalls: {done.execution.calls}, money: {money}")


def _train(
    conductor: str | None,
    pool: str,
    queries: str,
    rounds: int,
    settings: list[str],
    out: Path | None,
    as_json: bool,
) -> None:
    from refork.cli.live import LiveProgress
    from refork.errors import BadInput
    from refork.runs.recipe import resolve
    from refork_methods.route.conduct.training import ConductRecipe, run_conduct

    if out is None:
        raise BadInput("training needs a folder", hint="--out runs/conductor")
    recipe = resolve(
        ConductRecipe, None, settings, conductor=conductor, pool=pool, queries=queries, rounds=rounds
    )
    with LiveProgress() as live:
        summary = run_conduct(recipe, out, live)
    if as_json:
        print_json(summary)
        return
    for name in ("before", "after"):
        found = summary[name]
        if found is not None:
            expected = "" if found["expected"] is None else f", expected {found['expected']:.3f}"
            right = "no answer graded"
            if found["accuracy"] is not None:
                span = f"[{found['accuracy_low']:.3f}, {found['accuracy_high']:.3f}]"
                right = f"{found['accuracy']:.3f} right {span}"
            typer.echo(
                f"{name}: {right}{expected}; {found['run']:.1%} of plans run; {found['calls']:.2f} calls each"
            )
    typer.echo(f"policy: {summary['policy']}")


# A pool as one of the models of ``refork serve``.


def pool_for(item: str, head: Path | None, backbone: str | None, worker: str | None) -> Opened:
    """The pool of ``[NAME=]FILE`` as one of a server's models; its file may name a log and a conductor.

    Raises:
        BadInput: no such pool, or not one way of choosing its worker.
    """
    from refork.serve.opening import Opened, named
    from refork_methods.route.decision import DecisionLog, RoutedChat, always, head_chooser
    from refork_methods.route.head import load_head
    from refork_methods.route.pool import read_pool, read_pool_file

    name, file = named(item)
    workers, serving = read_pool(existing(Path(file))), read_pool_file(Path(file)).serve
    called = name or "refork"
    log = None if serving.log is None else Path(file).parent / serving.log
    if sum(one is not None for one in (head, worker, serving.conductor)) != 1:
        raise BadInput(
            "say who picks the worker",
            hint="--head DIR --backbone hf:DIR, --worker NAME, or a conductor in the pool file",
        )
    if serving.conductor is not None:
        if log is not None:
            raise BadInput("a conductor makes no decisions to log", hint="what ran is in each answer")
        model: ChatModel = _conductor(serving.conductor, workers, 0.0)
        who = f"workflows by {serving.conductor}"
    else:
        if worker is not None:
            chooser, who = always(workers, worker), f"always {worker}"
        else:
            fitted, card = load_head(Path(str(head)))
            if backbone is None:
                raise BadInput("a head reads a model's hidden state", hint="--backbone hf:DIR")
            if card.format is None:
                raise BadInput(
                    "this head was fitted on a table's features, which a live conversation does not have",
                    where=str(head),
                    hint="fit one on texts: refork route fit TABLE --backbone hf:DIR",
                )
            chooser, who = head_chooser(fitted, _reader(backbone, card.format), workers), f"chosen by {head}"
        model = RoutedChat(workers, chooser, name=called, log=DecisionLog(log))
    return Opened(called, model, f"{file}, {len(workers.open)} workers, {who}")


app = typer.Typer(
    help="Which worker acts: outcome tables, a trained selection head, and workflows.", no_args_is_help=True
)
app.command("collect")(collect_command)
app.command("explain")(explain_command)
app.command("frontier")(frontier_command)
app.command("fit")(fit_command)
app.command("evolve")(evolve_command)
app.command("conduct")(conduct_command)
