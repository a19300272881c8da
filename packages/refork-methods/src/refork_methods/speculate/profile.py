"""Measure what a step costs here: the target's passes as the branching decoder runs them, and drafts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from refork.decoding.live import DrawRequest, LiveDecoder
from refork.decoding.loop import BranchDecoder, packed
from refork.decoding.plan import align
from refork.decoding.speculator import ActiveRows, Drafts, Speculator
from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.sampling.noise import NoiseKey
from refork.types import IntArray, token_array
from refork_methods.speculate.schedule import PrefixScheduler
from refork_methods.speculate.speculator import ModelSpeculator
from refork_methods.speculate.step_cost import MAX_RATIO, StepCost, shapes

Clock = Callable[[], float]
#: What is timed at a size; made ready outside the clock.
Ready = Callable[[int], Callable[[], object]]
REPEATS = 3
SWEEPS = 3
WARM = 1


def measure(
    ready: Ready,
    sizes: Sequence[int],
    *,
    repeats: int = REPEATS,
    warm: int = WARM,
    clock: Clock = time.perf_counter,
    progress: Progress = silent,
    stage: str = "profiling",
) -> dict[int, float]:
    """Median seconds of ``repeats`` dummy steps at each size, after ``warm`` that do not count.

    Raises:
        BadInput: nothing to measure.
    Source: arXiv 2607.05147 (profiled steps per second); a median as in vLLM's adaptive verification.
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


def swept(
    stages: Mapping[str, tuple[Ready, Sequence[int]]],
    *,
    repeats: int = REPEATS,
    sweeps: int = SWEEPS,
    clock: Clock = time.perf_counter,
    progress: Progress = silent,
) -> dict[str, dict[int, float]]:
    """Seconds of every stage's sizes: the median over sweeps, each over all stages, of its median.

    What disturbs a machine lasts for seconds, so it slows whatever shapes are timed just then, and how a
    batch lies in memory makes it faster or slower for as long as it lives: in another sweep it is another
    shape's turn. The sweeps are ours.

    Raises: as :func:`measure`.
    """
    if sweeps < 1:
        raise BadInput("profiling needs at least one sweep")
    found: dict[str, dict[int, list[float]]] = {name: {} for name in stages}
    for sweep in range(sweeps):
        for name, (ready, sizes) in stages.items():
            stage = f"profiling {name}" + (f" ({sweep + 1} of {sweeps})" if sweeps > 1 else "")
            if sizes:
                seen = measure(ready, sizes, repeats=repeats, clock=clock, progress=progress, stage=stage)
                for size, took in seen.items():
                    found[name].setdefault(size, []).append(took)
    return {name: {size: float(np.median(t)) for size, t in times.items()} for name, times in found.items()}


