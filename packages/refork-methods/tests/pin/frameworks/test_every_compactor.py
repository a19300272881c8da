"""What every framework's compactor keeps: one table of adapters, one test for each promise."""

import asyncio

import pytest
from agent_framework import SlidingWindowStrategy, TokenBudgetComposedStrategy, TruncationStrategy
from autogen_core.model_context import UnboundedChatCompletionContext

from pin.frameworks.histories import MAIL, call, drawn, numbering, result, words
from pin.frameworks.test_agent_framework import Words, strategies, summary
from refork.chat import ScriptedChat
from refork.compaction import Compactor, fate, with_ids
from refork.errors import BadInput
from refork_methods.pin import PinnedBuffer, PinnedCompactor
from refork_methods.pin.frameworks import (
    AgentFrameworkCompactor,
    AutoGenContextCompactor,
    LangChainMiddlewareCompactor,
    LangGraphNodeCompactor,
    LangMemCompactor,
)
from refork_methods.pin.frameworks.agent_framework_messages import (
    FrameworkShape,
    from_framework,
    to_framework,
)
from refork_methods.pin.frameworks.autogen_messages import AutoGenShape, from_autogen, to_autogen
from support.chat_histories import RULE, adversaries, plain, tokens

SIX, TWO = ("messages", 6), ("messages", 2)

#: Of a summariser's function: a compactor that fires on a dozen turns and asks it.
ASKING = {
    "langmem": lambda say: LangMemCompactor(ScriptedChat(say), 200, None, 60),
    "langgraph": lambda say: LangGraphNodeCompactor(ScriptedChat(say)),
    "langchain": lambda say: LangChainMiddlewareCompactor(ScriptedChat(say), SIX, TWO),
    "langchain, trimmed": lambda say: LangChainMiddlewareCompactor(ScriptedChat(say), SIX, TWO, 150),
    "agent-framework": lambda say: AgentFrameworkCompactor(summary(lambda shown: say([{"content": shown}]))),
    "agent-framework, budget": lambda say: AgentFrameworkCompactor(
        strategies(lambda shown: say([{"content": shown}]))[6]
    ),
}
#: Compactors that fire on a dozen turns and ask nobody.
SILENT = {
    "autogen buffered": AutoGenContextCompactor.buffered(3),
    "autogen buffered to one": AutoGenContextCompactor.buffered(1),
    "autogen head and tail": AutoGenContextCompactor.head_and_tail(1, 2),
    **{
        f"agent-framework {type(s).__name__} {n}": AgentFrameworkCompactor(s)
        for n, s in enumerate(strategies())
        if not hasattr(s, "client")
    },
}
EVERY = {name: make(lambda messages: "so far") for name, make in ASKING.items()} | SILENT
every = pytest.mark.parametrize("name", EVERY)


@every
def test_it_is_a_compactor_and_asks_for_ids_that_differ(name):
    compactor = EVERY[name]
    assert isinstance(compactor, Compactor)
    with pytest.raises(BadInput, match="no id"):
        compactor.compact([{"role": "user", "content": "x"}])
    with pytest.raises(BadInput, match="id 'a'"):
        compactor.compact([{"role": "user", "content": "x", "id": "a"}] * 2)


@every
def test_nothing_to_compact(name):
    for messages in ([], [{"role": "system", "content": "Be kind.", "id": "s"}]):
        found = EVERY[name].compact(messages)
        assert not found.fired
        assert list(found.messages) == messages
        assert found.calls == ()


@every
def test_it_works_inside_a_running_loop_as_outside(name):
    async def inside():
        return EVERY[name].compact(plain(12))

    assert asyncio.run(inside()) == EVERY[name].compact(plain(12))


@pytest.mark.parametrize(
    "compactor",
    [
        LangMemCompactor(ScriptedChat([]), 5000),
        LangGraphNodeCompactor(ScriptedChat([])),
        LangChainMiddlewareCompactor(ScriptedChat([]), None),
        AutoGenContextCompactor(UnboundedChatCompletionContext()),
        AutoGenContextCompactor.buffered(6),
        AutoGenContextCompactor.head_and_tail(3, 3),
        AutoGenContextCompactor.token_limited(words(plain(6)), words),
        AgentFrameworkCompactor(TruncationStrategy(max_n=6, compact_to=1)),
        AgentFrameworkCompactor(SlidingWindowStrategy(keep_last_groups=6)),
        AgentFrameworkCompactor(summary(str, target=5, threshold=1)),
        AgentFrameworkCompactor(
            TokenBudgetComposedStrategy(token_budget=10_000, tokenizer=Words(), strategies=[])
        ),
        *(
            LangChainMiddlewareCompactor(ScriptedChat([]), trigger, keep)
            for trigger, keep in [(("tokens", 100_000), TWO), (("messages", 7), TWO), (SIX, SIX)]
        ),
    ],
    ids=lambda one: one.name,
)
def test_a_trigger_that_is_not_reached_leaves_the_history(compactor):
    messages = plain(6)
    found = compactor.compact(messages)
    assert not found.fired
    assert list(found.messages) == messages
    assert (found.calls, found.dropped) == ((), ())


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_summary_is_refused_also_under_the_pin(name, text):
    compactor = ASKING[name](lambda messages: text)
    for one in (compactor, PinnedCompactor(compactor, MAIL)):
        with pytest.raises(BadInput, match="empty text"):
            one.compact(plain(12))


