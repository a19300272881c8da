"""The investigator that needs no model: from an issue and an index to a case file, the same every time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import final

import networkx as nx
import numpy as np

from refork.errors import BadInput
from refork.types import Json
from refork_methods.decide import Calibration, fit_calibration
from refork_methods.localize.baseline import BEST_FUNCTIONS, FunctionBm25
from refork_methods.localize.bm25f import scaled
from refork_methods.localize.casefile import CaseFile, Dependency, Location
from refork_methods.localize.facts import Symbol
from refork_methods.localize.gold import Gold, gold_spans
from refork_methods.localize.history import History
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.ranking import Ranking, is_test, rank_symbols, ranked_files
from refork_methods.localize.settings import InvestigateSettings
from refork_methods.localize.spans import Mechanics, choose_lines, mechanics, own_lines, parsed, word_weights
from refork_methods.localize.spectrum import Spectrum
from refork_methods.localize.terms import IssueTerms, issue_terms, spelled

# What a place's evidence says, in words; nothing is claimed that was not found.

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
        told += ranking.matched.get(number, ())
        matched = self._matched(number)
        if matched:
            told.append(f"it shares words with the issue: {matched}")
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


# The investigator that needs no model: from an issue and an index to a case file, the same every time.

VERSION = 3


def investigate(
    index: RepoIndex,
    issue: str,
    *,
    traceback: str | None = None,
    history: History | None = None,
    spectrum: Spectrum | None = None,
    settings: InvestigateSettings | None = None,
    calibration: Calibration | None = None,
) -> CaseFile:
    """Name the places where an issue's cause may lie, best first, with the evidence for each in words.

    Nothing is run. ``traceback``: a log beside the issue. ``history``: of commits up to the snapshot's.
    ``spectrum``: coverage of tests that were run elsewhere. ``calibration``: from a location's ``score`` to
    its chance of being right, fitted on other cases (:func:`fit_confidence`); without it ``confidence``
    stays None.

    Raises: BadInput for an empty issue, or coverage of no file here.
    Source: arXiv:2606.24820 for the case file; the paper's investigator is a model, this one is ours.
    """
    if not issue.strip():
        raise BadInput("the issue is empty", hint="say what happens and what should happen")
    settings = settings or InvestigateSettings()
    terms = issue_terms(issue)
    ranking = rank_symbols(index, terms, settings, traceback=traceback, history=history, spectrum=spectrum)
    order = order_of(index, ranking, settings)
    chosen = list(_distinct(index, ranking, order, settings))
    explainer = Explainer(index, ranking, terms)
    weights = {word: float(row.max()) for word, row in zip(ranking.words, ranking.terms, strict=True)}
    mass = _mass(index, ranking, chosen)
    places = [
        _location(
            index,
            ranking,
            explainer,
            weights,
            (number, start, end),
            ranking.total[number] / mass,
            calibration,
        )
        for number, start, end in chosen
    ]
    functions = [index.symbols[n] for n in function_order(index, ranking, terms, settings)]
    meta: Json = {
        "producer": {"name": "investigate", "version": VERSION, "settings": settings.to_json()},
        "snapshot": index.snapshot.digest,
        "commit": index.snapshot.commit,
        "files": list(dict.fromkeys(index.symbols[n].path for n in order))[: settings.files],
        "functions": list(dict.fromkeys(f"{one.path}::{one.qualified}" for one in functions))[
            : settings.functions
        ],
        "issue": hashlib.sha256(issue.encode()).hexdigest(),
        "evidence": [name for name, part in ranking.parts.items() if part.any()],
        "notes": _notes(index, calibration, ranking.outside),
    }
    return CaseFile(tuple(places), "final" if places else "empty", True, meta)


def fit_confidence(cases: Sequence[CaseFile], diffs: Sequence[str | Gold]) -> Calibration:
    """The chance that a case's first location lies in a file of the fix, given its score.

    Use it on other cases than these. Raises: BadInput for unequal lengths, cases without scores, or too few
    cases of either outcome.
    """
    if len(cases) != len(diffs):
        raise BadInput(f"{len(cases)} cases and {len(diffs)} diffs do not fit")
    scores: list[float] = []
    right: list[float] = []
    for case, diff in zip(cases, diffs, strict=True):
        if not case.locations:
            continue
        first = case.locations[0]
        if first.score is None:
            raise BadInput("a location without a score cannot calibrate one", where=first.location())
        gold = gold_spans(diff) if isinstance(diff, str) else diff
        scores.append(first.score)
        right.append(float(first.path in gold.files))
    return fit_calibration(np.array(scores), np.array(right))


def order_of(index: RepoIndex, ranking: Ranking, settings: InvestigateSettings) -> list[int]:
    """Symbols with any evidence, best first; ties by the index's order."""
    factor = np.array(
        [1.0 if symbol.kind in ("function", "method") else settings.module for symbol in index.symbols]
    )
    score = ranking.total * factor
    return [int(n) for n in np.argsort(-score, kind="stable") if score[n] > 0]


#: What a function without a word of the issue counts against the best by BM25.
_UNSAID = 0.05


def function_order(
    index: RepoIndex, ranking: Ranking, issue: IssueTerms, settings: InvestigateSettings
) -> list[int]:
    """Functions by their share times a power of their BM25 score over bodies; ties by the index's order.

    Only functions that something points at. BM25 has the investigator's words and is relative to its best.
    """
    bm25 = FunctionBm25(index, ranked_files(index, settings), **BEST_FUNCTIONS)
    bodies = bm25.scores(issue.text, cleaned=True)
    numbers = np.array([index.number(one) for one in bodies], dtype=np.int64)
    said = scaled(np.array(list(bodies.values())))
    # Log-odds, for a share of a far worse symbol is 0 as a float.
    score = ranking.odds[numbers] + settings.bodies * np.log(said + _UNSAID)
    best = numbers[np.argsort(-score, kind="stable")]
    return [int(n) for n in best if ranking.total[n] > 0]


