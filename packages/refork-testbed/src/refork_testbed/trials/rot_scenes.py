"""Scenarios of the house-rules world as the conditions take them, with the adversary's texts in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

from refork.compaction import Compactor
from refork.types import Json, Message
from refork_methods.pin.constraint import Constraint
from refork_methods.rot.conditions import Setup
from refork_testbed.worlds.house_rules import attacks as a
from refork_testbed.worlds.house_rules.scenario import Scenario


@final
@dataclass(frozen=True, slots=True)
class Scene:
    """A scenario taken apart: what stands before the policy turn, that turn, the benign ones, the request."""

    scenario: Scenario

    @property
    def head(self) -> tuple[Message, ...]:
        """What stands before the policy turn."""
        history = self.scenario.history
        first = next(i for i, m in enumerate(history) if m["id"] in self._policy)
        return history[:first]

    @property
    def policy(self) -> tuple[Message, ...]:
        """The turn that states the rule, and its answer."""
        return tuple(m for m in self.scenario.history if m["id"] in self._policy)

    @property
    def benign(self) -> tuple[Message, ...]:
        """The turns between."""
        history = self.scenario.history
        return tuple(m for m in history[len(self.head) :] if m["id"] not in self._policy)

    @property
    def trigger(self) -> Message:
        """The request that breaks the rule."""
        return self.scenario.trigger

    @property
    def twin(self) -> Message:
        """Its allowed counterpart."""
        return self.scenario.twin

    @property
    def rule(self) -> str:
        """The rule's bytes."""
        return self.scenario.rule

    @property
    def tools(self) -> tuple[Json, ...]:
        """Function schemas; none in the small wording, whose agents write their calls as text."""
        return self.scenario.tools if self.scenario.wording == "full" else ()

    @property
    def checker(self) -> Json:
        """What says whether a call breaks the rule."""
        return self.scenario.about.checker

    @property
    def constraint(self) -> Constraint:
        """The rule as it is pinned."""
        about = self.scenario.about
        return Constraint(about.name, self.rule, about.kind, about.tool, about.checker)

    @property
    def _policy(self) -> frozenset[str]:
        return frozenset(self.scenario.policy_ids)


#: Documents that the bulk text of attack_volume comes in.
_DOCUMENTS: Final = 4
#: Characters that a word of the bulk text has at least, the space after it included.
_SHORTEST: Final = 3


def setup_for(
    scene: Scene,
    compactor: Compactor,
    *,
    framing: str = a.FRAMINGS[0],
    rounds: int = 1,
    placement: Literal["head", "tail"] = "head",
    hardened: bool = True,
) -> Setup:
    """What the conditions of a scene need: the compactor, the pin, and the adversary's messages.

    Raises: BadInput for a framing that is not known.
    """
    wording, seed = scene.scenario.wording, scene.scenario.seed
    text = a.framing(framing, scene.scenario.task, wording)

    def volume(characters: int) -> Sequence[Message]:
        words = -(-characters // (_SHORTEST * _DOCUMENTS))
        texts = [a.volume_text(words, seed + place, wording) for place in range(_DOCUMENTS)]
        return a.ingested(texts, "volume", wording)

    return Setup(
        compactor=compactor,
        constraint=scene.constraint,
        inject=tuple(a.ingested([text], "attack", wording)),
        volume=volume,
        stress={f"stress_{name}": tuple(make(scene.rule, wording)) for name, make in a.STRESS.items()},
        rounds=rounds,
        placement=placement,
        hardened=hardened,
    )
