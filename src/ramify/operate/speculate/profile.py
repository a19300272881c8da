"""Measure what a step costs here: the target's passes as the branching decoder runs them, and drafts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ramify.core.errors import BadInput
from ramify.core.policy.base import Sampling
from ramify.core.policy.decoder.live import Ask, LiveDecoder
from ramify.core.policy.decoder.loop import BranchDecoder
from ramify.core.policy.decoder.plan import align
from ramify.core.policy.decoder.speculator import Branches, Drafts, Speculator
from ramify.core.policy.local import LocalPolicy
from ramify.core.policy.noise import NoiseKey
from ramify.core.run.progress import Progress, silent
from ramify.core.types import IntArray, token_array
from ramify.operate.speculate.schedule import PrefixScheduler
from ramify.operate.speculate.speculator import ModelSpeculator
from ramify.operate.speculate.step_cost import StepCost, shapes

Clock = Callable[[], float]
#: What is timed at a size; made ready outside the clock.
Ready = Callable[[int], Callable[[], object]]
#: Seconds by size, of what is made ready for it; the text names the stage.
Timed = Callable[[Ready, Sequence[int], str], dict[int, float]]
REPEATS = 5
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
    speculator: ModelSpeculator | None = None,
    *,
    tokens: Sequence[int] = tuple(shapes(512)),
    requests: Sequence[int] = tuple(shapes(64)),
    context: int = 64,
    repeats: int = REPEATS,
    shared: bool = False,
    clock: Clock = time.perf_counter,
    progress: Progress = silent,
) -> StepCost:
    """Seconds of a live decoder's steps over ``tokens``, and of drafting for ``requests``, measured now.

    A step of B tokens is a plain one of B branches after ``context`` tokens, drawing included. Each request
    has a context of its own, or all have one (``shared``: forks of a point). In larger passes than there are
    requests a request feeds several tokens: they are timed with one context, and what so many contexts
    cost beyond one is added. What a draft's token costs, and what drafting does, are told apart by rounds
    that verify one draft each and such that verify all. Shapes that the decoder's memory does not hold at
    once are left out. Medians, made monotone by isotonic regression (ours: a running maximum lets one slow
    moment spoil all larger shapes).

    Raises:
        BadInput: no shape that memory holds, a context that the model has no room for, a speculator that
            would not draft.
    """
    backbone = policy.decoder.backbone
    block = 0 if speculator is None else speculator.block
    steps = repeats + WARM + 2
    room = (block + 1) * steps
    if backbone.context is not None and context + room > backbone.context:
        raise BadInput(
            f"a context of {context} tokens and {room} new ones do not fit the model's {backbone.context}",
            hint="a smaller context, or fewer repeats",
        )
    wanted = len(tokens) + len(requests)
    own = policy.decoder
    # A round feeds more tokens than a batch has branches, so as many branches must be let in to time it.
    decoder = BranchDecoder(backbone, own.memory, max([*tokens, *requests], default=1), own.edits)
    contexts = own.memory // (2 * align(context) * backbone.shape.bytes_per_token)
    tokens = [size for size in tokens if size <= decoder.rows_within(context, steps)]
    requests = [size for size in requests if size <= min(contexts, decoder.rows_within(context, room))]
    rng = np.random.default_rng(0)
    limit = min(policy.codec.vocabulary, backbone.vocabulary)
    count = 1 if shared or not requests else max(requests)
    prompts = [token_array(row) for row in rng.integers(0, limit, (count, context))]

    def timed(ready: Ready, sizes: Sequence[int], stage: str) -> dict[int, float]:
        return measure(ready, sizes, repeats=repeats, clock=clock, progress=progress, stage=stage)

    plain = _plain(decoder, prompts, steps, tokens, timed)
    table = StepCost.of(isotonic(plain))
    costs: dict[int, tuple[float, float]] = {}
    if speculator is not None:

        def rounds(length: int) -> Ready:
            return _steps(decoder, prompts, room, _verifying(speculator, length))

        drafts = _drafts(policy, speculator, prompts[0])
        costs = _drafting(drafts, rounds, block, requests, table, timed)
    drafting = {size: seconds for size, (seconds, _) in costs.items()}
    shares = {size: share for size, (_, share) in costs.items()}
    about = _about(policy, context, repeats, shared)
    about["left_out"] = wanted - len(tokens) - len(requests)
    about["raised"] = max(_raised(plain), _raised(drafting))
    return StepCost.of(isotonic(plain), isotonic(drafting), shares=shares, about=about)


def _plain(
    decoder: BranchDecoder, prompts: Sequence[IntArray], own: int, tokens: Sequence[int], timed: Timed
) -> dict[int, float]:
    """Seconds of plain steps, contexts of their own included."""
    found, count = timed(_steps(decoder, prompts, own, None), tokens, "profiling steps"), len(prompts)
    beyond_own = [size for size in found if size > count]
    if beyond_own and count > 1 and count in found:
        one = timed(_steps(decoder, prompts[:1], own, None), [count], "profiling contexts")
        apart = max(0.0, found[count] - one[count])
        found |= {size: found[size] + apart for size in beyond_own}
    return found


def _drafting(
    drafts: Ready,
    rounds: Callable[[int], Ready],
    block: int,
    requests: Sequence[int],
    table: StepCost,
    timed: Timed,
) -> dict[int, tuple[float, float]]:
    """By number of requests: seconds of drafting, and the share that a draft's token costs."""
    alone = timed(drafts, requests, "profiling drafts")
    found = []
    for length in (1, block):
        sizes = [size for size in requests if size * (1 + length) <= table.range[1]]
        found.append(timed(rounds(length), sizes, "profiling rounds") if sizes else {})
    short, whole = found
    return {
        size: of_rounds(table, size, block, proposing, short.get(size), whole.get(size))
        for size, proposing in alone.items()
    }


