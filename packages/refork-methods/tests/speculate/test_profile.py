import itertools

import numpy as np
import pytest

from refork.errors import BadInput
from refork.policies.local import LocalPolicy
from refork_methods.speculate.config import draft_config
from refork_methods.speculate.model import as_draft_model, build_draft
from refork_methods.speculate.profile import measure, of_rounds, profile, swept
from refork_methods.speculate.schedule import PrefixScheduler
from refork_methods.speculate.speculator import ModelSpeculator
from refork_methods.speculate.step_cost import StepCost, shapes
from support.models import tiny_policy


class Ticking:
    """A clock that goes on by the next number at every second look."""

    def __init__(self, times):
        self.times, self.now, self.odd = iter(times), 0.0, False

    def __call__(self):
        if self.odd:
            self.now += next(self.times)
        self.odd = not self.odd
        return self.now


def test_shapes_are_never_far_apart():
    assert shapes(1) == [1]
    assert shapes(12) == [1, 2, 3, 4, 6, 8, 12]
    for most in (1, 2, 3, 5, 64, 100, 513):
        found = shapes(most)
        assert found[0] == 1
        assert found[-1] == most
        assert all(b <= 2 * a for a, b in itertools.pairwise(found))
        StepCost.of(dict.fromkeys(found, 1.0))


def test_the_median_of_steps_after_the_warm_ones():
    made, run = [], []

    def ready(size):
        made.append(size)
        return lambda: run.append(size)

    told = []
    found = measure(
        ready,
        [2, 1, 2],
        repeats=3,
        warm=2,
        clock=Ticking([5.0, 1.0, 2.0, 7.0, 3.0, 3.0]),
        progress=lambda stage, done, total, **_: told.append((done, total)),
    )
    assert found == {1: 2.0, 2: 3.0}
    assert made == [1, 2]
    assert run == [1] * 5 + [2] * 5
    assert told[-1][0] == told[-1][1]
    with pytest.raises(BadInput, match="at least one shape"):
        measure(ready, [])


def test_a_sweep_goes_over_all_stages_and_the_median_of_them_counts():
    """A slow moment that lasts as long as a sweep leaves nothing behind."""
    timed, told = [], []
    stages = {
        name: (lambda size, name=name: lambda: timed.append((name, size)), sizes)
        for name, sizes in (("a", [1, 2]), ("none", []), ("b", [4]))
    }
    found = swept(
        stages, repeats=1, sweeps=3, clock=Ticking([1.0, 2.0, 4.0, 3.0, 6.0, 9.0, 1.5, 1.0, 4.5]),
        progress=lambda stage, done, total, **_: told.append(stage),
    )  # fmt: skip
    assert found == {"a": {1: 1.5, 2: 2.0}, "none": {}, "b": {4: 4.5}}
    one_sweep = [("a", 1)] * 2 + [("a", 2)] * 2 + [("b", 4)] * 2  # a warm step each
    assert timed == 3 * one_sweep
    assert {"profiling a (1 of 3)", "profiling b (3 of 3)"} <= set(told)
    with pytest.raises(BadInput, match="at least one sweep"):
        swept(stages, sweeps=0)


@pytest.fixture(scope="module")
def target():
    return tiny_policy()


def drafter(target, **options):
    draft = as_draft_model(build_draft(draft_config(target, layers=1, rank=4, block=3), target)).eval()
    return ModelSpeculator(draft, **options)


def test_a_real_model_and_drafter_are_measured(target):
    """The clock is planted; what runs between its ticks is real."""
    times = np.arange(1, 100) / 1000
    cost = profile(
        target,
        drafter(target),
        tokens=[1, 2, 4, 7],
        requests=[1, 2],
        repeats=1,
        sweeps=1,
        context=12,
        clock=Ticking(times),
    )
    assert cost.tokens.tolist() == [1, 2, 4, 7]
    assert cost.seconds == pytest.approx([0.001, 0.002, 0.003, 0.004])
    assert cost.requests.tolist() == [1, 2]
    # One context for two took 5 ms, no less than two. Proposing took 6 and 7 ms, rounds that verify one draft
    # 8 and 9, one that verifies all 10. A step of one's 4 tokens is 3 ms of these 10; a whole round of two
    # has more tokens than the table knows.
    assert cost.draft_seconds == pytest.approx([0.007, 0.007])
    assert cost.shares == pytest.approx([1.0, 1.0])
    assert cost.about["model"] == "tiny"
    assert cost.about["weights"] == target.card.weights
    again = StepCost.from_json(cost.to_json())
    assert PrefixScheduler(again).plan(np.full((1, 3), 0.9)).sum() <= 3


