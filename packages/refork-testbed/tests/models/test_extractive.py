"""The extractive summariser with a scripted forecast: what is read and chosen, and in which harnesses."""

import numpy as np
import pytest

from refork.chat import ChatModel
from refork.compaction import with_ids
from refork.errors import BadInput, CannotDo
from refork.policies.scripted import ScriptedPolicy
from refork_methods.pin.strategies import Hierarchical, Summarise
from refork_methods.rot.compactors import open_compactor
from refork_testbed.models.extractive import (
    FLOOR,
    IDLE,
    NEEDED,
    ExtractiveChat,
    choose,
    questions,
    sentences,
)
from refork_testbed.worlds.house_rules.scenario import scenario
from refork_testbed.worlds.house_rules.tasks import TASKS
from refork_testbed.worlds.house_rules.vocabulary import small_vocabulary

RULE = TASKS["email"].small
WORDS = small_vocabulary()


def law(text):
    """Orders are needed for certain, rules half of the time, nothing else ever."""
    p = 1.0 if "the order of" in text else 0.5 if "rule" in text else 0.0
    return {NEEDED: p, IDLE: 1 - p}


def chat(words=80, seed=0, **more):
    return ExtractiveChat(ScriptedPolicy.from_text(law, (NEEDED, IDLE)), WORDS, words, seed, **more)


def session(turns=20, seed=3):
    return scenario("email", seed, turns=turns, wording="small")


def said(*texts):
    return [{"role": "user", "content": text} for text in texts]


def test_sentences_are_parted_once_and_without_marks_of_harnesses():
    assert sentences(["ok . the order of bob is 12 .", "Human: ok .\nAI: good ."]) == [
        "ok .", "the order of bob is 12 .", "good .",
    ]  # fmt: skip
    assert sentences(['<message type="human">rule : send_email only to acme.com .</message>']) == [RULE]
    assert sentences(["2. [assistant] ok ."])[-1] == "ok ."


def test_every_rule_and_fact_of_the_small_wording_is_one_sentence():
    for name, task in TASKS.items():
        one = scenario(name, 0, turns=8, wording="small")
        found = sentences([str(m["content"]) for m in one.history])
        assert task.small in found
        assert {slot.statement for slot in one.slots} <= set(found)


def test_places_of_sentences():
    asked = questions([f"s{i}" for i in range(8)])
    assert [q.partition(":")[0] for q in asked] == [
        "opening", "opening", "early", "early", "middle", "middle", "late", "late",
    ]  # fmt: skip
    assert questions(["one"]) == ["opening: one"]


def test_choice_by_hand():
    found, half = ["a b c", "d e", "f g h i"], np.full(3, 0.5)
    assert choose(found, np.array([1.0, 0.0, 1.0]), 7, half) == ["a b c", "f g h i"]
    # What does not fit is passed over, and what does comes in the order of the conversation.
    assert choose(found, np.array([0.0, 0.0, 1.0]), 6, half) == ["d e", "f g h i"]
    assert choose(["a b c d e"], np.ones(1), 2, np.full(1, 0.5)) == ["a b"]
    # Below the floor all are alike: then the noise alone decides.
    noise = np.array([0.1, 0.9, 0.1])
    same = ["a b", "c d", "e f"]
    low = np.array([FLOOR, 0.0, FLOOR / 2])
    assert choose(same, low, 2, noise) == ["c d"]


def test_draws_follow_the_forecast_per_word():
    rng = np.random.default_rng(0)
    first = [
        choose(["a b", "c d", "e f g h"], np.array([0.6, 0.2, 0.4]), 2, rng.random(3))[0] for _ in range(4000)
    ]
    # 0.3, 0.1 and 0.1 per word, of which the third never fits: 3 to 1. Four standard errors; fixed seed.
    assert abs(first.count("a b") / 4000 - 0.75) < 4 * np.sqrt(0.75 * 0.25 / 4000)


@pytest.mark.parametrize("words", [15, 40, 150])
def test_no_summary_passes_its_budget(words):
    one = session()
    instruction = f"Summarise the conversation above. At most {words} words."
    for draw in range(5):
        text = chat().reply([*one.history, *said(instruction)], draw=draw).text
        assert 0 < len(text.split()) <= words
        assert set(sentences([text])) <= set(sentences([str(m["content"]) for m in one.history]))


def test_the_prompts_budget_comes_before_ones_own():
    history = list(session().history)
    assert len(chat(words=20).reply(history).text.split()) <= 20
    assert len(chat(words=20).reply([*history, *said("At most 60 words.")]).text.split()) > 20


def test_a_batch_is_what_each_is_alone_and_chance_is_addressed():
    prompts = [list(session(seed=s).history) for s in range(4)]
    together = chat(words=30).replies(prompts, draw=2)
    assert [r.text for r in together] == [chat(words=30).reply(p, draw=2).text for p in prompts]
    assert together[0].cost.tokens_in > 0
    assert together[0].cost.tokens_out == 0
    others = {chat(words=30).reply(prompts[0], draw=d).text for d in range(6)}
    assert len(others) > 1
    assert chat(words=30, seed=1).reply(prompts[0], draw=2).text != together[0].text


def test_what_it_cannot_read_is_refused():
    with pytest.raises(BadInput, match="no sentence"):
        chat().reply(said("Quarterly figures were discussed.", "12. 13."))
    with pytest.raises(BadInput, match="no sentence"):
        chat().replies([[]])


class Wordless:
    """A policy without a distribution of the next token."""

    card = ScriptedPolicy.from_text(law, (NEEDED, IDLE)).card


def test_a_policy_must_know_its_law():
    with pytest.raises(CannotDo, match="distribution"):
        ExtractiveChat(Wordless(), WORDS)


def test_it_is_a_chat_model_for_the_strategies():
    assert isinstance(chat(), ChatModel)
    one = session()
    for strategy in (Summarise(chat(), 50, words=30), Hierarchical(chat(), 50, words=30)):
        result = strategy.compact(with_ids(one.history))
        assert result.fired
        assert "the order of" in result.summary
        assert "Summarise" not in result.summary


@pytest.mark.parametrize("name", ["langmem", "langgraph", "langchain", "agent-framework-summarise"])
def test_it_works_in_the_real_harnesses(name):
    result = open_compactor(name, summariser=chat(words=30), max_tokens=300, words=30).compact(
        session().history
    )
    assert result.fired
    kept = sentences([result.summary])
    told = sentences([str(m["content"]) for m in session().history])
    # The words of the harness's own prompt do not reach the summary.
    assert kept
    assert set(kept) <= set(told)
