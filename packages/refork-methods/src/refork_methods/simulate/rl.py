"""The third stage: reinforcement on one target turn of each trajectory, rewarded by rubric and rule.

Source: arXiv 2606.24597 for the stage, GSPO (arXiv 2507.18071), one target per trajectory, and what is
rewarded: the text inside the tag. Group size, rates, clip and the weight of a KL term are not published;
group 8, clip 3e-4/4e-4 and no KL term are our reconstruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch

from refork.errors import BadInput
from refork.plain import content_hash
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.sampling.noise import stream_of
from refork.types import Json
from refork_methods.simulate.cpt import Trained
from refork_methods.simulate.draw import Drawn, draw, fitting
from refork_methods.simulate.prompt import TAG, Target, extract_prediction, matches, one_each
from refork_methods.simulate.refusals import refuse_same, speaker
from refork_methods.simulate.reward import Earned, HybridReward
from refork_methods.train.batch import Sample, pad
from refork_methods.train.fit import run_steps
from refork_methods.train.objectives import PolicyGradientSettings, objective
from refork_methods.train.policy_gradient import Normalise, group_advantages, policy_gradient_step
from refork_methods.train.schedule import Schedule, adamw
from refork_methods.train.tracker import Tracker


@dataclass(frozen=True, slots=True, kw_only=True)
class RlSettings:
    """``updates`` of ``per_update`` targets with ``group`` answers each, in ``minibatches`` gradient steps.

    ``guard`` False shows the judge everything that was said instead of the text inside the tag: the mistake
    that teaches a model to praise itself, here to be measured.
    """

    updates: int
    per_update: int = 16
    group: int = 8
    max_tokens: int = 256
    gradient: PolicyGradientSettings = field(default_factory=lambda: objective("gspo"))
    normalise: Normalise = "std"
    minibatches: int = 1
    schedule: Schedule = field(default_factory=lambda: Schedule(peak=1e-5))
    weight_decay: float = 0.0
    guard: bool = True
    every: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.updates, self.per_update, self.max_tokens, self.minibatches, self.every) < 1:
            raise BadInput("updates, per_update, max_tokens, minibatches, every: at least 1", where="rl")
        if self.group < 2:
            raise BadInput(f"a group of {self.group} has no spread to learn from", where="rl")
        if self.gradient.kl_weight:
            raise BadInput("this stage has no KL term", where="rl", hint="set kl_weight to 0")


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of an update: what was said, what was extracted, and what it earned."""

    target: Target
    drawn: Drawn
    prediction: str | None
    earned: Earned


#: Adds metrics of an update's answers to its record.
Watch = Callable[[Sequence[Answer]], Json]


def no_watch(answers: Sequence[Answer]) -> Json:
    """Adds nothing."""
    return {}


