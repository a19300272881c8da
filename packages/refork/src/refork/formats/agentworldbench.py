"""AgentWorldBench: rows of one turn to predict, with the trajectory up to it.

``prompt`` and ``response`` are the turns, ``turn_idx`` (from 1) the one that is evaluated, ``system_str``
what the simulator is told. A row is a trajectory that ends in its turn; later turns are left out.
Observations of earlier turns are marked as context (``target`` false), for other rows evaluate them.

Source: arXiv 2606.24597; the rows as its repository QwenLM/Qwen-AgentWorld documents and evaluates them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

from refork.errors import BadInput
from refork.formats.base import Head
from refork.formats.log_reader import LogReader
from refork.plain import content_hash
from refork.tree.node import NewNode, node_id
from refork.types import Json, NodeKind

_KEYS = {"prompt", "response", "turn_idx", "system_str"}
#: Their names of domains, and ours.
DOMAINS = {
    "mcp": "tools",
    "search": "search",
    "terminal": "terminal",
    "swe": "swe",
    "android": "phone",
    "web": "web",
    "os": "desktop",
}
#: What observations begin with; the benchmark's own scorer takes it off both sides too.
MARKER = "**Environment Observation:**"


@final
class AgentWorldBench(LogReader):
    """Reads AgentWorldBench; observations without their marker."""

    name, label = "agentworldbench", "AgentWorldBench"
    order = 74

    def sniff(self, head: Head) -> bool:
        """Whether the first line is a row."""
        body = head.first
        if body is None:
            # A row is longer than the sniffing window as a rule.
            first = head.text.lstrip().partition("\n")[0]
            row = '"task"' in first[:200] and '"prompt"' in first[:2000] and '"completion"' not in first
            return first.startswith("{") and row
        return isinstance(body, dict) and set(body) >= _KEYS

    def item(self, body: Json, name: str, where: str) -> Iterator[NewNode]:
        """One row."""
        yield from _row(body, f"agentworldbench/{name}", where)


def _row(body: Json, line: str, where: str) -> Iterator[NewNode]:
    missing = sorted(_KEYS - set(body))
    if missing:
        raise BadInput(f"the row has no {missing[0]}", where=where)
    prompts, responses = _texts(body, "prompt", where), _texts(body, "response", where)
    turn = body["turn_idx"]
    if not isinstance(turn, int) or isinstance(turn, bool) or turn < 1:
        raise BadInput(f"turn_idx is {turn!r}; turns count from 1", where=where)
    if body.get("current_prompt") and len(prompts) >= turn - 1:
        prompts = [*prompts[: turn - 1], str(body["current_prompt"])]
    if len(prompts) < turn or len(responses) < turn:
        raise BadInput(
            f"turn {turn} is evaluated, but there are {len(prompts)} prompts and {len(responses)} responses",
            where=where,
        )
    task = str(body.get("task", ""))
    subtask = task.rpartition("/")[2]
    if task and subtask not in DOMAINS:
        raise BadInput(f"there is no domain {subtask!r}", where=where, hint=", ".join(DOMAINS))
    system = str(body["system_str"])
    extra: Json = {"brief": {"task_description": system}, "source": f"agentworldbench/{subtask}"}
    extra |= {"domain": DOMAINS[subtask]} if subtask else {}
    root = f"agentworldbench/{content_hash([system, extra])}"
    yield NewNode(kind="task", key=root, text=system, extra=extra, origin="real")
    parent = node_id(None, None, "task", root)
    pairs = list(zip(prompts, responses, strict=False))[:turn]
    for number, (prompt, response) in enumerate(pairs, start=1):
        row = {key: value for key, value in body.items() if key not in (*_KEYS, "current_prompt")}
        last: Json = {"line": {**row, "turn_idx": turn}} if number == turn else {"target": False}
        said: tuple[tuple[NodeKind, str, Json], ...] = (
            ("action", prompt, {}),
            ("observation", _unmarked(response), last),
        )
        for kind, text, more in said:
            key = f"{line}/{number}/{kind}"
            yield NewNode(kind=kind, parent=parent, key=key, text=text, extra=more, origin="real")
            parent = node_id(parent, None, kind, key)


def _texts(body: Json, name: str, where: str) -> list[str]:
    raw: Any = body[name]
    texts = [raw] if isinstance(raw, str) else raw
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise BadInput(f"{name} is not a list of texts", where=where)
    return list(texts)


def _unmarked(text: str) -> str:
    stripped = text.lstrip()
    return stripped[len(MARKER) :].removeprefix("\n") if stripped.startswith(MARKER) else text
