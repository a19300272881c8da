"""What the installed packages show and keep, against the closed forms: every message, no tolerance.

One function a harness: ``cases`` seeded histories, each under a drawn setting, compacted over
:data:`ROUNDS` rounds of what the round before left and new messages. Every round compares, message by
message, what is visible and what the summariser was shown, and the fate of the rule.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parts.constraint_rot_histories import RULE, Tally, drawn, with_rule
from refork.chat import ScriptedChat
from refork.compaction import CompactionResult, Compactor, Fate, fate
from refork.types import Message

ROUNDS = 3
Visible = NDArray[np.bool_]
SUMMARY = "S"


def summariser() -> ScriptedChat:
    """The scripted model: its summary holds nothing."""
    return ScriptedChat(lambda _: SUMMARY)


@dataclass(frozen=True)
class Forecast:
    """What the closed form says of a history: which messages stay, which the summariser is shown whole.

    ``touched``: those that it is shown any of. ``asked``: whether it is asked at all.
    """

    fired: bool
    visible: Visible
    seen: Visible
    touched: Visible
    asked: bool

    def fate(self, index: int) -> Fate:
        """The fate of a one-line rule."""
        if self.visible[index]:
            return "visible"
        return "omitted" if self.seen[index] else "trimmed"


def forecast(visible: Sequence[bool] | Visible, seen: Visible | None = None) -> Forecast:
    """A forecast without lines that are cut; it fired where something goes."""
    shown = np.asarray(visible, dtype=np.bool_)
    told = np.zeros(len(shown), dtype=np.bool_) if seen is None else np.asarray(seen, dtype=np.bool_)
    return Forecast(bool((~shown).any()), shown, told, told, bool(told.any()))


Rule = Callable[[Sequence[Message]], Forecast]


def compare(
    tally: Tally, label: str, messages: Sequence[Message], wanted: Forecast, result: CompactionResult
) -> None:
    """Forecast and reality, message by message, and the order of what stays."""
    left, seen = {m["id"] for m in result.messages}, set(result.seen)
    tally.check(result.fired == wanted.fired, f"{label}: fired {result.fired}, not {wanted.fired}")
    for place, message in enumerate(messages):
        name = message["id"]
        tally.check((name in left) == wanted.visible[place], f"{label}: {name} visible is {name in left}")
        tally.check((name in seen) == wanted.touched[place], f"{label}: {name} seen is {name in seen}")
    known = {m["id"] for m in messages}
    kept = [m for m, stays in zip(messages, wanted.visible, strict=True) if stays]
    tally.check([m for m in result.messages if m["id"] in known] == kept, f"{label}: kept messages differ")
    tally.check(
        bool(result.calls) == wanted.asked, f"{label}: asked is {bool(result.calls)}, not {wanted.asked}"
    )


def sweep(  # one history after another, and what each round leaves
    tally: Tally,
    rng: np.random.Generator,
    draw: Callable[[np.random.Generator], tuple[str, Compactor, Rule]],
    *,
    late: float = 0.0,
    headless: bool = False,
) -> None:
    """One case: a history under one drawn setting, over the rounds.

    ``late``: share of late tool results. ``headless``: the history may begin in the middle of a round of
    calls, as a harness's own cut may leave it.
    """
    label, compactor, rule = draw(rng)
    tally.cases += 1
    first = drawn(rng, int(rng.integers(1, 26)), "a", late=late)
    if headless:
        first = first[int(rng.integers(0, min(4, len(first)))) :]
    history, name = with_rule(rng, first)
    for round_ in range(ROUNDS):
        wanted = rule(history)
        result = compactor.compact(history)
        compare(tally, f"{label}, round {round_ + 1}", history, wanted, result)
        place = next((i for i, m in enumerate(history) if m["id"] == name), None)
        if place is not None:
            got = fate(RULE, history, result)
            tally.check(
                got == wanted.fate(place), f"{label}: the rule is {got}, forecast {wanted.fate(place)}"
            )
        more = drawn(rng, int(rng.integers(1, 14)), f"{'bcd'[round_]}", late=late)
        history = [*result.messages, *more]


def run_sweep(
    cases: int,
    seed: int,
    draw: Callable[[np.random.Generator], tuple[str, Compactor, Rule]],
    **ways: Any,
) -> Tally:
    """``cases`` cases of one harness, each from a seed of its own."""
    tally = Tally()
    for number in range(cases):
        with warnings.catch_warnings():
            # langmem says so where it falls back to the whole span; that case is one of the forecasts.
            warnings.filterwarnings("ignore", "Failed to trim messages", RuntimeWarning)
            sweep(tally, np.random.default_rng([seed, number]), draw, **ways)
    return tally


# -- the langchain family ------------------------------------------------------------------------------


def _of_window(window: Any, count: int, head: int = 0) -> Forecast:
    """A window over messages behind ``head`` protected ones."""
    top, none = [True] * head, [False] * head
    return Forecast(
        window.fired,
        np.array([*top, *(window.visible(i) for i in range(count))], dtype=np.bool_),
        np.array([*none, *(window.covers(i) for i in range(count))], dtype=np.bool_),
        np.array([*none, *(window.touched(i) for i in range(count))], dtype=np.bool_),
        bool(window.fired and window.asked),
    )


def _around(inner: Forecast, at: int | None) -> Forecast:
    """The forecast with an earlier summary's message put in, which goes into the next one when it fires."""
    if at is None:
        return inner
    spot = {"visible": not inner.fired, "seen": inner.fired, "touched": inner.fired}
    parts = {key: np.insert(getattr(inner, key), at, value) for key, value in spot.items()}
    return Forecast(inner.fired, parts["visible"], parts["seen"], parts["touched"], inner.asked)


