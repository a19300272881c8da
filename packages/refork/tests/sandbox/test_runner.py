"""What a run gives back, for tools that behave and tools that do not."""

import threading
import time
from types import SimpleNamespace

import pytest

from refork.errors import BadInput, CannotDo, InternalError
from refork.sandbox import Limits, Sandbox, UnconfinedWarning
from refork.sandbox.runner import _ending

ECHO = '''
from datetime import datetime
def echo(apis, tools, *, to: str, amount: int = 2) -> dict:
    """Send and look."""
    import math
    first = apis.mail.send(to=to, amount=amount)
    second = tools.helper(x=first)
    day = datetime.strptime("2024-02-29", "%Y-%m-%d").strftime("%A")
    return {"first": first, "second": second, "root": math.sqrt(16), "day": day}
'''


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(Limits(seconds=60)) as made:
        yield made


def tool(body):
    return "def f(apis, tools, *, x=None):\n" + "".join(f"    {line}\n" for line in body.splitlines())


def test_a_tool_asks_its_caller_and_gives_a_value(sandbox):
    asked = []

    def call(name, arguments):
        asked.append((name, arguments))
        return len(asked)

    result = sandbox.run(ECHO, "echo", {"to": "ann"}, call)
    assert result.ok, result
    assert result.value == {"first": 1, "second": 2, "root": 4.0, "day": "Thursday"}
    assert asked == [("mail.send", {"to": "ann", "amount": 2}), ("tools.helper", {"x": 1})]
    assert result.calls == 2


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("return 1 / 0", "error", "ZeroDivisionError: division by zero (line 2)"),
        ("raise SystemExit(3)", "refused", "SystemExit"),
        ("return {1, 2}", "error", "the result is not JSON"),
        ("return open('x')", "refused", "'open'"),
        ("import os", "refused", "'os' is not on the list"),
        ("return apis.a.b(1)", "error", "keyword arguments only"),
        ("return apis.a.b(x={1})", "error", "not JSON serializable"),
        ("return apis.a.b(x=1)", "error", "there is no environment to answer a.b"),
        ("return f(apis, tools)", "error", "RecursionError"),
        ("return 'x' * (1 << 30)", "memory", "more memory"),
        ("return 'x' * (2 << 20)", "killed", "more than 1048576 bytes"),
    ],
)
def test_kinds_and_reasons(sandbox, body, kind, words):
    result = sandbox.run(tool(body), "f", {})
    assert result.kind == kind, result
    assert words in result.error
    assert result.value is None


@pytest.mark.parametrize(
    ("status", "words"),
    [(-9, "it was ended by SIGKILL"), (-35, "it was ended by signal 35"), (3, "exit status 3")],
)
def test_a_run_without_an_answer_names_what_ended_it(status, words):
    kind, why = _ending({"status": status}, 1)
    assert kind == "killed"
    assert words in why


def test_what_the_environment_raises_is_the_tools_to_handle(sandbox):
    def call(name, arguments):
        raise KeyError("no such person")

    caught = tool("try:\n    apis.pay.send()\nexcept Exception as error:\n    return str(error)")
    result = sandbox.run(caught, "f", {}, call)
    assert result.value == "KeyError: 'no such person'"
    result = sandbox.run(tool("apis.pay.send()"), "f", {}, call)
    assert result.kind == "error"
    assert "no such person" in result.error


def test_what_the_environment_answers_must_be_json(sandbox):
    result = sandbox.run(tool("return apis.a.b()"), "f", {}, lambda name, arguments: {1})
    assert result.kind == "error"
    assert "TypeError" in result.error


def test_the_time_in_which_calls_are_answered_does_not_count(monkeypatch):
    """A clock that a call puts forward by an hour."""
    late = 0.0

    def call(name, arguments):
        nonlocal late
        late += 3600.0

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + late)
    monkeypatch.setattr("refork.sandbox.runner.time", clock)
    with Sandbox(Limits(seconds=60)) as small:
        result = small.run(tool("return apis.a.b()"), "f", {}, call)
        assert result.ok, result
        assert result.seconds < 60


def test_an_interrupt_of_the_caller_ends_the_run_and_passes_on(sandbox):
    def call(name, arguments):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sandbox.run(tool("return apis.a.b()"), "f", {}, call)
    assert sandbox.run(tool("return 1"), "f", {}).value == 1


def test_an_interrupt_while_the_sandbox_starts_a_run_leaves_no_wrong_answer_behind(monkeypatch):
    from refork.sandbox.process import Zygote

    class Impatient:
        def __init__(self, real):
            self.real, self.asked = real, 0

        def __getattr__(self, name):
            return getattr(self.real, name)

        def recv(self, size):
            self.asked += 1
            if self.asked == 1:
                raise KeyboardInterrupt
            return self.real.recv(size)

    with Sandbox() as made:
        assert made.run(tool("return 1"), "f", {}).value == 1
        zygote = made._zygote
        assert isinstance(zygote, Zygote)
        monkeypatch.setattr(zygote, "_socket", Impatient(zygote._socket))
        with pytest.raises(KeyboardInterrupt):
            made.run(tool("return 2"), "f", {})
        assert made.run(tool("return 3"), "f", {}).value == 3


def test_our_own_bugs_are_not_told_to_the_tool(sandbox):
    def call(name, arguments):
        raise InternalError("a broken invariant")

    with pytest.raises(InternalError, match="broken"):
        sandbox.run(tool("return apis.a.b()"), "f", {}, call)


