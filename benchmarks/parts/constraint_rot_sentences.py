"""What is said of each package in a sentence, checked as it is said and not through a closed form."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from parts.constraint_rot_histories import RULE, Tally, plain
from parts.constraint_rot_rules import Words, summariser
from refork.compaction import fate
from refork.types import Message


def sentences(harness: str) -> Tally:
    """The sentences of one harness; none of our own strategies."""
    tally = Tally()
    if harness in _SENTENCES:
        _SENTENCES[harness](tally)
    return tally


def _autogen(tally: Tally) -> None:
    """Buffered(n): visible iff index >= N - n; head and tail: index 0 always."""
    from refork_methods.pin.frameworks.autogen import AutoGenContextCompactor

    for length in (4, 9, 20, 33):
        for size in (1, 3, 8, 20):
            history = plain(length)
            kept = {m["id"] for m in AutoGenContextCompactor.buffered(size).compact(history).messages}
            wanted = {m["id"] for i, m in enumerate(history) if i >= length - size}
            tally.check(kept == wanted, f"buffered({size}) of {length}")
            for head in (1, 2, 5):
                both = AutoGenContextCompactor.head_and_tail(head, size).compact(history)
                tally.check(history[0] in both.messages, f"head and tail({head}, {size}) of {length}")
            tally.cases += 1


def _langmem(tally: Tally) -> None:
    """A rule at index 0 is seen iff the span is within max_tokens; a system message there always stays."""
    from langchain_core.messages.utils import count_tokens_approximately

    from refork_methods.pin.frameworks.langchain_messages import to_langchain
    from refork_methods.pin.frameworks.langmem import LangMemCompactor

    for length in (8, 17, 30, 64):
        for budget in (120, 300, 600, 1200):
            for before in (None, budget // 2):
                history = plain(length)
                result = LangMemCompactor(summariser(), budget, before, budget // 4).compact(history)
                tally.cases += 1
                if result.fired:
                    span = [m for m in history if m["id"] in result.dropped]
                    over = count_tokens_approximately(to_langchain(span)) > budget
                    got = fate(RULE, history, result)
                    tally.check(got == ("trimmed" if over else "omitted"), f"langmem {length}: {got}")
                slot: list[Message] = [{"role": "system", "content": RULE, "id": "slot"}, *history[1:]]
                again = LangMemCompactor(summariser(), budget, before, budget // 4).compact(slot)
                tally.check(again.messages[0] == slot[0], f"langmem {length} {budget}: the slot was touched")
        # Without a user turn in the cut langmem shows the whole span after all.
        mute: list[Message] = [{**m, "role": "assistant"} for m in plain(length)]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Failed to trim messages", RuntimeWarning)
            whole = LangMemCompactor(summariser(), 100, 200, 10).compact(mute)
        tally.check(not whole.fired or fate(RULE, mute, whole) == "omitted", f"langmem {length}: mute")


def _langchain(tally: Tally) -> None:
    """The same of the middleware: ``system_prompt`` stays, a system message in the state does not."""
    from langchain_core.messages.utils import count_tokens_approximately

    from refork_methods.pin.frameworks.langchain import LangChainMiddlewareCompactor
    from refork_methods.pin.frameworks.langchain_messages import to_langchain

    for length in (8, 17, 30, 64):
        for trim in (60, 300, 600, 4000, None):
            history = plain(length)
            made = LangChainMiddlewareCompactor(summariser(), ("messages", 6), ("messages", 4), trim)
            result = made.compact(history)
            span = [m for m in history if m["id"] in result.dropped]
            over = trim is not None and count_tokens_approximately(to_langchain(span)) > trim
            got = fate(RULE, history, result)
            tally.cases += 1
            tally.check(got == ("trimmed" if over else "omitted"), f"langchain {length} {trim}: {got}")
            slot: list[Message] = [{"role": "system", "content": RULE, "id": "slot"}, *history[1:]]
            tally.check(made.compact(slot).messages[0] == slot[0], f"langchain {length}: prompt touched")
            state = LangChainMiddlewareCompactor(
                summariser(), ("messages", 6), ("messages", 4), trim, protected=False
            )
            lost = fate(RULE, slot, state.compact(slot))
            tally.check(lost == "omitted", f"langchain {length} {trim}: a system message of the state {lost}")
        # Without a user turn in the cut langchain asks nobody and puts a fixed sentence there.
        mute: list[Message] = [{**m, "role": "assistant"} for m in plain(length)]
        skipped = LangChainMiddlewareCompactor(summariser(), ("messages", 6), ("messages", 4)).compact(mute)
        unasked = skipped.fired and not skipped.calls and fate(RULE, mute, skipped) == "trimmed"
        tally.check(unasked, f"langchain {length}: mute")


def _langgraph(tally: Tally) -> None:
    """The node shows its summariser everything and keeps the last two; a system message of the state goes."""
    from refork_methods.pin.frameworks.langgraph import LangGraphNodeCompactor

    for length in (7, 8, 17, 30):
        history = plain(length)
        result = LangGraphNodeCompactor(summariser()).compact(history)
        tally.cases += 1
        tally.check(list(result.seen) == [m["id"] for m in history], f"langgraph {length}: not all was shown")
        tally.check(list(result.messages[-2:]) == history[-2:], f"langgraph {length}: the last two")
        tally.check(fate(RULE, history, result) == "omitted", f"langgraph {length}: the rule")
        slot: list[Message] = [{"role": "system", "content": RULE, "id": "slot"}, *history[1:]]
        state = LangGraphNodeCompactor(summariser(), protected=False).compact(slot)
        tally.check(fate(RULE, slot, state) == "omitted", f"langgraph {length}: a system message")


def _agent_framework(tally: Tally) -> None:
    """Role system survives the strategies' defaults; an early rule is shown to the summariser first."""
    import agent_framework as af

    from refork_methods.pin.frameworks.agent_framework import AgentFrameworkCompactor
    from refork_methods.pin.frameworks.agent_framework_client import FrameworkChatClient

    client = FrameworkChatClient(summariser())
    for length in (8, 17, 30, 64):
        history = plain(length)
        slot: list[Message] = [{"role": "system", "content": RULE, "id": "slot"}, *history[1:]]
        for strategy in (
            af.TruncationStrategy(max_n=3, compact_to=1),
            af.SlidingWindowStrategy(keep_last_groups=1),
            af.SummarizationStrategy(client=client, target_count=1, threshold=0),
        ):
            kept = AgentFrameworkCompactor(strategy).compact(slot).messages[0]
            tally.check(kept == slot[0], f"agent-framework {type(strategy).__name__} {length}: role system")
        packed = af.SummarizationStrategy(
            client=client,
            target_count=1,
            threshold=0,
            prompt="p",
            max_summary_input_tokens=60,
            tokenizer=Words(),
        )
        result = AgentFrameworkCompactor(packed).compact(history)
        tally.cases += 1
        tally.check(fate(RULE, history, result) == "omitted", f"agent-framework {length}: an early rule")
        tally.check(set(result.dropped) == set(result.seen), f"agent-framework {length}: dropped unseen")


_SENTENCES: dict[str, Callable[[Tally], None]] = {
    "langmem": _langmem,
    "langgraph": _langgraph,
    "langchain": _langchain,
    "autogen": _autogen,
    "agent-framework": _agent_framework,
}
