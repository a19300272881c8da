from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from refork.chat import ChatModel, PolicyChat
from refork.policies.base import Policy, Sampling
from refork.stats import wilson
from refork_methods.pin.checkers import grade
from refork_testbed.worlds.house_rules.agents import RuleAgent, expected_violations
from refork_testbed.worlds.house_rules.attacks import FRAMINGS, STRESS, framing, ingested
from refork_testbed.worlds.house_rules.scenario import scenario, scenarios
from refork_testbed.worlds.house_rules.tasks import TASKS

SESSION = Sampling(max_tokens=400)


@pytest.mark.parametrize("language", ["en", "es", "zh"])
@pytest.mark.parametrize("task", TASKS)
def test_the_law_is_exact_whatever_else_is_said(task, language):
    agent = RuleAgent(error=0.03, refusal=0.8)
    session = scenario(task, 4, language=language)
    hard = TASKS[task].kind == "hard"
    assert agent.violation_chance(session.messages, task) == 0.03
    assert agent.violation_chance(session.floor().messages, task) == pytest.approx(0.2 if hard else 1.0)
    assert agent.violation_chance(session.twinned().messages, task) == 0.0
    assert agent.call_chance(session.twinned().trigger["content"])[1] == 1.0
    noise = ingested([framing(name, session.rule) for name in FRAMINGS])
    for make in STRESS.values():
        loud = replace(session, messages=(*session.history, *noise, *make(session.rule), session.trigger))
        assert agent.violation_chance(loud.messages, task) == 0.03


@pytest.mark.parametrize("wording", ["full", "small"])
@pytest.mark.parametrize("task", TASKS)
def test_an_agent_without_error_does_what_the_law_says(task, wording):
    agent = RuleAgent(compact=wording == "small")
    for session in scenarios(task, "train", 5, wording=wording):
        said = {
            True: agent.reply(session.messages).message,
            False: agent.reply(session.floor().messages).message,
        }
        for visible, message in said.items():
            assert message == session.lawful(visible=visible)
        assert agent.reply(session.twinned().messages).message == session.lawful(visible=True, twin=True)


def test_it_is_a_chat_model_with_addressed_chance():
    agent = RuleAgent(error=0.5)
    messages = scenario("email", 0).messages
    assert isinstance(agent, ChatModel)
    answers = [agent.reply(messages, draw=d).message for d in range(40)]
    assert answers == [agent.reply(messages, draw=d).message for d in range(40)]
    assert len({str(a) for a in answers}) == 2
    assert [RuleAgent(error=0.5, seed=1).reply(messages, draw=d).message for d in range(40)] != answers
    assert agent.reply([{"role": "user", "content": "hello"}]).text.startswith("I cannot")


def test_sampled_rate_of_the_chat_model():
    """A Wilson interval at 99.9 % misses with one seed in a thousand; the seed is fixed."""
    agent, session = RuleAgent(error=0.2, seed=3), scenario("email", 0)
    hits = sum(
        grade(agent.reply(session.messages, draw=d).message, session.about.checker).violation
        for d in range(1500)
    )
    found = wilson(int(hits), 1500, 0.999)
    assert found.low <= 0.2 <= found.high


@pytest.mark.parametrize("wording", ["full", "small"])
def test_the_policy_has_the_same_law(wording):
    agent = RuleAgent(error=0.25, refusal=0.6)
    policy = agent.policy()
    assert isinstance(policy, Policy)
    for task in ("email", "language", "pii"):
        session = scenario(task, 2, wording=wording, turns=2)
        for messages in (session.messages, session.floor().messages):
            call, chance = agent.call_chance("\n".join(str(m["content"]) for m in messages))
            rendered = policy.render([], np.array([], dtype=np.int32), list(messages))
            distribution = np.exp(policy.next_logprobs([rendered.tokens])[0])
            assert distribution[policy.encode("call")[0]] == pytest.approx(chance)
            assert distribution[policy.encode("no")[0]] == pytest.approx(1 - chance, abs=1e-6)
            outcomes = {
                grade(
                    PolicyChat(policy, SESSION).reply(messages, draw=d).message, session.about.checker
                ).outcome
                for d in range(12)
            }
            assert outcomes <= {"violation", "refused"}
            assert call == session.violating


def test_pooled_is_the_mixture():
    agent = RuleAgent(error=0.01, refusal=0.97)
    for task in TASKS:
        for survival in (0.0, 0.222, 0.5, 1.0):
            pooled, kept, lost = expected_violations(agent, scenario(task, 1), survival)
            assert pooled == survival * kept + (1 - survival) * lost
            assert kept == 0.01
    # The published row: 315 of 405 dropped, of which 38 % violate, and none of those that survived.
    assert round(100 * (90 / 405 * 0.0 + 315 / 405 * 0.38), 1) == 29.6
