"""Real bugs: an issue, the commit before its fix, and the fix; who names the fix's files and functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

import numpy as np

from refork.chat import ChatModel
from refork.errors import BadInput
from refork.jsonl import json_objects, read_utf8
from refork.stats import Interval, paired_difference, wilson
from refork.types import Json
from refork_methods.localize.baseline import BEST_FILES, BEST_FUNCTIONS, FileBm25, FunctionBm25
from refork_methods.localize.casefile import CaseFile
from refork_methods.localize.gold import Gold, gold_spans
from refork_methods.localize.history import git, read_history
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.investigate import investigate
from refork_methods.localize.leaks import find_leaks
from refork_methods.localize.loop import Localizer
from refork_methods.localize.mask import diff_names, diff_paths, mask_issue
from refork_methods.localize.ranking import is_source, named_order
from refork_methods.localize.session import LoopSettings
from refork_methods.localize.settings import InvestigateSettings
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.terms import issue_terms
from refork_methods.localize.tools import RepoTools

# What a bug is, and where it is from.

Source: TypeAlias = Literal["issue", "message"]
#: Lines of a message that say nothing of the bug: who wrote it, and which issue it closes.
_TRAILER = re.compile(
    r"^(?:co-authored-by|signed-off-by|reviewed-by|closes?|fixes|refs?)\b.*$|\(#\d+\)",
    re.IGNORECASE | re.MULTILINE,
)
#: A fix of more source files has no place that one issue points at.
MOST_FILES: Final = 3


@final
@dataclass(frozen=True, slots=True)
class Bug:
    """One bug of the repository ``repo`` as it was reported, and its fix as a unified diff from ``base``.

    ``source``: an issue, or the fix's own message where no issue is at hand.
    """

    name: str
    repo: str
    base: str
    issue: str
    diff: str
    source: Source = "issue"

    def to_json(self) -> Json:
        """A row with SWE-bench's fields, and ``source``."""
        return {
            "instance_id": self.name, "repo": self.repo, "base_commit": self.base,
            "problem_statement": self.issue, "patch": self.diff, "source": self.source,
        }  # fmt: skip


def read_bugs(rows: str | Path) -> list[Bug]:
    """Bugs from JSON lines with SWE-bench's fields, and ``source`` where it is a fix's message.

    Raises: BadInput for a row without one of ``instance_id``, ``repo``, ``base_commit``,
    ``problem_statement`` and ``patch``.
    """
    wanted = ("instance_id", "repo", "base_commit", "problem_statement", "patch")
    found: list[Bug] = []
    for place, row in json_objects(read_utf8(Path(rows)).split("\n"), str(rows)):
        missing = [name for name in wanted if not isinstance(row.get(name), str)]
        if missing:
            raise BadInput(f"the row has no text {missing[0]!r}", where=place)
        source: Source = "message" if row.get("source") == "message" else "issue"
        name, repo, base, issue, diff = (str(row[one]) for one in wanted)
        found.append(Bug(name, repo, base, issue, diff, source))
    return found


def bug_of_commit(root: str | Path, repo: str, commit: str) -> Bug:
    """A fix that no issue is at hand for, told by its message.

    Paths of the fix and names of the functions that it changes are masked in the message: whoever wrote it
    knew them already.

    Raises: BadInput where there is no such commit, or it has not one parent.
    """
    parents = git(root, "rev-list", "--parents", "-n1", "--end-of-options", commit).split()[1:]
    if len(parents) != 1:
        raise BadInput(f"{commit} has {len(parents)} parents, and a fix has one", where=str(root))
    diff = git(
        root, "diff", "--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/",
        "-M", parents[0], commit,
    )  # fmt: skip
    message = _TRAILER.sub("", git(root, "log", "-1", "--format=%B", commit)).strip()
    return Bug(f"{repo.replace('/', '__')}-{commit[:10]}", repo, parents[0], message, diff, "message")


