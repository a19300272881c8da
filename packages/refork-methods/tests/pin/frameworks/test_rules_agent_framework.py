"""The closed forms against the installed agent-framework-core: every message, no tolerance."""

import asyncio

import numpy as np
import pytest
from agent_framework import (
    ContextWindowCompactionStrategy,
    SelectiveToolCallCompactionStrategy,
    SlidingWindowStrategy,
    SummarizationStrategy,
    TokenBudgetComposedStrategy,
    ToolResultCompactionStrategy,
    TruncationStrategy,
    annotate_message_groups,
)

from pin.frameworks.histories import call, chat, drawn, result
from refork.chat import ScriptedChat
from refork.compaction import with_ids
from refork_methods.pin.frameworks.agent_framework import AgentFrameworkCompactor
from refork_methods.pin.frameworks.agent_framework_client import FrameworkChatClient
from refork_methods.pin.frameworks.agent_framework_messages import to_framework
from refork_methods.pin.frameworks.rules_agent_framework import (
    budgeted,
    groups,
    selected,
    summarised,
    truncated,
    windowed,
)
from refork_methods.pin.frameworks.turns import turns

SEEDS = range(10)


class Words:
    """White-space separated words, the same for every numbering."""

    def count_tokens(self, text):
        return len(text.split())


def history_of(seed):
    return drawn(seed, 4 + 3 * seed, system=0.15, stray=0.25 if seed % 2 else 0.0)


def shown(strategy, history):
    kept = {m["id"] for m in AgentFrameworkCompactor(strategy).compact(history).messages}
    found = [{m["id"] in kept for m in turn} for turn in turns(history)]
    assert all(len(one) == 1 for one in found)
    return np.array([one.pop() for one in found])


def tokens_of(history):
    """What the package itself writes on each message."""
    items = to_framework(history)
    annotate_message_groups(items, tokenizer=Words())
    return np.array([item.additional_properties["_group"]["token_count"] for item in items])


@pytest.mark.parametrize("seed", range(25))
def test_groups(seed):
    history = history_of(seed)
    items = to_framework(history)
    annotate_message_groups(items)
    real = [item.additional_properties["_group"] for item in items]
    number = {key: at for at, key in enumerate(dict.fromkeys(one["id"] for one in real))}
    group, kind = groups(turns(history))
    assert group.tolist() == [number[one["id"]] for one in real]
    named = {"assistant": "assistant_text", "tools": "tool_call"}
    assert [named.get(k, k) for k in kind] == [one["kind"] for one in real]


@pytest.mark.parametrize(
    "said",
    [
        [call("a"), call("b"), result("a"), result("b")],
        [call("a"), {"role": "user", "content": "x"}, result("a"), call("a"), result("a")],
        [call("a"), call("a"), {"role": "user", "content": "x"}, result("a")],
        [result("gone"), {"role": "user", "content": "x"}, call("a", "b"), result("b"), result("a")],
        [{"role": "developer", "content": "x"}, call("a"), {"role": "user", "content": "x"}],
    ],
)
def test_groups_of_results_that_stand_apart(said):
    items = to_framework(said)
    annotate_message_groups(items)
    real = [item.additional_properties["_group"]["id"] for item in items]
    number = {key: at for at, key in enumerate(dict.fromkeys(real))}
    assert groups(turns(said))[0].tolist() == [number[key] for key in real]


