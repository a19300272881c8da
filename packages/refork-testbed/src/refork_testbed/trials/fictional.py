"""Fictional: what a simulator says of an invented world is rendered from the world's table.

The model still decides what a search lists and which sentence of a page it shows; the values, the pages and
the verdict come from the table, so that no fact drifts from turn to turn.

Source: arXiv 2606.24597 for invented worlds behind simulated search; taking every value from the table after
the model has spoken is ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import final

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.base import Task
from refork.worlds.environment import ActionObservation
from refork_methods.simulate.control.base import Moment
from refork_methods.simulate.search_text import (
    MORE,
    NO_PAGE,
    NO_RESULTS,
    TIME_UP,
    grade,
    read_action,
    spans_of,
)
from refork_testbed.worlds.search.fiction import Fiction, fiction
from refork_testbed.worlds.search.source import text_of

_RESULT = re.compile(r"(\d+) (.+?) : (.*)")
_FOOTER = re.compile(r"page \d+ of \d+")
#: Rows that the model is told before a turn.
_ROWS = 5


@final
@dataclass(frozen=True, slots=True)
class Fictional:
    """Makes a simulator say what the table says.

    The world is the one whose number the task's data names. Combined with :class:`Stingy` it comes first.
    """

    name = "fictional"

    def to_json(self) -> Json:
        """Nothing to set."""
        return {"control": self.name}

    def world(self, task: Task) -> Fiction:
        """The world of a task; raises BadInput where it names none."""
        number = task.data.get("world")
        if isinstance(number, bool) or not isinstance(number, int):
            raise BadInput(
                "the task names no invented world", where=f"task {task.id}", hint="tasks of `search` do"
            )
        return fiction(number)

    def instruction(self, at: Moment) -> str:
        """The rows of the things that an action names."""
        call = read_action(at.action)
        if call is None or call.verb == "answer":
            return ""
        world = self.world(at.task)
        named = _opened(world, at.history, call.words) if call.verb == "open" else None
        titles = [named] if named else [title for title in world.titles() if spans_of(call.words, title)]
        rows = (
            f"{world.table_of(title)} : " + " , ".join(f"{k} {v}" for k, v in world.row(title).items())
            for title in titles[:_ROWS]
        )
        return "\n".join(rows)

    def after(self, at: Moment, predicted: str) -> tuple[str, Json | None]:
        """What the model said, with pages, values and verdict from the table."""
        call = read_action(at.action)
        if call is None:
            return predicted, None
        if call.verb == "answer":
            gold = at.task.data.get("answer")
            return grade(call.words, gold).verdict if gold else predicted, None
        world = self.world(at.task)
        lists = bool(at.task.data.get("lists", True))
        # Whether this turn was the last is the model's to say; what stands before that is the table's.
        late = predicted.endswith(f"\n{TIME_UP}")
        if call.verb == "open":
            title = _opened(world, at.history, call.words)
            said = NO_PAGE if title is None else text_of(title, world.page(title, lists))
        else:
            said = _listed(world, lists, predicted.removesuffix(f"\n{TIME_UP}"))
        return (f"{said}\n{TIME_UP}" if late else said), None


def _listed(world: Fiction, lists: bool, predicted: str) -> str:
    """Results of things that exist, each with a sentence of its page; other lines are left out."""
    lines: list[str] = []
    first, footer = 0, ""
    for line in predicted.split("\n"):
        found = _RESULT.fullmatch(line)
        if found is None:
            footer = line if _FOOTER.fullmatch(line) else footer
        elif world.table_of(found[2]) is not None:
            # Counted on from the first number that the model gave: a line left out leaves no gap.
            first = first if lines else int(found[1])
            lines.append(
                f"{first + len(lines)} {found[2]} : {_sentence(world.page(found[2], lists), found[3])}"
            )
    return "\n".join([*lines, footer] if footer else lines) if lines else NO_RESULTS


def _sentence(page: Sequence[str], said: str) -> str:
    """The sentence of a page that is most like what was said, cut where that was cut."""
    words = said.split(" ")
    cut = len(words) - 1 if len(words) > 1 and words[0] == MORE else None
    known = [" ".join([MORE, *text.split(" ")[-cut:]]) if cut else text for text in page]
    if said in known:
        return said
    likeness = [SequenceMatcher(None, words, text.split(" "), autojunk=False).ratio() for text in known]
    best = max(likeness, default=0.0)
    return known[likeness.index(best)] if best >= 0.5 else MORE


def _opened(world: Fiction, seen: Sequence[ActionObservation], what: str) -> str | None:
    """The thing whose page is opened: by its name, or by its number in the last list of results."""
    if world.table_of(what.lower()) is not None:
        return what.lower()
    if not what.isdigit():
        return None
    for action, said in reversed(seen):
        call = read_action(action)
        if call is not None and call.verb == "search":
            found = (_RESULT.fullmatch(line) for line in said.split("\n"))
            return next(
                (m[2] for m in found if m is not None and int(m[1]) == int(what) and world.table_of(m[2])),
                None,
            )
    return None
