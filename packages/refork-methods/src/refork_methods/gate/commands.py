"""``refork method gate``: when to verify, refine or ship, from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from refork.cli.common import AsJson, existing, print_json, settings_for
from refork.cli.recipe import Keys
from refork.cli.screen import print_table

if TYPE_CHECKING:
    from refork.errors import ServerError
    from refork.policies.base import Sampling
    from refork_methods.gate.records import Record


# How ``refork gate`` prints fits, replays and scores.


def _figure(value: float | None, form: str = ".3f") -> str:
    return "-" if value is None else format(value, form)


def print_fit(report: dict[str, Any]) -> None:
    """A fit as sentences and a table."""
    prior, kernel = report["prior"], report["kernel"]
    typer.echo(
        f"{report['right']} right and {report['wrong']} wrong candidates of "
        f"{report['instances']} instances; prior "
        f"{prior['mean']:.3f} ({prior['wilson']['low']:.3f} to {prior['wilson']['high']:.3f})"
    )
    rows = [
        [
            one["name"], *(_side(one[side]) for side in ("alpha", "beta")), f"{one['gap']:+.3f}",
            f"{one['price']:g}", str(one["unknown"]),
        ]
        for one in report["critics"]
    ]  # fmt: skip
    print_table(["critic", "P(pass | right)", "P(pass | wrong)", "gap", "price", "unknown"], rows)
    typer.echo(
        f"refining: P(fix) {kernel['fix']['mean']:.3f}, P(break) {kernel['breaks']['mean']:.3f}, "
        f"from {kernel['from']}"
    )
    for number, one in enumerate(report["classes"], 1):
        critics = "".join(
            f", {name} {of['alpha']:.2f} and {of['beta']:.2f}" for name, of in one["critics"].items()
        )
        typer.echo(
            f"class {number}: {one['share']:.3f} of the instances, prior {one['prior']:.3f}, P(fix) "
            f"{one['fix']:.3f}, P(break) {one['breaks']:.3f}{critics}"
        )
    for warning in report["warnings"]:
        typer.echo(f"warning: {warning}")


def _side(side: dict[str, Any]) -> str:
    return f"{side['mean']:.3f} ({side['low']:.3f} to {side['high']:.3f})"


def print_replay(report: dict[str, Any]) -> None:
    """A replay as a table, and each controller beside the best rule."""
    rows = [
        [
            one["policy"], f"{one['utility']['estimate']:.2f}",
            f"{one['utility']['low']:.2f} to {one['utility']['high']:.2f}", f"{one['predicted']:.2f}",
            _figure(one["z"], "+.1f"), f"{one['solved']:.3f}", f"{one['spent']:.1f}",
        ]
        for one in report["policies"]
    ]  # fmt: skip
    print_table(["policy", "utility", "95 %", "predicted", "z", "solved", "spent"], rows)
    for name, one in report["comparisons"].items():
        typer.echo(
            f"{name} minus the best simple rule, {one['best_rule']}: {_gap(one['gap'])}, p = {one['p']:.2g}; "
            f"so many instances show {_figure(one['detectable'], '.1f')}"
        )
        typer.echo(f"{name} minus always_verify: {_gap(one['over_always_verify'])}")
    for warning in report["warnings"]:
        typer.echo(f"warning: {warning}")


def _gap(gap: dict[str, Any]) -> str:
    return f"{gap['estimate']:+.2f} ({gap['low']:+.2f} to {gap['high']:+.2f})"


def print_scores(report: dict[str, Any]) -> None:
    """Scores as a table."""
    rows = [
        [
            one["score"], _figure(one["prr"]), _figure(one["auroc"] and one["auroc"]["estimate"]),
            _figure(one["ece"]), _figure(one["brier"]),
        ]
        for one in report["scores"]
    ]  # fmt: skip
    print_table(["score", "PRR", "AUROC", "ECE", "Brier"], rows)
    lost = "".join(f", {n} dropped: {why}" for why, n in report["dropped"].items())
    typer.echo(f"{report['candidates']} candidates{lost}")


def print_live(report: dict[str, Any]) -> None:
    """Episodes as a table, then what was earned beside what was promised."""
    rows = [
        [
            one["task"], str(one["draw"]), " > ".join(one["actions"]), one["outcome"],
            _figure(one["belief"]), _figure(one["utility"], "+.2f"), one["why"] or "",
        ]
        for one in report["rows"]
    ]  # fmt: skip
    print_table(["task", "draw", "actions", "outcome", "belief", "utility", ""], rows)
    outcomes = ", ".join(f"{n} {name}" for name, n in report["outcomes"].items())
    typer.echo(f"{len(report['rows'])} episodes: {outcomes}; {report['recorded']} were on the tree already")
    utility, promised = report["utility"], report["promised"]
    if utility is not None:
        typer.echo(
            f"{report['policy']} earned {utility['estimate']:.2f} a task ({utility['low']:.2f} to "
            f"{utility['high']:.2f}); predicted {report['predicted']:.2f}, z {_figure(report['z'], '+.1f')}"
        )
    best = promised["best_rule"]
    typer.echo(
        f"promised: the plan {promised['value']:.2f}, the best simple rule, {best}, "
        f"{promised['rules'][best]:.2f}, always verifying {promised['rules']['always_verify']:.2f}"
    )


# How ``refork gate act`` and ``map`` print.


def print_answer(report: dict[str, Any]) -> None:
    """The action, why, the table behind it, and what a whole episode is worth."""
    typer.echo(f"{report['action']}: {report['reason']}")
    ranked = sorted(report["q"].items(), key=lambda item: -item[1])
    values = [[name, f"{value:+.2f}"] for name, value in ranked]
    print_table(["action", f"worth ({report['unit']})"], values, ruled=True)
    plan = report["plan"]
    always = plan["over_always_verify"]
    typer.echo(
        f"a whole episode is planned at {plan['value']:+.2f}: {plan['gain']:+.2f} over the best simple rule, "
        f"{plan['best_rule']}" + ("" if always is None else f", {always:+.2f} over always verifying")
    )


def print_map(report: dict[str, Any]) -> None:
    """The map as a table, largest y on top, what its marks mean, and the verdict."""
    columns = [f"{report['y']} \\ {report['x']}", *(f"{x:g}" for x in report["xs"])]
    rows = [[f"{y:g}", *marks] for y, marks in zip(report["ys"], report["marks"], strict=True)]
    print_table(columns, rows[::-1], ruled=True)
    for sign, words in report["legend"].items():
        typer.echo(f"{sign:>4}  {words}")
    typer.echo(report["verdict"])
    if report["sensitivity"] is not None:
        print_table(
            ["parameter", "now", "if it were", "replanned", "this plan", "regret", "best rule there"],
            [
                [
                    row["parameter"], f"{row['present']:.3g}", f"{row['other']:.3g}",
                    f"{row['replanned']:+.2f}", f"{row['unchanged']:+.2f}", f"{row['regret']:.2f}",
                    f"{row['rule']} {row['rule_value']:+.2f}",
                ]
                for row in report["sensitivity"]
            ],
            ruled=True,
        )  # fmt: skip


# ``refork gate act`` and ``map``: what to do next, and where it pays to think about it.

Policy = Annotated[
    Path | None, typer.Argument(metavar="[POLICY]", help="What refork gate fit wrote; or give the numbers.")
]

Prior = Annotated[float | None, typer.Option(help="Chance that a fresh candidate is right.")]

Critics = Annotated[
    list[str] | None,
    typer.Option("--critic", help="NAME=P(pass|right),P(pass|wrong),PRICE; once for each."),
]

Fix = Annotated[float | None, typer.Option(help="P(right | was wrong) of a refinement.")]

Breaks = Annotated[float | None, typer.Option(help="P(wrong | was right) of a refinement.")]

Price = Annotated[list[str] | None, typer.Option(help="NAME=AMOUNT of verify, generate or a critic.")]

Reward = Annotated[float | None, typer.Option(help="Worth of a verified right candidate; default 100.")]

ShipLoss = Annotated[float | None, typer.Option(help="Loss of shipping a wrong one; opens the action ship.")]

Unit = Annotated[str | None, typer.Option(help="utility, seconds, tokens or money.")]

Horizon = Annotated[int, typer.Option(help="Most candidates per episode.")]

Verify = Annotated[str, typer.Option(help="terminal, or retry: a refused candidate may be refined.")]


def act(
    policy: Policy = None,
    verdict: Annotated[
        list[str] | None, typer.Option(help="CRITIC=pass or CRITIC=fail on this candidate; moves the belief.")
    ] = None,
    belief: Annotated[float | None, typer.Option(help="In this candidate; default: the prior.")] = None,
    used: Annotated[
        list[str] | None, typer.Option(help="A critic whose verdict the belief has in it already.")
    ] = None,
    candidate: Annotated[int, typer.Option(help="Which one it is, from 0.")] = 0,
    refused: Annotated[bool, typer.Option("--refused", help="The verifier refused this candidate.")] = False,
    prior: Prior = None,
    critic: Critics = None,
    fix: Fix = None,
    breaks: Breaks = None,
    price: Price = None,
    reward: Reward = None,
    ship_loss: ShipLoss = None,
    unit: Unit = None,
    horizon: Horizon = 3,
    verify: Verify = "terminal",
    method: Annotated[str, typer.Option(help="dp plans all candidates; greedy looks one step ahead.")] = "dp",
    lookahead: Annotated[
        int | None, typer.Option(help="Critics of a candidate planned ahead; default all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what to do next with a candidate, what every action is worth, and why.

    Example: refork gate act policy.json --verdict test=pass
    """
    from refork_methods.gate.answers import answer_json, setting, state_from
    from refork_methods.gate.controller import BayesController, method_from
    from refork_methods.gate.policy import verify_from
    from refork_methods.gate.readers import amounts

    model, prices = setting(
        policy and existing(policy), prior=prior, critics=critic or (), fix=fix, breaks=breaks,
        amounts=amounts(price or (), "price"), reward=reward, ship_loss=ship_loss, unit=unit,
    )  # fmt: skip
    state = state_from(
        model, verdict or (), belief=belief, used=used or (), candidate=candidate, refused=refused
    )
    controller = BayesController(model, prices, horizon, verify_from(verify), method_from(method), lookahead)
    told = answer_json(controller, state, controller.act(state))
    if as_json:
        print_json(told)
        return
    print_answer(told)


