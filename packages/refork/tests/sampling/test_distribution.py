"""The sampling distribution: enumerated exactly, then both couplings against it."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.sampling import distribution
from refork.sampling.noise import NoiseKey, gumbels, uniforms

PLAIN = Sampling()
LOGITS = torch.tensor([[1.0, 0.0, 2.0, -1.0, 0.5]])
P = torch.softmax(LOGITS[0].double(), 0).numpy()


def tokens_at(values, settings=PLAIN, logits=LOGITS):
    noise = torch.tensor(values, dtype=torch.float64)
    return distribution.draw(logits.expand(len(values), -1), settings, noise)


def expected(settings):
    """The distribution by brute force, in the documented order of filters."""
    scores = LOGITS[0].double().numpy() / (settings.temperature or 1)
    scores = np.array([-np.inf if i in settings.banned else s for i, s in enumerate(scores)])
    p = np.exp(scores) / np.exp(scores).sum()
    if settings.min_p:
        p[p < settings.min_p * p.max()] = 0
        p /= p.sum()
    if settings.top_k:
        p[p < np.sort(p)[-min(settings.top_k, len(p))]] = 0
        p /= p.sum()
    if settings.top_p:
        order = np.argsort(-p, kind="stable")
        before = np.cumsum(p[order]) - p[order]
        p[order[before >= settings.top_p]] = 0
        p /= p.sum()
    return p


LAWS = [
    Sampling(),
    Sampling(temperature=0.5),
    Sampling(top_k=2),
    Sampling(top_p=0.7),
    Sampling(top_p=1.0, top_k=9),
    Sampling(temperature=2.0, top_k=4, top_p=0.6, banned=(2,)),
    Sampling(min_p=0.2),
    # The order shows: min-p leaves two tokens, of which top-p keeps one; the other way round it keeps both.
    Sampling(min_p=0.3, top_p=0.7),
    Sampling(temperature=2.0, min_p=0.5, top_k=3, banned=(2,)),
]


@pytest.mark.parametrize("settings", LAWS)
def test_the_grid_of_uniforms_enumerates_the_law(settings):
    """With n equally spaced uniforms each count is n p to within one on either border."""
    n = 4000
    drawn = tokens_at((np.arange(n) + 0.5) / n, settings)
    counts = np.bincount(drawn.tokens.numpy(), minlength=5)
    p = expected(settings)
    assert (np.abs(counts - n * p) <= 1).all()
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(drawn.logprobs.numpy(), np.log(p)[drawn.tokens.numpy()], atol=1e-6)
    np.testing.assert_allclose(drawn.logprobs_t1.numpy(), np.log(P)[drawn.tokens.numpy()], atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 300])
def test_tokens_lie_in_the_order_of_their_ids(size):
    logits = torch.randn(1, size, generator=torch.Generator().manual_seed(size))
    edges = np.cumsum(torch.softmax(logits[0].double(), 0).numpy())
    edges[-1] = 1.0
    u = np.random.default_rng(0).random(500)
    drawn = tokens_at(u, logits=logits)
    clear = np.abs(u[:, None] - edges).min(axis=1) > 1e-6
    np.testing.assert_array_equal(drawn.tokens.numpy()[clear], np.searchsorted(edges, u, "right")[clear])


def test_a_zero_is_never_drawn_however_extreme_the_noise():
    logits = torch.full((1, 200), -torch.inf)
    logits[0, [70, 130]] = 0.0
    drawn = tokens_at([1e-300, 2**-60, 0.5 - 1e-9, 0.5 + 1e-9, 1 - 2**-53], logits=logits)
    assert drawn.tokens.tolist() == [70, 70, 70, 130, 130]
    assert drawn.ties.tolist() == [False, False, True, True, False]


def test_ties_are_counted_near_a_border_only():
    edge = float(P[0])
    drawn = tokens_at([edge - 5e-7, edge + 5e-7, edge - 1e-4, edge + 1e-4])
    assert drawn.ties.tolist() == [True, True, False, False]
    greedy = distribution.draw(
        torch.tensor([[1.0, 1.0 + 5e-7, 0.0], [1.0, 1.1, 0.0]]), Sampling(temperature=0), torch.zeros(0)
    )
    assert greedy.ties.tolist() == [True, False]


def test_greedy_takes_the_lowest_of_equals_and_its_law_is_a_point():
    drawn = distribution.draw(
        torch.tensor([[0.0, 3.0, 3.0]]), Sampling(temperature=0, banned=(0,)), torch.zeros(0)
    )
    assert drawn.tokens.tolist() == [1]
    assert drawn.logprobs.tolist() == [0.0]
    forced = distribution.draw(LOGITS, Sampling(temperature=0), torch.zeros(0), forced=torch.tensor([0]))
    assert forced.logprobs.tolist() == [-math.inf]
    assert forced.logprobs_t1[0] == pytest.approx(math.log(P[0]), abs=1e-6)


def test_forced_tokens_have_the_laws_logprob():
    noise = torch.tensor([0.5, 0.5], dtype=torch.float64)
    drawn = distribution.draw(LOGITS.expand(2, -1), Sampling(top_k=2), noise, forced=torch.tensor([3, -1]))
    assert drawn.tokens.tolist()[0] == 3
    assert drawn.logprobs[0] == -math.inf
    assert drawn.logprobs_t1[0] == pytest.approx(math.log(P[3]), abs=1e-6)
    assert math.isfinite(drawn.logprobs[1])


def test_banned_first_acts_on_first_rows_only():
    settings = Sampling(banned_first=(2, 0), temperature=0)
    drawn = distribution.draw(
        LOGITS.expand(2, -1), settings, torch.zeros(0), first=torch.tensor([True, False])
    )
    assert drawn.tokens.tolist() == [4, 2]


def test_banning_everything_is_refused():
    with pytest.raises(BadInput, match="every token is banned"):
        distribution.draw(LOGITS, Sampling(banned=(0, 1, 2, 3, 4)), torch.tensor([0.5]))


def test_entropy_is_a_lower_bound_and_not_renormalised():
    noise = torch.tensor([0.5], dtype=torch.float64)
    for k, exact in ((2, -sum(p * math.log(p) for p in sorted(P)[-2:])), (9, -float((P * np.log(P)).sum()))):
        drawn = distribution.draw(LOGITS, Sampling(entropy_top_k=k, temperature=0.3), noise)
        assert drawn.entropy is not None
        assert drawn.entropy[0] == pytest.approx(exact, abs=1e-6)
    assert distribution.draw(LOGITS, Sampling(), noise).entropy is None


@pytest.mark.parametrize("coupling", ["inverse", "gumbel"])
def test_both_couplings_draw_from_the_law(coupling):
    """Chi-square at level 1e-4, four times in all: false alarm for at most 4 in 10,000 seeds; it is fixed."""
    n = 20_000
    keys = [NoiseKey(11, 0, i) for i in range(n)]
    raw = gumbels(keys, 0, 5) if coupling == "gumbel" else uniforms(keys, 1)[:, 0]
    for settings in (Sampling(coupling=coupling), Sampling(coupling=coupling, temperature=1.5, top_k=4)):
        drawn = distribution.draw(LOGITS.expand(n, -1), settings, torch.from_numpy(raw))
        p = expected(settings)
        counts = np.bincount(drawn.tokens.numpy(), minlength=5)
        assert counts[p == 0].sum() == 0
        assert chisquare(counts[p > 0], n * p[p > 0]).pvalue > 1e-4


def test_rows_do_not_depend_on_each_other():
    logits = torch.randn(37, 131, generator=torch.Generator().manual_seed(0))
    noise = torch.rand(37, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    whole = distribution.draw(logits, Sampling(temperature=0.8, top_p=0.9), noise)
    for row in (0, 5, 36):
        one = distribution.draw(
            logits[row : row + 1], Sampling(temperature=0.8, top_p=0.9), noise[row : row + 1]
        )
        assert one.tokens[0] == whole.tokens[row]
        assert torch.equal(one.logprobs[0], whole.logprobs[row])
        assert torch.equal(one.logprobs_t1[0], whole.logprobs_t1[row])


def test_token_logprobs():
    found = distribution.token_logprobs(LOGITS.expand(5, -1), torch.arange(5))
    np.testing.assert_allclose(found.numpy(), np.log(P), atol=1e-6)


def test_what_was_said_is_counted_however_much_it_is():
    """Each token once, those of the prompt first; the arrays grow on the way."""
    rng = np.random.default_rng(0)
    for prompt in ([], [5, 3, 5], list(range(100))):
        prefix = np.array(prompt, dtype=np.int32)
        fresh = distribution.SoFar(prefix)
        assert fresh.counts[: fresh.used].tolist() == [0] * len(set(prompt))
        said = rng.integers(0, 400, 900).tolist()
        for token in said:
            fresh.take(token)
        at_once = distribution.SoFar(np.array([*prompt, *said], dtype=np.int32), len(said))
        for one in (fresh, at_once):
            found = dict(zip(one.tokens[: one.used].tolist(), one.counts[: one.used].tolist(), strict=True))
            assert found == {token: said.count(token) for token in {*prompt, *said}}
            assert one.used == len(found)
        rows = [None, fresh, None, at_once]
        history = distribution.History.of(rows, torch.device("cpu"))
        assert history.rows.tolist() == [1] * fresh.used + [3] * at_once.used
        assert history.tokens.tolist() == [*fresh.tokens[: fresh.used], *at_once.tokens[: at_once.used]]
        assert history.counts.tolist() == [*fresh.counts[: fresh.used], *at_once.counts[: at_once.used]]
        assert {part.dtype for part in (history.rows, history.tokens, history.counts)} == {torch.int64}
    away = distribution.History.of([fresh], torch.device("meta"))
    assert {part.device.type for part in (away.rows, away.tokens, away.counts)} == {"meta"}
    assert distribution.History.of([None], torch.device("cpu")).tokens.tolist() == []


def test_of_equals_the_nucleus_holds_the_first():
    size = 1000
    kept = distribution.restrict(torch.zeros(2, size), Sampling(top_p=0.2505), None).isfinite()
    assert kept.nonzero()[:, 1].reshape(2, -1).tolist() == [list(range(251))] * 2
    four = distribution.restrict(torch.zeros(1, 4), Sampling(top_p=0.5), None).isfinite()
    assert four.tolist() == [[True, True, False, False]], "what is just reached is enough"


def test_the_nucleus_is_measured_in_doubles():
    # A fifth of equals reaches 0.2, and not what is 2e-8 above it: in single precision it would.
    for kept, share in ((2, 0.2 + 1e-8), (1, 0.2 - 1e-8), (3, 0.4 + 2e-8)):
        assert (
            int(distribution.restrict(torch.zeros(1, 5), Sampling(top_p=share), None).isfinite().sum())
            == kept
        )


def test_filters_look_at_one_row_at_a_time_and_take_no_more_than_they_say():
    rows = torch.tensor([[0.0, -1.0, -0.5], [10.0, 9.0, 9.5]])
    assert distribution.restrict(rows, Sampling(min_p=0.5)).isfinite().tolist() == [[True, False, True]] * 2
    assert distribution.restrict(rows, Sampling(min_p=1.0)).isfinite().tolist() == [[True, False, False]] * 2
    far = torch.tensor([[0.0, -60.0]])
    assert distribution.restrict(far, Sampling(top_p=1.0)) is far, "all of the distribution is no filter"
    free = torch.tensor([True, True])
    assert (
        distribution.restrict(rows, Sampling(banned=(0,)), free).isfinite().tolist()
        == [[False, True, True]] * 2
    )
    assert distribution.restrict(rows, Sampling(banned_first=(0,)), None).isfinite().all()
    with pytest.raises(BadInput, match="every token that the grammar allows is banned"):
        distribution.restrict(rows, PLAIN, allowed=torch.tensor([[True, True, True], [False, False, False]]))
    equal = torch.tensor([[2.0, 0.0, 2.0], [5.0, 5.0, 0.0]])
    found = distribution.draw(equal, Sampling(temperature=0), torch.zeros(0), without=torch.tensor([0, 0]))
    assert found.tokens.tolist() == [2, 1]


@pytest.mark.parametrize("settings", [Sampling(), Sampling(coupling="gumbel"), Sampling(temperature=0)])
def test_a_token_that_is_excluded_is_taken_out_of_its_row_alone(settings):
    rows = torch.tensor([[1.0, 0.0, 2.0], [1.0, 0.0, 2.0], [2.0, 0.0, 2.0], [3.0, 0.0, 2.0]])
    without = torch.tensor([2, -1, 0, 0])
    if settings.temperature == 0:
        found = distribution.draw(rows[1:3], settings, torch.zeros(0), without=without[1:3])
        assert found.tokens.tolist() == [2, 2]
        for row in (0, 3):  # a distribution that is all on its maximum has nothing beside it
            with pytest.raises(BadInput, match="the distribution's only one was excluded"):
                distribution.draw(rows[[1, row]], settings, torch.zeros(0), without=without[[1, row]])
        return
    noise = torch.tensor([0.3, 0.9, 0.7, 0.2], dtype=torch.float64)
    if settings.coupling == "gumbel":
        noise = torch.from_numpy(gumbels([NoiseKey(4, 0, i) for i in range(4)], 0, 3))
    found = distribution.draw(rows, settings, noise, without=without)
    for row in range(4):
        left = rows[row : row + 1].clone()
        if without[row] >= 0:
            left[0, without[row]] = -torch.inf
        one = distribution.draw(left, settings, noise[row : row + 1])
        assert found.tokens[row] == one.tokens[0]
        assert found.logprobs[row] == pytest.approx(float(one.logprobs[0]), abs=1e-6)
    assert distribution.draw(rows, settings, noise, without=torch.full((4,), -1)).tokens.tolist() == (
        distribution.draw(rows, settings, noise).tokens.tolist()
    )
    alone = torch.full((2, 3), -torch.inf)
    alone[:, 1], alone[0, 0] = 0.0, 0.0
    distribution.draw(alone[:1], settings, noise[:1], without=torch.tensor([1]))
    with pytest.raises(BadInput, match="the distribution's only one was excluded"):
        distribution.draw(alone, settings, noise[:2], without=torch.tensor([1, 1]))


def test_gumbel_takes_the_largest_of_log_chance_and_noise():
    n = 200
    logits = torch.randn(n, 7, generator=torch.Generator().manual_seed(0)) * 3
    noise = gumbels([NoiseKey(2, 0, i) for i in range(n)], 0, 7)
    settings = Sampling(coupling="gumbel", temperature=0.7)
    found = distribution.draw(logits, settings, torch.from_numpy(noise))
    keys = torch.log_softmax(logits.double() / 0.7, 1).numpy() + noise
    assert found.tokens.tolist() == keys.argmax(axis=1).tolist()
    # Nearer than a tie in nats; of a vocabulary of one nothing is near.
    two = torch.zeros(2, 2)
    near = torch.tensor([[1.0, 1.0 + 5e-7], [1.0, 1.0 + 2e-6]], dtype=torch.float64)
    assert distribution.draw(two, Sampling(coupling="gumbel"), near).ties.tolist() == [True, False]
    assert distribution.draw(two[:1], Sampling(coupling="gumbel"), near[:1]).ties.tolist() == [True]
    assert (
        distribution.draw(torch.zeros(3, 1), Sampling(temperature=0), torch.zeros(0)).ties.tolist()
        == [False] * 3
    )


def test_what_may_be_said_and_what_was_said_reach_the_law():
    logits, noise = torch.zeros(2, 3), torch.tensor([0.01, 0.01], dtype=torch.float64)
    allowed = torch.tensor([[False, True, True], [True, True, True]])
    assert distribution.draw(logits, PLAIN, noise, allowed=allowed).tokens.tolist() == [1, 0]
    history = distribution.History.of(
        [distribution.SoFar(np.array([0], dtype=np.int32), 1), None], torch.device("cpu")
    )
    found = distribution.draw(logits, Sampling(presence_penalty=2.0), noise, history=history)
    mass = 2 + math.exp(-2)
    forced = distribution.draw(
        logits, Sampling(presence_penalty=2.0), noise, history=history, forced=torch.tensor([0, 0])
    )
    assert forced.logprobs.tolist() == pytest.approx([-2 - math.log(mass), -math.log(3)])
    assert found.tokens.tolist() == [0, 0]


def test_a_forced_token_is_no_tie_and_the_first_token_is_one_too():
    near = torch.tensor([P[0] - 5e-7] * 3, dtype=torch.float64)
    found = distribution.draw(LOGITS.expand(3, -1), PLAIN, near, forced=torch.tensor([-1, 0, 3]))
    assert found.ties.tolist() == [True, False, False]
    assert found.tokens.tolist()[1:] == [0, 3]


def test_a_uniform_on_a_border_belongs_to_the_token_behind_it():
    half = torch.tensor([0.5, 0.25, 0.0], dtype=torch.float64)
    for size, tokens in ((2, [1, 0, 0]), (4, [2, 1, 0]), (128, [64, 32, 0]), (256, [128, 64, 0])):
        assert distribution.draw(torch.zeros(3, size), PLAIN, half).tokens.tolist() == tokens


def by_hand(lanes, blocks):
    """A distribution of one block, as sums that need not fit together."""
    lanes = torch.tensor(lanes, dtype=torch.float64)[:, None]
    total = torch.tensor(blocks, dtype=torch.float64)
    return distribution._Mass(
        torch.nn.functional.pad(lanes, (0, 64 - lanes.shape[2])), total[:, None], total, total.log(), total
    )


def test_a_sum_that_rounding_made_too_large_never_gives_a_token_that_cannot_be():
    mass = by_hand([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], [1.0 + 1e-7, 1.0])
    tokens, _ = distribution._invert(mass, torch.tensor([1 - 2**-53, 0.75], dtype=torch.float64))
    assert tokens.tolist() == [0, 1]
    tokens, _ = distribution._invert(mass, torch.tensor([0.25, 1 - 2**-53], dtype=torch.float64))
    assert tokens.tolist() == [0, 1]


def test_how_near_a_tie_is(monkeypatch):
    """Nearer than the limit; where the distribution itself begins and ends nothing is near."""
    monkeypatch.setattr(distribution, "TIE", 0.125)
    mass = by_hand([[0.5, 0.5]] * 8, [1.0] * 8)
    places = torch.tensor(
        [0.0, 0.0625, 0.375, 0.375 + 2**-40, 0.5, 0.625 - 2**-40, 0.625, 0.9375], dtype=torch.float64
    )
    tokens, ties = distribution._invert(mass, places)
    assert tokens.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert ties.tolist() == [False, False, False, True, True, True, False, False]
    below = float(np.nextafter(1.0, 0.0))
    _, ties = distribution._invert(by_hand([[below]], [1.0]), torch.tensor([0.95], dtype=torch.float64))
    assert ties.tolist() == [False]
    keys = torch.tensor([[1.0, 0.875], [1.0, 0.875 + 2**-20], [0.5, 1.0]])
    assert distribution._largest(keys)[1].tolist() == [False, True, False]


def test_what_cannot_be_said_adds_no_entropy():
    logits = torch.tensor([[0.0, -torch.inf, 0.0], [0.0, 0.0, -torch.inf]])
    noise = torch.tensor([0.5, 0.5], dtype=torch.float64)
    found = distribution.draw(logits, Sampling(entropy_top_k=3), noise).entropy
    assert found.tolist() == pytest.approx([math.log(2)] * 2)
    two = distribution.draw(
        LOGITS.expand(3, -1), Sampling(entropy_top_k=2), torch.full((3,), 0.5, dtype=torch.float64)
    )
    assert two.entropy.shape == (3,)


def test_the_likeliest_tokens():
    logits = torch.stack([LOGITS[0], LOGITS[0].flip(0), LOGITS[0] + 3]).to(torch.bfloat16)
    plain = torch.log_softmax(logits.double(), 1).numpy()
    for count, size in ((2, 2), (5, 5), (9, 5)):
        tokens, logs = distribution.likeliest(logits, count)
        order = np.argsort(-plain, axis=1)[:, :size]
        assert tokens.tolist() == order.tolist()
        np.testing.assert_allclose(logs.numpy(), np.take_along_axis(plain, order, 1), atol=1e-6)
        assert logs.dtype == torch.float32
