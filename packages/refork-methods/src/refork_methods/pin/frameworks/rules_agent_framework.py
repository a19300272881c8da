"""Which messages each agent-framework strategy shows its model and its summariser, in closed form.

Strategies take or leave whole groups: a system, user or plain assistant message is one alone, a tool call is
one with its results (messages of nothing but reasoning are left out here). :func:`groups` finds them; the
other functions take arrays over messages, oldest first: the ``group`` of each (numbered by first appearance)
and its ``kind``. They were derived from agent-framework-core 1.23 and are compared with it, message by
message, in the tests.

Source: ours; arXiv:2606.22528 has no cell for this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Int

from refork.stats.results import Array
from refork.types import Message
from refork_methods.pin.frameworks.turns import Turn

Kind: TypeAlias = Literal["system", "user", "assistant", "tools"]


def groups(turns: Sequence[Turn]) -> tuple[Int[Array, "n"], list[Kind]]:
    """The group and kind of every message (of ``turns``: results of one round are one message).

    A result joins the group of the call before it; one that stands apart joins the only open call of its id.
    """
    kinds = [_kind(turn[0]) for turn in turns]
    raw: list[int] = []
    root: list[int] = []  # of every raw group, the earliest that it is joined to
    open_calls: dict[str, list[int]] = {}
    for place, turn in enumerate(turns):
        answer = turn[0].get("role") == "tool"
        if not (answer and place and kinds[place - 1] == "tools"):
            root.append(len(root))
        raw.append(len(root) - 1)
        for call in turn[0].get("tool_calls") or ():
            if call.get("id"):
                open_calls.setdefault(str(call["id"]), []).append(raw[-1])
        for message in turn if answer else ():
            callers = open_calls.get(str(message.get("tool_call_id") or ""), [])
            # An id that several open calls carry joins nothing: it cannot tell whose result this is.
            if len(callers) == 1:
                _join(root, callers.pop(), raw[-1])
    number = {one: at for at, one in enumerate(dict.fromkeys(_root(root, one) for one in raw))}
    return np.asarray([number[_root(root, one)] for one in raw], dtype=np.int64), kinds


def _root(root: Sequence[int], one: int) -> int:
    while root[one] != one:
        one = root[one]
    return one


def _join(root: list[int], one: int, other: int) -> None:
    early, late = sorted((_root(root, one), _root(root, other)))
    root[late] = early


def _kind(message: Message) -> Kind:
    role = message.get("role")
    if role == "tool" or (role == "assistant" and message.get("tool_calls")):
        return "tools"
    if role == "system":
        return "system"
    return "user" if role == "user" else "assistant"


def truncated(
    group: Int[Array, "n"],
    kind: Sequence[Kind],
    weight: Int[Array, "n"],
    max_n: int,
    compact_to: int,
    preserve_system: bool = True,
) -> Bool[Array, "n"]:
    """Visible under ``TruncationStrategy``; ``weight``: tokens of each message, or ones without a tokenizer.

    Nothing goes while the weight is at most ``max_n``. Then the oldest groups go until it is at most
    ``compact_to``, but for system groups where so set, and the last group that is not system, which always
    stays.
    """
    visible = np.ones(len(group), dtype=np.bool_)
    if weight.sum() <= max_n:
        return visible
    safe = {_last(group, kind)}
    if preserve_system:
        safe |= {int(g) for g, k in zip(group, kind, strict=True) if k == "system"}
    return _evicted(visible, group, weight, [g for g in _ordered(group) if g not in safe], compact_to)


def windowed(
    group: Int[Array, "n"], kind: Sequence[Kind], keep: int, preserve_system: bool = True
) -> Bool[Array, "n"]:
    """Visible under ``SlidingWindowStrategy(keep_last_groups=keep)``: the last groups that are not system.

    System groups stay too, unless ``preserve_system`` is off.
    """
    system = np.asarray([k == "system" for k in kind], dtype=np.bool_)
    last = _ordered(group[~system])[-keep:]
    shown = np.isin(group, last) & ~system
    return shown | system if preserve_system else shown


def selected(group: Int[Array, "n"], kind: Sequence[Kind], keep: int) -> Bool[Array, "n"]:
    """Visible under ``SelectiveToolCallCompactionStrategy`` and ``ToolResultCompactionStrategy``.

    All but the tool groups before the last ``keep``. The second puts the results' text in their place.
    """
    tools = np.asarray([k == "tools" for k in kind], dtype=np.bool_)
    ordered = _ordered(group[tools])
    # Not ordered[:-keep]: with keep 0 that would be empty, where all go.
    gone = ordered[: len(ordered) - keep] if keep < len(ordered) else []
    return ~np.isin(group, gone)


def summarised(
    group: Int[Array, "n"],
    kind: Sequence[Kind],
    target: int,
    threshold: int = 2,
) -> Bool[Array, "n"]:
    """Shown to the summariser of ``SummarizationStrategy`` without a limit of its input; the others stay.

    It asks where more than ``target + threshold`` messages are not system. The last groups that make up
    ``target`` messages are kept, all before them are shown.
    """
    system = np.asarray([k == "system" for k in kind], dtype=np.bool_)
    nothing = np.zeros(len(group), dtype=np.bool_)
    if (~system).sum() <= target + threshold:
        return nothing
    ordered = _ordered(group[~system])
    sizes = [int((group == g).sum()) for g in ordered]
    kept = 0
    while ordered and (kept == 0 or sum(sizes[len(ordered) - kept :]) < target) and kept < len(ordered):
        kept += 1
    return np.isin(group, ordered[: len(ordered) - kept])


def budgeted(
    group: Int[Array, "n"], kind: Sequence[Kind], tokens: Int[Array, "n"], budget: int
) -> Bool[Array, "n"]:
    """Visible under ``TokenBudgetComposedStrategy`` once its strategies are through (or without any).

    The oldest groups go until the budget holds, then the oldest system groups too: here the system role
    protects nothing. The last group that is not system stays.
    """
    visible = np.ones(len(group), dtype=np.bool_)
    if tokens.sum() <= budget:
        return visible
    systems = {int(g) for g, k in zip(group, kind, strict=True) if k == "system"}
    last = _last(group, kind)
    order = _ordered(group)
    queue = [g for g in order if g not in systems and g != last]
    queue += [g for g in order if g in systems and g != last]
    return _evicted(visible, group, tokens, queue, budget)


def _evicted(
    visible: Bool[Array, "n"],
    group: Int[Array, "n"],
    weight: Int[Array, "n"],
    queue: Sequence[int],
    target: int,
) -> Bool[Array, "n"]:
    """Groups of the queue made invisible, in order, until the weight that is left is at most the target."""
    for one in queue:
        if weight[visible].sum() <= target:
            break
        visible = visible & (group != one)
    return visible


def _ordered(group: Int[Array, "n"]) -> list[int]:
    return sorted({int(g) for g in group})


def _last(group: Int[Array, "n"], kind: Sequence[Kind]) -> int:
    """The last group that is not system; the last of all where there is none."""
    plain = [int(g) for g, k in zip(group, kind, strict=True) if k != "system"]
    return max(plain) if plain else int(group.max(initial=-1))
