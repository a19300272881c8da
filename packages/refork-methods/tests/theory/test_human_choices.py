"""Real people's choices, where they lie beside the repository or in the folder REFORK_HUMAN_CHOICES."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from refork_methods.theory.cues.rules import RANKED, RULES
from refork_methods.theory.predictive import score_theories
from refork_methods.theory.read import read_human_choices
from support.repository import ROOT

HERE = Path(os.environ.get("REFORK_HUMAN_CHOICES") or ROOT.parent / "shared/data/human-choices")
pytestmark = pytest.mark.skipif(
    not (HERE / "binary.jsonl.gz").exists(), reason="the human choices are not here: set REFORK_HUMAN_CHOICES"
)


@pytest.fixture(scope="module")
def binary():
    found = read_human_choices(HERE / "binary.jsonl.gz", foreign="refuse")
    theories = [*RANKED, RULES["random"]]
    return score_theories(theories, found.observations, seed=1, draws=2000, redraws=500)


def test_what_was_recorded(binary):
    assert (len(binary.observations), binary.people, binary.choices) == (10, 247, 23712)
    assert binary.stimuli == 70


def test_the_people_s_noise_is_the_published_floor(binary):
    assert binary.floor == pytest.approx(0.0033, abs=0.0001)


def test_the_dial_is_as_near_as_published(binary):
    """Published from 100 draws with choices: 0.0097 and .917; 2,000 draws move ours by about 0.0002."""
    dial = binary.of("dial")
    assert binary.theories[0] is dial
    assert binary.decide().nearest == ("dial",)
    assert dial.mse_pb.estimate == pytest.approx(0.0097, abs=0.0008)
    assert dial.r.estimate == pytest.approx(0.917, abs=0.006)


def test_the_dial_beats_both_seeds(binary):
    for seed in ("take-the-best", "wadd"):
        assert binary.difference("dial", seed).low > 0


def test_the_dial_does_not_fit_the_people_it_was_made_for(binary):
    """Its error is three times the people's noise: it is nearest, and no winner."""
    assert binary.decide().claim == "does not fit"
    assert binary.winner() is None
    assert binary.of("dial").noise_p < 0.01


def test_most_of_take_the_best_s_distance_is_how_strongly_its_priors_follow_it(binary):
    whole = binary.difference("dial", "take-the-best").estimate
    bare = binary.difference("dial", "take-the-best", at_strength=True)
    assert 0.6 < 1 - bare.estimate / whole < 0.75
    assert bare.low > 0


def test_the_dial_is_not_told_apart_from_log_odds_once_both_have_their_best_strength(binary):
    assert binary.difference("dial", "naive-bayes").low > 0
    bare = binary.difference("dial", "naive-bayes", at_strength=True)
    assert bare.low < 0 < bare.high


def test_people_of_the_cardinal_run_saw_the_round_s_other_experiment():
    """33 people's trials belong to the other design of their round; a pair tells which."""
    path = HERE / "cardinal.jsonl.gz"
    dropped, moved = (read_human_choices(path, foreign=how) for how in ("drop", "move"))
    assert sum(dropped.foreign.values()) == 33
    assert sum(len(o.trials.people) for o in dropped.observations) == 185
    assert sum(len(o.trials.people) for o in moved.observations) == 218
    for found in (dropped, moved):
        theories = [*RANKED, RULES["satisficing-wadd"]]
        board = score_theories(theories, found.observations, seed=1, draws=1000, redraws=200)
        assert board.theories[0].name in ("diminishing-wadd", "wadd", "satisficing-wadd")
        assert board.difference("diminishing-wadd", "tallying").low > 0
        decision = board.decide()
        assert decision.claim == "does not fit"
        assert {"diminishing-wadd", "wadd"} <= set(decision.nearest)
