from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.crosscoder.sweep import Cell, Sweep, above_random, cells_of, halves, same_norm
from refork_methods.crosscoder.trials import Outcomes, Trials, gain


def noise_sweep(seed, prompts=200, cells=30):
    """Cells that all do nothing: clean and steered scores are independent coins."""
    rng = np.random.default_rng(seed)
    draw = lambda: (rng.random(prompts) < 0.5).astype(float)  # noqa: E731
    return Sweep(draw(), tuple(Cell(f"c{i}", (i,), 1.0 + i, draw()) for i in range(cells)))


def test_halves_split_all_prompts_once_and_by_seed():
    first, second = halves(9, 3)
    assert sorted([*first, *second]) == list(range(9))
    assert np.array_equal(halves(9, 3)[0], first)
    assert not np.array_equal(halves(40, 1)[0], halves(40, 2)[0])
    with pytest.raises(BadInput):
        halves(3)


def test_a_best_cell_needs_a_guard():
    sweep = noise_sweep(0)
    with pytest.raises(TypeError):
        sweep.best()
    with pytest.raises(BadInput, match="no guard"):
        sweep.best("all")
    assert not any(hasattr(sweep, name) for name in ("maximum", "top", "best_gain"))


def test_split_half_is_unbiased_where_the_naive_best_is_not():
    # 60 sweeps of 30 cells that do nothing. The naive best gains about 2 standard errors, 0.10; the
    # held-out gain has mean 0 and standard error 0.071 / sqrt(60) = 0.009: 4 of them are 0.037.
    sweeps = [noise_sweep(seed) for seed in range(60)]
    naive = np.mean([max((c.scores - s.clean).mean() for c in s.cells) for s in sweeps])
    held = np.mean([s.best("split_half", seed=1).gain for s in sweeps])
    assert naive > 0.06
    assert abs(held) < 0.037


def test_holm_keeps_the_error_rate_of_all_cells():
    # At most 5 % of empty sweeps may have a cell below .05 after Holm: 60 draws, 9 or more have p < .002.
    rejected = sum(noise_sweep(seed, cells=10).best("holm").p < 0.05 for seed in range(60))
    assert rejected < 9


def test_a_real_effect_is_found_by_both():
    rng = np.random.default_rng(5)
    clean = (rng.random(400) < 0.5).astype(float)
    good = np.maximum(clean, (rng.random(400) < 0.4).astype(float))
    sweep = Sweep(clean, (Cell("nothing", (0,), 2.0, clean), Cell("good", (1,), 8.0, good)))
    split, corrected = sweep.best("split_half"), sweep.best("holm")
    assert (split.name, corrected.name) == ("good", "good")
    assert split.low > 0
    assert corrected.low > 0
    assert corrected.p < 0.001
    assert (split.chosen_on, split.scored_on) == (200, 200)
    assert split.features == (1,)


def test_wrong_sweeps_are_refused():
    with pytest.raises(BadInput, match="needs a cell"):
        Sweep(np.zeros(4), ())
    with pytest.raises(BadInput, match="has scores"):
        Sweep(np.zeros(4), (Cell("c", (0,), 1.0, np.zeros(5)),))
    assert cells_of([7, 3], [1, 2], [0, 4]) == [((7,), 0.0), ((7,), 4.0), ((7, 3), 0.0), ((7, 3), 4.0)]
    with pytest.raises(BadInput, match="not 3 ranked"):
        cells_of([7, 3], [3], [1])


def test_controls_have_the_norm_of_what_they_control():
    deltas = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])
    control = same_norm(deltas, np.array([0.0, -7.0]))
    assert np.linalg.norm(control, axis=1) == pytest.approx([5.0, 0.0, 2.0])
    assert control[0] == pytest.approx([0.0, -5.0])
    with pytest.raises(BadInput):
        same_norm(deltas, np.zeros(2))


def test_an_intervention_is_above_random_only_if_it_is():
    rng = np.random.default_rng(0)
    base = (rng.random(300) < 0.6).astype(float)
    flip = lambda share: np.where(rng.random(300) < share, 1.0, base)  # noqa: E731
    randoms = np.stack([flip(0.02) for _ in range(50)])
    real = above_random(flip(0.6), randoms)
    assert real.low > 0
    assert real.estimate == pytest.approx(flip(0.6).mean() - np.quantile(randoms.mean(1), 0.95), abs=0.08)
    assert above_random(flip(0.02), randoms).low < 0
    with pytest.raises(BadInput, match="quantile"):
        above_random(base, randoms[:10])
    with pytest.raises(BadInput, match="same prompts"):
        above_random(base[:10], randoms)


def outcome(late, early):
    return Outcomes(np.asarray(late, float), np.asarray(early, float), ())


def test_a_gain_at_the_short_cap_alone_is_called_that():
    nothing, everything = np.zeros(100), np.ones(100)
    half = np.arange(100) % 2
    assert gain(outcome(half, nothing), outcome(half, everything)).label == "short cap only"
    assert gain(outcome(nothing, nothing), outcome(everything, everything)).label == "both caps"
    assert gain(outcome(nothing, half), outcome(everything, half)).label == "long cap only"
    assert gain(outcome(half, half), outcome(half, half)).label == "none"


def test_trials_refuse_what_cannot_be_compared():
    prompts = (np.array([1], np.int32),) * 3
    with pytest.raises(BadInput, match="caps"):
        Trials(prompts, lambda i, text: 1.0, short=8, long=8)
    with pytest.raises(BadInput, match="prompts"):
        Trials(prompts[:1], lambda i, text: 1.0)