def draw_map(
    policy: Policy = None,
    x: Annotated[str, typer.Option(help="Parameter across: prior, verify, gap:CRITIC, fix ...")] = "prior",
    y: Annotated[str, typer.Option(help="Parameter upwards.")] = "verify",
    xs: Annotated[str | None, typer.Option(help="LOW:HIGH:STEP, or values with commas.")] = None,
    ys: Annotated[str | None, typer.Option(help="LOW:HIGH:STEP, or values with commas.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw the map here.")] = None,
    rules: Annotated[str, typer.Option(help="all, or paper: without our cascades.")] = "all",
    sensitive: Annotated[
        bool, typer.Option("--sensitivity", help="Also move every number, and price acting on a wrong one.")
    ] = False,
    prior: Prior = None,
    critic: Critics = None,
    fix: Fix = None,
    breaks: Breaks = None,
    price: Price = None,
    reward: Reward = None,
    ship_loss: ShipLoss = None,
    unit: Unit = None,
    horizon: Horizon = 3,
    verify: Verify = "terminal",
    as_json: AsJson = False,
) -> None:
    """Map which policy is best over two parameters, and what planning gains over the best simple rule.

    Example: refork gate map policy.json --x prior --y verify --svg map.svg
    """
    from refork_methods.gate.answers import map_json, setting
    from refork_methods.gate.policy import verify_from
    from refork_methods.gate.readers import amounts

    model, prices = setting(
        policy and existing(policy), prior=prior, critics=critic or (), fix=fix, breaks=breaks,
        amounts=amounts(price or (), "price"), reward=reward, ship_loss=ship_loss, unit=unit,
    )  # fmt: skip
    found, told = map_json(
        model,
        prices,
        x,
        y,
        xs,
        ys,
        horizon=horizon,
        verify=verify_from(verify),
        rules=rules,
        sensitive=sensitive,
    )
    if svg is not None:
        from refork_methods.gate.pictures import regime_figure

        svg.write_text(regime_figure(found, told["title"], told["here"]).svg(), encoding="utf-8")
    if as_json:
        print_json(told)
        return
    print_map(told)
    if svg is not None:
        typer.echo(str(svg))


