"""What a source may contain, and the reason where it may not."""

import pytest

from refork.sandbox import refusal
from refork.sandbox.inside.names import BUILTINS, MODULES
from refork.sandbox.screen import FORBIDDEN, LONGEST

GOOD = '''
"""A module."""
import json
from collections import Counter
LIMIT = 3
def helper(rows):
    return [row for row in rows if row["a"] > LIMIT]
def f(apis, tools, *, id: int, type: str = "x") -> object:
    """Documented."""
    try:
        rows = helper(apis.app.list(id=id, type=type))
    except LookupError as error:
        raise ValueError("nothing: {}".format(error)) from None
    match rows:
        case [{"a": first}, *_]:
            return f"{first:>3} {type}"
    return sorted(Counter(json.dumps(row) for row in rows), key=lambda one: one[0])
'''


def test_an_honest_tool_passes():
    assert refusal(GOOD) is None


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def f(apis, tools): return (1).__class__", "__class__"),
        ("def f(apis, tools): return f.func_globals", "func_globals"),
        ("def f(apis, tools): return (x for x in []).gi_frame", "gi_frame"),
        ("def f(apis, tools): return eval('1')", "'eval'"),
        ("def f(apis, tools): return getattr(apis, 'x')", "'getattr'"),
        ("def f(apis, tools): return type(apis)", "'type'"),
        ("def f(apis, tools): return [eval for x in [1]]", "'eval'"),
        ("def f(apis, tools): return (lambda: vars())()", "'vars'"),
        ("def g(eval): pass\ndef f(apis, tools): return eval('1')", "'eval'"),
        ("from operator import attrgetter", "'attrgetter'"),
        ("from json import *", "'*'"),
        ("import re\ndef f(apis, tools): return re.enum", "'enum' of 're'"),
        ("def f(apis, tools):\n import json as j\n return j.codecs", "'codecs' of 'json'"),
        ("import json as __builtins__", "__builtins__"),
        ("from . import x", "'.'"),
        ("import os.path", "'os.path'"),
        ("def f(apis, tools): return '{0.x}'.format(apis)", "format"),
        ("def f(apis, tools): return '{0[x]}'.format(apis)", "format"),
        ("def f(apis, tools): return '{:{0.x}}'.format(apis)", "format"),
        ("def f(apis, tools): return map(str.format, [])", "format"),
        ("def f(apis, tools): return '{x}'.format_map(apis)", "format_map"),
        ("def f(apis, tools):\n match apis:\n  case object(__class__=x): return x", "__class__"),
        ("def f(apis, tools):\n match apis:\n  case object(gi_frame=x): return x", "gi_frame"),
        ("class A: pass", "imports, constants and functions only"),
        ("def f(apis, tools):\n class A: pass", "classes"),
        ("async def f(apis, tools): pass", "imports, constants and functions only"),
        ("@str\ndef f(apis, tools): pass", "decorators"),
        ("def f(apis, tools):\n global x\n x = 1", "global names"),
        ("print('x')", "nothing may run"),
        ("X = print('x')", "constants only"),
        ("X = {[1]: 2}", "constants only"),
        ("for x in []: pass", "imports, constants and functions only"),
        ("def f(apis, tools, *, __x=1): pass", "__x"),
        ("def f(apis, tools): return dict(__x=1)", "__x"),
        ("def f(apis, tools): return ｅval", "beyond ASCII"),
        ("def f(apis, tools): return f'{ｅval}'", "'eval'"),
        ("def f(apis, tools): аpis = 1", "beyond ASCII"),
        ("def f(apis, tools):", "does not parse"),
        ("x = '\0'", "does not parse"),
        ("(" * 5000, "does not parse"),
        ("x = " + "-" * 20000 + "1", "does not parse"),
        ("#" * (LONGEST + 1), "longer than"),
    ],
)
def test_refusals_name_their_reason(source, words):
    assert words in (refusal(source) or "")


def test_the_lists_hold_nothing_that_reaches_further():
    reach = {"eval", "exec", "open", "compile", "__import__", "getattr", "setattr", "type", "vars", "globals"}
    assert not reach & set(BUILTINS)
    assert reach <= FORBIDDEN
    assert not {"os", "sys", "io", "subprocess", "importlib", "inspect", "types", "ctypes"} & set(MODULES)
    parts = {part for names in MODULES.values() for part in names}
    assert (
        not {
            "attrgetter",
            "methodcaller",
            "Formatter",
            "Template",
            "update_wrapper",
            "wraps",
            "get_type_hints",
        }
        & parts
    )


def test_a_warning_about_a_source_is_not_the_callers():
    assert refusal("def f(apis, tools): return '\\d' is 1") is None
