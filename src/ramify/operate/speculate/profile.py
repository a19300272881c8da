"""Measure what a step costs here: the target's passes as the branching decoder runs them, and drafts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ramify.core.errors import BadInput
from ramify.core.policy.base import Sampling
from ramify.core.policy.decoder.batch import Batch
from ramify.core.policy.decoder.loop import Wanted
from ramify.core.policy.decoder.speculator import Branches, Drafts, Speculator
from ramify.core.policy.local import LocalPolicy
from ramify.core.policy.noise import NoiseKey
from ramify.core.run.progress import Progress, silent
from ramify.core.types import IntArray, token_array
from ramify.operate.speculate.step_cost import StepCost, shapes

Clock = Callable[[], float]
#: What is timed at a size; made ready outside the clock.
Ready = Callable[[int], Callable[[], object]]
REPEATS = 5


def measure(
    ready: Ready,
    sizes: Sequence[int],
    *,
    repeats: int = REPEATS,
    warm: int = 1,
    clock: Clock = time.perf_counter,
    progress: Progress = silent,
    stage: str = "profiling",
) -> dict[int, float]:
    """Median seconds of ``repeats`` dummy steps at each size, after ``warm`` that do not count.

    Raises:
        BadInput: nothing to measure.
    Source: arXiv 2607.05147 (profiled steps per second); the median of five as in vLLM's adaptive
        verification.
    """
    if not sizes or repeats < 1:
        raise BadInput("profiling needs at least one shape and one step")
    found = {}
    for place, size in enumerate(sorted(set(sizes))):
        progress(stage, place, len(sizes))
        step = ready(size)
        times = []
        for _ in range(warm):
            step()
        for _ in range(repeats):
            began = clock()
            step()
            times.append(clock() - began)
        found[size] = float(np.median(times))
    progress(stage, len(sizes), len(sizes))
    return found


def profile(
    policy: LocalPolicy,
    speculator: Speculator | None = None,
    *,
    tokens: Sequence[int] = tuple(shapes(512)),
    requests: Sequence[int] = tuple(shapes(64)),
    per_request: int = 4,
    context: int = 64,
    repeats: int = REPEATS,
    clock: Clock = time.perf_counter,
    progress: Progress = silent,
) -> StepCost:
    """Seconds of the target's passes over ``tokens`` and of drafting for ``requests``, measured now.

    A pass feeds up to ``per_request`` tokens of each branch after a shared context of ``context`` tokens.
    The law is not drawn from: what both a plain and a speculative step do besides is not in the table.

    Raises:
        BadInput: no shape, a context that the model has no room for.
    """
    backbone = policy.decoder.backbone
    if backbone.context is not None and context + 2 * per_request > backbone.context:
        raise BadInput(f"a context of {context} tokens does not fit the model's {backbone.context}")
    rng = np.random.default_rng(0)
    limit = min(policy.codec.vocabulary, backbone.vocabulary)
    prompt = token_array(rng.integers(0, limit, context))
    verify = measure(
        _passes(policy, prompt, per_request), tokens, repeats=repeats, clock=clock, progress=progress,
        stage="profiling passes",
    )  # fmt: skip
    drafting = None
    if speculator is not None:
        drafting = measure(
            _drafts(policy, speculator, prompt), requests, repeats=repeats, clock=clock, progress=progress,
            stage="profiling drafts",
        )  # fmt: skip
    return StepCost.of(verify, drafting, about=_about(policy, context, per_request, repeats))


def _about(policy: LocalPolicy, context: int, per_request: int, repeats: int) -> dict[str, Any]:
    import torch

    card = policy.card
    return {
        "model": card.name, "weights": card.weights, "device": card.extra["device"],
        "dtype": card.extra["dtype"], "threads": torch.get_num_threads(), "context": context,
        "tokens_per_request": per_request, "repeats": repeats,
    }  # fmt: skip


def _passes(policy: LocalPolicy, prompt: IntArray, per_request: int) -> Ready:
    """Passes of so many tokens as the branching decoder feeds them: several of each branch, packed."""
    import torch

    decoder = policy.decoder

    def ready(tokens: int) -> Callable[[], object]:
        rows = -(-tokens // per_request)
        lengths = np.full(rows, per_request, dtype=np.int64)
        lengths[-1] = tokens - per_request * (rows - 1)
        folded = decoder.fold([prompt] * rows, [len(prompt)] * rows)
        keep = np.full(rows, len(prompt), dtype=np.int64)
        trace = np.zeros(rows, dtype=np.int64)
        with torch.inference_mode():
            wanted = Wanted(trace[:1], keep[:1] - 1)
            forest, _, passes = decoder.read(folded, np.zeros(1, dtype=np.int64), np.array([rows]), wanted)
            for _ in passes:
                pass
            batch = Batch(decoder.backbone, forest.seats, rows, 2 * per_request)
            batch.reseat(np.arange(rows), trace, keep)
            batch.said[:] = 1

        def step() -> object:
            with torch.inference_mode():
                places, inside = batch.spread(lengths) if per_request > 1 else batch.step()
                ids = torch.zeros_like(places)
                logits = decoder.backbone.run(ids, places, inside)
                return float(logits[0, 0])  # waits for an accelerator

        return step

    return ready


def _drafts(policy: LocalPolicy, speculator: Speculator, prompt: IntArray) -> Ready:
    """Drafting one block for so many branches that share a prompt."""
    import torch

    layers = list(speculator.layers)
    states = policy.hidden_states([prompt], layers)[0] if layers else np.zeros((0, len(prompt), 1))
    kept = torch.from_numpy(np.ascontiguousarray(states.transpose(1, 0, 2)))
    kept = kept.to(policy.decoder.backbone.device)

    def ready(requests: int) -> Callable[[], object]:
        tickets = np.arange(requests, dtype=np.int64)
        speculator.leave(np.arange(joined[0], dtype=np.int64))
        joined[0] = requests
        speculator.join(tickets, [prompt] * requests, [kept[-speculator.window :]] * requests)
        branches = Branches(
            ticket=tickets,
            newest=np.full(requests, int(prompt[-1]), dtype=np.int64),
            place=np.full(requests, len(prompt), dtype=np.int64),
            said=np.ones(requests, dtype=np.int64),
            room=np.full(requests, 1 << 20, dtype=np.int64),
            settings=[Sampling()] * requests,
            noise=[NoiseKey(0, 0, draw) for draw in range(requests)],
        )
        return lambda: _drafted(speculator, branches)

    joined = [0]
    return ready


def _drafted(speculator: Speculator, branches: Branches) -> Drafts:
    """One round's drafts."""
    found = speculator.draft(branches)
    if found is None:
        raise BadInput("the drafter would not draft", hint="profile it without a schedule")
    return found


def speculator_of(policy: LocalPolicy, folder: Path) -> Speculator:
    """The speculator of a parallel drafter on disk, to be profiled: without a schedule.

    Raises:
        BadInput: no drafter there, or one of another kind or target.
    """
    from ramify.operate.speculate.policy import open_drafter
    from ramify.operate.speculate.speculator import ModelSpeculator

    return ModelSpeculator(open_drafter(folder, policy))
