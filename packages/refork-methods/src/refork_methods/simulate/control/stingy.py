"""Stingy: a simulator that knows the answer must not put it into a list of results that did not earn it.

A query earns an item of the answer where it says the item itself, where it says every name that leads to the
answer and that the question does not tell (``needs``), or where a page opened before has shown the item.
Otherwise the item is taken out of titles and snippets, whatever the model was told and did. Pages keep it.

Source: arXiv 2606.24597 for the rule as an instruction to the model; what earns an answer and that the rule
is enforced on the text are ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.base import Task
from refork.worlds.environment import ActionObservation
from refork_methods.simulate.control.base import Moment
from refork_methods.simulate.search_text import MORE, NO_PAGE, read_action, spans_of

#: What numbers a result, and the line that counts the pages: no part of what a result says.
# A bare number may be the answer, and so may one too long for a list ("1893: the year it opened").
_NUMBER = re.compile(r"\s*\d{1,3}[.):]\s+")
_FOOTER = re.compile(r"\s*page \d+ of \d+\s*")
_OPENS = ("open", "fetch", "visit", "extract", "browse", "read")
_QUERIES = ("query", "q", "words", "text", "search", "search_term")


@dataclass(frozen=True, slots=True)
class Secret:
    """What must not be told: items with other ways to say them, and the names that lead to them."""

    items: tuple[str, ...]
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.items or not all(spans_of(item, item) for item in self.items):
            raise BadInput("a secret has items, each of at least one word or number", where="stingy")
        unknown = sorted(set(self.aliases) - set(self.items))
        if unknown:
            raise BadInput(f"aliases of {unknown[0]!r}, which is no item", where="stingy")

    def ways(self, item: str) -> tuple[str, ...]:
        """An item and its aliases."""
        return (item, *self.aliases.get(item, ()))

    def spans(self, item: str, text: str) -> list[tuple[int, int]]:
        """Where a text says an item, in any way."""
        return [span for way in self.ways(item) for span in spans_of(text, way)]


def secret_of(task: Task) -> Secret | None:
    """What a task's data say: ``answer`` and, where they are there, ``aliases`` and ``needs``."""
    return secret_in(task.data)


def secret_in(data: Mapping[str, Any]) -> Secret | None:
    """The secret of task data; None where they name no answer."""
    answer = data.get("answer")
    items = [answer] if isinstance(answer, str) else answer
    if not isinstance(items, list | tuple) or not items:
        return None
    needs, aliases = data.get("needs") or (), data.get("aliases") or {}
    return Secret(tuple(map(str, items)), dict(aliases), tuple(map(str, needs)))


def query_of(action: str) -> str | None:
    """The query of a search: ``search: words``, or a call of a tool with "search" in its name; else None."""
    name, arguments = _called(action)
    if name is None:
        call = read_action(action)
        return call.words if call is not None and call.verb == "search" else None
    if "search" not in name:
        return None
    # Under an unknown name all that was sent counts as the query.
    return next((str(arguments[key]) for key in _QUERIES if key in arguments), json.dumps(arguments))


def opens_page(action: str) -> bool:
    """Whether an action opens a page, said plainly or as a call of a tool."""
    name, _ = _called(action)
    if name is None:
        call = read_action(action)
        return call is not None and call.verb == "open"
    return "search" not in name and any(verb in name for verb in _OPENS)


def _called(action: str) -> tuple[str | None, Mapping[str, Any]]:
    if not action.lstrip().startswith("{"):
        return None, {}
    try:
        body = json.loads(action)
        name, arguments = str(body["name"]).lower(), body.get("arguments") or {}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None, {}
    return name, arguments if isinstance(arguments, dict) else {}


def unearned(secret: Secret, history: Sequence[ActionObservation], query: str) -> tuple[str, ...]:
    """The items that a query after these turns has not earned."""
    if secret.needs and all(spans_of(query, name) for name in secret.needs):
        return ()
    pages = [said for action, said in history if opens_page(action) and not said.startswith(NO_PAGE)]
    return tuple(
        item
        for item in secret.items
        if not secret.spans(item, query) and not any(secret.spans(item, page) for page in pages)
    )


