"""Compactors by name, as the command line and recipes write them.

=============================  ========================================================================
``truncate``                   drop the oldest messages until the budget holds
``head-tail?head=1&tail=4``    keep both ends
``summarise?keep=2``           one summary by the summariser
``hierarchical?chunk=6``       summaries of chunks, then one of these
``langmem?before=N``           langmem's ``summarize_messages``; of a budget under 512 tokens half is reserved
                               for the summary, else the package's own 256
``langgraph?keep=2``           langgraph's documented summary node
``langchain?keep=4&trim=N``    langchain's ``SummarizationMiddleware`` (trim: its trim_tokens_to_summarize)
``autogen-buffered?size=8``    AutoGen's buffered context, and ``autogen-head-tail``, ``autogen-token``
``agent-framework-summarise``  agent-framework's strategies, also ``-truncate`` and ``-sliding``
=============================  ========================================================================

The budget in tokens is what makes a compactor fire, where it counts tokens at all. Other packages add theirs
as entry points of the group ``refork.compactors``, each a :class:`CompactorKind`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, final

from refork import registry
from refork.chat import ChatModel, Reply
from refork.compaction import Compactor, approximate_tokens
from refork.errors import BadInput
from refork.types import Json, Message
from refork.worlds.spec import Spec
from refork_methods.pin.strategies import (
    HeadTail,
    Hierarchical,
    Summarise,
    Truncate,
)

#: Tokens at which a compactor fires and words that a summary may have, unless something else is asked for.
MAX_TOKENS, WORDS = 600, 80
#: What langmem reserves for a summary by itself.
_ROOM: Final = 256


@final
class WordLimit:
    """A chat model whose answers end after so many words, as a completion limit would end them."""

    def __init__(self, model: ChatModel, words: int) -> None:
        self.model = model
        self.words = words

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """The model's answer, cut at the limit."""
        found = self.model.reply(messages, tools=tools, draw=draw)
        words = found.text.split()
        if len(words) <= self.words:
            return found
        cut = {**found.message, "content": " ".join(words[: self.words])}
        return replace(found, message=cut, finish="length")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a maker gets: the options of the name, the budget, and the summariser, which it may insist on."""

    name: str
    options: dict[str, Any]
    budget: int
    words: int
    model: ChatModel | None
    draw: int

    def number(self, key: str, default: int) -> int:
        """An option that is a whole number."""
        value = self.options.get(key, default)
        assert isinstance(value, int)
        return value

    def summariser(self, *, limited: bool = True) -> ChatModel:
        """The model that summarises, cut at the words if ``limited``; BadInput where there is none."""
        if self.model is None:
            raise BadInput(
                f"{self.name} needs a summariser",
                hint="--summariser SPEC, such as a local model or openai:URL#MODEL",
            )
        return WordLimit(self.model, self.words) if limited else self.model


def _truncate(w: Wanted) -> Compactor:
    return Truncate(w.budget)


def _head_tail(w: Wanted) -> Compactor:
    return HeadTail(w.budget, w.number("head", 1), w.number("tail", 4))


def _summarise(w: Wanted) -> Compactor:
    model = w.summariser(limited=False)
    return Summarise(model, w.budget, w.number("keep", 2), w.words, draw=w.draw)


def _hierarchical(w: Wanted) -> Compactor:
    model = w.summariser(limited=False)
    return Hierarchical(model, w.budget, w.number("keep", 2), w.words, w.number("chunk", 6), draw=w.draw)


def _langmem(w: Wanted) -> Compactor:
    from refork_methods.pin.frameworks.langmem import LangMemCompactor

    before = w.options.get("before")
    # langmem reserves 256 tokens for the summary and refuses a smaller budget: here half of it at most.
    room = max(1, min(_ROOM, w.budget // 2))
    return LangMemCompactor(w.summariser(), w.budget, before, room, draw=w.draw)


def _langgraph(w: Wanted) -> Compactor:
    from refork_methods.pin.frameworks.langgraph import LangGraphNodeCompactor

    keep = w.number("keep", 2)
    return LangGraphNodeCompactor(w.summariser(), w.budget, keep, approximate_tokens, draw=w.draw)


def _langchain(w: Wanted) -> Compactor:
    from refork_methods.pin.frameworks.langchain import LangChainMiddlewareCompactor

    keep = ("messages", w.number("keep", 4))
    trim = w.number("trim", 4000)
    return LangChainMiddlewareCompactor(w.summariser(), ("tokens", w.budget), keep, trim or None, draw=w.draw)  # type: ignore[arg-type, unused-ignore]


def _autogen(w: Wanted) -> Compactor:
    from refork_methods.pin.frameworks.autogen import AutoGenContextCompactor

    if w.name == "autogen-buffered":
        return AutoGenContextCompactor.buffered(w.number("size", 8))
    if w.name == "autogen-head-tail":
        return AutoGenContextCompactor.head_and_tail(w.number("head", 1), w.number("tail", 4))
    return AutoGenContextCompactor.token_limited(w.budget)


def _agent_framework(w: Wanted) -> Compactor:
    from refork_methods.pin.frameworks.agent_framework import AgentFrameworkCompactor

    return AgentFrameworkCompactor(_strategy(w), name=w.name)


def _strategy(w: Wanted) -> Any:
    import agent_framework as af

    from refork_methods.pin.frameworks.agent_framework_client import FrameworkChatClient

    if w.name == "agent-framework-truncate":
        tokenizer = af.CharacterEstimatorTokenizer()
        target = max(1, w.budget * 3 // 4)
        return af.TruncationStrategy(max_n=w.budget, compact_to=target, tokenizer=tokenizer)
    if w.name == "agent-framework-sliding":
        return af.SlidingWindowStrategy(keep_last_groups=w.number("groups", 4))
    client = FrameworkChatClient(w.summariser(), w.draw)
    return af.SummarizationStrategy(client=client, target_count=w.number("keep", 4))


@final
@dataclass(frozen=True, slots=True)
class CompactorKind:
    """What a name of the kind ``compactors`` is: how it is made, its options, whether it asks a model."""

    make: Callable[[Wanted], Compactor]
    options: Mapping[str, type] = field(default_factory=dict)
    asks: bool = False


truncate = CompactorKind(_truncate)
head_tail = CompactorKind(_head_tail, {"head": int, "tail": int})
summarise = CompactorKind(_summarise, {"keep": int}, asks=True)
hierarchical = CompactorKind(_hierarchical, {"keep": int, "chunk": int}, asks=True)
langmem = CompactorKind(_langmem, {"before": int}, asks=True)
langgraph = CompactorKind(_langgraph, {"keep": int}, asks=True)
langchain = CompactorKind(_langchain, {"keep": int, "trim": int}, asks=True)
autogen_buffered = CompactorKind(_autogen, {"size": int})
autogen_head_tail = CompactorKind(_autogen, {"head": int, "tail": int})
autogen_token = CompactorKind(_autogen)
agent_framework_summarise = CompactorKind(_agent_framework, {"keep": int}, asks=True)
agent_framework_truncate = CompactorKind(_agent_framework)
agent_framework_sliding = CompactorKind(_agent_framework, {"groups": int})


def open_compactor(
    spec: str,
    *,
    summariser: ChatModel | None = None,
    max_tokens: int = MAX_TOKENS,
    words: int = WORDS,
    draw: int = 0,
) -> Compactor:
    """The compactor that a name stands for; ``draw`` addresses the noise of its summariser.

    Raises:
        BadInput: no such name or option, a limit under 1, or no summariser where one is needed.
        MissingExtra: the framework is not installed.
    """
    parsed, kind = _named(spec)
    for name, value in (("max_tokens", max_tokens), ("words", words)):
        if value < 1:
            raise BadInput(f"{name} is {value}; it must be at least 1", where=spec)
    return kind.make(Wanted(parsed.name, parsed.take(kind.options), max_tokens, words, summariser, draw))


def needs_summariser(spec: str) -> bool:
    """Whether a compactor of this name asks a model."""
    return _named(spec)[1].asks


def _named(spec: str) -> tuple[Spec, CompactorKind]:
    """A compactor's name with its options, and what it stands for."""
    parsed = Spec.parse(spec, "compactors")
    if parsed.argument:
        raise BadInput(f"a compactor takes options only, not {parsed.argument!r}", where=spec)
    kind: CompactorKind = registry.resolve("compactors", parsed.name)
    return parsed, kind
