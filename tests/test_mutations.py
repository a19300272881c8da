"""Ten lines of core, each broken on purpose: a named test must notice.

A mutation is applied to a copy of the package, never in place, and the named test runs against the copy in a
process of its own. A mutation whose line is gone fails too: name its successor.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent


class Mutation(NamedTuple):
    """A file of ``src/ramify/core``, a text that stands in it once, what it becomes, and who must notice."""

    file: str
    text: str
    becomes: str
    test: str


MUTATIONS = [
    Mutation("policy/noise.py", "range(10)", "range(9)", "policy/test_noise.py::test_known_answers"),
    Mutation(
        "policy/noise.py",
        "np.arange(1, lanes + 1, dtype",
        "np.arange(0, lanes, dtype",
        "policy/test_noise.py::test_the_couplings_share_no_number",
    ),
    Mutation(
        "tree/node.py",
        "self.offsets[token - 1]",
        "self.offsets[token]",
        "test_contracts.py::test_text_upto_a_token",
    ),
    Mutation(
        "tree/node.py",
        "for s in self.steps[start:]",
        "for s in self.steps",
        "test_contracts.py::test_the_context_starts_at_the_last_rewrite_and_skips_verdicts",
    ),
    Mutation(
        "stats/proportions.py",
        "(2 * loss_rate + delta * (1 - delta))",
        "(2 * loss_rate + delta * (1 + delta))",
        "stats/test_counts.py::test_paired_difference_published",
    ),
    Mutation(
        "stats/sequential.py",
        "down = (1 - values) / (1 - null)",
        "down = (1 - values) / (1 + null)",
        "stats/test_sequential.py::test_capital_is_a_fair_game",
    ),
    Mutation(
        "fork/arm.py",
        "keep = point.keep - plan.drop",
        "keep = point.keep",
        "fork/test_change.py::test_remove_goes_back_before_the_token",
    ),
    Mutation(
        "fork/arm.py",
        "        episode.reseed(luck)\n",
        "",
        "fork/test_world.py::test_each_draw_has_its_own_luck",
    ),
    Mutation(
        "fork/context.py",
        "if turn.luck != luck and turn.seed is not None",
        "if False",
        "fork/test_world.py::test_nested_forks_replay_the_luck_of_every_part",
    ),
    Mutation(
        "fork/potential.py",
        'stream_of("passage", end.address)',
        'stream_of("sweep", end.address)',
        "fork/test_world.py::test_an_unfinished_trace_runs_on_from_its_end",
    ),
]


@pytest.fixture
def copy(tmp_path):
    """A copy of the package and the environment in which it shadows the installed one."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("COV", "PYTEST"))}
    env |= {"PYTHONPATH": str(tmp_path / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return tmp_path / "src/ramify/core", env


def run(env, *arguments):
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def run_tests(env, *tests):
    names = [f"tests/core/{test}" for test in tests]
    quick = ["-x", "-p", "no:xdist", "-p", "no:cov", "--hypothesis-profile=no-shrink"]
    return run(env, "-m", "pytest", *quick, *names)


def test_the_copy_is_what_is_tested_and_passes_unbroken(copy):
    core, env = copy
    where = run(env, "-c", "import ramify; print(ramify.__file__)")
    assert where.stdout.startswith(str(core.parent))
    done = run_tests(env, *(mutation.test for mutation in MUTATIONS))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "mutation", MUTATIONS, ids=[f"{m.file}-{m.test.rpartition(':')[2]}" for m in MUTATIONS]
)
def test_a_broken_line_is_noticed(mutation, copy):
    core, env = copy
    file = core / mutation.file
    source = file.read_text()
    assert source.count(mutation.text) == 1, f"{mutation.text!r} does not stand in {mutation.file} just once"
    file.write_text(source.replace(mutation.text, mutation.becomes))
    done = run_tests(env, mutation.test)
    assert done.returncode == 1, f"not noticed:\n{done.stdout}{done.stderr}"