# ``refork gate fit``, ``replay`` and ``score``: from recorded candidates to a policy and its worth.

Records = Annotated[
    list[Path], typer.Argument(metavar="RECORDS", help="Candidates: JSON lines, or a folder of test reports.")
]

PolicyFile = Annotated[Path, typer.Argument(metavar="POLICY", help="What refork gate fit wrote.")]

Threshold = Annotated[
    list[str] | None, typer.Option(help="CRITIC=SCORE from which a critic that gives a score passes.")
]

CallPrice = Annotated[
    list[str] | None,
    typer.Option(help="NAME=AMOUNT of a critic, verify or generate; default: what its calls cost."),
]

Rate = Annotated[
    list[str] | None, typer.Option(help="seconds=, tokens= or money=AMOUNT: what one is worth in the unit.")
]

RecordUnit = Annotated[str, typer.Option(help="utility, seconds, tokens or money.")]

Outcomes = Annotated[
    list[str] | None, typer.Option(help="A SWE-bench report, [CANDIDATE=]PATH; once for each candidate.")
]

Pattern = Annotated[str, typer.Option(help="Paths of test reports within a folder.")]

Oracle = Annotated[str, typer.Option(help="Which {check} of the pattern is the oracle.")]

ErrorsFail = Annotated[
    bool, typer.Option("--errors-fail", help="Tests that end in an error are the candidate's fault.")
]

