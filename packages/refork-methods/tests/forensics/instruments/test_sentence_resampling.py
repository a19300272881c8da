from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.forking import fork
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge, Verdict
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.score import Producer
from refork_methods.forensics.instruments.sentence_resampling import (
    martingale,
    prefix_scores,
    sentence_resample,
    telescoping_error,
)

SENTENCES = ("A. ", "B. ", "C. ")


def random_tree(seed, depth=5):
    """A finite sentence tree: the law after every prefix, and the exact target chance of every prefix."""
    rng = np.random.default_rng(seed)
    distribution, value = {}, {}

    def build(prefix):
        if len(prefix) == depth:
            value[prefix] = float(rng.random() < 0.5)
            return value[prefix]
        p = rng.dirichlet(np.ones(3))
        distribution[prefix] = p
        value[prefix] = math.fsum(q * build((*prefix, s)) for q, s in zip(p, SENTENCES, strict=True))
        return value[prefix]

    build(())
    return distribution, value


def test_scores_telescope_on_an_enumerated_tree():
    _, value = random_tree(0)
    leaves = [p for p in value if len(p) == 5]
    worst = 0.0
    for leaf in leaves:
        rates = np.array([value[leaf[:i]] for i in range(6)])
        worst = max(worst, telescoping_error(rates, prefix_scores(rates)))
    assert len(leaves) == 3**5
    assert worst < 1e-12


def test_on_policy_scores_have_mean_zero_given_the_prefix():
    distribution, value = random_tree(1)
    for prefix, p in distribution.items():
        scores = [value[(*prefix, s)] - value[prefix] for s in SENTENCES]
        assert math.fsum(q * s for q, s in zip(p, scores, strict=True)) == pytest.approx(0, abs=1e-12)


def test_the_mean_score_over_sampled_traces_is_zero_within_two_errors():
    # 400 traces of estimated rates (k = 20); |z| > 2 by chance for 1 seed in 22.
    distribution, value = random_tree(2)
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(400):
        prefix = ()
        rates = []
        for _ in range(5):
            rates.append(rng.binomial(20, min(value[prefix], 1.0)) / 20)
            prefix = (*prefix, SENTENCES[rng.choice(3, p=distribution[prefix])])
        rates.append(value[prefix])
        rows.append(prefix_scores(np.array(rates)))
    found = martingale(rows)
    assert found.holds
    assert found.traces == 400
    assert found.sentences == 2000
    assert abs(found.mean) <= 2 * found.error


def test_a_prefix_bug_is_seen_by_the_martingale():
    # Rates counted one sentence too late on traces that were chosen for their outcome.
    _, value = random_tree(2)
    leaves = [p for p in value if len(p) == 5 and value[p] == 1.0]
    rows = [prefix_scores(np.array([value[leaf[:i]] for i in range(6)])) for leaf in leaves]
    assert not martingale(rows).holds


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(BadInput, match="two are needed"):
        martingale([np.array([0.1])])
    with pytest.raises(BadInput, match="NaN"):
        martingale([np.array([0.1]), np.array([np.nan])])
    with pytest.raises(BadInput, match="at least two"):
        prefix_scores(np.array([0.5]))


def hit_leaf(bench, case, draws=60):
    fork_ = bench.run([case.incident.environment], [range(draws)])[0]
    hits = fork_.values("target")
    return next(d.leaf for d, v in zip(fork_.draws, hits, strict=True) if v == 1.0)


def test_rates_of_a_planted_agent_are_its_exact_chances(make_bench):
    # 8 prefixes of 160 draws: all within 4 standard errors but for 1 seed in 2,000.
    from refork_testbed.worlds.motives.agents import find_agent

    case, bench, world = make_bench("tedium")
    agent = find_agent("tedium")
    end = bench.tree.at(hit_leaf(bench, case))
    found = sentence_resample(end, bench.policy, 160, grader=bench.grader, world=world)
    target = agent.rate(case.incident.environment)
    said: list[str] = []
    for piece, rate in zip(found.pieces, found.rates[1:], strict=True):
        if piece.turn > 0:
            said.append(piece.text.strip())
        exact = agent.target_after(target, said)
        assert abs(rate - exact) <= 4 * math.sqrt(exact * (1 - exact) / 160) + 1e-9
    top = int(np.argmax(found.scores))
    assert found.pieces[top].text.strip() in ("So I take the quick way.", "This is a huge task.")
    assert telescoping_error(found.rates, found.scores) < 1e-12
    adjusted = found.adjusted()
    assert adjusted[-1] is None, "its other side is one outcome, not a rate"
    sure = {p.text.strip() for p, q in zip(found.pieces, adjusted, strict=True) if q is not None and q < 0.01}
    assert sure <= {"So I take the quick way.", "This is a huge task."}
    assert found.rates[-1] == found.outcome == 1.0, "the trace's own outcome, not drawn"
    spans = found.intervals()
    assert spans[-1].width == 0
    assert all(s.low <= r <= s.high for s, r in zip(spans, found.rates, strict=True))
    assert all(g.low <= s <= g.high for g, s in zip(found.score_intervals(), found.scores, strict=True))


