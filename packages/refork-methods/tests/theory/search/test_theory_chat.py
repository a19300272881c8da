"""The chat scientist: strict answers, asked again with what was wrong, faults as data."""

from __future__ import annotations

import json

import pytest

from refork.chat import ScriptedChat
from refork.errors import BadInput, ServerError
from refork.plain import canonical
from refork.sandbox import Sandbox
from refork_methods.theory.domains import domain_named
from refork_methods.theory.sandboxed import LIMITS
from refork_methods.theory.search import SimulatedPeople, TheorySearch, TheorySettings
from refork_methods.theory.search.chat import ASKED, ChatScientist, one_object
from refork_methods.theory.search.spec import TheorySpec

CUES = domain_named("cues")
DESIGN = {
    "experiment": {
        "validities": [0.9, 0.8, 0.7],
        "trial_a_ratings": [[1, 0, 0], [0, 1, 1]],
        "trial_b_ratings": [[0, 1, 1], [1, 0, 0]],
    },
    "statistics": [
        {"kind": "code", "name": "first cue", "source": "def metric(trials):\n    return sum("
         "t['response'] == (t['stimulus']['b'][0] > t['stimulus']['a'][0]) for t in trials) / len(trials)\n"},
        {"kind": "agreement", "name": "best", "sides": [-1, 1]},
    ],
    "why": "one good cue against two",
}  # fmt: skip
VERDICT = {"ruling": "new_theory", "target": 2, "why": "people follow the best cue"}
THEORY = {
    "name": "first-cue",
    "theory": "People look at the first cue.",
    "parameters": {"lapse": "[0, 0.4]"},
    "predict": "def predict(parameters, stimulus, history):\n"
    "    gap = stimulus['b'][0] - stimulus['a'][0]\n"
    "    b = 0.5 + 0.5 * gap * (1 - parameters['lapse'])\n    return [1 - b, b]\n",
}

SMALL = {"rounds": 1, "tries": 3, "designs": 1, "simulated": 25, "draws": 60, "people": 12}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(LIMITS) as one:
        yield one


def fenced(body):
    return f"Here it is.\n```json\n{json.dumps(body)}\n```\n"


class Model:
    """Answers by role; the first answer of every role is ``spoilt`` where one is given."""

    name = "model"

    def __init__(self, spoilt=None, revisions=(THEORY,)):
        self.spoilt, self.asked = spoilt, []
        self.revisions = list(revisions)

    def reply(self, messages, *, tools=(), draw=0):
        self.asked.append([dict(m) for m in messages])
        said = ScriptedChat([self._answer(messages)])
        return said.reply(messages)

    def _answer(self, messages):
        if self.spoilt is not None and len(messages) == 2:
            return self.spoilt
        role = messages[0]["content"]
        if "You advocate" in role:
            return fenced(DESIGN)
        if "arbiter" in role:
            return fenced(VERDICT)
        return fenced(self.revisions.pop(0) if self.revisions else {"done": True})


def searched(sandbox, model, **settings):
    people = SimulatedPeople(TheorySpec(rule="take-the-best"), CUES, sandbox)
    seeds = (TheorySpec(rule="take-the-best"), TheorySpec(rule="tallying"))
    told = TheorySettings(**{**SMALL, **settings})
    search = TheorySearch(CUES, seeds, people, ChatScientist(model), told, sandbox)
    return search, search.run()


def test_a_round_by_a_model(sandbox):
    model = Model()
    search, outcome = searched(sandbox, model)
    assert outcome.state == "done"
    assert [one.metric.name for one in search.observed] == ["first cue", "first cue"]
    assert search.theories["pi_3"].theory(CUES).name == "first-cue"
    assert search.parents["pi_3"] == "pi_2"
    assert search.record.get("1/0/1/candidate")["end"]
    assert outcome.losses["pi_3"] < outcome.losses["pi_2"]


def test_prompts_are_recorded_and_hold_nothing_that_is_held_out(sandbox):
    model = Model()
    search, _ = searched(sandbox, model)
    recorded = [asked for _, step in search.record.items() for asked in step.get("asked", ())]
    assert len(recorded) == len(model.asked)
    held = search.participants.held_out(CUES, 2, 25, 1)
    text = canonical(recorded)
    for one in held:
        assert canonical(one.experiment.to_json()).replace('"', '\\"') not in text


def test_a_spoilt_answer_is_asked_for_again_with_what_was_wrong(sandbox):
    model = Model('```json\n{"ruling": "new_theory", "extra": 1}\n```')
    search, outcome = searched(sandbox, model)
    assert outcome.state == "done"
    again = [one for one in model.asked if len(one) == 4]
    assert again
    assert all("This cannot be used" in one[3]["content"] for one in again)
    assert len(search.record.get("1/verdict")["asked"]) == 2


def test_what_stays_wrong_is_a_fault(sandbox):
    class Mute(Model):
        def _answer(self, messages):
            return "I would rather not."

    model = Mute()
    search, outcome = searched(sandbox, model)
    assert outcome.state == "undecided"
    assert "no usable answer" in search.record.get("1/1/0/design")["fault"]
    assert len(search.record.get("1/1/0/design")["asked"]) == ASKED


def test_a_theory_that_cannot_run_is_tried_recorded_and_passed_over(sandbox):
    broken = {
        **THEORY,
        "name": "broken",
        "predict": "def predict(parameters, stimulus, history):\n    return [2, -1]\n",
    }
    search, outcome = searched(sandbox, Model(revisions=(broken, THEORY)))
    first = search.record.get("1/0/0/candidate")
    assert first["loss"] is None
    assert "chances" in first["why"]
    assert outcome.state == "done"
    search, outcome = searched(sandbox, Model(revisions=[broken] * 3))
    assert outcome.state == "no successor"


def test_a_server_that_is_gone_ends_the_run_and_the_next_goes_on(sandbox):
    class Gone(Model):
        def reply(self, messages, *, tools=(), draw=0):
            if "arbiter" in messages[0]["content"]:
                raise ServerError("no answer")
            return super().reply(messages)

    people = SimulatedPeople(TheorySpec(rule="take-the-best"), CUES, sandbox)
    seeds = (TheorySpec(rule="take-the-best"), TheorySpec(rule="tallying"))
    told = TheorySettings(**SMALL)
    search = TheorySearch(CUES, seeds, people, ChatScientist(Gone()), told, sandbox)
    with pytest.raises(ServerError):
        search.run()
    again = TheorySearch(CUES, seeds, people, ChatScientist(Model()), told, sandbox, search.record)
    assert again.run().state == "done"
    assert again.record.digest == searched(sandbox, Model())[0].record.digest


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no", "no JSON"),
        ("[1]", "object"),
        ('{"a": NaN}', "NaN"),
        ('```json\n{"a": 1\n```', "no JSON"),
    ],
)
def test_answers_that_are_no_object(text, why):
    with pytest.raises(BadInput, match=why):
        one_object(text)
    assert one_object('```\n{}\n```\n```json\n{"a": 1}\n```') == {"a": 1}
