"""Certificates and negative controls by name, for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork_methods.speculate.lossless import (
    Certificate,
    DropUnlikely,
    Make,
    RetrospectiveArgmax,
    StopAfterUnlikely,
    check_lossless,
)
from refork_methods.speculate.schedule import schedule_of
from refork_methods.speculate.step_cost import StepCost, shapes
from refork_methods.speculate.verification import Rule

#: Rules that are there to be caught, and the lossless twin of the second.
CONTROLS: dict[str, Make] = {
    "retrospective": RetrospectiveArgmax,
    "drop_unlikely": lambda cost: DropUnlikely(0.5),
    "stop_after_unlikely": lambda cost: StopAfterUnlikely(0.5),
}
EXACT_MODES = (
    "early_stop",
    "stale_topk",
    "context_only",
    "vllm",
    "top_k:2",
    "static_threshold:0.5",
    "fixed:1",
)
WIDTH = 64
#: What a decoder is sampled under.
SETTINGS = {
    "temperature 1": Sampling(),
    "temperature 0.7": Sampling(temperature=0.7),
    "top-k 5": Sampling(top_k=5),
    "top-p 0.8": Sampling(top_p=0.8),
    "temperature 1.3, top-k 8, top-p 0.9": Sampling(temperature=1.3, top_k=8, top_p=0.9),
}


def certify_rules(names: Sequence[str] | None = None) -> list[Certificate]:
    """Enumerate rules by name, ours and the leaky controls; by default all of ours.

    Raises:
        BadInput: as :func:`schedule_of`.
    """
    found = []
    any_table = StepCost.of({1: 1.0})
    for name in names or EXACT_MODES:
        if name in CONTROLS:
            found.append(check_lossless(CONTROLS[name], name=name))
        else:
            found.append(check_lossless(schedule_of(name, any_table), name=name))
    return found


def certify_decoder(
    policy: LocalPolicy,
    drafter: Path | None,
    rule: Rule,
    schedules: Sequence[str] | None,
    prompts: Sequence[str] | None,
    samples: int,
    seed: int,
) -> Certificate:
    """Sample a speculative decoder of a model, its drafter on disk, against the model's own distribution.

    Raises:
        BadInput: no drafter, no or several schedules, or no prompt that has a token.
    """
    from refork_methods.speculate.decoder import SpeculativeDecoder
    from refork_methods.speculate.lossless import check_decoder
    from refork_methods.speculate.policy import open_drafter
    from refork_methods.speculate.profile import profile

    if drafter is None:
        raise BadInput("sampling a decoder needs its drafter", hint="--drafter FOLDER")
    if schedules is not None and len(schedules) > 1:
        raise BadInput("one decoder has one schedule")
    draft = open_drafter(drafter, policy)
    scheduler = None
    if schedules:
        cost = profile(policy, tokens=shapes(WIDTH * (1 + draft.config.block)), repeats=1)
        scheduler = schedule_of(schedules[0], cost)
    decoder = SpeculativeDecoder(policy, draft, rule=rule, scheduler=scheduler, width=WIDTH)
    given = [policy.encode(text) for text in prompts or ("The", "A")]
    greedy = [tokens for tokens in given if len(tokens)]
    if not greedy:
        raise BadInput("no prompt has a token", hint="--prompt TEXT")
    return check_decoder(policy, decoder, greedy, SETTINGS, samples=samples, greedy=greedy, seed=seed)
