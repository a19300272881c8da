"""``refork fork``, ``sweep`` and ``compare``: the one operation, on a recorded tree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import (
    AsJson,
    BackendSpec,
    JudgeSpec,
    PolicySpec,
    Regex,
    SamplingSettings,
    Seed,
    TreeFile,
    WorldSpec,
    ask_for_grading,
    backend_for,
    existing,
    judge_for,
    policies_for,
    print_json,
    settings_for,
    simulator_for,
    world_for,
)
from refork.errors import BadInput

if TYPE_CHECKING:
    from refork.forking.change import Diff
    from refork.forking.recorded import Pair
    from refork.forking.settings import ForkOptions
    from refork.tree import Tree

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
    judge: JudgeSpec = None,
    settings: SamplingSettings = [],  # noqa: B006
    seed: Seed = 0,
    simulator: SimulatorSpec = None,
    simulator_control: ControlSpec = None,
    until_clear: UntilClear = False,
    backend: BackendSpec = None,
    as_json: AsJson = False,
) -> None:
    """Fork a point with and without one change, and compare.

    Where nobody says which draws succeed (a world, --success-regex, --judge), what they said is compared.

    Example: refork fork --tree runs/demo/tree.db --node 3f2a --token 2 --change remove:1 --policy hf:DIR

    Example: refork fork --tree runs/demo/tree.db --node 3f2a --policy hf:DIR --backend processes:4
    """
    from refork.cli.cards import effect_card
    from refork.cli.live import LiveProgress
    from refork.forking import compare, compare_until, fork, fork_both, parse_change, recorded_settings
    from refork.forking.grading import is_graded
    from refork.forking.report import said_report
    from refork.tree import Tree
    from refork.worlds.open import open_world

    with Tree.open(existing(tree)) as store, backend_for(backend) as crew:
        point = store.at(store.node(node), token)
        trajectory = store.path(point)
        place = world_for(trajectory, world, simulated=simulator is not None)
        grader = judge_for(success_regex, judge)
        # Stopping when it is clear needs a score; without, two ungraded arms are compared by what they
        # generated.
        if until_clear and change:
            place, grader = ask_for_grading(place, grader, as_json=as_json)
        with LiveProgress() as live:
            opened = policies_for(live, crew)
            actor = opened(policy)
            what = parse_change(change, opened, open_world)
            maker = simulator_for(simulator, simulator_control, live)
            sampling = settings_for(recorded_settings(point, trajectory), settings)
            more: ForkOptions = {
                "settings": sampling, "world": place, "judge": grader, "seed": seed, "simulator": maker,
                "progress": live, "backend": crew,
            }  # fmt: skip
            if what is None:
                base = fork(point, actor, draws, **more)
                # Before the answer is printed: bars that are still drawn would run into it.
                live.close()
                _print_arm(base, as_json)
                return
            if until_clear:
                told = compare_until(point, actor, what, max_draws=draws, **more).to_json()
            else:
                base, other = fork_both(point, actor, draws, what, **more)
                graded = is_graded("success", place, grader)
                told = compare(base, other).to_json() if graded else said_report(base, other)
    if as_json:
        print_json(told)
    elif "said" in told:
        _print_said(told)
    else:
        from refork.cli.screen import open_console

        open_console().print(effect_card(told))


def _print_said(told: dict[str, Any]) -> None:
    """Two arms that nobody graded: what they said, not how well."""
    from refork.forking.grading import WAYS

    typer.echo(f"{told['what']}: {told['before_text']!r} -> {told['after_text']!r}")
    noise = "with one noise" if told["paired"] else "of noise of its own"
    typer.echo(f"{told['draws']} pairs of draws, each {noise}")
    typer.echo("nothing was graded, so nothing is known of success; what was said:")
    rows = (("another text", told["other_text"]), ("another first token", told["other_first_token"]))
    for name, share in rows:
        typer.echo(
            f"  {name:22s}{'not comparable' if share is None else f'{100 * share:.0f} % of the pairs'}"
        )
    length = told["length"]
    if length is not None:
        typer.echo(
            f"  length in tokens      {length['base']['rate']:.1f} -> {length['other']['rate']:.1f}, "
            f"{length['difference']:+.1f} [{length['low']:+.1f}, {length['high']:+.1f}]"
        )
    for name, arm in (("control", told["said"]["control"]), ("changed", told["said"]["changed"])):
        typer.echo(f"{name}: {arm['draws']} draws, {arm['errors']} failed; most often")
        for text, count in arm["most_common"]:
            typer.echo(f"{count:5d}  {_short(text)!r}")
    typer.echo(f"to compare success: {WAYS}")


def _short(text: str, most: int = 90) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def _print_arm(base: object, as_json: bool) -> None:
    from refork.forking import Fork, arm_summary

    assert isinstance(base, Fork)
    summary = arm_summary(base)
    if as_json:
        print_json(summary)
        return
    typer.echo(f"{summary['draws']} draws, {summary['graded']} graded, {summary['errors']} failed")
    if not summary["graded"]:
        from refork.forking.grading import WAYS

        typer.echo(f"nothing was graded; to know of success, {WAYS}")
    if summary["rate"] is not None:
        typer.echo(f"success {summary['rate']:.3f} [{summary['low']:.3f}, {summary['high']:.3f}]")
    if summary["simulated"]:
        who = summary["simulator"]["model"]
        typer.echo(f"{100 * summary['simulated']:.0f} % of the answers are simulated, by {who}")
    for text, count in summary["most_common"]:
        typer.echo(f"{count:5d}  {_short(text)!r}")


def sweep_command(
    tree: TreeFile,
    node: Annotated[str, typer.Option("--node", help="Last node of the trace (a leaf).")],
    policy: PolicySpec,
    every: Annotated[str, typer.Option("--every", help="token or turn.")] = "token",
    draws: Annotated[int, typer.Option("--draws", help="Draws that serve each point.")] = 64,
    success_regex: Regex = None,
    world: WorldSpec = None,
    judge: JudgeSpec = None,
    settings: SamplingSettings = [],  # noqa: B006
    reuse: Annotated[bool, typer.Option(help="Let a draw serve every point it passes.")] = True,
    seed: Seed = 0,
    simulator: SimulatorSpec = None,
    simulator_control: ControlSpec = None,
    backend: BackendSpec = None,
    as_json: AsJson = False,
) -> None:
    """Fork every token of a trace in one batch: where was success won or lost?

    Somebody must say which draws succeed: the recorded world or --world, --success-regex, or --judge. Where
    none does, a terminal is asked, and otherwise nothing is drawn.

    Example: refork sweep --tree runs/demo/tree.db --node 9c1d --policy hf:DIR --draws 64

    Example: refork sweep --tree mine.db --node 9c1d --policy hf:DIR --success-regex '42'
    """
    from refork.cli.cards import trace_strip
    from refork.cli.live import LiveProgress
    from refork.errors import BadInput
    from refork.forking import potential_scores, recorded_settings, sweep
    from refork.forking.grading import WAYS, need_grader
    from refork.forking.report import trace_report
    from refork.tree import Tree

    with Tree.open(existing(tree)) as store, backend_for(backend) as crew, LiveProgress() as live:
        end = store.at(store.node(node))
        trajectory = store.path(end)
        place = world_for(trajectory, world, simulated=simulator is not None)
        place, grader = ask_for_grading(place, judge_for(success_regex, judge), as_json=as_json)
        need_grader("success", place, grader, f"node {end.node.id[:12]}")  # before a model is read
        actor = policies_for(live, crew)(policy)
        maker = simulator_for(simulator, simulator_control, live)
        sampling = settings_for(recorded_settings(end, trajectory), settings)
        result = sweep(
            end, actor, draws, every=every, reuse=reuse, settings=sampling, world=place, judge=grader,
            seed=seed, simulator=maker, progress=live, backend=crew,
        )  # fmt: skip
        if not result.count.any():
            raise BadInput(
                f"none of the {result.sampled} draws was graded, so nothing is known of success",
                where=f"node {end.node.id[:12]}",
                hint=f"see why with `refork tree path`, or {WAYS}",
            )
        if every == "token":
            producer, scores = potential_scores(result, actor, seed, draws)
            store.add_producer(producer)
            store.add_scores(scores)
        report = trace_report(result)
    if as_json:
        print_json(report)
    else:
        from refork.cli.screen import open_console

        open_console().print(trace_strip(report))


def compare_command(
    tree: TreeFile,
    pairs: Annotated[
        list[str],
        typer.Option(
            "--pairs",
            help="CONTROL:CHANGED, ids of two arms or enough of their beginnings; or a file with such a pair "
            "a line; may be given often. Default: all pairs of the tree, where they are of one change.",
        ),
    ] = [],  # noqa: B006
    score: Annotated[str, typer.Option("--score", help="The score that is compared.")] = "success",
    level: Annotated[float, typer.Option("--level", help="Level of the intervals.")] = 0.95,
    show: Annotated[
        bool, typer.Option("--list", help="Instead: the pairs of arms that the tree holds.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare arms that were drawn earlier: one pair, or one change at points of several tasks.

    Several points are compared with tasks as what is counted: points and draws of one task do not narrow the
    interval as more tasks would.

    Example: refork tree compare --tree runs/demo/tree.db --list

    Example: refork tree compare --tree runs/demo/tree.db --pairs 3f2a:77c0 --pairs 91ab:0d3e
    """
    from refork.cli.cards import effect_card
    from refork.forking import compare
    from refork.forking.recorded import pairs as recorded_pairs
    from refork.forking.recorded import recorded_pair
    from refork.tree import Tree

    with Tree.open(existing(tree)) as store:
        held = recorded_pairs(store.forks())
        if show:
            _print_pairs(store, held, as_json)
            return
        if pairs:
            known = [record.id for record in store.forks()]
            named = [(_arm(known, one), _arm(known, other)) for one, other in _named_pairs(pairs)]
        else:
            _check_one_change(store, held)
            named = [(pair.control.id, pair.changed.id) for pair in held]
        effect = compare([recorded_pair(store, *pair) for pair in named], score=score, level=level)
    if as_json:
        print_json(effect.to_json())
    else:
        from refork.cli.screen import open_console

        open_console().print(effect_card(effect.to_json()))