def profile(
    policy: LocalPolicy,
    speculator: ModelSpeculator | None = None,
    *,
    tokens: Sequence[int] = tuple(shapes(512)),
    requests: Sequence[int] = tuple(shapes(64)),
    context: int = 64,
    repeats: int = REPEATS,
    sweeps: int = SWEEPS,
    shared: bool = False,
    max_ratio: float = MAX_RATIO,
    clock: Clock = time.perf_counter,
    progress: Progress = silent,
) -> StepCost:
    """Seconds of a live decoder's steps over ``tokens``, and of drafting for ``requests``, measured now.

    A step of B tokens is a plain one of B branches after ``context`` tokens, drawing included. Each request
    has a context of its own, or all have one (``shared``: forks of a point). In larger passes than there are
    requests a request feeds several tokens: they are timed with one context, and what so many contexts
    cost beyond one is added. What a draft's token costs, and what drafting does, are told apart by rounds
    that verify one draft each and such that verify all. Shapes that the decoder's memory does not hold at
    once are left out; neighbours may lie ``max_ratio`` times apart. Everything is timed in ``sweeps``
    (:func:`swept`), and made monotone by isotonic regression (ours: a running maximum lets one slow moment
    spoil all larger shapes).

    Raises:
        BadInput: no shape that memory holds, a context that the model has no room for, a speculator that
            would not draft.
    """
    block = 0 if speculator is None else speculator.block
    bed = _Bed.of(policy, tokens, requests, context, repeats + WARM + 2, block, shared)
    stages = _stages(policy, speculator, bed, block)
    found = swept(stages, repeats=repeats, sweeps=sweeps, clock=clock, progress=progress)
    plain = _with_contexts(found["steps"], found["contexts"], len(bed.prompts))
    table = StepCost.of(isotonic(plain), max_ratio=max_ratio)
    costs = {} if speculator is None else _drafting(found, table, block)
    drafting = {size: seconds for size, (seconds, _) in costs.items()}
    about = _about(policy, context, shared) | {
        "repeats": repeats, "sweeps": sweeps, "raised": max(_raised(plain), _raised(drafting)),
        "left_out": len(tokens) + len(requests) - len(bed.tokens) - len(bed.requests),
    }  # fmt: skip
    shares = {size: share for size, (_, share) in costs.items()}
    return StepCost.of(isotonic(plain), isotonic(drafting), shares=shares, about=about, max_ratio=max_ratio)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Bed:
    """What is timed on: a decoder, prompts, the shapes that its memory holds, how far branches may run.

    ``steps`` is that of branches without drafts, ``room`` of such with drafts, in tokens.
    """

    decoder: BranchDecoder
    prompts: Sequence[IntArray]
    tokens: Sequence[int]
    requests: Sequence[int]
    steps: int
    room: int

    @classmethod
    def of(
        cls,
        policy: LocalPolicy,
        tokens: Sequence[int],
        requests: Sequence[int],
        context: int,
        steps: int,
        block: int,
        shared: bool,
    ) -> _Bed:
        """That of a policy; raises BadInput where the context has no room, CannotDo as :func:`packed`."""
        own, room = packed(policy.decoder), (block + 1) * steps
        backbone = own.backbone
        if backbone.context is not None and context + room > backbone.context:
            raise BadInput(
                f"a context of {context} and {room} new tokens do not fit the model's {backbone.context}",
                hint="a smaller context, or fewer repeats",
            )
        # A round feeds more tokens than a batch has branches, so as many branches must be let in to time it.
        decoder = BranchDecoder(backbone, own.memory, max([*tokens, *requests], default=1), own.edits)
        contexts = own.memory // (2 * align(context) * backbone.shape.bytes_per_token)
        passes = [size for size in tokens if size <= decoder.rows_within(context, steps)]
        drafts = [size for size in requests if size <= min(contexts, decoder.rows_within(context, room))]
        if not passes:
            raise BadInput("profiling needs at least one shape that memory holds")
        limit = min(policy.codec.vocabulary, backbone.vocabulary)
        count = 1 if shared or not drafts else max(drafts)
        rows = np.random.default_rng(0).integers(0, limit, (count, context))
        return cls(decoder, [token_array(row) for row in rows], passes, drafts, steps, room)


def _stages(
    policy: LocalPolicy, speculator: ModelSpeculator | None, bed: _Bed, block: int
) -> dict[str, tuple[Ready, Sequence[int]]]:
    """What is timed, and at which sizes."""
    decoder, prompts, largest, count = bed.decoder, bed.prompts, max(bed.tokens), len(bed.prompts)
    apart = [count] if count > 1 and count in bed.tokens and largest > count else []
    stages: dict[str, tuple[Ready, Sequence[int]]] = {
        "steps": (_steps(decoder, prompts, bed.steps, None), bed.tokens),
        "contexts": (_steps(decoder, prompts[:1], bed.steps, None), apart),
    }
    if speculator is not None:
        stages["drafts"] = _drafts(policy, speculator.fresh(), prompts[0]), bed.requests
        for length in (1, block):
            sizes = [size for size in bed.requests if size * (1 + length) <= largest]
            rounds = _steps(decoder, prompts, bed.room, _verifying(speculator, length))
            stages[_rounds(length)] = rounds, sizes
    return stages


def _rounds(length: int) -> str:
    return f"rounds of {length}"


def _with_contexts(plain: Mapping[int, float], shared: Mapping[int, float], count: int) -> dict[int, float]:
    """Seconds of plain steps, the contexts of their own included that ``count`` branches had."""
    apart = max(0.0, plain[count] - shared[count]) if shared else 0.0
    return {size: seconds + (apart if size > count else 0.0) for size, seconds in plain.items()}


def _drafting(
    found: Mapping[str, Mapping[int, float]], table: StepCost, block: int
) -> dict[int, tuple[float, float]]:
    """By number of requests: seconds of drafting, and the share that a draft's token costs."""
    short, whole = found[_rounds(1)], found[_rounds(block)]
    return {
        size: of_rounds(table, size, block, proposing, short.get(size), whole.get(size))
        for size, proposing in found["drafts"].items()
    }


def isotonic(result: Mapping[int, float]) -> dict[int, float]:
    """Times [n] by size that never fall: the nearest such ones by least squares."""
    from sklearn.isotonic import isotonic_regression

    sizes = sorted(result)
    if not sizes:
        return {}
    fitted = isotonic_regression(np.array([result[size] for size in sizes], dtype=np.float64))
    return dict(zip(sizes, fitted.tolist(), strict=True))


