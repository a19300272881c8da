from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork.policies.remote import RemotePolicy
from refork.policies.scripted import ScriptedPolicy
from refork_methods.stance.endpoint import EndpointAnnotator, EndpointGuard, verdict
from refork_methods.stance.guards import BatchGuard, Exchange, panel_of
from refork_methods.stance.segments import BatchAnnotator, annotate
from support.openai_server import Script, serving


def judge(text):
    said = text.rsplit("\n", 1)[-1]
    if said:
        return {"": 1.0}
    if "cannot" in text:
        return {"yes": 1.0}
    return {"no": 1.0} if "sure" in text else {"perhaps": 1.0}


@pytest.fixture
def model():
    return ScriptedPolicy.from_text(judge, ["yes", "no", "perhaps"], name="judge")


def test_a_guard_model_votes_and_its_other_replies_are_missing(model):
    guard = EndpointGuard(model, "{prompt} | {answer}")
    assert isinstance(guard, BatchGuard)
    said = [Exchange("q", "I cannot"), Exchange("q", "sure"), Exchange("q", "{odd} words")]
    assert guard.votes(said) == [True, False, None]
    assert guard.producer.id != EndpointGuard(model, "{answer}").producer.id
    assert panel_of(guard).votes(said)[:2, 0].tolist() == [1, 0]


def test_an_annotator_model_labels_chunks():
    def lean(text):
        return (
            {"": 1.0}
            if text.endswith(("comply", "refuse", "neither"))
            else {"comply" if "yes" in text else "neither": 1.0}
        )

    policy = ScriptedPolicy.from_text(lean, ["comply", "refuse", "neither"])
    annotator = EndpointAnnotator(policy, "{prompt}: {chunk}?")
    assert isinstance(annotator, BatchAnnotator)
    assert annotator.labels("q", ["yes", "hm"]) == [1, 0]
    assert annotate([annotator], "q", ["yes", "hm"])[:, 0].tolist() == [1, 0]


def test_a_chat_server_serves_as_a_guard():
    script = Script(dialect=None, reply={"content": "Yes, it refuses.", "finish": "stop"})
    with serving(script) as url:
        policy = RemotePolicy(url, "guard")
        assert EndpointGuard(policy).votes([Exchange("q", "a"), Exchange("q", "b")]) == [True, True]
        policy.close()
    assert script.seen


def test_verdicts():
    names = {"refuse": r"\byes\b", "comply": r"\bno\b"}
    assert verdict("YES.", names) == "refuse"
    assert verdict("yes and no", names) is None
    assert verdict("noise", names) is None
    assert verdict(None, names) is None


def test_refusals(model):
    for template in ("{prompt}", "{answer} {other}", "{answer", "no field"):
        with pytest.raises(BadInput, match="template"):
            EndpointGuard(model, template)
    with pytest.raises(BadInput, match="refuse is not a regular expression"):
        EndpointGuard(model, refuse="(")
    with pytest.raises(BadInput, match="chunk"):
        EndpointAnnotator(model, "{prompt}")
