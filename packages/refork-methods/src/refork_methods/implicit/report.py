"""What the uses of scored trajectories come to, as plain records: best of N, prediction, attribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from refork.errors import BadInput
from refork.stats import Interval
from refork.types import Json
from refork_methods.implicit.aggregate import (
    STEP_RULES,
    TOKEN_RULES,
    StepRule,
    TokenRule,
    is_exact,
    refuse_all_zero,
    sensitivity_grid,
    step_advantages,
    trajectory_score,
)
from refork_methods.implicit.attribute import ATTRIBUTION_RULES, decisive_step, step_accuracy
from refork_methods.implicit.choose import best_of, select_best
from refork_methods.implicit.logged import Scored
from refork_methods.implicit.predict import predict_success, tune
from refork_methods.implicit.soft_values import Floats


def rules(token: str, step: str) -> tuple[TokenRule, StepRule]:
    """Checked names of a token rule and a step rule.

    Raises:
        BadInput: an unknown rule.
    """
    # Looked up, not only tested: what comes out has the literal type that the rules ask for.
    tokens = {rule: rule for rule in TOKEN_RULES}
    steps = {rule: rule for rule in STEP_RULES}
    if token not in tokens:
        raise BadInput(f"unknown token rule {token!r}", hint=f"known: {', '.join(TOKEN_RULES)}")
    if step not in steps:
        raise BadInput(f"unknown step rule {step!r}", hint=f"known: {', '.join(STEP_RULES)}")
    return tokens[token], steps[step]


def scores_of(items: Sequence[Scored], token: str, step: str) -> Floats:
    """The score of each trajectory under a pair of rules, [n]; NaN where all its actions are cut."""
    t, s = rules(token, step)
    return np.array([trajectory_score(item.pair, t, s, item.beta) for item in items])


def warnings_of(items: Sequence[Scored]) -> list[str]:
    """What a reader of these scores should know, in sentences."""
    found = []
    cut = sum(int(item.pair.cut.sum()) for item in items)
    if cut:
        found.append(f"{cut} actions are cut (length limit, or nothing before them) and have no score")
    names = {str(item.models.get("reference")) for item in items}
    if any(name == "None" or "not named" in name for name in names):
        found.append("some trajectories do not name their reference")
    if len(names) > 1 or len({item.beta for item in items}) > 1:
        found.append("scores of several references or betas are mixed; they compare only within one pair")
    return found


def outcomes_of(items: Sequence[Scored]) -> Floats:
    """Outcomes [n]; raises BadInput where one is not known, naming its trajectory."""
    for item in items:
        if item.facts.outcome is None:
            raise BadInput(
                "this trajectory has no outcome",
                where=item.facts.name,
                hint='give every line an "outcome", or leave ungraded ones out',
            )
    return np.array([float(item.facts.outcome or 0.0) for item in items])


def best_report(items: Sequence[Scored], token: str = "sum", step: str = "sum", seed: int = 0) -> Json:
    """The chosen trajectory of each task and, where all outcomes are known, what choosing is worth."""
    refuse_all_zero(item.pair for item in items)
    scores, tasks = scores_of(items, token, step), [item.facts.task for item in items]
    picks = best_of(scores, tasks, seed=seed)
    rows = [
        {
            "task": tasks[i],
            "id": items[i].facts.name,
            "score": _plain(scores[i]),
            "outcome": items[i].facts.outcome,
        }
        for i in picks
    ]
    report: Json = {"token": token, "step": step, "exact": is_exact(token, step), "picks": rows}
    if all(item.facts.outcome is not None for item in items):
        found = select_best(scores, tasks, outcomes_of(items), seed=seed)
        report |= {
            "chosen": found.chosen,
            "expected": found.expected,
            "mean": found.mean,
            "oracle": found.oracle,
            "gain": _interval(found.gain),
            "tasks": found.tasks,
            "candidates": [found.fewest, found.most],
        }
    return report | {"warnings": warnings_of(items)}


def predict_report(
    items: Sequence[Scored],
    token: str = "sum",
    step: str = "sum",
    *,
    tune_on: Sequence[Scored] | None = None,
    success: float = 1.0,
    by_task: bool = False,
    seed: int = 0,
) -> Json:
    """How well scores tell successes from failures.

    ``tune_on``: other trajectories, by whose AUROC the rules are chosen instead. ``success`` is the least
    outcome that counts as one. ``grid`` is the AUROC of every pair of rules, for sensitivity only: the
    best of it is no result.

    Raises:
        BadInput: a missing outcome, outcomes of one kind, or tuning trajectories among the reported ones.
    """
    refuse_all_zero(item.pair for item in items)
    labels = (outcomes_of(items) >= success).astype(float)
    digests = [item.facts.digest for item in items]
    tuned = None
    if tune_on is not None:
        columns = _grid(tune_on)
        truth = (outcomes_of(tune_on) >= success).astype(float)
        best, areas = tune(
            columns, truth, tuned_on=[item.facts.digest for item in tune_on], reported_on=digests
        )
        token, step = best.split("/")
        tuned = {"on": len(tune_on), "auroc_there": areas[best]}
    scores = scores_of(items, token, step)
    groups = [item.facts.task for item in items] if by_task else None
    found = predict_success(scores, labels, groups, seed=seed)
    # For the areas only: nothing is chosen here, so no trajectory counts as tuned on.
    _, grid = tune(_grid(items), labels, tuned_on=[], reported_on=digests)
    notes = warnings_of(items)
    if found.auroc.width == 0:
        notes.append(
            "successes and failures are apart throughout: the bootstrap sees no width, read DeLong's"
        )
    return {
        "token": token,
        "step": step,
        "exact": is_exact(token, step),
        "auroc": _interval(found.auroc),
        "delong": _interval(found.delong),
        "spearman": _plain(found.spearman),
        "successes": found.successes,
        "failures": found.failures,
        "resampled": found.resampled,
        "tuned": tuned,
        "grid": grid,
        "warnings": notes,
    }


def _grid(items: Sequence[Scored]) -> dict[str, list[float]]:
    grids = [sensitivity_grid(item.pair, item.beta) for item in items]
    return {name: [grid[name] for grid in grids] for name in grids[0]}


def attribution_report(items: Sequence[Scored], token: str = "sum", success: float = 1.0) -> Json:
    """The decisive message of every failed or ungraded trajectory by all rules; hit rates where marked.

    Raises:
        BadInput: every trajectory succeeded.
    """
    refuse_all_zero(item.pair for item in items)
    rule_name, _ = rules(token, "sum")
    failed = [item for item in items if item.facts.outcome is None or item.facts.outcome < success]
    if not failed:
        raise BadInput("every trajectory succeeded, so there is no failure to attribute")
    rows: list[Json] = []
    for item in failed:
        steps = step_advantages(item.pair, rule_name, item.beta)
        row: Json = {"id": item.facts.name, "marked": item.facts.decisive}
        for rule in ATTRIBUTION_RULES:
            named = decisive_step(steps, rule)
            row[rule] = asdict(named) | {
                "message": item.messages[named.step],
                "score": _plain(steps[named.step]),
            }
        rows.append(row)
    marked = [row for row in rows if row["marked"] is not None]
    accuracy = {}
    for rule in ATTRIBUTION_RULES if marked else ():
        truth = [int(row["marked"]) for row in marked]
        accuracy[rule] = asdict(step_accuracy([int(row[rule]["message"]) for row in marked], truth))
    return {"token": token, "failures": rows, "accuracy": accuracy or None, "warnings": warnings_of(items)}


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _interval(found: Interval | None) -> Json | None:
    return None if found is None else asdict(found)
