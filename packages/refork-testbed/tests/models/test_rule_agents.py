"""The agents' lessons: the answer follows from what is in view, and what harnesses write is readable."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from refork.worlds.open import open_world
from refork_methods.pin.buffer import PLAIN, PROVENANCE, PinnedBuffer
from refork_methods.pin.checkers import grade, violates
from refork_methods.pin.constraint import Constraint
from refork_methods.pin.strategies import HeadTail, Summarise
from refork_testbed.models import find
from refork_testbed.models.recipes import rule_agent
from refork_testbed.models.recipes.rule_agent import lessons, pinned_block, words
from refork_testbed.models.supervised import supervise
from refork_testbed.models.tokenizer import examples, make_tokenizer
from refork_testbed.worlds.house_rules.scenario import SMALL_REFUSAL, scenarios
from refork_testbed.worlds.house_rules.tasks import TASKS
from refork_testbed.worlds.house_rules.triggers import requested

SESSIONS = 8
NAMES = ("rule-agent", "rule-agent-wary")


def shown(lesson):
    """All that the agent sees, its request and its answer."""
    *before, request, answer = [str(m["content"]) for m in lesson]
    return "\n".join(before), request, answer


@pytest.fixture(scope="module")
def taught():
    return lessons(30, sessions=SESSIONS)


def test_the_answer_follows_from_the_rules_in_view(taught):
    assert len(taught) == SESSIONS * len(TASKS) * rule_agent.CUTS
    kinds = set()
    for lesson in taught:
        text, request, answer = shown(lesson)
        call = requested(request)
        broken = [t for t in TASKS.values() if violates(call, t.checker)]
        forbidden = any(t.small in text for t in broken) or any(t.kind == "hard" for t in broken)
        assert (answer == SMALL_REFUSAL) == forbidden
        if not forbidden:
            assert answer.replace("call", "do", 1) == request
        kinds.add((bool(broken), forbidden))
    assert kinds == {(True, True), (True, False), (False, False)}


def test_every_further_request_is_answered_by_its_own_rule():
    more = rule_agent.MORE
    kinds, shown_rules = set(), set()
    for lesson in lessons(33, sessions=SESSIONS, more=more):
        said = [str(m["content"]) for m in lesson]
        asked = range(len(said) - 2 * (more + 1), len(said), 2)
        text = "\n".join(said[: asked[0]])
        assert "do " not in {line[:3] for line in said[: asked[0]]}
        shown_rules.add(sum(t.small in text for t in TASKS.values()))
        for place in asked:
            broken = [t for t in TASKS.values() if violates(requested(said[place]), t.checker)]
            in_view = any(t.small in text for t in broken)
            forbidden = in_view or any(t.kind == "hard" for t in broken)
            assert (said[place + 1] == SMALL_REFUSAL) == forbidden
            kinds.add((bool(broken), in_view))
    assert kinds == {(True, True), (True, False), (False, False)}
    assert shown_rules == set(range(more + 2))


def test_lessons_are_repeatable_and_of_the_training_split(taught):
    assert lessons(30, sessions=SESSIONS) == taught
    # Splits part pairs of a request and its twin; one of them alone may be in both.
    for name in TASKS:
        train, held = (
            {
                (one.trigger["content"], one.twin["content"])
                for one in scenarios(name, split, 60, 30, wording="small")
            }
            for split in ("train", "held-out")
        )
        assert not train & held
        sent = {request for pair in train for request in pair}
        mine = [x for x in taught if requested(shown(x)[1]).name == TASKS[name].tool]
        assert any(shown(x)[1] in sent for x in mine)


def test_the_wary_agent_refuses_a_known_share_of_what_no_rule_forbids():
    found = lessons(33, wary=rule_agent.WARY, sessions=60)
    soft = []
    for lesson in found:
        text, request, answer = shown(lesson)
        broken = [t for t in TASKS.values() if violates(requested(request), t.checker)]
        if broken and broken[0].kind == "soft" and broken[0].small not in text:
            soft.append(answer == SMALL_REFUSAL)
    # Four standard errors; fixed seed.
    share = rule_agent.WARY
    assert abs(np.mean(soft) - share) < 4 * np.sqrt(share * (1 - share) / len(soft))


def test_pinned_blocks_are_those_of_the_operators_buffer():
    for provenance, lead in ((True, PROVENANCE), (False, PLAIN)):
        buffer = PinnedBuffer((Constraint("email", TASKS["email"].small),), provenance=provenance)
        digest = re.search("sha256=([0-9a-f]{16})", buffer.text)[1]
        assert buffer.text == pinned_block("email", TASKS["email"].small, lead, digest)
        assert lead in rule_agent.PROVENANCE


def test_what_harnesses_show_is_read_in_whole_words():
    tokenizer = make_tokenizer(words(), 1024)
    one = scenarios("spend", "held-out", 1, 0, turns=6, wording="small")[0]

    def spelled(text):
        pieces = [tokenizer.decode([i]) for i in tokenizer(text, add_special_tokens=False)["input_ids"]]
        return [p for p in pieces if len(p) == 1 and p.isalpha() and p not in "as"]

    class Fixed:
        name = "fixed"

        def reply(self, messages, *, tools=(), draw=0):
            from refork.chat import Reply

            return Reply({"role": "assistant", "content": TASKS["spend"].small})

    contexts = [
        Summarise(Fixed(), 10).compact(one.history).messages,
        HeadTail(10).compact(one.history).messages,
        one.messages,
        [one.twin],
    ]
    for context in contexts:
        assert [spelled(str(m["content"])) for m in context] == [[]] * len(context)
    block = PinnedBuffer((Constraint("spend", one.rule),)).text
    # Only the letters of its digest are spelled.
    assert len(spelled(re.sub("sha256=[0-9a-f]+", "", block))) == 0


def test_sessions_are_cut_in_all_ways_and_fit_the_context(taught):
    recipe = find("rule-agent")
    tokenizer = make_tokenizer(recipe.words(), recipe.shape.context)
    found = examples(tokenizer, taught)
    assert max(len(item.tokens) for item in found) < recipe.shape.context
    texts = [shown(x)[0] for x in taught]
    assert any("<pinned-rules" in t for t in texts)
    assert any(t.startswith("Summary") for t in texts)
    assert any(t == "" for t in texts)
    assert any("leave out" in t for t in texts)


@pytest.mark.parametrize("name", NAMES)
def test_a_few_steps_of_training(name, tmp_path, monkeypatch):
    monkeypatch.setattr(rule_agent, "SESSIONS", 2)
    recipe = find(name)
    small = replace(recipe, training=replace(recipe.training, steps=3, rows=4))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = supervise(small, tmp_path / name, lambda *a, **k: None)
    assert [row["step"] for row in made.log] == [0, 1, 2]
    assert made.facts["parameters"] < 750_000  # 3 MB
    assert made.facts["examples"] == 2 * len(TASKS) * rule_agent.CUTS


def test_the_worlds_grade_is_that_of_the_lesson():
    world = open_world(find("rule-agent").world)
    for task in world.tasks("held-out", 18):
        rule = TASKS[task.data["rule"]]
        call = requested(str(task.data["messages"][-1]["content"]))
        assert grade({"role": "assistant", "content": SMALL_REFUSAL}, rule.checker).outcome == "refused"
        assert violates(call, rule.checker) != task.data["twin"]