#: Strategies beside their closed forms, which take (group, kind, tokens of each message).
STRATEGIES = [
    *(
        (
            TruncationStrategy(max_n=most, compact_to=least, preserve_system=system),
            lambda g, k, _, a=(most, least, system): truncated(g, k, np.ones(len(g), dtype=int), *a),
        )
        for most, least in [(1, 1), (4, 2), (8, 8), (12, 5), (60, 3)]
        for system in (True, False)
    ),
    *(
        (
            TruncationStrategy(max_n=most, compact_to=least, tokenizer=Words()),
            lambda g, k, tokens, a=(most, least): truncated(g, k, tokens, *a),
        )
        for most, least in [(20, 20), (100, 50), (150, 20), (5000, 100)]
    ),
    *(
        (
            SlidingWindowStrategy(keep_last_groups=keep, preserve_system=system),
            lambda g, k, _, a=(keep, system): windowed(g, k, *a),
        )
        for keep in (1, 2, 5, 11, 40)
        for system in (True, False)
    ),
    *(
        (make(keep_last_tool_call_groups=keep), lambda g, k, _, a=keep: selected(g, k, a))
        for make in (SelectiveToolCallCompactionStrategy, ToolResultCompactionStrategy)
        for keep in (0, 1, 3, 9)
    ),
    *(
        (
            TokenBudgetComposedStrategy(token_budget=budget, tokenizer=Words(), strategies=[]),
            lambda g, k, tokens, a=budget: budgeted(g, k, tokens, a),
        )
        for budget in (5, 40, 90, 200, 5000)
    ),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("strategy", "rule"), STRATEGIES, ids=[f"{n} {type(s).__name__}" for n, (s, _) in enumerate(STRATEGIES)]
)
def test_what_a_strategy_shows(seed, strategy, rule):
    history = history_of(seed)
    group, kind = groups(turns(history))
    np.testing.assert_array_equal(rule(group, kind, tokens_of(history)), shown(strategy, history))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("target", "threshold"), [(1, 0), (2, 2), (4, 2), (9, 0), (50, 0)])
def test_summary_without_a_limit(seed, target, threshold):
    history = history_of(seed)
    group, kind = groups(turns(history))
    asked = summarised(group, kind, target, threshold)
    strategy = SummarizationStrategy(
        client=FrameworkChatClient(ScriptedChat(lambda _: "so far so good")),
        target_count=target,
        threshold=threshold,
        max_summary_input_tokens=None,
    )
    account = AgentFrameworkCompactor(strategy).compact(history)
    seen = [all(m["id"] in account.seen for m in turn) for turn in turns(history)]
    assert asked.tolist() == seen
    assert (~asked).tolist() == shown(strategy, history).tolist()
    assert account.fired == asked.any()


def test_an_early_rule_is_seen_by_the_summariser_and_a_late_one_is_not():
    # The reverse of packages that trim the front of what they summarise.
    strategy = SummarizationStrategy(
        client=FrameworkChatClient(ScriptedChat(lambda _: "so far so good")),
        target_count=2,
        threshold=0,
        prompt="p",
        max_summary_input_tokens=30,
        tokenizer=Words(),
    )
    compactor = AgentFrameworkCompactor(strategy)
    early = compactor.compact(chat(20, rule_at=0))
    assert early.seen[0] == "m0"
    assert early.dropped == early.seen
    late = compactor.compact(chat(20, rule_at=12))
    assert "m12" not in late.seen
    assert "m12" not in late.dropped  # what is not packed stays, so nothing is lost unseen


@pytest.mark.parametrize("seed", SEEDS)
def test_role_system_survives_where_it_is_preserved(seed):
    history = with_ids([{"role": "system", "content": "the rule"}, *history_of(seed)], "s")
    budget = ContextWindowCompactionStrategy(
        max_context_window_tokens=100, max_output_tokens=20, tokenizer=Words()
    )
    client = FrameworkChatClient(ScriptedChat(lambda _: "so far so good"))
    for strategy in (
        TruncationStrategy(max_n=3, compact_to=1),
        SlidingWindowStrategy(keep_last_groups=1),
        SummarizationStrategy(client=client, target_count=1, threshold=0),
        ToolResultCompactionStrategy(keep_last_tool_call_groups=0),
        SelectiveToolCallCompactionStrategy(keep_last_tool_call_groups=0),
        budget,
    ):
        assert AgentFrameworkCompactor(strategy).compact(history).messages[0] == history[0]


def test_a_strict_token_budget_evicts_even_system_messages():
    history = with_ids([{"role": "system", "content": "rule " * 50}, {"role": "user", "content": "go"}])
    strategy = TokenBudgetComposedStrategy(token_budget=15, tokenizer=Words(), strategies=[])
    assert asyncio.run(_excluded(strategy, history)) == [True, False]


async def _excluded(strategy, history):
    items = to_framework(history)
    await strategy(items)
    return [bool(item.additional_properties["_excluded"]) for item in items]
