"""``refork speculate``: calibrate, profile, check-lossless, replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from refork.cli.common import AsJson, existing, print_json

if TYPE_CHECKING:
    from refork_methods.speculate.calibrate import Calibrated
    from refork_methods.speculate.lossless import Certificate
    from refork_methods.speculate.replay import Replay

Log = Annotated[Path, typer.Argument(metavar="ROUNDS", help="A log of verification rounds, JSON lines.")]
Model = Annotated[str, typer.Option("--model", help="The target: its folder, hf:DIR or organism:NAME.")]
Drafter = Annotated[Path | None, typer.Option("--drafter", help="The drafter's folder.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to ``refork speculate``."""
    app.command()(calibrate)
    app.command()(profile)
    app.command("check-lossless")(check_lossless)
    app.command()(replay)


def calibrate(
    rounds: Log,
    out: Annotated[Path | None, typer.Option("--out", help="Where to write the calibration.")] = None,
    held_out: Annotated[float, typer.Option(help="Share of the rounds to report on, the last ones.")] = 0.5,
    fewest: Annotated[int, typer.Option(help="Rounds a position needs for a temperature of its own.")] = 500,
    as_json: AsJson = False,
) -> None:
    """Fit one temperature per position on verified rounds, and say how stated survivals hold.

    Example: refork speculate calibrate rounds.jsonl --out calibration.json
    """
    from refork_methods.speculate.calibrate import calibrate as fit
    from refork_methods.speculate.rounds import Rounds, read_rounds

    found, torn = read_rounds(rounds)
    if torn:
        typer.echo(f"{torn} lines that a crash cut off were passed over", err=True)
    made = fit(Rounds.of(found), held_out, fewest=fewest)
    if out is not None:
        made.scaling.save(out)
    if as_json:
        print_json(made.to_json() | ({} if out is None else {"out": str(out)}))
    else:
        _print_calibration(made, len(found) - made.fitted, fewest)