def isotonic(found: Mapping[int, float]) -> dict[int, float]:
    """Times [n] by size that never fall: the nearest such ones by least squares."""
    from sklearn.isotonic import isotonic_regression

    sizes = sorted(found)
    if not sizes:
        return {}
    fitted = isotonic_regression(np.array([found[size] for size in sizes], dtype=np.float64))
    return dict(zip(sizes, fitted.tolist(), strict=True))


def _raised(found: Mapping[int, float]) -> float:
    """How many times its measured time a shape is put at, since a smaller one took longer; 1: none was."""
    fitted = isotonic(found)
    return max((fitted[size] / found[size] for size in found), default=1.0)


def _about(policy: LocalPolicy, context: int, repeats: int, shared: bool) -> dict[str, Any]:
    import torch

    card = policy.card
    return {
        "model": card.name, "weights": card.weights, "device": card.extra["device"],
        "dtype": card.extra["dtype"], "threads": torch.get_num_threads(), "context": context,
        "repeats": repeats, "shared": shared,
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
    law = Sampling(max_tokens=room, ignore_eos=True)

    def ready(branches: int) -> Callable[[], object]:
        drafter = None if speculator is None else speculator.fresh()
        live = LiveDecoder(decoder, width=branches, speculator=drafter)
        for draw in range(branches):
            live.submit(Ask(prompts[draw if branches <= len(prompts) else 0], NoiseKey(0, 0, draw), law))
        while live.waiting:
            live.step()
        if live.running < branches:
            raise BadInput(
                f"memory holds {live.running} of {branches} branches at once",
                hint="profile smaller shapes (ramify speculate profile --tokens, --requests)",
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


def speculator_of(policy: LocalPolicy, folder: Path) -> ModelSpeculator:
    """The speculator of a parallel drafter on disk, to be profiled: without a schedule.

    Raises:
        BadInput: no drafter there, or one of another kind or target.
    """
    from ramify.operate.speculate.policy import open_drafter

    return ModelSpeculator(open_drafter(folder, policy))
