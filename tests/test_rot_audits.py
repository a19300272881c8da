"""The false blame of benchmarks/constraint_rot.py is measured: a worse audit has some, on the same runs."""

import pytest

from support.toolbox import load_benchmark

pytest.importorskip("langgraph", reason="the extra 'harness' is not installed")
load_benchmark("constraint_rot")

from parts import constraint_rot_audits as part  # noqa: E402

RULE = part.RULES[1]
SETTINGS = [("numbered", "forgets", 2, None), ("noted", "forgets", 1, None)]


def audited():
    """Two runs each of LangChain's and of LangGraph's own agents."""
    found = part.Audited()
    for name in ("langchain", "langgraph"):
        for setting in SETTINGS:
            part._one(found, name, part.HARNESSES[name], RULE, setting)
    return found


def test_no_one_is_blamed_falsely_and_the_cases_are_counted():
    assert {sign for sign in part.ESCAPED if sign in RULE} == {"<", ">", "&"}
    found = audited()
    assert (found.audits, found.losses, found.faults) == (4, 4, [])
    assert found.awkward == found.quoting == (4, 0)


def test_an_audit_that_does_not_see_through_escapes_is_caught(monkeypatch):
    monkeypatch.setattr("refork_methods.rot.audit.quotes", lambda text, said: said in text)
    found = audited()
    assert len(found.faults) == found.awkward[1] == found.quoting[1] > 0


def test_an_audit_that_takes_a_summarisers_call_for_the_agents_is_caught(monkeypatch):
    monkeypatch.setattr("refork_methods.rot.session.quotes", lambda text, said: False)
    found = audited()
    assert len(found.faults) == found.quoting[1] > 0
