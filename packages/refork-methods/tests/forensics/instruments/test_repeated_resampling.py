from __future__ import annotations

import math

import pytest

from refork.errors import BadInput
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.score import Producer
from refork_methods.forensics.instruments.reading import Patterns
from refork_methods.forensics.instruments.redraw_distribution import chain_rates
from refork_methods.forensics.instruments.repeated_resampling import repeated_resample

FIRST = {" Aa.": 0.6, " Bb.": 0.4}
SECOND = {" Aa.": {" Cc.": 0.8, " Dd.": 0.2}, " Bb.": {" Cc.": 0.1, " Dd.": 0.9}}
LAST = {" Aa.": {" yes.": 0.9, " no.": 0.1}, " Bb.": {" yes.": 0.2, " no.": 0.8}}


def law(text):
    said = [w for w in text.rsplit("?\n", 1)[-1].replace(".", ".|").split("|") if w]
    if not said:
        return FIRST
    if len(said) == 1:
        return SECOND[said[0]]
    return LAST[said[0]] if len(said) == 2 else {"": 1.0}


def policy():
    return ScriptedPolicy.from_text(law, [*FIRST, " Cc.", " Dd.", " yes.", " no."], name="chain")


def exact():
    def chain(said):
        if len(said) == 3:
            return {}
        return FIRST if not said else SECOND[said[0]] if len(said) == 1 else LAST[said[0]]

    return chain_rates(chain, lambda s, said: s == " Cc.", lambda said: said[-1] == " yes.")


READER = Patterns.of(c=r"Cc")
SETTINGS = Sampling(max_tokens=12)


def test_rollouts_follow_the_intervened_law_and_clean_ones_the_conditioned_law(tree):
    # 1,500 rollouts: each rate within 4 standard errors but for 1 seed in 8,000.
    start = plant_prompt(tree, policy(), "q?")
    found = repeated_resample(
        start, policy(), 1500, READER, "c", grader=MatchJudge("yes"), settings=SETTINGS, max_tries=60
    )
    truth = exact()
    for arm, rate in ((found.redrawn, truth.intervened), (found.conditioned, truth.conditioned)):
        assert abs(arm.rate - rate) <= 4 * math.sqrt(rate * (1 - rate) / arm.runs)
    assert found.gave_up == 0
    assert found.survivors == 1500
    assert found.conditioned.runs == sum(r == 0 for r in found.redraws) < 1500
    assert abs(found.result.interval.estimate - (found.redrawn.rate - found.base.rate)) < 1e-12
    for trajectory in tree.paths(found.redrawn.nodes[:50]):
        assert "Cc" not in "".join(s.text for s in trajectory)
    assert any("not checked" in w for w in found.warnings)


def test_it_keeps_every_rollout_up_to_the_sentence_exactly(tree):
    start = plant_prompt(tree, policy(), "q?")
    found = repeated_resample(start, policy(), 40, READER, "c", grader=MatchJudge("yes"), settings=SETTINGS)
    pairs = zip(tree.paths(found.base.nodes), tree.paths(found.redrawn.nodes), found.redraws, strict=True)
    for before, after, redraws in pairs:
        first, second = ("".join(s.text for s in w.steps[1:]) for w in (before, after))
        assert first[:4] == second[:4], "the sentence before the class stands"
        if redraws == 0:
            assert first == second


def test_giving_up_counts_as_failed_and_widens_the_interval(tree):
    start = plant_prompt(tree, policy(), "q?")
    found = repeated_resample(
        start, policy(), 100, READER, "c", grader=MatchJudge("yes"), settings=SETTINGS, max_tries=1
    )
    assert found.gave_up > 20
    assert found.redrawn.failed == found.gave_up
    assert found.survivors + found.gave_up == 100
    low, high = found.redrawn.bounds()
    assert high - low == pytest.approx(found.gave_up / 100)
    assert found.result.bounded
    assert found.result.p is None
    interval = found.result.interval
    assert interval.low <= low - found.base.rate
    assert interval.high >= high - found.base.rate
    assert any("gave up" in w for w in found.warnings)
    told = found.to_json()
    assert told["gave_up"] == found.gave_up
    assert told["bounds"] == [low, high]


