"""The closed forms of what is shown and kept, against what the installed packages really do. No tolerance."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import SystemMessage
from langchain_core.messages.utils import count_tokens_approximately

from refork.chat import ScriptedChat
from refork.compaction import fate
from refork_methods.pin.frameworks.langchain import LangChainMiddlewareCompactor
from refork_methods.pin.frameworks.langgraph import LangGraphNodeCompactor
from refork_methods.pin.frameworks.langmem import LangMemCompactor
from refork_methods.pin.frameworks.rules_langchain import (
    langmem_window,
    middleware_window,
    sized,
    summary_node_window,
    trimmed,
)
from support.chat_histories import RULE, histories, plain, tokens

# langmem itself warns where it falls back to the whole span; that case is part of what is tested.
falls_back = pytest.mark.filterwarnings("ignore:Failed to trim messages:RuntimeWarning")


def quiet():
    return ScriptedChat(lambda messages: "S")


def agree(window, messages, result, offset=0):
    """Prediction and reality, message by message."""
    assert result.fired == window.fired
    left = {m["id"] for m in result.messages}
    shown = [m for call in result.calls for m in call.prompt]
    for index, message in enumerate(messages[offset:]):
        assert (message["id"] in left) == window.visible(index), (index, result.reason)
        assert (message["id"] in result.seen) == window.touched(index), (index, result.reason)
        if len(shown) > 1:  # one that sends messages, not one text
            assert (message in shown) == window.covers(index)
    # Nothing but the summary comes between the two contexts.
    kept = [m for i, m in enumerate(messages[offset:]) if window.visible(i)]
    old = {m["id"] for m in messages[offset:]}
    assert [m for m in result.messages if m["id"] in old] == kept
    assert len(result.inserted) == window.fired
    assert bool(result.calls) == (window.fired and window.asked)


@falls_back
@settings(max_examples=150)
@given(histories(system=True), st.integers(20, 150), st.integers(1, 200), st.booleans())
def test_langmem_does_what_the_rule_says(messages, budget, before, own_trigger):
    before = before if own_trigger else None
    reserve = budget // 3
    result = LangMemCompactor(quiet(), budget, before, reserve).compact(messages)
    head = messages[:1] if messages[0]["role"] == "system" else []
    window = langmem_window(
        sized(messages[len(head) :], tokens),
        max_tokens=budget,
        max_tokens_before_summary=before,
        max_summary_tokens=reserve,
        system=tokens(head),
    )
    agree(window, messages, result, len(head))
    assert list(result.messages[: len(head)]) == head


@falls_back
@settings(max_examples=60)
@given(histories(), histories(), st.integers(40, 150), st.booleans())
def test_langmem_second_round_with_a_running_summary_and_a_system_message(first, more, budget, with_system):
    head = [{"role": "system", "content": "Be kind.", "id": "sys"}] if with_system else []
    compactor = LangMemCompactor(quiet(), budget, None, budget // 3)
    one = compactor.compact([*head, *first])
    new = [{**m, "id": f"n{i}"} for i, m in enumerate(more)]
    history = [*one.messages, *new]
    two = compactor.compact(history)
    bare = [m for m in history if m["role"] != "system"]
    summary = count_tokens_approximately([SystemMessage(content="S")]) if one.fired else 0
    window = langmem_window(
        sized(bare, tokens),
        max_tokens=budget,
        max_summary_tokens=budget // 3,
        system=tokens(head),
        summary=summary,
    )
    agree(window, bare, two)
    if head:
        assert two.messages[0] == head[0]


@settings(max_examples=250)
@given(
    histories(system=True),
    st.sampled_from([("messages", 1), ("messages", 5), ("tokens", 1), ("tokens", 60), ("tokens", 400), None]),
    st.sampled_from([("messages", 1), ("messages", 3), ("tokens", 1), ("tokens", 40), ("tokens", 90)]),
    st.none() | st.integers(5, 150),
)
def test_the_middleware_does_what_the_rule_says(messages, trigger, keep, trim):
    compactor = LangChainMiddlewareCompactor(quiet(), trigger, keep, trim, protected=False)
    window = middleware_window(
        sized(messages, tokens), trigger=trigger, keep=keep, trim_tokens_to_summarize=trim
    )
    agree(window, messages, compactor.compact(messages))


@settings(max_examples=60)
@given(histories(system=True), st.integers(1, 8), st.integers(1, 5))
def test_the_summary_node_does_what_the_rule_says(messages, trigger, keep):
    result = LangGraphNodeCompactor(quiet(), trigger, keep, protected=False).compact(messages)
    agree(summary_node_window(len(messages), trigger=trigger, keep=keep), messages, result)


# -- a rule of one line, told by the user -------------------------------------------------------------


@pytest.mark.parametrize("count", [8, 17, 30, 64])
@pytest.mark.parametrize("budget", [120, 300, 900])
@pytest.mark.parametrize("wide", [False, True], ids=["default trigger", "half the budget"])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
@falls_back
def test_langmem_shows_a_rule_unless_the_span_is_over_the_budget(count, budget, wide, place):
    at = {"first": 0, "middle": count // 2, "last": count - 1}[place]
    messages = plain(count, at)
    before = budget // 2 if wide else None
    result = LangMemCompactor(quiet(), budget, before, budget // 4).compact(messages)
    history = sized(messages, tokens)
    window = langmem_window(
        history, max_tokens=budget, max_tokens_before_summary=before, max_summary_tokens=budget // 4
    )
    assert fate(RULE, messages, result) == window.fate(at)
    if window.fired and place == "first":
        over = history.span(0, window.stop) > budget
        assert window.covers(0) == (not over)


@pytest.mark.parametrize("count", [8, 17, 30, 64])
@pytest.mark.parametrize("trim", [60, 300, 900, None])
@pytest.mark.parametrize("keep", [("messages", 4), ("tokens", 100)])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_the_middleware_shows_a_rule_unless_the_span_is_over_its_trim(count, trim, keep, place):
    at = {"first": 0, "middle": count // 2, "last": count - 1}[place]
    messages = plain(count, at)
    result = LangChainMiddlewareCompactor(quiet(), ("messages", 6), keep, trim).compact(messages)
    history = sized(messages, tokens)
    window = middleware_window(history, trigger=("messages", 6), keep=keep, trim_tokens_to_summarize=trim)
    assert fate(RULE, messages, result) == window.fate(at)
    if place == "first":
        assert window.covers(0) == (trim is None or history.span(0, window.stop) <= trim)


def test_a_span_of_exactly_the_budget_is_not_cut():
    messages = plain(9)
    whole = tokens(messages)
    result = LangMemCompactor(quiet(), whole, None, 1).compact(messages)
    assert result.fired
    assert fate(RULE, messages, result) == "omitted"
    over = LangMemCompactor(quiet(), whole - 1, whole, 1).compact(messages)
    assert fate(RULE, messages, over) == "trimmed"


def test_a_suffix_of_exactly_the_limit_is_shown_whole():
    history = sized(plain(9), tokens)
    assert history.human[2]
    assert trimmed(history, 0, 9, history.span(2, 9)) == (2, 0)
    assert trimmed(history, 0, 9, history.span(2, 9) - 1) != (2, 0)


def test_the_last_lines_of_a_cut_message_are_shown():
    messages = plain(9)
    messages[0] = {**messages[0], "content": "\n".join(["word " * 60, RULE])}
    budget = tokens(messages) - 20
    result = LangMemCompactor(quiet(), budget, budget + 20, 1).compact(messages)
    window = langmem_window(
        sized(messages, tokens),
        max_tokens=budget,
        max_tokens_before_summary=budget + 20,
        max_summary_tokens=1,
    )
    assert (window.start, window.lines, window.covers(0), window.touched(0)) == (1, 1, False, True)
    assert fate(RULE, messages, result) == "omitted"
    assert "m0" in result.seen


def test_the_middleware_shows_the_last_lines_of_a_cut_message():
    messages = plain(9)
    messages[0] = {**messages[0], "content": "\n".join(["word " * 60, RULE])}
    trim = tokens(messages[:-2]) - 20
    settings = {"keep": ("messages", 2), "trim_tokens_to_summarize": trim}
    result = LangChainMiddlewareCompactor(quiet(), ("messages", 5), **settings).compact(messages)
    window = middleware_window(sized(messages, tokens), trigger=("messages", 5), **settings)
    assert (window.start, window.lines, window.covers(0), window.touched(0)) == (1, 1, False, True)
    agree(window, messages, result)
    assert result.seen[0] == "m0"
    assert fate(RULE, messages, result) == "omitted"


def test_no_user_turn_in_the_cut():
    messages = plain(9)
    silent = [{**m, "role": "assistant"} for m in messages]
    history = sized(silent, tokens)
    assert trimmed(history, 0, 9, 100) is None
    with pytest.warns(RuntimeWarning, match="Failed to trim messages"):
        whole = LangMemCompactor(quiet(), 100, 200, 10).compact(silent)
    assert fate(RULE, silent, whole) == "omitted"
    skipped = LangChainMiddlewareCompactor(quiet(), ("messages", 5), ("messages", 2)).compact(silent)
    assert skipped.fired
    assert skipped.calls == ()
    assert "without asking" in skipped.reason
    assert "too long to summarize" in skipped.messages[0]["content"]
    assert fate(RULE, silent, skipped) == "trimmed"


def test_a_window_that_does_not_fire_keeps_everything():
    window = summary_node_window(6)
    assert not window.fired
    assert all(window.visible(i) and not window.covers(i) and window.fate(i) == "visible" for i in range(6))


def test_the_middleware_always_shows_a_system_message_that_opens_the_state():
    messages = [{"role": "system", "content": RULE, "id": "s"}, *plain(20, rule_at=19)[:-1]]
    for silent in (False, True):
        state = [{**m, "role": "assistant"} if silent and m["role"] == "user" else m for m in messages]
        compactor = LangChainMiddlewareCompactor(
            quiet(), ("messages", 5), ("messages", 2), 60, protected=False
        )
        result = compactor.compact(state)
        window = middleware_window(
            sized(state, tokens), trigger=("messages", 5), keep=("messages", 2), trim_tokens_to_summarize=60
        )
        agree(window, state, result)
        assert window.asked
        assert (window.start == window.stop) == silent
        assert fate(RULE, state, result) == window.fate(0) == "omitted"
