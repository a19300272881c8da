"""The model loop: every ending, the five recovery parts, evidence, ledger, forks, final-turn synthesis."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from localize.malformed_calls import REFUSED, REPAIRED
from refork.chat import Reply, ScriptedChat
from refork.errors import BadInput, CannotDo, ReplayDiverged, ServerError
from refork.policies.base import Cost
from refork.stats import mcnemar
from refork.tool_calls import ToolCall
from refork.types import Json, Message
from refork_methods.localize.casefile import CaseFile, Location, case_problems
from refork_methods.localize.loop import Localizer
from refork_methods.localize.metrics import score_locations
from refork_methods.localize.prompts import FINAL
from refork_methods.localize.session import LoopSettings, answer
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.tools import RepoTools
from refork_methods.localize.trace import Trace
from refork_testbed.trials.planted_reader import PlantedReader
from refork_testbed.worlds.repair.tasks import repair_tasks

ISSUE = "The rebate of a coupon is off by one cent."
FILES = {
    "shop/rates.py": "".join(f"RATE_{n} = {n}\n" for n in range(400)) + "def rebate(x):\n    return x + 1\n",
    "shop/cart.py": "from shop.rates import rebate\n\n\ndef total(x):\n    return x - rebate(x)\n",
    "shop/__init__.py": "",
}
TOOLS = RepoTools(Snapshot.from_files(FILES))
PLACE = {
    "path": "shop/rates.py", "start": 401, "end": 402, "symbol": "rebate", "explanation": "It is the rebate.",
    "root_cause": "One is added.", "solution_idea": "Take it away.",
    "dependencies": [{"path": "shop/cart.py", "symbol": "total", "why": "calls it"}],
    "testing_impact": ["tests of the cart"], "confidence": 0.8, "evidence": [1],
}  # fmt: skip


def call(tool: str, **arguments: Any) -> str:
    return json.dumps({"tool": tool, "arguments": arguments})


def case(*places: Json) -> str:
    return json.dumps({"locations": list(places)})


def run(*said: str | Message, **options: Any) -> tuple[Trace, ScriptedChat]:
    model = ScriptedChat(said)
    start = options.pop("start", None)
    return Localizer(model, TOOLS, LoopSettings(**options)).trace(ISSUE, start=start), model


def kinds(trace: Trace) -> list[str]:
    return [turn.kind for turn in trace.turns]


VIEW = call("view_file", path="shop/rates.py", start=395)


def test_a_run_that_ends_by_itself_is_final() -> None:
    trace, model = run(call("search", text="rebate"), VIEW, case(PLACE | {"evidence": [2]}))
    assert kinds(trace) == ["call", "call", "case"]
    assert trace.case.status == "final"
    one = trace.case.locations[0]
    assert (one.location(), one.confidence, one.evidence) == ("shop/rates.py:401-402", 0.8, (2,))
    assert one.dependencies[0].path == "shop/cart.py"
    assert case_problems(trace.case, TOOLS.snapshot, trace.viewed) == []
    assert "401\tdef rebate" in model.asked[-1][-1]["content"]
    assert ISSUE in model.asked[0][1]["content"]


def test_evidence_is_what_turns_really_showed() -> None:
    told = PLACE | {"evidence": [1, 7]}
    trace, _ = run(call("tree"), VIEW, case(told))
    assert trace.case.locations[0].evidence == (2,)
    assert "location 1: turn 1, 7 did not show these lines" in trace.case.meta["problems"]
    trace, _ = run(VIEW, case({k: v for k, v in PLACE.items() if k != "evidence"}))
    assert trace.case.locations[0].evidence == (1,)


def test_lines_that_no_turn_showed_are_flagged() -> None:
    trace, _ = run(call("tree"), case(PLACE))
    assert trace.case.locations[0].evidence == ()
    assert any("showed any of these lines" in one for one in trace.case.meta["problems"])
    assert "unseen" in [one.fault for one in case_problems(trace.case, TOOLS.snapshot, trace.viewed)]


def test_a_script_that_repeats_a_call_is_forced_and_the_call_runs_once() -> None:
    trace = Localizer(ScriptedChat(lambda _: VIEW), TOOLS).trace(ISSUE)
    assert kinds(trace) == ["call", "repeat", "repeat", "repeat", "malformed", "malformed"]
    assert trace.case.status == "forced"
    assert trace.case.paths == ("shop/rates.py",)
    assert case_problems(trace.case, TOOLS.snapshot, trace.viewed) == []
    assert "call of turn 1" in trace.turns[1].messages[1]["content"]
    assert [turn.spans != () for turn in trace.turns] == [True] + [False] * 5


def test_a_repeater_that_answers_when_told_to_is_forced() -> None:
    def reader(messages: Sequence[Message]) -> str:
        return case(PLACE) if FINAL in str(messages[-1]["content"]) else VIEW

    trace = Localizer(ScriptedChat(reader), TOOLS).trace(ISSUE)
    assert kinds(trace) == ["call", "repeat", "repeat", "repeat", "case"]
    assert (trace.case.status, trace.case.locations[0].root_cause) == ("forced", "One is added.")


def test_tools_are_withdrawn_on_the_last_turn() -> None:
    offered: list[int] = []

    class Counting:
        name = "counting"

        def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
            offered.append(len(tools))
            text = call("search", text=f"RATE_{len(offered)}") if tools else case(PLACE)
            return Reply({"role": "assistant", "content": text}, cost=Cost(10, 2, 0.5, 0.25))

    trace = Localizer(Counting(), TOOLS, LoopSettings(max_turns=4)).trace(ISSUE)
    assert offered == [4, 4, 4, 0]
    assert trace.case.status == "forced"
    assert trace.ledger.tokens == 48
    assert trace.case.meta["ledger"]["money"] == 1.0
    assert [turn.offered for turn in trace.turns] == [True, True, True, False]


def test_a_malformed_call_is_charged_and_the_grammar_returned() -> None:
    trace, model = run('{"tool": "rm", "arguments": {}}', VIEW, case(PLACE | {"evidence": [2]}))
    assert kinds(trace) == ["malformed", "call", "case"]
    told = model.asked[1][-1]["content"]
    assert "there is no tool 'rm'" in told
    assert '"tool": "view_file"' in told


def test_cut_and_silent_answers_are_asked_again() -> None:
    replies = iter([
        Reply({"role": "assistant", "content": "Let me think. " * 50}, "length"),
        Reply({"role": "assistant", "content": "It must be the rebate."}),
        Reply({"role": "assistant", "content": case(PLACE)}),
    ])  # fmt: skip

    class Cut:
        name = "cut"

        def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
            return next(replies)

    trace = Localizer(Cut(), TOOLS).trace(ISSUE)
    assert kinds(trace) == ["length", "silent", "case"]
    assert all("Answer now in the format" in turn.messages[1]["content"] for turn in trace.turns[:2])


def test_a_case_file_cut_off_on_the_last_turn_keeps_its_complete_places() -> None:
    class Cut:
        name = "cut"

        def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
            return Reply({"role": "assistant", "content": case(PLACE, PLACE)[:-40]}, "length")

    trace = Localizer(Cut(), TOOLS, LoopSettings(max_turns=1)).trace(ISSUE)
    assert (trace.case.status, len(trace.case.locations)) == ("forced", 1)


def test_a_case_file_that_does_not_stand_is_sent_back() -> None:
    trace, model = run(case(PLACE | {"path": "shop/rate.py"}), case({"path": "shop/rates.py", "start": 401}),
                       case({"path": "shop/rates.py", "start": 401}))  # fmt: skip
    assert kinds(trace) == ["rejected", "rejected", "case"]
    assert "there is no file 'shop/rate.py'" in model.asked[1][-1]["content"]
    assert "not said" in model.asked[2][-1]["content"]
    assert trace.case.locations[0].root_cause == "Not said."
    assert trace.case.status == "final"


def test_an_empty_case_file_ends_empty() -> None:
    assert run(case())[0].case.status == "empty"
    assert run(call("tree"), max_turns=1)[0].case.status == "empty"


def test_truncation_keeps_the_issue_and_the_last_turn() -> None:
    views = [call("view_file", path="shop/rates.py", start=n, end=n + 99) for n in range(1, 200, 20)]
    trace, model = run(*views, case(PLACE), context=2500)
    assert trace.case.status == "final"
    last = model.asked[-1]
    assert last[0] == trace.first[0]
    assert last[1]["content"].startswith(trace.first[1]["content"])
    assert all(ISSUE in asked[1]["content"] for asked in model.asked)
    assert (
        '- turn 1: view_file(path="shop/rates.py", start=1, end=100) -> showed shop/rates.py:1-100'
        in (last[1]["content"])
    )
    assert last[-1] == trace.turns[-2].messages[1]
    assert [one["role"] for one in last] == [
        "system",
        "user",
        *["assistant", "user"] * ((len(last) - 2) // 2),
    ]
    assert trace.case.meta["recovery"]["truncated"] > 0
    assert trace.turns[-1].collapsed > 0


def test_native_calls_that_a_server_would_refuse_stand_as_text() -> None:
    asked = {"role": "assistant", "content": "", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "view_file", "arguments": "{'path': 'a.py'}"}}
    ]}  # fmt: skip
    trace, model = run(asked, case(PLACE))
    assert kinds(trace) == ["call", "case"]
    assert [one["role"] for one in model.asked[1]] == ["system", "user", "assistant", "user"]
    assert "view_file" in model.asked[1][2]["content"]
    assert trace.turns[0].reply.message == asked


def test_native_calls_are_answered_as_tools() -> None:
    asked = {"role": "assistant", "content": "", "tool_calls": [
        {"id": "c9", "type": "function", "function": {"name": "tree", "arguments": "{}"}}]}  # fmt: skip
    _, model = run(asked, case(PLACE))
    assert [one["role"] for one in model.asked[1]] == ["system", "user", "assistant", "tool"]
    assert model.asked[1][-1]["tool_call_id"] == "c9"
    assert "shop/" in model.asked[1][-1]["content"]


def test_a_model_that_cannot_be_offered_tools_is_asked_in_text() -> None:
    class Plain:
        name = "plain"

        def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
            if tools:
                raise CannotDo("no tools")
            return Reply({"role": "assistant", "content": case(PLACE)})

    assert Localizer(Plain(), TOOLS).run(ISSUE).status == "final"
    assert Localizer(Plain(), TOOLS, LoopSettings(calls="text")).run(ISSUE).status == "final"
    strict = Localizer(Plain(), TOOLS, LoopSettings(calls="native")).trace(ISSUE)
    assert strict.error is not None
    assert strict.case.status == "empty"


@pytest.mark.parametrize("error", [ServerError("gone"), ValueError("odd"), KeyError("x")])
def test_a_model_that_fails_ends_its_run_with_what_was_seen(error: Exception) -> None:
    def reader(messages: Sequence[Message]) -> str:
        if len(messages) > 2:
            raise error
        return VIEW

    trace = Localizer(ScriptedChat(reader), TOOLS).trace(ISSUE)
    assert trace.case.status == "forced"
    assert type(error).__name__ in str(trace.error)
    assert any("stopped answering" in note for note in trace.case.meta["notes"])


def test_a_starting_case_is_shown_and_stands_where_nothing_is_given() -> None:
    start = CaseFile((Location("shop/cart.py", 4, 5, "It shares words.", "Not established.", "Look."),))
    trace, model = run("hm", "hm", start=start, max_turns=2)
    assert "shop/cart.py:4-5: It shares words." in model.asked[0][1]["content"]
    assert (trace.case.status, trace.case.locations[0].path) == ("forced", "shop/cart.py")
    gone = CaseFile((Location("gone.py", 1, 2, "a", "b", "c"),))
    assert run("hm", start=gone, max_turns=1)[0].case.status == "empty"


def test_long_answers_show_what_they_say_they_show() -> None:
    view = call("view_file", path="shop/rates.py", start=1, end=250)
    trace, _ = run(
        view, call("search", text="RATE"), call("search", text="ATE_"), case(PLACE), observation=700
    )
    shown = trace.turns[0].spans[0]
    text = trace.turns[0].messages[1]["content"]
    assert shown.end < 60
    assert f"\tRATE_{shown.end - 1} = " in text
    assert f"\tRATE_{shown.end} = " not in text
    assert all(len(turn.messages[1]["content"]) < 1000 for turn in trace.turns[:3])


def test_one_hit_that_is_too_long_to_show_is_cut() -> None:
    tools = RepoTools(Snapshot.from_files({"a.py": "".join(f"{'x' * 230}{n}\n" for n in range(9))}))
    found = answer(tools, ToolCall("search", {"text": "x5", "max_hits": 1}), 500)
    assert found.text.endswith("(the rest is too long to show)\n")
    assert len(found.text) < 600
    assert found.spans == ()


def noisy(seed: int) -> Callable[[Sequence[Message]], str | Message]:
    """A model that says anything: rows of the table, broken case files, text, native nonsense."""
    rng = np.random.default_rng(seed)
    said = [row[1] for row in [*REPAIRED, *REFUSED]]
    said += [
        case(PLACE)[:80],
        case({"path": 3}),
        '{"locations": [1, null, {"start": "x"}]}',
        "",
        "word " * 4000,
    ]
    said += [{"role": "assistant", "tool_calls": [3]}, {"role": "assistant", "tool_calls": "x"},
             {"role": "assistant", "tool_calls": [{"function": {"name": "tree"}}]}]  # fmt: skip

    def reader(messages: Sequence[Message]) -> str | Message:
        choice = said[int(rng.integers(len(said)))]
        return choice if isinstance(choice, str | dict) else str(choice)

    return reader


def test_every_run_ends_with_a_valid_case_file_or_empty() -> None:
    for seed in range(40):
        settings = LoopSettings(max_turns=1 + seed % 20, context=600 + 200 * (seed % 7))
        trace = Localizer(ScriptedChat(noisy(seed)), TOOLS, settings).trace(ISSUE)
        assert len(trace.turns) <= settings.max_turns
        assert trace.error is None
        assert trace.case.status in ("final", "forced", "empty")
        assert {p.fault for p in case_problems(trace.case, TOOLS.snapshot, trace.viewed)} <= {"unseen"}
        assert CaseFile.loads(trace.case.dumps()) == trace.case


def test_the_same_answers_make_the_same_run_and_a_fork_keeps_the_turns_before_it() -> None:
    reader = PlantedReader(searches=5, wander=1.0)
    localizer = Localizer(reader, TOOLS, LoopSettings(context=1500))
    trace = localizer.trace(ISSUE)
    assert [turn.bytes() for turn in localizer.trace(ISSUE).turns] == [turn.bytes() for turn in trace.turns]
    for turn in range(1, len(trace.turns) + 1):
        other = localizer.fork(trace, turn, draw=7)
        before = turn - 1
        assert [t.bytes() for t in other.turns[:before]] == [t.bytes() for t in trace.turns[:before]]
    assert any(
        localizer.fork(trace, 1, draw=d).turns[0].bytes() != trace.turns[0].bytes() for d in range(1, 6)
    )
    with pytest.raises(BadInput, match="no turn 99"):
        localizer.fork(trace, 99, draw=1)


def test_a_fork_on_another_snapshot_is_refused() -> None:
    trace, _ = run(VIEW, case(PLACE))
    other = RepoTools(Snapshot.from_files(FILES | {"shop/rates.py": FILES["shop/rates.py"] + "# more\n"}))
    with pytest.raises(ReplayDiverged, match="turn 1"):
        Localizer(ScriptedChat([case(PLACE)]), other).fork(trace, 2, draw=1)


def test_settings_are_checked() -> None:
    for wrong in ({"max_turns": 0}, {"context": 10}, {"calls": "x"}, {"notices": 0}):
        with pytest.raises(BadInput):
            LoopSettings(**wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="empty"):
        Localizer(ScriptedChat([]), TOOLS).run(" ")


def test_without_the_final_turn_results_fall() -> None:
    """Turn cap 6, eight searches wanted: a reader that is not asked at the end has no answer. No chance."""
    tasks = repair_tasks(12, names=("harbour", "bakery", "clinic"))
    hit: dict[bool, list[bool]] = {True: [], False: []}
    for task in tasks:
        tools = RepoTools(Snapshot.from_files(task.files))
        for synthesis, row in hit.items():
            settings = LoopSettings(max_turns=6, synthesis=synthesis)
            made = Localizer(PlantedReader(searches=8), tools, settings).run(task.issue)
            row.append(score_locations(made, task.gold).acc[1] == 1.0)
    pairs = list(zip(hit[True], hit[False], strict=True))
    gains, losses = sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
    assert losses == 0
    assert mcnemar(gains, losses).p < 0.05
