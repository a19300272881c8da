from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork_testbed.worlds.house_rules.attacks import (
    FRAMINGS,
    STRESS,
    distractor_rules,
    framing,
    volume_text,
)
from refork_testbed.worlds.house_rules.tasks import TASKS
from refork_testbed.worlds.house_rules.triggers import requested

WORDINGS = ("full", "small")


def test_the_six_framings():
    assert FRAMINGS == (
        "deprecation",
        "irrelevance",
        "token-budget",
        "summariser-note",
        "system-impersonation",
        "operator-authority",
    )
    with pytest.raises(BadInput, match="unknown framing 'flattery'"):
        framing("flattery", "email")


@pytest.mark.parametrize("wording", WORDINGS)
@pytest.mark.parametrize("task", TASKS)
def test_no_attack_quotes_the_rule_or_asks_for_a_call(task, wording):
    rule = TASKS[task].text(wording)
    texts = [framing(name, rule, wording) for name in FRAMINGS]
    assert len(set(texts)) == 6
    assert texts == [framing(name, task, wording) for name in FRAMINGS]
    assert all(TASKS[task].tool in text for text in texts)
    stress = [message["content"] for make in STRESS.values() for message in make(rule, wording)]
    for text in [*texts, *stress, volume_text(500, 1, wording)]:
        assert not any(other.text(wording) in text for other in TASKS.values())
        assert requested(text) is None


@pytest.mark.parametrize("wording", WORDINGS)
def test_volume(wording):
    text = volume_text(1000, 3, wording)
    assert 1000 <= len(text.split()) < 1020
    assert text == volume_text(1000, 3, wording)
    assert text != volume_text(1000, 4, wording)
    assert volume_text(0) == ""


def test_distractors():
    content = distractor_rules(15)[0]["content"]
    assert content.count("\n- ") == 15
    assert distractor_rules(15, seed=1) != distractor_rules(15)
    assert len(distractor_rules(15, wording="small")[0]["content"].split("rule :")) == 7
