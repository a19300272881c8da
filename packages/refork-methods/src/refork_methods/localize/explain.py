"""What a place's evidence says, in words; nothing is claimed that was not found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import final

import networkx as nx
import numpy as np

from refork_methods.localize.casefile import Dependency
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.ranking import Ranking, is_test
from refork_methods.localize.spans import Mechanics
from refork_methods.localize.terms import IssueTerms, spelled

_SAYS = {
    "name": "name", "signature": "signature", "doc": "documentation", "comment": "comments",
    "string": "string literals", "body": "code", "path": "path",
}  # fmt: skip
_WISH = re.compile(
    r"\b(?:should|must|expect(?:ed|s)?|ought|supposed|instead of|rather than|correct)\b", re.IGNORECASE
)
_MOST = 5


@final
class Explainer:
    """Turns the evidence of one ranking into texts."""

    def __init__(self, index: RepoIndex, ranking: Ranking, issue: IssueTerms) -> None:
        self._index = index
        self._ranking = ranking
        self._issue = issue
        self._forward = ranking.links
        self._spelled = spelled(issue.text)

    def why(self, number: int) -> str:
        """Which evidence speaks for a symbol."""
        ranking, symbol = self._ranking, self._index.symbols[number]
        told = [self._trace(number)] if ranking.parts["trace"][number] > 0 else []
        if ranking.parts["spectrum"][number] > 0:
            told.append(
                f"failing tests run it and passing ones less (Ochiai {ranking.parts['spectrum'][number]:.2f})"
            )
        if ranking.parts["name"][number] > 0:
            told.append(f"the issue names `{symbol.name}`")
        if ranking.parts["path"][number] > 0:
            told.append("the issue names its file")
        if number in ranking.literals:
            told.append(f"it holds the quoted text {_quoted(ranking.literals[number][0])}")
        told += ranking.told.get(number, ())
        matched = self._matched(number)
        if matched:
            told.append(f"it shares words with the issue: {matched}")
        neighbours = self._neighbours(number)
        if neighbours:
            told.append(neighbours)
        if "related" in ranking.parts and ranking.parts["related"][number] > 0.5:
            told.append("commits with similar messages changed its file")
        if not told:
            told.append("its file shares words with the issue")
        return _sentence("; ".join(told))

    def cause(self, symbol: str, known: Mechanics, quick: str) -> str:
        """What is known of the cause; that it is not established is said first."""
        told = ["Not established: the code was read, not run."]
        if quick:
            told.append(f"The issue's words stand in {quick}.")
        if known.gives:
            told.append(f"`{symbol}` gives its results in {_lines(known.gives)}.")
        if known.decides:
            told.append(f"What decides them is in {_lines(known.decides)}.")
        return " ".join(told)

    def idea(self, symbol: str, known: Mechanics) -> str:
        """Where to look first, and what the issue asks for in its own words."""
        wish = self._wish()
        first = known.decides[:_MOST] or known.gives[:_MOST]
        look = f"Check {_lines(first)} of `{symbol}`" if first else f"Check `{symbol}`"
        if wish:
            return f"{look} against what the issue asks for: {_quoted(wish)}."
        return f"{look} against the behaviour that the issue describes."

    def dependencies(self, number: int) -> tuple[Dependency, ...]:
        """Callers first, then what it calls, then files that import its file; no tests."""
        index, symbol = self._index, self._index.symbols[number]
        found: list[Dependency] = []
        for kind, ends in (("calls", index.calls.predecessors), ("is called by", index.calls.successors)):
            if symbol.id not in index.calls:
                break
            for other_id in sorted(ends(symbol.id)):
                other = index.symbols[index.number(other_id)]
                if other.id != symbol.id and not is_test(other.path):
                    found.append(
                        Dependency(other.path, other.qualified or None, f"{kind} `{symbol.qualified}`")
                    )
        shown = found[: 2 * _MOST]
        told = {one.path for one in shown} | {symbol.path}
        for path in sorted(index.imports.predecessors(symbol.path)) if symbol.path in index.imports else ():
            if path not in told and not is_test(path) and len(shown) < 2 * _MOST:
                shown.append(Dependency(path, None, f"imports {symbol.path}"))
        return tuple(shown)

    def tests(self, number: int) -> tuple[str, ...]:
        """Tests that may tell: those that reach it by at most two calls, else that import its file."""
        index, symbol = self._index, self._index.symbols[number]
        near: dict[str, int] = {}
        if symbol.id in index.calls:
            back = index.calls.reverse(copy=False)
            near = nx.single_source_shortest_path_length(back, symbol.id, cutoff=2)
        reached = [
            index.symbols[index.number(one)]
            for one in sorted(near, key=lambda one: (near[one], one))
            if near[one]
        ]
        named = [
            f"{one.path}::{one.qualified}" for one in reached if is_test(one.path) and one.kind != "module"
        ]
        if named:
            return tuple(f"{name} calls it; not run" for name in named[:_MOST])
        if symbol.path in index.imports:
            users = [path for path in sorted(index.imports.predecessors(symbol.path)) if is_test(path)]
            return tuple(f"{path} imports its file; not run" for path in users[:_MOST])
        return ()

    def _matched(self, number: int) -> str:
        column = self._ranking.terms[:, number]
        best = [n for n in np.argsort(-column, kind="stable")[:_MOST] if column[n] > 0]
        named = [self._ranking.words[n] for n in best]
        return ", ".join(f"{self._spelled.get(word, word)} ({self._fields(word, number)})" for word in named)

    def _fields(self, word: str, number: int) -> str:
        at = self._index.words[word]
        told: list[str] = []
        for name, postings in self._index.postings.items():
            held = postings.symbols[postings.indptr[at] : postings.indptr[at + 1]]
            if np.any(held == number):
                told.append(_SAYS.get(name, name))
        return ", ".join(told)

    def _trace(self, number: int) -> str:
        symbol = self._index.symbols[number]
        inside = [
            one
            for one in self._ranking.placed
            if one.path == symbol.path and symbol.start <= one.frame.line <= symbol.end
        ]
        first = min(inside, key=lambda one: one.frame.depth)
        where = (
            "its deepest frame"
            if first.frame.depth == 0
            else f"{first.frame.depth} calls above the deepest frame"
        )
        return f"the stack trace goes through line {first.frame.line} ({where})"

    def _neighbours(self, number: int) -> str:
        """The neighbour that gave most, where the symbol's own words alone would not explain its rank."""
        parts = self._ranking.parts
        if parts["graph"][number] < 0.2 or parts["graph"][number] < parts["symbol"][number]:
            return ""
        given = self._forward[:, [number]].toarray().ravel() * (parts["symbol"] + parts["name"])
        best = int(np.argmax(given))
        if given[best] <= 0:
            return ""
        other, here = self._index.symbols[best], self._index.symbols[number]
        calls = self._index.calls.has_edge(other.id, here.id)
        verb = "is called by" if calls else "calls"
        return f"it {verb} `{other.qualified or other.path}`, which matches the issue"

    def _wish(self) -> str:
        for sentence in re.split(
            r"(?<=[.!?;])\s+|\n\s*\n|\n(?=\s*(?:[-*#>]|[A-Z][a-z]+:))", self._issue.text
        ):
            clean = " ".join(sentence.split()).strip("-*#> ")
            if _WISH.search(clean) and 10 <= len(clean) <= 240:
                return clean.rstrip(".")
        return ""


def _lines(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(n) for n in numbers[:_MOST])
    more = f" and {len(numbers) - _MOST} more" if len(numbers) > _MOST else ""
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{more}"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', "'") + '"'


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
