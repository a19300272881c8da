from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.theory.cues.designs import random_design
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.cues.rules import RULES
from refork_methods.theory.metrics import mse_pb, pearson
from refork_methods.theory.predictive import score_theories
from refork_methods.theory.simulate import predicted_rates, simulate
from refork_methods.theory.trials import Observation, Trials


def world(truth, people=25, observations=4, seed=0):
    rng = np.random.default_rng(seed)
    designs = [random_design(rng, cues=(4, 5)) for _ in range(observations)]
    return [
        Observation(f"o{i}", e, simulate(truth, e, people, 100 * seed + i)) for i, e in enumerate(designs)
    ]


THEORIES = (RULES["take-the-best"], RULES["tallying"], RULES["wadd"])


def test_mse_and_r_by_hand():
    x, y = np.asarray([0.1, 0.5, 0.9, np.nan]), np.asarray([0.2, 0.5, 0.6, 0.1])
    assert mse_pb(x, y) == pytest.approx((0.01 + 0 + 0.09) / 3)
    assert pearson(x, y) == pytest.approx(np.corrcoef(x[:3], y[:3])[0, 1])
    assert pearson(np.full(4, 0.5), y) is None
    assert mse_pb(np.asarray([np.nan]), np.asarray([0.1])) is None
    with pytest.raises(BadInput):
        mse_pb(x, y[:2])


def test_the_board_holds_what_its_parts_say():
    seen = world(RULES["wadd"])
    board = score_theories(THEORIES, seen, seed=1, draws=500, redraws=200)
    rates = {t.name: [predicted_rates(t, o.experiment, 500, 1) for o in seen] for t in THEORIES}
    people = np.concatenate([o.trials.rates(o.experiment.stimuli) for o in seen])
    for theory in THEORIES:
        found = board.of(theory.name)
        model = np.concatenate(rates[theory.name])
        assert found.mse_pb.estimate == pytest.approx(mse_pb(model, people))
        assert found.r.estimate == pytest.approx(pearson(model, people))
        for one, o, own in zip(found.by_observation, seen, rates[theory.name], strict=True):
            assert one == pytest.approx(mse_pb(own, o.trials.rates(o.experiment.stimuli)))
    shares = [chosen / shown for chosen, shown in (o.trials.counts(o.experiment.stimuli) for o in seen)]
    # Everybody is shown every pair as often: the noise is the variance of the persons' rates over people.
    noise = np.concatenate([each.var(axis=0, ddof=1) / len(each) for each in shares])
    assert board.floor == pytest.approx(noise.mean())
    assert board.coin == pytest.approx(mse_pb(np.full(people.size, 0.5), people))
    assert (board.stimuli, board.people, board.choices) == (32, 100, 9600)
    errors = [one.mse_pb.estimate for one in board.theories]
    assert errors == sorted(errors)


def test_skill_is_absolute_and_the_relative_score_is_not():
    seen = world(RULES["wadd"])
    few = score_theories(THEORIES[:2], seen, seed=1, draws=300, redraws=100)
    more = score_theories(THEORIES, seen, seed=1, draws=300, redraws=100)
    for name in ("take-the-best", "tallying"):
        assert few.of(name).skill == more.of(name).skill
        assert few.of(name).mse_pb == more.of(name).mse_pb
    assert any(few.of(n).relative != more.of(n).relative for n in ("take-the-best", "tallying"))


def test_the_coin_has_no_skill():
    seen = world(RULES["take-the-best"])
    board = score_theories([*THEORIES, RULES["random"]], seen, seed=1, draws=300, redraws=100)
    coin = board.of("random")
    assert (coin.skill.estimate, coin.r) == (0, None)
    assert coin.mse_pb.estimate == board.coin


def test_pure_noise_has_no_winner_and_nothing_to_explain():
    """Nobody prefers anything: a winner has chance 0.05 at most in each of 12 worlds, 5 of them 0.0002."""
    named = 0
    for seed in range(12):
        seen = world(RULES["random"], observations=3, seed=seed)
        board = score_theories(THEORIES, seen, seed=1, draws=200, redraws=400)
        named += board.decide().better
        assert board.of("take-the-best").skill is None
    assert named < 5


