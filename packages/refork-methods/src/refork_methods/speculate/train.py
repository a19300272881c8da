"""Train a drafter on text that its target wrote itself; a stopped training goes on bit for bit."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, final

import numpy as np
import torch

from refork.errors import BadInput, DiskFull, Mismatch
from refork.interrupt import Interrupt
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.speculate.anchors import possible_anchors, sample_anchors
from refork_methods.speculate.checkpoint import save_draft
from refork_methods.speculate.config import DraftConfig, DraftKind, HeldOut, draft_config
from refork_methods.speculate.data import (
    Example,
    Features,
    Precision,
    Prompt,
    Recomputed,
    answers,
    cache_features,
    data_digest,
    feature_bytes,
    own_settings,
)
from refork_methods.speculate.files import write_text
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
from refork_methods.train.checkpoint import latest_checkpoint, restore_checkpoint, save_checkpoint

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

    def rate(self, step: int, total: int) -> float:
        """The learning rate of a step (from 0): linear warm-up, then the schedule."""
        warm = math.ceil(self.warmup * total)
        if step < warm:
            return self.learning_rate * (step + 1) / warm
        if self.schedule == "constant":
            return self.learning_rate
        share = (step - warm) / max(1, total - warm)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * share))


@final
@dataclass(frozen=True, slots=True, eq=False)
class TrainedDraft:
    """A trained drafter in evaluation mode, with the last figures of training and on held-out sequences.

    ``history`` are the lines of the log: training figures of steps, and ``held_out`` ones.
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
    run = _Run(target, tuple(data), shape, plan, out)
    return run.train(progress)


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
        self.target, self.data, self.config, self.plan, self.out = target, data, config, plan, out
        self.learn, self.held = split(data, plan)
        self.draft = build_draft(config, target, plan.seed)
        self.weights = position_weights(config.block, plan.decay)
        self.features: Features = Recomputed(target, data, config)
        self.log = _Log(out)
        self._orders: dict[int, np.ndarray] = {}
        self._run = self._identity()

    def train(self, progress: Progress) -> TrainedDraft:
        """All steps, from the newest checkpoint on."""
        plan, total = self.plan, self.plan.total(len(self.learn))
        optimizer = torch.optim.AdamW(
            self.draft.parameters(), lr=plan.learning_rate, weight_decay=plan.weight_decay
        )
        done = self._begin(optimizer)
        if plan.features == "cache":
            self._cache(progress)
        held = None
        with Interrupt() as stop:
            progress("training the drafter", done, total)
            for step in range(done, total):
                self._step(optimizer, step, total)
                last = step + 1 == total
                if self.held and (last or (step + 1) % plan.measure == 0):
                    held = self._measure(step + 1)
                progress("training the drafter", step + 1, total)
                asked = stop.asked
                if last or asked or (step + 1) % plan.checkpoint == 0:
                    self._save(step + 1, optimizer)
                if asked and not last:
                    raise KeyboardInterrupt
        if held is None and self.held:
            held = self._measure(total, note=False)
        self.draft.eval()
        return self._finish(total, held)

    def _begin(self, optimizer: torch.optim.Optimizer) -> int:
        """How many steps the newest checkpoint has behind it; drafter and optimizer are then in its state."""
        if self.out is None:
            return 0
        saved = latest_checkpoint(self.out / CHECKPOINTS)
        if saved is not None:
            there = saved.position.get("run", {})
            differ = sorted(key for key in self._run if there.get(key) != self._run[key])
            if differ:
                raise Mismatch(
                    f"this folder holds a run with other {', '.join(differ)}",
                    where=str(self.out / CHECKPOINTS),
                    hint="resume with the same target, data and settings, or use another folder",
                )
            restore_checkpoint(saved, self.draft, optimizer)
        done = 0 if saved is None else saved.step
        self.log.cut(done)
        return done

    def _identity(self) -> Json:
        """What a resumed run must share with the one that began."""
        plan: Json = json.loads(json.dumps(asdict(self.plan)))
        for free in ("rows", "memory", "log", "measure", "checkpoint"):
            plan.pop(free)
        return {
            "config": self.config.to_json(),
            "settings": plan,
            "data": data_digest(self.data),
            "held_out": list(self.held),
        }

    def _cache(self, progress: Progress) -> None:
        if self.out is None:
            raise BadInput("features are cached in the run's folder, and there is none", hint="give out=")
        self.features = cache_features(
            self.target, self.data, self.config, self.out / FEATURES, self.plan.precision, progress
        )

    def _step(self, optimizer: torch.optim.Optimizer, step: int, total: int) -> None:
        """One update over the batch of a step."""
        plan, began = self.plan, time.perf_counter()
        chosen = self._chosen(step)
        weight = lesson_weight(self.data, chosen, self.weights.numpy())
        for group in optimizer.param_groups:
            group["lr"] = plan.rate(step, total)
        self.draft.train()
        optimizer.zero_grad(set_to_none=True)
        outcomes = []
        for outcome in self._outcomes(chosen):
            (outcome.loss.total * (outcome.weight / weight)).backward()  # type: ignore[no-untyped-call]
            outcomes.append(outcome)
        norm = torch.nn.utils.clip_grad_norm_(self.draft.parameters(), plan.clip)
        if not bool(torch.isfinite(norm)):
            raise BadInput(
                f"the gradient of step {step + 1} is not finite",
                where="training",
                hint="lower the learning rate, or train in float32",
            )
        optimizer.step()
        if (step + 1) % plan.log == 0 or step + 1 == total or step == 0:
            figures = summarise(outcomes).to_json()
            rate = {"learning_rate": plan.rate(step, total), "gradient_norm": float(norm)}
            self.log.add({"step": step + 1, **figures, **rate, "seconds": time.perf_counter() - began})

    def _chosen(self, step: int) -> list[Chosen]:
        """The sequences of a step and their anchors: from the seed and the step alone."""
        plan = self.plan
        batch = min(plan.batch, len(self.learn))
        first = step * batch
        found = []
        for place in range(first, first + batch):
            epoch, at = divmod(place, len(self.learn))
            number = self.learn[int(self._order(epoch)[at])]
            rng = np.random.default_rng([plan.seed, 1, step, number])
            found.append(Chosen(number, sample_anchors(self.data[number].supervised, plan.anchors, rng)))
        # Sequences of like length lie together, so that little is padded.
        return sorted(found, key=lambda c: int(c.anchors.max()))

    def _order(self, epoch: int) -> np.ndarray:
        """The order of an epoch's sequences."""
        if epoch not in self._orders:
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

    def _measure(self, step: int, note: bool = True) -> DraftMetrics:
        """Figures on the held-out sequences; their anchors are the same at every step."""
        self.draft.eval()
        chosen = []
        for number in self.held:
            rng = np.random.default_rng([self.plan.seed, 2, number])
            chosen.append(
                Chosen(number, sample_anchors(self.data[number].supervised, self.plan.anchors, rng))
            )
        with torch.no_grad():
            found = summarise(list(self._outcomes(chosen)))
        if note:
            self.log.add({"step": step, "held_out": found.to_json()})
        return found

    def _save(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        if self.out is not None:
            save_checkpoint(self.out / CHECKPOINTS, step, self.draft, optimizer, {"run": self._run})

    def _finish(self, steps: int, held: DraftMetrics | None) -> TrainedDraft:
        history = tuple(self.log.lines)
        last = next((line for line in reversed(history) if "held_out" not in line), None)
        self.draft.held_out = HeldOut.read(held and held.to_json(), self.config.block)
        made = TrainedDraft(self.draft, self.config, steps, last, held, history, self.out)
        if self.out is not None:
            told: Any = {k: v for k, v in made.to_json().items() if k != "folder"}
            save_draft(self.draft, self.config, self.out, {"settings": self._run["settings"], **told})
        return made


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


@final
class _Log:
    """The lines of a training, kept in a file where there is a folder."""

    def __init__(self, out: Path | None) -> None:
        self._path = None if out is None else out / LOG
        self.lines: list[Json] = []

    def cut(self, step: int) -> None:
        """Forget what comes after a step: it is about to be done again."""
        if self._path is None:
            return
        lines = []
        if self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                # A line torn by a crash comes after the last checkpoint.
                try:
                    body = json.loads(line)
                except ValueError:
                    break
                lines.append(body)
        self.lines = [line for line in lines if line["step"] <= step]
        write_text(self._path, "".join(json.dumps(line) + "\n" for line in self.lines))

    def add(self, line: Json) -> None:
        """One line more."""
        self.lines.append(line)
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise DiskFull(f"the log could not be written: {error}", where=str(self._path)) from error


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
