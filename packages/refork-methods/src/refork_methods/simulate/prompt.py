"""How a language model is asked what an environment will answer, and how its answer is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

from refork.errors import BadInput
from refork.plain import content_hash
from refork.policies.base import Cost
from refork.sampling.noise import NoiseKey, stream_of
from refork.thoughts import without_blocks
from refork.types import Message
from refork.worlds.environment import ActionObservation, Brief, EnvTrajectory, Transition

# How a language model is asked what an environment will answer, and how its answer is written.
#
# The environment is the assistant: the brief is the system message, an action the user's, an observation the
# assistant's, inside a tag. Reasoning may stand before the tag; it is never part of the context of later
# turns.
# An observation that itself holds such a tag is written with a backslash in it; extraction takes it out
# again.

TAG = "prediction"
THINK = "think"


#: Tags that must not stand in a text as they are, and tags that were escaped.
_BARE = re.compile(rf"<(\\*)(/?(?:{TAG}|{THINK})>)")
_ESCAPED = re.compile(rf"<\\(\\*)(/?(?:{TAG}|{THINK})>)")


def escaped(text: str) -> str:
    """The text with one backslash more, after its ``<``, in each tag of ours that it holds."""
    return _BARE.sub(r"<\\\1\2", text) if "<" in text else text


def unescaped(text: str) -> str:
    """Inverse of :func:`escaped`, for every text."""
    return _ESCAPED.sub(r"<\1\2", text) if "<" in text else text


def answer(observation: str, note: str | None = None) -> str:
    """What a simulator says: the note as its reasoning, if there is one, then the observation in its tag."""
    thought = f"<{THINK}>{escaped(note)}</{THINK}>" if note else ""
    return f"{thought}<{TAG}>{escaped(observation)}</{TAG}>"


def messages(
    brief: Brief,
    history: Sequence[ActionObservation],
    action: str | None = None,
    instruction: str = "",
) -> list[Message]:
    """The chat in which the answer to ``action`` is due (None: the chat so far).

    ``instruction`` is a control's, added to the brief.
    """
    system = "\n\n".join(part for part in (brief.text, instruction) if part)
    chat: list[Message] = [{"role": "system", "content": system}] if system else []
    for done, observation in history:
        chat.append({"role": "user", "content": done})
        chat.append({"role": "assistant", "content": answer(observation)})
    if action is not None:
        chat.append({"role": "user", "content": action})
    return chat


# What a simulator's answer says the world said: strictly the text inside the tag, nothing else.
#
# What is judged, served and compared is this text alone, so that words around it can earn nothing.
#
# Source: arXiv 2606.24597 for the rule (no reasoning, the last tagged block); the escaping of tags that an
# observation itself holds is ours (see :mod:`refork_methods.simulate.prompt`).

_THOUGHTS = re.compile(rf"<(/?){THINK}>")


_BLOCK = re.compile(rf"<{TAG}>((?:(?!</?{TAG}>).)*)</{TAG}>", re.DOTALL)
#: A think tag, or the tag of an answer.
_OPENS = re.compile(rf"{_THOUGHTS.pattern}|<{TAG}>")


def without_think(text: str) -> str:
    """The text without its think blocks, and otherwise as it is.

    Only the tag that simulators are taught counts: an observation may hold other words for reasoning.
    """
    return without_blocks(text, _THOUGHTS)


def extract_prediction(text: str) -> str | None:
    """The text inside the last complete tagged block after all think blocks; None where there is none.

    A block holds no other tag of its name: of nested ones the inner counts, of overlapping ones what is
    complete. Tags that were escaped come back as they were.
    """
    found = _BLOCK.findall(without_think(text))
    return unescaped(found[-1]) if found else None


def bare(text: str) -> bool:
    """Whether an answer is its reasoning and one tagged block, and says nothing beside them."""
    rest = without_think(text)
    return len(_BLOCK.findall(rest)) == 1 and not _BLOCK.sub("", rest).strip()


def thoughts(text: str) -> str:
    """What stands before the first tagged block outside of reasoning, think tags taken off: the reasoning."""
    depth, end = 0, len(text)
    for mark in _OPENS.finditer(text):
        if mark.group() == f"<{TAG}>":
            if depth == 0:
                end = mark.start()
                break
        else:
            depth = max(0, depth + (1 if mark.group()[1] != "/" else -1))
    return unescaped(_THOUGHTS.sub("", text[:end])).strip()


def matches(prediction: str | None, observation: str) -> bool:
    """Whether a prediction is the observation to the letter, white space at its end aside."""
    return prediction is not None and prediction.rstrip() == observation.rstrip()


# One turn of a trajectory as what is to be predicted, and which turn of each that is.
#
# Source: arXiv 2606.24597 for exactly one target turn per trajectory in reinforcement learning: targets that
# share a long prefix share their difficulty, and rewards within a batch lose their variance.

#: Which turns may be drawn: any, or those whose answer follows from what was said before.
Turns: TypeAlias = Literal["any", "exact"]


@dataclass(frozen=True, slots=True)
class Target:
    """The answer of turn ``index`` (0-based) of a trajectory, given what came before it."""

    trajectory: EnvTrajectory
    index: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < len(self.trajectory.turns):
            raise BadInput(f"there is no turn {self.index}", where=f"trajectory {self.trajectory.id}")

    @property
    def turn(self) -> Transition:
        """The turn itself."""
        return self.trajectory.turns[self.index]

    @property
    def brief(self) -> Brief:
        """What the simulator is told first."""
        return self.trajectory.brief

    @property
    def history(self) -> tuple[ActionObservation, ...]:
        """The turns before."""
        return self.trajectory.history(self.index)

    @property
    def action(self) -> str:
        """What was done."""
        return self.turn.action

    @property
    def truth(self) -> str:
        """What the environment answered."""
        return self.turn.observation

    @property
    def domain(self) -> str:
        """Which of the seven; ``other`` where none was named."""
        return self.trajectory.domain or "other"

    @property
    def key(self) -> str:
        """Names it among all targets."""
        return f"{self.trajectory.source}/{self.trajectory.id}/{self.index}"

    @property
    def digest(self) -> str:
        """Of its name, all that is asked and what was observed: it changes where the data behind it do."""
        history = [list(turn) for turn in self.history]
        return content_hash([self.key, self.brief.to_json(), history, self.action, self.truth])

    def messages(self) -> list[Message]:
        """The chat in which the answer is due."""
        return messages(self.brief, self.history, self.action)


def _eligible(trajectory: EnvTrajectory, turns: Turns) -> list[int]:
    """Numbers of the turns that may be predicted; what is kept as context only is never a target."""
    return [
        i for i, turn in enumerate(trajectory.turns)
        if turn.target is not False and (turns == "any" or turn.exact)
    ]  # fmt: skip


def pick(trajectories: Iterable[EnvTrajectory], seed: int, turns: Turns = "any") -> list[Target]:
    """One target of each trajectory, every eligible turn equally likely; none of one without such a turn.

    The choice is a function of the seed and the trajectory's own name, whatever the others are.
    """
    found: list[Target] = []
    for item in trajectories:
        open_ = _eligible(item, turns)
        if open_:
            at = stream_of("target", seed, item.source, item.id) % len(open_)
            found.append(Target(item, open_[at]))
    return found


def targets(
    trajectories: Iterable[EnvTrajectory], per_trajectory: int | None = None, seed: int = 0
) -> list[Target]:
    """All turns of trajectories in order, or so many drawn ones of each."""
    found: list[Target] = []
    for item in trajectories:
        numbers = _eligible(item, "any")
        if per_trajectory is not None:
            numbers.sort(key=lambda i: stream_of("targets", seed, item.source, item.id, i))
            numbers = sorted(numbers[:per_trajectory])
        found += [Target(item, i) for i in numbers]
    return found


def one_each(items: Sequence[Target]) -> None:
    """Refuse targets of which two come from one trajectory."""
    held: set[tuple[str, str]] = set()
    for item in items:
        name = (item.trajectory.source, item.trajectory.id)
        if name in held:
            raise BadInput(
                "two targets come from one trajectory",
                where=f"trajectory {item.trajectory.id} of {item.trajectory.source}",
                hint="reinforcement learning takes exactly one turn of each: use pick()",
            )
        held.add(name)


# One question to a simulator, and its answer.

#: Why there is no prediction where the model did answer.
NO_TAG = "no complete tag"


@final
@dataclass(frozen=True, slots=True)
class Asked:
    """One answer that is due: what came before, the action, and the address of the answer's noise."""

    brief: Brief
    history: tuple[ActionObservation, ...]
    action: str
    noise: NoiseKey
    instruction: str = ""


@final
@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says the environment answers; ``text`` None where it gave no valid answer.

    ``raw`` is all that it said at the last of its ``tries``, ``cost`` that of all of them. ``cut`` turns, the
    oldest, were left out of its context because they did not fit.
    """

    text: str | None
    raw: str
    cost: Cost = field(default_factory=Cost)
    error: str | None = None
    tries: int = 1
    cut: int = 0
