"""Sessions that several tests of rules under compaction share."""

from __future__ import annotations

from typing import Any

from refork.compaction import CompactionResult, Compactor
from refork_methods.pin.constraint import Constraint
from refork_methods.rot.session import ModelCall, SessionLog
from refork_testbed.worlds.house_rules.agents import RuleAgent
from refork_testbed.worlds.house_rules.scenario import scenario
from refork_testbed.worlds.house_rules.tasks import TASKS

SPEND = scenario("spend", 3, turns=8)
RULE = Constraint("spend", SPEND.rule, "soft", "purchase", TASKS["spend"].checker)


def recorded(compactor: Compactor, name: str = "orders") -> SessionLog:
    """The session of a rule-abiding agent whose history goes through a compactor before every request."""
    agent = RuleAgent()
    history: list[dict[str, Any]] = []
    calls: list[ModelCall] = []
    for message in SPEND.messages:
        if message["role"] == "system":
            history.append(message)
        if message["role"] != "user":
            continue
        done: CompactionResult | None = compactor.compact(history) if len(history) > 1 else None
        if done is not None and done.fired:
            history = list(done.messages)
        else:
            done = None
        history.append(message)
        answer = agent.reply(history).message
        calls.append(ModelCall(tuple(history), answer, done))
        history.append({**answer, "id": f"answer{len(calls)}"})
    return SessionLog(name, tuple(calls))
