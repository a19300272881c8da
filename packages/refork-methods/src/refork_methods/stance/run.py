"""Stance runs in folders of their own: ``variance`` and ``cuts`` over prompts on a tree, each resumes.

``recipe.json``      what the run is; another recipe in the same folder is refused
``variance.json``    V at every cut in every mode; ``groups.jsonl``: the counts behind it
``rates.jsonl``      refusals of every prompt's complete rollouts; ``rates-no-think.jsonl`` without thinking
``cuts.json``        judged turns of stance
``frontier.json``    where defences stand to the shift curve of a base

All draws and votes are on the tree, so a run done again draws and asks only what is missing.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from pydantic import Field

from refork.errors import BadInput
from refork.forking.arm import recorded_settings
from refork.jsonl import read_utf8, write_whole
from refork.plain import to_json
from refork.policies.base import Policy, Sampling
from refork.policies.open import open_policy
from refork.progress import Progress, silent
from refork.registry import resolve
from refork.runs.recipe import RecipePart, SamplingPart, open_folder
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.stance.cuts import CutTable, Locked, cut_json
from refork_methods.stance.endpoint import EndpointAnnotator, EndpointGuard
from refork_methods.stance.frontier import Flips, Rate, flips, frontier, read_rates
from refork_methods.stance.guards import BatchGuard, CallGuard, Panel, RegexGuard, Tie, check_patterns
from refork_methods.stance.label import ANSWER_TOKENS, answer_settings, label
from refork_methods.stance.marker import Marker, marker_of
from refork_methods.stance.prompts import (
    Case,
    choose,
    draw_answers,
    draw_rollouts,
    plant_cases,
    prompt_file,
    rollouts,
)
from refork_methods.stance.replay import CausalCuts, causal_cuts, stance_trace
from refork_methods.stance.resample import CUTS, VarianceTable, continuation_variance
from refork_methods.stance.segments import LEAST, MOST, Annotator, BatchAnnotator, Chunk, chunks, word_chunks
from refork_methods.stance.variance import CONFOUNDED, MODES, Mode, Unit, reading

_HINT = "regex:PATTERN, python:FILE.py:NAME or model:FILE.toml"


def open_panel(specs: list[str], tie: Tie | None = None) -> Panel:
    """A panel from the names of its guards. Raises BadInput for a name that says nothing."""
    return Panel(tuple(open_guard(spec) for spec in specs), tie)


def open_guard(spec: str) -> BatchGuard:
    """The guard that a name stands for. Raises BadInput for one that says nothing."""
    kind, rest = _parted(spec, "guard")
    if kind == "regex":
        return RegexGuard(rest)
    if kind == "python":
        return CallGuard(_callable(rest, spec), rest)
    data = _table(rest, ("policy", "template", "refuse", "comply", "tokens"))
    return EndpointGuard(open_policy(data.pop("policy")), **data)


@final
@dataclass(frozen=True, slots=True)
class PatternAnnotator:
    """+1 where only the first pattern is found in a chunk, -1 where only the second is, else 0."""

    comply: str
    refuse: str

    def __call__(self, chunk: str) -> int:
        """The stance of a chunk."""
        hits = [re.search(p, chunk, re.IGNORECASE) is not None for p in (self.comply, self.refuse)]
        return int(hits[0]) - int(hits[1])


def open_annotator(spec: str) -> Annotator | BatchAnnotator:
    """The stance annotator that a name stands for. Raises BadInput for one that says nothing."""
    kind, rest = _parted(spec, "annotator")
    if kind == "python":
        return _callable(rest, spec)
    if kind == "model":
        data = _table(rest, ("policy", "template", "refuse", "comply", "neither", "tokens"))
        return EndpointAnnotator(open_policy(data.pop("policy")), **data)
    comply, mark, refuse = rest.partition("//")
    if not (mark and comply and refuse):
        raise BadInput("a stance pattern needs two sides", where=spec, hint="regex:COMPLY//REFUSE")
    check_patterns({"comply": comply, "refuse": refuse})
    return PatternAnnotator(comply, refuse)


def _parted(spec: str, what: str) -> tuple[str, str]:
    kind, mark, rest = spec.partition(":")
    if kind not in ("regex", "python", "model") or not mark or not rest:
        raise BadInput(f"{spec!r} names no {what}", hint=_HINT)
    return kind, rest


def _callable(rest: str, spec: str) -> Callable[[str], Any]:
    if not rest.rpartition(":")[0]:
        raise BadInput(f"{spec!r} names no callable", hint=_HINT)
    call = resolve("judges", rest)
    if not callable(call):
        raise BadInput(f"{rest!r} is no callable", where=spec)
    return call  # type: ignore[no-any-return]  # what it returns is checked at every call


def _table(file: str, known: tuple[str, ...]) -> Json:
    try:
        data = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput("there is no such file", where=file) from error
    except ValueError as error:
        raise BadInput(f"the file is not TOML: {error}", where=file) from error
    unknown = sorted(set(data) - set(known))
    if unknown or "policy" not in data:
        named = f"unknown key {unknown[0]!r}" if unknown else "the key 'policy' is missing"
        raise BadInput(named, where=file, hint=f"keys: {', '.join(known)}")
    return data


class StanceRecipe(RecipePart):
    """What every stance run is: prompts, the policy that thinks, how its thinking ends, and who judges."""

    #: The tree file.
    tree: str
    #: The policy that thinks.
    policy: str
    #: File of prompts; default: the tree's own tasks, which then carry intents.
    prompts: str | None = None
    #: Rollouts of each prompt; default: the recorded ones.
    rollouts: int | None = Field(default=None, ge=1)
    #: How thinking is drawn.
    sampling: SamplingPart = SamplingPart(max_tokens=2048)
    #: What ends the thinking.
    close: str = "</think>"
    #: What opens it; empty where it begins with the turn.
    open: str = "<think>"
    #: Ids kept from being generated while thinking is carried on; default: the first of the closing marker.
    banned: tuple[int, ...] = ()
    #: Who says refuse or comply.
    guards: tuple[str, ...]
    #: What an even split of the guards means.
    tie: Tie | None = None
    #: Close by force what never closes by itself.
    force_close: bool = False
    #: Tokens of an answer at most.
    answer_tokens: int = Field(default=ANSWER_TOKENS, ge=1)
    #: Address of the noise.
    seed: int = 0
    #: Digests of the files that the recipe names; filled in.
    files: dict[str, str] = Field(default_factory=dict)


class VarianceRecipe(StanceRecipe):
    """A variance run."""

    #: Shares of the thinking that are kept.
    cuts: tuple[float, ...] = CUTS
    #: Whether the thinking is closed by force at a cut, or goes on freely.
    modes: tuple[Mode, ...] = MODES
    #: Rollouts that are cut, of each prompt.
    prefixes: int = Field(default=8, ge=1)
    #: Draws of each cut.
    continuations: int = Field(default=8, ge=2)
    #: Answers of each prompt that are also drawn without thinking.
    no_think: int = Field(default=0, ge=0)
    #: What intervals draw again: prompts and then prefixes, or pairs of them as if independent.
    unit: Unit = "nested"


class CutsRecipe(StanceRecipe):
    """A run of causal cuts."""

    #: Who says what a chunk leans to.
    annotators: tuple[str, ...]
    #: Rollouts of each prompt that are cut.
    traces: int = Field(default=1, ge=1)
    #: Answers that are drawn at each cut.
    answers: int = Field(default=100, ge=2)
    #: Level of the tests.
    alpha: float = Field(default=0.05, gt=0, lt=1)
    #: Where a cut is locked: by the rate before it, or on each side of it.
    locked: Locked = "pre"
    #: Every word is a chunk.
    words: bool = False
    #: Characters that sentences are merged up to.
    most: int = Field(default=MOST, ge=1)
    #: Chunks of so many characters or fewer are dropped.
    least: int = Field(default=LEAST, ge=0)


@final
@dataclass(frozen=True, slots=True)
class StanceRun:
    """An open run: its folder, the cases on its tree, and what its recipe names."""

    folder: Path
    cases: tuple[Case, ...]
    policy: Policy
    panel: Panel
    marker: Marker


def digests(*names: str | None) -> dict[str, str]:
    """SHA-256 (16 hex digits) of the files among names such as ``p.jsonl`` or ``model:FILE.toml``."""
    found = {}
    for name in names:
        place = (name or "").removeprefix("model:").removeprefix("python:")
        file = Path(place.rpartition(":")[0] if ".py:" in place else place)
        if name and not name.startswith("regex:") and file.is_file():
            found[name] = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    return found


def open_run(
    folder: Path,
    recipe: StanceRecipe,
    tree: Tree,
    policy: Policy | None = None,
    progress: Progress = silent,
) -> StanceRun:
    """The run of a recipe on an open tree: prompts planted and rollouts drawn where it says so.

    Raises: BadInput for prompts, guards or markers that cannot be used; Mismatch where the folder holds
    another run.
    """
    panel = open_panel(list(recipe.guards), recipe.tie)
    acting = policy or open_policy(recipe.policy)
    marker = marker_of(acting, recipe.close, recipe.open, recipe.banned)
    prompts = prompt_file(recipe.prompts)
    # Behind all that a wrong name can break, but before any draw: another run's folder adds nothing.
    open_folder(folder, recipe)
    cases = plant_cases(tree, acting, prompts)
    if recipe.rollouts is not None:
        sampling = recipe.sampling.sampling()
        draw_rollouts(cases, acting, recipe.rollouts, sampling, seed=recipe.seed, progress=progress)
    return StanceRun(folder, tuple(cases), acting, panel, marker)


def run_variance(run: StanceRun, recipe: VarianceRecipe, progress: Progress = silent) -> Json:
    """Measure V, write its files, and return what ``variance.json`` holds."""
    table = continuation_variance(
        run.cases, run.policy, run.panel, run.marker, cuts=recipe.cuts, n_prefix=recipe.prefixes,
        n_cont=recipe.continuations, modes=recipe.modes, force_unclosed=recipe.force_close,
        answer_tokens=recipe.answer_tokens, seed=recipe.seed, unit=recipe.unit, progress=progress,
    )  # fmt: skip
    told = variance_json(table, recipe.modes) | {"panel": run.panel.to_json(), "prompts": len(run.cases)}
    whole = {g.prompt: (g.refused, g.answers) for g in table.rows[0].groups}
    write_lines(run.folder / "rates.jsonl", [asdict(r) for r in _rates(run.cases, whole)])
    if recipe.no_think:
        counts = _no_think(run, recipe, progress)
        write_lines(run.folder / "rates-no-think.jsonl", [asdict(r) for r in _rates(run.cases, counts)])
    rows = [asdict(g) | {"cut": row.cut, "mode": row.mode} for row in table.rows for g in row.groups]
    write_lines(run.folder / "groups.jsonl", rows)
    write_json(run.folder / "variance.json", told)
    return told


def _no_think(run: StanceRun, recipe: VarianceRecipe, progress: Progress) -> dict[str, tuple[int, int]]:
    sampling = answer_settings(_sampling(run, recipe), recipe.answer_tokens)
    arms = draw_answers(
        run.cases, run.policy, run.marker, recipe.no_think, sampling, seed=recipe.seed, progress=progress
    )
    mine = {
        # The tree may hold more draws of this arm, from an earlier run that asked for more.
        case.id: [d.leaf for d in arm.draws if d.end != "error" and d.draw < recipe.no_think]
        for case, arm in zip(run.cases, arms, strict=True)
    }
    leaves = [leaf for some in mine.values() for leaf in some]
    found = label(run.cases[0].tree, leaves, run.policy, run.panel, run.marker, progress)
    return {id_: found.counts(some) for id_, some in mine.items()}


def _sampling(run: StanceRun, recipe: StanceRecipe) -> Sampling:
    """The distribution of the complete rollouts: the recipe's where it draws them, else the recorded one."""
    if recipe.rollouts is None:
        for case in run.cases:
            for node in rollouts(case, run.policy.card):
                return recorded_settings(case.tree.at(node), case.tree.path(node))
    return recipe.sampling.sampling()


