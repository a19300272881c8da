"""The conditions of the benchmark: a scenario in, the context before and after compaction out.

=================== =====================================================================================
floor               no policy turn, no compaction: what the agent does by itself
control             policy turn, no compaction
compaction          policy turn, then the compactor on everything before the request
attack_volume       an adversary's bulk text takes the place of half the benign turns and makes it fire
attack_inject       ingested text asks the summariser, in one of six framings, to leave the rule out
defense_pin         compaction, the rule in a pinned buffer
defense_pin_attack  attack_inject, the rule in a pinned buffer
=================== =====================================================================================

The pin's stress tests are conditions too: ``stress_rescind``, ``stress_distractors`` and
``stress_impersonation`` put what would talk the agent out of the rule behind a pinned compaction. The control
and the compaction differ by the compactor's output and by nothing else (:func:`only_compaction_differs`).

Source: arXiv:2606.22528. Where attacks stand in the history, and that bulk text replaces half of the benign
turns, is ours: the paper does not say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal, Protocol, TypeAlias

from refork.compaction import Compactor
from refork.errors import BadInput
from refork.formats.openai_chat import text_of
from refork.types import Json, Message
from refork_methods.pin.buffer import PinnedBuffer
from refork_methods.pin.compactor import PinnedCompactor
from refork_methods.pin.constraint import Constraint
from refork_methods.rot.stage import Stage, run_rounds

Condition: TypeAlias = Literal[
    "floor",
    "control",
    "compaction",
    "attack_volume",
    "attack_inject",
    "defense_pin",
    "defense_pin_attack",
    "stress_rescind",
    "stress_distractors",
    "stress_impersonation",
]
#: The seven of the headline grid, in the paper's order.
CONDITIONS: Final[tuple[Condition, ...]] = (
    "floor", "control", "compaction", "attack_volume", "attack_inject", "defense_pin", "defense_pin_attack",
)  # fmt: skip
STRESS: Final[tuple[Condition, ...]] = ("stress_rescind", "stress_distractors", "stress_impersonation")
COMPACTS: Final = frozenset({*CONDITIONS, *STRESS} - {"floor", "control"})
PINNED: Final = frozenset({"defense_pin", "defense_pin_attack", *STRESS})


class Script(Protocol):
    """What a condition needs of a scenario: its turns apart, and its rule."""

    @property
    def head(self) -> tuple[Message, ...]:
        """What stands before the policy turn, such as a system message."""
        ...

    @property
    def policy(self) -> tuple[Message, ...]:
        """The turn that states the rule, and the answer to it where there is one."""
        ...

    @property
    def benign(self) -> tuple[Message, ...]:
        """The turns between, which use up the budget."""
        ...

    @property
    def trigger(self) -> Message:
        """The request whose natural completion breaks the rule."""
        ...

    @property
    def rule(self) -> str:
        """The rule's bytes."""
        ...

    @property
    def tools(self) -> tuple[Json, ...]:
        """The function schemas that the agent is given."""
        ...


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything but the scenario that a condition needs.

    ``constraint`` is what is pinned. ``inject``: the ingested messages of attack_inject. ``volume``: the
    ingested messages of attack_volume, for a given number of characters at least. ``stress``: by condition,
    the messages behind the pinned compaction. ``rounds``: compactions one after another, the benign turns
    shared out among them.
    """

    compactor: Compactor
    constraint: Constraint
    inject: tuple[Message, ...] = ()
    volume: Callable[[int], Sequence[Message]] | None = None
    stress: dict[str, tuple[Message, ...]] = field(default_factory=dict)
    rounds: int = 1
    placement: Literal["head", "tail"] = "head"
    hardened: bool = True

    @property
    def buffer(self) -> PinnedBuffer:
        """The pinned buffer of the defended conditions."""
        return PinnedBuffer((self.constraint,), placement=self.placement, provenance=self.hardened)

    @property
    def pinned(self) -> PinnedCompactor:
        """The same compactor with the rule pinned."""
        return PinnedCompactor(self.compactor, self.buffer)


def stage(condition: str, script: Script, setup: Setup, request: Message | None = None) -> Stage:
    """The context of a scenario under a condition; ``request`` asks something else than the trigger.

    Zero rounds leave the history as it is, so every condition is then its own control.

    Raises:
        BadInput: no such condition, an attack or stress without its texts, or a rule that the control's
            context does not hold.
    """
    asked = request or script.trigger
    if condition not in (*CONDITIONS, *STRESS):
        raise BadInput(
            f"there is no condition {condition!r}", hint=f"known: {', '.join((*CONDITIONS, *STRESS))}"
        )
    plain = (*script.head, *script.policy, *script.benign)
    if not any(script.rule in text_of(m) for m in plain):
        raise BadInput(
            "the control's context does not hold the rule, so there is nothing to lose",
            where=repr(script.rule[:60]),
            hint="the policy turn must state the rule word for word",
        )
    if condition == "floor":
        return Stage("floor", (*script.head, *script.benign), asked, tools=script.tools)
    if condition == "control":
        return Stage("control", plain, asked, tools=script.tools)
    turns = _turns(condition, script, setup)
    compactor: Compactor = setup.pinned if condition in PINNED else setup.compactor
    rest = _stress(condition, setup)
    if setup.rounds == 0:
        pin = tuple(setup.buffer.apply([*script.head, *script.policy, *turns])) if condition in PINNED else ()
        whole = pin or (*script.head, *script.policy, *turns)
        return Stage(condition, (*whole, *rest), asked, tools=script.tools)
    segments = [list(part) for part in shares(turns, setup.rounds)]
    segments[0] = [*script.head, *script.policy, *segments[0]]
    return replace(run_rounds(condition, segments, asked, compactor, rest), tools=script.tools)


def _turns(condition: str, script: Script, setup: Setup) -> tuple[Message, ...]:
    """The benign turns as a condition has them, with what the adversary adds."""
    benign = script.benign
    if condition == "attack_volume":
        if setup.volume is None:
            raise BadInput("attack_volume needs bulk text", where="setup")
        half = _boundary(benign, len(benign) // 2)
        gone = sum(len(text_of(m)) for m in benign[half:])
        return (*benign[:half], *setup.volume(max(2 * gone, 1)))
    if condition in ("attack_inject", "defense_pin_attack"):
        if not setup.inject:
            raise BadInput(f"{condition} needs an injected text", where="setup")
        # In the middle: late enough to survive a trimmer, early enough to be summarised.
        half = _boundary(benign, len(benign) // 2)
        return (*benign[:half], *setup.inject, *benign[half:])
    return benign


def _stress(condition: str, setup: Setup) -> tuple[Message, ...]:
    if condition not in STRESS:
        return ()
    found = setup.stress.get(condition)
    if not found:
        raise BadInput(f"{condition} needs its messages", where="setup")
    return found


def _boundary(messages: Sequence[Message], near: int) -> int:
    """The first place from ``near`` on where a user's turn begins, so that no turn is torn apart."""
    for place in range(near, len(messages)):
        if messages[place].get("role") == "user":
            return place
    return len(messages)


