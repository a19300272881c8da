"""What issues tell of values, and what function bodies tell of results, literals and errors."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from refork_methods.localize.behaviour import ENDLESS, behaviours, reported
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.investigate import investigate
from refork_methods.localize.ranking import rank_symbols
from refork_methods.localize.settings import InvestigateSettings
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.terms import issue_terms, query_words

SOURCE = '''"""Tools."""


def ratio(a, b):
    """A doc with "signs;"."""
    return a / b


def rows(text):
    found = []
    for line in text.splitlines():
        found.append(line.split(";"))
    return found


def first(items):
    while not items[0]:
        items.pop()
    return items[0]


def check(word):
    if word == "open":
        raise LookupError(word)
    return word is not None


def silent(a):
    print(a)
'''


def test_kinds_and_errors_of_bodies() -> None:
    found = {
        node.name: behaviours(tree)[node.lineno]
        for tree in [ast.parse(SOURCE)]
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
    assert found["ratio"].returns == {"float"}
    assert found["rows"].returns == {"list"}
    assert found["check"].returns == {"bool"}
    assert found["silent"].returns == {"None"}
    assert found["first"].returns == set()
    assert found["first"].unknown
    assert "ZeroDivisionError" in found["ratio"].errors
    assert not found["ratio"].atoms
    assert {"IndexError", ENDLESS} <= found["first"].errors
    assert "LookupError" in found["check"].errors
    assert ("word", "open") in found["check"].atoms
    assert found["rows"].atoms == {("sign", ";")}
    assert found["ratio"].fits(frozenset({"int"})) == 1.0
    assert found["ratio"].fits(frozenset({"str"})) == -1.0
    assert found["first"].fits(frozenset({"str"})) == 0.0
    assert found["first"].fits(frozenset()) == 0.0


@pytest.mark.parametrize(
    ("body", "given"),
    [
        ("if x: return 1", True),
        ("if x: return 1\n return", True),
        ("for one in x: return one", True),
        ("try: return int(x)\n except ValueError: print(x)", True),
        ("with x: return 1", False),
        ("if x: return 1\n else: raise x", False),
        ("try: return int(x)\n finally: print(x)", False),
        ("while True:\n  if x: return 1", False),
        ("while True:\n  if x: break\n  return 1", True),
        ("match x:\n  case 1: return 1\n  case _: raise x", False),
        ("match x:\n  case 1: return 1", True),
        ("yield 1\n return", False),
        ("raise x", False),
    ],
)
def test_a_body_that_is_left_at_its_end_gives_none(body: str, given: bool) -> None:
    assert ("None" in behaviours(ast.parse(f"def f(x):\n {body}\n"))[1].returns) is given


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("`f([1, 2])` returns {'a': 1}", {"dict"}),
        ("I expected 3 but got None", {"int", "None"}),
        ("For [1] nothing happens", set()),
        ("It gives (1, 2) instead of 'x'", {"tuple", "str"}),
        ("version 1.2.3 returns nothing", set()),
    ],
)
def test_kinds_of_results_that_an_issue_tells(text: str, kinds: set[str]) -> None:
    assert reported(issue_terms(text)).kinds == kinds


def test_atoms_and_errors_of_an_issue() -> None:
    found = reported(issue_terms("`f('a;b', 37)` hangs, then a ZeroDivisionError; a DeprecationWarning too"))
    assert {("sign", ";"), ("number", 37.0)} <= found.atoms
    assert found.errors == {"ZeroDivisionError", ENDLESS}


@pytest.mark.parametrize(
    "text", ["[[[", "'open", "{1: ", "(" * 500, "it's [not, python]", "1" * 400, "", "[" * 900]
)
def test_broken_values_are_passed_over(text: str) -> None:
    assert reported(issue_terms(text)).kinds == set()


def test_values_find_a_body_that_shares_no_word() -> None:
    index = RepoIndex.build(Snapshot.from_files({"pack/tools.py": SOURCE}))
    case = investigate(index, "tools: for 'a;b' I get 'x' but expected [['a', 'b']]")
    assert case.locations[0].symbol == "rows"
    assert "kind of its result" in case.locations[0].explanation
    assert "';'" in case.locations[0].explanation
    case = investigate(index, "tools: division fails with ZeroDivisionError")
    assert case.locations[0].symbol == "ratio"
    assert "can raise ZeroDivisionError" in case.locations[0].explanation


def test_shares_sum_to_one_and_code_words_alone_are_no_evidence() -> None:
    index = RepoIndex.build(Snapshot.from_files({"pack/tools.py": SOURCE}))
    ranking = rank_symbols(index, issue_terms("the rows of a text"), InvestigateSettings())
    assert ranking.total.sum() == pytest.approx(1.0)
    assert np.all(ranking.total >= 0)
    assert not rank_symbols(index, issue_terms("Zygote 3"), InvestigateSettings()).total.any()


def test_words_of_report_forms_are_no_query() -> None:
    assert query_words("Describe the bug. Steps to reproduce. Expected behavior: actual results") == []
    assert query_words("the invoice is wrong") == ["invoic", "wrong"]


def test_the_first_statement_counts_more() -> None:
    weights = issue_terms("Invoices break. Parcels do not.").weights()
    assert weights["invoic"] == 1.0
    assert weights["parcel"] == pytest.approx(0.5**0.5)
