"""The evidence for every symbol of an index, kind by kind, and its sum."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int

from refork.errors import BadInput
from refork_methods.localize.behaviour import match_bodies, reported
from refork_methods.localize.bm25f import grouped, picked, scaled, term_scores
from refork_methods.localize.facts import Symbol
from refork_methods.localize.history import History
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.languages.registry import language_of
from refork_methods.localize.settings import InvestigateSettings
from refork_methods.localize.spectrum import Spectrum
from refork_methods.localize.terms import IssueTerms
from refork_methods.localize.traceback import Frame, Placed, frames, place_frames

_TEST = re.compile(
    r"(?:^|/)(?:tests?|testing|__tests__|spec|specs)/|(?:^|/)(?:test_[^/]*|conftest|tests)\.py$"
    r"|_tests?\.(?:py|go|rs|cc|cpp|c)$|\.(?:test|spec)\.[cm]?[jt]sx?$|(?:Test|Tests|IT)\.java$"
)


def is_test(path: str) -> bool:
    """Whether a path names a test by the customs of its language."""
    return _TEST.search(path) is not None


def is_source(path: str) -> bool:
    """Whether a path names program code that is no test: where the fault of an issue can lie."""
    return language_of(path) is not None and not is_test(path)


def ranked_files(index: RepoIndex, settings: InvestigateSettings) -> list[str]:
    """The files that may be named: source, tests only where asked for; all where there is no source."""
    found = [
        path for path in sorted(index.files)
        if language_of(path) is not None and (settings.tests or not is_test(path))
    ]  # fmt: skip
    return found or sorted(index.files)


@final
@dataclass(frozen=True, slots=True)
class Ranking:
    """Per symbol of the index: each kind of evidence, scaled to at most 1, and the ``total``.

    ``total``: the share of the chance that the fault lies there, all symbols together 1; not calibrated.
    ``odds``: the weighted sum of the evidence. ``terms``: what each query
    word gave each symbol. ``words``: those words. ``placed``: stack frames found in the repository.
    ``matched``: what a symbol's body has of the issue's values, in words. ``lines``: suspicion by
    (path, line) from a coverage spectrum; ``outside``: paths of that spectrum that no file here fits.
    """

    total: Float[np.ndarray, "symbols"]
    odds: Float[np.ndarray, "symbols"]
    parts: Mapping[str, Float[np.ndarray, "symbols"]]
    words: tuple[str, ...]
    terms: Float[np.ndarray, "words symbols"]
    placed: tuple[Placed, ...]
    literals: Mapping[int, tuple[str, ...]]
    matched: Mapping[int, tuple[str, ...]]
    lines: Mapping[tuple[str, int], float]
    outside: tuple[str, ...]


def rank_symbols(
    index: RepoIndex,
    issue: IssueTerms,
    settings: InvestigateSettings,
    *,
    traceback: str | None = None,
    history: History | None = None,
    spectrum: Spectrum | None = None,
) -> Ranking:
    """Gather the evidence for every symbol of a file that may be named, and turn it into shares.

    Raises: BadInput for a spectrum of which no path fits a file here.
    """
    paths = ranked_files(index, settings)
    place = {path: n for n, path in enumerate(paths)}
    # Symbols of files that are not ranked stand at the end, where every table of files holds a 0.
    files = np.array([place.get(symbol.path, len(paths)) for symbol in index.symbols], dtype=np.int64)
    kept = np.flatnonzero(files < len(paths))
    names, asked, weights = _query(index, issue, settings)
    # How rare a word is, and how long a text, is asked of the ranked files alone.
    fields = {name: picked(one, kept) for name, one in index.postings.items()}
    terms = np.zeros((asked.size, files.size))
    terms[:, kept] = term_scores(fields, asked, settings.symbol_fields) * weights[:, None]
    # Files are scored from their symbols' counts: no text is read twice.
    by_file = {name: grouped(one, files[kept], len(paths)) for name, one in fields.items()}
    placed = place_frames(frames(issue.text + "\n" + (traceback or "")), paths)
    literals = _literals(index, issue, paths)
    lines, outside = ({}, ()) if spectrum is None else _covered(index, spectrum)
    parts: dict[str, np.ndarray] = {
        "symbol": scaled(terms.sum(axis=0)),
        "file": _at_symbols(weights @ term_scores(by_file, asked, settings.file_fields), files),
        "whole": _at_symbols(weights @ term_scores(by_file, asked, settings.whole_fields), files),
        "name": _named(index, issue, kept),
        "path": _of_files(_mentioned(issue, paths), paths, files),
        "literal": _at(literals, files.size),
        "trace": _traced(index, placed),
        "spectrum": _suspicion(index, lines),
    }
    if history is not None:
        query = dict(zip(names, weights.tolist(), strict=True))
        parts["recent"] = _of_files(_log(history.recency(settings.half_life)), paths, files)
        parts["related"] = _of_files(history.related(query), paths, files)
    found = match_bodies(index, reported(issue), _candidates(index, parts, settings))
    parts |= found.parts
    # Bodies are read for the best candidates only, so their evidence comes in last.
    odds = _weighed(parts, settings)
    shares = shares_of(odds, _evident(parts))
    return Ranking(shares, odds, parts, names, terms, placed, literals, found.findings, lines, outside)


def _weighed(
    parts: Mapping[str, Float[np.ndarray, "symbols"]], settings: InvestigateSettings
) -> Float[np.ndarray, "symbols"]:
    weights = asdict(settings.weights)
    return np.asarray(sum(weights[name] * part for name, part in parts.items()))


def _evident(parts: Mapping[str, Float[np.ndarray, "symbols"]]) -> Bool[np.ndarray, "symbols"]:
    """Which symbols something in the issue points at; a size, a kind or a date alone is nothing."""
    telling = ("symbol", "file", "name", "path", "literal", "trace", "spectrum")
    return np.asarray(np.any([parts[name] > 0 for name in telling], axis=0))


def _candidates(
    index: RepoIndex, parts: Mapping[str, Float[np.ndarray, "symbols"]], settings: InvestigateSettings
) -> Int[np.ndarray, "chosen"]:
    """The symbols with most evidence and what they call."""
    so_far = np.where(_evident(parts), _weighed(parts, settings), 0.0)
    best = [int(n) for n in np.argsort(-so_far, kind="stable")[: settings.read] if so_far[n] > 0]
    called = {index.number(callee) for n in best for callee in index.calls.successors(index.symbols[n].id)}
    return np.array(sorted(called.union(best)), dtype=np.int64)


def named_order(index: RepoIndex, issue: IssueTerms, paths: Sequence[str]) -> list[Symbol]:
    """What the issue names by path or by name, symbols of named files first: no other word is compared."""
    known = set(paths)
    kept = np.array([n for n, symbol in enumerate(index.symbols) if symbol.path in known], np.int64)
    said = _mentioned(issue, paths)
    score = _named(index, issue, kept)
    score[kept] += [2.0 * said.get(index.symbols[n].path, 0.0) for n in kept]
    best = np.argsort(-score, kind="stable")
    return [index.symbols[n] for n in best if score[n] > 0]


def _query(
    index: RepoIndex, issue: IssueTerms, settings: InvestigateSettings
) -> tuple[tuple[str, ...], Int[np.ndarray, "words"], Float[np.ndarray, "words"]]:
    """The issue's words that the index knows, the heaviest first, with their weights."""
    known = [(word, weight) for word, weight in issue.weights().items() if word in index.words]
    known = sorted(known, key=lambda one: (-one[1], one[0]))[: settings.words]
    numbers = np.array([index.words[word] for word, _ in known], dtype=np.int64)
    return (
        tuple(word for word, _ in known),
        numbers,
        np.array([weight for _, weight in known], dtype=np.float64),
    )


