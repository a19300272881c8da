from __future__ import annotations

import pytest

from refork.chat import ask
from refork.errors import BadInput, ServerError
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork_methods.forensics.instruments.outcomes import same_model
from refork_methods.forensics.instruments.reading import AskModel, Patterns, first_label


def test_the_first_pattern_found_gives_the_label():
    reader = Patterns.of(yes=r"\byes\b", no=r"\bno\b")
    assert reader.read(["yes and no", "a no", "neither"]) == ["yes", "no", "other"]
    assert reader.labels == ("yes", "no", "other")
    assert Patterns.of(None, yes="y").read(["n"]) == [None]
    assert Patterns.of(None, yes="y").labels == ("yes",)
    with pytest.raises(BadInput, match="not a regular"):
        Patterns.of(yes="(")
    with pytest.raises(BadInput, match="at least one"):
        Patterns(())


@pytest.mark.parametrize(
    ("answer", "label"),
    [("No, yes", "no"), ("nothing", None), ("YES.", "yes"), ("no way", "no way"), ("", None)],
)
def test_a_model_s_answer_is_read_by_whole_words(answer, label):
    assert first_label(answer, ("yes", "no", "no way")) == label


def test_a_model_can_be_asked_and_names_its_weights():
    judge = ScriptedPolicy.from_text(
        lambda text: {"": 1.0} if text.endswith("yes") or text.endswith("no") else
        {"yes": 1.0} if "huge" in text else {"no": 1.0}, ["yes", "no"],
    )  # fmt: skip
    reader = AskModel(judge, "Is it about work? {text}")
    assert reader.read(["a huge task", "a small one"]) == ["yes", "no"]
    assert reader.read([]) == []
    assert same_model(reader, judge)
    assert not same_model(reader, ScriptedPolicy.from_replies(["x"]))
    with pytest.raises(BadInput, match="hold"):
        AskModel(judge, "no place for it")


def test_a_judge_that_breaks_is_no_label():
    policy = ScriptedPolicy.from_replies(["a"])
    silent = Sampling(banned=tuple(range(policy.card.vocabulary)))
    with pytest.raises(ServerError, match="no answer"):
        ask(policy, ["q"], silent)
