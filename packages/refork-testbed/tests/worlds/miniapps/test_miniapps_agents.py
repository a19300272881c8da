"""The scripted agent: what texts and tools do to it comes from what they say and hide.

The statistical tests have fixed seeds, so they do not fail by chance; the margins are at least three standard
errors of the differences that a run with other seeds would show.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput, ReplayDiverged
from refork.sampling.noise import NoiseKey, stream_of
from refork.worlds.base import Task
from refork_testbed.worlds.miniapps.advice import (
    CONVENTIONS,
    PURPOSES,
    TOPICS,
    Text,
    advice_of,
    beliefs,
    documented,
    other_value,
    plan_for,
    spoiled,
    statement,
)
from refork_testbed.worlds.miniapps.agents import Agent, ScriptTool, play, thought_in, thought_of
from refork_testbed.worlds.miniapps.catalogue import catalogue
from refork_testbed.worlds.miniapps.mind import Mind, Rates, default_slips
from refork_testbed.worlds.miniapps.scenarios import SIMPLE, prompt_of
from refork_testbed.worlds.miniapps.shift import Shift
from refork_testbed.worlds.miniapps.world import miniapps_world

USUAL = documented(prompt_of("x", Shift()))
FACTS = tuple(Text("fact", statement(topic, USUAL[topic])) for topic in CONVENTIONS)
TOOLS = tuple(ScriptTool(key, USUAL) for key in SIMPLE)


@cache
def plans() -> tuple[Text, ...]:
    """Plans as a reflector would write them: the sentence, and the functions that the expert called."""
    from refork_testbed.worlds.miniapps.agents import expert

    world, found = miniapps_world("", "seen"), {}
    for task in world.tasks("train", 60):
        run = play(expert(task.prompt), world.start(task, 0), NoiseKey(0, 0, 0))
        named = dict.fromkeys(call["function"] for turn in run.turns for call in turn.calls)
        sentence = SIMPLE[task.data["template"]].sentence
        found[sentence] = Text("plan", f"{sentence} Call {', then '.join(named)}.")
    return tuple(found.values())


def test_the_documentation_is_read_from_the_prompt():
    assert USUAL["first-page"] == "0"
    assert documented(prompt_of("x", Shift(pages=True)))["first-page"] == "1"
    assert documented(prompt_of("x", Shift(cents=True)))["unit"] == "cents"
    assert documented(prompt_of("x", Shift(ids=True)))["playlist"] == "id"
    assert set(USUAL) == set(TOPICS) == set(default_slips())
    names = {one.name for one in catalogue()}
    assert {function for _, *pair in PURPOSES.values() for function in pair} <= names


@pytest.mark.parametrize("topic", TOPICS)
def test_statements_are_read_back_and_the_last_one_counts(topic):
    values = (USUAL[topic], other_value(topic, USUAL[topic]))
    for value in values:
        assert beliefs(f"I learned: {statement(topic, value)} Fine.") == {topic: value}
    assert other_value(topic, values[1]) == values[0]
    if topic not in ("paging", "person", "zone"):
        assert advice_of([Text("fact", statement(topic, v)) for v in values]) == {topic: values[1]}
    wrong = spoiled(Text("fact", "Something else."), topic, USUAL)
    assert beliefs(wrong.body) == {topic: values[1]}
    with pytest.raises(BadInput, match="cannot be"):
        statement(topic, "purple")


def test_a_plan_is_found_by_its_words_not_by_what_fills_the_slots():
    for template in SIMPLE.values():
        best = plan_for(template.sentence, plans())
        assert best is not None
        assert best.body.startswith(template.sentence)
    assert plan_for("Sing a song about rivers.", plans()) is None
    assert plan_for(SIMPLE["reply"].sentence, [Text("fact", SIMPLE["reply"].sentence)]) is None


@pytest.mark.parametrize("topic", ["unit", "zone", "add-line"])
def test_the_rates_of_a_mind_are_those_that_are_stated(topic):
    rates, n = Rates(slips=default_slips() | {topic: 0.4}), 4000
    right, wrong = USUAL[topic], other_value(topic, USUAL[topic])

    def share(texts: tuple[Text, ...]) -> float:
        count = 0
        for i in range(n):
            mind = Mind(rates, USUAL, texts)
            mind.think(f"{topic}{i}")
            count += mind.holds(topic) != right
        return count / n

    good, bad = (Text("fact", statement(topic, value)) for value in (right, wrong))
    expected = rates.misled + (1 - rates.misled) * 0.4 * rates.advised
    for texts, rate in (((), 0.4), ((good,), 0.4 * rates.advised), ((bad,), expected)):
        # four standard errors: another seed would fail one time in 16,000
        assert abs(share(texts) - rate) < 4 * np.sqrt(rate * (1 - rate) / n)


def test_what_was_learned_overrules_a_text():
    mind = Mind(Rates(slips=dict.fromkeys(default_slips(), 0.0), misled=1.0), USUAL,
                [Text("fact", statement("unit", "cents"))])  # fmt: skip
    mind.think("x")
    assert mind.holds("unit") == "cents"
    mind.learn("unit", "dollars")
    assert mind.holds("unit") == "dollars"


@cache
def tasks_of(shift: str, templates: str, n: int, seed: int) -> tuple[Task, ...]:
    """Made once for all arms: tools change no task."""
    return tuple(miniapps_world(shift, templates).tasks("held-out", n, seed))


def arm(
    shift: str, templates: str, texts=(), tools=(), n: int = 90, seeds: int = 2, rates: Rates | None = None
):
    """Rewards and steps [seeds * n] of an arm; tasks and noise are the same in every arm."""
    world = miniapps_world(shift, templates).with_tools(tools)
    agent = Agent(rates or Rates(), tuple(texts), tuple(tools))
    runs = [
        play(agent.open(task.prompt), world.start(task, 0), NoiseKey(seed, stream_of(task.id), 0))
        for seed in range(seeds)
        for task in tasks_of(shift, templates, n, seed)
    ]
    return np.array([run.reward for run in runs]), np.array([run.steps for run in runs])


@cache
def untold(shift: str) -> np.ndarray:
    """Rewards of an agent without a memory on a shifted stream."""
    return arm(shift, "new")[0]


def test_on_a_repeated_stream_texts_and_tools_help():
    none, steps = arm("", "all")
    text, text_steps = arm("", "all", FACTS + plans())
    code, code_steps = arm("", "all", (), TOOLS)
    assert 0.5 <= none.mean() <= 0.72
    assert 0.15 <= text.mean() - none.mean() <= 0.35
    assert text_steps.mean() <= 0.85 * steps.mean()
    assert code.mean() >= text.mean() - 0.02
    assert code_steps.mean() < text_steps.mean()


def test_on_a_shifted_stream_stale_tools_do_harm():
    none = untold("pages")
    code, _ = arm("pages", "new", (), TOOLS)
    assert code.mean() < none.mean() - 0.3
    # only requests that send money are touched by the other convention
    none, _ = arm("cents", "seen", n=60)
    code, _ = arm("cents", "seen", (), TOOLS, n=60)
    touched = ("pay-person", "request-person", "pay-bill", "return-payment")
    tasks = [task for seed in range(2) for task in tasks_of("cents", "seen", 60, seed)]
    these = np.array([task.data["template"] in touched for task in tasks])
    assert code[these].mean() == 0.0 < none[these].mean()
    assert code[~these].mean() == 1.0


def test_tools_made_from_the_shifted_documentation_are_right_again():
    for shift in ("pages", "cents", "ids"):
        facts = documented(prompt_of("x", Shift.parse(shift)))
        code, _ = arm(shift, "new", (), [ScriptTool(key, facts) for key in SIMPLE], n=30, seeds=1)
        assert code.mean() == 1.0


def test_a_failed_tool_is_followed_by_work_by_hand_at_the_stated_rate():
    shifted = miniapps_world("ids", "seen").with_tools([_Broken("approve-requests", USUAL)])
    task = next(t for t in shifted.tasks("train", 60) if t.data["template"] == "approve-requests")
    for by_hand in (0.0, 1.0):
        rates = Rates(slips=dict.fromkeys(default_slips(), 0.0), by_hand=by_hand)
        agent = Agent(rates, (), (_Broken("approve-requests", USUAL),))
        run = play(agent.open(task.prompt), shifted.start(task, 0), NoiseKey(0, 0, 0))
        assert run.reward == by_hand
    assert ScriptTool("approve-requests", USUAL).bind("Sing.") is None


class _Broken:
    def __init__(self, template, facts):
        self._tool = ScriptTool(template, facts)
        self.name, self.doc, self.parameters = self._tool.name, self._tool.doc, self._tool.parameters

    def bind(self, sentence):
        return self._tool.bind(sentence)

    def run(self, arguments, call):
        raise RuntimeError("out of order")


def test_a_session_resumes_from_its_record_and_goes_on_as_before():
    world = miniapps_world("", "all")
    for task in world.tasks("train", 90)[::11]:
        whole = play(Agent().open(task.prompt), world.start(task, 0), NoiseKey(5, 0, 0))
        record = [(turn.output, turn.observation) for turn in whole.turns]
        for cut in (0, 1, len(record) // 2, len(record) - 1):
            session = Agent().resume(task.prompt, record[:cut])
            assert session.say(thought_in(record[cut][0])) == record[cut][0]
    with pytest.raises(ReplayDiverged, match="turn 1"):
        Agent().resume(task.prompt, [("# 0007\ndone()", "{}")])


def test_a_fork_with_another_memory_shares_the_prefix_and_may_differ_after_it():
    world = miniapps_world("", "seen")
    task = next(t for t in world.tasks("train", 60) if t.data["template"] == "pay-person")
    perfect = Agent(Rates(slips=dict.fromkeys(default_slips(), 0.0), misled=1.0, notices=0.0, wanders=0.0))
    whole = play(perfect.open(task.prompt), world.start(task, 0), NoiseKey(5, 0, 0))
    assert whole.reward == 1.0
    cut, episode = 1, world.start(task, 0)
    for turn in whole.turns[:cut]:
        assert episode.step(turn.output).text == turn.observation
    session = perfect.resume(task.prompt, [(t.output, t.observation) for t in whole.turns[:cut]])
    session.read([Text("fact", statement("unit", "cents"))])
    other = play(session, episode, NoiseKey(5, 0, 0, turn=cut))
    assert other.reward == 0.0
    assert "100" not in whole.turns[-2].output
    assert other.turns[-2].output != whole.turns[-2].output


@given(st.integers(0, 2**40), st.integers(0, 50))
def test_thoughts_are_within_their_range_and_are_read_back(seed, turn):
    thought = thought_of(NoiseKey(seed, 1, 0, turn))
    assert 0 <= thought < 4096
    assert thought_in(f"# {thought:04d}\ndone()") == thought
    assert thought_in("done()") == 0