def _rates(cases: Sequence[Case], counts: dict[str, tuple[int, int]]) -> list[Rate]:
    """Rates under the prompts' own texts, which are the same for every tokenizer."""
    texts = [case.root.node.text for case in cases]
    times = Counter(texts)
    return [
        Rate(
            # Two runs are matched by this name and none may come twice, yet two cases may share a text.
            text if times[text] == 1 else f"{text} [{case.id[:8]}]",
            case.intent,
            *counts[case.id],
            case.source,
        )
        for case, text in zip(cases, texts, strict=True)
    ]


def run_cuts(run: StanceRun, recipe: CutsRecipe, progress: Progress = silent) -> Json:
    """Label, fork and judge turns of stance, write ``cuts.json``, and return what it holds."""
    annotators = [open_annotator(spec) for spec in recipe.annotators]

    def chunker(text: str) -> list[Chunk]:
        return word_chunks(text) if recipe.words else chunks(text, recipe.most, recipe.least)

    traces = []
    for number, case in enumerate(run.cases):
        for node in choose(rollouts(case, run.policy.card), recipe.traces, case, recipe.seed):
            traces.append(
                stance_trace(
                    case, node, run.marker, annotators, chunker=chunker, force_unclosed=recipe.force_close
                )
            )
        progress("reading stances", number + 1, len(run.cases))
    found = causal_cuts(
        traces, run.policy, run.panel, run.marker, k=recipe.answers, alpha=recipe.alpha, locked=recipe.locked,
        answer_tokens=recipe.answer_tokens, seed=recipe.seed, progress=progress,
    )  # fmt: skip
    told = cuts_json(found) | {"panel": run.panel.to_json(), "answers": recipe.answers}
    write_json(run.folder / "cuts.json", told)
    return told


