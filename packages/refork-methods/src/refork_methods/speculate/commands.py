"""``refork method speculate``: train a drafter, calibrate it, schedule it, prove it exact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from refork.cli.common import AsJson, DryRun, SamplingSettings, Seed, existing, print_json

if TYPE_CHECKING:
    from refork.policies.local import LocalPolicy
    from refork.progress import Progress
    from refork_methods.speculate.bench import BatchResult
    from refork_methods.speculate.calibrate import Calibrated
    from refork_methods.speculate.config import DraftConfig
    from refork_methods.speculate.lossless import Certificate
    from refork_methods.speculate.replay import Replay
    from refork_methods.speculate.train import DraftTraining


# ``refork speculate``: train.

Model = Annotated[str, typer.Option("--model", help="The target: its folder, hf:DIR or organism:NAME.")]
Prompts = Annotated[
    Path, typer.Option("--prompts", help="JSON lines with text, turns or messages; it answers them.")
]
Out = Annotated[Path, typer.Option("--out", help="Folder of the drafter; the same one again resumes.")]
Kind = Annotated[Literal["dspark", "dflash", "eagle"], typer.Option("--kind", help="What is trained.")]
LayersOption = Annotated[int | None, typer.Option("--layers", help="Layers of the drafter (5; eagle 1).")]
Block = Annotated[int | None, typer.Option("--block", help="Tokens drafted at once (7).")]
TargetLayers = Annotated[
    str | None, typer.Option("--target-layers", help="Layers of the target it reads, with commas.")
]
Head = Annotated[
    Literal["markov", "gated", "rnn", "none"] | None,
    typer.Option("--head", help="How a drafted token biases the next (markov)."),
]
RankOption = Annotated[int | None, typer.Option("--rank", help="Rank of that bias (256).")]
Confidence = Annotated[
    Literal["token", "context", "none"] | None,
    typer.Option(
        "--confidence", help="Whether it reads the token before, the context alone, or is left out."
    ),
]
Window = Annotated[int | None, typer.Option("--window", help="Context positions it sees (all).")]
MaskToken = Annotated[
    int | None, typer.Option("--mask-token", help="A spare id of the target; else it learns a row.")
]
Recipe = Annotated[
    Literal["paper", "code", "dflash"] | None,
    typer.Option("--loss", help="Loss and decay: the paper's, its code's (4), or cross entropy alone."),
]
Epochs = Annotated[int, typer.Option("--epochs", help="Passes over the answers.")]
Steps = Annotated[int | None, typer.Option("--steps", help="Exactly this many steps instead.")]
Batch = Annotated[int, typer.Option("--batch", help="Sequences of a step.")]
Anchors = Annotated[int, typer.Option("--anchors", help="Blocks of a sequence, at most.")]
Rate = Annotated[float, typer.Option("--lr", help="Learning rate.")]
Bfloat16 = Annotated[bool, typer.Option("--bf16", help="Mixed precision.")]
Cache = Annotated[
    Literal["float32", "float16"] | None,
    typer.Option("--cache", help="Keep the target's hidden states on disk; else computed again."),
]
Samples = Annotated[int, typer.Option("--samples", min=1, help="Answers to each prompt.")]
Greedy = Annotated[
    bool,
    typer.Option("--greedy", help="One more answer to each prompt at temperature 0: for greedy serving."),
]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=2, help="Of an answer.")]
TrainSeed = Annotated[int, typer.Option("--seed", help="Of answers, weights and orders.")]


def train(
    model: Model,
    prompts: Prompts,
    out: Out,
    kind: Kind = "dspark",
    layers: LayersOption = None,
    block: Block = None,
    target_layers: TargetLayers = None,
    head: Head = None,
    rank: RankOption = None,
    confidence: Confidence = None,
    window: Window = None,
    mask_token: MaskToken = None,
    recipe: Recipe = None,
    epochs: Epochs = 10,
    steps: Steps = None,
    batch: Batch = 32,
    anchors: Anchors = 512,
    rate: Rate = 6e-4,
    bfloat16: Bfloat16 = False,
    cache: Cache = None,
    samples: Samples = 1,
    greedy: Greedy = False,
    max_tokens: MaxTokens = 256,
    sampling: SamplingSettings = [],  # noqa: B006
    seed: TrainSeed = 0,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Train a drafter for a model, on prompts that the model answers itself.

    OUT gets draft.safetensors and config.json, the answers, a log (log.jsonl) and checkpoints.

    Example: refork speculate train --model organism:test-tiny --prompts prompts.jsonl --out runs/draft
    """
    from refork.cli.common import settings_for
    from refork.cli.live import LiveProgress
    from refork_methods.speculate.data import own_settings, read_prompts
    from refork_methods.speculate.train import plan_on_prompts, train_on_prompts

    asked = read_prompts(existing(prompts))
    plan = _settings(
        kind, recipe, steps=steps, epochs=epochs, batch=batch, anchors=anchors, learning_rate=rate, seed=seed,
        number="bfloat16" if bfloat16 else "float32", features="cache" if cache else "recompute",
        precision=cache or "float32",
    )  # fmt: skip
    with LiveProgress() as live:
        target = open_target(model, live)
        shape = _shape(target, kind, confidence, {
            "layers": layers, "block": block, "head": head, "rank": rank, "window": window,
            "mask_token": mask_token, "target_layers": _numbers(target_layers),
        })  # fmt: skip
        base = own_settings(target, max_tokens)
        law = settings_for(base, sampling) or base
        if dry_run:
            told = plan_on_prompts(target, asked, shape, plan, law, samples, greedy=greedy).to_json()
        else:
            told = train_on_prompts(
                target, asked, shape, plan, out, law, samples=samples, greedy=greedy, progress=live
            )
    show = print_json if as_json else _print_plan if dry_run else _print_trained
    show(told)


