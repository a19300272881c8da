"""``refork speculate``: bench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from refork.cli.common import AsJson, SamplingSettings, Seed, existing, print_json

if TYPE_CHECKING:
    from refork_methods.speculate.bench import BatchResult

Prompts = Annotated[Path, typer.Argument(metavar="PROMPTS", help="JSON lines with text, turns or messages.")]
Model = Annotated[str, typer.Option("--model", help="The target: its folder, hf:DIR or organism:NAME.")]
Drafter = Annotated[Path, typer.Option("--drafter", help="The drafter's folder.")]
Batch = Annotated[
    list[int] | None, typer.Option("--batch", help="Answers drawn at once (1, 8 and 32); repeatable.")
]
Rule = Annotated[
    Literal["coupled", "rejection"],
    typer.Option("--rule", help="coupled: the tokens of plain decoding; rejection: its law."),
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
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=2, help="Of an answer.")]
Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Timed draws of each way.")]
Rounds = Annotated[
    Path | None, typer.Option("--rounds", help="Append every verified round here, to calibrate on.")
]


def register(app: typer.Typer) -> None:
    """Add the verbs to ``refork speculate``."""
    app.command()(bench)


def bench(
    prompts: Prompts,
    model: Model,
    drafter: Drafter,
    batch: Batch = None,
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
    from refork_methods.speculate.commands.train import open_target
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
            policy.decoder, prompt_tokens(target, asked), settings_for(base, sampling) or base,
            batches=batch or (1, 8, 32), repeats=repeats, seed=seed, progress=progress,
        )  # fmt: skip
    if rounds is not None:
        RoundLog(rounds).append(heard)
    if as_json:
        told = {"model": target.card.name, "drafter": str(drafter), "rule": rule}
        print_json(told | {"batches": [item.to_json() for item in found]})
    else:
        _print(found)
    if any(item.other_tokens for item in found):
        raise typer.Exit(1)


def _print(found: list[BatchResult]) -> None:
    typer.echo(
        "batch  tau   accepted at 1, 2, ...       plain tok/s  drafted tok/s  ratio (range)       tokens"
    )
    for item in found:
        rates = " ".join("  - " if rate is None else f"{rate:.2f}" for rate in item.stats.accept_rate[:5])
        tau = "   -" if item.stats.tau is None else f"{item.stats.tau:4.2f}"
        same = {None: "same law", 0: "the same"}.get(item.other_tokens, f"{item.other_tokens} DIFFER")
        spread = f"{item.ratio:.2f} ({item.ratios[0]:.2f} to {item.ratios[-1]:.2f})"
        speeds = f"{item.plain_speed:12.0f} {item.speed:14.0f}"
        typer.echo(f"{item.batch:5}  {tau}  {rates:26} {speeds}  {spread:19} {same}")
    worst = max(item.logprob_gap for item in found)
    typer.echo(f"log-probs differ from scoring the same tokens by {worst:.1e} nats at most")