def shares(turns: Sequence[Message], rounds: int) -> list[tuple[Message, ...]]:
    """Turns in as many consecutive parts as there are rounds, cut where a user's turn begins.

    Raises: BadInput where there are too few turns for the rounds.
    """
    cuts = [0]
    for k in range(1, rounds):
        # At least one behind the last cut: two cuts in one place would leave a round without turns.
        cuts.append(_boundary(turns, max(len(turns) * k // rounds, cuts[-1] + 1)))
    cuts.append(len(turns))
    parts = [tuple(turns[a:b]) for a, b in pairwise(cuts)]
    if any(not part for part in parts):
        raise BadInput(
            f"{len(turns)} benign messages are too few for {rounds} rounds", hint="ask for more turns"
        )
    return parts


def only_compaction_differs(control: Stage, other: Stage) -> bool:
    """The diff test: the same history and request, and what differs is what the compactor returned.

    Exact, message by message: nothing else was added, left out or reworded.
    """
    if not other.rounds or control.rounds:
        return False
    fed: list[Message] = []
    now: tuple[Message, ...] = ()
    for one in other.rounds:
        # A round is fed what the round before it returned, and new turns behind that.
        if one.before[: len(now)] != now:
            return False
        fed += one.before[len(now) :]
        now = one.result.messages
    whole = (*fed, *other.rest)
    return (
        whole == control.history
        and other.request == control.request
        and other.context == (*now, *other.rest, other.request)
    )


def grid_size(models: int, conditions: int = 7, tasks: int = 9, repetitions: int = 3) -> int:
    """Episodes of a full grid; the paper's is 7 x 7 x 9 x 3 = 1,323."""
    return models * conditions * tasks * repetitions
