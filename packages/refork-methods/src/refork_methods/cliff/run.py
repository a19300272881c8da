"""A run over a recorded tree in a folder of its own: scan, verify, pairs, train; each step resumes.

``recipe.json``  what the run is; another recipe in the same folder is refused
``traces.jsonl`` a line per scanned trace, written as it ends
``tokens.jsonl`` a line per token: counts, interval, probability, entropy, rank, largest possible drop
``cliffs.json``  the re-tested tokens, and what deleting them does
``pairs.jsonl``  preference pairs; ``pairs.json``: the continuations drawn for them
``unproven.*``   the same of the published recipe, at tokens that were tested once
``policy-*/``    trained weights or adapters, a folder per set of kinds

All draws are on the tree, so a step done again draws only what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from refork.errors import BadInput, CannotDo
from refork.forking.potential import action_steps
from refork.jsonl import write_whole
from refork.judge import Judge, MatchJudge
from refork.policies.base import Policy
from refork.policies.load import quiet
from refork.policies.open import open_policy
from refork.progress import Progress, silent
from refork.runs.recipe import RecipePart
from refork.sampling.noise import stream_of
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import World
from refork.worlds.open import open_world, recorded_world
from refork_methods.cliff.candidates import Choices, candidates
from refork_methods.cliff.curve import Curve, reuse_factor
from refork_methods.cliff.detect import Rule, screen
from refork_methods.cliff.intervene import KS, Contrast, contrast, random_positions
from refork_methods.cliff.pairs import Pair, Variant, cliff_pairs, read_pairs, write_pairs
from refork_methods.cliff.records import cliff_row, token_rows
from refork_methods.cliff.scan import Nominee, Scanned, nominate, token_potential
from refork_methods.cliff.select import Which, choose_traces
from refork_methods.cliff.verify import Cliff, as_published, verify

if TYPE_CHECKING:
    from refork_methods.cliff.dpo import CliffDpoSettings


class CliffRecipe(RecipePart):
    """What a run is."""

    #: The tree file.
    tree: str
    #: The policy that made the traces.
    policy: str
    #: Who grades; default: the world that each trace was recorded in.
    world: str | None = None
    #: Without a world: what a right last turn matches.
    success_regex: str | None = None
    #: Which traces, by outcome.
    traces: Which = "wrong"
    #: Draws that serve each token.
    draws: int = Field(default=64, ge=16)
    #: Begin with 16 draws and go on only where a cliff is in doubt.
    sequential: bool = True
    #: The test that nominates tokens: paired, or the published one.
    rule: Rule = "paired"
    #: A drop that does not count.
    delta0: float = Field(default=0.1, ge=0, lt=1)
    #: Level of the nominating test.
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    #: Fresh draws of either side of a nominee.
    retest: int = Field(default=64, ge=16)
    #: Share of false cliffs among those that survive.
    fdr: float = Field(default=0.1, gt=0, lt=1)
    #: Address of the noise.
    seed: int = 0


@dataclass(frozen=True, slots=True)
class CliffRun:
    """An open run: its folder and recipe, and what the recipe names."""

    folder: Path
    recipe: CliffRecipe
    tree: Tree
    policy: Policy
    world: World | None
    judge: Judge | None


def open_run(
    folder: Path, recipe: CliffRecipe, tree: Tree, policy: Policy | None = None, *, trusted: bool = True
) -> CliffRun:
    """A run on an open tree; ``policy`` None opens the recipe's.

    ``trusted``: the recipe's world was typed by the user; a folder's own is opened by installed names only.

    Raises: BadInput where neither a world nor a pattern could grade a continuation, or none is named for a
        tree of several worlds.
    """
    recorded = list(dict.fromkeys(task.extra.get("world") for task in tree.tasks()))
    if not recorded:
        raise BadInput("the tree is empty", where=recipe.tree)
    judge = MatchJudge(recipe.success_regex) if recipe.success_regex else None
    if len(recorded) > 1 and not recipe.world and judge is None:
        raise BadInput(
            f"the tasks of this tree are of several worlds: {', '.join(map(str, recorded))}",
            where=recipe.tree,
            hint="name who grades them all: a world (--world) or a pattern (--success-regex)",
        )
    spec = recipe.world or (None if judge else recorded[0])
    opener = open_world if recipe.world and trusted else recorded_world
    world = opener(str(spec)) if spec and spec != "none" else None
    if world is None and judge is None:
        raise BadInput(
            "nobody can say whether a continuation is right",
            where=recipe.tree,
            hint="name the world (--world) or the right answer's pattern (--success-regex)",
        )
    return CliffRun(folder, recipe, tree, policy or open_policy(recipe.policy), world, judge)


def load_recipe(folder: Path) -> CliffRecipe:
    """The recipe of a run's folder; raises BadInput where there is none."""
    file = folder / "recipe.json"
    if not file.exists():
        raise BadInput("this folder holds no run", where=str(folder), hint="begin with `refork cliff scan`")
    return CliffRecipe.model_validate(json.loads(file.read_text())["recipe"])


