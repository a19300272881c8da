"""Many answers to many targets in one batch: of a policy with its tokens, or of any chat model as text."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

from refork.chat import ChatModel
from refork.errors import ServerError
from refork.policies.base import Continuation, Policy, Request, Sampling, sample_all
from refork.policies.one_at_a_time import one_at_a_time
from refork.sampling.noise import NoiseKey, stream_of
from refork.types import IntArray, Message, token_array
from refork_methods.simulate.prompt import TAG, THINK, Target, extract_prediction, matches

#: Who may answer: a policy samples all in one batch, a chat model is asked one by one in threads.
Teacher: TypeAlias = Policy | ChatModel


def stopped(settings: Sampling) -> Sampling:
    """The settings with the closing tag among what ends an answer: nothing that follows it counts."""
    close = f"</{TAG}>"
    return settings if close in settings.stop else settings.but(stop=(*settings.stop, close))


@dataclass(frozen=True, slots=True)
class Drawn:
    """One answer: to which target (by number), which draw of it, after which prompt."""

    target: int
    draw: int
    prompt: IntArray
    continuation: Continuation


def draw(
    policy: Policy,
    items: Sequence[Target],
    draws: int,
    settings: Sampling,
    *,
    seed: int,
) -> list[Drawn]:
    """``draws`` answers to each target, one batch; noise by the seed, the target's name and the draw."""
    with one_at_a_time(policy):
        chats = [item.messages() for item in items]
        prompts = [policy.render([], token_array([]), chat).tokens for chat in chats]
        requests = [
            Request(prompts[i], NoiseKey(seed, stream_of("target", item.key), k), tuple(chats[i]))
            for i, item in enumerate(items)
            for k in range(draws)
        ]
        said = sample_all(policy, requests, stopped(settings))
    return [Drawn(n // draws, n % draws, prompts[n // draws], one) for n, one in enumerate(said)]


def fitting(policy: Policy, items: Sequence[Target], room: int) -> list[Target]:
    """Targets whose prompt leaves ``room`` tokens in the policy's context."""
    limit = policy.card.context
    if limit is None:
        return list(items)
    # Rendered and not guessed from the text: a template adds tokens of its own.
    lengths = (len(policy.render([], token_array([]), item.messages()).tokens) for item in items)
    return [item for item, length in zip(items, lengths, strict=True) if length + room <= limit]


def texts(
    teacher: Teacher,
    items: Sequence[Target],
    draws: int,
    settings: Sampling,
    *,
    seed: int,
    instruction: str = "",
    workers: int = 8,
) -> list[list[str | None]]:
    """What a teacher answers, [target][draw]; None where its server failed.

    ``instruction`` is added to the chat of a chat model, which was not trained to answer in tags.
    """
    if isinstance(teacher, Policy):
        drawn = draw(teacher, items, draws, settings, seed=seed)
        said = [
            None if one.continuation.error else _whole(one.continuation.message, one.continuation.text)
            for one in drawn
        ]
        return [said[i * draws : (i + 1) * draws] for i in range(len(items))]

    def ask(job: tuple[int, int]) -> str | None:
        chat = _instructed(items[job[0]].messages(), instruction)
        try:
            reply = teacher.reply(chat, draw=seed * draws + job[1])
        except ServerError:
            return None
        return _whole(reply.message, reply.text)

    jobs = [(i, k) for i in range(len(items)) for k in range(draws)]
    with ThreadPoolExecutor(workers) as pool:
        answers = list(pool.map(ask, jobs))
    return [answers[i * draws : (i + 1) * draws] for i in range(len(items))]


def _instructed(chat: Sequence[Message], instruction: str) -> list[Message]:
    if not instruction:
        return list(chat)
    if chat[0]["role"] != "system":
        return [{"role": "system", "content": instruction}, *chat]
    return [{**chat[0], "content": f"{chat[0]['content']}\n\n{instruction}"}, *chat[1:]]


def _whole(message: Message | None, text: str) -> str:
    """The text with the reasoning that some servers give apart from it put back before it."""
    thought = str((message or {}).get("reasoning_content") or "")
    return f"<{THINK}>{thought}</{THINK}>{text}" if thought else text


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Greedy answers to targets: how many could be read, how many were right, and of those knowable.

    Wrong is also what could not be read. None: there was nothing to count.
    """

    targets: int
    coverage: float | None
    exact: float | None
    exact_knowable: float | None


def accuracy(policy: Policy, items: Sequence[Target], *, max_tokens: int = 256) -> Accuracy:
    """How often the likeliest answer is the observation to the letter."""
    said = draw(policy, items, 1, Sampling(temperature=0.0, max_tokens=max_tokens), seed=0)
    read = [extract_prediction(one.continuation.text) for one in said]
    right = [matches(text, item.truth) for text, item in zip(read, items, strict=True)]
    knowable = [hit for hit, item in zip(right, items, strict=True) if item.turn.exact]

    def share(values: Sequence[bool]) -> float | None:
        return sum(values) / len(values) if values else None

    return Accuracy(len(items), share([text is not None for text in read]), share(right), share(knowable))
