"""The figures of a bench, on a model so small that its times mean nothing."""

import numpy as np
import pytest

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork_methods.speculate.bench import BatchResult, bench, prompt_tokens
from refork_methods.speculate.data import Prompt
from refork_methods.speculate.decoder import SpeculativeDecoder
from refork_methods.speculate.speculator import Tally
from support.drafters import gqa, knowing


@pytest.fixture(scope="module")
def decoder():
    target = gqa()
    return SpeculativeDecoder(target, knowing(target), rule="coupled")


def test_both_ways_draw_the_same_and_rounds_are_counted(decoder):
    prompts = prompt_tokens(
        decoder.target, [Prompt(text="abc"), Prompt(stages=(({"role": "user", "content": "d"},),))]
    )
    assert prompts[1][-1] != prompts[0][-1]
    found = bench(decoder, prompts, Sampling(max_tokens=8), batches=(1, 3), repeats=2, seed=1)
    assert [item.batch for item in found] == [1, 3]
    for item in found:
        assert item.other_tokens == 0
        assert item.logprob_gap < 2e-5
        assert item.tokens == item.plain_tokens == (8 * item.batch,) * 2
        told = item.to_json()
        # Every request says its first token before the rounds.
        assert told["rounds"] + told["accepted"] <= 2 * 7 * item.batch
        assert told["tau"] == pytest.approx(1 + told["accepted"] / told["rounds"])
        assert told["ratio_range"][0] <= told["ratio"] <= told["ratio_range"][1]


def test_a_rule_that_promises_only_the_law_says_so(decoder):
    other = SpeculativeDecoder(decoder.target, decoder.draft, rule="rejection")
    [item] = bench(other, [np.array([1, 2], dtype=np.int32)], Sampling(max_tokens=6), batches=(2,), repeats=1)
    assert item.other_tokens is None
    assert item.logprob_gap < 2e-5


def test_speeds_are_medians_and_ratios_pair_the_repeats():
    item = BatchResult(1, (1.0, 2.0, 4.0), (1.0, 1.0, 1.0), (8, 8, 8), (8, 8, 8), Tally(2).stats, 0, 0.0)
    assert (item.plain_speed, item.speed) == (4.0, 8.0)
    assert item.ratios == (1.0, 2.0, 4.0)
    assert item.ratio == 2.0


def test_nothing_to_time_is_refused(decoder):
    one = [np.array([1], dtype=np.int32)]
    with pytest.raises(BadInput, match="no prompt"):
        bench(decoder, [], Sampling())
    with pytest.raises(BadInput, match="at least 1"):
        bench(decoder, one, Sampling(), repeats=0)
    with pytest.raises(BadInput, match="at least 1"):
        bench(decoder, one, Sampling(), batches=(0,))
