"""Training runs of a simulator: recipe in; policy, curve, checkpoints and summary out; resumable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from refork.chat import PolicyChat
from refork.errors import BadInput
from refork.growing.recorder import read_trajectories
from refork.policies.base import Policy
from refork.policies.local import LocalPolicy
from refork.policies.open import open_policy
from refork.progress import Progress, silent, waits
from refork.runs.recipe import digest, open_folder
from refork.types import Json
from refork.worlds.environment import EnvTrajectory, Transition
from refork_methods.simulate.cpt import (
    Trained,
    Weigh,
    context_of,
    read_replay,
    train_cpt,
    weigh_alike,
)
from refork_methods.simulate.data import (
    SHARES,
    Thresholds,
    check,
    classify,
    loss_weights,
    refuse_overlap,
    turn_stats,
)
from refork_methods.simulate.draw import Teacher, accuracy, fitting
from refork_methods.simulate.encode import Writer, encode_trajectory
from refork_methods.simulate.prompt import TAG, THINK, Target, pick, targets
from refork_methods.simulate.recipes import CptRecipe, RlRecipe, SftRecipe, Supervised
from refork_methods.simulate.refusals import (
    RECORD,
    folders_of,
    learned_from,
    refuse_same,
    speaker,
    trained_on,
)
from refork_methods.simulate.reward import HybridReward, Rater
from refork_methods.simulate.rl import RlSettings, train_rl
from refork_methods.simulate.rubric import RubricJudge, RuleRubric
from refork_methods.simulate.sft import Candidates, demonstrations, rejection_sample, train_sft
from refork_methods.train.lora import merged
from refork_methods.train.objectives import objective
from refork_methods.train.run import local_policy, save_policy, with_lora
from refork_methods.train.schedule import Schedule
from refork_methods.train.tracker import JsonLines
from refork_methods.train.weighted import WeightedSettings, weighted_loss

AnyRecipe = CptRecipe | SftRecipe | RlRecipe

#: What a teacher that was not trained to simulate is told.
ASKED = (
    f"You are this environment. Say between <{THINK}> and </{THINK}> what decides the answer to the last "
    f"action, then the answer itself, to the letter, between <{TAG}> and </{TAG}>."
)


@dataclass(frozen=True, slots=True)
class Data:
    """Trajectories to train on and to test on."""

    train: list[EnvTrajectory]
    test: list[EnvTrajectory]


def read_data(path: Path, held_out: Sequence[str] = ()) -> Data:
    """A data folder (``train.jsonl``, ``test.jsonl``), or one file of trajectories.

    Trajectories of ``held_out`` sources, or whose split says so, are tested on and not trained on.

    Raises:
        BadInput: no such file, nothing to train on, a trajectory that must not be (agent reasoning, a
            missing observation, an unanswered call), or an overlap of train and test.
    """
    file = path / "train.jsonl" if path.is_dir() else path
    if not file.exists():
        raise BadInput(
            "there is no such file", where=str(file), hint="refork simulate data SOURCES --out DIR"
        )
    found = list(read_trajectories(file))
    aside = [item for item in found if item.source in held_out or item.split == "held-out"]
    train = [item for item in found if item.source not in held_out and item.split != "held-out"]
    beside = path / "test.jsonl" if path.is_dir() else None
    test = [*aside, *(read_trajectories(beside) if beside is not None and beside.exists() else [])]
    refused = [problem for problem in check(train) if problem.refused]
    if refused or not train:
        what = str(refused[0]) if refused else "no trajectories"
        raise BadInput(f"this cannot be trained on: {what}", where=str(file), hint="refork simulate data")
    refuse_overlap(train, test)
    return Data(train, test)


def open_judge(spec: str, progress: Progress = silent, *, slope: bool = False) -> Rater:
    """``rule``, or a policy's name: the model that grades; ``slope`` as :class:`RuleRubric` has it."""
    if spec == "rule":
        return RuleRubric(slope)
    return RubricJudge.of(open_policy(spec, on_wait=waits(progress)))


def weigh_of(recipe: CptRecipe) -> Weigh:
    """Turn classes and weights as a recipe sets them. Raises BadInput for an unknown threshold or class."""
    if not recipe.classes:
        return weigh_alike
    known = {item.name for item in fields(Thresholds)}
    strange = sorted(set(recipe.thresholds) - known) + sorted(set(recipe.shares) - set(SHARES))
    if strange:
        raise BadInput(f"there is no threshold or class {strange[0]!r}", where="recipe")
    thresholds = Thresholds.parse([f"{name}={value}" for name, value in recipe.thresholds.items()])
    shares: Any = {**SHARES, **recipe.shares}

    def weigh(turns: Sequence[Transition]) -> Sequence[tuple[str, float]]:
        return loss_weights(turns, thresholds, shares)

    return weigh


