"""A probe run: rollouts on a tree in, probes, controls, curve and report in a folder out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from refork.errors import BadInput, CannotDo
from refork.jsonl import write_whole
from refork.judge import Judge, MatchJudge
from refork.policies.base import Policy
from refork.policies.whitebox import white_box
from refork.progress import Progress, silent
from refork.runs.recipe import RecipePart, SamplingPart
from refork.tree.score import Score
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.probe.cases import POSITIONS, Position
from refork_methods.probe.fit import FirstTokenProbe, FittedProbe
from refork_methods.probe.folds import Recipe
from refork_methods.probe.on_tree import position_states, thinking_states, write_scores
from refork_methods.probe.rows import Rows, read_rows
from refork_methods.probe.separability import separability_curve
from refork_methods.probe.sweep import prompt_sweep, sweep_layers
from refork_methods.probe.text_control import text_control
from refork_methods.stance.marker import marker_of
from refork_methods.stance.prompts import Case, draw_rollouts, plant_cases, prompt_file, rollouts

REPORT: Final = "report.json"
#: Folder of the hidden states that were read, within a run's.
STATES: Final = "states"


class ProbeRecipe(RecipePart):
    """What a probe run reads and how."""

    #: The tree file.
    tree: str
    #: The model that is read: hf:DIR or organism:NAME.
    policy: str
    #: JSON lines of prompt, intent, source; default: the tree's own tasks.
    prompts: str | None = None
    #: The score that says refused.
    score: str = "refusal"
    #: Grade ungraded rollouts: what a refusal matches.
    refusal_regex: str | None = None
    #: What opens the thinking.
    opening: str = "<think>"
    #: What closes it.
    close: str = "</think>"
    #: Rollouts of each prompt that are drawn first.
    draws: int = Field(default=0, ge=0)
    #: How they are drawn.
    sampling: SamplingPart = SamplingPart()
    #: Layer whose hidden state is read; negative from the last.
    layer: int | Literal["raw"] = -1
    #: How the probe is fitted.
    recipe: Recipe = "pca"
    #: Rollouts of each prompt that are rows; default: all.
    labels: int | None = Field(default=None, ge=1)
    #: Also follow the probe along the thinking.
    curve: Literal["hopping", "pooling", "none"] = "hopping"
    #: Shuffled fits that give the level of chance.
    permutations: int = Field(default=200, ge=20)
    #: Also probe 20 positions of the prompt at five depths.
    sweep: bool = False
    #: Address of the noise of draws and of the curve's shuffles; folds are fixed.
    seed: int = 0


def run_fit(
    folder: Path, recipe: ProbeRecipe, tree: Tree, policy: Policy, progress: Progress = silent
) -> Json:
    """Fit and judge the probes of a recipe; the report, also written to ``report.json`` in the folder.

    Rollouts that are missing are drawn first, and those on the tree are not drawn again. Hidden states are
    kept in ``states`` in the folder: a run that was stopped goes on, and one done again runs no model. Writes
    a probe per position, and the out-of-fold scores to the tree.

    Raises:
        CannotDo: the policy does not show hidden states.
        BadInput: no labelled rollouts, or fewer than five prompts with each outcome.
    """
    white_box(policy)
    cases = plant_cases(tree, policy, prompt_file(recipe.prompts))
    marker = marker_of(policy, recipe.close, recipe.opening)
    judge = MatchJudge(recipe.refusal_regex, recipe.score) if recipe.refusal_regex else None
    if recipe.draws:
        sampling = recipe.sampling.sampling()
        draw_rollouts(cases, policy, recipe.draws, sampling, seed=recipe.seed, progress=progress)
    if judge is not None:
        _grade(tree, cases, policy, judge)
    every = read_rows(tree, cases, policy.card, marker, recipe.score)
    rows = every if recipe.labels is None else every.at_most(recipe.labels)
    probes: dict[str, Json] = {}
    for position in POSITIONS:
        probes[position] = _position(folder, recipe, rows, every, policy, position, progress)
    probes["text_control"] = _text(recipe, rows, every, policy)
    report: Json = {
        "policy": policy.card.name, "weights": policy.card.weights, "layer": recipe.layer,
        "rows": rows.to_json(), "probes": probes, "curve": None, "sweep": None, "notes": [],
    }  # fmt: skip
    # One rollout of each prompt may hold too few of an outcome even where all rollouts hold enough.
    try:
        if recipe.curve != "none":
            report["curve"] = _curve(folder, recipe, rows, policy, progress)
    except (BadInput, CannotDo) as error:
        report["notes"].append(f"no separability curve: {error.what}")
    try:
        if recipe.sweep:
            report["sweep"] = _sweep(folder, recipe, every, policy, progress)
    except (BadInput, CannotDo) as error:
        report["notes"].append(f"no prompt sweep: {error.what}")
    write_whole(folder / REPORT, json.dumps(report, indent=2) + "\n")
    return report


def leaks(report: Json) -> list[str]:
    """Names of the areas of a report that lie above their ceiling."""
    found = []
    for name, probe in report["probes"].items():
        parts = {"pooled": probe["pooled"], **probe["within"]} if probe["pooled"] else {}
        found += [f"{name}/{group}" for group, part in parts.items() if part["leak"]]
    return found


def _grade(tree: Tree, cases: Sequence[Case], policy: Policy, judge: Judge) -> None:
    """Give the judge's verdict to rollouts that have none of its own."""
    producer = tree.add_producer(judge.producer)
    nodes = [node for case in cases for node in rollouts(case, policy.card)]
    known = tree.score_map(judge.score, nodes, producer)
    open_ = [node for node in nodes if node.id not in known]
    scores = []
    for node, trajectory in zip(open_, tree.paths(open_), strict=True):
        value = judge.judge(trajectory).value
        if value is not None:
            scores.append(Score(node.id, judge.score, value, producer))
    tree.add_scores(scores)


