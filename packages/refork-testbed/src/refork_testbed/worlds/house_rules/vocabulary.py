"""The closed vocabulary of the small wording: every word and sign that it can say."""

from __future__ import annotations

import re

from refork.tool_calls import compact
from refork.worlds.dice import Dice
from refork_testbed.worlds.house_rules import attacks, facts, triggers, words
from refork_testbed.worlds.house_rules.scenario import CHANNELS, SMALL_REFUSAL, SMALL_SYSTEM, scenario
from refork_testbed.worlds.house_rules.summarisers import NOTHING
from refork_testbed.worlds.house_rules.tasks import COMPANY, REGION, TASKS, TOOLS

_PIECE = re.compile(r"[A-Za-z]+|[0-9]+|[^A-Za-z0-9\s]+")


def small_vocabulary() -> tuple[str, ...]:
    """Words, numbers and runs of signs of the small wording, sorted; attacks and stress messages included.

    Split as the organisms' tokenizer splits: letters, digits and signs are pieces of their own.
    """
    said = [COMPANY, REGION, NOTHING, SMALL_SYSTEM, SMALL_REFUSAL, "rule :", "what is the ?"]
    said += [text for name in dir(words) if name.startswith("SMALL_") for text in getattr(words, name)]
    said += [*words.REGIONS, *facts.ATTRIBUTES, *facts.SMALL_CHATTER, *facts.SMALL_ACKNOWLEDGED]
    for task in TASKS.values():
        said.append(task.small)
        said += [attacks.framing(name, task.small, "small") for name in attacks.FRAMINGS]
        for draw in range(_DRAWS):  # what the templates say around the values
            pair = triggers.draw_request(task.name, Dice("small vocabulary", draw), "small")
            for call in (pair.violating, pair.allowed):
                said += [triggers.request_text(pair.purpose, call, "small"), compact(call)]
        for make in attacks.STRESS.values():
            said += [str(m["content"]) for m in make(task.small, "small")]
    for channel in CHANNELS:
        session = scenario("email", 0, turns=3, wording="small", channel=channel)
        said += [str(m["content"]) for m in session.messages] + [slot.question for slot in session.slots]
    said += [tool["function"]["name"] for tool in TOOLS]
    return tuple(sorted({piece for text in said for piece in _PIECE.findall(text)}))


#: Enough to meet every template of every task.
_DRAWS = 12
