"""langgraph: the documented summary node as a compactor, pinned inputs, and checkpoints read as model calls.

langgraph compacts nothing by itself. Its documentation shows a node that asks for a summary when the state
holds more than six messages and removes all but the last two. That recipe is run here as it stands, in a real
graph with a checkpointer (langgraph 1.2). It shows the summariser everything, so what is lost is omitted, not
trimmed; it keeps no message by its kind, so a system message in the state goes like any other, and a tool's
result may be kept without its call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from refork.chat import ChatModel
from refork.compaction import CompactionResult, Counter, account, checked_ids, untouched
from refork.errors import BadInput, MissingExtra
from refork.types import Message
from refork_methods.pin.buffer import PinnedBuffer
from refork_methods.pin.frameworks.langchain_messages import (
    LangChainChat,
    LangChainShape,
    from_langchain,
    own_errors,
    pinned_messages,
    require_summary,
    summary_id,
    to_langchain,
    with_messages,
)

try:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage
    from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.types import StateSnapshot
except ImportError as error:
    raise MissingExtra("langgraph", "harness") from error

#: A hook before the model: a node, or a function of the state that returns an update.
Hook: TypeAlias = Runnable[Any, Any] | Callable[[Any], Mapping[str, Any]]
#: From the values of a state to the messages that its model node shows the model.
Context: TypeAlias = Callable[[Mapping[str, Any]], Sequence[BaseMessage]]

_LEAD = "Summary of conversation earlier: "
_PACKAGE = "langgraph"
_TALK, _SHORTEN = "conversation", "summarize_conversation"


class SummaryState(MessagesState):
    """The recipe's state: messages, and the summary of those that were removed."""

    summary: str


def summary_context(values: Mapping[str, Any]) -> list[BaseMessage]:
    """What the recipe's conversation node shows the model: the summary as a system message, then the rest."""
    summary = values.get("summary", "")
    lead = [SystemMessage(content=f"{_LEAD}{summary}")] if summary else []
    return [*lead, *values.get("messages", [])]


def summary_graph(
    agent: Runnable[Any, Any],
    summariser: BaseChatModel,
    *,
    trigger: int = 6,
    keep: int = 2,
    counter: Counter | None = None,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
) -> CompiledStateGraph[SummaryState, None, SummaryState, SummaryState]:
    """The documented graph: the agent answers, then a state of over ``trigger`` messages is summarised.

    ``counter`` makes the trigger one in tokens. Only ``keep`` messages stay.
    """

    def call_model(state: SummaryState) -> dict[str, Any]:
        return {"messages": [agent.invoke(summary_context(state))]}

    def route(state: SummaryState) -> str:
        messages = state["messages"]
        size = len(messages) if counter is None else counter(from_langchain(messages))
        return _SHORTEN if size > trigger else END

    def shorten(state: SummaryState) -> dict[str, Any]:
        summary = state.get("summary", "")
        ask = "Create a summary of the conversation above:"
        if summary:
            ask = (
                f"This is summary of the conversation to date: {summary}\n\n"
                "Extend the summary by taking into account the new messages above:"
            )
        response = summariser.invoke([*state["messages"], HumanMessage(content=ask)])
        removed = [RemoveMessage(id=str(m.id)) for m in state["messages"][:-keep]]
        return {"summary": response.content, "messages": removed}

    graph = StateGraph(SummaryState)
    graph.add_node(_TALK, call_model)
    graph.add_node(_SHORTEN, shorten)
    graph.add_edge(START, _TALK)
    graph.add_conditional_edges(_TALK, route, [_SHORTEN, END])
    graph.add_edge(_SHORTEN, END)
    return graph.compile(checkpointer=checkpointer)


