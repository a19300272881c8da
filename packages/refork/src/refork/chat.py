"""The chat seam: a model that is asked with messages and answers with one message.

Methods that only need an answer (a summariser, a memory's roles, a reader) take a :class:`ChatModel`; what
needs tokens, noise keys or log-probs takes a policy. :class:`PolicyChat` makes one of the other, and
:class:`ScriptedChat` is the shipped fake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, final, runtime_checkable

from refork.errors import BadInput, ServerError
from refork.policies.base import Cost, Policy, Request, Sampling, sample_all
from refork.policies.one_at_a_time import one_at_a_time
from refork.sampling.noise import NoiseKey, stream_of
from refork.types import Finish, Json, Message, token_array


@dataclass(frozen=True, slots=True)
class Reply:
    """A chat model's answer: the assistant message (content, tool calls where it made some) and its cost.

    ``note`` is what the model says about this answer and not in it (who of several gave it, and why); plain
    JSON, None where it says nothing.
    """

    message: Message
    finish: Finish = "stop"
    cost: Cost = field(default_factory=Cost)
    note: Json | None = None

    @property
    def text(self) -> str:
        """The message's text; empty where it only calls tools."""
        return str(self.message.get("content") or "")


@runtime_checkable
class ChatModel(Protocol):
    """Answers messages. The same messages and draw give the same answer where the model can promise that."""

    @property
    def name(self) -> str:
        """Who answers, for the record."""
        ...

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """The answer to messages; ``tools`` are OpenAI function schemas, ``draw`` numbers repeated questions.

        Raises: ServerError where no answer came.
        """
        ...


@final
class PolicyChat:
    """Any policy as a chat model; ``seed`` and the draw address its noise."""

    def __init__(self, policy: Policy, settings: Sampling | None = None, seed: int = 0) -> None:
        self.policy = policy
        self.settings = settings or Sampling(temperature=0.7)
        self.seed = seed

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.policy.card.name

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """Sample one turn after the messages.

        Raises:
            BadInput: there is no message.
            ServerError: the policy gave an error instead of a turn.
        """
        if not messages:
            raise BadInput("there is no message to answer")
        asked = [dict(m) for m in messages]
        if tools:
            asked[0] = {**asked[0], "tools": list(tools)}
        with one_at_a_time(self.policy):
            rendered = self.policy.render([], token_array([]), asked)
        # The messages are part of the address, or all questions with one draw would meet the same noise.
        noise = NoiseKey(self.seed, stream_of("chat", repr(asked)), draw)
        request = Request(rendered.tokens, noise, messages=tuple(asked))
        with one_at_a_time(self.policy):
            answer = sample_all(self.policy, [request], self.settings)[0]
        if answer.error is not None:
            raise ServerError(f"no answer: {answer.error}", where=self.name)
        message = answer.message or {"role": "assistant", "content": answer.text}
        return Reply(message, answer.finish, answer.cost)


def ask(policy: Policy, questions: Sequence[str], settings: Sampling) -> list[str | None]:
    """One answer to each question, all in one batch; None where the call failed.

    Raises: ServerError where every call did.
    """
    requests = []
    for question in questions:
        messages: tuple[Message, ...] = ({"role": "user", "content": question},)
        exact = policy.card.can("tokens")
        tokens = policy.render([], token_array([]), messages).tokens if exact else token_array([])
        # The noise is the question's own, so an answer does not depend on what else is asked.
        requests.append(Request(tokens, NoiseKey(0, stream_of("ask", question), 0), messages))
    answers = sample_all(policy, requests, settings) if requests else []
    if answers and all(one.error is not None for one in answers):
        raise ServerError(f"no answer: {answers[0].error}", where=policy.card.name)
    return [None if one.error is not None else one.text for one in answers]


@final
class ScriptedChat:
    """The shipped fake: canned replies in order, or a function of the messages.

    A reply is a text or a whole message. ``asked`` keeps the messages of every question, oldest first.
    """

    def __init__(
        self,
        replies: Iterable[str | Message] | Callable[[Sequence[Message]], str | Message],
        name: str = "scripted",
    ) -> None:
        self._name = name
        self._function = replies if callable(replies) else None
        self._canned = iter(()) if callable(replies) else iter(list(replies))
        self.asked: list[tuple[Message, ...]] = []

    @property
    def name(self) -> str:
        """The name it was given."""
        return self._name

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """The next reply. Raises BadInput when the script is over."""
        self.asked.append(tuple(dict(m) for m in messages))
        if self._function is not None:
            said = self._function(messages)
        else:
            try:
                said = next(self._canned)
            except StopIteration:
                number = len(self.asked)
                raise BadInput(f"the script has no reply number {number}", where=self._name) from None
        message = {"role": "assistant", "content": said} if isinstance(said, str) else dict(said)
        return Reply(message, cost=Cost(tokens_in=words_in(messages), tokens_out=len(str(message).split())))


def words_in(messages: Sequence[Message]) -> int:
    """White-space separated words of all contents: the fake's count of tokens."""
    return sum(len(str(m.get("content") or "").split()) for m in messages)