def test_a_speculator_may_be_profiled_again(target):
    speculator = drafter(target)
    for _ in range(2):
        profile(target, speculator, tokens=[1, 2], requests=[1, 2], repeats=1, sweeps=1, context=8)
    assert speculator.bytes == 0


def test_larger_passes_cost_what_their_requests_contexts_cost(target):
    """Steps of 1, 2 and 4 tokens, then two requests with one context: a millisecond less than with two."""
    clock = Ticking([0.001, 0.003, 0.004, 0.002])
    cost = profile(target, tokens=[1, 2, 4], requests=[1, 2], repeats=1, sweeps=1, context=8, clock=clock)
    assert cost.seconds == pytest.approx([0.001, 0.003, 0.005])


def test_without_a_drafter_there_is_no_draft_table(target):
    cost = profile(target, tokens=[1, 2], repeats=1, context=8)
    assert not len(cost.requests)
    assert (cost.seconds > 0).all()


def test_what_cannot_be_profiled(target):
    with pytest.raises(BadInput, match="do not fit"):
        profile(target, tokens=[1], context=500)
    with pytest.raises(BadInput, match="that memory holds"):
        profile(target, tokens=[], context=8)
    silent = drafter(target, scheduler=PrefixScheduler(None, "fixed", length=0))
    with pytest.raises(BadInput, match="would not draft"):
        profile(target, silent, tokens=[1], requests=[1], repeats=1, context=8)


def test_what_drafting_takes_and_what_a_drafts_token_does_are_told_apart():
    """Drafting 5, a request's token 1, and a draft's a quarter of it: found again from two rounds."""
    table = StepCost.of({n: 10.0 + n for n in range(1, 33)})
    short, whole = 5 + 12 + 0.25 * 2, 5 + 12 + 0.25 * 14
    assert of_rounds(table, 2, 7, 4.0, short, whole) == pytest.approx((5.0, 0.25))
    # Proposing alone took longer: that is what drafting takes at least.
    assert of_rounds(table, 2, 7, 6.0, short, whole) == pytest.approx((6.0, 0.25))
    # A whole round of 8 has 64 tokens, which the table does not know; one of 17 has too many in any case.
    assert of_rounds(table, 8, 7, 4.0, 28.0, None) == pytest.approx((4.0, 1.0))
    assert of_rounds(table, 8, 7, 4.0, 40.0, None) == pytest.approx((14.0, 1.0))
    assert of_rounds(table, 17, 7, 4.0, None, None) == (4.0, 1.0)


def test_noise_gives_no_share_outside_its_range():
    table = StepCost.of({n: 10.0 + n for n in range(1, 33)})
    drafting, share = of_rounds(table, 2, 7, 1.0, 20.0, 19.0)
    assert (drafting, share) == pytest.approx((8.0, 0.0))
    drafting, share = of_rounds(table, 2, 7, 1.0, 20.0, 90.0)
    assert (drafting, share) == pytest.approx((90.0 - 26.0, 1.0))


def test_shapes_that_memory_does_not_hold_are_left_out_and_counted(target):
    each = 64 * target.decoder.backbone.shape.bytes_per_token  # a context of up to 64 tokens
    small = LocalPolicy(target.model, target.codec, memory=2 * 3 * each)
    cost = profile(
        small, drafter(small), tokens=[1, 2, 4, 8, 1 << 14], requests=[1, 2, 4], repeats=1, context=8
    )
    assert cost.tokens.tolist() == [1, 2, 4, 8]
    assert cost.requests.tolist() == [1, 2]
    assert cost.about["left_out"] == 2


def test_one_slow_moment_does_not_spoil_larger_shapes(target):
    cost = profile(
        target,
        tokens=[1, 2, 4, 8],
        repeats=1,
        sweeps=1,
        context=8,
        clock=Ticking([0.001, 0.009, 0.003, 0.012]),
    )
    assert cost.seconds == pytest.approx([0.001, 0.006, 0.006, 0.012])
    assert cost.about["raised"] == pytest.approx(2.0)
