"""A search on a C file, with everything that it needs: problem, calibration, bench, writer, tree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from refork.chat import PolicyChat
from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.progress import Progress, silent, waits
from refork.tree.tree import Tree
from refork_methods.kernel import rewrite
from refork_methods.kernel.bench import Bench, calibrate
from refork_methods.kernel.problem import Problem
from refork_methods.kernel.problem_read import parse_settings, read_problem
from refork_methods.kernel.search.chatting import ChatWriter
from refork_methods.kernel.search.model import Writer
from refork_methods.kernel.search.on_bench import BenchEvaluator
from refork_methods.kernel.search.on_tree import record_on_tree
from refork_methods.kernel.search.rewriting import RewriteWriter
from refork_methods.kernel.search.run import SearchResult, run_search
from refork_methods.kernel.search.settings import KernelSearchSettings
from refork_methods.kernel.search.unlocking import Unlocked

#: Tokens of one answer of a model, unless said otherwise.
ANSWER = 8192


def open_writer(
    spec: str, settings: KernelSearchSettings, *, max_tokens: int = ANSWER, progress: Progress = silent
) -> Writer:
    """``rewrite``, or ``chat:POLICY`` with a policy's name, asked at temperature 0.7.

    Raises:
        BadInput: another name, or rewrites that are to be guided by raw counters, which they cannot read.
    """
    if spec == "rewrite":
        if settings.feedback == "raw":
            raise BadInput(
                "the rewriting writer reads findings, not counters",
                where="--feedback raw",
                hint="diagnosed or none, or a model as --writer chat:SPEC",
            )
        return RewriteWriter(Unlocked(rewrite), settings.unguided)
    kind, _, name = spec.partition(":")
    if kind != "chat" or not name:
        raise BadInput(f"writer {spec!r}", where="kernel search", hint="rewrite, or chat:openai:URL#MODEL")
    policy = open_policy(name, on_wait=waits(progress))
    sampling = Sampling(temperature=0.7, max_tokens=max_tokens)
    return ChatWriter(PolicyChat(policy, sampling, settings.seed))


def search_problem(
    problem: Problem,
    settings: KernelSearchSettings,
    out: Path,
    *,
    writer: str = "rewrite",
    workers: int | None = None,
    max_tokens: int = ANSWER,
    progress: Progress = silent,
) -> SearchResult:
    """Search for a faster version of a problem's kernel in ``out``, which then holds a ``tree.db`` as well.

    The machine is calibrated first where it was not. ``workers``: builds at once.

    Raises: as :func:`refork_methods.kernel.search.run.run_search` and :func:`open_writer`.
    """
    writes = open_writer(writer, settings, max_tokens=max_tokens, progress=progress)
    known = calibrate(progress=progress)
    with Bench(problem, out / "build", settings.seed, calibration=known) as bench:
        evaluator = BenchEvaluator(bench, known, workers=workers)
        found = run_search(
            problem, settings, out, evaluator=evaluator, writer=writes, calibration=known, progress=progress
        )
    with Tree.open(out / "tree.db") as tree:
        record_on_tree(out, tree)
    return found


def search_file(
    path: Path,
    settings: KernelSearchSettings,
    out: Path,
    *,
    entry: str | None = None,
    given: Sequence[str] = (),
    writer: str = "rewrite",
    workers: int | None = None,
    max_tokens: int = ANSWER,
    progress: Progress = silent,
) -> SearchResult:
    """The same on a C or C++ file; ``given`` are ``KEY=VALUE`` settings of the problem.

    Raises: as :func:`search_problem` and :func:`refork_methods.kernel.problem_read.read_problem`.
    """
    problem = read_problem(path, entry, **parse_settings(list(given)))
    return search_problem(
        problem, settings, out, writer=writer, workers=workers, max_tokens=max_tokens, progress=progress
    )
