"""Train a drafter on text that its target wrote itself; a stopped training goes on bit for bit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, final

import numpy as np
import torch
from torch import Tensor

from refork.errors import BadInput
from refork.plain import to_json
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.runs.recipe import RecipePart, digest, open_folder
from refork.types import Json
from refork_methods.speculate.anchors import possible_anchors, sample_anchors
from refork_methods.speculate.checkpoint import save_draft
from refork_methods.speculate.config import DraftConfig, DraftKind, HeldOut, draft_config
from refork_methods.speculate.data import (
    Cached,
    Example,
    Features,
    Precision,
    Prompt,
    Recomputed,
    answers,
    data_digest,
    feature_bytes,
    own_settings,
)
from refork_methods.speculate.lessons import (
    Chosen,
    Number,
    Outcome,
    block_bytes,
    lesson_weight,
    make_lesson,
    parts,
    study,
    summarise,
)
from refork_methods.speculate.loss import DraftMetrics, LossWeights, position_weights
from refork_methods.speculate.model import Drafter, build_draft
from refork_methods.train.fit import gradient_step, run_steps
from refork_methods.train.schedule import Schedule, adamw
from refork_methods.train.tracker import JsonLines

# Train a drafter for a target on text that the target said itself.

LOG: Final = "log.jsonl"
CHECKPOINTS: Final = "checkpoints"
FEATURES: Final = "features"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTraining:
    """Settings of :func:`train_draft`.

    ``epochs`` over the data, or exactly ``steps`` steps. A step takes ``batch`` sequences with at most
    ``anchors`` random anchors each, in passes of at most ``rows`` sequences that fit ``memory`` bytes (the
    gradients are summed, so the result is that of one pass). ``warmup`` is a share of the steps; then the
    rate is ``constant`` or falls as a ``cosine`` to 0. ``decay`` of the position weights: None is the block
    size. ``held_out`` is the share of sequences that are only measured, every ``measure`` steps.
    ``features``: hidden states of the target are computed again for every step, or kept on disk.

    Source: arXiv:2607.05147 (weights) and its code (rate, warm-up, clip, anchors, epochs; its batch is 512).
    The cosine, the held-out share and the batch are ours.
    """

    steps: int | None = None
    epochs: int = 10
    batch: int = 32
    rows: int = 64
    anchors: int = 512
    memory: int = 2 << 30
    learning_rate: float = 6e-4
    warmup: float = 0.04
    schedule: Literal["cosine", "constant"] = "cosine"
    weight_decay: float = 0.0
    clip: float = 1.0
    terms: LossWeights = field(default_factory=LossWeights)
    decay: float | None = None
    number: Number = "float32"
    features: Literal["recompute", "cache"] = "recompute"
    precision: Precision = "float32"
    held_out: float = 0.05
    measure: int = 100
    log: int = 10
    checkpoint: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "rows", "anchors", "memory", "measure", "log", "checkpoint"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}; it must be at least 1", where="training")
        if self.steps is not None and self.steps < 1:
            raise BadInput(f"steps is {self.steps}; it must be at least 1", where="training")
        if not self.learning_rate > 0 or not self.clip > 0 or self.weight_decay < 0:
            raise BadInput("learning rate and clip must be above 0, weight decay 0 or more", where="training")
        if not 0 <= self.warmup <= 1 or not 0 <= self.held_out < 1:
            raise BadInput("warm-up must be in [0, 1], the held-out share in [0, 1)", where="training")
        if self.decay is not None and not self.decay > 0:
            raise BadInput(f"the decay is {self.decay}; it must be above 0", where="training")
        known = {
            "schedule": ("cosine", "constant"),
            "number": ("float32", "bfloat16"),
            "features": ("recompute", "cache"),
        }
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise BadInput(
                    f"{name} is {getattr(self, name)!r}", where="training", hint=f"one of {', '.join(values)}"
                )

    def total(self, sequences: int) -> int:
        """Steps in all, for as many sequences that are learned from."""
        return self.steps or self.epochs * math.ceil(sequences / self.batch)

    def rates(self, total: int) -> Schedule:
        """The learning rates of so many steps."""
        return Schedule(peak=self.learning_rate, shape=self.schedule, warmup=math.ceil(self.warmup * total))


@final
@dataclass(frozen=True, slots=True, eq=False)
class TrainedDraft:
    """A trained drafter in evaluation mode, with the last figures of training and on held-out sequences.

    ``history`` are the records of the steps: all have a loss, some figures, fewer ``held_out`` ones.
    """

    draft: Drafter
    config: DraftConfig
    steps: int
    last: Json | None
    held_out: DraftMetrics | None
    history: tuple[Json, ...]
    folder: Path | None

    def to_json(self) -> Json:
        """Plain figures."""
        return {
            "folder": str(self.folder) if self.folder is not None else None,
            "kind": self.config.kind,
            "steps": self.steps,
            "parameters": sum(part.numel() for part in self.draft.parameters()),
            "train": self.last,
            "held_out": self.held_out.to_json() if self.held_out is not None else None,
        }


def train_draft(
    target: LocalPolicy,
    data: Sequence[Example],
    config: DraftConfig | None = None,
    settings: DraftTraining | None = None,
    *,
    kind: DraftKind = "dspark",
    out: Path | None = None,
    progress: Progress = silent,
) -> TrainedDraft:
    """A drafter for a target, trained on ``data``; the target is not changed.

    With ``out`` the drafter, its log and checkpoints are written there. Interrupted (Ctrl-C) it finishes its
    step, saves, and stops; the same call again goes on bit for bit.

    Raises:
        BadInput: no sequence with two supervised tokens in a row, features to be cached without ``out``, or a
            config that is not for this target.
        Mismatch: ``out`` holds a run with other settings, data or target.
        DiskFull: ``out`` cannot be written.
    """
    plan = settings or DraftTraining()
    shape = config or draft_config(target, kind)
    # The drafter is trained for these weights whatever the config said before.
    shape = shape.but(target=target.card.weights, tokenizer=target.card.tokenizer)
    return _Run(target, tuple(data), shape, plan, out).train(progress)


class _Identity(RecipePart):
    """What a resumed training must share with the one that began."""

    config: Json
    settings: Json
    data: str
    held_out: tuple[int, ...]


@final
class _Run:
    """What stays the same over a training."""

    def __init__(
        self,
        target: LocalPolicy,
        data: tuple[Example, ...],
        config: DraftConfig,
        plan: DraftTraining,
        out: Path | None,
    ) -> None:
        self.data, self.config, self.plan, self.out = data, config, plan, out
        self.learn, self.held = split(data, plan)
        self.draft = build_draft(config, target, plan.seed)
        self.weights = position_weights(config.block, plan.decay)
        self.features: Features = Recomputed(target, data, config)
        if plan.features == "cache":
            if out is None:
                raise BadInput("features are cached in the run's folder, and there is none", hint="give out=")
            self.features = Cached(target, data, config, out / FEATURES, plan.precision)
        self.total = plan.total(len(self.learn))
        self._orders: dict[int, np.ndarray] = {}
        self._measured: DraftMetrics | None = None

    def train(self, progress: Progress) -> TrainedDraft:
        """All steps, from the newest checkpoint on."""
        plan, out = self.plan, self.out
        # What decides speed and memory alone may change from call to call.
        free = ("rows", "memory", "log", "measure", "checkpoint")
        settings: Json = {k: v for k, v in to_json(plan).items() if k not in free}
        identity = _Identity(
            config=self.config.to_json(), settings=settings, data=data_digest(self.data),
            held_out=tuple(self.held),
        )  # fmt: skip
        if out is not None:
            open_folder(out, identity)
        schedule = plan.rates(self.total)
        optimizer = adamw(self.draft, schedule, weight_decay=plan.weight_decay)
        log = run_steps(
            self.draft, optimizer, partial(self._step, optimizer), self.total, schedule,
            every=plan.checkpoint, stage="training the drafter", digest=digest(identity),
            folder=None if out is None else out / CHECKPOINTS,
            tracker=None if out is None else JsonLines(out / LOG), progress=progress,
        )  # fmt: skip
        held = self._measured
        if held is None and self.held:
            held = self._measure()
        self.draft.eval()
        self.draft.held_out = HeldOut.read(held and held.to_json(), self.config.block)
        last = next((row for row in reversed(log) if "tau_prob" in row), None)
        made = TrainedDraft(self.draft, self.config, self.total, last, held, tuple(log), out)
        if out is not None:
            told: Any = {k: v for k, v in made.to_json().items() if k != "folder"}
            save_draft(self.draft, self.config, out, {"settings": settings, **told})
        return made

    def _step(self, optimizer: torch.optim.Optimizer, step: int) -> Json:
        """One update over the batch of a step, and what is said of it."""
        plan, done = self.plan, step + 1
        chosen = self._chosen(step)
        # Known before the first pass: each is a share of it, so gradients sum to those of one big pass.
        weight = lesson_weight(self.data, chosen, self.weights.numpy())
        outcomes: list[Outcome] = []

        def losses() -> Iterator[tuple[Tensor, Json]]:
            for outcome in self._outcomes(chosen):
                outcomes.append(outcome)
                yield outcome.loss.total * (outcome.weight / weight), {}

        self.draft.train()
        record = gradient_step(self.draft, optimizer, losses(), plan.clip, "training the drafter")
        last = done == self.total
        if step == 0 or last or done % plan.log == 0:
            record |= summarise(outcomes).to_json()
        if self.held and (last or done % plan.measure == 0):
            self._measured = self._measure()
            record["held_out"] = self._measured.to_json()
        return record

    def _chosen(self, step: int) -> list[Chosen]:
        """The sequences of a step and their anchors: from the seed and the step alone."""
        plan = self.plan
        batch = min(plan.batch, len(self.learn))
        found = []
        for place in range(step * batch, (step + 1) * batch):
            epoch, at = divmod(place, len(self.learn))
            number = self.learn[int(self._order(epoch)[at])]
            rng = np.random.default_rng([plan.seed, 1, step, number])
            found.append(Chosen(number, sample_anchors(self.data[number].supervised, plan.anchors, rng)))
        # Sequences of like length lie together, so that little is padded.
        return sorted(found, key=lambda c: int(c.anchors.max()))

    def _order(self, epoch: int) -> np.ndarray:
        """The order of an epoch's sequences."""
        if epoch not in self._orders:
            # The second number keeps orders (0), anchors (1), held-out anchors (2) and the split (3) apart.
            drawn = np.random.default_rng([self.plan.seed, 0, epoch]).permutation(len(self.learn))
            # A batch may begin in the epoch before, so that order is kept too.
            self._orders = {k: v for k, v in self._orders.items() if k == epoch - 1} | {epoch: drawn}
        return self._orders[epoch]

    def _outcomes(self, chosen: Sequence[Chosen]) -> Iterator[Outcome]:
        device = self.draft.ends.device
        weights = self.weights.to(device)
        longest = max(int(c.anchors.max()) for c in chosen)
        blocks = max(1, self.plan.memory // block_bytes(self.config, longest))
        for part in parts(chosen, blocks, self.plan.rows):
            lesson, goals = make_lesson(self.data, part, self.features, self.config.block, device)
            yield study(self.draft, lesson, goals, weights, self.plan.terms, self.plan.number)

    def _measure(self) -> DraftMetrics:
        """Figures on the held-out sequences; their anchors are the same at every step."""
        self.draft.eval()
        chosen = []
        for number in self.held:
            rng = np.random.default_rng([self.plan.seed, 2, number])
            anchors = sample_anchors(self.data[number].supervised, self.plan.anchors, rng)
            chosen.append(Chosen(number, anchors))
        with torch.no_grad():
            return summarise(list(self._outcomes(chosen)))


def split(data: Sequence[Example], plan: DraftTraining) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Numbers of the sequences to learn from and of those held out; ones without an anchor are neither.

    Equal sequences stay on one side.

    Raises:
        BadInput: nothing to learn from.
    """
    usable = [n for n, example in enumerate(data) if len(possible_anchors(example.supervised))]
    if not usable:
        raise BadInput(
            "no sequence has two supervised tokens in a row, so there is nothing to learn",
            where="training data",
            hint="let the target say more than one token: a larger max_tokens",
        )
    groups: dict[bytes, list[int]] = {}
    for n in usable:
        groups.setdefault(data[n].tokens.tobytes(), []).append(n)
    kept = list(groups.values())
    count = 0 if plan.held_out == 0 or len(kept) < 2 else max(1, round(plan.held_out * len(kept)))
    order = np.random.default_rng([plan.seed, 3]).permutation(len(kept))
    held = sorted(n for i in order[:count] for n in kept[i])
    return tuple(n for n in usable if n not in set(held)), tuple(held)


# From a file of prompts to a trained drafter in a folder, which says what it would cost before it begins.

ANSWERS: Final = "answers.jsonl"
GREEDY: Final = "answers-greedy.jsonl"


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do: the answers of the target, the drafter's size, what cached features take.

    ``tokens`` are those of the answers, an upper bound, since they may end early. ``features``
    in bytes (None: not kept) is an estimate: a chat template adds tokens that are not counted.
    """

    conversations: int
    tokens: int
    parameters: int
    features: int | None
    settings: Sampling

    def to_json(self) -> Json:
        """Plain figures."""
        return {
            "conversations": self.conversations,
            "tokens_at_most": self.tokens,
            "parameters": self.parameters,
            "feature_bytes": self.features,
            "sampling": self.settings.to_json(),
        }


def plan_on_prompts(
    target: LocalPolicy,
    prompts: Sequence[Prompt],
    config: DraftConfig,
    training: DraftTraining,
    sampling: Sampling | None = None,
    samples: int = 1,
    *,
    greedy: bool = False,
) -> Plan:
    """What :func:`train_on_prompts` would do; nothing is sampled."""
    settings = sampling or own_settings(target)
    samples += greedy
    spoken = sum(prompt.answers for prompt in prompts) * samples * settings.max_tokens
    given = sum(len(target.encode(prompt.words)) for prompt in prompts) * samples
    size = sum(part.numel() for part in build_draft(config, target).parameters())
    held = None
    if training.features == "cache":
        held = feature_bytes(spoken + given, config, training.precision)
    return Plan(len(prompts) * samples, spoken, size, held, settings)


def train_on_prompts(
    target: LocalPolicy,
    prompts: Sequence[Prompt],
    config: DraftConfig,
    training: DraftTraining,
    out: Path,
    sampling: Sampling | None = None,
    *,
    samples: int = 1,
    greedy: bool = False,
    progress: Progress = silent,
) -> Json:
    """Let the target answer prompts, train a drafter on the answers, and report; the same call again resumes.

    ``greedy``: every prompt is answered once more at temperature 0. Greedy text repeats itself as drawn text
    does not, and a drafter that never read it drafts it badly.

    Raises: as :func:`answers` and :func:`train_draft`.
    """
    seed, settings = training.seed, sampling or own_settings(target)
    parts = [
        answers(target, prompts, settings, samples=samples, seed=seed, path=out / ANSWERS, progress=progress)
    ]
    if greedy:
        cold = settings.but(temperature=0.0)
        parts.append(answers(target, prompts, cold, seed=seed, path=out / GREEDY, progress=progress))
    examples = [example for part in parts for example in part.examples]
    trained = train_draft(target, examples, config, training, out=out, progress=progress)
    tokens = sum(int(example.supervised.sum()) for example in examples)
    said = {"sequences": len(examples), "tokens": tokens, "too_long": sum(part.too_long for part in parts)}
    return trained.to_json() | {"data": said}
