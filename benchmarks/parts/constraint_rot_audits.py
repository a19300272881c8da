"""Audits of real agents' logs against what was really sent: rules with awkward letters, every harness.

Each agent talks for eleven calls; a log keeps each call as it was sent. The truth is read from the agent's
and the summariser's own inputs, known apart while they run and read back with ``html``, ``json`` or Python
itself; the audit gets bare lines without ids or marks. Only a summariser's call at the very end is marked, as
the page on audits asks, since nothing follows that could tell. Whatever the audit says otherwise is counted
as false blame.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import product
from typing import Any

from refork.chat import ScriptedChat
from refork.formats.openai_chat import text_of
from refork.types import Json, Message
from refork_methods.pin import Constraint
from refork_methods.rot.audit import audit
from refork_methods.rot.readers import read_lines

RULES = (
    "Never buy for more than 100 USD.",
    "Buy only while price < 100 & stock > 3.",
    "Send mail <only> to acme.com & nobody else.",
    'Say "no" to every refund.',
    "Don't touch O'Brien's files.",
    "Never run \"rm -rf\" & never use 'sudo'.",
    'Three limits:\n- spend < 5\n- depth > 1\n- no "force"',
    "Nie über 100 € ausgeben – auch nicht für Büros.",
    "绝不购买超过 100 美元的商品。",
    "Keep the entity &lt; as it is & write <b> never.",
    "Paths like C:\\temp\\new are off limits.",
    "No emoji \U0001f600 in mails, no \ttabs.",
)
CALLS = 11
#: Which answers the agent gives, and how many messages the harness keeps.
ANSWERS: dict[str, Callable[[int], str]] = {
    "numbered": lambda i: f"I have put down note {i} of the parcels.",
    "noted": lambda i: "Noted.",
}
SUMMARIES: dict[str, Callable[[str], str]] = {
    "forgets": lambda rule: "Parcels lie in their rooms.",
    "quotes": lambda rule: f"The user said: {rule} Parcels lie in their rooms.",
    "quotes escaped": lambda rule: (
        f"The user said: {html.escape(rule, quote=False)} Parcels lie in their rooms."
    ),
}


@dataclass
class Sent:
    """What was really sent: whose call it was, the messages, the answer."""

    calls: list[tuple[bool, list[Message], Message]] = field(default_factory=list)

    def chat(self, by_agent: bool, answer: Callable[[int], str]) -> ScriptedChat:
        """A scripted model whose every call is kept."""
        count = iter(range(10_000))

        def reply(messages: Sequence[Message]) -> str:
            said = answer(next(count))
            self.calls.append((by_agent, [dict(m) for m in messages], {"role": "assistant", "content": said}))
            return said

        return ScriptedChat(reply)


Harness = Callable[[ScriptedChat, ScriptedChat, list[str], int, int | None], None]


def _talk(graph: Any, texts: list[str]) -> None:
    for text in texts:
        graph.invoke({"messages": [("user", text)]}, {"configurable": {"thread_id": "1"}})


def langchain(
    agent: ScriptedChat, summariser: ScriptedChat, texts: list[str], keep: int, trim: int | None
) -> None:
    """``create_agent`` with the SummarizationMiddleware."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import SummarizationMiddleware
    from langgraph.checkpoint.memory import InMemorySaver

    from refork_methods.pin.frameworks import LangChainChat

    shorten: Any = SummarizationMiddleware(
        LangChainChat(summariser),
        trigger=("messages", 4),
        keep=("messages", keep),
        trim_tokens_to_summarize=trim,
    )
    _talk(create_agent(LangChainChat(agent), middleware=[shorten], checkpointer=InMemorySaver()), texts)


def deepagents(
    agent: ScriptedChat, summariser: ScriptedChat, texts: list[str], keep: int, trim: int | None
) -> None:
    """``create_deep_agent`` with its own SummarizationMiddleware."""
    from deepagents import create_deep_agent
    from deepagents.backends import StateBackend
    from deepagents.middleware.summarization import SummarizationMiddleware
    from langgraph.checkpoint.memory import InMemorySaver

    from refork_methods.pin.frameworks import LangChainChat

    shorten = SummarizationMiddleware(
        LangChainChat(summariser),
        backend=StateBackend(),
        trigger=("messages", 4),
        keep=("messages", keep),
        trim_tokens_to_summarize=trim,
    )
    _talk(create_deep_agent(LangChainChat(agent), middleware=[shorten], checkpointer=InMemorySaver()), texts)


def langgraph(
    agent: ScriptedChat, summariser: ScriptedChat, texts: list[str], keep: int, trim: int | None
) -> None:
    """The summary node of langgraph's documentation, which trims nothing."""
    from langgraph.checkpoint.memory import InMemorySaver

    from refork_methods.pin.frameworks import LangChainChat, summary_graph

    graph = summary_graph(
        LangChainChat(agent), LangChainChat(summariser), trigger=4, keep=keep, checkpointer=InMemorySaver()
    )
    _talk(graph, texts)


def mini(write: Callable[[list[Message]], str]) -> Harness:
    """A loop of a few lines, as people write them: over four messages, a prompt and a summary."""

    def run(
        agent: ScriptedChat, summariser: ScriptedChat, texts: list[str], keep: int, trim: int | None
    ) -> None:
        history: list[Message] = []
        for text in texts:
            history.append({"role": "user", "content": text})
            if len(history) > 4:
                old, history = history[:-keep], history[-keep:]
                prompt = f"Summarise this conversation.\n{write(old if trim is None else old[1:])}"
                said = summariser.reply([{"role": "user", "content": prompt}]).text
                history.insert(0, {"role": "user", "content": f"What happened before: {said}"})
            history.append({"role": "assistant", "content": agent.reply(history).text})

    return run