def items_stated(secret: Secret, items: Sequence[str], text: str) -> tuple[str, ...]:
    """Which of these items a list of results says; numbering and the line that counts pages say nothing."""
    lines = [line[start:] for line, start in _lines(text)]
    return tuple(item for item in items if any(secret.spans(item, line) for line in lines))


def teased(secret: Secret, items: Sequence[str], text: str, teaser: str = MORE) -> str:
    """A list of results with these items taken out, ``teaser`` in their place (once where it repeats)."""
    out = []
    for line, start in _lines(text):
        head, body = line[:start], line[start:]
        spans = sorted(span for item in items for span in secret.spans(item, body))
        if spans:
            body = _cut(body, spans, teaser)
        out.append(head + body)
    return "\n".join(out)


def _lines(text: str) -> list[tuple[str, int]]:
    """The lines of a list of results, and where in each what it says begins."""
    found = []
    for line in text.split("\n"):
        number = _NUMBER.match(line)
        start = len(line) if _FOOTER.fullmatch(line) else number.end() if number is not None else 0
        found.append((line, start))
    return found


def _cut(text: str, spans: Sequence[tuple[int, int]], teaser: str) -> str:
    parts, at = [], 0
    for start, end in spans:
        if start >= at:
            parts += [text[at:start], teaser]
        # Spans of different items may overlap.
        at = max(at, end)
    joined = "".join([*parts, text[at:]])
    return re.sub(rf"{re.escape(teaser)}(?:\s*{re.escape(teaser)})+", teaser, joined) if teaser else joined


@final
@dataclass(frozen=True, slots=True)
class Stingy:
    """Keeps the reference answer out of lists of results until a query has earned it.

    ``answer`` and ``needs`` default to those of the task's data. Without ``tell`` the model is not told (one
    that follows no instructions is only confused by them). Combined with others it comes last.

    Raises:
        BadInput: an empty answer, or (when it is used) a task without one.
    """

    answer: str | Sequence[str] | None = None
    needs: Sequence[str] | None = None
    teaser: str = MORE
    tell: bool = True

    def __post_init__(self) -> None:
        if self.answer is not None:
            self._given()

    @property
    def name(self) -> str:
        """``stingy``."""
        return "stingy"

    def to_json(self) -> Json:
        """The settings that are not the task's."""
        answer = [self.answer] if isinstance(self.answer, str) else self.answer
        return {
            "control": self.name,
            "answer": None if answer is None else list(answer),
            "needs": None if self.needs is None else list(self.needs),
            "teaser": self.teaser,
            "tell": self.tell,
        }

    def _given(self) -> Secret:
        items = (self.answer,) if isinstance(self.answer, str) else tuple(self.answer or ())
        return Secret(items, needs=tuple(self.needs or ()))

    def secret(self, task: Task) -> Secret:
        """What must not be told in a task; raises BadInput where neither it nor the settings say."""
        if self.answer is not None:
            return self._given()
        found = secret_of(task)
        if found is None:
            raise BadInput(
                "the task names no reference answer", where=f"task {task.id}", hint="give Stingy(answer=...)"
            )
        needs = found.needs if self.needs is None else tuple(self.needs)
        return replace(found, needs=needs)

    def _withheld(self, at: Moment) -> tuple[Secret, tuple[str, ...]] | None:
        query = query_of(at.action)
        if query is None:
            return None
        secret = self.secret(at.task)
        return secret, unearned(secret, at.history, query)

    def instruction(self, at: Moment) -> str:
        """What the model is told before a search that has not earned the answer; else nothing."""
        kept = self._withheld(at) if self.tell else None
        if kept is None or not kept[1]:
            return ""
        return (
            "This query has not earned the reference answer : keep "
            f"{' ; '.join(kept[1])} out of titles and snippets . A snippet teases ; a page tells all ."
        )

    def after(self, at: Moment, predicted: str) -> tuple[str, Json | None]:
        """What the model said, unearned items taken out of a list of results; and how many."""
        kept = self._withheld(at)
        if kept is None:
            return predicted, None
        items = items_stated(*kept, predicted)
        return teased(*kept, predicted, self.teaser), {"items": len(items)} if items else None
