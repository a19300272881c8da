"""The first stage: next-token loss on trajectories, every turn a target, each turn weighed by what it tells.

Source: arXiv 2606.24597 for the stage, its loss masks by turn class and its mixture with other text. There a
share is masked; as the weight of a turn it has the same expectation and less variance, and is our choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from refork.errors import BadInput
from refork.jsonl import json_objects
from refork.policies.chat import Codec
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.types import Json, Message, token_array
from refork.worlds.environment import EnvTrajectory, Transition
from refork_methods.simulate.data import mixture
from refork_methods.simulate.encode import Writer, encode_trajectory
from refork_methods.train.tracker import Tracker
from refork_methods.train.weighted import Weighted, WeightedSettings, fit_weighted, mean_by_kind

#: The class and the loss weight of every turn of a trajectory.
Weigh: TypeAlias = Callable[[Sequence[Transition]], Sequence[tuple[str, float]]]
#: Other data that is learned beside trajectories: a text, or a conversation.
Replay: TypeAlias = str | Sequence[Message]

REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class Encoded:
    """Sequences to train on: ``names`` of their kinds, and the turns of each that they hold.

    ``left_out`` counts trajectories that fit not even one turn, ``cut`` turns left out of others.
    """

    sequences: list[Weighted]
    names: tuple[str, ...]
    turns: dict[str, int]
    cut: int = 0
    left_out: int = 0

    @property
    def facts(self) -> Json:
        """Counts, for the record."""
        return {
            "sequences": len(self.sequences),
            "tokens": sum(len(item.tokens) for item in self.sequences),
            "weight": round(sum(item.total for item in self.sequences), 1),
            "turns": self.turns,
            "turns_cut": self.cut,
            "trajectories_left_out": self.left_out,
        }


@dataclass(frozen=True, slots=True)
class Trained:
    """What a stage left behind beside the weights: its log, and facts about data and losses."""

    log: list[Json]
    facts: Json


def weigh_alike(turns: Sequence[Transition]) -> list[tuple[str, float]]:
    """Every target whole: the loss without turn classes."""
    return [("turn", 0.0 if turn.target is False else 1.0) for turn in turns]


def encode_all(
    writer: Writer,
    trajectories: Iterable[EnvTrajectory],
    weigh: Weigh = weigh_alike,
    *,
    context: int | None = None,
) -> Encoded:
    """Trajectories as sequences in which every turn is a target with its weight."""
    items = list(trajectories)
    weighed = [list(weigh(item.turns)) for item in items]
    names = tuple(sorted({name for each in weighed for name, _ in each}))
    number = {name: i for i, name in enumerate(names)}
    found: list[Weighted] = []
    counts: Counter[str] = Counter()
    cut = left_out = 0
    for item, given in zip(items, weighed, strict=True):
        weights, kinds = [weight for _, weight in given], [number[name] for name, _ in given]
        made, kept = encode_trajectory(writer, item, weights, kinds, context=context)
        cut += len(given) - kept if kept else 0
        left_out += not kept
        counts.update(name for name, _ in given[:kept])
        found += made
    return Encoded(found, names, dict(sorted(counts.items())), cut, left_out)


def replay_sequences(codec: Codec, replay: Iterable[Replay], kind: int, window: int) -> list[Weighted]:
    """Texts and conversations as sequences of at most ``window`` tokens; of a conversation its answers."""
    writer, eos = Writer(codec), codec.tokenizer.eos_token_id
    found: list[Weighted] = []
    for item in replay:
        if not isinstance(item, str):
            answers = sum(message["role"] == "assistant" for message in item)
            made = writer.chat(item, [1.0] * answers, [kind] * answers)
            # A conversation is not cut as a text is: half an answer would teach to end in the middle.
            found += [each for each in made if len(each.tokens) <= window]
            continue
        tokens = [*codec.opening, *codec.encode(item).tolist(), *([eos] if isinstance(eos, int) else [])]
        for start in range(0, len(tokens), window):
            part = token_array(tokens[start : start + window])
            # A lone token has nothing before it to be predicted from.
            if len(part) > 1:
                ones = np.ones(len(part), dtype=np.float32)
                found.append(Weighted(part, ones, np.full(len(part), kind, dtype=np.int32)))
    return found


def read_replay(path: Path) -> list[Replay]:
    """Lines ``{"text": ...}`` or ``{"messages": [...]}`` of a JSON-lines file."""
    found: list[Replay] = []
    with path.open(encoding="utf-8") as lines:
        for place, body in json_objects(lines, str(path)):
            if isinstance(body.get("text"), str):
                found.append(body["text"])
            elif isinstance(body.get("messages"), list):
                found.append(body["messages"])
            else:
                raise BadInput("replay is a text or messages", where=place)
    return found


def context_of(policy: LocalPolicy, limit: int | None = None) -> int | None:
    """The most tokens of a sequence: the model's context or less."""
    own = policy.card.context
    return min((n for n in (own, limit) if n is not None), default=None)


def train_cpt(
    policy: LocalPolicy,
    trajectories: Sequence[EnvTrajectory],
    settings: WeightedSettings,
    *,
    weigh: Weigh = weigh_alike,
    replay: Sequence[Replay] = (),
    replay_fraction: float = 0.0,
    context: int | None = None,
    folder: Path | None = None,
    tracker: Tracker | None = None,
    progress: Progress = silent,
) -> Trained:
    """Train a policy in place to say what environments answer; resumable with ``folder``, bit for bit.

    The log has per step and turn class the unweighted negative log-likelihood (see
    :func:`refork_methods.train.weighted.fit_weighted`); other text counts as a class of its own, ``replay``.

    Raises:
        BadInput: nothing to train on, or a replay fraction without replay.
        Mismatch: the folder holds another run's checkpoints.
    """
    window = context_of(policy, context)
    encoded = encode_all(Writer(policy.codec), trajectories, weigh, context=window)
    return train_encoded(
        policy, encoded, settings, stage="cpt", replay=replay, replay_fraction=replay_fraction,
        window=window, folder=folder, tracker=tracker, progress=progress,
    )  # fmt: skip


def train_encoded(
    policy: LocalPolicy,
    encoded: Encoded,
    settings: WeightedSettings,
    *,
    stage: str,
    replay: Sequence[Replay] = (),
    replay_fraction: float = 0.0,
    window: int | None = None,
    **rest: Any,
) -> Trained:
    """The loop of the first two stages on sequences that are ready.

    Raises:
        BadInput: the model's context holds not one turn of them.
    """
    if not encoded.sequences and encoded.left_out:
        raise BadInput(
            f"none of {encoded.left_out} trajectories fits the model's context with even one turn",
            where=stage,
            hint="a model with a longer context, or a world with a shorter brief",
        )
    names = (*encoded.names, REPLAY) if replay else encoded.names
    again = replay_sequences(policy.codec, replay, len(encoded.names), window or 1 << 20)
    sizes = [len(item.tokens) for item in encoded.sequences], [len(item.tokens) for item in again]
    mix = mixture(*sizes, replay_fraction, settings.seed)
    examples = [*encoded.sequences, *(again[i] for i in mix.replay)]
    log = fit_weighted(policy.model, examples, settings, stage=stage, names=names, **rest)
    policy.refresh()
    last = log[-max(1, len(log) // 10) :]
    facts = encoded.facts | {
        "steps": len(log),
        "loss_first": log[0]["loss"],
        "loss_last": sum(row["loss"] for row in last) / len(last),
        "loss_by_class": mean_by_kind(last, names),
        "replay_share": mix.fraction,
    }
    return Trained(log, facts)