def _position(
    folder: Path,
    recipe: ProbeRecipe,
    rows: Rows,
    every: Rows,
    policy: Policy,
    position: Position,
    progress: Progress,
) -> Json:
    part = rows.thoughtful() if position == "first_thinking" else rows
    if not part.rows:
        return _nothing("no rollout has a thinking token")
    kept = folder / STATES / position
    states = position_states(part, policy, position, [recipe.layer], progress, folder=kept)[0]
    probe = FirstTokenProbe(position, recipe.layer, recipe.recipe)
    try:
        fitted = probe.fit(
            states, part.labels, prompts=part.prompts, counts=every.sharing(part, position),
            first_tokens=[row.opening for row in part.rows],
        )  # fmt: skip
    except BadInput as error:
        if position == "last_prompt":
            raise
        return _nothing(error.what)
    file = folder / f"{position}.safetensors"
    fitted.save(file, {"policy": policy.card.name, "weights": policy.card.weights, "score": recipe.score})
    write_scores(rows.tree, part, fitted, policy, recipe.score)
    return judged(fitted, part) | {"file": file.name, "converged": fitted.linear.converged}


def _text(recipe: ProbeRecipe, rows: Rows, every: Rows, policy: Policy) -> Json:
    part = rows.thoughtful()
    if not part.rows:
        return _nothing("no rollout has a thinking token")
    tokens = [str(row.token) for row in part.rows]
    probe = FirstTokenProbe("first_thinking", recipe.layer, recipe.recipe)
    # From all rollouts, not the rows alone: rows of one label per prompt carry no ceiling.
    counts = every.sharing(part, "first_thinking", token_alone=True)
    try:
        fitted = text_control(tokens, part.labels, prompts=part.prompts, probe=probe, counts=counts)
    except BadInput as error:
        return _nothing(error.what)
    return judged(fitted, part) | {"different_tokens": len(set(tokens))}


def judged(fitted: FittedProbe, rows: Rows) -> Json:
    """A fitted probe's evaluation, within groups where these hold enough of both outcomes."""
    try:
        return fitted.evaluate(rows.intents, rows.sources).to_json()
    except BadInput as error:
        return fitted.evaluate().to_json() | {"left_out": {"groups": error.what}}


def _nothing(reason: str) -> Json:
    return {"pooled": None, "within": {}, "left_out": {"all": reason}}


def _curve(folder: Path, recipe: ProbeRecipe, rows: Rows, policy: Policy, progress: Progress) -> Json | None:
    """Separability along the thinking of one rollout of each prompt."""
    one = rows.thoughtful().at_most(1)
    if recipe.curve == "none" or not one.rows:
        return None
    kept = folder / STATES
    states = thinking_states(one, policy, recipe.layer, recipe.curve, folder=kept, progress=progress)
    found = separability_curve(
        states, one.labels, permutations=recipe.permutations, seed=recipe.seed, progress=progress
    )
    return found.to_json() | {"reading": recipe.curve, "traces": len(one.rows)}


def _sweep(folder: Path, recipe: ProbeRecipe, rows: Rows, policy: Policy, progress: Progress) -> Json:
    from refork.policies.local import LocalPolicy

    if not isinstance(policy, LocalPolicy):
        raise CannotDo(f"{policy.card.name!r} does not say how many layers it has", where="prompt sweep")
    blocks = policy.decoder.backbone.blocks
    plan = FirstTokenProbe("last_prompt", recipe.layer, recipe.recipe)
    found = prompt_sweep(
        rows, policy, sweep_layers(blocks), probe=plan, folder=folder / STATES, progress=progress
    )
    return found.to_json()