@final
@dataclass(frozen=True, slots=True)
class LangGraphNodeCompactor:
    """The documented summary node, run by langgraph from a checkpoint before it.

    Fires over ``trigger`` messages, or tokens where ``counter`` is given. ``protected``: a system message at
    the front is the agent's own prompt, kept outside the state; False: it lies in the state like any other.
    """

    model: ChatModel
    trigger: int = 6
    keep: int = 2
    counter: Counter | None = None
    protected: bool = True
    draw: int = 0
    name: str = "langgraph summary node"

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise BadInput(
                f"keep is {self.keep}; it must be at least 1",
                hint="with 0 the documented node removes nothing, for messages[:-0] is empty",
            )

    def compact(self, messages: Sequence[Message]) -> CompactionResult:
        """The context that the graph's conversation node shows the model next.

        Raises: BadInput for ids, or where the summariser answers nothing.
        """
        checked_ids(messages)
        prompt = list(messages[:1]) if self.protected and _system(messages) else []
        summary, bare = _split(messages[len(prompt) :])
        chat = LangChainChat(self.model, self.draw)
        with own_errors():
            values = self._run(to_langchain(bare), summary, chat)
        if not chat.asked:
            unit = "messages" if self.counter is None else "tokens"
            return untouched(messages, f"not over {self.trigger} {unit}")
        require_summary(chat.asked, self.model.name)
        after = [*prompt, *from_langchain(summary_context(values))]
        kept = {m["id"] for m in after if m.get("id")}
        gone = [str(m["id"]) for m in messages if m["id"] not in kept]
        name = summary_id(_PACKAGE, gone, chat.asked[-1].answer)
        after = [m if m.get("id") else {**m, "id": name} for m in after]
        asked = chat.asked[-1]
        shown = {m.id for m in asked.messages}
        carried = summary is not None and summary in asked.messages[-1].text
        seen = [str(m["id"]) for m in messages if m["id"] in shown or (carried and _is_summary(m))]
        reason = f"the summary node removed {len(gone)} messages"
        return account(messages, after, seen=seen, calls=[asked.call()], reason=reason)

    def _run(self, messages: list[BaseMessage], summary: str | None, chat: LangChainChat) -> dict[str, Any]:
        graph = summary_graph(
            chat,
            chat,
            trigger=self.trigger,
            keep=self.keep,
            counter=self.counter,
            checkpointer=InMemorySaver(),
        )
        config: RunnableConfig = {"configurable": {"thread_id": "compact"}}
        # The history stands as if the agent had just answered: the graph goes on at the branch behind it.
        before = graph.update_state(config, {"messages": messages, "summary": summary or ""}, as_node=_TALK)
        graph.invoke(None, before)
        values: dict[str, Any] = graph.get_state(config).values
        return values


def _system(messages: Sequence[Message]) -> bool:
    return (
        bool(messages) and messages[0].get("role") in ("system", "developer") and not _is_summary(messages[0])
    )


def _is_summary(message: Message) -> bool:
    return str(message["id"]).startswith(f"{_PACKAGE}-summary-")


def _split(messages: Sequence[Message]) -> tuple[str | None, list[Message]]:
    """The summary that the state carries, and the messages without it."""
    texts = [str(m["content"]).removeprefix(_LEAD) for m in messages if _is_summary(m)]
    return (texts[-1] if texts else None), [m for m in messages if not _is_summary(m)]