def _raised(found: Mapping[int, float]) -> float:
    """How many times its measured time a shape is put at, since a smaller one took longer; 1: none was."""
    fitted = isotonic(found)
    return max((fitted[size] / found[size] for size in found), default=1.0)


def _about(policy: LocalPolicy, context: int, shared: bool) -> dict[str, Any]:
    import torch

    card = policy.card
    return {
        "model": card.name, "weights": card.weights, "device": card.extra["device"],
        "dtype": card.extra["dtype"], "threads": torch.get_num_threads(), "context": context,
        "shared": shared,
    }  # fmt: skip


def of_rounds(
    table: StepCost, requests: int, block: int, proposing: float, short: float | None, whole: float | None
) -> tuple[float, float]:
    """Seconds of drafting for so many requests, and the share of a request's token that a draft's costs.

    ``proposing``, and rounds that verify one draft of each (``short``) and all of them (``whole``), are
    seconds; None for rounds larger than the table. Drafting is what a round takes besides its pass
    (proposing, settling, what surrounds them), and never less than proposing alone.
    """
    if short is None or requests < table.range[0]:
        return proposing, 1.0
    bare, two = table.verify(np.array([requests, 2 * requests])).tolist()
    if whole is None:
        return max(proposing, short - two), 1.0
    full = float(table.verify(np.array([requests * (1 + block)]))[0])
    share = min(max((whole - short) / (full - two), 0.0), 1.0) if full > two else 1.0
    beyond = (short - bare - share * (two - bare), whole - bare - share * (full - bare))
    return max(proposing, *beyond), share


def _verifying(speculator: ModelSpeculator, length: int) -> ModelSpeculator:
    """The same drafter, which drafts all and has so many of them verified."""
    return ModelSpeculator(
        speculator.draft_model,
        rule=speculator.rule,
        scheduler=PrefixScheduler(None, "fixed", length=length),
        max_draft_tokens=speculator.block,
    )


def _steps(
    decoder: BranchDecoder, prompts: Sequence[IntArray], room: int, speculator: ModelSpeculator | None
) -> Ready:
    """Steps of a live decoder in which so many branches run: plain ones, or a speculator's rounds."""
    sampling = Sampling(max_tokens=room, ignore_eos=True)

    def ready(branches: int) -> Callable[[], object]:
        drafter = None if speculator is None else speculator.fresh()
        live = LiveDecoder(decoder, width=branches, speculator=drafter)
        for draw in range(branches):
            live.submit(
                DrawRequest(prompts[draw if branches <= len(prompts) else 0], NoiseKey(0, 0, draw), sampling)
            )
        while live.waiting:
            live.step()
        if live.running < branches:
            raise BadInput(
                f"memory holds {live.running} of {branches} branches at once",
                hint="profile smaller shapes (refork speculate profile --tokens, --requests)",
            )
        return live.step

    return ready


def _drafts(policy: LocalPolicy, speculator: Speculator, prompt: IntArray) -> Ready:
    """Drafting one block for so many branches that share a prompt."""
    import torch

    layers = list(speculator.layers)
    states = policy.hidden_states([prompt], layers)[0] if layers else np.zeros((0, len(prompt), 1))
    kept = torch.from_numpy(np.ascontiguousarray(states.transpose(1, 0, 2)))
    kept = kept.to(policy.decoder.backbone.device)

    def ready(requests: int) -> Callable[[], object]:
        request_ids = np.arange(requests, dtype=np.int64)
        speculator.leave(np.arange(joined[0], dtype=np.int64))
        joined[0] = requests
        speculator.join(request_ids, [prompt] * requests, [kept[-speculator.window :]] * requests)
        branches = ActiveRows(
            request_id=request_ids,
            newest=np.full(requests, int(prompt[-1]), dtype=np.int64),
            position=np.full(requests, len(prompt), dtype=np.int64),
            generated=np.ones(requests, dtype=np.int64),
            room=np.full(requests, 1 << 20, dtype=np.int64),
            settings=[Sampling()] * requests,
            noise=[NoiseKey(0, 0, draw) for draw in range(requests)],
        )
        return lambda: _drafted(speculator, branches)

    joined = [0]
    return ready


def _drafted(speculator: Speculator, branches: ActiveRows) -> Drafts:
    """One round's drafts."""
    found = speculator.draft(branches)
    if found is None:
        raise BadInput("the drafter would not draft", hint="profile it without a schedule")
    return found


def speculator_of(policy: LocalPolicy, folder: Path) -> ModelSpeculator:
    """The speculator of a parallel drafter on disk, to be profiled: without a schedule.

    Raises:
        BadInput: no drafter there, or one of another kind or target.
    """
    from refork_methods.speculate.policy import open_drafter

    return ModelSpeculator(open_drafter(folder, policy))