def find_clone(clones: str | Path, repo: str) -> Path:
    """The clone of ``owner/name`` in a folder: ``owner/name``, ``owner__name`` or ``name``, bare or not.

    Raises: BadInput where there is none.
    """
    name = repo.rsplit("/", 1)[-1]
    for said in (repo, repo.replace("/", "__"), name):
        for folder in (Path(clones, said), Path(clones, f"{said}.git")):
            if folder.is_dir():
                return folder
    raise BadInput(f"no clone of {repo}", where=str(clones), hint=f"git clone it to {Path(clones, repo)}")


# Who finds it.

#: How many names count.
KS: Final = (1, 5)


Function: TypeAlias = tuple[str, str]
"""(path, qualified name)."""


@final
@dataclass(frozen=True, slots=True)
class BugScore:
    """What each arm made of one bug.

    ``files``, ``functions``: arm -> k -> whether one of its first k names is of the fix. ``functions`` is
    None where the fix changes no function that was there before. ``sources``: how many files were ranked.
    """

    bug: str
    repo: str
    source: Source
    sources: int
    files: dict[str, dict[int, bool]]
    functions: dict[str, dict[int, bool]] | None

    def to_json(self) -> Json:
        """Plain fields; cut-offs as text keys."""
        return {
            "bug": self.bug, "repo": self.repo, "source": self.source, "sources": self.sources,
            "files": {arm: {str(k): hit for k, hit in row.items()} for arm, row in self.files.items()},
            "functions": None if self.functions is None
            else {arm: {str(k): hit for k, hit in row.items()} for arm, row in self.functions.items()},
        }  # fmt: skip

    @classmethod
    def from_json(cls, row: Json) -> BugScore:
        """Inverse of :meth:`to_json`."""
        files, functions = (
            None if arms is None
            else {arm: {int(k): hit for k, hit in hits.items()} for arm, hits in arms.items()}
            for arms in (row["files"], row["functions"])
        )  # fmt: skip
        return cls(row["bug"], row["repo"], row["source"], row["sources"], files or {}, functions)


def gold_functions(index: RepoIndex, gold: Gold) -> set[Function]:
    """The innermost functions and methods that hold a line of the fix's old side."""
    found: set[Function] = set()
    for span in gold.spans:
        for line in range(span.start, span.end + 1):
            symbol = index.at(span.path, line)
            if symbol is not None and symbol.kind in ("function", "method"):
                found.add((symbol.path, symbol.qualified))
    return found


Ask: TypeAlias = Callable[[Snapshot, CaseFile, str], CaseFile]
"""From a snapshot, the investigator's case and the issue to a model's case."""


def model_asker(model: ChatModel, limits: LoopSettings, use_start: bool = True) -> Ask:
    """Asks a model by the loop of tools; ``use_start`` shows it what the investigator found first."""

    def ask(snapshot: Snapshot, case: CaseFile, issue: str) -> CaseFile:
        start = case if use_start and case.locations else None
        return Localizer(model, RepoTools(snapshot), limits).trace(issue, start=start).case

    return ask