def _distinct(
    index: RepoIndex, ranking: Ranking, order: Sequence[int], settings: InvestigateSettings
) -> Iterator[tuple[int, int, int]]:
    """The first symbols whose lines no earlier one holds, few of a file: (number, start, end)."""
    inner: dict[str, list[Symbol]] = {}
    for symbol in index.symbols:
        inner.setdefault(symbol.path, []).append(symbol)
    weights = {word: float(row.max()) for word, row in zip(ranking.words, ranking.terms, strict=True)}
    taken: list[tuple[str, int, int]] = []
    for number in order:
        symbol = index.symbols[number]
        if sum(path == symbol.path for path, _, _ in taken) == settings.per_file:
            continue
        start, end = _span(index, symbol, inner[symbol.path], ranking, weights, settings)
        # Spans are compared, not symbols: of a class its own lines are named, and its methods may follow.
        if any(path == symbol.path and start <= high and low <= end for path, low, high in taken):
            continue
        taken.append((symbol.path, start, end))
        yield number, start, end
        if len(taken) == settings.locations:
            return


def _span(
    index: RepoIndex,
    symbol: Symbol,
    beside: list[Symbol],
    ranking: Ranking,
    weights: dict[str, float],
    settings: InvestigateSettings,
) -> tuple[int, int]:
    """A symbol's lines that matter: of a class or module, the heaviest stretch that is its own."""
    texts = index.snapshot.lines(symbol.path)
    last = min(symbol.end, len(texts))
    mass = word_weights(texts[symbol.start - 1 : last], weights)
    # At least 1, so that a traced line counts where no word of the issue stands in the symbol.
    heavy = max(float(mass.max(initial=0.0)), 1.0)
    frames = [one.frame.line for one in ranking.placed if one.path == symbol.path]
    # A line that failing tests ran, or that a stack frame names, outweighs the words of any other.
    for line in range(symbol.start, last + 1):
        mass[line - symbol.start] += 5 * heavy * ranking.lines.get((symbol.path, line), 0.0)
        mass[line - symbol.start] += 5 * heavy * frames.count(line)
    start, end = symbol.start, last
    if symbol.kind in ("class", "module"):
        parts = own_lines(start, last, [(one.start, one.end) for one in beside if _inside(one, symbol)])
        if parts:
            start, end = max(
                parts,
                key=lambda one: (mass[one[0] - symbol.start : one[1] + 1 - symbol.start].sum(), -one[0]),
            )
    held = mass[start - symbol.start : end + 1 - symbol.start]
    return choose_lines(start, end, held, settings.whole, settings.window)


def _inside(one: Symbol, outer: Symbol) -> bool:
    return (
        one.id != outer.id
        and one.kind in ("function", "method", "class")
        # Of two symbols on the same lines neither may hold the other: both would have no line left.
        and (
            outer.start <= one.start
            and one.end <= outer.end
            and (outer.kind == "module" or one.end - one.start < outer.end - outer.start)
        )
    )


def _mass(index: RepoIndex, ranking: Ranking, chosen: list[tuple[int, int, int]]) -> float:
    """The sum of scores of the chosen places: a place's score is its share of it."""
    return float(sum(ranking.total[number] for number, _, _ in chosen)) or 1.0


def _location(
    index: RepoIndex,
    ranking: Ranking,
    explainer: Explainer,
    weights: dict[str, float],
    place: tuple[int, int, int],
    score: float,
    calibration: Calibration | None,
) -> Location:
    number, start, end = place
    symbol = index.symbols[number]
    name = symbol.qualified or symbol.path
    texts = index.snapshot.lines(symbol.path)[start - 1 : end]
    known = mechanics(texts, start, parsed(index.snapshot.text(symbol.path), symbol.path))
    return Location(
        path=symbol.path,
        start=start,
        end=end,
        symbol=symbol.qualified or None,
        explanation=explainer.why(number),
        root_cause=explainer.cause(name, known, _heaviest(texts, start, weights)),
        solution_idea=explainer.idea(name, known),
        dependencies=explainer.dependencies(number),
        testing_impact=explainer.tests(number),
        confidence=None if calibration is None else calibration.chance(score),
        score=round(float(score), 6),
    )


def _heaviest(texts: list[str], start: int, weights: dict[str, float], most: int = 3) -> str:
    """The lines that hold most of the issue's words, in words."""
    mass = word_weights(texts, weights)
    best = sorted(int(n) for n in np.argsort(-mass, kind="stable")[:most] if mass[n] > 0)
    lines = [f"line {start + n} (`{texts[n].strip()[:80].replace('`', chr(39))}`)" for n in best]
    return ", ".join(lines)


def _notes(index: RepoIndex, calibration: Calibration | None, outside: Sequence[str]) -> list[str]:
    told = ["No model was asked and no test was run: places are ranked by the evidence named at each."]
    if calibration is None:
        told.append("Nothing was calibrated: the order says which place is likelier, not how likely it is.")
    if outside:
        told.append(f"{len(outside)} files of the coverage report fit none here, such as {outside[0]}.")
    if index.snapshot.dirty:
        told.append(f"The working tree had uncommitted changes in {len(index.snapshot.changed)} files.")
    if index.snapshot.refused:
        told.append(f"{len(index.snapshot.refused)} files were not read (binary, too large, or links).")
    return told
