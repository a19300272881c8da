"""The acceptance rules, by exact enumeration: what is said has the distribution of the model."""

import numpy as np
import pytest
import torch

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork_methods.speculate.accept import RoundChances, couple, draw_from, keep_chance, residual
from refork_methods.speculate.verification import Chain, Group, Turn, settle_rejection

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


def settle(p, q, drafted, accept, last, lengths=None):
    """A round of drafts [n, g] with laws p [n, g + 1, V] and q [n, g, V], settled with these uniforms."""
    rows, g = drafted.shape
    counts = np.full(rows, g) if lengths is None else lengths.numpy()
    logits = torch.cat([p[row, : n + 1] for row, n in enumerate(counts.tolist())]).log().float()
    chain = Chain(drafted, q.log().float(), q.gather(2, drafted[:, :, None])[..., 0])
    turn = Turn(Group(Sampling(), np.arange(rows), whole=True), np.zeros(rows, np.int64), counts, logits)
    return settle_rejection(turn, chain, RoundChances(accept.numpy(), accept.numpy(), last.numpy()))


def kept_share(p, q, token):
    """Over which share of uniforms the rule keeps a draft: found by bisection on the rule itself."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        (found,) = settle(
            torch.stack([p, p])[None], q[None, None], torch.tensor([[token]]), law([[middle]]), law([0.5])
        )
        low, high = (middle, high) if found.accepted else (low, middle)
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
        # Logits are float32.
        assert kept_share(p, q, token) == pytest.approx(float(keep_chance(p[token], q[token])), abs=1e-6)


@pytest.mark.parametrize("name", LAWS)
def test_acceptance_is_one_minus_total_variation(name):
    p, q = (law(v) for v in LAWS[name])
    chance = sum(float(q[t] * keep_chance(p[t], q[t])) for t in torch.nonzero(q)[:, 0].tolist())
    assert chance == pytest.approx(1 - 0.5 * float((p - q).abs().sum()), abs=EXACT)


def test_many_rows_are_settled_as_each_alone_would_be():
    rng = np.random.default_rng(1)
    rows, g, size = 40, 3, 5
    p, q = law(rng.dirichlet([0.5] * size, (rows, g + 1))), law(rng.dirichlet([0.5] * size, (rows, g)))
    drafted = torch.from_numpy(rng.integers(0, size, (rows, g)))
    u, last = law(rng.random((rows, g))), law(rng.random(rows))
    lengths = torch.from_numpy(rng.integers(0, g + 1, rows))
    together = settle(p, q, drafted, u, last, lengths)
    for r in range(rows):
        chance = (p[r, range(g), drafted[r]] / q[r, range(g), drafted[r]]).clamp(max=1)
        count = 0
        while count < lengths[r] and u[r, count] < chance[count]:
            count += 1
        left = p[r, count] if count == lengths[r] else residual(p[r, count], q[r, count])
        assert together[r].accepted == count
        assert together[r].tokens[:-1].tolist() == drafted[r, :count].tolist()
        assert int(together[r].tokens[-1]) == int(draw_from(left[None], last[r : r + 1])[0][0])
        assert not together[r].ties.any()


def test_the_bonus_token_comes_from_the_model_when_all_is_kept():
    p, q = law([[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]), law([[[0.0, 1.0, 0.0]]])
    (found,) = settle(p, q, torch.tensor([[1]]), law([[0.999]]), law([0.3]))
    assert (found.accepted, found.tokens.tolist()) == (1, [1, 2])


def test_a_uniform_at_the_edge_of_keeping_is_a_tie():
    p, q = law([[[0.5, 0.5], [0.5, 0.5]]]), law([[[1.0, 0.0]]])
    drafted = torch.tensor([[0]])
    for accept, last, ties in ((0.5 - 1e-9, 0.2, [1, 0]), (0.2, 0.5, [0, 1]), (0.2, 0.2, [0, 0])):
        (found,) = settle(p, q, drafted, law([[accept]]), law([last]))
        assert found.ties.tolist() == ties


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


def test_a_draft_that_its_law_could_not_have_given_is_refused():
    with pytest.raises(BadInput, match="probability 0 under the draft distribution"):
        settle(law([[[0.5, 0.5]] * 2]), law([[[1.0, 0.0]]]), torch.tensor([[1]]), law([[0.5]]), law([0.5]))
