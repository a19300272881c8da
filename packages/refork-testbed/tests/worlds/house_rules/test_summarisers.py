from __future__ import annotations

import pytest

from refork.chat import ChatModel
from refork.stats import wilson
from refork_testbed.worlds.house_rules.agents import RuleAgent, expected_violations
from refork_testbed.worlds.house_rules.scenario import scenario
from refork_testbed.worlds.house_rules.summarisers import (
    NOTHING,
    SUMMARISERS,
    drops_rules,
    echo,
    keeps_all,
    keeps_facts,
    keeps_keywords,
    sentences,
)
from refork_testbed.worlds.house_rules.tasks import TASKS

WORDINGS = ("full", "small")


def text_of(session):
    return "\n".join(str(m["content"]) for m in session.history)


@pytest.mark.parametrize("wording", WORDINGS)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("language", ["en", "es", "zh"])
def test_who_keeps_the_rule(task, wording, language):
    if wording == "small" and language != "en":
        return
    session = scenario(task, 1, wording=wording, language=language, system=False)
    text, rule = text_of(session), session.rule
    assert rule in sentences(text)
    assert rule in echo().summary(text)
    assert rule not in drops_rules().summary(text)
    assert rule not in keeps_facts().summary(text)
    assert rule in keeps_facts(survival=1.0).summary(text)
    assert rule in keeps_all(100).summary(text)
    assert rule in keeps_keywords().summary(text)


@pytest.mark.parametrize("wording", WORDINGS)
def test_facts_survive_word_for_word(wording):
    session = scenario("email", 1, wording=wording, turns=30)
    kept, others = keeps_facts().summary(text_of(session)), drops_rules().summary(text_of(session))
    assert all(slot.statement in kept and slot.statement in others for slot in session.slots)
    assert set(sentences(kept)) == {slot.statement for slot in session.slots}


@pytest.mark.parametrize("budget", [1, 15, 30, 50, 80, 150, 300])
def test_the_budget_is_kept(budget):
    text = text_of(scenario("email", 1, turns=40))
    for made in (keeps_facts(budget), keeps_all(budget), keeps_keywords(budget)):
        assert len(made.summary(text).split()) <= budget


def test_a_summary_is_never_empty_and_a_fixpoint():
    session = scenario("email", 1)
    for name, make in SUMMARISERS.items():
        made = make()
        assert isinstance(made, ChatModel), name
        once = made.reply([{"role": "user", "content": text_of(session)}]).text
        assert made.summary(once) == once
    assert keeps_facts().reply([{"role": "user", "content": "hello"}]).text == NOTHING


def test_survival_has_the_stated_chance_and_decides_the_agents_answer():
    """Wilson at 99.9 %, fixed seeds."""
    agent, made = RuleAgent(), keeps_facts(survival=0.3, seed=5)
    survived = violated = 0
    for seed in range(600):
        session = scenario("email", seed, turns=2)
        summary = made.summary(text_of(session))
        context = [{"role": "user", "content": summary}, session.trigger]
        survived += session.rule in summary
        violated += agent.violation_chance(context, "email")
    found = wilson(survived, 600, 0.999)
    assert found.low <= 0.3 <= found.high
    pooled, kept, lost = expected_violations(agent, scenario("email", 0), survived / 600)
    assert (kept, lost) == (0.0, 1.0)
    assert violated / 600 == pytest.approx(pooled, abs=1e-12)
