"""What the roles and the agent would have read and written, counted in words: the three accounts.

The rules decide and cost nothing. To know what the same decisions cost with a model, the shipped model roles
are asked the shipped questions by a scripted model that answers with what the rules decided; its count of
tokens is white-space separated words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from refork.chat import ScriptedChat
from refork.errors import ServerError
from refork.policies.base import Cost
from refork.types import Json
from refork_methods.memory.codifier import Codified, Codifier, CodifierInput, SkeletonCodifier
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.retrieve import Candidate
from refork_methods.memory.roles.by_model import ModelCodifier, ModelManager, ModelReflector
from refork_methods.memory.roles.by_rule import RuleManager
from refork_methods.memory.roles.lesson import Chosen, Most, Reflection, Reflector
from refork_methods.memory.stream import Help, Outcome, StreamAgent, StreamTask
from refork_methods.memory.trajectory import RunTrajectory


def words(value: object) -> int:
    """White-space separated words of a text, or of a value as JSON."""
    return len((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split())


@final
@dataclass(frozen=True)
class CountedReflector:
    """A reflector's lessons, at the price of a model that writes the same."""

    inner: Reflector

    @property
    def name(self) -> str:
        """The inner one's."""
        return self.inner.name

    def reflect(self, run: RunTrajectory, given: Sequence[MemoryItem]) -> Reflection:
        """Lessons and their price."""
        found = self.inner.reflect(run, given)
        lessons = [
            {
                "kind": one.kind, "body": one.body, "evidence": list(one.evidence), "refs": list(one.refs),
                "skeleton": [step.to_json() for step in one.skeleton],
            }
            for one in found.lessons
        ]  # fmt: skip
        chat = ScriptedChat([json.dumps({"lessons": lessons})])
        return replace(found, cost=ModelReflector(chat).reflect(run, given).cost)


@final
@dataclass(frozen=True)
class CountedManager:
    """The rule's choice, at the price of a model that chooses the same."""

    inner: RuleManager = field(default_factory=RuleManager)

    @property
    def name(self) -> str:
        """The inner one's."""
        return "rule"

    def choose(
        self,
        query: str,
        candidates: Mapping[str, Sequence[Candidate]],
        items: Mapping[str, MemoryItem],
        plans: Mapping[str, str],
        most: Most,
    ) -> Chosen:
        """The choice and its price."""
        found = self.inner.choose(query, candidates, items, plans, most)
        chat = ScriptedChat(lambda _: json.dumps({"texts": list(found.items), "tools": list(found.tools)}))
        return replace(found, cost=ModelManager(chat).choose(query, candidates, items, plans, most).cost)


@final
@dataclass(frozen=True)
class CountedCodifier:
    """The deterministic codifier's tools, at the price of a model that writes the same code."""

    inner: Codifier = field(default_factory=SkeletonCodifier)

    @property
    def name(self) -> str:
        """The inner one's."""
        return self.inner.name

    def codify(self, given: CodifierInput) -> Codified:
        """Tools and their price."""
        found = self.inner.codify(given)
        tools: list[Json] = [
            {"name": one.name, "source": one.source, "doc": one.doc, "parameters": one.parameters,
             "needs": list(one.needs)}
            for one in found.tools
        ]  # fmt: skip
        answer = json.dumps({"tools": tools, "refuse": found.refused})
        try:
            priced = ModelCodifier(ScriptedChat(lambda _: answer)).codify(given)
        except ServerError as error:
            raise RuntimeError(f"the model codifier does not take the rule's answer: {error}") from error
        return replace(found, cost=priced.cost)


@final
class CountedAgent:
    """An agent whose runs cost what a chat model would read and write: the whole context at every turn."""

    def __init__(self, inner: StreamAgent, prompts: Mapping[str, str]) -> None:
        self._inner = inner
        self._prompts = prompts
        self.costs: list[int] = []

    @property
    def name(self) -> str:
        """The inner one's."""
        return self._inner.name

    def work(self, task: StreamTask, given: Help) -> Outcome:
        """The same run, with its cost."""
        found = self._inner.work(task, given)
        shown = [{"name": t.name, "doc": t.doc, "parameters": t.parameters} for t in given.tools]
        context = words(self._prompts[task.id]) + sum(words(one.body) for one in given.texts) + words(shown)
        read = written = 0
        for step in found.run.steps:
            said = words(f"{step.function} {json.dumps(step.arguments)} {step.output}")
            read, written = read + context, written + said
            context += said + words(step.observation)
        self.costs.append(read + written)
        return replace(found, run=replace(found.run, cost=Cost(tokens_in=read, tokens_out=written)))
