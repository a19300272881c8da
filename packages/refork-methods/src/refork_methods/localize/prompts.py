"""What the model is told: its task, the tools, the one form of a turn, and what to do when a turn fails.

Source: arXiv:2606.24820 publishes no prompts; all wording is ours.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from refork.types import Json, Message
from refork_methods.localize.casefile import LONGEST, CaseFile
from refork_methods.localize.facts import ToolResult
from refork_methods.localize.tools import RepoTools

CALL_FORM = '{"tool": "view_file", "arguments": {"path": "src/a.py", "start": 1, "end": 80}}'
CASE_FORM = (
    '{"locations": [{"path": "src/a.py", "start": 10, "end": 14, "symbol": "Parser.parse", '
    '"explanation": "why here", "root_cause": "what is wrong", "solution_idea": "what to change", '
    '"dependencies": [{"path": "src/b.py", "symbol": "load", "why": "calls it"}], '
    '"testing_impact": ["tests/test_a.py::test_parse"], "confidence": 0.7, "evidence": [2, 5]}]}'
)
#: Stands in the last demand only: tools are gone and the case file is due.
FINAL = "The tools are withdrawn."


def system_prompt(max_turns: int, most: int) -> str:
    """The standing instructions."""
    tools = "\n".join(_tool_line(one["function"]) for one in RepoTools.schemas())
    return (
        "You find where the cause of an issue lies in a repository. You read; you change and run nothing.\n\n"
        f"You have at most {max_turns} turns. Each turn is one tool call, or the case file that ends the "
        "search.\n\n"
        f"Tools:\n{tools}\n\n"
        f"A tool call is one JSON object, unless you can call tools natively:\n{CALL_FORM}\n\n"
        f"The case file is one JSON object with at most {most} locations, the likeliest first, each of at "
        f"most {LONGEST} lines and as few as hold the cause:\n{CASE_FORM}\n\n"
        "evidence: numbers of the turns that showed you those lines. confidence: your chance, 0 to 1, that "
        "the fix touches them; null where you cannot say. Name only lines you have seen."
    )


def _tool_line(about: Json) -> str:
    parameters = about["parameters"]
    signature = ", ".join(
        key if key in parameters["required"] else f"{key}?" for key in parameters["properties"]
    )
    return f"- {about['name']}({signature}): {about['description']}"


def first_messages(issue: str, max_turns: int, most: int, start: CaseFile | None = None) -> list[Message]:
    """System prompt and issue; with ``start``, the places that another investigator found."""
    told = f"The issue:\n\n{issue}"
    if start is not None and start.locations:
        told += f"\n\n{starting_point(start)}"
    return [
        {"role": "system", "content": system_prompt(max_turns, most)},
        {"role": "user", "content": told},
    ]


def starting_point(case: CaseFile) -> str:
    """A case file as a place to start from: its places and why, no lines of code."""
    lines = [
        "An investigator that only matches words ranked these places. Check them; they may all be wrong:"
    ]
    for number, one in enumerate(case.locations, 1):
        name = f" {one.symbol}" if one.symbol else ""
        lines.append(f"{number}. {one.location()}{name}: {' '.join(one.explanation.split())}")
    return "\n".join(lines)


def head(turn: int, max_turns: int) -> str:
    """How an answer to a turn begins."""
    left = max_turns - turn
    return f"[turn {turn}; {left} left]"


def result_text(result: ToolResult, repairs: Sequence[str]) -> str:
    """A tool's answer, with what was repaired in the call."""
    note = f"(read as you meant it: {'; '.join(repairs)})\n" if repairs else ""
    return f"{note}{result.text.rstrip()}"


def repeat_notice(turn: int, notices: int, most: int) -> str:
    """Said instead of running a call again."""
    return (
        f"This is the call of turn {turn}; its answer is the same, so it was not run again (notice {notices} "
        f"of {most}). Ask something else, or give the case file."
    )


def malformed_notice(why: str) -> str:
    """The grammar, where a call could not be read."""
    return f"Nothing was run: {why}.\nA turn is one JSON object, a tool call:\n{CALL_FORM}\nor the case file."


def again_notice(why: str) -> str:
    """The short demand after an answer that was cut off, over-long, or no answer in the format."""
    return (
        f"Nothing was run: {why}. Answer now in the format, without explanation: one JSON object, a tool "
        f"call such as {CALL_FORM} or the case file."
    )


def case_notice(problems: Sequence[str]) -> str:
    """What is wrong with a case file, to give it again."""
    rows = "\n".join(f"- {one}" for one in problems)
    return f"The case file does not stand:\n{rows}\nGive it again, or look further."


def final_demand(most: int) -> str:
    """The last turn: the case file from what was seen."""
    return (
        f"{FINAL} Give the case file now, from what you have seen: one JSON object with at most {most} "
        f"locations, the likeliest first.\n{CASE_FORM}"
    )


def collapsed_line(turn: int, what: str, came: str) -> str:
    """One line for a turn whose text is no longer shown."""
    return f"- turn {turn}: {what} -> {came}"


def call_text(name: str, arguments: Json) -> str:
    """A call on one line."""
    inside = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    return f"{name}({inside})"