def _apart(messages: Sequence[Message], lead: str) -> tuple[list[Message], int | None]:
    """The messages without the summary that stands among them, and where it stood."""
    at = next(
        (i for i, m in enumerate(messages) if m["role"] == "system" and m["content"] == f"{lead}{SUMMARY}"),
        None,
    )
    return [m for i, m in enumerate(messages) if i != at], at


def langmem(cases: int, seed: int) -> Tally:
    """``summarize_messages``: budgets, triggers, a running summary, a protected system message."""
    from langchain_core.messages import SystemMessage
    from langchain_core.messages.utils import count_tokens_approximately

    from refork_methods.pin.frameworks.langchain_messages import to_langchain
    from refork_methods.pin.frameworks.langmem import LangMemCompactor
    from refork_methods.pin.frameworks.rules_langchain import langmem_window, sized

    def tokens(messages: Sequence[Message]) -> int:
        return count_tokens_approximately(to_langchain(messages))

    def draw(rng: np.random.Generator) -> tuple[str, Compactor, Rule]:
        budget = int(rng.integers(20, 180))
        before = int(rng.integers(1, 220)) if rng.random() < 0.5 else None
        reserve = int(budget * rng.uniform(0.05, 0.5))

        def rule(messages: Sequence[Message]) -> Forecast:
            bare, at = _apart(messages, "Summary of the conversation so far: ")
            head = bare[:1] if bare and bare[0]["role"] == "system" else []
            window = langmem_window(
                sized(bare[len(head) :], tokens),
                max_tokens=budget,
                max_tokens_before_summary=before,
                max_summary_tokens=reserve,
                system=tokens(head),
                summary=0 if at is None else count_tokens_approximately([SystemMessage(content=SUMMARY)]),
            )
            return _around(_of_window(window, len(bare) - len(head), len(head)), at)

        compactor = LangMemCompactor(summariser(), budget, before, reserve)
        return f"langmem({budget}, {before}, {reserve})", compactor, rule

    return run_sweep(cases, seed, draw)


def langgraph(cases: int, seed: int) -> Tally:
    """The documented summary node: trigger, kept tail, a system message in the state or outside it."""
    from refork_methods.pin.frameworks.langgraph import LangGraphNodeCompactor
    from refork_methods.pin.frameworks.rules_langchain import summary_node_window

    def draw(rng: np.random.Generator) -> tuple[str, Compactor, Rule]:
        trigger, keep, protected = int(rng.integers(1, 12)), int(rng.integers(1, 6)), bool(rng.integers(2))

        def rule(messages: Sequence[Message]) -> Forecast:
            bare, at = _apart(messages, "Summary of conversation earlier: ")
            head = 1 if protected and at != 0 and bare and bare[0]["role"] == "system" else 0
            window = summary_node_window(len(bare) - head, trigger=trigger, keep=keep)
            return _around(_of_window(window, len(bare) - head, head), at)

        compactor = LangGraphNodeCompactor(summariser(), trigger, keep, protected=protected)
        return f"langgraph({trigger}, {keep}, protected {protected})", compactor, rule

    return run_sweep(cases, seed, draw)


