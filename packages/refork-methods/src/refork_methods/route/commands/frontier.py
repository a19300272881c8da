"""``refork route frontier``: routers beside their baselines on one outcome table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import AsJson, print_json
from refork.errors import BadInput

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    from refork.decide import Calibration
    from refork_methods.route.frontier_report import FrontierReport
    from refork_methods.route.table import OutcomeTable

    Shares = Float[np.ndarray, "queries workers"]

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
    from refork_methods.route.baselines import best_single
    from refork_methods.route.frontier_picture import frontier_picture
    from refork_methods.route.frontier_report import frontier_report
    from refork_methods.route.table_io import read_table

    tested = read_table(table, low=low, high=high)
    trained = None if fit is None else read_table(fit, workers=tested.workers, low=low, high=high)
    shares, chances = routers_for(routers, head, backbone, tested, trained)
    single = None if trained is None else best_single(trained)
    report = frontier_report(tested, shares, chances=chances, calls=calls, single=single)
    if picture is not None:
        picture.write_text(frontier_picture(report, f"Quality and cost on {table.name}"), encoding="utf-8")
    if as_json:
        print_json(report.to_json())
        return
    _print_report(report, fitted=trained is not None)


def _print_report(report: FrontierReport, *, fitted: bool) -> None:
    typer.echo(f"{report.queries} queries of {report.tasks} tasks; intervals are 95 %, over tasks")
    typer.echo(f"{'':28} reward                   cost       seconds   unbeaten")
    for option, on in zip(report.options, report.on_frontier, strict=True):
        q = option.quality
        cost = "unknown" if option.cost is None else f"{option.cost:.4g}"
        seconds = "unknown" if option.latency is None else f"{option.latency:.3g}"
        mark = {True: "yes", False: "", None: "-"}[on]
        typer.echo(
            f"{option.name:28} {q.estimate:.3f} [{q.low:.3f}, {q.high:.3f}]   {cost:10} {seconds:9} {mark}"
        )
    if report.split_oracle is not None:
        typer.echo(f"oracle chosen on one half of the repeats, paid by the other: {report.split_oracle:.3f}")
    if not fitted:
        typer.echo(
            "the best worker was picked on these very queries, in its favour (--fit picks it elsewhere)"
        )
    for name, area in report.area.items():
        value = "none, costs are unknown or all equal" if area is None else f"{area:.3f}"
        typer.echo(f"area under the cost curve, {name}: {value}")
    for router in report.routers:
        lost = router.regret.regret
        typer.echo(
            f"{router.name}: regret {lost.estimate:.3f} [{lost.low:.3f}, {lost.high:.3f}] to the oracle"
        )
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
    from refork_methods.route.frontier_report import success_chance
    from refork_methods.route.table_io import read_shares

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


def _of_head(folder: Path, backbone: str | None, table: OutcomeTable, *, tested: bool) -> Shares:
    import numpy as np

    from refork_methods.route.card import load_head

    head, card = load_head(folder)
    if tested:
        card.refuse_leaks(table.queries)
    if head.format is None:
        if table.features is None:
            raise BadInput("the head reads features and the table has none", where=str(folder))
        states = table.features
    else:
        states = _read(head, backbone, table)
    known = head.probabilities(states, open=table.workers)
    return np.stack([known[:, head.workers.index(name)] for name in table.workers], axis=1)


def _read(head: object, spec: str | None, table: OutcomeTable) -> Shares:
    from refork.policies.open import open_policy
    from refork_methods.route.backbone import RouterBackbone
    from refork_methods.route.head import SelectionHead

    assert isinstance(head, SelectionHead)
    assert head.format is not None
    texts = [text for text in table.texts or () if text is not None]
    if spec is None or len(texts) != len(table.queries):
        raise BadInput("the head reads texts: give --backbone and a table with a text for every query")
    told = head.format
    reader = RouterBackbone(
        open_policy(spec), rendering=told.rendering, token_index=told.token_index,
        layer=told.layer, window=told.window,
    )  # fmt: skip
    head.require(reader)
    if head.offsets is not None:
        reader.settle(head.offsets, head.matrices)
    return reader.states(texts)
