"""Steering along a direction: exact on states, the same in any batch, and recorded as what it is."""

import numpy as np
import pytest

from refork.decoding.states import Edit
from refork.errors import BadInput, CannotDo
from refork.forking import SwapPolicy, fork
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.scripted import ScriptedPolicy
from refork.sampling.noise import NoiseKey
from refork.tree.tree import Tree
from refork_methods.steer import (
    AblateDirection,
    AddVector,
    ClampDirection,
    Steer,
    difference_of_means,
    random_directions,
    steering,
)
from support.chain import TABLE
from support.models import tiny_policy

DIRECTION = np.linspace(-2, 1, 32).astype(np.float32)
UNIT = DIRECTION / np.linalg.norm(DIRECTION)
SETTINGS = Sampling(max_tokens=6, ignore_eos=True)


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


@pytest.mark.parametrize("layer", [0, 1, 2, "raw"])
def test_each_does_to_the_states_what_it_says(policy, layer):
    tokens = [policy.encode("some words"), policy.encode("others")]
    plain = policy.hidden_states(tokens, [layer])
    wanted = {
        AddVector(layer, DIRECTION, 0.5): lambda s: s + 0.5 * DIRECTION,
        AblateDirection(layer, DIRECTION): lambda s: s - (s @ UNIT)[..., None] * UNIT,
        ClampDirection(layer, DIRECTION, 3.0): lambda s: s + (3.0 - s @ UNIT)[..., None] * UNIT,
    }
    for steer, change in wanted.items():
        assert isinstance(steer, Steer)
        with steering(policy, steer) as steered:
            for before, after in zip(plain, steered.hidden_states(tokens, [layer]), strict=True):
                np.testing.assert_allclose(after, change(before), atol=2e-5)
    for before, after in zip(plain, policy.hidden_states(tokens, [layer]), strict=True):
        np.testing.assert_array_equal(before, after)


def test_clamping_twice_is_clamping_once(policy):
    tokens = [policy.encode("some words")]
    clamp = ClampDirection(1, DIRECTION, 2.0)
    with steering(policy, clamp) as once, steering(once, clamp) as twice:
        one, two = (p.hidden_states(tokens, [1])[0][0] for p in (once, twice))
    np.testing.assert_allclose(one, two, atol=1e-5)
    np.testing.assert_allclose(one @ UNIT, 2.0, atol=1e-5)


def test_scale_nought_changes_no_token_and_no_bit_of_a_logprob(policy):
    asked = [Request(policy.encode("hello"), NoiseKey(1, 0, i)) for i in range(6)]
    plain = sample_all(policy, asked, SETTINGS)
    with steering(policy, AddVector(1, DIRECTION, 0.0)) as same:
        for one, two in zip(plain, sample_all(same, asked, SETTINGS), strict=True):
            np.testing.assert_array_equal(one.tokens, two.tokens)
            np.testing.assert_array_equal(one.logprobs, two.logprobs)
    with steering(policy, AddVector(1, DIRECTION, 3.0)) as pushed:
        moved = sample_all(pushed, asked, SETTINGS)
        alone = [sample_all(pushed, [request], SETTINGS)[0] for request in asked]
    assert any(not np.array_equal(a.tokens, b.tokens) for a, b in zip(plain, moved, strict=True))
    for one, two in zip(moved, alone, strict=True):
        np.testing.assert_array_equal(one.logprobs, two.logprobs)


def test_a_fork_has_one_arm_with_and_one_without(policy):
    with Tree.memory() as tree:
        start = plant_prompt(tree, policy, "hello there")
        judge = MatchJudge("e")
        base = fork(start, policy, draws=8, settings=SETTINGS, judge=judge, seed=3)
        with steering(policy, AddVector(1, DIRECTION, 4.0, phase="decode")) as steered:
            arm = fork(
                start, policy, draws=8, settings=SETTINGS, judge=judge, seed=3, change=SwapPolicy(steered)
            )
        names = {tree.node(draw.leaf).policy for draw in arm.draws}
        assert names == {steered.card.name}
        assert steered.card.name.startswith("tiny+add:4:")
        texts = [[tree.node(draw.leaf).text for draw in which.draws] for which in (base, arm)]
        assert texts[0] != texts[1]
        # The first token comes from the prompt, which this phase leaves alone; the noise is the same.
        firsts = [[tree.node(draw.leaf).tokens[0] for draw in which.draws] for which in (base, arm)]
        assert firsts[0] == firsts[1]


def test_names_tell_vectors_and_numbers_apart():
    other = DIRECTION.copy()
    other[0] += 1
    steers = [
        AddVector(1, DIRECTION),
        AddVector(1, other),
        AddVector(1, DIRECTION, 2.0),
        AblateDirection(1, DIRECTION),
        ClampDirection(1, DIRECTION, 1.0),
        AddVector(1, DIRECTION, 0.12345671),
        AddVector(1, DIRECTION, np.float64(0.12345674)),
        ClampDirection(1, DIRECTION, 1234567.0),
        ClampDirection(1, DIRECTION, 1234568.0),
    ]
    assert "np" not in steers[6].edit().name
    assert steers[2].edit().name.startswith("add:2:")
    assert len({steer.edit().name for steer in steers}) == len(steers)


def test_difference_of_means_moves_one_mean_to_the_other():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(40, 5)).astype(np.float32), rng.normal(size=(30, 5)).astype(np.float32)
    moved = right + difference_of_means(left, right)
    np.testing.assert_allclose(moved.mean(axis=0), left.mean(axis=0), atol=1e-5)


def test_random_directions_are_as_long_and_seeded():
    drawn = random_directions(50, DIRECTION, seed=1)
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), np.linalg.norm(DIRECTION), rtol=1e-5)
    np.testing.assert_array_equal(drawn, random_directions(50, DIRECTION, seed=1))
    assert not np.array_equal(drawn, random_directions(50, DIRECTION, seed=2))


def test_what_is_no_direction_is_refused(policy):
    nothing = np.zeros(32, dtype=np.float32)
    for bad in (nothing, np.full(32, np.nan, dtype=np.float32), DIRECTION[None]):
        with pytest.raises(BadInput, match="direction"):
            AddVector(1, bad).edit()
        with pytest.raises(BadInput, match="direction"):
            AblateDirection(1, bad).edit()
    with pytest.raises(BadInput, match="finite"):
        AddVector(1, DIRECTION, float("inf")).edit()
    with pytest.raises(BadInput, match="finite"):
        ClampDirection(1, DIRECTION, float("nan")).edit()
    with pytest.raises(BadInput, match="nothing"), steering(policy):
        pass
    scripted = ScriptedPolicy.from_chain(TABLE)
    with pytest.raises(CannotDo, match="local"), steering(scripted, AddVector(1, DIRECTION)):
        pass
    narrow = Edit(1, lambda states: states + 1, "by hand")
    with steering(policy, narrow) as steered:
        assert steered.card.name == "tiny+by hand"
    with pytest.raises(BadInput, match="shapes"):
        difference_of_means(DIRECTION[None], DIRECTION[None, :3])
    with pytest.raises(BadInput, match="no states"):
        difference_of_means(DIRECTION[None][:0], DIRECTION[None])
    with pytest.raises(BadInput, match="equal"):
        difference_of_means(DIRECTION[None], DIRECTION[None])