def profile(
    model: Model,
    drafter: Drafter = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where to write the table.")] = None,
    tokens: Annotated[int, typer.Option(min=1, help="The most tokens of a pass.")] = 512,
    requests: Annotated[int, typer.Option(min=1, help="The most requests to draft for.")] = 64,
    context: Annotated[int, typer.Option(min=1, help="Tokens before each request's own.")] = 64,
    shared: Annotated[bool, typer.Option("--shared", help="One prefix for all: forks of a point.")] = False,
    repeats: Annotated[
        int, typer.Option(min=1, help="Dummy steps per shape and sweep; their median counts.")
    ] = 3,
    sweeps: Annotated[int, typer.Option(min=1, help="Sweeps over all shapes; their median counts.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Measure seconds of the model's passes over batch tokens, and of drafting over requests.

    Example: refork speculate profile --model runs/target --drafter runs/drafter --out cost.json
    """
    from refork.cli.live import LiveProgress
    from refork_methods.speculate.commands.train import open_target
    from refork_methods.speculate.profile import profile as measure
    from refork_methods.speculate.profile import speculator_of
    from refork_methods.speculate.step_cost import shapes

    with LiveProgress() as progress:
        policy = open_target(model, progress)
        drafts = None if drafter is None else speculator_of(policy, existing(drafter))
        cost = measure(
            policy, drafts, tokens=shapes(tokens), requests=shapes(requests), context=context,
            repeats=repeats, sweeps=sweeps, shared=shared, progress=progress,
        )  # fmt: skip
    if out is not None:
        cost.save(out)
    raised = cost.about["raised"]
    if raised > 1.5:
        typer.echo(
            f"smaller shapes took up to {raised:.1f} times as long as larger ones, so this table misleads a "
            "schedule: measure again while nothing else runs, with more --sweeps",
            err=True,
        )
    if cost.about["left_out"]:
        typer.echo(
            f"{cost.about['left_out']} shapes were left out: the decoder's memory does not hold so many",
            err=True,
        )
    if as_json:
        print_json(cost.to_json())
        return
    for size, seconds in zip(cost.tokens, cost.seconds, strict=True):
        typer.echo(f"pass of {size:5d} tokens    {1e3 * seconds:9.3f} ms")
    for size, seconds in zip(cost.requests, cost.draft_seconds, strict=True):
        share = f"   a draft's token costs {cost.share(int(size)):.2f} of a request's"
        typer.echo(f"drafts for {size:4d} requests {1e3 * seconds:8.3f} ms{share}")


def check_lossless(
    schedule: Annotated[
        list[str] | None,
        typer.Option(help="Rules to enumerate: early_stop, stale_topk, ... or a leaky control; repeatable."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Sample this target instead: a folder or organism:NAME.")
    ] = None,
    drafter: Drafter = None,
    rule: Annotated[
        Literal["rejection", "coupled"], typer.Option(help="How drafts are accepted.")
    ] = "rejection",
    prompt: Annotated[list[str] | None, typer.Option(help="A prompt to sample after; repeatable.")] = None,
    samples: Annotated[int, typer.Option(help="Samples per setting.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Certify that the output's law is that of plain decoding; exit status 1 where it is not.

    Without --model every outcome of tiny vocabularies is enumerated, exactly. With it, samples of the
    speculative decoder are tested against the model's own law.

    Example: refork speculate check-lossless --schedule early_stop --schedule stale_topk
    """
    from refork_methods.speculate.certify import certify_decoder, certify_rules

    if model is None:
        found = certify_rules(schedule)
    else:
        from refork.cli.live import LiveProgress
        from refork_methods.speculate.commands.train import open_target

        with LiveProgress() as progress:
            target = open_target(model, progress)
        found = [certify_decoder(target, drafter, rule, schedule, prompt, samples, seed)]
    if as_json:
        print_json([one.to_json() for one in found])
    else:
        _print_certificates(found)
    if not all(one.lossless for one in found):
        raise typer.Exit(1)


def replay(
    rounds: Log,
    cost: Annotated[Path, typer.Option("--cost", help="A step-cost table (refork speculate profile).")],
    calibration: Annotated[
        Path | None, typer.Option("--calibration", help="Temperatures (refork speculate calibrate).")
    ] = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option(help="Rules to replay, fixed:N and static_threshold:P with their number; repeatable."),
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw budget and throughput over load here.")] = None,
    as_json: AsJson = False,
) -> None:
    """What other schedules would have verified on a serving log, and the tokens per second they would get.

    Example: refork speculate replay rounds.jsonl --cost cost.json --schedule early_stop --svg load.svg
    """
    from refork_methods.speculate.calibrate import SequentialTemperatureScaling
    from refork_methods.speculate.named import schedules_of
    from refork_methods.speculate.replay import replay as run
    from refork_methods.speculate.rounds import Rounds, read_rounds
    from refork_methods.speculate.step_cost import StepCost

    table = StepCost.load(cost)
    scaling = None if calibration is None else SequentialTemperatureScaling.load(calibration)
    found = run(Rounds.of(read_rounds(rounds)[0]), table, schedules_of(schedule, table), scaling)
    if svg is not None:
        from refork_methods.speculate.files import write_text
        from refork_methods.speculate.schedule_picture import schedule_figure

        write_text(svg, schedule_figure(found).svg())
    if as_json:
        print_json(found.to_json())
    else:
        _print_replay(found)


def _print_calibration(made: Calibrated, held: int, fewest: int) -> None:
    def told(value: float | None) -> str:
        return "      -" if value is None else f"{value:7.4f}"

    typer.echo(
        "position  temperature  reached     kept  stated  after      ECE  after    AUROC   Brier  after"
    )
    for k, (one, two) in enumerate(zip(made.before, made.after, strict=True)):
        typer.echo(
            f"{one.position:8d}  {made.scaling.temperatures[k]:11.3f}  {made.scaling.reached[k]:7d}  "
            f"{told(one.kept)} {told(one.stated)} {told(two.stated)}  {told(one.ece)} {told(two.ece)}  "
            f"{told(two.auroc)} {told(one.brier)} {told(two.brier)}"
        )
    typer.echo(f"fitted on {made.fitted} rounds, the rest of the table is of {held} others")
    if max(made.scaling.reached, default=0) < fewest:
        typer.echo(
            f"nothing was fitted: no position was reached {fewest} times; record more, or lower --fewest"
        )


def _print_certificates(found: list[Certificate]) -> None:
    for one in found:
        word = "lossless" if one.lossless else "NOT lossless"
        if one.method == "enumeration":
            told = f"largest total variation {one.max_tv or 0.0:.3g} over {len(one.cases)} enumerated laws"
        else:
            least = "no law tested" if one.min_p is None else f"least corrected p {one.min_p:.3g}"
            told = f"{least} over {len(one.cases)} laws; an exact one fails once in {1 / one.error_rate:g}"
            if one.mismatches is not None:
                told += f"; greedy answers that differ: {one.mismatches}"
        typer.echo(f"{one.subject}: {word}; {told}")
        for case in one.cases:
            if case.tv is not None and case.tv > 1e-12:
                typer.echo(f"  {case.name}: total variation {case.tv:.4f}")
            elif case.p is not None:
                far = (
                    ""
                    if case.detectable is None
                    else f", would show a total variation of {case.detectable:.3f}"
                )
                typer.echo(f"  {case.name}: p {case.p:.3g} ({case.samples} samples, {case.cells} cells{far})")


def _print_replay(found: Replay) -> None:
    typer.echo(f"{found.rounds} rounds in {found.steps} steps")
    if found.cost_ratio is not None:
        typer.echo(f"measured over modelled time of what was logged: {found.cost_ratio:.3f}")
    typer.echo(
        "schedule              verified  expected/s  realised/s  95 % interval         x logged  imputed"
    )
    for one in found.schedules:
        span = "-" if one.interval is None else f"[{one.interval.low:.4g}, {one.interval.high:.4g}]"
        typer.echo(
            f"{one.name:20s}  {one.verified:8.3f}  {one.expected:10.4g}  {one.realised:10.4g}  {span:20s}  "
            f"{one.against_logged:8.3f}  {one.imputed:7.1%}"
        )
        for load in one.loads:
            size = f"{load.low}" if load.low == load.high else f"{load.low}-{load.high}"
            typer.echo(f"  {size:>9s} requests    {load.verified:8.3f}              {load.throughput:10.4g}")
