"""What is left of a rule: bytes exactly, words roughly."""

from __future__ import annotations

import pytest

from refork.compaction import SummaryCall, account, untouched
from refork_methods.rot.survival import RuleSurvival, content_words, recall_of, survival_of

RULE = "Only send e-mail to addresses at acme.com; never send any to another domain."


def message(text, name):
    return {"role": "user", "content": text, "id": name}


BEFORE = [message(f"Note: {RULE}", "p"), message("Order ink.", "b")]


@pytest.mark.parametrize(
    ("summary", "survival"),
    [
        (f"They said: {RULE}", "verbatim"),
        ("Send e-mail to addresses at acme.com only, not to another domain.", "paraphrase"),
        ("Ink was ordered.", "lost"),
    ],
)
def test_survival_of_a_summary(summary, survival):
    call = SummaryCall((BEFORE[0],), summary)
    found = survival_of(RULE, BEFORE, account(BEFORE, [message(summary, "s"), BEFORE[1]], calls=[call]))
    assert found.survival == survival
    assert found.survived is (survival != "lost")
    assert found.fate == ("visible" if survival == "verbatim" else "omitted")


def test_a_trimmed_rule_has_no_recall_and_one_that_never_stood_is_absent():
    assert survival_of(RULE, BEFORE, account(BEFORE, BEFORE[1:])) == RuleSurvival("trimmed", None)
    assert survival_of("Another rule.", BEFORE, account(BEFORE, BEFORE[1:])).fate == "absent"
    assert survival_of(RULE, BEFORE, untouched(BEFORE, "")).survival == "verbatim"


def test_content_words_keep_names_numbers_and_chinese():
    words = content_words("Run in us-west-2 only, below 100.50 USD! 只能")
    assert {"us-west-2", "100.50", "usd", "只", "能"} <= words
    assert "only" not in words
    assert recall_of("the of", []) == 1.0
    assert recall_of("desk lamp", [message("A desk.", "x")]) == 0.5
