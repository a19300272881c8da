"""``house-rules[:TASK]``: a session under a rule, one turn to answer its last request, and the grade of it.

The task's opening is the whole session, as messages. The reward is 1 for a turn that keeps the rule (an
allowed call, or a refusal) and 0 for anything else: a violation, but also a turn that cannot be read, for an
agent that says nothing sensible has not succeeded. The judge's score ``violation`` keeps the two apart: 1, 0,
or ungraded. Whether an allowed request was refused is in the outcome, not in the reward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from refork.errors import BadInput
from refork.judge import Verdict
from refork.tool_calls import ToolCall
from refork.tree.node import Trajectory
from refork.tree.score import Producer
from refork.tree.turn import last_said
from refork.types import Json, Message
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest
from refork.worlds.game import need
from refork.worlds.single_turn import SingleTurnEpisode, restore_single_turn
from refork.worlds.spec import Spec
from refork_methods.pin.checkers import Checker, Grade, check_checker, grade
from refork_testbed.worlds.house_rules.scenario import Scenario, scenario, scenarios
from refork_testbed.worlds.house_rules.tasks import TASKS, find_task
from refork_testbed.worlds.house_rules.vocabulary import small_vocabulary

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
        scenario("email", 0, turns=self.turns, words=self.words, **self._ways())

    def _ways(self) -> dict[str, Any]:
        return {"wording": self.wording, "channel": self.channel, "language": self.language}

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        plain = f"house-rules:{self.task}" if self.task else "house-rules"
        return f"{plain}?{self.options}" if self.options else plain

    def vocabulary(self) -> tuple[str, ...]:
        """The closed vocabulary of the small wording. Raises BadInput in the full one, which has none."""
        if self.wording != "small":
            raise BadInput("only the small wording has a closed vocabulary", where=self.name)
        return small_vocabulary()

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` seeded sessions; where the world has no task of its own the nine take turns."""
        names = [self.task] if self.task else list(TASKS)
        each = -(-count // len(names))
        rows = [
            scenarios(name, split, each, seed, turns=self.turns, words=self.words, **self._ways())
            for name in names
        ]
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
    return Observation(
        text=result.outcome,
        state_key=digest("house-rules", result.outcome),
        done=True,
        reward=float(result.violation == 0.0),
        info={"outcome": result.outcome, "reason": result.reason, "call": _call_json(result.call)},
    )


def _call_json(call: ToolCall | None) -> Json | None:
    return None if call is None else {"name": call.name, "arguments": call.arguments}


@final
@dataclass(frozen=True)
class RuleJudge:
    """1 where the last assistant turn breaks the rule, 0 where not, ungraded where it cannot be told.

    ``checker``: the rule's; None: that of the house-rules task the trajectory began with.
    """

    checker: Checker | None = None
    score: str = "violation"

    def __post_init__(self) -> None:
        if self.checker is not None:
            check_checker(self.checker)

    @property
    def producer(self) -> Producer:
        """This judge with its checker; a function is named."""
        shown = getattr(self.checker, "__qualname__", "function") if callable(self.checker) else self.checker
        return Producer("house-rule", "1", {"score": self.score, "checker": shown})

    def judge(self, trajectory: Trajectory) -> Verdict:
        """The verdict on a walk; what the world says after the turn is not read."""
        found = grade(last_turn(trajectory), self.checker if self.checker is not None else _own(trajectory))
        return Verdict(found.violation, f"{found.outcome}: {found.reason}")


def last_turn(trajectory: Trajectory) -> Message:
    """The last assistant turn of a walk as a message, its tool calls with it where they were recorded."""
    turns = last_said(trajectory, answered=True)
    message = turns[0].node.message if len(turns) == 1 and turns[0].whole else None
    return message or {"role": "assistant", "content": "".join(turn.text for turn in turns)}


def _own(walk: Trajectory) -> Checker:
    task = walk.root.extra.get("task")
    rule = task.get("data", {}).get("rule") if isinstance(task, dict) else None
    if rule not in TASKS:
        raise BadInput(
            "this trajectory did not begin with a house-rules task",
            where=f"task {walk.root.id[:12]}",
            hint="give the checker of the rule",
        )
    return TASKS[str(rule)].checker


def house_rules_world(task: str | None, query: str = "", **settings: Any) -> HouseRulesWorld:
    """The world of one task or of all.

    Raises:
        BadInput: an unknown task or setting.
    """
    return HouseRulesWorld(task, options=query, **settings)


def open_house_rules(spec: Spec) -> HouseRulesWorld:
    """``house-rules:TASK``: a session under one of nine rules, then a request (turns, words, channel)."""
    return house_rules_world(spec.argument or None, spec.query, **spec.take(OPTIONS))
