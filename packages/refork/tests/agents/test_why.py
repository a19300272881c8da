"""Which answer lost a run: the search alone, and on a program that asks a provider."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, binomtest
from typer.testing import CliRunner

from agents import provider as fake
from refork import agents, stats
from refork.agents.case import plan_of, quoted
from refork.agents.diagnosis import FallSearch, exact_p, is_confirmed, parts_of
from refork.agents.fork import Outcome, ProgramForkSettings
from refork.cli.agent import app
from refork.errors import BadInput, CannotDo
from refork.tree import Tree

#: Asks three times and prints what was answered.
AGENT = """
import json, os, sys, urllib.request as web
talk = []
for turn in range(3):
    talk.append({"role": "user", "content": "turn %d" % turn})
    request = web.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
                          json.dumps({"model": "m", "messages": talk}).encode())
    request.add_header("content-type", "application/json")
    talk.append(json.load(web.urlopen(request))["choices"][0]["message"])
print([message["content"] for message in talk if message["role"] == "assistant"])
"""


class Plant:
    """A run whose values are known: draws of them, and what a search found confirmed."""

    def __init__(self, values, seed, settings, together=True):
        self.values, self.rng, self.settings = values, np.random.default_rng(seed), settings
        self.successes, self.drawn, self.tests, self.confirmed = {}, {}, {}, []
        self.search = FallSearch(len(values) - 1, settings, self.value, self.test, together)

    def value(self, step, draws, have):
        self.drawn[step] = draws
        new = self.rng.binomial(draws - have, self.values[step])
        self.successes[step] = self.successes.get(step, 0) + new
        return self.successes[step], draws

    def test(self, step, last, draws, error):
        # More draws of a test are added to those that it had.
        arms = self.tests.setdefault((step, last), [[], []])
        for arm, at in zip(arms, (last + 1, step), strict=True):
            arm += list(self.rng.random(draws - len(arm)) < self.values[at])
        kept, anew = ((int(sum(arm)), draws) for arm in arms)
        if is_confirmed(kept, anew, error):
            self.confirmed.append(step if step == last else (step, last))
        return kept, anew


@pytest.mark.parametrize("steps", [1, 2, 5, 16])
def test_a_certain_fall_is_found_wherever_it_is(steps):
    for step in range(steps):
        plant = Plant([1.0] * (step + 1) + [0.0] * (steps - step), step, agents.WhySettings())
        assert plant.search.look()
        assert plant.confirmed == [step]
        # Halving: a few values of a long run, and none of them from more draws than needed.
        assert len(plant.search.boundaries) <= 4 + np.ceil(np.log2(steps))
        # Draws of the whole tape ask nobody.
        assert max(draws for at, draws in plant.drawn.items() if at < steps) <= 8


def test_two_falls_are_found_and_a_gain_that_hides_a_loss_is_seen():
    settings, both, hidden = agents.WhySettings(), 0, 0
    for seed in range(20):
        plant = Plant([1.0] * 3 + [0.5] * 6 + [0.0] * 4, seed, agents.WhySettings(findings=2))
        assert plant.search.look()
        assert set(plant.confirmed) <= {2, 8}
        both += len(plant.confirmed) == 2
        plant = Plant([0.0] * 3 + [1.0] * 6 + [0.0] * 4, seed, settings)
        assert plant.search.look()
        hidden += plant.confirmed == [8]
    # Seen of each: 19 and 20 of 20. A search that stops at the first, or looks at the ends alone, has none.
    assert (both >= 15, hidden >= 18) == (True, True)


def test_answers_that_lose_a_little_each_are_found_together():
    together = single = 0
    for seed in range(20):
        falls = [0.9 - 0.09 * step for step in range(11)]
        alone = Plant(falls, seed, agents.WhySettings(), together=False)
        assert alone.search.look()
        assert not any(isinstance(one, tuple) for one in alone.confirmed)
        plant = Plant(falls, seed, agents.WhySettings())
        assert plant.search.look()
        (found,) = plant.confirmed or (None,)
        single += isinstance(found, int)
        if isinstance(found, tuple):
            # More than one answer, and what they lose is a loss.
            assert found[1] - found[0] >= 1
            together += 1
    # Seen: 15 and 2. A search that tests single answers alone has the two.
    assert (together >= 12, together + single >= 15) == (True, True)


@pytest.mark.parametrize("value", [0.1, 0.5, 0.9])
def test_where_nothing_falls_an_answer_is_blamed_seldom(value):
    """200 runs without a fall. A false finding has a chance of 5 % at most: 20 or more of them, .003."""
    settings, false = agents.WhySettings(), 0
    for seed in range(200):
        plant = Plant([value] * 9, seed, settings)
        plant.search.look()
        false += bool(plant.confirmed)
    assert false <= 19


def test_the_test_of_a_fall_is_exact():
    assert exact_p((0, 8), (8, 8)) < 1e-3
    assert exact_p((8, 8), (0, 8)) > 0.99  # one-sided: a gain is no fall
    assert exact_p((0, 0), (8, 8)) == 1.0
    assert exact_p((4, 8), (4, 8)) > 0.3


def test_what_is_confirmed_has_an_interval_above_nothing():
    """The exact test and the interval that is shown may differ: the answer counts where both say so."""
    for error in (0.0142, 0.05):
        for draws in (8, 16):
            for kept in range(draws + 1):
                for anew in range(draws + 1):
                    counts = (kept, draws), (anew, draws)
                    low = stats.newcombe(*counts, 1 - 2 * error).interval.low
                    assert is_confirmed(*counts, error) == (exact_p(*counts) < error and low > 0)
    assert is_confirmed((0, 8), (4, 8), 0.0142)
    assert not is_confirmed((0, 8), (3, 8), 0.0142)


@pytest.fixture(scope="module")
def tape_folder(tmp_path_factory):
    """A folder for the one run that is recorded."""
    return tmp_path_factory.mktemp("why")


@pytest.fixture(scope="module")
def recorded(tape_folder):
    """A run whose second answer lost it: drawn anew it is good; with it all that comes later is in vain."""
    (tape_folder / "agent.py").write_text(AGENT)
    script = [("good", None), ("This is bad. Go on.", None), ("good", None)]
    with Tree.open(tape_folder / "tape.db") as tree, fake.serving(script) as (provider, address):
        run = agents.record(tree, [sys.executable, "agent.py"], to=address, folder=tape_folder, quiet=True)
        assert "bad" in (run.output or "")
        provider.asked.clear()
        yield tree, run, ProgramForkSettings(to=address), provider


@pytest.fixture(scope="module")
def found(recorded):
    """Its diagnosis, and how many requests the provider had for it."""
    tree, run, how, provider = recorded
    before = len(provider.asked)
    return agents.why(tree, run, outcome=Outcome(fails="bad"), settings=how), len(provider.asked) - before


def test_the_answer_that_lost_a_run_is_named_with_its_control(recorded, found):
    tree, run, how, _ = recorded
    told, asked = found
    assert told.verdict == "answer"
    (lost,) = told.findings
    assert (lost.step, lost.answer, lost.confirmed) == (1, "This is bad. Go on.", True)
    # The control keeps the recorded answer and never succeeds; fresh draws, not those of the search.
    assert (lost.effect.base.rate, lost.effect.other.rate, lost.effect.low > 0) == (0.0, 1.0, True)
    assert "the answer at step 1 lost the run" in told.sentence
    assert [(one.step, one.mean) for one in told.values] == [(1, 1.0), (2, 0.0), (3, 0.0)]
    assert [(first, last) for first, last, _ in told.bounds] == [(2, 2)]
    assert told.calls == asked > 0
    # Without one of its two sentences the answer would not have lost: the smallest change that rescues.
    assert (told.rescue.part, told.rescue.confirmed) == ("This is bad. ", True)
    assert (told.rescue.effect.base.rate, told.rescue.effect.other.rate) == (0.0, 1.0)
    # All of it is on the tape: asked again, nobody is asked.
    again = agents.why(tree, run, outcome=Outcome(fails="bad"), settings=how)
    assert (again.calls, again.runs) == (0, 0)
    assert (again.findings[0].effect.difference, again.sentence) == (1.0, told.sentence)
    assert again.to_json()["findings"][0]["effect"]["p"] == lost.effect.p


class GoesOn:
    """A model that says "take the right door now", and goes on from whatever it was made to say."""

    def __init__(self):
        self.first = True

    def __call__(self, asked):
        said = "take the right door now"
        if len(asked["messages"]) == 3 and self.first:
            self.first = False
            return "take the wrong door now", None
        if asked.get("continue_final_message"):
            assert asked["add_generation_prompt"] is False
            begun = asked["messages"][-1]["content"].split(" ")
            return "".join(f" {word}" for word in said.split(" ")[len(begun) :]), None
        return said, None


@pytest.mark.parametrize("stream", [False, True])
def test_the_token_that_lost_a_run_is_named_where_its_server_goes_on(tmp_path, stream):
    agent = AGENT.replace('"messages": talk', f'"messages": talk, "stream": {stream}')
    if stream:
        agent = agent.replace(
            'talk.append(json.load(web.urlopen(request))["choices"][0]["message"])',
            'lines = [line[6:] for line in web.urlopen(request) if line.startswith(b"data: {")]\n'
            '    words = [json.loads(line)["choices"][:1] for line in lines]\n'
            '    said = "".join(word[0]["delta"].get("content", "") for word in words if word)\n'
            '    talk.append({"role": "assistant", "content": said})',
        )
    (tmp_path / "agent.py").write_text(agent)
    wrong = Outcome(fails="wrong")
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving(GoesOn(), "vllm") as (provider, address):
        run = agents.record(tree, [sys.executable, "agent.py"], to=address, folder=tmp_path, quiet=True)
        assert "wrong" in run.output
        how = ProgramForkSettings(to=address)
        provider.asked.clear()
        if stream:  # the whole search once
            told = agents.why(
                tree, run, outcome=wrong, settings=how, search=agents.WhySettings(draws=8, error=0.2)
            )
            assert told.calls == len(provider.asked)
            assert (told.findings[0].step, told.token.token, told.token.confirmed) == (1, 2, True)
            assert (told.token.before, told.token.text) == ("take the", " wrong")
            # The control keeps the token and never succeeds.
            assert (told.token.effect.base.rate, told.token.effect.other.rate) == (0.0, 1.0)
            assert "in it token 2 (' wrong') did" in told.sentence
            rows = agents.exchanges(tree, run)
            for file in agents.write_case(tmp_path / "case", "tape.db", run, told, how, rows)[:2]:
                assert "token 2" in file.read_text()
        # A word in its place, and the model goes on behind it.
        change = replace(agents.ProgramChange.parse("answer: left"), token=2)
        base, other = agents.fork_run(tree, run, 1, change, 2, outcome=wrong, settings=how)
        assert (base.values(), other.values()) == ([0.0, 0.0], [1.0, 1.0])
        ends = {tree.node(draw.leaf).text for draw in other.draws}
        assert ends == {run.output.replace("wrong", "left")}
        with pytest.raises(BadInput, match="no token 5"):
            agents.fork_run(tree, run, 1, replace(change, token=5), 2, settings=how)
        provider.owner = "somebody"
        with pytest.raises(CannotDo, match="not known to go on"):
            agents.fork_run(tree, run, 1, change, 3, settings=how)


def test_a_budget_ends_a_search_with_what_is_known(recorded):
    tree, run, how, _ = recorded
    search, bad = agents.WhySettings(budget=12), Outcome(fails="bad")
    found = agents.why(tree, run, outcome=bad, settings=replace(how, limit_s=500.0), search=search)
    # Runs from the tape ask nobody. Six from the last exchange ask six times, two from the one before four.
    # The test would ask 24 times more.
    assert (found.verdict, found.calls) == ("budget", 10)
    assert [(one.step, one.successes, one.draws) for one in found.values] == [
        (1, 2, 2),
        (2, 0, 6),
        (3, 0, 32),
    ]
    assert "budget" in found.sentence


def test_a_run_that_did_not_fail_is_refused_before_anything_runs(recorded):
    tree, run, how, provider = recorded
    before = len(provider.asked)
    with pytest.raises(BadInput, match="succeeded"):
        agents.why(tree, run, settings=how)
    with pytest.raises(BadInput, match=r"did not fail by this: .* all of 8 runs"):
        agents.why(tree, run, outcome=Outcome(check="true"), settings=how, search=agents.WhySettings(draws=8))
    with pytest.raises(BadInput, match="draws"):
        agents.WhySettings(draws=2)
    assert len(provider.asked) == before


def test_a_program_that_does_not_repeat_itself_is_said_to(recorded, tape_folder):
    tree, run, how, _ = recorded
    (tape_folder / "agent.py").write_text(AGENT.replace('"turn %d"', '"today %d"'))
    try:
        with pytest.raises(CannotDo, match="did not come to step"):
            agents.why(tree, run, outcome=Outcome(fails="bad"), settings=how)
    finally:
        (tape_folder / "agent.py").write_text(AGENT)


def test_a_case_file_says_what_was_found_and_its_test_fails_until_the_agent_is_mended(
    recorded, found, tape_folder
):
    tree, run, how, _ = recorded
    told, _ = found
    draws = told.findings[0].effect.draws
    files = agents.write_case(
        tape_folder / "case", str(tape_folder / "tape.db"), run, told, how, agents.exchanges(tree, run)
    )
    assert [file.name for file in files] == ["case.html", "case.md", "case.json", "test_case.py"]
    shown = files[0].read_text()
    for part in (
        "This is bad. Go on.",
        "Step 1 lost the run",
        "What rescues it",
        "before step 2",
        "--step 1",
    ):
        assert part in shown
    text = files[1].read_text()
    for part in (
        "## Step 1: lost the run",
        f"| control: the recorded answer kept | 0% | {draws} |",
        "| before step |",
        f"--step 1 --change again --draws {draws} --seed 1 --fails bad",
        "## What rescues it",
        "| 2 | ",  # ruled out
        f"{told.calls} requests to providers in {told.runs} runs",
    ):
        assert part in text
    stored = json.loads(files[2].read_text())
    assert (stored["verdict"], stored["findings"][0]["step"]) == ("answer", 1)
    plans = stored["test"]
    # Of an agent that succeeds without that answer in each of its runs no test could show a better one there.
    (way,) = plans
    assert (way["step"], way["keeps"], way["plan"]["needed"]) == (1, True, 2)
    # The test, with the agent as it is, and with one that has another prompt and hears no bad answer.
    scope = {}
    exec(compile(files[3].read_text(), "test_case.py", "exec"), scope)
    assert scope["successes"](step=1, keeps=True, runs=2) == 0
    mended = AGENT.replace("turn %d", "Turn %d").replace('== "assistant"]', '== "assistant"][-1:]')
    (tape_folder / "agent.py").write_text(mended)
    try:
        scope["test_the_agent_is_mended"]()
    finally:
        (tape_folder / "agent.py").write_text(AGENT)


@pytest.mark.parametrize(("successes", "draws"), [(0, 8), (0, 32), (16, 32), (31, 32)])
def test_a_test_of_a_mended_agent_is_the_shortest_with_both_its_errors(successes, draws):
    before = binomtest(successes, draws).proportion_ci(0.9).high
    fits = [
        (runs, needed)
        for runs in range(2, 61)
        for needed in range(1, runs + 1)
        if binom.sf(needed - 1, runs, before) <= 0.05 and binom.sf(needed - 1, runs, 0.97) >= 0.8
    ]
    plan = plan_of(agents.RunValue(0, successes, draws, 0.0, 1.0))
    if not fits:
        assert (plan, successes) == (None, 31)
        return
    assert plan.before == pytest.approx(before)
    assert (plan.runs, plan.needed) == min(fits)


def test_a_text_on_the_page_cannot_leave_its_block():
    inside = "a\n````\n# not a heading\n\x1b[31m"
    first, *between, last = quoted(inside)
    assert (first, last) == ("`````text", "`````")
    assert between == ["a", "````", "# not a heading", "␛[31m"]


def test_from_the_command_line_a_finding_is_shown_and_its_command_shows_it_again(
    recorded, found, tape_folder, monkeypatch
):
    _, run, how, provider = recorded
    monkeypatch.chdir(tape_folder)
    asked = len(provider.asked)
    options = ["tape.db", "--run", run.id, "--fails", "bad", "--to", how.to]

    def ran(*arguments):
        done = CliRunner().invoke(app, list(map(str, arguments)))
        return done.exit_code, done.stdout

    status, shown = ran("why", *options, "--rerun-tools", "--out", "one")
    assert status == 0
    assert "the answer at step 1 lost the run" in " ".join(shown.split())
    status, shown = ran("why", *options, "--rerun-tools", "--out", "one", "--json")
    told = json.loads(shown)
    assert (status, told["calls"], told["verdict"]) == (0, 0, "answer")
    assert [Path(file).name for file in told["files"]] == [
        "case.html",
        "case.md",
        "case.json",
        "test_case.py",
    ]
    _, _, *again = shlex.split(json.loads(Path("one/case.json").read_text())["reproduce"][0])
    status, shown = ran(*again, "--json")
    assert (status, json.loads(shown)["difference"]) == (0, 1.0)
    assert len(provider.asked) == asked
    # One exchange, and the numbers at which its answer can be cut.
    status, shown = ran("show", "tape.db", "--step", 1)
    assert (status, "0:This 1:is 2:bad 3:. 4:Go" in shown) == (0, True)
    status, shown = ran("show", "tape.db", "--step", 1, "--json")
    assert json.loads(shown)["tokens"][2:4] == [" bad", "."]
    # The answers of two steps are kept together, and drawn anew together.
    given = ("fork", *options, "--rerun-tools", "--change", "again", "--draws", 2)
    status, shown = ran(*given, "--step", 0, "--through", 1, "--json")
    assert (status, json.loads(shown)["base"]["rate"], json.loads(shown)["other"]["rate"]) == (0, 0.0, 1.0)
    asked += 2 * 3 + 2 * 1
    assert len(provider.asked) == asked
    for more, error in (
        (["--step", 1, "--token", 2], CannotDo),  # nobody says that it goes on
        (["--step", 1, "--through", 0], BadInput),
    ):
        assert isinstance(CliRunner().invoke(app, list(map(str, (*given, *more)))).exception, error)
    # Its tools would run again, and nobody allowed it.
    assert isinstance(CliRunner().invoke(app, ["why", *options]).exception, BadInput)


@pytest.mark.parametrize(
    ("text", "most", "parts"),
    [
        ("One.", 6, []),
        ("One. Two! Three", 6, ["One. ", "Two! ", "Three"]),
        ("One.\nTwo 3.5 kg\n\nThree", 2, ["One.\nTwo 3.5 kg\n\n", "Three"]),
        ("", 6, []),
        ("One. Two.", 0, []),
    ],
)
def test_an_answer_is_cut_at_its_sentences_and_nothing_is_lost(text, most, parts):
    assert parts_of(text, most) == parts
    assert not parts or "".join(parts) == text