def test_the_same_call_draws_nothing_again(tree):
    start = plant_prompt(tree, policy(), "q?")
    first = repeated_resample(start, policy(), 30, READER, "c", grader=MatchJudge("yes"), settings=SETTINGS)
    nodes = len(tree)
    again = repeated_resample(start, policy(), 30, READER, "c", grader=MatchJudge("yes"), settings=SETTINGS)
    assert len(tree) == nodes
    assert again.redrawn == first.redrawn


def test_an_episode_is_redrawn_across_turns(planted):
    case, bench, world = planted
    root = bench.restart.point(bench.tree, bench.policy, case.incident.environment)
    reader = Patterns.of(carries="huge task")
    found = repeated_resample(
        root, bench.policy, 60, reader, "carries", grader=bench.grader, world=world,
        settings=bench.settings, labelled=[("This is a huge task.", True), ("It is.", False)],
    )  # fmt: skip
    assert found.base.hits > 0
    assert found.redrawn.hits == 0, "without that sentence this agent never acts"
    assert found.quality is not None
    assert found.quality.recall.estimate == 1.0
    assert any("finds 100%" in w for w in found.warnings)


def test_a_redrawn_turn_keeps_its_limit(tree):
    start = plant_prompt(tree, policy(), "q?")
    short = Sampling(max_tokens=2)
    found = repeated_resample(start, policy(), 30, READER, "c", grader=MatchJudge("yes"), settings=short)
    for trajectory in tree.paths(found.redrawn.nodes):
        assert sum(s.node.length if s.keep is None else s.keep for s in trajectory.steps[1:]) <= 2
    assert found.redrawn.unfinished == 30
    assert found.result is None, "nothing ended, so nothing is compared"


def test_bad_calls_are_refused_and_self_judging_is_warned_of(tree):
    start = plant_prompt(tree, policy(), "q?")
    with pytest.raises(BadInput, match="no label"):
        repeated_resample(start, policy(), 5, READER, "x", grader=MatchJudge("yes"))
    with pytest.raises(BadInput, match="at least two"):
        repeated_resample(start, policy(), 1, READER, "c", grader=MatchJudge("yes"))
    mine = policy()

    class Itself:
        labels = ("c", "other")
        producer = Producer("ask", "1", {"weights": mine.card.weights})

        def read(self, texts):
            return [None if "Dd" in t else "c" if "Cc" in t else "other" for t in texts]

    found = repeated_resample(start, mine, 10, Itself(), "c", grader=MatchJudge("yes"), settings=SETTINGS)
    assert any("same checkpoint" in w for w in found.warnings)
    assert any("could not label 1 sentences" in w for w in found.warnings)


def test_whole_turns_can_be_redrawn_by_a_policy_that_takes_messages_only(tree):
    from dataclasses import replace

    chat = ScriptedPolicy.from_replies(["good", "bad"])
    chat._card = replace(chat.card, capabilities=frozenset())
    start = plant_prompt(tree, chat, "q?")
    real = chat.sample

    def sample(requests, settings):
        rows = [replace(r, tokens=chat.encode("q")) for r in requests]
        assert settings.max_tokens == 12, "the settings of the first draws hold for redraws too"
        yield from (replace(c, logprobs=None, logprobs_t1=None) for c in real(rows, settings))

    chat.sample = sample
    found = repeated_resample(
        start, chat, 12, Patterns.of(bad="bad"), "bad", grader=MatchJudge("good"), unit="turn",
        settings=SETTINGS, max_tries=3,
    )  # fmt: skip
    assert found.redrawn.total == 12
    assert found.redrawn.hits + found.gave_up == 12