def plan_stage(stage: str, recipe: AnyRecipe) -> Json:
    """What a run would do, without a model: the data is read, every name in the recipe looked up."""
    data = read_data(Path(recipe.data), recipe.held_out)
    plan: Json = {
        "digest": digest(recipe),
        "stage": stage,
        "policy": recipe.policy,
        "trajectories": len(data.train),
        "turns": sum(len(item.turns) for item in data.train),
        "held-out trajectories": len(data.test),
    }
    if isinstance(recipe, CptRecipe):
        weighed = [weight for item in data.train for _, weight in weigh_of(recipe)(item.turns)]
        return plan | {"steps": recipe.steps, "turns kept in the loss": round(sum(weighed), 1)}
    if isinstance(recipe, SftRecipe):
        items = targets(data.train, recipe.per_trajectory, recipe.seed)
        asked = 0 if recipe.teacher is None else len(items) * recipe.draws
        return plan | {"steps": recipe.steps, "targets": len(items), "candidates": asked}
    objective(recipe.objective, **recipe.objective_options)
    answers = recipe.updates * recipe.per_update * recipe.group
    return plan | {
        "targets": len(pick(data.train, recipe.seed, recipe.turns)),
        "answers at most": answers,
        "tokens at most": answers * recipe.max_tokens,
    }


def run_stage(stage: str, recipe: AnyRecipe, folder: Path, progress: Progress = silent) -> Json:
    """Train a recipe's policy into ``folder``; the same call again goes on from its last checkpoint.

    The folder holds ``policy/`` (or the adapter), ``checkpoints/``, ``metrics.jsonl`` (per step, and per turn
    class or domain), ``training.json`` (what it learned from), ``summary.json``, and of a teacher
    ``candidates.jsonl``.

    Raises:
        BadInput: data that must not be trained on, or a judge that is the policy.
        Mismatch: the folder holds another run.
    """
    data = read_data(Path(recipe.data), recipe.held_out)
    policy = local_policy(recipe.policy)
    judge = (
        None
        if isinstance(recipe, CptRecipe)
        else open_judge(recipe.judge, progress, slope=isinstance(recipe, RlRecipe))
    )
    if judge is not None:
        refuse_same(speaker(policy), judge.identity)
    resumed = open_folder(folder, recipe)
    # Before training: a run that is stopped has learned from this data all the same.
    _record(folder, stage, recipe.policy, policy, data)
    before = _measured(policy, data, recipe, folder / "before.json")
    policy, trained, extra = _train(recipe, policy, data, judge, folder, progress)
    after = _measured(policy, data, recipe, None)
    if recipe.lora is not None and recipe.merge:
        policy = LocalPolicy(merged(policy.model), policy.codec, name=policy.card.name)
    save_policy(policy, folder / "policy")
    adapter = recipe.lora is not None and not recipe.merge
    place = f"{recipe.policy}+adapter={folder / 'policy'}" if adapter else f"hf:{folder / 'policy'}"
    summary = {
        "stage": stage,
        **trained.facts,
        **extra,
        "held_out_before": before,
        "held_out_after": after,
        "policy": place,
        "weights": policy.card.weights,
        "resumed": resumed,
        "digest": digest(recipe),
    }
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary


