"""What git knows of a repository before an issue: which files changed often, lately, for similar reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from refork.errors import BadInput
from refork_methods.localize.snapshot import run_git
from refork_methods.localize.terms import words


@final
@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: its id, committer time [s], message, and the files it changed."""

    id: str
    time: int
    message: str
    paths: tuple[str, ...]

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.strip().split("\n", 1)[0]


@final
@dataclass(frozen=True, slots=True)
class History:
    """Commits that lead up to ``base``, the newest first. Nothing after ``base`` is in it."""

    base: str
    commits: tuple[Commit, ...]

    def recency(self, half_life: float = 100.0) -> dict[str, float]:
        """Per file: the sum over its commits of 1/2 ** (commits since / half_life)."""
        told: dict[str, float] = {}
        for age, commit in enumerate(self.commits):
            for path in commit.paths:
                told[path] = told.get(path, 0.0) + 0.5 ** (age / half_life)
        return told

    def similar(self, weights: Mapping[str, float]) -> list[tuple[float, Commit]]:
        """Commits that share words with a query, by BM25 (k1 1.2, b 0.5) of their message, best first."""
        if not self.commits:
            return []
        counts = [Counter(words(commit.message)) for commit in self.commits]
        lengths = np.array([sum(one.values()) for one in counts], dtype=float)
        # All messages may be without a word.
        norm = 1.2 * (0.5 + 0.5 * lengths / max(lengths.mean(), 1e-9))
        score = np.zeros(len(counts))
        for word, weight in weights.items():
            tf = np.array([one[word] for one in counts], dtype=float)
            df = (tf > 0).sum()
            if df:
                score += weight * np.log1p((len(counts) - df + 0.5) / (df + 0.5)) * tf / (tf + norm)
        order = np.lexsort((np.arange(len(counts)), -score))
        return [(float(score[n]), self.commits[n]) for n in order if score[n] > 0]

    def related(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Per file: scores of the 20 most similar commits, each over the root of its number of files."""
        told: dict[str, float] = {}
        for score, commit in self.similar(weights)[:20]:
            for path in commit.paths:
                # A commit that changed everything points at nothing.
                told[path] = told.get(path, 0.0) + score / len(commit.paths) ** 0.5
        return told


def git(root: str | Path, *arguments: str) -> str:
    """The output of a git command. Raises BadInput where git refuses, CannotDo without git."""
    done = run_git(Path(root), *arguments)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise BadInput(f"git refused: {said[-1] if said else done.returncode}", where=str(root))
    return done.stdout.decode("utf-8", "replace")


def read_history(root: str | Path, base: str = "HEAD", limit: int = 1000) -> History:
    """The last commits up to and with ``base``, merges left out; paths relative to ``root``.

    Raises: BadInput where ``root`` is in no git repository or ``base`` names no commit.
    """
    if base.startswith("-"):
        raise BadInput(f"{base!r} is no commit")
    tip = git(root, "rev-parse", "--verify", "--end-of-options", f"{base}^{{commit}}").strip()
    # Without rename detection both names of a moved file are listed.
    told = git(
        root, "log", tip, "--no-merges", f"-n{limit}", "--relative", "--name-only", "-z", "--no-renames",
        "--format=%x00%H%x00%ct%x00%B%x00",
    )  # fmt: skip
    # NUL is the one character that neither a message nor a path can hold.
    fields = told.split("\0")
    commits: list[Commit] = []
    at = 0
    while at < len(fields):
        if not fields[at]:
            at += 1
            continue
        name, time, message = fields[at : at + 3]
        # After an empty field the paths, the first behind a line end, and an empty field after them.
        end = fields.index("", at + 4)
        paths = tuple(path.removeprefix("\n") for path in fields[at + 4 : end])
        commits.append(Commit(name, int(time), message, paths))
        at = end
    return History(tip, tuple(commits))
