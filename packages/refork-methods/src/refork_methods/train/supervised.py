"""What supervised fine-tuning learns from: recorded successes, and conversations as they would be sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.policies.chat import Codec, tools_of
from refork.policies.renderable import call_text, renderable
from refork.tree.node import Trajectory
from refork.types import IntArray, Json, Message, token_array
from refork_methods.train.batch import trajectory_samples
from refork_methods.train.weighted import Weighted


def walk_examples(trajectories: Iterable[Trajectory]) -> list[Weighted]:
    """Recorded paths as examples: exactly the tokens that were there; learned are those the policy sampled.

    Every context of a trajectory is an example, and a token that trajectories share is learned once.
    """
    seen: set[tuple[str, int]] = set()
    return [
        Weighted(sample.tokens, sample.mask.astype(np.float32))
        for trajectory in trajectories
        for sample in trajectory_samples(trajectory, 0.0, seen)
    ]


def conversation_examples(codec: Codec, conversations: Iterable[Sequence[Message]]) -> list[Weighted]:
    """Chat conversations as examples, rendered turn by turn; learned is what the assistant says.

    The token that ends a turn is learned too. Calls of tools are learned as the chat template writes them,
    or in the plain form of :data:`refork.policies.renderable.GENERIC` where it shows none. Where the template
    rewrites what came before (old thinking dropped), the rewritten context begins another example.

    Raises:
        BadInput: a conversation without an assistant's message, or one that begins with it; calls that the
            template does not write where answers stand.
    """
    found: list[Weighted] = []
    for number, conversation in enumerate(conversations):
        where = f"conversation {number}"
        if conversation and conversation[0].get("role") == "assistant":
            raise BadInput("it begins with the assistant", where=where)
        made = rendered_turns(codec, _as_shown(codec, conversation), partial(_turn_end, codec))
        if not made:
            raise BadInput("no assistant's message to learn", where=where)
        found += [Weighted(tokens, (answers >= 0).astype(np.float32)) for tokens, answers in made]
    return found


def rendered_turns(
    codec: Codec, conversation: Sequence[Message], end: Callable[[list[Message], list[int]], list[int]]
) -> list[tuple[IntArray, NDArray[np.int64]]]:
    """A conversation rendered turn by turn, as it would be sampled: tokens [n], and whose answers they are.

    The second is the number of the assistant's message that a token is of, -1 for all others. ``end`` gives
    the tokens that close an answer, from the messages and the tokens up to there. Where the template
    rewrites what came before, the rewritten context begins another sequence.
    """
    found: list[tuple[IntArray, NDArray[np.int64]]] = []
    tokens: list[int] = []
    answers: list[int] = []
    history: list[Message] = []
    pending: list[Message] = []
    number = 0

    def finish() -> None:
        if max(answers, default=-1) >= 0:
            found.append((token_array(tokens), np.array(answers, dtype=np.int64)))

    for message in conversation:
        if message.get("role") != "assistant":
            pending.append(message)
            continue
        asked = codec.render(history, token_array(tokens), pending)
        if asked.rewrites:
            finish()
            tokens, answers = [], []
        history, pending = [*history, *pending, message], []
        context = [*tokens, *asked.tokens.tolist()]
        said = codec.encode(_turn_text(codec, message, tools_of(conversation), number)).tolist()
        said += end(history, [*context, *said])
        answers += [-1] * len(asked.tokens) + [number] * len(said)
        tokens, number = context + said, number + 1
    finish()
    return found


def _as_shown(codec: Codec, conversation: Sequence[Message]) -> Sequence[Message]:
    """The conversation in a form that the tokenizer can be shown; one of plain texts as it is."""
    special = any(m.get("tool_calls") or isinstance(m.get("content"), list) for m in conversation)
    return renderable(codec, conversation).messages if special else conversation


def _turn_text(codec: Codec, message: Message, tools: Sequence[Json], number: int) -> str:
    """What an assistant's turn says, its calls as the template writes them."""
    if not message.get("tool_calls"):
        return str(message.get("content") or "")
    text = call_text(codec, message, tools)
    if text is None:
        raise BadInput(
            "the chat template does not write tool calls where answers stand", where=f"answer {number}"
        )
    return text


def _turn_end(codec: Codec, history: Sequence[Message], tokens: list[int]) -> list[int]:
    """The token that the template puts behind an assistant's turn, else the end of sequence, if any."""
    closing = codec.render(history, token_array(tokens), [])
    first: list[int] = closing.tokens[:1].tolist()
    if not closing.rewrites and first and first[0] in codec.eos_ids:
        return first
    eos = codec.tokenizer.eos_token_id
    return [int(eos)] if isinstance(eos, int) else []
