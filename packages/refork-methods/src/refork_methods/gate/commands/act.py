"""``refork gate act`` and ``map``: what to do next, and where it pays to think about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refork.cli.common import existing, print_json
from refork_methods.gate.commands.answers import print_answer, print_map

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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to ``refork gate``."""
    app.command("act")(act)
    app.command("map")(draw_map)


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
    from refork_methods.gate.ask import answer_json, setting, state_from
    from refork_methods.gate.controller import BayesController, method_from
    from refork_methods.gate.policy import verify_from
    from refork_methods.gate.readers.load import amounts

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
    from refork_methods.gate.ask import setting
    from refork_methods.gate.policy import verify_from
    from refork_methods.gate.readers.load import amounts
    from refork_methods.gate.regime_report import map_json

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
        from refork_methods.gate.regime_picture import regime_picture

        svg.write_text(regime_picture(found, told["title"], told["here"]), encoding="utf-8")
    if as_json:
        print_json(told)
        return
    print_map(told)
    if svg is not None:
        typer.echo(str(svg))