def test_a_process_that_is_gone_is_replaced():
    import os
    import signal

    with Sandbox() as made:
        assert made.run(tool("return 1"), "f", {}).value == 1
        os.kill(made.process, signal.SIGKILL)
        found = [made.run(tool("return 2"), "f", {}) for _ in range(2)]
        assert found[-1].value == 2
        assert all(one.ok or "process ended" in one.error for one in found)


def test_limits_of_calls_and_time():
    with Sandbox(Limits(seconds=0.3)) as small:
        looped = small.run(tool("while True: pass"), "f", {})
        assert looped.kind == "timeout"
        assert looped.error == "not done after 0.3 s"
    with Sandbox(Limits(seconds=60, calls=3)) as small:
        many = small.run(tool("while True: apis.a.b()"), "f", {}, lambda *_: 1)
        assert many.kind == "killed"
        assert "more than 3 calls" in many.error
        assert many.calls == 3


def test_a_turn_may_be_shorter_than_all_turns_together():
    with Sandbox(Limits(seconds=60, turn=1)) as small:
        slow = small.run(tool("apis.a.b()\nwhile True: pass"), "f", {}, lambda *_: 1)
        assert (slow.kind, slow.error, slow.calls) == ("timeout", "not done after 1 s", 1)
    with pytest.raises(BadInput, match="'turn'"):
        Limits(turn=0)


def test_more_of_the_library_can_be_loaded_before_the_files_are_shut():
    source = "def f(apis, tools):\n    import csv\n    return csv.QUOTE_ALL\n"
    with Sandbox(off=("screen", "builtins")) as bare:
        assert "No module named" in bare.run(source, "f", {}).error
    with Sandbox(off=("screen", "builtins"), preload=("csv",)) as made:
        assert made.run(source, "f", {}).value == 1
    with Sandbox(preload=("csv",)) as screened:
        assert screened.run(source, "f", {}).kind == "refused"
    with Sandbox(preload=("csv", "no.such")) as wrong, pytest.raises(BadInput, match=r"'no\.such'"):
        wrong.run(tool("return 1"), "f", {})


def test_runs_share_nothing(sandbox):
    stateful = "COUNT = [0]\n" + tool("COUNT.append(1)\nreturn len(COUNT)")
    assert [sandbox.run(stateful, "f", {}).value for _ in range(3)] == [2, 2, 2]


def test_runs_may_nest_and_stand_side_by_side(sandbox):
    def call(name, arguments):
        return sandbox.run(tool("return x + 1"), "f", {"x": arguments["x"]}).value

    assert sandbox.run(tool("return apis.a.b(x=x) + 10"), "f", {"x": 1}, call).value == 12
    found = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(sandbox.run(tool("return x"), "f", {"x": n}).value))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(8))


def test_loading_runs_no_tool(sandbox):
    assert sandbox.load(ECHO, "echo").ok
    missing = sandbox.load(ECHO, "other")
    assert missing.kind == "error"
    assert "no function 'other'" in missing.error


def test_arguments_must_be_json(sandbox):
    for arguments in ({"x": {1}}, {"x": float("nan")}):
        with pytest.raises(BadInput, match="must be JSON"):
            sandbox.run(tool("return x"), "f", arguments)


def test_text_and_numbers_come_through_unchanged(sandbox):
    value = {"a": [1, -2.5, True, None, "", "ünï\u2028\x00'\"", 2**60], "b": {}}
    assert sandbox.run(tool("return x"), "f", {"x": value}).value == value


def test_a_closed_sandbox_starts_again():
    with Sandbox() as made:
        assert made.process is None
        assert made.run(tool("return 1"), "f", {}).value == 1
        first = made.process
        made.close()
        assert made.process is None
        assert made.run(tool("return 2"), "f", {}).value == 2
        assert made.process != first


def test_layers_are_reported_and_required():
    with Sandbox(off=("landlock",)) as made:
        assert [layer.name for layer in made.layers] == [
            "screen",
            "builtins",
            "rlimits",
            "landlock",
            "seccomp",
        ]
        assert made.layers[0].on
        assert not made.layers[3].on
        assert made.layers[3].note == "left out as asked"
    with pytest.raises(BadInput, match="no layer 'magic'"):
        Sandbox(off=("magic",))


def test_a_layer_that_does_not_hold_is_reported_and_refused_if_required(monkeypatch):
    from refork.sandbox.process import Zygote

    real = Zygote.ask

    def ask(self, request, fds=()):
        answer = real(self, request, fds)
        if request["do"] == "probe":
            answer["failed"] = {"seccomp": "not here", "rlimits": "nor here"}
        return answer

    monkeypatch.setattr(Zygote, "ask", ask)
    told = "rlimits does not hold \\(nor here\\); seccomp does not hold \\(not here\\)"
    with pytest.raises(CannotDo, match=told), Sandbox() as made:
        made.run(tool("return 1"), "f", {})
    opened = "memory and processors, files, network"
    with Sandbox(unconfined=True) as made:
        with pytest.warns(UnconfinedWarning, match=opened):
            assert made.run(tool("return 1"), "f", {}).value == 1
        assert {layer.name for layer in made.layers if not layer.on} == {"seccomp", "rlimits"}


def test_limits_must_make_sense():
    for bad in ({"seconds": 0}, {"memory": -1}, {"output": 0}, {"calls": -1}):
        with pytest.raises(BadInput, match="limit"):
            Limits(**bad)
