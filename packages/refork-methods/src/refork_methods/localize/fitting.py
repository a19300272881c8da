"""A tool's answer cut to a size, so that the lines it is said to have shown are those it really shows."""

from __future__ import annotations

from dataclasses import replace

from refork.tool_calls import ToolCall
from refork_methods.localize.facts import ToolResult
from refork_methods.localize.tools import RepoTools


def answer(tools: RepoTools, call: ToolCall, size: int) -> ToolResult:
    """The tool's answer in about ``size`` characters: fewer lines, fewer hits, else its first lines.

    Lines that are not shown whole in the text are in no span.
    """
    result = tools.call(call.name, call.arguments)
    if len(result.text) <= size or result.error is not None:
        return result
    if call.name == "view_file" and result.shown:
        return _view(tools, call, result, size)
    if call.name == "search":
        return _search(tools, call, result, size)
    kept = _first_lines(result.text, size)
    left = result.text.count("\n") - kept.count("\n")
    note = f"{left} more lines not shown: ask for less\n"
    return replace(result, text=kept + note, shown=(), cut=result.cut + left)


def _view(tools: RepoTools, call: ToolCall, result: ToolResult, size: int) -> ToolResult:
    span = result.shown[0]
    rows = result.text.split("\n")[1:]
    room, count = size, 0
    for row in rows[: span.end - span.start + 1]:
        room -= len(row) + 1
        if room < 0:
            break
        count += 1
    if count == 0:
        kept = result.text[:size]
        return replace(result, text=f"{kept} ...\n(the line is longer than an answer)\n", shown=())
    end = span.start + count - 1
    made = tools.view_file(span.path, span.start, end)
    left = result.cut + span.end - end
    note = f"({span.end - end} of the lines not shown: the answer would be too long)\n"
    return replace(made, text=made.text + note, cut=left)


def _search(tools: RepoTools, call: ToolCall, result: ToolResult, size: int) -> ToolResult:
    most = int(call.arguments.get("max_hits") or 50)
    while most > 1:
        most //= 2
        made = tools.call("search", {**call.arguments, "max_hits": most})
        if len(made.text) <= size:
            return made
    kept = _first_lines(made.text if most == 1 else result.text, size)
    return replace(result, text=f"{kept}(the rest is too long to show)\n", shown=())


def _first_lines(text: str, size: int) -> str:
    kept = text[:size]
    at = kept.rfind("\n")
    return kept[: at + 1] if at >= 0 else kept + "\n"
