import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.speculate.replay import got, log, replay, serve, traffic
from refork_methods.speculate.rounds import Round, Rounds
from refork_methods.speculate.schedule import PrefixScheduler
from refork_methods.speculate.schedule_picture import schedule_figure
from refork_methods.speculate.step_cost import StepCost

COST = StepCost.of({b: max(1.0, b / 16) for b in range(1, 129)})


def logged(loads=(2, 8), steps=30, length=7):
    rounds, first = [], 0
    for requests in loads:
        what = traffic(requests, steps, seed=1)
        _, lengths = serve(what, COST, PrefixScheduler(None, "fixed", length=length), may_skip=False)
        rounds += log(what, COST, lengths, "fixed", first)
        first += steps
    return rounds


def test_tokens_under_other_lengths_by_hand():
    """Kept whole, rejected, ended; a survival stands in only where nothing is recorded."""
    survival = np.tile([0.8, 0.4, 0.2], (5, 1))
    drafted = np.array([1, 2, 3, 1, 0])
    accepted = np.array([1, 1, 2, 1, 0])
    ended = np.array([False, False, True, False, False])
    tokens, imputed = got(np.array([3, 3, 3, 1, 2]), drafted, accepted, ended, survival)
    assert imputed == pytest.approx([(0.4 + 0.2) / 0.8, 0, 0, 0, 0.8 + 0.4])
    assert tokens == pytest.approx([1 + 0.75 + 1, 2, 2, 2, 1 + 1.2])
    fewer, none = got(np.array([0, 1, 1, 0, 0]), drafted, accepted, ended, survival)
    assert fewer == pytest.approx([1, 2, 2, 1, 1])
    assert not none.any()


def test_the_logged_schedule_replayed_is_what_was_logged():
    rounds = Rounds.of(logged())
    found = replay(rounds, COST, {"fixed:7": PrefixScheduler(None, "fixed", length=7)}, skip=False)
    first, again = found.schedules
    assert found.cost_ratio == pytest.approx(1.0)
    assert again.realised == pytest.approx(first.realised)
    assert again.against_logged == pytest.approx(1.0)
    assert again.imputed == first.imputed == 0.0
    assert (found.steps, found.rounds, found.block) == (60, 300, 7)
    assert [(load.low, load.high, load.steps) for load in first.loads] == [(2, 2, 30), (8, 8, 30)]
    tokens = int((rounds.accepted + 1).sum())
    assert first.realised == pytest.approx(tokens / (60 * 1.0 + 30 * (64 / 16 - 1)))


def test_a_whole_block_log_replays_any_schedule_exactly():
    """Every outcome is recorded, so nothing is imputed, and the figures are those of serving itself."""
    what = traffic(8, 40, seed=3)
    _, lengths = serve(what, COST, PrefixScheduler(None, "fixed", length=7), may_skip=False)
    rounds = Rounds.of(log(what, COST, lengths, "fixed"))
    served, _ = serve(what, COST, PrefixScheduler(COST))
    mine = replay(rounds, COST, {"early_stop": PrefixScheduler(COST)}).schedules[1]
    assert mine.realised == pytest.approx(served.throughput, rel=1e-5)
    assert mine.verified == pytest.approx(served.verified)
    assert mine.imputed == 0.0
    assert mine.against_logged > 1.1
    assert mine.interval.low < mine.realised < mine.interval.high
    assert mine.ratio_interval.low > 1.0, "95 % interval, fixed seed"


def test_a_short_log_imputes_and_says_so():
    rounds = Rounds.of(logged(loads=(2,), length=1))
    found = replay(rounds, COST, {"all": PrefixScheduler(None, "fixed", length=7)})
    assert found.schedules[1].imputed > 0.2
    assert found.schedules[0].imputed == 0.0
    few = replay(Rounds.of(logged(loads=(2,), steps=5)), COST, {})
    assert few.schedules[0].interval is None


def test_blocks_cut_for_want_of_room_stay_cut():
    rounds = [Round((9.0,) * 3, 1, 1, step=0), Round((9.0,) * 3, 3, 3, step=0)]
    found = replay(Rounds.of(rounds), COST, {"early_stop": PrefixScheduler(COST)})
    assert found.schedules[1].verified == 2.0
    assert found.cost_ratio is None