def test_a_theory_that_fits_and_is_told_apart_wins():
    board = score_theories(THEORIES, world(RULES["wadd"]), seed=1, draws=300, redraws=400)
    assert board.winner() == "wadd"
    assert board.decide().words.startswith("winner: wadd (error 0.")
    assert board.untold() == ("wadd",)
    assert board.of("wadd").noise_p > 0.05
    gain = board.gain("wadd")
    assert gain.estimate == pytest.approx(board.coin - board.of("wadd").mse_pb.estimate)
    assert gain.low > 0


def test_a_difference_has_the_sign_of_its_order():
    board = score_theories(THEORIES, world(RULES["wadd"]), seed=1, draws=300, redraws=200)
    one = board.difference("wadd", "take-the-best")
    other = board.difference("take-the-best", "wadd")
    assert one.estimate == pytest.approx(-other.estimate)
    assert (one.low, one.high) == (pytest.approx(-other.high), pytest.approx(-other.low))
    assert one.low > 0
    with pytest.raises(BadInput, match="no theory 'dail'"):
        board.difference("wadd", "dail")


def test_a_seed_gives_the_same_board():
    seen = world(RULES["wadd"], observations=2)
    one, other = (score_theories(THEORIES, seen, seed=4, draws=200, redraws=100) for _ in range(2))
    assert one.theories == other.theories


def test_intervals_cover():
    """30 data sets, four intervals each at 95 %: fewer than 100 of 120 has chance below 0.001, even if the
    four of a data set always hit and miss together with twice the variance of independent ones."""
    truth, models = RULES["wadd"], (RULES["dial"], RULES["tallying"])
    designs = [one.experiment for one in world(truth)]
    real = np.concatenate([predicted_rates(truth, e, 20_000, 9) for e in designs])
    apart = {
        m.name: mse_pb(np.concatenate([predicted_rates(m, e, 500, 3) for e in designs]), real) for m in models
    }
    coin = mse_pb(np.full(real.size, 0.5), real)
    hits = 0
    for k in range(30):
        seen = [
            Observation(str(i), e, simulate(truth, e, 25, 50 + 10 * k + i)) for i, e in enumerate(designs)
        ]
        board = score_theories(models, seen, seed=3, draws=500, redraws=200)
        for name, square in apart.items():
            # The noise belongs to the value published: it is added to the truth.
            hits += square + board.floor in board.of(name).mse_pb
            hits += 1 - square / coin in board.of(name).skill
    assert hits >= 100


def test_unshown_stimuli_are_left_out():
    e = CueExperiment((0.9, 0.6), ((1, 0), (0, 1), (0, 0)), ((0, 1), (1, 0), (1, 1)))
    trials = Trials(np.asarray([0, 0, 1, 1]), np.asarray([0, 1, 0, 1]), np.asarray([0, 1, 0, 0]))
    board = score_theories(THEORIES, [Observation("o", e, trials)], seed=0, draws=100, redraws=100)
    model = predicted_rates(THEORIES[0], e, 100, 0)[:2]
    assert board.of("take-the-best").mse_pb.estimate == pytest.approx(mse_pb(model, np.asarray([0, 0.5])))


def test_refused_boards():
    seen = world(RULES["wadd"], observations=1)
    alone = Observation("one", seen[0].experiment, seen[0].trials.of(0))
    for bad in (
        ([], seen),
        (THEORIES, []),
        ([*THEORIES, THEORIES[0]], seen),
        (THEORIES, seen * 2),
        (THEORIES, [alone]),
    ):
        with pytest.raises(BadInput):
            score_theories(*bad, seed=0, draws=10, redraws=100)
    with pytest.raises(BadInput, match="50 redraws"):
        score_theories(THEORIES, seen, seed=0, redraws=50)
