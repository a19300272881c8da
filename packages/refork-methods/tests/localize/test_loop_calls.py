"""Reading a model's turn: the fixed table of broken calls, well-formed forms, thoughts, and nonsense."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from localize.malformed_calls import REFUSED, REPAIRED
from refork.errors import BadInput
from refork.tool_calls import ToolCall
from refork_methods.localize.calls import (
    Answered,
    Asked,
    LoopWatch,
    NotRead,
    canonical,
    cut_case,
    fit,
    read_reply,
    salvaged,
    spoken,
    tool_named,
)

CALL = '{"tool": "search", "arguments": {"text": "parse"}}'


def message(said: Any) -> dict[str, Any]:
    return said if isinstance(said, dict) else {"role": "assistant", "content": said}


def test_the_table_has_thirty_rows() -> None:
    assert len(REPAIRED) + len(REFUSED) == 30
    assert len({row[0] for row in [*REPAIRED, *REFUSED]}) == 30


@pytest.mark.parametrize("row", REPAIRED, ids=lambda row: row[0])
def test_repaired(row: tuple[str, Any, str, Any]) -> None:
    _, said, finish, (tool, arguments) = row
    read = read_reply(message(said), finish)  # type: ignore[arg-type]
    assert isinstance(read, Asked), read
    assert (read.call.name, read.call.arguments) == (tool, arguments)
    assert read.repairs or row[0] == "native, encoded twice"


def test_digits_that_are_no_decimals_are_no_range() -> None:
    said = '{"tool": "view_file", "arguments": {"path": "a.py", "range": "1-²"}}'
    read = read_reply(message(said))
    assert isinstance(read, NotRead)
    assert "give start and end" in read.why


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row[0])
def test_refused(row: tuple[str, Any, str, Any]) -> None:
    _, said, finish, kind = row
    read = read_reply(message(said), finish)  # type: ignore[arg-type]
    assert isinstance(read, NotRead), read
    assert read.kind == kind
    assert read.why


@pytest.mark.parametrize(
    "said",
    [
        CALL,
        f"I look for it.\n{CALL}",
        f"<tool_call>{CALL}</tool_call>",
        f"<think>maybe {{}} or search('x')</think>{CALL}",
        f"{CALL}\n{CALL}",
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "search",
         "arguments": '{"text": "parse"}'}}]},
        {"role": "assistant", "content": "", "function_call": {"name": "search",
         "arguments": '{"text": "parse"}'}},
        {"role": "assistant", "content": [{"type": "text", "text": CALL}]},
    ],
)  # fmt: skip
def test_well_formed(said: Any) -> None:
    read = read_reply(message(said))
    assert isinstance(read, Asked)
    assert read.call == ToolCall("search", {"text": "parse"})
    assert read.repairs == ()


def test_a_complete_call_counts_though_the_answer_was_cut_behind_it() -> None:
    assert isinstance(read_reply(message(f"{CALL}\nAnd then I would"), "length"), Asked)


def test_two_native_calls_are_refused_and_the_same_twice_is_one() -> None:
    def calls(*texts: str) -> dict[str, Any]:
        made = [
            {"id": t, "function": {"name": "search", "arguments": json.dumps({"text": t})}} for t in texts
        ]
        return {"role": "assistant", "content": "", "tool_calls": made}

    assert isinstance(read_reply(calls("a", "b")), NotRead)
    assert isinstance(read_reply(calls("a", "a")), Asked)


@pytest.mark.parametrize("form", ["{}", "```json\n{}\n```", "Done.\n{}", '{{"case_file": {}}}'])
def test_case_files_are_read(form: str) -> None:
    case = '{"locations": [{"path": "a.py", "start": 1, "end": 2}]}'
    text = form.replace("{}", case).replace("{{", "{").replace("}}}}", "}}}")
    read = read_reply(message(text if "case_file" not in form else f'{{"case_file": {case}}}'))
    assert isinstance(read, Answered)
    assert read.data["locations"][0]["path"] == "a.py"


def test_a_case_file_with_one_repair_is_read_and_two_different_ones_are_refused() -> None:
    read = read_reply(message("{'locations': [{'path': 'a.py', 'start': 1, 'end': 2}]}"))
    assert isinstance(read, Answered)
    assert read.repairs
    two = '{"locations": []} or rather {"locations": [{"path": "a.py"}]}'
    assert isinstance(read_reply(message(two)), NotRead)


def test_long_and_silent_answers() -> None:
    assert read_reply(message("hm " * 5000)) == NotRead(
        "length", "the answer has 15,000 characters and neither call nor case file"
    )
    for said in ("", "I do not know.", None):
        read = read_reply(message(said) if said is not None else {"role": "assistant", "content": None})
        assert isinstance(read, NotRead)
        assert read.kind == "silent"


def test_thoughts_are_not_spoken() -> None:
    assert spoken("<think>a</think>b") == "b"
    assert spoken("a</think>b") == "b"
    assert spoken("a<think>b") == "a"
    assert spoken("a") == "a"


def test_a_cut_case_file_gives_its_complete_locations() -> None:
    whole = '{"path": "a.py", "start": 1, "end": 2, "explanation": "x"}'
    text = f'{{"locations": [{whole}, {{"path": "b.py", "sta'
    assert salvaged(text) == [json.loads(whole)]
    assert cut_case(message(text)) == {"locations": [json.loads(whole)]}
    assert cut_case(message('{"locations": [{"path')) is None
    assert salvaged("nothing") == []


def test_canonical_calls_ask_the_same() -> None:
    same = [
        {"path": "a.py"}, {"path": "./a.py"}, {"path": "a.py", "start": 1},
        {"start": 1, "path": "a.py", "end": None}
    ]  # fmt: skip
    assert len({canonical(ToolCall("view_file", one)) for one in same}) == 1
    assert canonical(ToolCall("tree", {})) == canonical(ToolCall("tree", {"path": ".", "depth": 2}))
    assert canonical(ToolCall("view_file", {"path": "a.py", "start": 2})) != canonical(
        ToolCall("view_file", {"path": "a.py"})
    )
    assert canonical(ToolCall("search", {"text": "./a"})) != canonical(ToolCall("search", {"text": "a"}))


def test_the_watch_counts_notices() -> None:
    watch, call = LoopWatch(), ToolCall("tree", {})
    assert watch.earlier(call, 1) is None
    assert watch.earlier(ToolCall("tree", {"depth": 3}), 2) is None
    assert watch.earlier(ToolCall("tree", {"depth": 2}), 3) == 1
    assert watch.earlier(call, 4) == 1
    assert watch.notices == 2


def test_names_of_tools() -> None:
    assert tool_named("functions.view_file") == "view_file"
    assert tool_named("Repository Tree") == "tree"
    assert tool_named("shell") is None
    with pytest.raises(BadInput, match="no tool"):
        fit("shell", {})
    with pytest.raises(BadInput, match="give start and end"):
        fit("view_file", {"path": "a.py", "range": "10"})
    assert fit("view_file", {"path": "a.py", "lines": "3-9"})[0].arguments == {
        "path": "a.py", "start": 3, "end": 9
    }  # fmt: skip


def test_nothing_that_a_model_writes_raises() -> None:
    """Every row of the table with random characters cut or put in: read or refused, never an error."""
    rng = np.random.default_rng(0)
    letters = list("{}[]\"',:()<>`\\\n abc1")
    for _, said, _, _ in [*REPAIRED, *REFUSED] * 6:
        text = said if isinstance(said, str) else json.dumps(said["tool_calls"][0]["function"])
        for _ in range(int(rng.integers(1, 6))):
            at = int(rng.integers(0, len(text) + 1))
            text = text[:at] + str(rng.choice(letters)) + text[at + int(rng.integers(0, 3)) :]
        assert isinstance(read_reply(message(text)), Asked | Answered | NotRead)
        broken = {"tool_calls": [{"function": {"name": "search", "arguments": text}}]}
        assert isinstance(read_reply(broken), Asked | Answered | NotRead)
    for odd in (
        "{" * 3000,
        "[" * 3000,
        '{"a":' * 3000,
        "9" * 6000,
        '{"tool":"tree","arguments":' + "9" * 6000 + "}",
    ):
        assert isinstance(read_reply(message(odd)), NotRead)