def shares_of(
    odds: Float[np.ndarray, "symbols"], evident: Bool[np.ndarray, "symbols"]
) -> Float[np.ndarray, "symbols"]:
    """Log-odds as shares that sum to 1, over the symbols that something points at; all 0 without any."""
    if not evident.any():
        return np.zeros(odds.size)
    # Less the largest, so that exp cannot overflow; the shares do not depend on it.
    shown = np.where(evident, np.exp(odds - odds[evident].max()), 0.0)
    return np.asarray(shown / shown.sum())


def _named(
    index: RepoIndex, issue: IssueTerms, kept: Int[np.ndarray, "kept"]
) -> Float[np.ndarray, "symbols"]:
    """1 where the issue has the qualified name, 0.7 where it has the name written as code, 0 elsewhere.

    Shared among all symbols of that name, so that one of forty ``get`` functions does not stand out.
    """
    whole = {name.replace("::", ".") for name in issue.identifiers}
    tails = {name.rsplit(".", 1)[-1] for name in whole}
    count: dict[str, int] = {}
    for n in kept:
        count[index.symbols[n].name] = count.get(index.symbols[n].name, 0) + 1
    told = np.zeros(len(index.symbols))
    for n in kept:
        symbol = index.symbols[n]
        if symbol.kind == "module":
            continue
        if "." in symbol.qualified and any(
            name == symbol.qualified or name.endswith("." + symbol.qualified) for name in whole
        ):
            told[n] = 1.0
        elif symbol.name in tails:
            # Shared by the root: forty of one name say less each, but not forty times less.
            told[n] = 0.7 / count[symbol.name] ** 0.5
    return told


