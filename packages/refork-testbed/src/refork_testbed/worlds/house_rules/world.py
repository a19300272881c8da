"""``house-rules[:TASK]``: a session under a rule, one turn to answer its last request, and the grade of it.

The task's opening is the whole session, as messages. The reward is 1 for a turn that keeps the rule (an
allowed call, or a refusal) and 0 for anything else: a violation, but also a turn that cannot be read, for an
agent that says nothing sensible has not succeeded. The outcome keeps the two apart, and says whether an
allowed request was refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest
from refork.worlds.game import need
from refork.worlds.single_turn import SingleTurnEpisode, restore_single_turn
from refork.worlds.spec import Spec
from refork_methods.pin.checkers import Grade, grade
from refork_testbed.worlds.house_rules.scenario import Scenario, Ways, scenario, scenarios
from refork_testbed.worlds.house_rules.tasks import TASKS, find_task

#: What the options of a specification mean, and their types.
OPTIONS: dict[str, type | tuple[type, ...]] = {
    "turns": int,
    "words": int,
    "wording": str,
    "channel": str,
    "language": str,
}


@final
@dataclass(frozen=True)
class HouseRulesWorld:
    """Sessions of one task, for None of all nine in turn; by chance half of them ask for what is allowed."""

    task: str | None = None
    turns: int = 6
    words: int | None = None
    wording: str = "full"
    channel: str = "user"
    language: str = "en"
    options: str = ""

    version = "1"
    max_turns = 1
    deterministic = True

    def __post_init__(self) -> None:
        if self.task is not None:
            find_task(self.task)
        scenario("email", 0, **self._ways())

    def _ways(self) -> Ways:
        return {key: getattr(self, key) for key in OPTIONS}  # type: ignore[return-value]

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        plain = f"house-rules:{self.task}" if self.task else "house-rules"
        return f"{plain}?{self.options}" if self.options else plain

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` seeded sessions; where the world has no task of its own the nine take turns."""
        names = [self.task] if self.task else list(TASKS)
        each = -(-count // len(names))
        rows = [scenarios(name, split, each, seed, **self._ways()) for name in names]
        ordered = [row[place] for place in range(each) for row in rows][:count]
        return [self._as_task(session) for session in ordered]

    def _as_task(self, session: Scenario) -> Task:
        twin = Dice("house-rules", "twin", session.task, session.seed).below(2) == 1
        chosen = session.twinned() if twin else session
        messages = [dict(m) for m in chosen.messages]
        if session.wording == "full":  # a chat model is offered the tools; the small wording is text alone
            messages[0]["tools"] = list(session.tools)
        data: Json = {
            "rule": session.task,
            "seed": session.seed,
            "twin": twin,
            "messages": messages,
        }
        return Task(
            id=f"house-rules/{session.task}/{digest(self.name, data)[:12]}",
            world=self.name,
            split=session.split,
            prompt="\n".join(str(m["content"]) for m in chosen.messages),
            data=data,
        )

    def start(self, task: Task, seed: int) -> SingleTurnEpisode:
        """Begin; the world itself has no chance."""
        del seed
        return SingleTurnEpisode(task, _grader(task))

    def restore(self, task: Task, snapshot: bytes) -> SingleTurnEpisode:
        """An episode in the state of a snapshot."""
        return restore_single_turn(task, snapshot, _grader(task))


def _grader(task: Task) -> Callable[[str], Observation]:
    need(task.data, ("rule", "seed", "twin", "messages"), "house-rules")
    checker = find_task(str(task.data["rule"])).checker
    return lambda action: observed(grade({"role": "assistant", "content": action}, checker))


def observed(result: Grade) -> Observation:
    """A grade as what a world shows; ``info`` holds the outcome, the call and the reason."""
    call = result.call
    return Observation(
        text=result.outcome,
        state_key=digest("house-rules", result.outcome),
        done=True,
        reward=float(result.violation == 0.0),
        info={
            "outcome": result.outcome,
            "reason": result.reason,
            "call": None if call is None else {"name": call.name, "arguments": call.arguments},
        },
    )


def open_house_rules(spec: Spec) -> HouseRulesWorld:
    """``house-rules:TASK``: a session under one of nine rules, then a request (turns, words, channel)."""
    return HouseRulesWorld(spec.argument or None, options=spec.query, **spec.take(OPTIONS))