def _train(
    recipe: AnyRecipe, policy: LocalPolicy, data: Data, judge: Rater | None, folder: Path, progress: Progress,
) -> tuple[LocalPolicy, Trained, Json]:  # fmt: skip
    """The stage itself; the policy that comes back has the adapter where one was asked for."""
    told = JsonLines(folder / "metrics.jsonl")
    where: dict[str, Any] = {"folder": folder / "checkpoints", "tracker": told, "progress": progress}
    replay: dict[str, Any] = {}
    if isinstance(recipe, Supervised):
        items = () if recipe.replay is None else read_replay(Path(recipe.replay))
        replay = {"replay": items, "replay_fraction": recipe.replay_fraction, "context": recipe.context}
    if isinstance(recipe, CptRecipe):
        policy = _adapted(policy, recipe)
        return (
            policy,
            train_cpt(policy, data.train, _loop(recipe), weigh=weigh_of(recipe), **replay, **where),
            {},
        )
    assert judge is not None
    reward = HybridReward(judge) if isinstance(recipe, SftRecipe) else HybridReward(judge, w=recipe.w)
    if isinstance(recipe, SftRecipe):
        chosen = targets(data.train, recipe.per_trajectory, recipe.seed)
        # Before the adapter is added: a policy that teaches itself does so as it was given.
        teacher = _teacher(recipe, policy, progress)
        if teacher is None:
            shown, extra = demonstrations(chosen, recipe.noted_only), {}
        else:
            kept = rejection_sample(
                teacher, chosen, reward, _candidates(recipe), instruction=_instruction(teacher),
                file=folder / "candidates.jsonl", progress=progress,
            )  # fmt: skip
            if not kept.demonstrations:
                why = f"nothing to train on: no candidate of {len(chosen)} targets had {recipe.least} or more"
                raise BadInput(why, where="sft", hint="a better teacher, or a lower `least` in another --out")
            shown, extra = kept.demonstrations, {"kept": kept.share, "kept_by_domain": kept.domains}
        policy = _adapted(policy, recipe)
        return policy, train_sft(policy, shown, _loop(recipe), **replay, **where), extra
    policy = _adapted(policy, recipe)
    drawn = pick(data.train, recipe.seed, recipe.turns)
    return policy, train_rl(policy, drawn, reward, _rl(recipe), kind=_turn_class, **where), {}


def _turn_class(item: Target) -> str:
    return classify(turn_stats(item.action, item.truth))


def _adapted(policy: LocalPolicy, recipe: AnyRecipe) -> LocalPolicy:
    return policy if recipe.lora is None else with_lora(policy, recipe.lora)


def _teacher(recipe: SftRecipe, policy: LocalPolicy, progress: Progress) -> Teacher | None:
    if recipe.teacher is None:
        return None
    if recipe.teacher == "self":
        return policy
    found = open_policy(recipe.teacher, on_wait=waits(progress))
    return PolicyChat(found, recipe.sampling.sampling()) if found.card.kind == "remote" else found


def _instruction(teacher: Teacher) -> str:
    """Policies with weights here were trained to answer in tags; others are told to."""
    return "" if isinstance(teacher, Policy) else ASKED


def _candidates(recipe: SftRecipe) -> Candidates:
    return Candidates(
        draws=recipe.draws, least=recipe.least, sampling=recipe.sampling.sampling(), seed=recipe.seed
    )


def _loop(recipe: Supervised) -> WeightedSettings:
    return WeightedSettings(**recipe.fit_settings(), half=recipe.half)


def _rl(recipe: RlRecipe) -> RlSettings:
    return RlSettings(
        updates=recipe.updates, per_update=recipe.per_update, group=recipe.group,
        max_tokens=recipe.max_tokens, gradient=objective(recipe.objective, **recipe.objective_options),
        normalise=recipe.normalise, minibatches=recipe.minibatches,
        schedule=Schedule(**recipe.rate.model_dump()), every=recipe.checkpoint_every, seed=recipe.seed,
    )  # fmt: skip


def _measured(policy: LocalPolicy, data: Data, recipe: AnyRecipe, file: Path | None) -> Json | None:
    """Loss and greedy accuracy on held-out targets, one of each trajectory; kept in ``file``."""
    if not data.test or not recipe.check:
        return None
    if file is not None and file.exists():
        found: Json = json.loads(file.read_text())
        return found
    items = pick(data.test, recipe.seed)[: recipe.check]
    window, writer = context_of(policy, recipe.context), Writer(policy.codec)
    encoded = [one for item in items for one in encode_trajectory(writer, item.trajectory, context=window)[0]]
    fits = fitting(policy, items, recipe.max_tokens)
    loss = weighted_loss(policy.model, encoded) if encoded else None
    told = asdict(accuracy(policy, fits, max_tokens=recipe.max_tokens)) if fits else {}
    row = {"loss": loss, **told, "targets_left_out": len(items) - len(fits)}
    if file is not None:
        part = file.with_suffix(".part")
        part.write_text(json.dumps(row) + "\n")
        part.replace(file)
    return row


def _record(folder: Path, stage: str, spec: str, policy: LocalPolicy, data: Data) -> None:
    """What is learned from, so that nobody tests on it: by this stage and by those before it."""
    learned = learned_from(data.train)
    for place in folders_of(spec):
        learned |= trained_on(place)
    record = {
        "stage": stage,
        "from": policy.card.weights,
        "data": {"trajectories": len(data.train), **learned.to_json()},
    }
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")