def test_a_schedule_may_refuse_to_draft():
    dear = StepCost.of(dict.fromkeys(range(1, 129), 1.0), dict.fromkeys(range(1, 17), 9.0))
    rounds = Rounds.of(logged(loads=(2,)))
    skips = replay(rounds, dear, {"early_stop": PrefixScheduler(dear)}).schedules[1]
    stays = replay(rounds, dear, {"early_stop": PrefixScheduler(dear)}, skip=False).schedules[1]
    assert skips.skipped == 29
    assert stays.skipped == 0
    assert skips.realised > stays.realised


def test_logs_that_cannot_be_replayed():
    with pytest.raises(BadInput, match="no step number"):
        replay(Rounds.of([Round((0.0,), 1, 1)]), COST, {})
    with pytest.raises(BadInput, match="what the log did"):
        replay(Rounds.of(logged(loads=(2,), steps=2)), COST, {"logged": PrefixScheduler(COST)})
    with pytest.raises(BadInput, match="tokens in a pass"):
        replay(Rounds.of(logged(loads=(8,), steps=2)), StepCost.of({1: 1.0, 2: 1.0}), {})


def test_requests_that_were_not_drafted_for_are_a_part_of_the_load():
    """A probe drafts for 4 of 64 requests; its pass of 72 tokens takes the time of 72, not of 12."""
    cost = StepCost.of({tokens: 0.01 * tokens for tokens in range(1, 129)}, {4: 0.05}, shares={4: 0.5})
    seconds = float(cost.step(np.array([72]), 4, 60)[0])
    rounds = [
        Round((2.0, 2.0), 2, 1, schedule="early_stop", step=step, tokens_in_batch=72, seconds=seconds)
        for step in range(12)
        for _ in range(4)
    ]
    found = replay(Rounds.of(rounds), cost, {"fixed:2": PrefixScheduler(None, "fixed", length=2)}, skip=False)
    assert found.cost_ratio == pytest.approx(1.0)
    for one in found.schedules:
        assert [(load.low, load.high) for load in one.loads] == [(64, 64)]
        assert one.realised == pytest.approx((60 + 4 * 2) / seconds)
        assert one.verified == pytest.approx(8 / 64)


def test_the_picture():
    rounds = Rounds.of(logged())
    rules = {"early_stop": PrefixScheduler(COST), "<b>": PrefixScheduler(None, "fixed", length=1)}
    figure = schedule_figure(replay(rounds, COST, rules))
    assert figure.columns == ("Line", "requests at once", "drafts verified per request", "Note")
    assert figure.more[0].columns[2] == "tokens per second"
    assert list(dict.fromkeys(row[0] for row in figure.rows)) == ["as logged", "early_stop", "<b>"]
    assert "early_stop: " in figure.note
    assert replay(rounds, COST, rules).to_json()["schedules"][0]["name"] == "logged"


def test_traffic_is_calibrated_and_repeatable():
    """Mean survival against kept prefixes over 28,000 draws: within 0.02, fixed seed."""
    what = traffic(20, 200, seed=2)
    kept = np.stack([(what.kept_tokens > k).mean() for k in range(7)])
    assert kept == pytest.approx(what.survival.mean(axis=(0, 1)), abs=0.02)
    again = traffic(20, 200, seed=2)
    assert (again.logits == what.logits).all()
    assert (again.kept_tokens == what.kept_tokens).all()
    with pytest.raises(BadInput, match="at least one"):
        traffic(0, 1)


def test_passes_of_two_runs_in_one_log_stay_apart():
    """Each run numbers its passes from 1; a pass of four requests is not made of two passes of two."""
    once = [Round((0.0,), 1, 1, step=step, tokens_in_batch=4, seconds=1.0) for step in (1, 1, 2, 2)]
    found = replay(Rounds.of(once + once), COST, {})
    assert found.steps == 4
    assert [(load.low, load.high) for load in found.schedules[0].loads] == [(2, 2)]