def langchain(cases: int, seed: int) -> Tally:
    """``SummarizationMiddleware``: trigger, kept tail, front trim, a system message inside or outside."""
    from langchain_core.messages.utils import count_tokens_approximately

    from refork_methods.pin.frameworks.langchain import LangChainMiddlewareCompactor
    from refork_methods.pin.frameworks.langchain_messages import to_langchain
    from refork_methods.pin.frameworks.rules_langchain import middleware_window, sized

    def tokens(messages: Sequence[Message]) -> int:
        return count_tokens_approximately(to_langchain(messages))

    triggers: list[Any] = [("messages", 1), ("messages", 5), ("tokens", 1), ("tokens", 90), None]
    keeps: list[Any] = [("messages", 1), ("messages", 3), ("messages", 20), ("tokens", 1), ("tokens", 60)]
    trims = [None, 10, 40, 80, 160, 4000]

    def draw(rng: np.random.Generator) -> tuple[str, Compactor, Rule]:
        trigger, keep, trim = (
            triggers[rng.integers(len(triggers))],
            keeps[rng.integers(len(keeps))],
            trims[rng.integers(len(trims))],
        )
        protected = bool(rng.integers(2))

        def rule(messages: Sequence[Message]) -> Forecast:
            head = 1 if protected and messages[0]["role"] == "system" else 0
            if len(messages) == head:
                return forecast([True] * head)
            window = middleware_window(
                sized(messages[head:], tokens), trigger=trigger, keep=keep, trim_tokens_to_summarize=trim
            )
            return _of_window(window, len(messages) - head, head)

        compactor = LangChainMiddlewareCompactor(summariser(), trigger, keep, trim, protected=protected)
        return f"langchain({trigger}, {keep}, {trim}, protected {protected})", compactor, rule

    return run_sweep(cases, seed, draw)


# -- autogen and agent-framework -----------------------------------------------------------------------


def _words(messages: Sequence[Message]) -> int:
    """A count of tokens that adds up over messages."""
    return sum(len(str(m.get("content") or "").split()) + 2 for m in messages)


def _spread(turns: Sequence[Sequence[Message]], flags: Visible) -> Visible:
    """A flag a turn as a flag a message."""
    sizes = [len(turn) for turn in turns]
    return np.repeat(np.asarray(flags, dtype=np.bool_), sizes)


def autogen(cases: int, seed: int) -> Tally:
    """The three model contexts of AutoGen; none has a summariser, so what goes is trimmed."""
    from refork_methods.pin.frameworks.autogen import AutoGenContextCompactor
    from refork_methods.pin.frameworks.rules_autogen import buffered, head_and_tail, token_limited
    from refork_methods.pin.frameworks.turns import turns

    def draw(rng: np.random.Generator) -> tuple[str, Compactor, Rule]:
        kind, size = int(rng.integers(3)), int(rng.integers(1, 15))
        head, limit = int(rng.integers(1, 7)), int(rng.integers(1, 160))
        compactor = (
            AutoGenContextCompactor.buffered(size),
            AutoGenContextCompactor.head_and_tail(head, size),
            AutoGenContextCompactor.token_limited(limit, _words),
        )[kind]

        def rule(messages: Sequence[Message]) -> Forecast:
            found = turns(messages)
            calls = np.array([bool(t[0].get("tool_calls")) for t in found], dtype=np.bool_)
            results = np.array([t[0]["role"] == "tool" for t in found], dtype=np.bool_)
            counts = np.array([_words(t) for t in found], dtype=np.int64)
            shown = (
                buffered(results, size),
                head_and_tail(calls, results, head, size),
                token_limited(counts, results, limit),
            )[kind]
            return forecast(_spread(found, shown))

        return compactor.name, compactor, rule

    return run_sweep(cases, seed, draw, late=0.15, headless=True)


class Words:
    """White-space separated words, as agent-framework's tokenizer."""

    def count_tokens(self, text: str) -> int:
        """Their number."""
        return len(text.split())


def agent_framework(cases: int, seed: int) -> Tally:
    """Six strategies of agent-framework, by groups, by tokens, and with a summariser."""
    from refork_methods.pin.frameworks.turns import turns

    def draw(rng: np.random.Generator) -> tuple[str, Compactor, Rule]:
        label, compactor, shown, asks = _strategy(rng)

        def rule(messages: Sequence[Message]) -> Forecast:
            found = turns(messages)
            flags = _spread(found, shown(found, messages))
            return forecast(flags, ~flags if asks else None)

        return label, compactor, rule

    return run_sweep(cases, seed, draw, late=0.15)


