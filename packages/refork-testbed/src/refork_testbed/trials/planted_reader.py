"""A scripted reader: a chat model without a network or weights that searches, looks and answers as told here.

It knows the issue and what the tools showed it, nothing else; for tests, benchmarks and documentation of the
loop. The same messages and draw give the same answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from refork.chat import Reply, words_in
from refork.errors import BadInput
from refork.formats.openai_chat import text_of
from refork.policies.base import Cost
from refork.sampling.noise import stream_of
from refork.types import Json, Message
from refork_methods.localize.prompts import FINAL
from refork_methods.localize.ranking import is_test
from refork_methods.localize.terms import issue_terms, spelled

_HIT = re.compile(r"^(?P<path>\S+?):(?P<line>\d+): (?P<text>.*)$", re.MULTILINE)
_TURN = re.compile(r"\A\[turn (\d+);")
_ISSUE = "The issue:\n\n"


@final
@dataclass(frozen=True, slots=True)
class PlantedReader:
    """Searches the issue's words, ``searches`` at most, opens the best file, then gives its case file.

    ``wander`` [scale of Gumbel noise]: how much the order of the words is the draw's own; 0 is the order of
    their weights. ``stubborn`` repeats its first call for ever.
    """

    searches: int = 6
    wander: float = 0.0
    stubborn: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.searches < 1 or self.wander < 0:
            raise BadInput("a reader searches at least once, and wanders by 0 or more")

    @property
    def name(self) -> str:
        """``planted-reader`` with what differs from the default."""
        told = [f"{k}={v}" for k, v in (("searches", self.searches), ("wander", self.wander))]
        return f"planted-reader:{','.join(told)}{',stubborn' if self.stubborn else ''}"

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        """The next call, or the case file where the search is over or the tools are gone."""
        del tools
        words = self._words(str(messages[1]["content"]), draw)
        heads = _TURN.findall(text_of(messages[-1])) if len(messages) > 2 else []
        said = int(heads[0]) if heads else 0  # by the head: earlier turns may stand as single lines
        found = hits([text_of(one) for one in messages[2:] if one.get("role") != "assistant"])
        if FINAL in str(messages[-1]["content"]) and not self.stubborn:
            answer = case_of(found)
        elif self.stubborn or said < len(words):
            word = words[0 if self.stubborn else said]
            answer = {"tool": "search", "arguments": {"text": word, "max_hits": 30}}
        elif said == len(words) and found:
            path, line = best_line(found)
            arguments = {"path": path, "start": max(1, line - 20), "end": line + 20}
            answer = {"tool": "view_file", "arguments": arguments}
        else:
            answer = case_of(found)
        text = json.dumps(answer, ensure_ascii=False)
        cost = Cost(tokens_in=words_in(messages), tokens_out=len(text.split()))
        return Reply({"role": "assistant", "content": text}, cost=cost)

    def _words(self, told: str, draw: int) -> list[str]:
        """What to search for, in order, as the issue spells it."""
        issue = told.removeprefix(_ISSUE).partition("\n\nAn investigator")[0].partition(f"\n\n{FINAL}")[0]
        weights = issue_terms(issue).weights()
        ways = spelled(issue)
        known = [word for word in weights if len(word) > 2 and not word.isdigit() and word in ways]
        if not known:
            return ["def "]
        rng = np.random.default_rng([self.seed, draw, stream_of("reader", issue)])
        score = np.array([weights[word] for word in known]) + self.wander * rng.gumbel(size=len(known))
        order = np.argsort(-score, kind="stable")
        return list(dict.fromkeys(ways[known[n]] for n in order))[: self.searches]


Hits = dict[tuple[str, int], tuple[int, str]]


def hits(observations: Sequence[str]) -> Hits:
    """(path, line) -> in how many searches it was a hit, and its text; tests left out."""
    found: Hits = {}
    for text in observations:
        for one in _HIT.finditer(text):
            place = (one["path"], int(one["line"]))
            if not is_test(one["path"]):
                found[place] = (found.get(place, (0, ""))[0] + 1, one["text"].strip())
    return found


def best_line(result: Hits) -> tuple[str, int]:
    """The line with most hits in its neighbourhood of ten lines, each nearer one counting more."""

    def mass(place: tuple[str, int]) -> float:
        path, line = place
        near = ((abs(at - line), count) for (other, at), (count, _) in result.items() if other == path)
        return sum(count / (1 + gap) for gap, count in near if gap <= 10)

    # Sorted: of equal places the first counts, whatever the order in which they were found.
    return max(sorted(result), key=mass)


def case_of(result: Hits) -> Json:
    """The case file from what was found: the densest places of up to three files."""
    left = dict(result)
    places: list[Json] = []
    while left and len(places) < 3:
        path, line = best_line(left)
        text = left[path, line][1]
        near = sorted(at for other, at in left if other == path and abs(at - line) <= 10)
        places.append(
            {
                "path": path, "start": max(1, near[0] - 2), "end": near[-1] + 8,
                "explanation": f"{len(near)} lines with words of the issue stand together here.",
                "root_cause": f"What the issue describes is worked out at `{text}`.",
                "solution_idea": "Compare these lines with the expected result.",
            }
        )  # fmt: skip
        left = {place: one for place, one in left.items() if place[0] != path}
    return {"locations": places}
