"""The thirty scenario templates, and instances of them.

Twenty have one sentence. Ten are new combinations of two of those: what was learned on the twenty serves
there as a part, never as the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from refork.errors import BadInput
from refork.worlds.dice import Dice
from refork_testbed.worlds.miniapps.apps.calendar import HOME_ZONE
from refork_testbed.worlds.miniapps.catalogue import catalogue
from refork_testbed.worlds.miniapps.population import TODAY, begin, fill
from refork_testbed.worlds.miniapps.service import PASSWORDS, USERNAME
from refork_testbed.worlds.miniapps.shift import Shift
from refork_testbed.worlds.miniapps.templates import LIFE, MONEY, Change, Template

#: Templates of one sentence.
SIMPLE: dict[str, Template] = {template.key: template for template in (*MONEY, *LIFE)}
#: Templates of two sentences.
PAIRS: tuple[tuple[str, str], ...] = (
    ("pay-bill", "archive-sender"),
    ("return-payment", "note-append"),
    ("approve-requests", "event-new"),
    ("pay-person", "reply"),
    ("playlist-new", "event-move"),
    ("save-message", "artist-rate"),
    ("forward-note", "event-delete"),
    ("playlist-add", "request-person"),
    ("archive-subject", "pay-person"),
    ("song-rate", "approve-requests"),
)
JOIN = "+"
THEN = " Then: "
#: Names of template sets: all thirty, the twenty of one sentence, the ten of two.
SETS: dict[str, tuple[str, ...]] = {
    "seen": tuple(SIMPLE),
    "new": tuple(JOIN.join(pair) for pair in PAIRS),
}
SETS["all"] = SETS["seen"] + SETS["new"]


@dataclass(frozen=True, slots=True)
class Part:
    """One sentence of a task: its template and slots."""

    template: str
    slots: dict[str, str]
    sentence: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """An instance: the rows at the beginning, the parts of the request, and what must have changed."""

    rows: dict[str, list[dict[str, Any]]]
    parts: tuple[Part, ...]
    changes: tuple[Change, ...]
    answer: str | None

    @property
    def query(self) -> str:
        """The request in words."""
        return THEN.join(part.sentence for part in self.parts)


@lru_cache(maxsize=512)
def scenario(name: str, seed: int) -> Scenario:
    """The instance of a template that a seed stands for; treat it as read-only.

    Raises:
        BadInput: there is no such template.
    """
    if name not in SETS["all"]:
        raise BadInput(
            f"there is no template {name!r}", where="miniapps", hint=f"templates: {', '.join(SETS['all'])}"
        )
    draft = begin(Dice("miniapps", name, seed))
    templates = [SIMPLE[key] for key in name.split(JOIN)]
    made = [template.make(draft) for template in templates]
    fill(draft)
    for table in draft.rows:
        if table != "people":
            draft.shuffle(table)
    parts = tuple(
        Part(template.key, one.slots, template.tell(one.slots))
        for template, one in zip(templates, made, strict=True)
    )
    answers = [one.answer() for one in made if one.answer is not None]
    # An update to the values that a row has already is no change, and nobody could make it.
    changes = tuple(
        change for one in made for change in one.changes() if change.kind != "update" or change.values
    )
    return Scenario(draft.rows, parts, changes, answers[0] if answers else None)


def read_query(query: str) -> Iterator[Part]:
    """The parts of a request, read from its words alone.

    Raises:
        BadInput: a sentence that fits no template.
    """
    for sentence in query.split(THEN):
        for template in SIMPLE.values():
            slots = template.read(sentence)
            if slots is not None:
                yield Part(template.key, slots, sentence)
                break
        else:
            raise BadInput(f"no template has the sentence {sentence!r}", where="miniapps")


def prompt_of(query: str, shift: Shift) -> str:
    """What the policy is told: the request, how to act, the user's accounts, the functions."""
    accounts = ", ".join(f"{app} {password}" for app, password in PASSWORDS.items())
    functions = "\n".join(f"{one.signature}: {one.doc}" for one in catalogue(shift))
    return (
        f"You act for Robin Vale in five apps. Home time zone {HOME_ZONE}; today is {TODAY.isoformat()}.\n"
        f"Task: {query}\n"
        "Each turn is one call: apis.app.function(name=value, ...) with plain values, or one JSON object "
        '{"function": "app.function", "arguments": {...}}. Lines that begin with # are notes to yourself. '
        "When all is done: done(), or done(answer=...) for a question.\n"
        f"Accounts: username {USERNAME}; passwords {accounts}.\n"
        f"Functions:\n{functions}"
    )


def query_of(prompt: str) -> str:
    """The request in a prompt.

    Raises:
        BadInput: the prompt has none.
    """
    for line in prompt.split("\n"):
        if line.startswith("Task: "):
            return line.removeprefix("Task: ")
    raise BadInput("the prompt has no line 'Task: ...'", where="miniapps")
