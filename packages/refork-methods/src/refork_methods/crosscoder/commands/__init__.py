"""``refork crosscoder patch|steer|audit``: what a crosscoder's features do when a model draws."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refork.cli.common import AsJson, print_json
from refork.plain import to_json
from refork_methods.crosscoder.commands.fit import app

if TYPE_CHECKING:
    from refork.policies.local import LocalPolicy
    from refork_methods.crosscoder.effects import Steering
    from refork_methods.crosscoder.model import CrossCoder
    from refork_methods.crosscoder.paired import Pairs
    from refork_methods.crosscoder.partition import Side
    from refork_methods.crosscoder.trials import Gain, Trials

__all__ = ["app"]

Coder = Annotated[Path, typer.Argument(help="The crosscoder's folder.")]
PolicyA = Annotated[str, typer.Option("--a", help="Policy A, hf:DIR.")]
PolicyB = Annotated[str, typer.Option("--b", help="Policy B, hf:DIR.")]
WorldName = Annotated[str, typer.Option("--world", help="A world of one turn; its tasks are the prompts.")]
Count = Annotated[int, typer.Option("--tasks", min=4, help="Held-out tasks.")]
Model = Annotated[str, typer.Option("--in", help="The model that is changed: A or B.")]
Caps = Annotated[str, typer.Option("--caps", help="Two token caps, short,long.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Of tasks and noise.")]


@dataclass(frozen=True, slots=True)
class _Opened:
    """What every command here needs."""

    coder: CrossCoder
    a: LocalPolicy
    b: LocalPolicy
    pairs: Pairs
    trials: Trials
    which: Side

    @property
    def policy(self) -> LocalPolicy:
        return self.a if self.which == "A" else self.b

    @property
    def steering(self) -> Steering:
        from refork_methods.crosscoder.effects import Steering

        return Steering(self.coder, self.policy, self.pairs, self.trials, self.which)


def _open(
    coder: Path, a: str, b: str, world: str, tasks: int, which: str, caps: str, seed: int
) -> _Opened:  # fmt: skip
    from refork.errors import BadInput
    from refork.policies.local import LocalPolicy
    from refork.policies.open import open_policy
    from refork.policies.whitebox import white_box
    from refork.worlds.open import open_world
    from refork_methods.crosscoder.exchange import load
    from refork_methods.crosscoder.paired import read_pairs, trained_layer
    from refork_methods.crosscoder.trials import world_trials

    if which not in ("A", "B"):
        raise BadInput(f"--in is {which!r}", hint="A or B")
    short, comma, long = caps.partition(",")
    if not (comma and short.isdigit() and long.isdigit()):
        raise BadInput(f"--caps is {caps!r}", hint="two numbers of tokens: --caps 12,32")
    model, first, second = load(coder), open_policy(a), open_policy(b)
    if not (isinstance(first, LocalPolicy) and isinstance(second, LocalPolicy)):
        white_box(first), white_box(second)
        raise BadInput("patching and steering need two local models", hint="--a hf:DIR --b hf:DIR")
    place = open_world(world)
    trials = world_trials(
        first, place, place.tasks("held-out", tasks, seed), short=int(short), long=int(long), seed=seed
    )
    layers = (trained_layer(model, "A"), trained_layer(model, "B"))
    pairs = read_pairs(first, second, trials.prompts, layers)
    return _Opened(model, first, second, pairs, trials, "A" if which == "A" else "B")


@app.command()
def patch(
    coder: Coder, a: PolicyA, b: PolicyB, world: WorldName = "toolcall:4", tasks: Count = 200,
    which: Model = "A", caps: Caps = "12,32", seed: SeedOption = 0, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Let a model go on from its reconstructed state, with units kept and with units forgotten.

    Example: refork crosscoder patch CODER --a hf:RL --b hf:BASE --world toolcall:4 --tasks 200
    """
    from refork_methods.crosscoder.effects import patch_effect

    told = _open(coder, a, b, world, tasks, which, caps, seed)
    found = patch_effect(told.coder, told.policy, told.pairs, told.trials, told.which)
    if as_json:
        print_json(to_json(found))
        return
    typer.echo(
        f"{found.prompts} prompts, {found.fve:.3f} of the state's variance among them explained\n"
        f"unchanged        {found.clean:.3f}\n"
        f"reconstruction   {found.patched:.3f}  {_gain(found.gain)}, Holm p {found.holm_p[0]:.3g}\n"
        f"units forgotten  {found.mismatched:.3f}  {_gain(found.mismatched_gain)}, "
        f"Holm p {found.holm_p[1]:.3g}"
    )


def _gain(gain: Gain) -> str:
    late, early = gain.long, gain.short
    return (
        f"{late.estimate:+.3f} [{late.low:+.3f}, {late.high:+.3f}] at the long cap, "
        f"{early.estimate:+.3f} at the short ({gain.label})"
    )


