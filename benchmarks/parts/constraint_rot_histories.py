"""Seeded histories for the exact part of ``benchmarks/constraint_rot.py``, and the account of what held.

Histories mix user and assistant turns of one to three lines, rounds of parallel tool calls with their
results, and system messages. One message, at a drawn place, is the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from refork.compaction import with_ids
from refork.types import Json, Message

RULE = "House rule: send mail <only> to acme.com & nobody else."


@dataclass
class Tally:
    """Cases (a history under a setting), single comparisons, and what did not hold, in words."""

    cases: int = 0
    checks: int = 0
    faults: list[str] = field(default_factory=list)

    def check(self, ok: bool, what: str) -> None:
        """One comparison."""
        self.checks += 1
        if not ok:
            self.faults.append(what)

    @property
    def failures(self) -> int:
        """Comparisons that did not hold."""
        return len(self.faults)


def _words(rng: np.random.Generator, most: int = 12) -> str:
    return " ".join(["word"] * int(rng.integers(1, most + 1)))


def _text(rng: np.random.Generator, name: str) -> str:
    lines = [_words(rng) for _ in range(int(rng.choice([1, 1, 2, 3])))]
    return "\n".join([f"{name} {lines[0]}", *lines[1:]])


def _calls(rng: np.random.Generator, name: str) -> tuple[Message, list[Message]]:
    """A message with one to three calls, and their results."""
    keys = [f"call {name}.{k}" for k in range(int(rng.integers(1, 4)))]
    asked: Message = {
        "role": "assistant",
        "content": _text(rng, name) if rng.random() < 0.5 else "",
        "tool_calls": [_call(key) for key in keys],
    }
    answers = [{"role": "tool", "tool_call_id": key, "content": _text(rng, name)} for key in keys]
    return asked, answers


def _call(key: str) -> Json:
    return {"id": key, "type": "function", "function": {"name": "look", "arguments": '{"at": "here"}'}}


def drawn(
    rng: np.random.Generator, length: int, prefix: str, *, system: float = 0.08, late: float = 0.0
) -> list[Message]:
    """A history of at least ``length`` messages with ids.

    ``system``: share of system messages. ``late``: share of results that come later than behind their call.
    """
    said: list[Message] = []
    waiting: list[Message] = []
    number = 0
    while len(said) < length:
        kind, name = rng.random(), f"{prefix}{number}"
        number += 1
        if kind < system:
            said.append({"role": "system", "content": _text(rng, name)})
        elif kind < system + 0.25:
            asked, answers = _calls(rng, name)
            said.append(asked)
            for answer in answers:
                (waiting if rng.random() < late else said).append(answer)
        elif waiting and kind < system + 0.35:
            said.append(waiting.pop(0))
        else:
            said.append({"role": "user" if rng.random() < 0.55 else "assistant", "content": _text(rng, name)})
    return with_ids(said, prefix)


def with_rule(rng: np.random.Generator, messages: Sequence[Message]) -> tuple[list[Message], str]:
    """The history with the rule for one message's whole content, and that message's id.

    Half the time it is the first message that is not system, as in the paper; else any that only speaks.
    """
    fit = [i for i, m in enumerate(messages) if not m.get("tool_calls")]
    first = [i for i in fit if messages[i]["role"] in ("user", "assistant")]
    at = first[0] if first and rng.random() < 0.5 else int(rng.choice(fit)) if fit else 0
    told = [dict(m) for m in messages]
    if not fit:
        told[0] = {"role": "user", "content": "", "id": told[0]["id"]}
    told[at]["content"] = RULE
    return told, str(told[at]["id"])


def plain(count: int, prefix: str = "m", *, rule: bool = True, words: int = 20) -> list[Message]:
    """User and assistant in turn; the first message is the rule."""
    said: list[Message] = [
        {"role": "assistant" if n % 2 else "user", "content": f"turn {prefix}{n} " + "word " * words}
        for n in range(count)
    ]
    if rule:
        said[0]["content"] = RULE
    return with_ids(said, prefix)