PATTERN = "{instance}/{candidate}/{check}.xml"


def fit_policy(
    records: Records,
    out: Annotated[Path | None, typer.Option(help="Write the policy here.")] = None,
    test: Annotated[
        Path | None, typer.Option(help="Write the instances held out here, with --share.")
    ] = None,
    share: Annotated[
        float | None, typer.Option(help="Share of the instances to fit on; default all.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the split.")] = 0,
    critics: Annotated[str | None, typer.Option(help="Only these, with commas.")] = None,
    changed_only: Annotated[
        bool, typer.Option("--changed-only", help="Kernel from refinements that changed the candidate.")
    ] = False,
    classes: Annotated[
        str, typer.Option(help="Classes of difficulty of instances: 1, 2, 3, or auto by instances held out.")
    ] = "1",
    reward: Annotated[float | None, typer.Option(help="Worth of a right candidate; prices need it.")] = None,
    ship_loss: Annotated[float | None, typer.Option(help="Loss of shipping a wrong candidate.")] = None,
    price: CallPrice = None,
    unit: RecordUnit = "utility",
    rate: Rate = None,
    threshold: Threshold = None,
    outcomes: Outcomes = None,
    pattern: Pattern = PATTERN,
    oracle: Oracle = "verify",
    errors_fail: ErrorsFail = False,
    as_json: AsJson = False,
) -> None:
    """Fit prior, critics and refine kernel on recorded candidates, and warn of what the model does not hold.

    Critics may depend on each other given the outcome, and rounds of one instance as of easy and hard ones.

    Example: refork gate fit candidates.jsonl --price test=2 --price review=5 --out policy.json
    """
    from refork_methods.gate.calibration import classes_from, fit_json, fit_records, held_out
    from refork_methods.gate.model import write_policy
    from refork_methods.gate.readers import amounts

    given = amounts(price or (), "price")
    found = _load(records, outcomes, threshold, unit, rate, pattern, oracle, errors_fail)
    mine = held_out(found, share, seed, test)
    names = critics.split(",") if critics else None
    fitted, prices, tested, within = fit_records(
        mine, given, names, changed_only=changed_only, reward=reward, ship_loss=ship_loss, unit=unit,
        classes=classes_from(classes),
    )  # fmt: skip
    if out is not None:
        write_policy(out, fitted.model, prices)
    told = fit_json(fitted, prices, tested, within)
    if as_json:
        print_json(told)
        return
    print_fit(told)
    if out is not None:
        typer.echo(str(out))