def scanned_traces(run: CliffRun) -> list[Scanned]:
    """The traces that were scanned to their end, in order."""
    found = []
    for row in _rows(run.folder / "traces.jsonl"):
        if row["complete"]:
            end = run.tree.at(str(row["leaf"]))
            found.append(Scanned(end, run.tree.path(end), Curve.from_json(row["curve"])))
    return found


def _rows(file: Path) -> list[Json]:
    # A line that a crash cut short is written again by the next call.
    rows = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def _mend(folder: Path) -> None:
    """Drop what a crash left half written: cut lines, and tokens of a trace that is not in the list."""
    traces = _rows(folder / "traces.jsonl")
    done = {row["leaf"] for row in traces}
    tokens = [row for row in _rows(folder / "tokens.jsonl") if row["leaf"] in done]
    for name, rows in (("tokens.jsonl", tokens), ("traces.jsonl", traces)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        file = folder / name
        if file.exists() and file.read_text() != text:
            part = file.with_suffix(".part")
            part.write_text(text)
            part.replace(file)


def spent(folder: Path) -> int:
    """Continuations that the run in a folder has used for scans, re-tests and pairs so far."""
    scans = sum(int(row["curve"]["sampled"]) for row in _rows(folder / "traces.jsonl") if row["complete"])
    return scans + sum(_sampled(folder / name) for name in ("cliffs.json", "pairs.json", "unproven.json"))


def _sampled(file: Path) -> int:
    return int(json.loads(file.read_text())["sampled"]) if file.exists() else 0


def run_scan(
    run: CliffRun, limit: int | None = None, budget: int | None = None, progress: Progress = silent
) -> Json:
    """Scan the tree's traces one by one; again it goes on behind the last one. Returns a summary.

    ``limit``: at most so many traces in all; ``budget``: continuations that the whole run may use.
    """
    recipe = run.recipe
    _mend(run.folder)
    done = {trace.end.node.id for trace in scanned_traces(run)}
    # Chosen once: later forks must not change which traces the run is about.
    listing = run.folder / "chosen.json"
    if listing.exists():
        ends = [run.tree.at(leaf) for leaf in json.loads(listing.read_text())]
    else:
        ends = choose_traces(run.tree, recipe.traces, judge=run.judge)
        listing.write_text(json.dumps([end.node.id for end in ends]))
    ends = ends if limit is None else ends[:limit]
    used, stopped = spent(run.folder), False
    for number, end in enumerate(ends):
        if end.node.id in done:
            continue
        found = token_potential(
            end, run.policy, recipe.draws, sequential=recipe.sequential, delta0=recipe.delta0,
            world=run.world, judge=run.judge, seed=recipe.seed,
            room=None if budget is None else budget - used,
        )  # fmt: skip
        if not found.complete:
            stopped = True
            break
        used += found.curve.sampled
        _record(run, found)
        progress("scanning traces", number + 1, len(ends))
    return {**summary(run), "traces_chosen": len(ends), "budget_reached": stopped}


def _record(run: CliffRun, found: Scanned) -> None:
    """Write a trace's potential to the tree and to the run's files."""
    # The list of traces comes last: a trace that is on it has all its tokens in the other file (see _mend).
    _store_potential(run, found)
    with (run.folder / "tokens.jsonl").open("a") as out:
        out.writelines(json.dumps(row) + "\n" for row in token_rows(found, run.policy))
    row = {"leaf": found.end.node.id, "complete": True, "curve": found.curve.to_json()}
    with (run.folder / "traces.jsonl").open("a") as out:
        out.write(json.dumps(row) + "\n")


def _store_potential(run: CliffRun, found: Scanned) -> None:
    card, recipe = run.policy.card, run.recipe
    config: Json = {"policy": card.weights or card.name, "seed": recipe.seed, "draws": recipe.draws}
    config |= {"points": "before token", "sequential": recipe.sequential, "leaf": found.end.node.id}
    # Only where set: without them a producer is the one that older runs recorded.
    config |= recipe.model_dump(include={"delta0", "world", "success_regex"}, exclude_defaults=True)
    producer = Producer("cliff-scan", "1", config)
    scores, first = [], 0
    for node, keep in action_steps(found.trajectory):
        row = found.curve.value[first : first + keep]
        first += keep
        # A score covers all tokens of its node and has no gap; a node cut short or half known gets none.
        if keep == node.length and not np.isnan(row).any():
            scores.append(Score(node.id, "potential", row, producer.id))
    run.tree.add_producer(producer)
    run.tree.add_scores(scores)


def _nominees(run: CliffRun, traces: Sequence[Scanned]) -> list[Nominee]:
    recipe = run.recipe
    return [
        n for t in traces for n in nominate(t, rule=recipe.rule, delta0=recipe.delta0, alpha=recipe.alpha)
    ]


def _verified(run: CliffRun, nominees: Sequence[Nominee], progress: Progress) -> list[Cliff]:
    recipe = run.recipe
    return verify(
        nominees, run.policy, recipe.retest, delta0=recipe.delta0, fdr=recipe.fdr, world=run.world,
        judge=run.judge, seed=recipe.seed, progress=progress,
    )  # fmt: skip


def run_verify(
    run: CliffRun, budget: int | None = None, effects: bool = True, progress: Progress = silent
) -> Json:
    """Re-test every nominee, then delete and keep what survived, beside a control. Returns a summary.

    Nominees that the budget does not reach are left out and counted: all tests of a run are one family, so
    their q-values change when more are tested.
    """
    traces = scanned_traces(run)
    if not traces:
        raise BadInput("no trace was scanned yet", where=str(run.folder), hint="refork cliff scan")
    recipe = run.recipe
    nominees = _nominees(run, traces)
    room = len(nominees)
    if budget is not None:
        # What earlier tests have cost already is on the tree.
        used = spent(run.folder) - _sampled(run.folder / "cliffs.json")
        room = max(0, (budget - used) // (2 * recipe.retest))
    found = _verified(run, nominees[:room], progress)
    real = [cliff.nominee for cliff in found if cliff.real]
    sampled = sum(cliff.sampled for cliff in found)
    record: Json = {"left_out": len(nominees) - len(found), "sampled": sampled, "effects": None}
    # Deleting and keeping, at every cliff and at one other position for each.
    if effects and len(real) >= 2 and (budget is None or room >= len(nominees) + 2 * len(real)):
        record["effects"] = _effects(run, real, nominees, traces, progress)
        record["sampled"] += record["effects"]["sampled"]
    record["cliffs"] = [cliff_row(cliff) for cliff in found]
    part = run.folder / "cliffs.json.part"
    part.write_text(json.dumps(record, indent=1) + "\n")
    part.replace(run.folder / "cliffs.json")
    return summary(run)


def _effects(
    run: CliffRun,
    real: Sequence[Nominee],
    nominees: Sequence[Nominee],
    traces: Sequence[Scanned],
    progress: Progress,
) -> Json:
    draws, seed = run.recipe.retest, run.recipe.seed
    control = random_positions(real, traces, seed=seed, avoid=nominees)
    sides: dict[str, Contrast] = {
        name: contrast(
            where, run.policy, draws, world=run.world, judge=run.judge, seed=seed, progress=progress
        )
        for name, where in (("cliffs", real), ("control", control))
    }
    told: Json = {"sampled": sum(side.sampled for side in sides.values())}
    for name, side in sides.items():
        if len(side.kept_counts) < 2:
            continue
        told[name] = {"positions": len(side.kept_counts)}
        for k in KS:
            gain, (gone, kept) = side.gain(k), side.pass_at(k)
            told[name][f"pass@{k}"] = {
                "deleted": gone, "kept": kept, "gain": gain.estimate, "low": gain.low, "high": gain.high,
            }  # fmt: skip
    return told


def run_pairs(
    run: CliffRun,
    k: int = 10,
    variant: Variant = "1:N",
    budget: int | None = None,
    progress: Progress = silent,
) -> Json:
    """Try other tokens at every cliff that survived and write the preference pairs. Returns a summary.

    The cliffs are those of :func:`run_verify`, which runs first where it never did.
    """
    record = run.folder / "cliffs.json"
    if not record.exists():
        run_verify(run, budget, effects=False, progress=progress)
    # The same tests again, whose draws are on the tree: more of them would be another family.
    tested = {(row["leaf"], row["index"]) for row in json.loads(record.read_text())["cliffs"]}
    nominees = _nominees(run, scanned_traces(run))
    known = [n for n in nominees if (n.trace.end.node.id, n.index) in tested]
    real = [cliff for cliff in _verified(run, known, progress) if cliff.real]
    if not real:
        raise BadInput("no cliff survived its re-test", where=str(run.folder), hint="scan more traces")
    room, drawn = len(real), run.folder / "pairs.json"
    if budget is not None:
        # What pairs have cost already is on the tree, too.
        room = max(0, (budget - spent(run.folder) + _sampled(drawn)) // (k * run.recipe.retest))
    choices: list[Choices] = candidates(
        real[:room], run.policy, k, run.recipe.retest, world=run.world, judge=run.judge,
        seed=run.recipe.seed, progress=progress,
    )  # fmt: skip
    told = _write_pairs(run, choices, cliff_pairs(choices, run.policy, variant), "pairs", 0)
    return told | {"left_out": len(real) - len(choices)}


def _write_pairs(
    run: CliffRun, choices: Sequence[Choices], pairs: Sequence[Pair], name: str, scanned: int
) -> Json:
    """Pairs and what they cost, beside the run's other files. Returns a summary."""
    file, drawn = run.folder / f"{name}.jsonl", run.folder / f"{name}.json"
    write_pairs(pairs, file)
    sampled = scanned + sum(c.sampled for c in choices)
    # Fewer cliffs or candidates than before cost nothing new.
    write_whole(drawn, json.dumps({"sampled": max(sampled, _sampled(drawn))}) + "\n")
    return {
        "cliffs": len(choices),
        "pairs": len(pairs),
        "text_form": sum(pair.messages is not None for pair in pairs),
        "cliff_mass": [{"kind": c.cliff.kind, "mass": c.mass} for c in choices],
        "rollouts": sampled,
        "file": str(file),
    }


def run_unproven(
    run: CliffRun,
    k: int = 10,
    variant: Variant = "1:N",
    budget: int | None = None,
    progress: Progress = silent,
) -> Json:
    """Pairs by the published recipe: at every token that its test takes for a cliff once, without a re-test.

    Only so there are pairs at deterministic cliffs, of which none survives one. Each scanned trace is scanned
    twice more, all its draws at every boundary. Returns a summary.
    """
    recipe, drawn = run.recipe, run.folder / "unproven.json"
    traces = scanned_traces(run)
    if not traces:
        raise BadInput("no trace was scanned yet", where=str(run.folder), hint="refork cliff scan")
    room = None if budget is None else budget - spent(run.folder) + _sampled(drawn)
    found: list[Cliff] = []
    scanned = passed = 0
    for trace in traces:
        first = _again(run, trace, 0, None if room is None else room - scanned, progress)
        scanned += first.curve.sampled
        second = _again(run, trace, 1, None if room is None else room - scanned, progress)
        scanned += second.curve.sampled
        if not (first.complete and second.complete):
            break
        passed += 1
        found += as_published(first, second, run.policy, delta0=recipe.delta0, alpha=recipe.alpha)
    if room is not None:
        found = found[: max(0, (room - scanned) // (k * recipe.draws))]
    choices = candidates(
        found, run.policy, k, recipe.draws, world=run.world, judge=run.judge, seed=recipe.seed,
        progress=progress,
    )  # fmt: skip
    pairs = cliff_pairs(choices, run.policy, variant, unproven=True)
    told = _write_pairs(run, choices, pairs, "unproven", scanned)
    return told | {"traces": passed, "traces_left_out": len(traces) - passed}


def _again(run: CliffRun, trace: Scanned, side: int, room: int | None, progress: Progress) -> Scanned:
    """A trace scanned once more, all its draws at every boundary, on noise of its own for each side."""
    recipe = run.recipe
    return token_potential(
        trace.end, run.policy, recipe.draws, sequential=False, delta0=recipe.delta0, world=run.world,
        judge=run.judge, seed=stream_of("published", recipe.seed, side) >> 33, room=room, progress=progress,
    )  # fmt: skip


def summary(run: CliffRun) -> Json:
    """What the run has found and what it cost; None where a step was never done."""
    return read_run(run.folder)


def read_run(folder: Path) -> Json:
    """As :func:`summary`, from the files alone: no tree, no policy. Raises BadInput without a run."""
    recipe = load_recipe(folder)
    curves = [Curve.from_json(row["curve"]) for row in _rows(folder / "traces.jsonl") if row["complete"]]
    file = folder / "cliffs.json"
    record: Json = json.loads(file.read_text()) if file.exists() else {}
    rows = record.get("cliffs")
    sampled = sum(curve.sampled for curve in curves)
    screened = (screen(c, rule=recipe.rule, delta0=recipe.delta0, alpha=recipe.alpha) for c in curves)
    return {
        "traces": len(curves),
        "tokens": sum(len(curve) for curve in curves),
        "nominated": sum(len(found) for found in screened),
        "tested": None if rows is None else len(rows),
        "survived": None if rows is None else sum(row["real"] for row in rows),
        "cliffs": rows,
        "effects": record.get("effects"),
        "rollouts": spent(folder),
        "reuse_factor": reuse_factor(curves) if sampled else None,
    }


def read_tokens(folder: Path) -> list[Json]:
    """The scanned tokens of a run, in order of traces and positions."""
    return _rows(folder / "tokens.jsonl")


def run_train(
    folder: Path,
    policy: Policy,
    kinds: str = "all",
    settings: CliffDpoSettings | None = None,
    progress: Progress = silent,
    *,
    unproven: bool = False,
) -> Json:
    """Train a local policy on the run's pairs of some kinds and save it in ``folder/policy-KINDS``.

    ``unproven``: on those of :func:`run_unproven`; the folder is then ``policy-unproven-KINDS``.

    Raises:
        CannotDo: the policy has no weights here.
        BadInput: no pairs, none of these kinds, or a policy saved there already.
    """
    from refork.policies.local import LocalPolicy
    from refork_methods.cliff.dpo import cliff_dpo

    name = f"unproven-{kinds}" if unproven else kinds
    wanted, target = kinds_of(kinds), folder / f"policy-{name}"
    if not isinstance(policy, LocalPolicy):
        raise CannotDo(f"policy {policy.card.name!r} has no weights to train here", hint="use hf:DIR")
    if target.exists():
        raise BadInput("a trained policy is there already", where=str(target), hint="remove it to train anew")
    source = folder / ("unproven.jsonl" if unproven else "pairs.jsonl")
    pairs = [p for p in read_pairs(source) if wanted is None or p.kind in wanted]
    if not pairs:
        raise BadInput(f"there are no pairs at {kinds} cliffs", where=str(source))
    done = cliff_dpo(policy, pairs, settings, progress)
    part = folder / f".policy-{name}.part"
    with quiet():
        policy.model.save_pretrained(part)
        policy.codec.tokenizer.save_pretrained(part)
    (part / "train_log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in done.log))
    part.replace(target)
    told: Json = {f.name: getattr(done, f.name) for f in fields(done) if f.name != "log"}
    return told | {"updates": len(done.log), "kinds": kinds, "policy": str(target)}


def kinds_of(name: str) -> tuple[str, ...] | None:
    """The kinds that a training set's name stands for; None: all. Raises BadInput for an unknown one."""
    sets: dict[str, tuple[str, ...] | None] = {
        "all": None,
        "deterministic": ("deterministic",),
        "uncertain": ("uncertain",),
        "sampled-off": ("sampled-off",),
        "uncertain+sampled-off": ("uncertain", "sampled-off"),
    }
    if name not in sets:
        raise BadInput(f"unknown set of cliffs {name!r}", hint=", ".join(sets))
    return sets[name]
