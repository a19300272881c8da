"""The investigator that needs no model: from an issue and an index to a case file, the same every time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from refork.decide import Calibration
from refork.errors import BadInput
from refork.types import Json
from refork_methods.localize.casefile import CaseFile, Location
from refork_methods.localize.explain import Explainer
from refork_methods.localize.facts import Symbol
from refork_methods.localize.history import History
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.ranking import Ranking, is_test, rank_symbols
from refork_methods.localize.settings import InvestigateSettings
from refork_methods.localize.spans import choose_lines, mechanics, own_lines, parsed, word_weights
from refork_methods.localize.spectrum import Spectrum
from refork_methods.localize.terms import issue_terms

VERSION = 1


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

    Raises: BadInput for an empty issue.
    Source: arXiv:2606.24820 for the case file; the paper's investigator is a model, this one is ours.
    """
    if not issue.strip():
        raise BadInput("the issue is empty", hint="say what happens and what should happen")
    settings = settings or InvestigateSettings()
    terms = issue_terms(issue)
    ranking = rank_symbols(index, terms, settings, traceback=traceback, history=history, spectrum=spectrum)
    chosen = list(_distinct(index, ranking, settings))
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
    meta: Json = {
        "producer": {"name": "investigate", "version": VERSION, "settings": settings.to_json()},
        "snapshot": index.snapshot.digest,
        "commit": index.snapshot.commit,
        "issue": hashlib.sha256(issue.encode()).hexdigest(),
        "evidence": [name for name, part in ranking.parts.items() if part.any()],
        "notes": _notes(index, calibration),
    }
    return CaseFile(tuple(places), "final" if places else "empty", True, meta)


def order_of(index: RepoIndex, ranking: Ranking, settings: InvestigateSettings) -> list[int]:
    """Symbols with any evidence, best first; tests left out unless asked for; ties by the index's order."""
    factor = np.array(
        [
            (1.0 if symbol.kind in ("function", "method") else settings.module)
            * (settings.tests or not is_test(symbol.path))
            for symbol in index.symbols
        ]
    )
    score = ranking.total * factor
    return [int(n) for n in np.argsort(-score, kind="stable") if score[n] > 0]


def _distinct(
    index: RepoIndex, ranking: Ranking, settings: InvestigateSettings
) -> Iterator[tuple[int, int, int]]:
    """The first symbols whose lines no earlier one holds: (number, start, end)."""
    inner: dict[str, list[Symbol]] = {}
    for symbol in index.symbols:
        inner.setdefault(symbol.path, []).append(symbol)
    weights = {word: float(row.max()) for word, row in zip(ranking.words, ranking.terms, strict=True)}
    taken: list[tuple[str, int, int]] = []
    for number in order_of(index, ranking, settings):
        symbol = index.symbols[number]
        start, end = _span(index, symbol, inner[symbol.path], ranking, weights, settings)
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
    heavy = max(float(mass.max(initial=0.0)), 1.0)
    frames = [one.frame.line for one in ranking.placed if one.path == symbol.path]
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


def _notes(index: RepoIndex, calibration: Calibration | None) -> list[str]:
    told = ["No model was asked and no test was run: places are ranked by the evidence named at each."]
    if calibration is None:
        told.append("Nothing was calibrated: the order says which place is likelier, not how likely it is.")
    if index.snapshot.dirty:
        told.append(f"The working tree had uncommitted changes in {len(index.snapshot.changed)} files.")
    if index.snapshot.refused:
        told.append(f"{len(index.snapshot.refused)} files were not read (binary, too large, or links).")
    return told
