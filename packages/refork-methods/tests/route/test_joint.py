import numpy as np
import pytest
import torch

from refork.errors import BadInput, CannotDo
from refork_methods.route import OutcomeTable
from refork_methods.route.backbone import RouterBackbone
from refork_methods.route.head import softmax
from refork_methods.route.stage1 import (
    JointSettings,
    Stage1Settings,
    cases_of,
    fit_joint,
    fit_weights,
    mean_kl,
)
from support.models import tiny_policy

PLAN = Stage1Settings(ridge=1e-3)
STEPS = JointSettings(epochs=6, rate=0.05, every=2)


def planted(n=80, seed=0):
    """Four workers; the letter that a text begins with says which is best. Texts end alike."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(4, size=n)
    texts = [f"{'abcd'[k]}{rng.integers(1000)} what is it ?" for k in kind]
    chance = np.where(np.arange(4) == kind[:, None], 0.9, 0.3)
    reward = rng.random((n, 4, 6)) < chance[:, :, None]
    return OutcomeTable.from_arrays(reward.astype(float), list("wxyz"), texts=texts), texts


@pytest.fixture(scope="module")
def fitted():
    table, texts = planted()
    backbone = RouterBackbone(tiny_policy())
    return table, texts, backbone, fit_joint(table, backbone, texts, PLAN, STEPS)


def test_offsets_trained_by_gradient_explain_more_than_the_head_alone(fitted):
    table, texts, backbone, made = fitted
    first, best = made.curve[0], next(row for row in made.curve if row[0] == made.best)
    assert made.best > 0
    assert best[1] < first[1]
    assert best[2] < 0.9 * first[2]
    # Trained without the tasks that the epoch is picked by: the first row is the exact head on those.
    cases, states = cases_of(table, PLAN), backbone.states(texts)
    trained, validated = cases.folds(PLAN.seed)[0]
    assert not set(validated) & set(cases.held)
    wanted = cases.targets(made.plain.tau, trained)
    weights, bias = fit_weights(states[trained], wanted, PLAN.ridge)
    assert first[1] == pytest.approx(mean_kl(softmax(states[trained] @ weights.T + bias), wanted), abs=1e-4)
    assert np.abs(made.head.offsets).max() > 0.01
    assert not made.head.offsets[-32:].any()  # the output head is behind the state that is read


def test_the_policy_reads_the_states_that_were_trained_on(fitted):
    table, texts, backbone, made = fitted
    before = backbone.states(texts[:3])
    with backbone.moved(backbone.adapter(made.head.matrices), made.head.offsets):
        states = backbone.states(texts)
    cases = cases_of(table, PLAN)
    weights, _ = fit_weights(states[cases.fit], cases.targets(made.plain.tau, cases.fit), PLAN.ridge)
    assert np.allclose(weights, made.head.weights, rtol=1e-2, atol=1e-2)
    rewards = cases.rewards[cases.held]
    earned = rewards[np.arange(len(rewards)), made.head.choose(states[cases.held])].mean()
    assert made.verdict.router == pytest.approx(earned)  # of the head with its offsets, not of the plain one
    assert not np.allclose(states[:3], before)
    assert np.array_equal(backbone.states(texts[:3]), before)


def test_the_models_own_weights_stay(fitted):
    _, _, backbone, made = fitted
    fresh = tiny_policy()
    assert made.head.backbone == backbone.digest == fresh.card.weights
    mine = dict(backbone.policy.model.named_parameters())
    assert all(torch.equal(mine[name], p) for name, p in fresh.model.named_parameters())


def test_an_error_while_moved_puts_the_weights_back(fitted):
    _, texts, backbone, made = fitted
    before = backbone.states(texts[:2])
    with pytest.raises(ZeroDivisionError), backbone.moved(backbone.adapter(), made.head.offsets):
        raise ZeroDivisionError
    assert np.array_equal(backbone.states(texts[:2]), before)


def test_where_nothing_gets_better_the_plain_head_is_kept():
    table, texts = planted(80)
    made = fit_joint(
        table, RouterBackbone(tiny_policy()), texts, PLAN, JointSettings(epochs=1, rate=5.0, every=1)
    )
    assert (made.best, made.head.offsets) == (0, None)
    assert np.array_equal(made.head.weights, made.plain.head.weights)


def test_refusals():
    table, texts = planted(40)
    with pytest.raises(CannotDo, match="final norm"):
        fit_joint(table, RouterBackbone(tiny_policy(), layer="raw"), texts, PLAN, STEPS)
    with pytest.raises(BadInput, match="39 states for 40"):
        fit_joint(table, RouterBackbone(tiny_policy()), texts[1:], PLAN, STEPS)
    with pytest.raises(BadInput, match="1 or more"):
        JointSettings(epochs=0)