def replay_policy(
    policy: PolicyFile,
    records: Records,
    horizon: Annotated[int, typer.Option(help="Most candidates per episode.")] = 3,
    verify: Annotated[str, typer.Option(help="terminal, or retry: a refused candidate may be refined.")] = (
        "terminal"
    ),
    reward: Annotated[float | None, typer.Option(help="In place of the policy file's.")] = None,
    price: CallPrice = None,
    recorded: Annotated[bool, typer.Option("--recorded", help="Every call at what it cost then.")] = False,
    resamples: Annotated[int, typer.Option(help="Of the bootstrap over instances.")] = 1000,
    folds: Annotated[
        int | None,
        typer.Option(help="Nothing held out: fit anew without each of so many folds of instances."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of bootstrap and folds.")] = 0,
    picture: Annotated[Path | None, typer.Option("--svg", help="Draw the utilities.")] = None,
    threshold: Threshold = None,
    outcomes: Outcomes = None,
    pattern: Pattern = PATTERN,
    oracle: Oracle = "verify",
    errors_fail: ErrorsFail = False,
    unit: Annotated[str | None, typer.Option(help="Where the policy file has no prices.")] = None,
    rate: Rate = None,
    as_json: AsJson = False,
) -> None:
    """Replay the controllers and every simple rule on held-out candidates; the best rule stands beside.

    Example: refork gate replay policy.json test.jsonl --verify retry --svg replay.svg
    """
    from refork_methods.gate.calibration import replay_all, unit_of
    from refork_methods.gate.readers import amounts

    given = amounts(price or (), "price")
    counted = unit_of(existing(policy), unit)
    found = _load(records, outcomes, threshold, counted, rate, pattern, oracle, errors_fail)
    told = replay_all(
        policy, found, given, reward=reward, horizon=horizon, verify=verify, recorded=recorded,
        resamples=resamples, folds=folds, seed=seed, unit=counted,
    )  # fmt: skip
    if picture is not None:
        from refork_methods.gate.pictures import replay_figure

        picture.write_text(replay_figure(told).svg(), encoding="utf-8")
    if as_json:
        print_json(told)
        return
    print_replay(told)


def score_policy(
    policy: PolicyFile,
    records: Records,
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="Fit anew without each instance: no records held out.")
    ] = False,
    max_rejection: Annotated[float, typer.Option(help="Reject at most this share.")] = 0.5,
    threshold: Threshold = None,
    outcomes: Outcomes = None,
    pattern: Pattern = PATTERN,
    oracle: Oracle = "verify",
    errors_fail: ErrorsFail = False,
    as_json: AsJson = False,
) -> None:
    """Score candidates by the belief that they are right: prediction-rejection ratio, AUROC, calibration.

    Example: refork gate score policy.json test.jsonl
    """
    from refork_methods.gate.calibration import scores_json
    from refork_methods.gate.model import read_policy
    from refork_methods.gate.score import score

    model, _ = read_policy(existing(policy))
    found = _load(records, outcomes, threshold, None, None, pattern, oracle, errors_fail)
    told = scores_json(score(model, found, without_own=leave_one_out, max_rejection=max_rejection))
    if as_json:
        print_json(told)
        return
    print_scores(told)


def _load(
    records: list[Path],
    outcomes: list[str] | None,
    threshold: list[str] | None,
    unit: str | None,
    rate: list[str] | None,
    pattern: str,
    oracle: str,
    errors_fail: bool,
) -> tuple[Record, ...]:
    from refork_methods.gate.calibration import rates_of
    from refork_methods.gate.readers import amounts, load_records

    return load_records(
        records,
        outcomes=outcomes or (),
        thresholds=amounts(threshold or (), "threshold"),
        # Amounts that nothing converts are left out: they are not needed where every price is given.
        rates=None
        if unit in (None, "utility") and not rate
        else rates_of(str(unit), amounts(rate or (), "rate")),
        pattern=pattern,
        oracle=oracle,
        on_error="fail" if errors_fail else "unknown",
    )


# ``refork gate collect`` and ``live``: record candidates of a writer, and let the gate decide on others.

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
    list[str] | None,
    typer.Option("--set", help="Sampling of the writer, e.g. temperature=0.7."),
    Keys("refork.runs.recipe:TurnSampling"),
]

LiveCritics = Annotated[
    list[str] | None,
    typer.Option(
        "--critic", help="syntax, ruff, public (all by default), or FILE.py:function; once for each."
    ),
]


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
    critic: LiveCritics = None,
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
    from refork_methods.gate.live import collected_json

    collect_repairs = part("gate.collect", "refork-testbed")
    sampling = _settings(settings)
    cut: list[ServerError] = []
    with LiveProgress() as live:
        place, acting = open_world(world), open_policy(writer, on_wait=waits(live))
        with Tree.open(tree) as store:  # made last: a name that is wrong leaves no empty tree
            found = collect_repairs(
                out, store, place, acting, sampling, failed=cut.append, split=split, tasks=tasks, draws=draws,
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
    critic: LiveCritics = None,
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
    from refork_methods.gate.on_tree import setting_from

    setting = setting_from(existing(policy), use, horizon=horizon, verify=verify, measured=measured)
    live_repairs = part("gate.live", "refork-testbed")
    sampling = _settings(settings)
    with LiveProgress() as live:
        place, acting = open_world(world), open_policy(writer, on_wait=waits(live))
        with Tree.open(tree) as store:
            told = live_repairs(
                store, place, acting, setting, sampling, split=split, tasks=tasks, draws=draws, seed=seed,
                critics=critic or (), progress=live,
            ).to_json()  # fmt: skip
    if as_json:
        print_json(told)
        return
    print_live(told)


app = typer.Typer(
    help="When to verify, refine, or ship: a belief about the candidate, and what each check is worth.",
    no_args_is_help=True,
)
app.command("act")(act)
app.command("map")(draw_map)
app.command("fit")(fit_policy)
app.command("replay")(replay_policy)
app.command("score")(score_policy)
app.command("collect")(collect_candidates)
app.command("live")(play_live)