def open_target(name: str, progress: Progress) -> LocalPolicy:
    """The local model of a folder, an organism or a policy's specification."""
    from refork.errors import BadInput, CannotDo
    from refork.policies.local import LocalPolicy
    from refork.policies.open import open_policy, spell

    if ":" not in name and not Path(name).is_dir():
        raise BadInput(
            "there is no such folder", where=name, hint="a model's folder, hf:DIR or organism:NAME"
        )
    policy = open_policy(f"hf:{name}" if Path(name).is_dir() else spell(name, progress))
    if not isinstance(policy, LocalPolicy):
        raise CannotDo(
            f"{name!r} does not run in this process",
            hint="drafters are trained for local models: a folder, hf:DIR",
        )
    return policy


def _shape(target: LocalPolicy, kind: str, confidence: str | None, given: dict[str, Any]) -> DraftConfig:
    """The drafter's config: what was asked for, the rest as the kind has it."""
    from refork_methods.speculate.config import draft_config

    changes = {name: value for name, value in given.items() if value is not None}
    if confidence is not None:
        changes |= {"confidence": confidence != "none", "confidence_with_markov": confidence == "token"}
    return draft_config(target, kind, **changes)  # type: ignore[arg-type]


def _settings(kind: str, recipe: str | None, **given: Any) -> DraftTraining:
    """Training settings; the dflash kind is taught by its own recipe unless another is asked for."""
    from refork_methods.speculate.loss import CODE_DECAY, LossWeights
    from refork_methods.speculate.train import DraftTraining

    chosen = recipe or ("dflash" if kind == "dflash" else "paper")
    terms = LossWeights(1.0, 0.0, 0.0) if chosen == "dflash" else LossWeights()
    return DraftTraining(terms=terms, decay=CODE_DECAY if chosen == "code" else None, **given)


def _numbers(text: str | None) -> tuple[int, ...] | None:
    from refork.errors import BadInput

    try:
        return None if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadInput(f"{text!r} is no list of layers", hint="such as --target-layers 2,10,18") from None