def run_frontier(
    folder: Path,
    base: Path,
    defences: dict[str, Path],
    *,
    seed: int = 0,
    resamples: int = 1000,
    progress: Progress = silent,
) -> Json:
    """Read rates (files, or folders of variance runs), write ``frontier.json``, and return what it holds."""
    found = {name: _read_rates(path) for name, path in {"base": base, **defences}.items()}
    own = found.pop("base")
    progress("resampling prompts", 0, 1)
    plane = frontier(own, found, seed=seed, resamples=resamples)
    progress("resampling prompts", 1, 1)
    folder.mkdir(parents=True, exist_ok=True)
    told: Json = {
        "base": to_json(plane.base),
        "defences": [
            to_json(d) | {"flips": [to_json(f) for f in _flips(own, found[d.name])]} for d in plane.defences
        ],
        "curve": plane.line.tolist(),
    }
    write_json(folder / "frontier.json", told)
    return told


def _flips(base: Sequence[Rate], other: Sequence[Rate]) -> list[Flips]:
    """Flips by pool; none where the two were measured on other prompts."""
    answered = [{r.prompt for r in side if r.answers} for side in (base, other)]
    return flips(base, other) if answered[0] & answered[1] else []


def _read_rates(path: Path) -> list[Rate]:
    file = path / "rates.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise BadInput(
            "there are no rates", where=str(file), hint="`refork probe variance` writes rates.jsonl"
        )
    # A prompt may hold what splitlines() takes for a line's end.
    return read_rates(read_utf8(file).split("\n"), str(file))


