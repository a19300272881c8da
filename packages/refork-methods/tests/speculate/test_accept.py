"""The acceptance rules, by exact enumeration: what is said has the law of the model."""

import itertools

import numpy as np
import pytest
import torch

from refork.errors import BadInput
from refork_methods.speculate.accept import (
    acceptance,
    check_distribution,
    couple,
    draw_from,
    expected_tokens,
    keep_chance,
    reject,
    residual,
)

EXACT = 1e-12
LAWS = {
    "general": ([0.5, 0.3, 0.2], [0.2, 0.2, 0.6]),
    "equal": ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
    "disjoint": ([0.6, 0.4, 0.0, 0.0], [0.0, 0.0, 0.3, 0.7]),
    "zeros of p": ([0.0, 1.0, 0.0], [0.3, 0.3, 0.4]),
    "zeros of q": ([0.3, 0.3, 0.4], [0.0, 1.0, 0.0]),
    "point masses": ([0.0, 1.0], [0.0, 1.0]),
    "sheer": ([1e-9, 1 - 1e-9], [1 - 1e-9, 1e-9]),
}


def law(values):
    return torch.tensor(values, dtype=torch.float64)


def kept_share(p, q, token):
    """Over which share of uniforms the rule keeps a draft: found by bisection on the rule itself."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        found = reject(
            torch.stack([p, p])[None], q[None, None], torch.tensor([[token]]),
            torch.tensor([[middle]], dtype=torch.float64), torch.tensor([0.5], dtype=torch.float64),
        )  # fmt: skip
        low, high = (middle, high) if int(found.accepted[0]) else (low, middle)
    return low


@pytest.mark.parametrize("name", LAWS)
def test_the_first_token_has_the_law_of_the_model(name):
    p, q = (law(v) for v in LAWS[name])
    said = torch.zeros_like(p)
    for token in torch.nonzero(q)[:, 0].tolist():
        keep = float(keep_chance(p[token], q[token]))
        said[token] += q[token] * keep
        said += q[token] * (1 - keep) * residual(p, q)
    assert float((said - p).abs().max()) < EXACT


@pytest.mark.parametrize("name", ["general", "zeros of p", "sheer"])
def test_the_rule_keeps_exactly_the_stated_share_of_drafts(name):
    p, q = (law(v) for v in LAWS[name])
    for token in torch.nonzero(q)[:, 0].tolist():
        assert kept_share(p, q, token) == pytest.approx(float(keep_chance(p[token], q[token])), abs=EXACT)


@pytest.mark.parametrize("name", LAWS)
def test_acceptance_is_one_minus_total_variation(name):
    p, q = (law(v) for v in LAWS[name])
    assert float(acceptance(p, q)) == pytest.approx(1 - 0.5 * float((p - q).abs().sum()), abs=EXACT)
    chance = sum(float(q[t] * keep_chance(p[t], q[t])) for t in torch.nonzero(q)[:, 0].tolist())
    assert chance == pytest.approx(float(acceptance(p, q)), abs=EXACT)


def test_two_tokens_have_the_joint_law_of_the_model():
    """Chains of two drafts over two tokens, all orders of keeping and refusing, the bonus token included."""
    rng = np.random.default_rng(0)
    size = 2
    p1, p2 = law(rng.dirichlet([1, 1])), law(rng.dirichlet([1, 1], size=size))
    q1, q2 = law(rng.dirichlet([1, 1])), law(rng.dirichlet([1, 1], size=size))
    p2[1] = law([0.0, 1.0])
    joint = torch.zeros((size, size), dtype=torch.float64)
    for first, second in itertools.product(range(size), repeat=2):
        drafted = q1[first] * q2[first][second]
        keep1 = float(keep_chance(p1[first], q1[first]))
        keep2 = float(keep_chance(p2[first][second], q2[first][second]))
        joint[first, second] += drafted * keep1 * keep2
        joint[first] += drafted * keep1 * (1 - keep2) * residual(p2[first], q2[first])
        # After a refusal at the first token the second one is drawn in the next round, by the model's law.
        joint += drafted * (1 - keep1) * residual(p1, q1)[:, None] * p2
    assert float((joint - p1[:, None] * p2).abs().max()) < EXACT


def test_many_rows_are_settled_as_each_alone_would_be():
    rng = np.random.default_rng(1)
    rows, g, size = 40, 3, 5
    p, q = law(rng.dirichlet([0.5] * size, (rows, g + 1))), law(rng.dirichlet([0.5] * size, (rows, g)))
    drafted = torch.from_numpy(rng.integers(0, size, (rows, g)))
    u, last = law(rng.random((rows, g))), law(rng.random(rows))
    lengths = torch.from_numpy(rng.integers(0, g + 1, rows))
    all_ = reject(p, q, drafted, u, last, lengths)
    for r in range(rows):
        chance = (p[r, range(g), drafted[r]] / q[r, range(g), drafted[r]]).clamp(max=1)
        count = 0
        while count < lengths[r] and u[r, count] < chance[count]:
            count += 1
        left = p[r, count] if count == lengths[r] else residual(p[r, count], q[r, count])
        assert int(all_.accepted[r]) == count
        assert int(all_.token[r]) == int(draw_from(left[None], last[r : r + 1])[0][0])
        assert not all_.ties[r].any()


def test_the_bonus_token_comes_from_the_model_when_all_is_kept():
    p, q = law([[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]), law([[[0.0, 1.0, 0.0]]])
    found = reject(p, q, torch.tensor([[1]]), law([[0.999]]), law([0.3]))
    assert (int(found.accepted[0]), int(found.token[0])) == (1, 2)


def test_a_uniform_at_the_edge_of_keeping_is_a_tie():
    p, q = law([[[0.5, 0.5], [0.5, 0.5]]]), law([[[1.0, 0.0]]])
    drafted = torch.tensor([[0]])
    assert reject(p, q, drafted, law([[0.5 - 1e-9]]), law([0.2])).ties[0].tolist() == [True, False]
    assert reject(p, q, drafted, law([[0.2]]), law([0.5])).ties[0].tolist() == [False, True]
    assert not reject(p, q, drafted, law([[0.2]]), law([0.2])).ties.any()


def test_no_token_of_probability_zero_is_ever_drawn():
    edges = law([[0.0, 0.25, 0.0, 0.75, 0.0]] * 6)
    uniforms = law([1e-18, 0.25 - 1e-17, 0.25, 0.5, 1 - 1e-16, np.nextafter(1.0, 0.0)])
    tokens, _ = draw_from(edges, uniforms)
    assert set(tokens.tolist()) == {1, 3}


def test_coupled_drafts_stand_while_they_are_the_models_own_tokens():
    own, drafted = torch.tensor([[4, 5, 6], [4, 5, 6], [4, 5, 6]]), torch.tensor([[4, 5], [4, 9], [9, 5]])
    accepted, token = couple(own, drafted, torch.tensor([2, 2, 2]))
    assert accepted.tolist() == [2, 1, 0]
    assert token.tolist() == [6, 5, 4]
    assert couple(own, drafted, torch.tensor([1, 0, 2]))[0].tolist() == [1, 0, 0]


def test_expected_tokens_count_the_bonus_token():
    # tau of arXiv 2607.05147, appendix: conditional chances to the chances of whole prefixes.
    chances = np.cumprod(np.linspace(0.72, 0.63, 7))
    assert float(expected_tokens(torch.from_numpy(chances))) == pytest.approx(3.13, abs=0.01)
    rising = np.cumprod(np.linspace(0.53, 0.74, 7))
    assert float(expected_tokens(torch.from_numpy(rising))) == pytest.approx(2.29, abs=0.01)


@pytest.mark.parametrize(
    ("p", "q", "drafted", "match"),
    [
        ([[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0]], 1, "probability 0 under the draft law"),
        ([[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.4]], 0, "q is no probability distribution"),
        ([[0.5, 0.5], [0.9, 0.5]], [[0.5, 0.5]], 0, "p is no probability distribution"),
        ([[0.5, 0.5], [0.5, 0.5]], [[1.5, -0.5]], 0, "q is no probability distribution"),
        ([[0.5, 0.5], [0.5, 0.5]], [[0.3, 0.3, 0.4]], 0, "do not fit"),
        ([[0.5, 0.5]], [[0.5, 0.5]], 0, "do not fit"),
    ],
)
def test_what_is_not_the_sampled_distribution_is_refused(p, q, drafted, match):
    with pytest.raises(BadInput, match=match):
        reject(law([p]), law([q]), torch.tensor([[drafted]]), law([[0.5]]), law([0.5]))


def test_laws_of_another_precision_are_refused():
    with pytest.raises(BadInput, match="float32"):
        check_distribution(torch.tensor([[0.5, 0.5]]), "q")
    with pytest.raises(BadInput, match="bfloat16"):
        check_distribution(torch.tensor([[0.5, 0.5]], dtype=torch.bfloat16), "q")
