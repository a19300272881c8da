"""The runner: what passes, what fails and why, lines executed, and packages that misbehave."""

import pytest

from refork.errors import BadInput
from refork.sandbox import Limits, Sandbox
from refork_testbed.worlds.repair.runner import RESTARTS, STANDARD, TestRunner, Variant, test_names

FILES = {
    "shop/__init__.py": "",
    "shop/a.py": "from .deep.b import twice\n\ndef grown(x):\n"
    "    while twice(x) < 0:\n        x = x\n    return x + 1\n",
    "shop/deep/b.py": "import statistics\n\ndef twice(x):\n    print('quiet')\n    return 2 * x\n",
}
HEAD = "from shop.a import grown\n"


def suite(*bodies):
    functions = [f"def test_{place}():\n    {body}\n" for place, body in enumerate(bodies)]
    return {"tests/test_a.py": HEAD + "".join(functions)}


@pytest.fixture(scope="module")
def runner():
    with TestRunner(test_seconds=0.4, steps=2000) as made:
        yield made


def test_results_reasons_and_executed_lines(runner):
    tests = suite(
        "assert grown(1) == 2", "found = grown(1)\n    assert found == 3", "grown('x')", "grown(-1)"
    )
    report = runner.run(FILES, tests, spectrum=True)
    assert report.passed == ("tests/test_a.py::test_0",)
    assert report.failed == {
        "tests/test_a.py::test_1": "found 2",
        "tests/test_a.py::test_2": "TypeError: '<' not supported between instances of 'str' and 'int'",
        "tests/test_a.py::test_3": "LoopedError: it ran more than 2000 lines",
    }
    assert not report.ok
    assert report.spectrum["tests/test_a.py::test_0"] == {
        ("shop/a.py", 4), ("shop/a.py", 6), ("shop/deep/b.py", 4), ("shop/deep/b.py", 5),
    }  # fmt: skip
    assert ("shop/a.py", 5) in report.spectrum["tests/test_a.py::test_3"]
    assert runner.run(FILES, tests).spectrum is None


def test_named_tests_only_and_unknown_ones_are_refused(runner):
    tests = suite("pass", "pass")
    assert runner.run(FILES, tests, ["tests/test_a.py::test_1"]).passed == ("tests/test_a.py::test_1",)
    assert test_names(tests) == ("tests/test_a.py::test_0", "tests/test_a.py::test_1")
    assert not runner.run(FILES, tests, []).ok
    with pytest.raises(BadInput, match="no test"):
        runner.run(FILES, tests, ["tests/test_a.py::test_7"])


def test_variants_share_a_process_and_no_state(runner):
    tests = suite("assert grown(1) == 2")
    other = FILES["shop/deep/b.py"].replace("2 * x", "-x").replace("print", "int")
    wrong = FILES["shop/a.py"].replace("+ 1", "+ 2")
    variants = [Variant(), Variant({"shop/a.py": wrong}), Variant({"shop/deep/b.py": other}), Variant()]
    reports = runner.run_variants(FILES, tests, variants)
    assert [report.ok for report in reports] == [True, False, False, True]


def test_a_package_that_does_not_load_fails_all_its_tests(runner):
    for text, word in (
        ("x = (", "SyntaxError"),
        ("import numpy", "ModuleNotFoundError"),
        ("1 / 0", "ZeroDivision"),
    ):
        report = runner.run({**FILES, "shop/a.py": text}, suite("pass", "pass"))
        assert len(report.failed) == 2
        assert all(word in reason for reason in report.failed.values())


def test_what_hangs_or_ends_the_process_is_to_blame_and_the_rest_still_runs(runner):
    bodies = [
        "pass",
        "import itertools; sum(itertools.repeat(1))",
        "import os; os._exit(0)",
        "x = bytes(1 << 40)",
        "pass",
    ]
    report = runner.run(FILES, suite(*bodies))
    assert report.passed == ("tests/test_a.py::test_0", "tests/test_a.py::test_4")
    reasons = list(report.failed.values())
    assert reasons[0] == "it ended the process: not done after 0.4 s"
    assert "it ended the process" in reasons[1]
    assert "MemoryError" in reasons[2]


def test_a_package_that_always_ends_the_process_is_given_up(runner):
    report = runner.run({**FILES, "shop/a.py": "import os\nos._exit(1)\n"}, suite(*["pass"] * (RESTARTS + 4)))
    assert not report.passed
    assert len(report.failed) == RESTARTS + 4


@pytest.mark.parametrize(
    "body",
    [
        "open('/etc/passwd')",
        "import os; os.listdir('/')",
        "import os; os.fork()",
        "import os; os.kill(1, 0)",
        "import os; assert os.getcwd() == '/etc'",
    ],
)
def test_nothing_outside_is_in_reach(runner, body):
    assert not runner.run(FILES, suite(body)).passed


def test_only_the_kernels_layers_hold_and_are_asked_for(runner):
    on = {layer.name for layer in runner.sandbox.layers if layer.on}
    assert "rlimits" in on
    assert not on & {"screen", "builtins"}
    with pytest.raises(BadInput, match="'nonsense' can be loaded"), Sandbox(preload=["nonsense"]) as made:
        made.layers  # noqa: B018


def test_preloaded_modules_are_all_there():
    with Sandbox(Limits(), off=("screen", "builtins"), preload=STANDARD) as made:
        result = made.run(
            "def f(apis, tools):\n    import textwrap, urllib.parse, csv\n    return 1\n", "f", {}
        )
        assert result.value == 1


def test_a_forged_report_is_no_report(runner):
    forged = "import sys\n    frame = sys._getframe()\n"
    forged += "    while 'reports' not in frame.f_locals: frame = frame.f_back\n"
    send = "    frame.f_locals['reports']._send(rows=[[0, 'other', '', []]])"
    report = runner.run(FILES, suite(forged + send, "pass"))
    assert "tests/test_a.py::test_0" in report.failed
    assert set(report.passed) <= {"tests/test_a.py::test_1"}