def _named_pairs(given: list[str]) -> list[tuple[str, str]]:
    """The pairs that the options name, in order: each ``CONTROL:CHANGED``, or a file of such lines."""
    found: list[tuple[str, str]] = []
    for item in given:
        file = Path(item)
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else [item]
        for number, line in enumerate(lines, 1):
            text = line.partition("#")[0].strip()
            if not text:
                continue
            control, _, changed = text.partition(":")
            if not control or not changed:
                raise BadInput(
                    f"{text!r} does not name two arms",
                    where=f"{item}, line {number}" if file.is_file() else "--pairs",
                    hint="CONTROL:CHANGED; `refork tree compare --list` shows the arms of a tree",
                )
            found.append((control.strip(), changed.strip()))
    return found


def _arm(known: list[str], begin: str) -> str:
    """The one arm whose id begins so."""
    fit = [arm for arm in known if arm.startswith(begin)]
    if len(fit) != 1:
        raise BadInput(
            f"{len(fit)} arms of this tree begin with {begin!r}" if fit else f"no arm begins with {begin!r}",
            where="--pairs",
            hint="`refork tree compare --list` shows the arms of a tree",
        )
    return fit[0]


def _in_words(store: Tree, pair: Pair) -> Diff:
    from refork.forking.recorded import change_in_words

    record = pair.changed
    return change_in_words(record.change or {}, store.at(record.node, record.token))