@pytest.mark.parametrize(
    ("name", "attack"),
    [
        *((name, attack) for name in ASKING for attack in adversaries(MAIL)),
        *((name, None) for name in SILENT),
    ],
)
def test_a_pin_outlives_twenty_rounds(name, attack):
    inner = SILENT[name] if attack is None else ASKING[name](adversaries(MAIL)[attack])
    compactor = PinnedCompactor(inner, MAIL)
    context, fired = MAIL.apply(plain(1)), 0
    for turn in range(20):
        more = [
            *({**m, "id": f"{turn}.{i}"} for i, m in enumerate(plain(20))),
            call("k"),
            result("k", MAIL.text),
        ]
        found = compactor.compact(with_ids([*context, *more], f"x{turn}."))
        fired += found.fired
        assert MAIL.check(found.messages).ok
        assert sum(m["content"] == MAIL.text for m in found.messages) == 1
        assert not any(MAIL.text in str(m["content"]) for one in found.calls for m in one.prompt)
        context = list(found.messages)
    assert fired >= 10


@pytest.mark.parametrize("name", ["langmem", "langchain"])
def test_a_pin_costs_its_own_tokens_and_no_call(name):
    messages = plain(12)
    bare = ASKING[name](lambda messages: "so far").compact(messages)
    pinned = PinnedCompactor(ASKING[name](lambda messages: "so far"), MAIL).compact(messages)
    assert len(bare.calls) == len(pinned.calls) == 1
    # The user's own copy of the rule may go: the operator's is counted apart.
    assert tokens(pinned.messages) == tokens(bare.messages) + tokens(
        [{"role": "system", "content": MAIL.text}]
    )


@pytest.mark.parametrize(
    ("compactor", "fires"),
    [
        (LangMemCompactor(numbering(), 8, None, 1, counter=len), 8),
        (LangChainMiddlewareCompactor(numbering(), ("tokens", 8), TWO, counter=len), 8),
        (LangGraphNodeCompactor(numbering(), 50, counter=lambda messages: 10 * len(messages)), 6),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_a_counter_of_ours(compactor, fires):
    assert not compactor.compact(plain(fires - 1)).fired
    assert compactor.compact(plain(fires)).fired


@pytest.mark.parametrize(
    "make",
    [
        lambda **more: LangGraphNodeCompactor(numbering(), **more),
        lambda **more: LangChainMiddlewareCompactor(numbering(), SIX, TWO, **more),
    ],
    ids=["langgraph", "langchain"],
)
def test_only_a_prompt_outside_the_state_is_protected(make):
    head = {"role": "system", "content": RULE, "id": "policy"}
    messages = [head, *plain(12)[1:]]
    outside = make().compact(messages)
    assert fate(RULE, messages, outside) == "visible"
    assert outside.messages[0] == head
    assert fate(RULE, messages, make(protected=False).compact(messages)) == "omitted"


@pytest.mark.parametrize(
    "compactor",
    [LangMemCompactor(numbering(), 200, None, 60), LangGraphNodeCompactor(numbering())],
    ids=lambda one: one.name,
)
def test_the_second_summariser_is_shown_the_first_summary(compactor):
    one = compactor.compact(plain(12))
    two = compactor.compact([*one.messages, *({**m, "id": f"n{i}"} for i, m in enumerate(plain(12)[1:]))])
    assert "summary 1" in two.calls[0].prompt[-1]["content"]
    assert one.inserted[0] in two.seen
    assert one.inserted[0] in two.dropped
    assert two.inserted != one.inserted
    assert sum(str(m["content"]).startswith("Summary of") for m in two.messages) == 1


@pytest.mark.parametrize("ways", [(to_autogen, from_autogen), (to_framework, from_framework)])
@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hello", "name": "planner"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "yes", "reasoning_content": "hm"},
        call("a", "b"),
        {**call("a"), "content": "let me look"},
    ],
)
def test_a_message_comes_back_as_it_was(ways, message):
    there, back = ways
    assert back(there([message])) == [message]


@pytest.mark.parametrize("placement", ["head", "tail"])
@pytest.mark.parametrize(
    ("shape", "convert"), [(AutoGenShape(), to_autogen), (FrameworkShape(), to_framework)]
)
def test_placing_twice_changes_nothing(shape, convert, placement):
    buffer = PinnedBuffer(MAIL.constraints, placement=placement)
    for seed in range(5):
        items = convert([*drawn(seed, 20), {"role": "user", "content": buffer.text}])
        once = buffer.insert(items, shape)
        again = buffer.insert(once, shape)
        assert [shape.text(m) for m in again] == [shape.text(m) for m in once]