def train_rl(
    policy: LocalPolicy,
    items: Sequence[Target],
    reward: HybridReward,
    settings: RlSettings,
    *,
    kind: Callable[[Target], str] = lambda item: item.domain,
    watch: Watch = no_watch,
    folder: Path | None = None,
    tracker: Tracker | None = None,
    progress: Progress = silent,
) -> Trained:
    """Train a policy in place by group policy gradient; with ``folder`` a stopped call goes on, bit for bit.

    Targets are taken in turn, in an order drawn anew each epoch; those whose prompt leaves no room for an
    answer are left out and counted. What cannot be extracted earns 0; what the judge did not grade is not
    learned and counts in no group's mean. The log has per update the means of reward, rubric and rule,
    coverage, exact match, the share of groups with any spread, and ``reward.KIND``.

    Raises:
        BadInput: no targets, two of one trajectory, or a judge that is the policy.
        Mismatch: the folder holds another run's checkpoints.
    """
    one_each(items)
    refuse_same(speaker(policy), reward.rubric.identity)
    held = fitting(policy, items, settings.max_tokens)
    if not held:
        raise BadInput("there is no target whose prompt fits the context", where="rl")
    optimizer = adamw(policy.model, settings.schedule, weight_decay=settings.weight_decay)
    name = content_hash([asdict(settings), reward.identity, TAG, [item.digest for item in held]])

    def update(number: int) -> Json:
        answers = _answers(policy, _chosen(held, settings, number), reward, settings, number)
        metrics = _learn(policy, optimizer, answers, settings, number)
        policy.refresh()
        return _update_report(answers, kind) | metrics | watch(answers)

    log = run_steps(
        policy.model, optimizer, update, settings.updates, settings.schedule, every=settings.every,
        stage="rl", folder=folder, digest=name, tracker=tracker, progress=progress, resumed=policy.refresh,
    )  # fmt: skip
    facts: Json = {
        "targets": len(held),
        "targets_left_out": len(items) - len(held),
        "updates": len(log),
        "first": _summary(log[: max(1, len(log) // 10)]),
        "last": _summary(log[-max(1, len(log) // 10) :]),
    }
    return Trained(log, facts)


def _chosen(held: Sequence[Target], settings: RlSettings, number: int) -> list[Target]:
    """The targets of an update: consecutive places of a deck that is shuffled for every epoch."""
    # Of few targets each comes once: noise goes by a target's name, so a second would draw the same answers.
    size = min(settings.per_update, len(held))
    places = range(number * size, (number + 1) * size)
    decks: dict[int, list[int]] = {}
    for epoch in {place // len(held) for place in places}:
        seed = stream_of("rl epoch", settings.seed, epoch)
        decks[epoch] = np.random.default_rng(seed).permutation(len(held)).tolist()
    chosen = [decks[place // len(held)][place % len(held)] for place in places]
    # Where an update ends one epoch and begins the next, a target may come twice; once is enough.
    return [held[i] for i in dict.fromkeys(chosen)]


def _answers(
    policy: LocalPolicy,
    chosen: Sequence[Target],
    reward: HybridReward,
    settings: RlSettings,
    number: int,
) -> list[Answer]:
    # Noise of its own for every update: a policy trained on numbers must not be sampled with them.
    seed = stream_of("rl update", settings.seed, number) >> 1
    sampling = Sampling(temperature=1.0, max_tokens=settings.max_tokens)
    drawn = draw(policy, chosen, settings.group, sampling, seed=seed)
    read = [extract_prediction(one.continuation.text) for one in drawn]
    said = [one.continuation.text for one in drawn]
    shown = [
        (text, chosen[one.target]) for text, one in zip(read if settings.guard else said, drawn, strict=True)
    ]
    earned = reward.earned(shown, said if settings.guard else None)
    return [
        Answer(chosen[one.target], one, text, each)
        for one, text, each in zip(drawn, read, earned, strict=True)
    ]


def _learn(
    policy: LocalPolicy,
    optimizer: torch.optim.Optimizer,
    answers: Sequence[Answer],
    settings: RlSettings,
    number: int,
) -> Json:
    """The gradient steps of one update; none where no group has any spread."""
    values = [np.nan if a.earned.reward is None else a.earned.reward for a in answers]
    groups = [a.drawn.target for a in answers]
    advantages = group_advantages(values, groups, settings.normalise)
    mixed = {g for g, value in zip(groups, advantages, strict=True) if np.isfinite(value) and value != 0}
    facts: Json = {"groups_mixed": len(mixed) / len(set(groups))}
    # An answer without a token cannot be learned, and still counted in its group's mean.
    samples = [
        _sample(a.drawn, float(value))
        for a, g, value in zip(answers, groups, advantages, strict=True)
        if g in mixed and np.isfinite(value) and len(a.drawn.continuation.tokens)
    ]
    if not samples:
        return facts | {"skipped": "no group has any spread"}
    batch = pad(samples)
    metrics: Json = {}
    for part in batch.shuffled(settings.minibatches, stream_of("rl minibatches", settings.seed, number)):
        # Only the first step is on policy: later ones differ from the sampler by design.
        first = {k: v for k, v in metrics.items() if k.startswith("sampler_difference")}
        metrics = policy_gradient_step(policy.model, optimizer, part, settings.gradient) | first
    return facts | {key: metrics[key] for key in ("loss", "entropy", "clip_share", "grad_norm")} | {
        "sampler_difference": metrics["sampler_difference"]
    }  # fmt: skip


def _sample(drawn: Drawn, advantage: float) -> Sample:
    before, said = len(drawn.prompt), drawn.continuation
    assert said.logprobs_t1 is not None
    size = before + len(said.tokens)
    tokens = np.concatenate([drawn.prompt, said.tokens]).astype(np.int32)
    mask = np.arange(size) >= before
    logprobs = np.full(size, np.nan, dtype=np.float32)
    logprobs[before:] = said.logprobs_t1
    return Sample(tokens, mask, logprobs, np.where(mask, advantage, 0.0))


def _update_report(answers: Sequence[Answer], kind: Callable[[Target], str]) -> Json:
    """What an update's answers earned, on average."""
    knowable = [matches(a.prediction, a.target.truth) for a in answers if a.target.turn.exact]
    record: Json = {
        "reward": _mean([a.earned.reward for a in answers]),
        "rubric": _mean([a.earned.rubric for a in answers]),
        "rule": _mean([a.earned.rule for a in answers]),
        "coverage": _mean([float(a.prediction is not None) for a in answers]),
        "exact": _mean([float(matches(a.prediction, a.target.truth)) for a in answers]),
        "exact_knowable": _mean([float(hit) for hit in knowable]),
        "ungraded": sum(a.earned.reward is None for a in answers),
        "unreadable": sum(a.prediction is None for a in answers),
        "tokens_said": sum(len(a.drawn.continuation.tokens) for a in answers),
    }
    for name in sorted({kind(a.target) for a in answers}):
        record[f"reward.{name}"] = _mean([a.earned.reward for a in answers if kind(a.target) == name])
    return record


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _summary(rows: Sequence[Json]) -> Json:
    names = ("reward", "rubric", "rule", "coverage", "exact", "exact_knowable", "groups_mixed")
    return {name: _mean([row[name] for row in rows]) for name in names}
