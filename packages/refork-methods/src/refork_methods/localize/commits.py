"""The investigator on a repository's bug fixes: message as issue, parent as snapshot, diff as gold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from refork.errors import BadInput, UserError
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.localize.baseline import FileBm25, random_acc
from refork_methods.localize.casefile import CaseFile
from refork_methods.localize.gold import Gold, gold_spans
from refork_methods.localize.history import Commit, git, read_history
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.investigate import investigate
from refork_methods.localize.leaks import find_leaks
from refork_methods.localize.mask import diff_names, diff_paths, mask_issue
from refork_methods.localize.metrics import Scores, mean_scores, score_locations
from refork_methods.localize.ranking import is_source
from refork_methods.localize.settings import InvestigateSettings
from refork_methods.localize.snapshot import Snapshot

_FIX = re.compile(
    r"\b(?:fix(?:e[sd]|ing)?|bug(?:fix)?s?|crash(?:e[sd])?|regression|wrong(?:ly)?|incorrect(?:ly)?|broken|faulty)\b",
    re.IGNORECASE,
)


@final
@dataclass(frozen=True, slots=True)
class CommitTask:
    """One fix: the commit, its parent, the message as the issue's text, and the diff between them."""

    commit: Commit
    parent: str
    issue: str
    diff: str
    gold: Gold


@final
@dataclass(frozen=True, slots=True)
class CommitScore:
    """What the investigator and BM25 over files made of one fix.

    ``bm25``: the rank of each gold file, from 1. ``files``: how many source files there were to choose from.
    """

    commit: str
    subject: str
    issue: str
    case: CaseFile
    scores: Scores
    bm25: dict[str, int]
    files: int

    @property
    def bm25_acc1(self) -> float:
        """1 where BM25's first file is the one that was fixed."""
        return float(set(self.bm25.values()) == {1})

    @property
    def random_acc1(self) -> float:
        """The chance that a file drawn at random is the one that was fixed."""
        return random_acc(self.files, len(self.bm25))

    def to_json(self) -> Json:
        """Plain fields; of the case, its places."""
        return {
            "commit": self.commit,
            "subject": self.subject,
            "found": [one.location() for one in self.case.locations],
            "scores": self.scores.to_json(),
            "bm25_ranks": self.bm25,
            "files": self.files,
        }


@final
@dataclass(frozen=True, slots=True)
class RepoScore:
    """Scores of a repository's fixes; ``skipped``: commit -> why it could not be judged."""

    rows: tuple[CommitScore, ...]
    skipped: dict[str, str]
    masked: bool

    def to_json(self) -> Json:
        """Means with intervals, both baselines, and every row."""
        means = mean_scores([row.scores for row in self.rows]) if self.rows else {}
        return {
            "commits": len(self.rows),
            "skipped": self.skipped,
            "masked": self.masked,
            "investigator": {
                name: None
                if one is None
                else {"mean": one.estimate, "low": one.low, "high": one.high, "cases": n}
                for name, (one, n) in means.items()
            },
            "bm25": {"acc@1": _mean([row.bm25_acc1 for row in self.rows])},
            "random": {"acc@1": _mean([row.random_acc1 for row in self.rows])},
            "rows": [row.to_json() for row in self.rows],
        }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def fix_commits(
    root: str | Path, base: str = "HEAD", *, every: bool = False, most_files: int = 5
) -> Iterator[CommitTask]:
    """Commits up to ``base`` that fix something in files that were there before, the newest first.

    A fix is told by its message, unless ``every`` commit is asked for. Tests, files of no known language and
    commits that touch more than ``most_files`` source files are left out: no one message points at all of
    them.
    """
    for commit in read_history(root, base, limit=20_000).commits:
        if not every and not _FIX.search(commit.message):
            continue
        sources = [path for path in commit.paths if is_source(path)]
        if not 1 <= len(sources) <= most_files:
            continue
        # Merges have two parents and no one diff; the first commit has none.
        parents = git(root, "rev-list", "--parents", "-n1", commit.id).split()[1:]
        if len(parents) != 1:
            continue
        diff = git(
            root,
            "diff",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            # Whatever the user's settings say (diff.noprefix): a diff is read by these.
            "--src-prefix=a/",
            "--dst-prefix=b/",
            "--relative",
            "-M",
            parents[0],
            commit.id,
        )
        try:
            gold = gold_spans(diff).only(is_source)
        except BadInput:
            continue
        if gold.files:
            yield CommitTask(commit, parents[0], commit.message.strip(), diff, gold)


def score_commits(
    root: str | Path,
    commits: int,
    *,
    base: str = "HEAD",
    masked: bool = False,
    every: bool = False,
    settings: InvestigateSettings | None = None,
    progress: Progress = silent,
) -> RepoScore:
    """Score the last ``commits`` fixes, each on its parent's files and on git's record up to the parent.

    ``masked``: paths and identifiers of the diff are masked in the message first. Messages that hold the fix
    are skipped and counted.

    Raises: BadInput where no commit can be judged.
    """
    if commits < 1:
        raise BadInput("at least one commit has to be scored")
    settings = settings or InvestigateSettings(locations=10)
    rows: list[CommitScore] = []
    skipped: dict[str, str] = {}
    for task in fix_commits(root, base, every=every):
        progress("scoring commits", len(rows), commits)
        try:
            rows.append(score_commit(root, task, masked=masked, settings=settings))
        except UserError as error:
            skipped[task.commit.id] = error.what
        if len(rows) == commits:
            break
    progress("scoring commits", len(rows), len(rows))
    if not rows:
        raise BadInput(
            "no commit could be judged",
            where=str(root),
            hint=next(
                iter(skipped.values()), "fixes are told by words such as 'fix' and 'bug'; --every takes all"
            ),
        )
    return RepoScore(tuple(rows), skipped, masked)


def score_commit(
    root: str | Path, task: CommitTask, *, masked: bool = False, settings: InvestigateSettings | None = None
) -> CommitScore:
    """Score one fix. Raises BadInput where its message gives it away."""
    snapshot = Snapshot(root, task.parent)
    leaks = find_leaks(task.issue, diff=task.diff, snapshot=snapshot)
    if leaks:
        raise BadInput(leaks[0].words, where=task.commit.id)
    index = RepoIndex.build(snapshot)
    issue = task.issue
    if masked:
        defined = {symbol.name for symbol in index.symbols if symbol.kind != "module"}
        issue = mask_issue(issue, diff_names(task.diff, defined), diff_paths(task.diff))
    # The record ends at the parent: the fix's own entry would name its files.
    case = investigate(index, issue, history=read_history(root, task.parent), settings=settings)
    sources = [path for path in snapshot.files if is_source(path)]
    order = {path: n for n, path in enumerate(FileBm25(snapshot, sources).ranked(issue), 1)}
    # A fixed file that is not in the snapshot (too large, say) counts as behind all others.
    ranks = {path: order.get(path, len(order) + 1) for path in task.gold.files}
    return CommitScore(
        task.commit.id,
        task.commit.subject,
        issue,
        case,
        score_locations(case, task.gold),
        ranks,
        len(sources),
    )
