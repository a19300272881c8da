"""``refusal:P|D|C``: a request, one turn of thinking, and an answer that refuses or complies.

The reward is 1 for a refusal and 0 for anything else, whatever was asked: an outcome, not a grade.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from refork.errors import BadInput
from refork.judge import Verdict
from refork.policies.scripted import Distribution, ScriptedPolicy
from refork.tree.node import Trajectory
from refork.tree.score import Producer
from refork.tree.turn import last_said
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.single_turn import SingleTurnEpisode, restore_single_turn
from refork.worlds.spec import Spec
from refork_testbed.worlds.refusal.distribution import WORDS, RefusalDistribution, Rule, refused
from refork_testbed.worlds.refusal.prompts import (
    LEAN,
    SPREAD,
    RefusalPrompt,
    draw_prompt,
    refusal_chances,
    words,
)

#: Different requests that are asked for at most; there are 8,192.
_MOST = 1500


@final
@dataclass(frozen=True)
class RefusalWorld:
    """Requests, and the distribution that the planted policy answers by; ``spread``: the a of Beta(a, a)."""

    distribution: RefusalDistribution
    spread: float = SPREAD
    options: str = ""

    version = "1"
    max_turns = 1
    deterministic = True

    def __post_init__(self) -> None:
        refusal_chances(self.spread)

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        plain = f"refusal:{self.distribution.rule}"
        return f"{plain}?{self.options}" if self.options else plain

    def chance(self, task: Task) -> float:
        """A request's own chance of a refusal: the answer's distribution in P, nothing in D and C."""
        return refusal_chances(self.spread)[RefusalPrompt.from_json(task.data).level]

    def truth(self, task: Task) -> float:
        """The exact chance that a request is refused under this world's distribution."""
        return self.chance(task) if self.distribution.rule == "P" else 0.5

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different seeded requests, levels equally likely; a longer list begins as a shorter one.

        Raises:
            BadInput: more requests than there may be.
        """
        # About one in four requests is held out; near that many the loop below would not end.
        if count > _MOST:
            raise BadInput(f"{count} requests are too many", where=self.name, hint=f"at most {_MOST}")
        dice, found = Dice("refusal", LEAN, seed), dict[str, Task]()
        while len(found) < count:
            prompt = draw_prompt(dice.below, dice.uniform)
            mark = digest("refusal", prompt.to_json())
            if mark not in found and split_of(mark) == split:
                found[mark] = Task(
                    id=f"refusal/{mark[:16]}",
                    world=self.name,
                    split=split,
                    prompt=prompt.text,
                    data=prompt.to_json(),
                )
        return list(found.values())

    def start(self, task: Task, seed: int) -> SingleTurnEpisode:
        """Begin; the world itself has no chance."""
        del seed
        RefusalPrompt.from_json(task.data)
        return SingleTurnEpisode(task, _observation)

    def restore(self, task: Task, snapshot: bytes) -> SingleTurnEpisode:
        """An episode in the state of a snapshot."""
        return restore_single_turn(task, snapshot, _observation)

    def policy(self) -> ScriptedPolicy:
        """The planted distribution as a policy, exact to the last digit."""
        return refusal_policy(self.distribution, self.spread)


def _observation(action: str) -> Observation:
    verdict = refused(action)
    said = {True: "refused", False: "complied", None: "no answer"}[verdict]
    return Observation(
        text=said,
        state_key=digest("refusal", said),
        done=True,
        reward=float(verdict is True),
        info={"answered": verdict is not None},
    )


@final
@dataclass(frozen=True, slots=True)
class RefusalJudge:
    """1 for a refusal, 0 for a compliance, ungraded where thinking never closed or no answer came."""

    score: str = "refusal"

    @property
    def producer(self) -> Producer:
        """This judge; it has nothing to configure but the name of its score."""
        return Producer("refusal", "1", {"score": self.score})

    def judge(self, trajectory: Trajectory) -> Verdict:
        """Whether the last turn refuses; what the world says after it is not read."""
        verdict = refused("".join(turn.text for turn in last_said(trajectory, answered=True)))
        return Verdict(None if verdict is None else float(verdict))


def refusal_world(rule: str, spread: float = SPREAD, options: str = "", **numbers: float) -> RefusalWorld:
    """A planted world: ``rule`` P, D or C, and the distribution's own numbers (steps, flip, commit, early).

    Raises:
        BadInput: an unknown rule, or a number out of range.
    """
    distribution = RefusalDistribution(rule, **numbers)  # type: ignore[arg-type]
    return RefusalWorld(distribution, spread, options)


def refusal_policy(distribution: RefusalDistribution, spread: float = SPREAD) -> ScriptedPolicy:
    """A planted distribution as a policy with token ids: it reads the last request of the text and goes on.

    Where the text holds no request of this world, the request's own chance is a coin.
    """
    pieces = {f" {word}" for word in (*words(), *WORDS)} | {"harmful", "benign", WORDS[0]}
    chances = refusal_chances(spread)

    def next_word(text: str) -> Distribution:
        # A turn holds no newline, so what stands behind the last one is the turn so far.
        asked, _, said = text.rpartition("\n")
        prompt = RefusalPrompt.find(asked.rpartition("\n")[2])
        chance = 0.5 if prompt is None else chances[prompt.level]
        following = distribution.next_word(chance, said.split())
        return {(f" {word}" if word and said else word): p for word, p in following.items()}

    return ScriptedPolicy.from_text(
        next_word,
        pieces,
        name=f"scripted:refuser-{distribution.rule.lower()}",
        version=f"{distribution} {spread}",
    )


def open_refusal(spec: Spec) -> RefusalWorld:
    """``refusal:P``: thinking, then refuse or comply: P, D, C (option early, steps, flip, commit, spread)."""
    number = (float, int)
    options: dict[str, type | tuple[type, ...]] = {
        "early": number, "steps": int, "flip": number, "commit": int, "spread": number,
    }  # fmt: skip
    return refusal_world(spec.argument or "P", options=spec.query, **spec.take(options))


def refuser(argument: str) -> ScriptedPolicy:
    """``refuser-p``, ``refuser-d``, ``refuser-c``: answer the refusal worlds by the planted distributions."""
    rules: dict[str, Rule] = {"p": "P", "d": "D", "c": "C"}
    if argument not in rules:
        raise BadInput(f"there is no script 'refuser-{argument}'", hint="refuser-p, refuser-d or refuser-c")
    return refusal_policy(RefusalDistribution(rules[argument]))
