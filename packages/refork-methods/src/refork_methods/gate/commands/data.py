"""``refork gate fit``, ``replay`` and ``score``: from recorded candidates to a policy and its worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refork.cli.common import existing, print_json
from refork_methods.gate.commands.tables import print_fit, print_replay, print_scores

if TYPE_CHECKING:
    from refork_methods.gate.records import Record

Records = Annotated[
    list[Path], typer.Argument(metavar="RECORDS", help="Candidates: JSON lines, or a folder of test reports.")
]
PolicyFile = Annotated[Path, typer.Argument(metavar="POLICY", help="What refork gate fit wrote.")]
Threshold = Annotated[
    list[str] | None, typer.Option(help="CRITIC=SCORE from which a critic that gives a score passes.")
]
Price = Annotated[
    list[str] | None,
    typer.Option(help="NAME=AMOUNT of a critic, verify or generate; default: what its calls cost."),
]
Rate = Annotated[
    list[str] | None, typer.Option(help="seconds=, tokens= or money=AMOUNT: what one is worth in the unit.")
]
Unit = Annotated[str, typer.Option(help="utility, seconds, tokens or money.")]
Outcomes = Annotated[
    list[str] | None, typer.Option(help="A SWE-bench report, [CANDIDATE=]PATH; once for each candidate.")
]
Pattern = Annotated[str, typer.Option(help="Paths of test reports within a folder.")]
Oracle = Annotated[str, typer.Option(help="Which {check} of the pattern is the oracle.")]
ErrorsFail = Annotated[
    bool, typer.Option("--errors-fail", help="Tests that end in an error are the candidate's fault.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PATTERN = "{instance}/{candidate}/{check}.xml"


def register(app: typer.Typer) -> None:
    """Add the verbs to ``refork gate``."""
    app.command("fit")(fit_policy)
    app.command("replay")(replay_policy)
    app.command("score")(score_policy)


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
    reward: Annotated[float | None, typer.Option(help="Worth of a right candidate; prices need it.")] = None,
    ship_loss: Annotated[float | None, typer.Option(help="Loss of shipping a wrong candidate.")] = None,
    price: Price = None,
    unit: Unit = "utility",
    rate: Rate = None,
    threshold: Threshold = None,
    outcomes: Outcomes = None,
    pattern: Pattern = PATTERN,
    oracle: Oracle = "verify",
    errors_fail: ErrorsFail = False,
    as_json: AsJson = False,
) -> None:
    """Fit prior, critics and refine kernel on recorded candidates, and test the critics' independence.

    Example: refork gate fit candidates.jsonl --price test=2 --price review=5 --out policy.json
    """
    from refork_methods.gate.calibration_report import fit_json
    from refork_methods.gate.calibration_run import fit_records, held_out
    from refork_methods.gate.model import write_policy
    from refork_methods.gate.readers.load import amounts

    given = amounts(price or (), "price")
    found = _load(records, outcomes, threshold, unit, rate, pattern, oracle, errors_fail)
    mine = held_out(found, share, seed, test)
    names = critics.split(",") if critics else None
    fitted, prices, tested = fit_records(
        mine, given, names, changed_only=changed_only, reward=reward, ship_loss=ship_loss, unit=unit
    )
    if out is not None:
        write_policy(out, fitted.model, prices)
    told = fit_json(fitted, prices, tested)
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
    price: Price = None,
    recorded: Annotated[bool, typer.Option("--recorded", help="Every call at what it cost then.")] = False,
    resamples: Annotated[int, typer.Option(help="Of the bootstrap over instances.")] = 1000,
    posterior_draws: Annotated[
        int, typer.Option(help="Models drawn from the fit, for the spread of predictions.")
    ] = 0,
    folds: Annotated[
        int | None,
        typer.Option(help="Nothing held out: fit anew without each of so many folds of instances."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of bootstrap, posterior draws and folds.")] = 0,
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
    from refork_methods.gate.calibration_run import replay_all, unit_of
    from refork_methods.gate.readers.load import amounts

    given = amounts(price or (), "price")
    counted = unit_of(existing(policy), unit)
    found = _load(records, outcomes, threshold, counted, rate, pattern, oracle, errors_fail)
    told = replay_all(
        policy, found, given, reward=reward, horizon=horizon, verify=verify, recorded=recorded,
        resamples=resamples, posterior_draws=posterior_draws, folds=folds, seed=seed, unit=counted,
    )  # fmt: skip
    if picture is not None:
        from refork_methods.gate.replay_picture import replay_picture

        picture.write_text(replay_picture(told), encoding="utf-8")
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
    lm_polygraph: Annotated[
        bool, typer.Option("--lm-polygraph", help="Random score and ties as lm-polygraph takes them.")
    ] = False,
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
    from refork_methods.gate.calibration_report import scores_json
    from refork_methods.gate.model import read_policy
    from refork_methods.gate.score import score

    model, _ = read_policy(existing(policy))
    found = _load(records, outcomes, threshold, None, None, pattern, oracle, errors_fail)
    told = scores_json(
        score(
            model,
            found,
            without_own=leave_one_out,
            max_rejection=max_rejection,
            random="monte-carlo" if lm_polygraph else "exact",
            ties="sorted" if lm_polygraph else "average",
        )
    )
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
    from refork_methods.gate.calibration_run import rates_of
    from refork_methods.gate.readers.load import amounts, load_records

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