def _strategy(
    rng: np.random.Generator,
) -> tuple[str, Compactor, Callable[[Any, Sequence[Message]], Visible], bool]:
    """A drawn strategy: its compactor, its closed form over turns, and whether it asks a summariser."""
    import agent_framework as af

    from refork_methods.pin.frameworks import rules_agent_framework as rules
    from refork_methods.pin.frameworks.agent_framework import AgentFrameworkCompactor
    from refork_methods.pin.frameworks.agent_framework_client import FrameworkChatClient
    from refork_methods.pin.frameworks.agent_framework_messages import to_framework

    def sizes(messages: Sequence[Message]) -> NDArray[np.int64]:
        items = to_framework(messages)
        af.annotate_message_groups(items, tokenizer=Words())
        return np.array([item.additional_properties["_group"]["token_count"] for item in items])

    n, m, system = int(rng.integers(1, 14)), int(rng.integers(1, 14)), bool(rng.integers(2))
    most, least = max(n, m), min(n, m)
    tokens = int(rng.integers(5, 200))
    client = FrameworkChatClient(summariser())
    kinds: list[tuple[str, Any, Callable[[Any, Any, Sequence[Message]], Visible]]] = [
        (
            f"truncation({most}, {least}, system {system})",
            af.TruncationStrategy(max_n=most, compact_to=least, preserve_system=system),
            lambda g, k, _: rules.truncated(g, k, np.ones(len(g), dtype=int), most, least, system),
        ),
        (
            f"truncation({tokens} tokens)",
            af.TruncationStrategy(max_n=tokens, compact_to=tokens // 2 + 1, tokenizer=Words()),
            lambda g, k, h: rules.truncated(g, k, sizes(h), tokens, tokens // 2 + 1),
        ),
        (
            f"sliding window({n}, system {system})",
            af.SlidingWindowStrategy(keep_last_groups=n, preserve_system=system),
            lambda g, k, _: rules.windowed(g, k, n, system),
        ),
        (
            f"selective tool calls({n - 1})",
            af.SelectiveToolCallCompactionStrategy(keep_last_tool_call_groups=n - 1),
            lambda g, k, _: rules.selected(g, k, n - 1),
        ),
        (
            f"token budget({tokens})",
            af.TokenBudgetComposedStrategy(token_budget=tokens, tokenizer=Words(), strategies=[]),
            lambda g, k, h: rules.budgeted(g, k, sizes(h), tokens),
        ),
        (
            f"summarization({n}, {m - 1})",
            af.SummarizationStrategy(
                client=client, target_count=n, threshold=m - 1, max_summary_input_tokens=None
            ),
            lambda g, k, _: ~rules.summarised(g, k, n, m - 1),
        ),
    ]
    label, strategy, distribution = kinds[int(rng.integers(len(kinds)))]

    def shown(found: Any, messages: Sequence[Message]) -> Visible:
        group, kind = rules.groups(found)
        return np.asarray(distribution(group, kind, messages), dtype=np.bool_)

    return label, AgentFrameworkCompactor(strategy), shown, label.startswith("summarization")


# -- the strategies without a framework ----------------------------------------------------------------


def builtin(cases: int, seed: int) -> Tally:
    """Truncation, head and tail, a summary, summaries of summaries."""
    from refork_methods.pin.strategies import HeadTail, Hierarchical, Summarise, Truncate

    def draw(rng: np.random.Generator) -> tuple[str, Compactor, Rule]:
        budget, kind = int(rng.integers(5, 260)), int(rng.integers(4))
        head, keep, chunk = (int(rng.integers(1, 6)) for _ in range(3))
        compactor: Compactor = (
            Truncate(budget, _words),
            HeadTail(budget, head, keep, _words),
            Summarise(summariser(), budget, keep, counter=_words),
            Hierarchical(summariser(), budget, keep, chunk=chunk, counter=_words),
        )[kind]

        def rule(messages: Sequence[Message]) -> Forecast:
            return _builtin_law(messages, kind, budget, head, keep)

        return f"{compactor.name}({budget}, {head}, {keep})", compactor, rule

    return run_sweep(cases, seed, draw, late=0.15, headless=True)


def _builtin_law(messages: Sequence[Message], kind: int, budget: int, head: int, keep: int) -> Forecast:
    """In closed form, over messages behind the leading system messages, which always stay."""
    top = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
    sizes = np.array([_words([m]) for m in messages])
    n = len(messages)
    fixed = np.arange(n) < top
    if sizes.sum() <= budget:
        return forecast(np.ones(n, dtype=np.bool_))
    free = [i for i in range(top, n) if messages[i]["role"] != "tool"]
    if kind == 0:
        room = budget - sizes[:top].sum()
        starts = [i for i in free if i > top] + ([n - 1] if n > top else [])
        start = next((i for i in sorted(set(starts)) if sizes[i:].sum() <= room), n - 1)
        return forecast(fixed | (np.arange(n) >= max(start, top)))
    back = max(n - keep, top)
    tail = max([i for i in free if i <= back], default=top) if back < n else n
    if kind == 1:
        wish = min(top + head, n)
        end = min([i for i in free if i >= wish], default=n)
        return forecast(fixed | (np.arange(n) < end) | (np.arange(n) >= tail))
    if tail == top:
        return forecast(np.ones(n, dtype=np.bool_))
    return forecast(fixed | (np.arange(n) >= tail), (np.arange(n) >= top) & (np.arange(n) < tail))


HARNESSES: dict[str, Callable[[int, int], Tally]] = {
    "langmem": langmem,
    "langgraph": langgraph,
    "langchain": langchain,
    "autogen": autogen,
    "agent-framework": agent_framework,
    "builtin": builtin,
}
