from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.sandbox import Limits, Sandbox
from refork_methods.theory.cues.designs import random_design
from refork_methods.theory.experiment import generator
from refork_methods.theory.gambles.experiment import random_gambles
from refork_methods.theory.open import rule_named, seed_theory
from refork_methods.theory.priors import Uniform
from refork_methods.theory.sandboxed import LIMITS, SandboxedTheory, check_theory
from refork_methods.theory.simulate import predicted_rates, simulate
from refork_methods.theory.theory_file import Theory

E = random_design(np.random.default_rng(3), top=10)
TEXT = """
name: half
theory: Nobody prefers anything.
parameters:
  beta: [0.1, 20]
  kind: {1, 2}
predict: |
  def predict(parameters, stimulus, history):
      return [0.5, 0.5]
"""


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(LIMITS) as box:
        yield box


def theory(body, policy=None, **parameters):
    source = f"def predict(parameters, stimulus, history):\n    {body}\n"
    more = {} if policy is None else {"policy": f"def policy(probabilities, noise):\n    {policy}\n"}
    return Theory("own", "Words.", source, parameters, **more)


def test_a_theory_is_read_and_written():
    one = Theory.from_yaml(TEXT)
    assert one.parameters["beta"] == Uniform(0.1, 20)
    assert not one.reads_history
    again = Theory.from_yaml(one.to_yaml())
    assert again == one
    assert again.digest == one.digest
    assert Theory.from_yaml(TEXT.replace("0.5, 0.5", "0.4, 0.6")).digest != one.digest
    assert Theory.from_yaml(TEXT.replace("name: half", "name: other")).digest == one.digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("name: half", "name: 3"), "name"),
        (("theory: Nobody prefers anything.", ""), "theory"),
        (("predict: |", "predicts: |"), "predict"),
        (("[0.1, 20]", "[20, 0.1]"), "uniform prior from 20"),
        (("[0.1, 20]", "open('x')"), "no prior"),
        (("def predict(", "def predicts("), "defines no function"),
        (("(parameters, stimulus, history)", "(parameters, stimulus)"), "must take"),
        (("(parameters, stimulus, history)", "(parameters, stimulus, history=1)"), "must take"),
        (("return [0.5, 0.5]", "return open('x')"), "may not run"),
        (("return [0.5, 0.5]", "import os"), "may not run"),
        (("return [0.5, 0.5]", "import time"), "may not run"),
        (("return [0.5, 0.5]", "import socket"), "may not run"),
        (("return [0.5, 0.5]", "return [hash('a'), 1]"), "hash"),
        (("return [0.5, 0.5]", "return refork_probs(1, 2, 3)"), "are taken"),
        (("return [0.5, 0.5]", "return ["), "does not parse"),
        (("kind:", "a kind:"), "plain name"),
        (("name: half", "name: [half"), "not YAML"),
    ],
)
def test_refused_theories(change, words):
    with pytest.raises(BadInput, match=words):
        Theory.from_yaml(TEXT.replace(*change), "half.yaml")


def test_two_sources_of_one_namespace():
    predict = "def predict(parameters, stimulus, history):\n    return [0.5, 0.5]\n"
    policy = "def policy(probabilities, noise):\n    return 1\n"
    for more in ("K = 1\n", "K: int = 1\n", "def K():\n    return 1\n"):
        with pytest.raises(BadInput, match="both define 'K'"):
            Theory("own", "Words.", "K = 2\n" + predict, policy=more + policy)
    with pytest.raises(BadInput, match="both define 'predict'"):
        Theory("own", "Words.", predict, policy=policy + predict)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        Theory.read(tmp_path / "none.yaml")
    (tmp_path / "half.yaml").write_text(TEXT)
    assert Theory.read(tmp_path / "half.yaml").name == "half"


