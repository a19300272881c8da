"""Mutations: exact spans, a fixed list, and a gold diff that takes each one back."""

import ast
import textwrap

import pytest
from unidiff import PatchSet

from refork.errors import BadInput
from refork_testbed.worlds.repair.mutation import KINDS, lines, mutations, unified_diff

SOURCE = textwrap.dedent(
    '''
    LIMIT = 3

    def f(items, limit: int = 3):
        """A docstring with 1 + 2."""
        total = 0
        for item in items:
            if not item.ok and item.n > 1:
                total += abs(item.n)
        items.sort()
        return f"{total + 1}" if total else len(items)


    class A:
        x = 1 + 1

        def g(self, é, b):
            return [one for one in é if one < b][-1]
    '''
).lstrip()


def told(kind):
    return [(m.line, m.old, m.new) for m in mutations(SOURCE, [kind])]


def test_every_kind_on_one_source():
    assert told("operator") == [
        (7, "and", "or"), (7, ">", ">="), (8, "+=", "-="), (17, "<", "<="),
    ]  # fmt: skip
    assert told("off-by-one") == [
        (5, "0", "(-1)"), (5, "0", "1"), (7, "1", "0"), (7, "1", "2"), (10, "len(items)", "(len(items) - 1)"),
        (17, "1", "0"), (17, "1", "2"),
    ]  # fmt: skip
    assert told("negation") == [
        (7, "not item.ok and item.n > 1", "not (not item.ok and item.n > 1)"),
        (10, "total", "not (total)"),
        (17, "one < b", "not (one < b)"),
    ]
    assert told("dropped-call") == [
        (8, "abs(item.n)", "item.n"), (9, "items.sort()", "items"), (9, "items.sort()", "pass"),
        (10, "len(items)", "items"),
    ]  # fmt: skip
    assert (17, "é", "b") in told("wrong-variable")
    assert {(m.old, m.function) for m in mutations(SOURCE) if m.line == 17} >= {("<", "A.g"), ("b", "A.g")}


def test_a_negation_is_taken_away_where_there_is_one():
    (one,) = mutations("def f(x):\n    while not(x):\n        pass\n", ["negation"])
    assert one.apply("def f(x):\n    while not(x):\n        pass\n").split("\n")[1] == "    while (x):"
    (two,) = mutations("def f(x):\n    if not x:\n        pass\n", ["negation"])
    assert two.apply("def f(x):\n    if not x:\n        pass\n").split("\n")[1] == "    if x:"


@pytest.mark.parametrize("module", ["textwrap", "heapq", "colorsys", "ntpath"])
def test_spans_are_exact_and_gold_takes_each_back(module):
    from refork_testbed.worlds.repair.stdlib import source_of

    source = source_of(module)
    found = mutations(source)
    assert found == mutations(source)
    assert len({one.id for one in found}) == len(found)
    assert {one.kind for one in found} == set(KINDS)
    for one in found[:: max(1, len(found) // 30)]:
        broken = one.apply(source)
        assert source[one.start : one.end] == one.old != one.new
        assert broken[one.start : one.start + len(one.new)] == one.new
        assert source.count("\n", 0, one.start) + 1 == one.line
        ast.parse(broken)
        (part,) = PatchSet(unified_diff("kit/x.py", broken, source))
        assert part.path == "kit/x.py"
        (hunk,) = part
        old = [row.value for row in hunk if not row.is_added]
        new = [row.value for row in hunk if not row.is_removed]
        rows, start = lines(broken), hunk.source_start - 1
        assert rows[start : start + len(old)] == old
        rows[start : start + len(old)] = new
        assert "".join(rows) == source


def test_lines_are_counted_as_python_counts_them():
    source = 'def f(x):\n    y = "\u2028"\n\x0c\n    return x + y\n'
    (one,) = mutations(source, ["operator"])
    assert (one.line, one.old) == (4, "+")
    assert "".join(lines(source)) == source


def test_a_diff_without_a_last_newline_says_so():
    assert unified_diff("a.py", "x = 1", "x = 2").count("\\ No newline at end of file") == 2


def test_what_is_wrong_is_refused():
    with pytest.raises(BadInput, match="does not parse"):
        mutations("def f(:\n")
    with pytest.raises(BadInput, match="no kind"):
        mutations("", ["typo"])
    (one,) = mutations("def f(a, b):\n    return a + b\n", ["operator"])
    with pytest.raises(BadInput, match="has no"):
        one.apply("def f(a, b):\n    return a - b\n")