def _print_plan(told: dict[str, Any]) -> None:
    typer.echo(f"{told['conversations']} conversations, at most {told['tokens_at_most']:,} tokens of answers")
    typer.echo(f"a drafter of {told['parameters']:,} parameters")
    if told["feature_bytes"] is not None:
        typer.echo(f"hidden states on disk: about {told['feature_bytes'] / 1e6:,.1f} MB")


def _print_trained(told: dict[str, Any]) -> None:
    data, held = told["data"], told["held_out"]
    typer.echo(
        f"{told['kind']}: {told['parameters']:,} parameters, {told['steps']} steps on {data['tokens']:,} "
        f"tokens of {data['sequences']} sequences"
    )
    if data["too_long"]:
        typer.echo(f"{data['too_long']} prompts left no room for an answer and were passed over")
    for name, figures in (("trained", told["train"]), ("held out", held)):
        if figures is None:
            continue
        rates = " ".join("   -" if r is None else f"{r:.2f}" for r in figures["accept_rate"])
        tau = f"{figures['tau_prob']:.2f}"
        typer.echo(f"{name:9} loss {figures['loss']:.3f}  tau {tau}  accepted at 1, 2, ...: {rates}")
    if held is None:
        typer.echo("nothing was held out: the answers are all alike")
    typer.echo(f"drafter: {told['folder']}")


# ``refork speculate``: import, export.

Layout = Literal["deepspec", "speculators", "transformers"]


def import_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A published drafter, downloaded.")],
    model: Model,
    out: Annotated[Path, typer.Option("--out", help="Folder of our drafter, which does not exist yet.")],
    ignore: Annotated[
        list[str],
        typer.Option("--ignore", help="A config field that is not known here, to be passed over."),
    ] = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Read a drafter of DeepSpec or speculators, and keep it as one of ours.

    What ours have no counterpart of is refused by name: a reduced vocabulary, other norms, odd positions.

    Example: refork speculate import downloads/dspark --model downloads/target --out drafts/dspark
    """
    from refork.cli.live import LiveProgress
    from refork_methods.speculate.checkpoint import save_draft
    from refork_methods.speculate.layouts import import_draft, layout_of_folder, refuse_taken

    layout = layout_of_folder(existing(folder))
    refuse_taken(out)
    with LiveProgress() as live:
        target = open_target(model, live)
    draft = import_draft(folder, target, ignore=ignore)
    save_draft(draft, draft.config, out, {"imported": {"layout": layout, "folder": folder.name}})
    told = {"layout": layout, "folder": str(out), "draft": draft.config.to_json()}
    if as_json:
        print_json(told)
        return
    config = draft.config
    typer.echo(
        f"{layout}: {config.kind} drafter of {config.layers} layers, {config.block} tokens a round, "
        f"head {config.head if config.sequential else 'none'}; kept in {out}"
    )


def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="One of our drafters.")],
    model: Model,
    layout: Annotated[Layout, typer.Option("--layout", help="Whose layout it is written in.")],
    out: Annotated[Path, typer.Option("--out", help="A folder that does not exist yet.")],
    verifier: Annotated[
        str | None, typer.Option("--verifier", help="Name or path of the target there (default: --model).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one of our drafters for DeepSpec, speculators or transformers' own DFlash generation.

    Example: refork speculate export drafts/dspark --model downloads/target --layout speculators --out there
    """
    from refork.cli.live import LiveProgress
    from refork_methods.speculate.checkpoint import load_draft
    from refork_methods.speculate.dflash_hf import save_assistant
    from refork_methods.speculate.layouts import export_draft

    existing(folder)
    with LiveProgress() as live:
        target = open_target(model, live)
    draft = load_draft(folder, target)
    if layout == "transformers":
        save_assistant(draft, out)
    else:
        export_draft(draft, target, out, layout, verifier=verifier or model)
    told = {"layout": layout, "folder": str(out), "kind": draft.config.kind}
    if as_json:
        print_json(told)
        return
    typer.echo(f"{layout}: written to {out}")


# ``refork speculate``: calibrate, profile, check-lossless, replay.