@pytest.mark.parametrize(
    "name", ["take-the-best", "tallying", "wadd", "dial", "diminishing-wadd", "alternation", "expected-value"]
)
def test_the_theories_as_text_are_the_rules(name, sandbox):
    """The same priors in the same order draw the same people, who make the same choices."""
    rule, text = rule_named(name), seed_theory(name)
    assert dict(text.parameters) == dict(rule.priors)
    run = SandboxedTheory(text, sandbox)
    experiment = E if rule.domain == "cues" else random_gambles(np.random.default_rng(1), 8)
    assert (run.domain, run.reads_history) == (rule.domain, rule.reads_history)
    one, other = (simulate(chooser, experiment, 5, 11) for chooser in (rule, run))
    assert (one.response == other.response).all()
    check_theory(run, experiment, 0)
    if not rule.reads_history:
        people = rule.draw(experiment, 20, generator(2, "parameters"))
        np.testing.assert_allclose(
            run.chances(experiment, people), rule.chances(experiment, people), atol=1e-12
        )
        np.testing.assert_allclose(
            predicted_rates(run, experiment, 50, 3), predicted_rates(rule, experiment, 50, 3), atol=1e-12
        )


def test_no_other_theory_comes_along():
    with pytest.raises(BadInput, match="comes along"):
        seed_theory("../secret")


@pytest.mark.parametrize(
    "body",
    [
        "return [0.5, 0.6]", "return [-0.5, 1.5]", "return [float('nan'), 1]", "return [1.0]", "return 0.5",
        "return [0.2, 0.3, 0.5]", "return None", "return 'ab'", "return [1 / 0, 1]",
        "return [stimulus['c'], 1]", "return [float('inf'), 0]",
    ],
)  # fmt: skip
def test_what_is_no_law_is_refused_when_it_runs(body, sandbox):
    run = SandboxedTheory(theory(body), sandbox)
    with pytest.raises(BadInput, match="own"):
        simulate(run, E, 2, 0)
    with pytest.raises(BadInput, match="own"):
        predicted_rates(run, E, 2, 0)


def test_a_policy_of_one_s_own(sandbox):
    greedy = theory("return [0.4, 0.6]", "return 1 if probabilities[1] > 0.5 else 0")
    assert simulate(SandboxedTheory(greedy, sandbox), E, 2, 0).response.all()
    for policy in ("return 2", "return None", "return True"):
        with pytest.raises(BadInput, match="policy must return 0 or 1"):
            simulate(SandboxedTheory(theory("return [0.4, 0.6]", policy), sandbox), E, 2, 0)


@pytest.mark.parametrize("history", ["history", "_"])
def test_what_a_theory_does_to_a_stimulus_ends_with_the_trial(history, sandbox):
    body = 'stimulus["validities"].append(1.0)\n    return [1.0, 0.0]'
    body += f' if len(stimulus["validities"]) == {len(E.validities) + 1} else [0.0, 1.0]'
    run = SandboxedTheory(theory(body.replace("history", history)), sandbox)
    assert not simulate(run, E, 3, 0).response.any()
    assert not predicted_rates(run, E, 3, 0).any()


def test_limits_end_a_theory_that_does_not_end():
    with Sandbox(Limits(seconds=0.3, calls=0)) as box:
        endless = SandboxedTheory(theory("while True: pass"), box)
        with pytest.raises(BadInput, match="timeout"):
            simulate(endless, E, 1, 0)
        hungry = SandboxedTheory(theory("return [len([0] * 10 ** 10), 1]"), box)
        with pytest.raises(BadInput, match="memory"):
            simulate(hungry, E, 1, 0)


def test_a_theory_that_remembers_people_is_found(sandbox):
    seen = "SEEN = []\n\n\ndef predict(parameters, stimulus, history):\n    SEEN.append(1)\n"
    code = seen + "    return [0.9, 0.1] if len(SEEN) < 200 else [0.1, 0.9]\n"
    with pytest.raises(BadInput, match="simulated before"):
        check_theory(SandboxedTheory(Theory("own", "Words.", code), sandbox), E, 0)


def test_a_whole_history_is_simulated_and_has_no_table(sandbox):
    body = "n = len(history); return [1.0, 0.0] if n % 3 else [0.0, 1.0]"
    run = SandboxedTheory(theory(body), sandbox)
    assert run.reads_history
    assert simulate(run, E, 2, 0).of(1).response[:7].tolist() == [1, 0, 0, 1, 0, 0, 1]
    with pytest.raises(CannotDo, match="whole history"):
        run.chances(E, {})


def test_another_domain_is_refused(sandbox):
    gambles = random_gambles(np.random.default_rng(0), 3)
    with pytest.raises(BadInput, match="about gambles"):
        simulate(SandboxedTheory(theory("return [0.5, 0.5]"), sandbox), gambles, 1, 0)