HARNESSES: dict[str, Harness] = {
    "langchain": langchain,
    "deepagents": deepagents,
    "langgraph": langgraph,
    "loop, JSON": mini(json.dumps),
    "loop, JSON as it is": mini(lambda old: json.dumps(old, ensure_ascii=False)),
    "loop, Python": mini(str),
    "loop, XML": mini(lambda old: "".join(f"<m>{html.escape(str(m['content']))}</m>" for m in old)),
    "loop, text": mini(lambda old: "\n".join(f"{m['role']}: {m['content']}" for m in old)),
}
#: How the loops' prompts are read back, to know what they held.
_READ: dict[str, Callable[[str], str]] = {
    "loop, JSON": lambda text: "\n".join(str(m["content"]) for m in json.loads(text.partition("\n")[2])),
    "loop, JSON as it is": lambda text: "\n".join(
        str(m["content"]) for m in json.loads(text.partition("\n")[2])
    ),
    "loop, Python": lambda text: "\n".join(str(m["content"]) for m in eval(text.partition("\n")[2])),
    "loop, XML": html.unescape,
    "langchain": html.unescape,
    "deepagents": html.unescape,
}


#: What a writer of XML escapes, so that a rule does not stand in a prompt as it was said.
ESCAPED = ("<", ">", "&")


@dataclass
class Audited:
    """How many audits were compared in how many harnesses, and every false blame in words.

    ``awkward`` and ``quoting``, each as audits and false ones: of rules with ``<``, ``>`` or ``&``; of runs
    in which a summariser was shown an answer that the agent had given.
    """

    audits: int = 0
    losses: int = 0
    absent: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    by_harness: dict[str, tuple[int, int]] = field(default_factory=dict)
    awkward: tuple[int, int] = (0, 0)
    quoting: tuple[int, int] = (0, 0)


def audits(quick: bool = False) -> Audited:
    """Every harness, every rule: what the audit says beside what was sent."""
    found = Audited()
    for name, harness in HARNESSES.items():
        if name == "deepagents" and find_spec("deepagents") is None:
            found.absent.append(name)
            continue
        before, wrong = found.audits, len(found.faults)
        for rule, setting in product(RULES[1:8:5] if quick else RULES, _settings(name)):
            _one(found, name, harness, rule, setting)
        found.by_harness[name] = (found.audits - before, len(found.faults) - wrong)
    return found


def _settings(name: str) -> Iterator[tuple[str, str, int, int | None]]:
    """Answers, summaries, messages kept, and tokens (in a loop: any) that cut the oldest off."""
    yield "numbered", "forgets", 2, None
    yield "noted", "forgets", 2, None
    yield "noted", "forgets", 1, None
    yield "numbered", "quotes", 1, None
    yield "numbered", "quotes escaped", 2, None
    if name != "langgraph":
        yield "numbered", "forgets", 1, 40


def _one(
    found: Audited, name: str, harness: Harness, rule: str, setting: tuple[str, str, int, int | None]
) -> None:
    answers, summaries, keep, trim = setting
    sent = Sent()
    texts = [
        f"One rule: {rule}",
        *(f"Note {i}: parcel {i} is in room {i}, third shelf." for i in range(1, CALLS)),
    ]
    harness(
        sent.chat(True, ANSWERS[answers]),
        sent.chat(False, lambda i: SUMMARIES[summaries](rule)),
        texts,
        keep,
        trim,
    )
    number, lost, kind = _truth(rule, sent, _READ.get(name, str))
    bodies: list[Json] = [{"messages": messages, "answer": answer} for _, messages, answer in sent.calls]
    if not sent.calls[-1][0]:
        bodies[-1]["by"] = "summariser"
    lines = [json.dumps(body) for body in bodies]
    told = audit(read_lines(lines, name)[0], [Constraint("rule", rule)])
    found.audits += 1
    found.losses += lost is not None
    one = told.rules[0]
    false = (len(told.calls), one.lost_at, one.loss) != (number, lost, kind)
    if any(sign in rule for sign in ESCAPED):
        found.awkward = (found.awkward[0] + 1, found.awkward[1] + false)
    if _quotes(sent):
        found.quoting = (found.quoting[0] + 1, found.quoting[1] + false)
    if false:
        found.faults.append(
            f"{name}, {rule!r}, {setting}: {len(told.calls)} calls, lost at {one.lost_at} ({one.loss}); "
            f"truly {number} calls, {lost} ({kind})"
        )


def _quotes(sent: Sent) -> bool:
    """Whether a summariser was shown what the agent had answered."""
    said: list[str] = []
    for by_agent, messages, answer in sent.calls:
        if by_agent:
            said.append(str(answer["content"]))
        elif any(text in text_of(m) for m in messages for text in said):
            return True
    return False


def _truth(rule: str, sent: Sent, read: Callable[[str], str]) -> tuple[int, int | None, str | None]:
    """How many calls the agent made, the first without the rule, and whether a summariser was shown it."""
    number, shown = 0, False
    for by_agent, messages, _ in sent.calls:
        if not by_agent:
            shown = any(rule in read(text_of(m)) or rule in text_of(m) for m in messages)
            continue
        number += 1
        if not any(rule in html.unescape(text_of(m)) or rule in text_of(m) for m in messages):
            total = sum(mine for mine, _, _ in sent.calls)
            return total, number, "omitted" if shown else "trimmed"
    return number, None, None
