"""An exchange as nodes of a tree: its prompt once, every choice under it, a conversation as one path."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from refork.policies.base import Cost
from refork.serve.exchange import Choice, Exchange
from refork.tree.node import NewNode, node_id
from refork.types import IntArray, Json, Message

#: What makes two messages the same for finding a conversation again; clients drop the rest.
_SAID = ("role", "content", "tool_calls", "tool_call_id", "name")


@final
@dataclass(frozen=True, slots=True)
class Leaf:
    """Where a conversation has come to: its last node, and the tokens of the whole path (None: unknown)."""

    node: str
    tokens: int | None
    digest: str


@final
class Conversations:
    """Leaves of recorded conversations, by what has been said; the oldest beyond ``most`` are forgotten.

    A request whose messages go on from a leaf is recorded below it. One that comes after it was forgotten,
    or after a restart, is a root of its own.
    """

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._leaves: OrderedDict[str, Leaf] = OrderedDict()

    def find(self, exchange: Exchange) -> tuple[Leaf, int] | None:
        """The leaf that a chat goes on from, and how many of its messages it holds."""
        messages = exchange.messages or ()
        said = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
        # Nothing was added to an answer: then there is no answer to go on from.
        if not said or said[-1] + 1 == len(messages):
            return None
        held = said[-1] + 1
        leaf = self._leaves.get(_name(exchange, messages[:held]))
        return None if leaf is None else (leaf, held)

    def add(self, exchange: Exchange, nodes: Sequence[str]) -> None:
        """Remember the leaves of an exchange: one for each choice, ``nodes`` being their ids."""
        if exchange.messages is None:
            return
        for choice, node in zip(exchange.choices, nodes, strict=True):
            if choice.error is not None:
                continue
            message = choice.message or {"role": "assistant", "content": choice.text}
            count, digest = _walked(exchange.prompt, choice.tokens)
            name = _name(exchange, (*exchange.messages, message))
            self._leaves[name] = Leaf(node, count, digest)
            self._leaves.move_to_end(name)
        while len(self._leaves) > self._most:
            self._leaves.popitem(last=False)


def nodes_of(exchange: Exchange, begun: tuple[Leaf, int] | None) -> tuple[list[NewNode], list[str]]:
    """Drafts of an exchange, and the ids of its choices' nodes.

    ``begun``: the leaf it goes on from and how many messages that leaf holds. The prompt is a task, or below
    the leaf an observation; where its tokens are not those of the leaf and some more (a template that
    changes what came before), a rewrite with the whole new context. Equal prompts are one node.
    """
    prompt = _opening(exchange) if begun is None else _following(exchange, *begun)
    above = node_id(prompt.parent, prompt.keep, prompt.kind, str(prompt.key))
    new_nodes = [prompt]
    for number, choice in enumerate(exchange.choices):
        new_nodes.append(_action(exchange, number, choice, above))
    return new_nodes, [node_id(above, None, "action", str(new_node.key)) for new_node in new_nodes[1:]]


def _opening(exchange: Exchange) -> NewNode:
    messages = _messages(exchange)
    return NewNode(
        kind="task",
        key=f"served/{_digest([messages, _ids(exchange.prompt), exchange.text, _tokenizer(exchange)])}",
        text=exchange.text or _text(messages),
        tokens=exchange.prompt,
        message=messages[0] if len(messages) == 1 else None,
        origin="real",
        extra=({"messages": messages} if len(messages) > 1 else {}) | _tokenizer_facts(exchange),
    )


def _following(exchange: Exchange, leaf: Leaf, held: int) -> NewNode:
    prompt, messages = exchange.prompt, _messages(exchange)
    new = messages[held:]
    if prompt is not None:
        count = leaf.tokens
        if count is None or count >= len(prompt) or _digest(_ids(prompt[:count])) != leaf.digest:
            told: Json = {"messages": messages, "reason": "the prompt was rendered anew"}
            return NewNode(
                kind="rewrite",
                parent=leaf.node,
                key=f"served/{_digest([messages, _ids(prompt)])}",
                text=exchange.text or _text(messages),
                tokens=prompt,
                policy=None if exchange.card is None else exchange.card.name,
                extra=told | _tokenizer_facts(exchange),
            )
        prompt = prompt[count:]
    return NewNode(
        kind="observation",
        parent=leaf.node,
        key=f"served/{_digest([new, _ids(prompt)])}",
        text=_text(new),
        tokens=prompt,
        message=new[0] if len(new) == 1 else None,
        origin="real",
        extra={"messages": new} if len(new) > 1 else {},
    )


def _action(exchange: Exchange, number: int, choice: Choice, above: str) -> NewNode:
    card = exchange.card
    served: Json = {"id": exchange.id, "model": exchange.model, "choice": number}
    known = {"seed": exchange.seed, "by": exchange.holder, "pinned": exchange.pinned}
    served |= {name: value for name, value in known.items() if value is not None}
    extra: Json = {"served": served}
    if card is not None:
        extra["card"] = card.to_json()
    if choice.ties:
        extra["ties"] = choice.ties
    if choice.rounds:
        extra["speculated"] = {
            "rounds": choice.rounds, "drafted": choice.drafted, "accepted": choice.accepted
        }  # fmt: skip
    if choice.note is not None:
        extra["note"] = choice.note
    return NewNode(
        kind="action",
        parent=above,
        key=f"served/{exchange.id}/{number}",
        text=choice.text,
        tokens=choice.tokens,
        offsets=choice.offsets,
        logprobs=choice.logprobs,
        logprobs_t1=choice.logprobs_t1,
        entropy=choice.entropy,
        message=choice.message,
        policy=exchange.model if card is None else card.name,
        weights=None if card is None else card.weights,
        settings=None if exchange.settings is None else exchange.settings.to_json(),
        noise=choice.noise,
        # A tree knows no such finish: that the policy called a tool stands in the message.
        finish="stop" if choice.finish == "tool_calls" else choice.finish,
        error=choice.error,
        cost=_cost(exchange, choice),
        extra=extra,
    )


def _cost(exchange: Exchange, choice: Choice) -> Cost:
    out = len(choice.tokens) if choice.tokens is not None else choice.tokens_out
    return Cost(tokens_in=exchange.counted_in, tokens_out=out, money=choice.money)


def _messages(exchange: Exchange) -> list[Message]:
    """The messages as a policy renders them: tools stand on the first."""
    found = [dict(message) for message in exchange.messages or ()]
    if found and exchange.tools:
        found[0] = {**found[0], "tools": list(exchange.tools)}
    return found


def _tokenizer_facts(exchange: Exchange) -> Json:
    name = _tokenizer(exchange)
    return {} if name is None else {"tokenizer": name}


def _tokenizer(exchange: Exchange) -> str | None:
    return None if exchange.card is None else exchange.card.tokenizer


def _text(messages: Sequence[Message]) -> str:
    return "\n".join(_content(message) for message in messages)


def _content(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _name(exchange: Exchange, messages: Sequence[Message]) -> str:
    # Without what is empty: clients send null, an empty text or nothing for the same message.
    said = [{key: message[key] for key in _SAID if message.get(key)} for message in messages]
    # The same words to another model, or with other tools, are another conversation.
    return _digest([exchange.model, list(exchange.tools), said])


def _walked(prompt: IntArray | None, said: IntArray | None) -> tuple[int | None, str]:
    if prompt is None or said is None:
        return None, ""
    whole = [*_ids(prompt), *_ids(said)]
    return len(whole), _digest(whole)


def _ids(tokens: IntArray | None) -> Any:
    return None if tokens is None else tokens.tolist()


def _digest(body: object) -> str:
    return hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=16).hexdigest()