def _mentioned(issue: IssueTerms, paths: Iterable[str]) -> dict[str, float]:
    """Files that the issue names by path, by a tail of it, or by their module's dotted name."""
    dotted = {name for name in issue.identifiers if "." in name}
    told: dict[str, float] = {}
    for path in paths:
        for said in issue.paths:
            # Only what leads to the place: .github begins with a dot of its own.
            clean = re.sub(r"^(?:\.{0,2}/)+", "", said)
            if (
                path == clean
                or path.endswith("/" + clean)
                or (clean.count("/") > 1 and clean.endswith("/" + path))
            ):
                told[path] = 1.0
        module = path.rsplit(".", 1)[0].replace("/", ".").removesuffix(".__init__")
        if "." in module and any(name == module or name.startswith(module + ".") for name in dotted):
            told[path] = 1.0
    return told


def _literals(index: RepoIndex, issue: IssueTerms, paths: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """Symbols whose lines hold a text that the issue quotes; texts that stand in many places say little."""
    told: dict[int, tuple[str, ...]] = {}
    for text in issue.quoted:
        if len(text) < 6 or (len(text.split()) < 2 and len(text) < 12):
            continue
        hits: list[int] = []
        for path in paths:
            body = index.snapshot.text(path)
            at = body.find(text)
            if at >= 0:
                symbol = index.at(path, body.count("\n", 0, at) + 1)
                hits += [index.number(symbol.id)] if symbol is not None else []
        if 0 < len(hits) <= 5:
            for hit in hits:
                told[hit] = (*told.get(hit, ()), text)
    return told


def _at(literals: Mapping[int, tuple[str, ...]], size: int) -> Float[np.ndarray, "symbols"]:
    told = np.zeros(size)
    for n in literals:
        told[n] = 1.0
    return told


def _traced(index: RepoIndex, placed: Iterable[Placed]) -> Float[np.ndarray, "symbols"]:
    """1 for the symbol where it went wrong, less for its callers: 1 / (1 + depth)."""
    told = np.zeros(len(index.symbols))
    for one in placed:
        symbol = index.at(one.path, one.frame.line)
        if symbol is not None:
            n = index.number(symbol.id)
            told[n] = max(told[n], 1.0 / (1 + one.frame.depth))
    return told


def _covered(index: RepoIndex, spectrum: Spectrum) -> tuple[dict[tuple[str, int], float], tuple[str, ...]]:
    """Suspicion by the files here, and the spectrum's paths that fit none (or several equally well)."""
    found = spectrum.ochiai()
    paths = sorted({path for path, _ in found})
    # Reports come from other folders and machines, as stack traces do.
    placed = place_frames([Frame(path, 1, None, "coverage", 0) for path in paths], index.files)
    here = {one.frame.path: one.path for one in placed} | {
        path: path for path in paths if path in index.files
    }
    outside = tuple(path for path in paths if path not in here)
    if paths and not here:
        raise BadInput(
            "no file of the coverage report is in this repository", where=paths[0],
            hint="make it from the repository's root, of the same sources",
        )  # fmt: skip
    lines: dict[tuple[str, int], float] = {}
    for (path, line), value in found.items():
        if path in here:
            at = (here[path], line)
            lines[at] = max(lines.get(at, 0.0), value)
    return lines, outside


def _suspicion(index: RepoIndex, lines: Mapping[tuple[str, int], float]) -> Float[np.ndarray, "symbols"]:
    """The largest suspicion among each symbol's own lines."""
    told = np.zeros(len(index.symbols))
    for (path, line), value in lines.items():
        symbol = index.at(path, line)
        if symbol is not None:
            n = index.number(symbol.id)
            told[n] = max(told[n], value)
    return told


def _log(values: Mapping[str, float]) -> dict[str, float]:
    return {path: float(np.log1p(value)) for path, value in values.items()}


def _of_files(
    values: Mapping[str, float], paths: list[str], files: Int[np.ndarray, "symbols"]
) -> Float[np.ndarray, "symbols"]:
    """Values of files, scaled, at each of their symbols."""
    return _at_symbols(np.array([values.get(path, 0.0) for path in paths]), files)


def _at_symbols(
    scores: Float[np.ndarray, "files"], files: Int[np.ndarray, "symbols"]
) -> Float[np.ndarray, "symbols"]:
    """Scores of the ranked files, scaled, at each of their symbols; 0 at symbols of other files."""
    return np.asarray(np.append(scaled(scores), 0.0)[files])