@app.command()
def steer(
    coder: Coder, a: PolicyA, b: PolicyB,
    features: Annotated[str, typer.Option("--features", help="Numbers of features, scaled together: 12,31.")],
    alphas: Annotated[str, typer.Option("--alphas", help="Strengths; 1 changes nothing.")] = "0,1,2,4,8",
    directions: Annotated[int, typer.Option("--random", min=20, help="Random directions per strength.")] = 20,
    world: WorldName = "toolcall:4", tasks: Count = 200, which: Model = "A", caps: Caps = "12,32",
    seed: SeedOption = 0,
    picture: Annotated[Path | None, typer.Option("--svg", help="Write the curve as a picture.")] = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Scale features in a model's own state and draw the curve beside random directions of the same norm.

    The best strength is chosen on one half of the tasks and scored on the other.

    Example: refork crosscoder steer CODER --a hf:RL --b hf:BASE --features 12 --alphas 0,1,2 --svg curve.svg
    """
    from refork.cli.live import LiveProgress
    from refork_methods.crosscoder.effects import steering_curve
    from refork_methods.crosscoder.pictures import steering_figure

    told = _open(coder, a, b, world, tasks, which, caps, seed)
    chosen, strengths = _numbers(features, int, "--features"), _numbers(alphas, float, "--alphas")
    with LiveProgress() as live:
        curve = steering_curve(
            told.steering, chosen, strengths, directions=directions, seed=seed, progress=live
        )
    best = curve.sweep().best("split_half", seed)
    rows = list(zip(curve.score.tolist(), curve.low.tolist(), curve.high.tolist(), strict=True))
    band = list(
        zip(curve.random_low.tolist(), curve.random_median.tolist(), curve.random_high.tolist(), strict=True)
    )
    if picture is not None:
        title = f"feature {features} of model {which}, {curve.prompts} tasks of {world}"
        drawn = steering_figure(curve.alphas, rows, band, curve.clean, title).svg()
        picture.write_text(drawn, encoding="utf-8")
    if as_json:
        print_json(curve.to_json() | {"best": to_json(best)})
        return
    typer.echo(f"unchanged {curve.clean:.3f}, {curve.prompts} prompts, {curve.directions} random directions")
    typer.echo("strength  score  95 % interval     random 5 %  50 %   95 %")
    for alpha, (mean, low, high), (r5, r50, r95) in zip(curve.alphas, rows, band, strict=True):
        typer.echo(f"{alpha:8g}  {mean:.3f}  [{low:.3f}, {high:.3f}]    {r5:.3f}     {r50:.3f}  {r95:.3f}")
    typer.echo(
        f"chosen on {best.chosen_on} prompts: strength {best.alpha:g}; on the {best.scored_on} others "
        f"{best.gain:+.3f} [{best.low:+.3f}, {best.high:+.3f}], McNemar p {best.p:.3g}"
    )


def _numbers(text: str, kind: type, name: str) -> list[Any]:
    from refork.errors import BadInput

    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise BadInput(f"{name} is {text!r}", hint="numbers separated by commas") from error


@app.command()
def audit(
    coder: Coder, a: PolicyA, b: PolicyB, world: WorldName = "toolcall:4", tasks: Count = 200,
    which: Model = "A", caps: Caps = "12,32", seed: SeedOption = 0, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Is what looks exclusive to one model exclusive: capture, latent scaling, and spillover into the other.

    Example: refork crosscoder audit CODER --a hf:RL --b hf:BASE --world toolcall:4
    """
    from refork.errors import CannotDo
    from refork_methods.crosscoder.audit import claim, exclusivity
    from refork_methods.crosscoder.sources import ArrayPairs
    from refork_methods.crosscoder.spillover import spillover

    told = _open(coder, a, b, world, tasks, which, caps, seed)
    found = exclusivity(told.coder, ArrayPairs(told.pairs.a.numpy(), told.pairs.b.numpy()), told.which)
    other: Side = "B" if told.which == "A" else "A"
    spilled = spillover(told.coder, told.b if other == "B" else told.a, told.pairs, told.trials, other)
    try:
        verdict = str(claim(found))
    except CannotDo as error:
        verdict = error.what
    if as_json:
        print_json(to_json(found) | {"claim": verdict, "spillover": to_json(spilled)})
        return
    typer.echo(verdict)
    typer.echo(
        f"features that fire: {found.live}; in {told.which}'s block {found.block_live} of "
        f"{found.block_size}\n"
        f"reconstruction patched into {other}: {spilled.clean:.3f} -> {spilled.patched:.3f}, "
        f"{spilled.change:+.3f}, z {spilled.z:+.2f} over {spilled.prompts} prompts"
    )
