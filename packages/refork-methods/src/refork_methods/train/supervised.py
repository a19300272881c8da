"""Supervised fine-tuning of any local policy: from conversations or from recorded successes.

The short loop of :mod:`refork_methods.train.sft` builds organisms; this one accumulates, saves and resumes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refork.errors import BadInput
from refork.policies.chat import Codec
from refork.progress import Progress, silent
from refork.tree.node import Trajectory
from refork.types import IntArray, Json, Message, token_array
from refork_methods.train.batch import trajectory_samples
from refork_methods.train.fit import FitSettings, fit
from refork_methods.train.schedule import adamw
from refork_methods.train.sft import Example, pad_right
from refork_methods.train.tracker import Tracker


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedSettings(FitSettings):
    """Those of every fit, and AdamW's ``betas``."""

    betas: tuple[float, float] = (0.9, 0.999)


def supervise(
    model: Any,
    examples: Sequence[Example],
    settings: SupervisedSettings,
    *,
    folder: Path | None = None,
    tracker: Tracker | None = None,
    progress: Progress = silent,
) -> list[Json]:
    """Fine-tune a causal LM in place on the learned tokens of examples; one record per step.

    The loss of a batch is the mean negative log-likelihood in nats over its learned tokens, however it is
    split. With ``folder`` a stopped call goes on from its last checkpoint, bit for bit.

    Raises:
        BadInput: no examples, or one in which nothing is learned.
        Mismatch: the folder holds another run's checkpoints.
    """
    if not examples:
        raise BadInput("there is nothing to train on", where="sft")
    for number, item in enumerate(examples):
        if not item.mask[1:].any():
            raise BadInput("no token of this example is learned", where=f"example {number}")
    optimizer = adamw(model, settings.schedule, weight_decay=settings.weight_decay, betas=settings.betas)
    lengths = [len(item.tokens) for item in examples]
    order = settings.batches(lengths)
    device = next(model.parameters()).device
    model.train()

    def losses(step: int) -> Iterable[tuple[Tensor, Json]]:
        chosen = [examples[i] for i in order[step]]
        learned = sum(int(item.mask[1:].sum()) for item in chosen)
        size = settings.micro_rows or len(chosen)
        for first in range(0, len(chosen), size):
            tokens, mask = (part.to(device) for part in pad_right(chosen[first : first + size]))
            logits = model(input_ids=tokens, use_cache=False).logits[:, :-1][mask[:, 1:]]
            truth = tokens[:, 1:][mask[:, 1:]]
            loss = torch.nn.functional.cross_entropy(logits.float(), truth, reduction="sum")
            yield loss / learned, {"tokens": int(mask.sum())}

    return fit(
        model, optimizer, losses, settings, stage="supervised training", folder=folder,
        digest=_digest(examples, settings), tracker=tracker, progress=progress,
    )  # fmt: skip


def _digest(examples: Sequence[Example], settings: SupervisedSettings) -> str:
    body = hashlib.blake2b(digest_size=16)
    body.update(json.dumps(asdict(settings), sort_keys=True).encode())
    for item in examples:
        body.update(np.int64(len(item.tokens)).tobytes() + item.tokens.tobytes() + item.mask.tobytes())
    return body.hexdigest()


def walk_examples(trajectories: Iterable[Trajectory]) -> list[Example]:
    """Recorded walks as examples: exactly the tokens that were there; learned are those the policy sampled.

    Every context of a walk is an example, and a token that walks share is learned once.
    """
    seen: set[tuple[str, int]] = set()
    return [
        Example(sample.tokens, sample.mask)
        for walk in trajectories
        for sample in trajectory_samples(walk, 0.0, seen)
    ]


def conversation_examples(codec: Codec, conversations: Iterable[Sequence[Message]]) -> list[Example]:
    """Chat conversations as examples, rendered turn by turn; learned is what the assistant says.

    The token that ends a turn is learned too. Where the template rewrites what came before (old thinking
    dropped), the rewritten context begins another example.

    Raises:
        BadInput: a conversation without an assistant's message, or one that begins with it.
    """
    found: list[Example] = []
    for number, conversation in enumerate(conversations):
        where = f"conversation {number}"
        if conversation and conversation[0].get("role") == "assistant":
            raise BadInput("it begins with the assistant", where=where)
        made = rendered_turns(codec, conversation, partial(_turn_end, codec))
        if not made:
            raise BadInput("no assistant's message to learn", where=where)
        found += [Example(tokens, answers >= 0) for tokens, answers in made]
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
        said = codec.encode(str(message.get("content") or "")).tolist()
        said += end(history, [*context, *said])
        answers += [-1] * len(asked.tokens) + [number] * len(said)
        tokens, number = context + said, number + 1
    finish()
    return found


def _turn_end(codec: Codec, history: Sequence[Message], tokens: list[int]) -> list[int]:
    """The token that the template puts behind an assistant's turn, else the end of sequence, if any."""
    closing = codec.render(history, token_array(tokens), [])
    first: list[int] = closing.tokens[:1].tolist()
    if not closing.rewrites and first and first[0] in codec.eos_ids:
        return first
    eos = codec.tokenizer.eos_token_id
    return [int(eos)] if isinstance(eos, int) else []