def pinned_hook(
    buffer: PinnedBuffer, hook: Hook | None = None, *, overwrite: bool = False
) -> Runnable[Any, Any]:
    """A ``pre_model_hook`` that puts the pinned rules into the model's input, after a hook of your own.

    ``overwrite`` False: under ``llm_input_messages``, so the state stays as it is. True: under ``messages``,
    which replaces the state's; not for a pydantic state, of which the agent demands the other key. Your hook
    may use either key, and is not shown the rules.
    """
    shape = LangChainShape(buffer.role)
    inner = None if hook is None else hook if isinstance(hook, Runnable) else RunnableLambda(hook)

    def bare(state: Any) -> Any:
        return with_messages(state, "messages", lambda given: buffer.strip(given, shape))

    def insert_pins(update: Mapping[str, Any], messages: list[BaseMessage]) -> dict[str, Any]:
        state = messages
        if update.get("messages") is not None:
            state = list(add_messages(list(messages), update["messages"]))  # type: ignore[arg-type]
        shown = pinned_messages(update.get("llm_input_messages") or state, buffer)
        if overwrite:
            rest = {k: v for k, v in update.items() if k != "llm_input_messages"}
            return {**rest, "messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *shown]}
        return {**update, "llm_input_messages": shown}

    def messages_of(values: Any) -> list[BaseMessage]:
        found: Sequence[BaseMessage] = values["messages"] if isinstance(values, Mapping) else values.messages
        return list(found)

    def run(state: Any, config: RunnableConfig) -> dict[str, Any]:
        values = bare(state)
        return insert_pins(inner.invoke(values, config) if inner else {}, messages_of(values))

    async def arun(state: Any, config: RunnableConfig) -> dict[str, Any]:
        values = bare(state)
        return insert_pins(await inner.ainvoke(values, config) if inner else {}, messages_of(values))

    return RunnableLambda(run, afunc=arun)


def checkpoint_calls(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    config: RunnableConfig,
    context: Context | None = None,
) -> list[tuple[list[Message], Message | None]]:
    """The model calls up to a thread's checkpoint, oldest first: what was shown, and the answer.

    ``config`` names the thread, or one checkpoint of it: its own branch is read, where a thread was forked. A
    call is a task that wrote an assistant message. ``context`` says what the graph's model node makes of the
    state. By default it is ``llm_input_messages`` or ``summarized_messages`` where the state has them, else
    the summary of the documented recipe or of deepagents if there is one, and ``messages``. What a prompt or
    a middleware adds inside the node is not in a checkpoint: give ``context`` for it.

    Raises: BadInput where the thread has no checkpoint with a model call.
    """
    calls: list[tuple[list[Message], Message | None]] = []
    line = _line(graph, config)
    for snapshot, after in zip(line, [*line[1:], None], strict=True):
        answers = _answers(snapshot, after)
        if answers:
            shown = from_langchain(context(snapshot.values) if context else _model_input(snapshot, after))
            calls.extend((shown, answer) for answer in from_langchain(answers))
    if not calls:
        raise BadInput(
            "no checkpoint of this thread has a model call behind it",
            where=str(config.get("configurable", {}).get("thread_id")),
            hint="compile the graph with a checkpointer, and name the thread that was run",
        )
    return calls


def _model_input(snapshot: StateSnapshot, after: StateSnapshot | None) -> Sequence[BaseMessage]:
    values = snapshot.values
    # deepagents compacts inside the model's node and keeps the whole history in the state: what it made of it
    # is written together with the answer.
    event = (values if after is None else after.values).get("_summarization_event")
    if isinstance(event, Mapping):
        return [event["summary_message"], *values.get("messages", [])[event["cutoff_index"] :]]
    for key in ("llm_input_messages", "summarized_messages"):
        if values.get(key):
            found: Sequence[BaseMessage] = values[key]
            return found
    return summary_context(values) if isinstance(values.get("summary"), str) else values.get("messages", [])


def _line(graph: CompiledStateGraph[Any, Any, Any, Any], config: RunnableConfig) -> list[StateSnapshot]:
    """A checkpoint and all before it on its branch, oldest first."""
    line: list[StateSnapshot] = []
    at: RunnableConfig | None = config
    while at is not None:
        line.append(graph.get_state(at))
        at = line[-1].parent_config
    return line[::-1]


def _answers(snapshot: StateSnapshot, after: StateSnapshot | None) -> list[BaseMessage]:
    """New assistant messages of the tasks behind a checkpoint, if the next of its branch took them over."""
    known, taken = _ids(snapshot), None if after is None else _ids(after)
    found: list[BaseMessage] = []
    for task in snapshot.tasks:
        if task.name == START:  # it writes the input, which may hold a whole earlier talk
            continue
        written = task.result.get("messages", []) if isinstance(task.result, Mapping) else []
        texts = written if isinstance(written, list) else [written]
        said = [m for m in texts if isinstance(m, AIMessage) and m.id not in known]
        found.extend(m for m in said if taken is None or m.id is None or m.id in taken)
    return found


def _ids(snapshot: StateSnapshot) -> set[str | None]:
    return {m.id for m in snapshot.values.get("messages", []) if isinstance(m, BaseMessage)}
