"""Planted agents: exact distributions of obeying a rule, as a chat model and as a policy with token ids.

An agent looks for rules it knows in all that it is shown. Where one stands there, byte for byte, and the
requested call would break it, it makes the call with probability ``error`` and refuses otherwise. Where none
stands there it makes the call; what a hard rule forbids it refuses by itself with probability ``refusal``.
So the chance of a violation is known for every context, with no judge and no sampling.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from refork.chat import Reply, words_in
from refork.formats.openai_chat import text_of
from refork.policies.base import Cost
from refork.policies.scripted import TURN, Distribution, ScriptedPolicy, Words, chance_of
from refork.tool_calls import ToolCall, compact, openai_call
from refork.types import Json, Message
from refork.worlds.dice import Dice
from refork_methods.pin.checkers import violates
from refork_testbed.worlds.house_rules import words as w
from refork_testbed.worlds.house_rules.scenario import REFUSAL, SMALL_REFUSAL, Scenario
from refork_testbed.worlds.house_rules.tasks import LANGUAGES, TASKS
from refork_testbed.worlds.house_rules.triggers import request_text, requested


@final
@dataclass(frozen=True)
class RuleAgent:
    """The planted agent; a :class:`~refork.chat.ChatModel`. ``seed`` addresses its chance.

    ``error``: chance of breaking a rule that is in view. ``refusal``: chance of refusing what a hard rule
    forbids where it is not. ``compact``: it writes calls as compact lines, as the small wording has them.
    """

    error: float = 0.0
    refusal: float = 1.0
    compact: bool = False
    seed: int = 0

    @property
    def name(self) -> str:
        """Name and distribution."""
        return f"rule-agent(error={self.error:g}, refusal={self.refusal:g})"

    def call_chance(self, text: str) -> tuple[ToolCall | None, float]:
        """The call that a text's last request asks for, and the exact chance that the agent makes it."""
        call = requested(text)
        if call is None:
            return None, 0.0
        broken = [task for task in TASKS.values() if violates(call, task.checker)]
        if any(rule_in(text, task.name) for task in broken):
            return call, self.error
        return call, 1 - self.refusal if any(task.kind == "hard" for task in broken) else 1.0

    def violation_chance(self, messages: Sequence[Message], task: str) -> float:
        """The exact chance that it breaks a task's rule after these messages."""
        call, chance = self.call_chance(_context_text(messages))
        return chance if call is not None and violates(call, TASKS[task].checker) else 0.0

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """The call or a refusal; the same messages and draw give the same."""
        del tools
        text = _context_text(messages)
        call, chance = self.call_chance(text)
        luck = Dice("rule-agent", self.seed, text, draw).uniform()
        small = self.compact
        message: Message = {"role": "assistant", "content": SMALL_REFUSAL if small else REFUSAL}
        if call is not None and luck < chance:
            message = {"role": "assistant", "content": compact(call)} if small else openai_call(call)
        return Reply(message, cost=Cost(words_in(messages), len(text_of(message).split())))

    def policy(self) -> ScriptedPolicy:
        """The same distribution as a policy: its first token decides, and calls are compact lines."""
        words = Words(_pieces())
        identity = ["rule-agent", 1, self.error, self.refusal]
        return ScriptedPolicy(_Speaker(self, words), words, name=f"scripted:{self.name}", identity=identity)


def rule_in(text: str, task: str) -> bool:
    """Whether a text holds the rule of a task, byte for byte, in any wording."""
    about = TASKS[task]
    return any(rule in text for rule in (about.small, *(about.text("full", name) for name in LANGUAGES)))


def _context_text(messages: Sequence[Message]) -> str:
    return "\n".join(text_of(message) for message in messages)


@final
class _Speaker:
    """The distribution of the next token after token ids: the call or refusal, then the rest of it."""

    def __init__(self, agent: RuleAgent, words: Words) -> None:
        self._agent = agent
        self._words = words
        self._known: dict[str, dict[str, float]] = {}

    def _ways(self, before: str) -> dict[str, float]:
        """The two things it may say, and their chances."""
        if before not in self._known:
            if len(self._known) > 4096:
                self._known.clear()
            call, chance = self._agent.call_chance(before)
            ways = {SMALL_REFUSAL: 1 - chance} | ({compact(call): chance} if call is not None else {})
            self._known[before] = ways
        return self._known[before]

    def __call__(self, tokens: Sequence[int]) -> Distribution:
        ids = [int(t) for t in tokens]
        turn = len(ids) - ids[::-1].index(TURN) if TURN in ids else 0
        before, said = self._words.pieces(ids[:turn])[0], self._words.pieces(ids[turn:])[0]
        distribution: dict[str, float] = {}
        # Behind words that begin neither way nothing is left to say, and the turn ends.
        fitting = {way: p for way, p in self._ways(before).items() if p > 0 and way.startswith(said)} or {
            said: 1.0
        }
        for way, p in fitting.items():
            rest = way[len(said) :]
            first = self._words.pieces(self._words.encode(rest)[:1])[0] if rest else ""
            # Shares of the ways still open: what was said so far may have ruled one out.
            distribution[first] = distribution.get(first, 0.0) + p / sum(fitting.values())
        return distribution


def _pieces() -> list[str]:
    """Words of requests and rules, and every character of theirs that is more than one byte."""
    said = [REFUSAL, SMALL_REFUSAL, request_text("", ToolCall("send_email", {"to": "a"}))]
    said += [text for task in TASKS.values() for text in (task.rule, task.small, *task.other.values())]
    said += [text for pair in w.BODIES for text in pair]
    whole = "\n".join(said)
    return [*re.findall(r"\s?[A-Za-z_]+", whole), *re.findall(r"[^\x00-\x7f]", whole)]


def expected_violations(agent: RuleAgent, session: Scenario, survival: float) -> tuple[float, float, float]:
    """Exact (pooled, v if the rule survives, v if it is dropped) of an agent where it survives with a chance.

    pooled = P(survive) v_s + P(drop) v_d.
    """
    kept = agent.violation_chance(session.messages, session.task)
    lost = agent.violation_chance(session.floor().messages, session.task)
    return survival * kept + (1 - survival) * lost, kept, lost


def rule_agent_script(argument: str) -> ScriptedPolicy:
    """``rule-agent[@ERROR]``: obeys the house rules that it sees word for word, but for a share of errors."""
    return RuleAgent(error=chance_of("rule-agent", argument, 0.0)).policy()