def _check_one_change(store: Tree, held: list[Pair]) -> None:
    """Whether all pairs of a tree are of one change, so that one effect may stand for them."""
    if not held:
        raise BadInput("this tree holds no changed arm with its control", hint="draw some with `refork fork`")
    # By what is recorded: two different changes may read alike in words.
    kinds = sorted({json.dumps(pair.changed.change, sort_keys=True) for pair in held})
    if len(kinds) > 1:
        what = sorted({_in_words(store, pair).what for pair in held})
        raise BadInput(
            f"the tree's {len(held)} pairs of arms are of {len(kinds)} different changes: {', '.join(what)}",
            hint="name those to compare with --pairs; --list shows them",
        )


def _print_pairs(store: Tree, held: list[Pair], as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    for pair in held:
        record, diff = pair.changed, _in_words(store, pair)
        point = store.at(record.node, record.token)
        rows.append(
            {
                "control": pair.control.id,
                "changed": record.id,
                "point": point.address,
                "task": store.path(point).root.id,
                "what": diff.what,
                "before": diff.before,
                "after": diff.after,
                "draws": [len(store.draws(pair.control.id)), len(store.draws(record.id))],
            }
        )
    if as_json:
        print_json(rows)
        return
    for row in rows:
        said = " -> ".join(repr(text) for text in (row["before"], row["after"]) if text)
        typer.echo(
            f"{row['control'][:12]}:{row['changed'][:12]}  task {row['task'][:8]}  {row['draws'][0]} and "
            f"{row['draws'][1]} draws  {row['what']} {said}".rstrip()
        )
    if not rows:
        typer.echo("no changed arm of this tree has a control")