def test_it_draws_nothing_twice_and_says_where_everything_is(planted, monkeypatch):
    case, bench, world = planted
    end = bench.tree.at(hit_leaf(bench, case))
    first = sentence_resample(end, bench.policy, 10, grader=bench.grader, world=world)
    drawn = Counter()
    real = ScriptedPolicy.sample
    monkeypatch.setattr(
        ScriptedPolicy, "sample", lambda self, r, s: drawn.update(n=len(r)) or real(self, r, s)
    )
    again = sentence_resample(end, bench.policy, 10, grader=bench.grader, world=world)
    assert drawn["n"] == 0
    assert again.rates.tolist() == first.rates.tolist()
    told = first.to_json()
    assert len(told["prefixes"]) == len(told["sentences"]) + 1
    assert all(bench.tree.fork_record(row["forks"][0]) for row in told["prefixes"][:-1])
    more = sentence_resample(end, bench.policy, 15, grader=bench.grader, world=world)
    assert drawn["n"] > 0
    assert all(a.total == 15 for a in more.arms[:-1])


def test_all_boundaries_are_one_batch(tree):
    policy = ScriptedPolicy.from_replies(["A b. C d. yes", "A b. E f. no"])
    trace = fork(plant_prompt(tree, policy, "q"), policy, 1, settings=Sampling(max_tokens=20))
    sizes = []
    real = policy.sample
    policy.sample = lambda r, s: sizes.append(len(r)) or real(r, s)  # type: ignore[method-assign]
    found = sentence_resample(tree.at(trace.draws[0].leaf), policy, 7, grader=MatchJudge("yes"))
    assert sizes == [7 * len(found.pieces)], "n prefixes of a finished trace, the last one is its outcome"


class Odd:
    score = "odd"
    producer = Producer("odd", "1", {})

    def judge(self, trajectory):
        return Verdict(0.5)


def test_cut_off_and_odd_continuations_are_not_counted_silently(tree):
    policy = ScriptedPolicy.from_replies(["a. b. c. d. e. f. yes", "a. b. c. d. e. f. no"])
    trace = fork(plant_prompt(tree, policy, "q"), policy, 1, settings=Sampling(max_tokens=40))
    end = tree.at(trace.draws[0].leaf)
    # Seven tokens hold all the words and not the end of the turn: every draw is cut off, at every prefix.
    found = sentence_resample(end, policy, 5, grader=MatchJudge("soon"), settings=Sampling(max_tokens=7))
    assert found.arms[0].unfinished == 5
    assert found.arms[0].runs == 0
    assert math.isnan(found.rates[0])
    assert found.intervals()[0] is None
    assert found.to_json()["prefixes"][0]["rate"] is None
    assert found.to_json()["telescoping_error"] is None
    with pytest.raises(BadInput, match="done"):
        sentence_resample(end, policy, 2, grader=Odd())


def test_a_judge_that_is_the_subject_and_edited_traces_are_warned_of(tree):
    from refork.forking import Insert

    policy = ScriptedPolicy.from_replies(["a. b. yes", "a. c. no"])

    class Itself(MatchJudge):
        @property
        def producer(self):
            return Producer("self", "1", {"weights": policy.card.weights})

    start = plant_prompt(tree, policy, "q")
    trace = fork(start, policy, 1, Insert(text="a."), settings=Sampling(max_tokens=20))
    found = sentence_resample(tree.at(trace.draws[0].leaf), policy, 2, grader=Itself("yes"))
    assert any("same checkpoint" in w for w in found.warnings)
    assert any("not sampled" in w for w in found.warnings)


def test_a_policy_that_takes_messages_only_cannot_be_forked_inside_a_turn(tree):
    from dataclasses import replace

    policy = ScriptedPolicy.from_replies(["a. b. yes", "a. c. no"])
    trace = fork(plant_prompt(tree, policy, "q"), policy, 1, settings=Sampling(max_tokens=20))
    policy._card = replace(policy.card, capabilities=frozenset())
    with pytest.raises(CannotDo, match="chat messages only"):
        sentence_resample(tree.at(trace.draws[0].leaf), policy, 2, grader=MatchJudge("yes"))


def test_a_trace_that_was_cut_off_has_no_outcome(tree):
    policy = ScriptedPolicy.from_replies(["a. b. c. d. yes", "a. b. c. d. no"])
    cut = fork(plant_prompt(tree, policy, "q"), policy, 1, settings=Sampling(max_tokens=3))
    end = tree.at(cut.draws[0].leaf)
    assert end.node.finish == "length"
    found = sentence_resample(end, policy, 4, grader=MatchJudge("yes"), settings=Sampling(max_tokens=20))
    assert found.outcome is None
    assert found.arms[-1].unfinished == 1
    assert math.isnan(found.rates[-1])
    assert found.score_intervals()[-1] is None
    assert found.adjusted()[-1] is None
    assert any("cut off" in w for w in found.warnings)


def test_an_unfinished_episode_has_no_outcome_either(make_bench):
    case, bench, world = make_bench("tedium")
    data = case.incident.environment | {"settings": case.incident.environment["settings"] | {"turns": 2}}
    arm = bench.run([data], [range(20)])[0]
    from refork_methods.forensics.target import ending_of

    leaf = next(w.leaf.id for w in arm.leaves() if ending_of(w)[0] == "unfinished")
    found = sentence_resample(bench.tree.at(leaf), bench.policy, 3, grader=bench.grader, world=world)
    assert found.outcome is None
    assert found.arms[-1].unfinished == 1
    assert any("no contrast" in w for w in found.warnings) or {0.0} != set(found.rates[:-1])


def test_a_missing_world_is_said(planted):
    case, bench, _ = planted
    end = bench.tree.at(hit_leaf(bench, case))
    found = sentence_resample(end, bench.policy, 2, grader=MatchJudge("commit --no"), unit="turn")
    assert any("recorded in a world" in w for w in found.warnings)