def variance_json(table: VarianceTable, modes: Sequence[Mode]) -> Json:
    """V at every cut as plain data, with what the two modes say together."""
    rows: list[Json] = []
    for row in table.rows:
        at = row.variance
        rows.append(
            {"cut": row.cut, "mode": row.mode, "v": to_json(at.value if at else None)}
            | {name: getattr(at, name, None) for name in ("plug_in", "coin", "pools", "groups", "left_out")}
            | {"parts": asdict(row.parts) if row.parts else None}
        )
    cuts = sorted({row.cut for row in table.rows if row.cut > 0})

    def at_mode(cut: float, mode: Mode) -> Any:
        return table.at(cut, mode) if mode in modes else None

    return {
        "cuts": rows,
        "reading": [
            {"cut": cut, "says": reading(at_mode(cut, "force_close"), at_mode(cut, "free"))} for cut in cuts
        ],
        "whole_against_forced_mixes": list(CONFOUNDED),
        "unopened": table.unopened, "unclosed": table.unclosed, "unvoted": table.unvoted,
        "errors": table.errors, "short": table.short, "empty": table.uncut.empty,
        "uncut_unopened": table.uncut.unopened, "uncut_unclosed": table.uncut.unclosed,
        "without_rollouts": table.bare, "ties": table.ties,
    }  # fmt: skip


def cuts_json(result: CausalCuts) -> Json:
    """Judged turns as plain data."""
    table: CutTable = result.table
    places = [asdict(place) for place in result.positions]
    return {
        "cells": table.cells,
        "performative": to_json(table.performative), "locked": to_json(table.locked),
        "agreement": to_json(table.agreement), "locked_rule": table.rule, "alpha": table.alpha,
        "traces": result.traces, "oscillations_per_trace": result.per_trace,
        "meaningful_per_trace": result.meaningful_per_trace,
        "with_oscillation": to_json(result.with_turns),
        "kappa": result.kappa, "left_out": result.left_out, "unclosed": result.unclosed,
        "unvoted": result.unvoted, "ties": result.ties,
        "cuts": [place | cut_json(cut) for place, cut in zip(places, table.cuts, strict=True)],
    }  # fmt: skip


def write_json(file: Path, report: Json) -> None:
    """Write one document, whole or not at all."""
    write_whole(file, json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def write_lines(file: Path, rows: Sequence[Json]) -> None:
    """Write JSON lines, whole or not at all."""
    write_whole(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