Log = Annotated[Path, typer.Argument(metavar="ROUNDS", help="A log of verification rounds, JSON lines.")]
Drafter = Annotated[Path | None, typer.Option("--drafter", help="The drafter's folder.")]


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
    """Certify that outputs have the distribution of plain decoding; exit status 1 where it is not.

    Without --model every outcome of tiny vocabularies is enumerated, exactly. With it, samples of the
    speculative decoder are tested against the model's own distribution; too few of them certify nothing.

    Example: refork speculate check-lossless --schedule early_stop --schedule stale_topk
    """
    from refork_methods.speculate.certify import certify_decoder, certify_rules

    if model is None:
        found = certify_rules(schedule)
    else:
        from refork.cli.live import LiveProgress

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
    from refork_methods.speculate.replay import replay as run
    from refork_methods.speculate.rounds import Rounds, read_rounds
    from refork_methods.speculate.schedule import schedules_of
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
    def cell(value: float | None) -> str:
        return "      -" if value is None else f"{value:7.4f}"

    typer.echo(
        "position  temperature  reached     kept  stated  after      ECE  after    AUROC   Brier  after"
    )
    for k, (one, two) in enumerate(zip(made.before, made.after, strict=True)):
        typer.echo(
            f"{one.position:8d}  {made.scaling.temperatures[k]:11.3f}  {made.scaling.reached[k]:7d}  "
            f"{cell(one.kept)} {cell(one.stated)} {cell(two.stated)}  {cell(one.ece)} {cell(two.ece)}  "
            f"{cell(two.auroc)} {cell(one.brier)} {cell(two.brier)}"
        )
    typer.echo(f"fitted on {made.fitted} rounds, the rest of the table is of {held} others")
    if max(made.scaling.reached, default=0) < fewest:
        typer.echo(
            f"nothing was fitted: no position was reached {fewest} times; record more, or lower --fewest"
        )


def _print_certificates(found: list[Certificate]) -> None:
    for one in found:
        untested = [case for case in one.cases if case.tv is None and case.p is None]
        refuted = one.mismatches or (one.min_p is not None and one.min_p <= one.error_rate)
        word = "lossless" if one.lossless else "not certified" if untested and not refuted else "NOT lossless"
        if one.method == "enumeration":
            far = one.max_tv or 0.0
            told = f"largest total variation {far:.3g} over {len(one.cases)} enumerated distributions"
        else:
            least = "no distribution tested" if one.min_p is None else f"least corrected p {one.min_p:.3g}"
            fails = f"an exact one fails once in {1 / one.error_rate:g}"
            told = f"{least} over {len(one.cases) - len(untested)} distributions; {fails}"
            if one.mismatches is not None:
                told += f"; greedy answers that differ: {one.mismatches}"
        typer.echo(f"{one.subject}: {word}; {told}")
        for case in one.cases:
            if case.tv is not None and case.tv > 1e-12:
                typer.echo(f"  {case.name}: total variation {case.tv:.4f}")
            elif case.p is not None:
                seen = f"{case.samples} samples, {case.cells} cells"
                if case.detectable is not None:
                    seen += f", would show a total variation of {case.detectable:.3f}"
                typer.echo(f"  {case.name}: p {case.p:.3g} ({seen})")
            elif case.tv is None:
                typer.echo(f"  {case.name}: not tested, too few samples for its outcomes ({case.samples})")


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


# ``refork speculate``: bench.

BenchPrompts = Annotated[
    Path, typer.Argument(metavar="PROMPTS", help="JSON lines with text, turns or messages.")
]
DrafterFolder = Annotated[Path, typer.Option("--drafter", help="The drafter's folder.")]
Batches = Annotated[
    list[int] | None, typer.Option("--batch", help="Answers drawn at once (1, 8 and 32); repeatable.")
]
Rule = Annotated[
    Literal["coupled", "rejection"],
    typer.Option("--rule", help="coupled: the tokens of plain decoding; rejection: its distribution."),
]
MaxDraftTokens = Annotated[
    int | None, typer.Option("--draft-tokens", help="The most drafted in a round (the drafter's block).")
]
Cost = Annotated[
    Path | None, typer.Option("--cost", help="Table of refork speculate profile: verify by load.")
]
Calibration = Annotated[
    Path | None, typer.Option("--calibration", help="File of refork speculate calibrate.")
]
Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Timed draws of each way.")]
Rounds = Annotated[
    Path | None, typer.Option("--rounds", help="Append every verified round here, to calibrate on.")
]


