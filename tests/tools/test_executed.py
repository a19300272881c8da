"""Lines counted without a tracer are those that a tracer sees."""

import sys
import textwrap
from pathlib import Path

import pytest
from coverage import CoverageData
from coverage.python import PythonParser
from jaxtyping._import_hook import Typechecker

from support.executed import Executed, Finder

SOURCE = textwrap.dedent(
    '''\
    """A module."""

    from __future__ import annotations

    import functools
    from dataclasses import dataclass


    @dataclass(
        frozen=True,
    )
    class Pair:
        """Two numbers."""

        left: int
        right: int = 2

        @property
        def total(self) -> int:
            """Their sum."""
            return (
                self.left
                + self.right
            )

        def never(self):
            unseen = 1
            return unseen


    if Pair(1).right == 3:
        class Other:
            x = 1
    elif Pair(1).right == 2:
        class Other:
            """Seen."""
            x = 2
    else:
        never = 1


    @functools.cache
    @functools.wraps(
        Pair
    )
    def choose(value):
        """What fits."""
        match value:
            case 1:
                return "one"
            case [_, *rest] if len(rest) > 5:
                return "long"
            case [_, *_]:
                return "some"
        return "none"


    def fails(index):
        try:
            with open("/nowhere/at/all") as stream:
                stream.read()
        except KeyError:
            raise
        except OSError:
            pass
        else:
            return 0
        finally:
            index += 1
        for number in range(3):
            if number == 1:
                continue
            while index > number:
                index -= 1
                if index == 2:
                    break
            else:
                index += 0
        else:
            index = [
                number
                for number in range(index)
                if number
            ]
        def inner():
            nonlocal index
            """Not a docstring."""
            index = lambda: (
                1
            )
            raise ValueError("inner")
            return index
        try:
            inner()
        except (
            ValueError,
            KeyError,
        ) as error:
            return error
        return None


    def numbers():
        yield from (1, 2)
        yield 3


    first = next(numbers())
    told = [choose(1), choose((1, 2)), Pair(1).total, fails(5)]
    '''
)


def traced(code, file, namespace):
    """The lines of a file that a tracer sees."""
    seen = set()

    def local(frame, event, _):
        if event == "line":
            seen.add(frame.f_lineno)
        return local

    def trace(frame, event, argument):
        return local(frame, event, argument) if frame.f_code.co_filename == file else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        exec(code, namespace)
    finally:
        sys.settrace(before)
    return seen


def test_marks_and_a_tracer_see_the_same_statements():
    file, executed = "here.py", Executed()
    parser = PythonParser(text=SOURCE, filename=file)
    parser.parse_source()
    namespace = {"__name__": "sys", "__ran__": executed.ran}
    marked = executed.compile(SOURCE, file)
    truth = traced(compile(SOURCE, file, "exec", dont_inherit=True), file, dict(namespace))
    exec(marked, namespace)
    seen = parser.translate_lines(executed.lines()[file]) & parser.statements
    truth = parser.translate_lines(truth) & parser.statements
    tried = {n for n, line in enumerate(SOURCE.splitlines(), 1) if "KeyError:" in line or "> 5" in line}
    assert truth - seen == tried  # tried in vain: not counted
    assert seen <= truth
    assert namespace["told"][:3] == ["one", "some", 3]
    assert namespace["Pair"].__doc__ == "Two numbers."
    assert namespace["choose"].__wrapped__.__doc__ == "Two numbers."
    missed = [n for n, line in enumerate(SOURCE.splitlines(), 1) if "never = 1" in line or "unseen" in line]
    assert len(missed) == 3
    assert not seen & set(missed)


def test_errors_are_raised_on_their_own_lines():
    executed = Executed()
    code = executed.compile("def f():\n    x = 1\n\n    return x / 0\n", "here.py")
    namespace = {"__ran__": executed.ran}
    exec(code, namespace)
    with pytest.raises(ZeroDivisionError) as caught:
        namespace["f"]()
    assert caught.tb.tb_next.tb_lineno == 4
    assert executed.lines() == {"here.py": {1, 2, 4}}


def test_types_are_still_checked():
    executed = Executed()
    checked = executed.compile("def f(x: int): return x\n", "here.py", Typechecker("beartype.beartype"))
    namespace = {"__ran__": executed.ran}
    exec(checked, namespace)
    assert namespace["f"](1) == 1
    with pytest.raises(Exception, match="Type-check error"):
        namespace["f"]("one")


def test_a_package_is_loaded_with_marks_and_files_that_nobody_reads_count(tmp_path, monkeypatch):
    home = tmp_path / "packages/marked/src/marked_package"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("from marked_package.part import f\n\nassert f() == 1\n")
    (home / "part.py").write_text("def f():\n    return 1\n\n\ndef g():\n    return 2\n")
    (home / "unread.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path / "packages/marked/src")
    finder = Finder(["marked_package"])
    assert finder.find_spec("json") is None
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    try:
        import marked_package  # noqa: F401

        with pytest.raises(AssertionError, match="read before"):
            finder.install()
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "marked_package"]:
            del sys.modules[name]
    finder.write(tmp_path)
    (file,) = tmp_path.glob(".coverage.*")
    data = CoverageData(basename=str(file))
    data.read()
    assert {Path(name).name: data.lines(name) for name in data.measured_files()} == {
        "__init__.py": [1, 3],
        "part.py": [1, 2, 5],
        "unread.py": [],
    }