def score_bug(
    root: str | Path,
    bug: Bug,
    masks: Sequence[bool] = (False,),
    *,
    settings: InvestigateSettings | None = None,
    ask: Ask | None = None,
) -> tuple[BugScore, ...]:
    """Who finds a bug in the files before its fix: the investigator, BM25, names alone, a model if asked.

    One score for each of ``masks``: whether paths and identifiers of the fix are masked in the issue first.
    Every arm ranks the same files: source that is no test. The investigator's files and functions are the
    case's own orders. ``bm25`` is at its package's usual settings, ``bm25 best`` at
    those of :data:`BEST_FILES` and :data:`BEST_FUNCTIONS`; ``names`` is :func:`named_order`.

    Raises: BadInput for an issue that holds the fix, and for a fix of no source file or of too many.
    """
    gold = gold_spans(bug.diff).only(is_source)
    if not 1 <= len(gold.files) <= MOST_FILES:
        raise BadInput(f"the fix changes {len(gold.files)} source files", where=bug.name)
    snapshot = Snapshot(root, bug.base)
    leaks = find_leaks(bug.issue, diff=bug.diff, snapshot=snapshot)
    if leaks:
        raise BadInput(leaks[0].words, where=bug.name)
    index = RepoIndex.build(snapshot)
    # The record ends before the fix: its own entry would name its files.
    history = read_history(root, bug.base)
    right = gold_functions(index, gold)
    sources = [path for path in snapshot.files if is_source(path)]
    plain, best = FileBm25(snapshot, sources), FileBm25(snapshot, sources, **BEST_FILES)
    bodies, best_bodies = FunctionBm25(index, sources), FunctionBm25(index, sources, **BEST_FUNCTIONS)
    told: list[BugScore] = []
    for masked in masks:
        issue = _hidden(bug, index, right, masked)
        case = investigate(index, issue, history=history, settings=settings)
        named = named_order(index, issue_terms(issue), sources)
        files: dict[str, Sequence[str]] = {
            "investigator": case.files,
            "bm25": plain.ranked(issue),
            "bm25 best": best.ranked(issue, cleaned=True),
            "names": list(dict.fromkeys(one.path for one in named)),
        }
        functions: dict[str, Sequence[Function]] = {
            "investigator": case.functions,
            "bm25": bodies.ranked(issue),
            "bm25 best": best_bodies.ranked(issue, cleaned=True),
            "names": [(one.path, one.qualified) for one in named if one.kind in ("function", "method")],
        }
        if ask is not None:
            asked = ask(snapshot, case, issue)
            files["model"], functions["model"] = asked.files, asked.functions
        told.append(
            BugScore(
                bug.name,
                bug.repo,
                bug.source,
                len(sources),
                {arm: _hits(order, set(gold.files)) for arm, order in files.items()},
                {arm: _hits(order, right) for arm, order in functions.items()} if right else None,
            )
        )
    return tuple(told)


def _hidden(bug: Bug, index: RepoIndex, right: set[Function], masked: bool) -> str:
    issue, paths = bug.issue, diff_paths(bug.diff)
    if bug.source == "message":
        issue = mask_issue(issue, {name.rsplit(".", 1)[-1] for _, name in right}, paths)
    if masked:
        defined = {symbol.name for symbol in index.symbols if symbol.kind != "module"}
        issue = mask_issue(issue, diff_names(bug.diff, defined), paths)
    return issue


def _hits(order: Sequence[str | Function], right: set[str] | set[Function]) -> dict[int, bool]:
    # A property's getter and setter have one name, and take one place in every arm.
    names = list(dict.fromkeys(order))
    return {k: any(one in right for one in names[:k]) for k in KS}


# Over bugs: rates, and the investigator's lead over each arm.

Level: TypeAlias = Literal["files", "functions"]


def hits(scores: Iterable[BugScore], level: Level, arm: str, k: int) -> np.ndarray:
    """1 and 0 by bug: whether an arm's first ``k`` names hold one of the fix; without it none."""
    rows = [score.files if level == "files" else score.functions for score in scores]
    return np.array([row[arm][k] for row in rows if row is not None and arm in row], dtype=float)


def lead(scores: Sequence[BugScore], level: Level, base: str, k: int, arm: str = "investigator") -> Interval:
    """How much more often ``arm`` has it among its first ``k`` names than ``base``, paired by bug."""
    return paired_difference(hits(scores, level, base, k), hits(scores, level, arm, k)).interval


def bugs_json(scores: Sequence[BugScore], skipped: dict[str, str]) -> Json:
    """Rates of every arm with intervals, the investigator's lead over each, and every bug.

    Raises: BadInput for no bugs.
    """
    if not scores:
        raise BadInput("no bug could be scored", hint=next(iter(skipped.values()), "give bugs to score"))
    told: Json = {"bugs": len(scores), "skipped": skipped, "arms": {}, "leads": {}}
    levels: tuple[Level, ...] = ("files", "functions")
    for level in levels:
        for arm in scores[0].files:
            for k in KS:
                found = hits(scores, level, arm, k)
                if not found.size:
                    continue
                key = f"{level} {arm} @{k}"
                told["arms"][key] = _span(wilson(int(found.sum()), found.size)) | {"bugs": int(found.size)}
                if arm != "investigator" and found.size > 1:
                    told["leads"][key] = _span(lead(scores, level, arm, k))
    told["rows"] = [score.to_json() for score in scores]
    return told


def _span(one: Interval) -> Json:
    return {"mean": one.estimate, "low": one.low, "high": one.high}