def bench(
    prompts: BenchPrompts,
    model: Model,
    drafter: DrafterFolder,
    batch: Batches = None,
    rule: Rule = "coupled",
    max_draft_tokens: MaxDraftTokens = None,
    cost: Cost = None,
    calibration: Calibration = None,
    max_tokens: MaxTokens = 128,
    sampling: SamplingSettings = [],  # noqa: B006
    repeats: Repeats = 5,
    rounds: Rounds = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Time a drafter against plain decoding: tokens per round, acceptance, tokens per second by batch size.

    Example: refork speculate bench prompts.jsonl --model runs/target --drafter runs/draft --batch 1
    """
    from refork.cli.common import settings_for
    from refork.cli.live import LiveProgress
    from refork.policies.base import Sampling
    from refork_methods.speculate.bench import bench as run
    from refork_methods.speculate.bench import prompt_tokens
    from refork_methods.speculate.data import read_prompts
    from refork_methods.speculate.policy import speculative
    from refork_methods.speculate.rounds import Round, RoundLog

    asked = read_prompts(existing(prompts))
    if rounds is not None:
        existing(rounds.absolute().parent)  # before anything is measured, not after
    heard: list[Round] = []
    with LiveProgress() as progress:
        target = open_target(model, progress)
        base = Sampling(max_tokens=max_tokens)
        policy = speculative(
            target, existing(drafter), rule=rule, cost=cost, calibration=calibration,
            max_draft_tokens=max_draft_tokens, on_rounds=None if rounds is None else heard.extend,
        )  # fmt: skip
        found = run(
            policy, prompt_tokens(target, asked), settings_for(base, sampling) or base,
            batches=batch or (1, 8, 32), repeats=repeats, seed=seed, progress=progress,
        )  # fmt: skip
    if rounds is not None:
        RoundLog(rounds).append(heard)
    if as_json:
        told = {"model": target.card.name, "drafter": str(drafter), "rule": rule}
        print_json(told | {"batches": [item.to_json() for item in found]})
    else:
        _print_bench(found)
    if any(item.other_tokens for item in found):
        raise typer.Exit(1)


def _print_bench(found: list[BatchResult]) -> None:
    typer.echo(
        "batch  tau   accepted at 1, 2, ...       plain tok/s  drafted tok/s  ratio (range)       tokens"
    )
    for item in found:
        rates = " ".join("  - " if rate is None else f"{rate:.2f}" for rate in item.stats.accept_rate[:5])
        tau = "   -" if item.stats.tau is None else f"{item.stats.tau:4.2f}"
        known = {None: "same distribution", 0: "the same"}
        same = known.get(item.other_tokens, f"{item.other_tokens} DIFFER")
        spread = f"{item.ratio:.2f} ({item.ratios[0]:.2f} to {item.ratios[-1]:.2f})"
        speeds = f"{item.plain_speed:12.0f} {item.speed:14.0f}"
        typer.echo(f"{item.batch:5}  {tau}  {rates:26} {speeds}  {spread:19} {same}")
    worst = max(item.logprob_gap for item in found)
    typer.echo(f"log-probs differ from scoring the same tokens by {worst:.1e} nats at most")


app = typer.Typer(
    help="Draw branches faster, losslessly: train a drafter, calibrate it, schedule it, prove it exact.",
    no_args_is_help=True,
)
app.command()(train)
app.command("import")(import_)
app.command("export")(export)
app.command()(calibrate)
app.command()(profile)
app.command("check-lossless")(check_lossless)
app.command()(replay)
app.command()(bench)
