"""``refork speculate``: train."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from refork.cli.common import AsJson, DryRun, SamplingSettings, existing, print_json

if TYPE_CHECKING:
    from refork.policies.local import LocalPolicy
    from refork.progress import Progress
    from refork_methods.speculate.config import DraftConfig
    from refork_methods.speculate.train import DraftTraining

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
Seed = Annotated[int, typer.Option("--seed", help="Of answers, weights and orders.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to ``refork speculate``."""
    app.command()(train)


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
    seed: Seed = 0,
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
    from refork_methods.speculate.on_prompts import plan_on_prompts, train_on_prompts

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
    show = print_json if as_json else _print_plan if dry_run else _print
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


def _print(told: dict[str, Any]) -> None:
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
