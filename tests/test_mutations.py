"""Chosen lines, each broken on purpose: a named test must notice.

A mutation is applied to a copy of the package, never in place, and taken back after; the named test runs
against the copy in a process of its own. A mutation whose line is gone fails too: name its successor.
"""

import compileall
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent


class Mutation(NamedTuple):
    """A file of a package, a text that stands in it once, what it becomes, and who must notice."""

    file: str
    text: str
    becomes: str
    test: str


MUTATIONS = [
    Mutation(
        "refork/tree/node.py",
        "self.offsets[token - 1]",
        "self.offsets[token]",
        "packages/refork/tests/test_contracts.py::test_text_upto_a_token",
    ),
    Mutation(
        "refork/tree/node.py",
        "for s in self.steps[start:]",
        "for s in self.steps",
        "packages/refork/tests/test_contracts.py::test_the_context_starts_at_the_last_rewrite_and_skips_verdicts",
    ),
    Mutation(
        "refork/stats/proportions.py",
        "(2 * loss_rate + delta * (1 - delta))",
        "(2 * loss_rate + delta * (1 + delta))",
        "packages/refork/tests/stats/test_counts.py::test_paired_difference_published",
    ),
    Mutation(
        "refork/forking/effect.py",
        "p=stats.anytime_test(pairs).p",
        "p=stats.paired_difference(x, y).p",
        "packages/refork/tests/forking/test_effect.py::test_stopping_when_clear_keeps_its_error_rate_exactly",
    ),
    Mutation(
        "refork/forking/effect.py",
        "base=_rate(stats.mean_sequence(x, error))",
        "base=_rate(stats.mean_sequence(x))",
        "packages/refork/tests/forking/test_effect.py::test_intervals_at_the_stopping_time_are_tests_turned_round",
    ),
    Mutation(
        "refork_methods/cliff/verify.py",
        'fresh = stream_of("re-test", seed) >> 33',
        "fresh = seed",
        "packages/refork-methods/tests/cliff/test_fresh_draws.py::test_no_stage_judges_on_noise_that_another_has_used",
    ),
    Mutation(
        "refork_methods/cliff/scan.py",
        'seed if number == 0 else stream_of("look", seed, number) >> 33',
        "seed",
        "packages/refork-methods/tests/cliff/test_fresh_draws.py::test_every_look_of_a_scan_draws_anew",
    ),
    Mutation(
        "refork_methods/credit/graph/advantages.py",
        "gamma**passed",
        "gamma",
        "packages/refork-methods/tests/credit/graph/test_advantages.py::test_returns_of_rewards_per_step",
    ),
    Mutation(
        "refork/forking/arm.py",
        "keep = point.keep - plan.drop",
        "keep = point.keep",
        "packages/refork/tests/forking/test_change.py::test_remove_goes_back_before_the_token",
    ),
    Mutation(
        "refork/forking/arm.py",
        "left = limit - start.generated if room is None",
        "left = limit if room is None",
        "packages/refork/tests/forking/test_limits.py::test_a_sweep_of_a_nested_trace_is_unbiased_exactly",
    ),
    Mutation(
        "refork/forking/arm.py",
        "else max_turns) - len(used), 1)",
        "else max_turns), 1)",
        "packages/refork/tests/forking/test_limits.py::test_turns_already_used_are_subtracted_through_nested_forks",
    ),
    Mutation(
        "refork/forking/arm.py",
        '        "turns": limits.turns,\n',
        "",
        "packages/refork/tests/forking/test_identity.py::test_the_turn_limit_of_an_earlier_call_is_not_this_ones",
    ),
    Mutation(
        "refork/forking/potential.py",
        "chance[: len(recorded.forced) + first] = 0.0",
        "chance[: len(recorded.forced)] = 0.0",
        "packages/refork/tests/forking/test_potential.py::test_a_departure_of_a_sweep_leaves_no_chance_at_its_first_token",
    ),
    Mutation(
        "refork/forking/episodes.py",
        "        episode.reseed(world_seed)\n",
        "",
        "packages/refork/tests/forking/test_world.py::test_each_draw_has_its_own_luck",
    ),
    Mutation(
        "refork/forking/context.py",
        "if turn.world_rng != luck and turn.seed is not None",
        "if False",
        "packages/refork/tests/forking/test_world.py::test_nested_forks_replay_the_luck_of_every_part",
    ),
    Mutation(
        "refork/forking/potential.py",
        'stream_of("passage", end.address)',
        'stream_of("sweep", end.address)',
        "packages/refork/tests/forking/test_world.py::test_an_unfinished_trace_runs_on_from_its_end",
    ),
    Mutation(
        "refork/compaction.py",
        "any(quotes(text_of(m), text) for call in result.calls for m in call.prompt)",
        "bool(result.calls)",
        "packages/refork/tests/test_compaction.py::test_what_is_dropped_inserted_trimmed_and_summarised",
    ),
    Mutation(
        "refork_methods/pin/buffer.py",
        "not whole or any(_marks(rest).search(rest) for rest in rests)",
        "not whole",
        "packages/refork-methods/tests/pin/test_buffer.py::test_an_unclosed_or_foreign_mark_fails_the_check",
    ),
    Mutation(
        "refork_methods/pin/buffer.py",
        "text = text.replace(entry, quoted)",
        "pass",
        "packages/refork-methods/tests/pin/test_buffer.py::test_echoes_and_forgeries_leave_exactly_one_copy",
    ),
    Mutation(
        "refork_methods/pin/channel.py",
        "if rule.version != expected:",
        "if False:",
        "packages/refork-methods/tests/pin/test_channel.py::test_a_signed_change_is_taken_once",
    ),
    Mutation(
        "refork_methods/pin/frameworks/rules_langchain.py",
        "if history.span(i, stop) <= limit), stop)",
        "if history.span(i, stop) < limit), stop)",
        "packages/refork-methods/tests/pin/frameworks/test_rules_langchain.py::test_a_suffix_of_exactly_the_limit_is_shown_whole",
    ),
    Mutation(
        "refork_methods/rot/report.py",
        "stats.wilson(hits, len(graded), level)",
        "stats.wilson(hits, len(rows), level)",
        "packages/refork-methods/tests/rot/test_report.py::test_invalid_unreadable_and_broken_answers_are_in_no_rate",
    ),
    Mutation(
        "refork_methods/memory/gate.py",
        "len(set(buffer))",
        "len(buffer)",
        "packages/refork-methods/tests/memory/test_gate.py::test_a_buffer_is_a_set_of_tasks",
    ),
    Mutation(
        "refork_methods/memory/gate.py",
        "return Recurrence(history=history, counted=self.counted)",
        "return Recurrence(history=history)",
        "packages/refork-methods/tests/memory/test_gate.py::test_a_consumed_task_never_counts_again_and_the_history_is_bounded",
    ),
    Mutation(
        "refork_methods/memory/registry.py",
        "            waiting += [(need, name) for need in self.dependencies(name)]\n",
        "",
        "packages/refork-methods/tests/memory/test_registry.py::test_closure_is_the_least_fixed_point_idempotent_and_free_of_order",
    ),
    Mutation(
        "refork_methods/decide/threshold.py",
        "return (loss + price) / at_stake",
        "return loss / at_stake",
        "packages/refork-methods/tests/decide/test_threshold.py::test_break_even_of_known_cases",
    ),
    Mutation(
        "refork_methods/gate/policy.py",
        "return belief * (1 - breaks) + (1 - belief) * fix",
        "return belief + (1 - belief) * fix",
        "packages/refork-methods/tests/gate/test_belief.py::test_refining_uses_the_posterior_means",
    ),
    Mutation(
        "refork_methods/route/conduct/execute.py",
        "steps = list(access)",
        "steps = sorted(set(access) | {step - 1} - {0})",
        "packages/refork-methods/tests/route/conduct/test_execute.py::test_context_is_exactly_what_access_grants",
    ),
    Mutation(
        "refork_methods/route/svf.py",
        "scale = 1 / (1 + (sigma * step).sum() / sigma.sum())",
        "scale = 1.0",
        "packages/refork-methods/tests/route/test_svf.py::test_is_the_formula_with_both_singular_bases",
    ),
    Mutation(
        "refork_testbed/worlds/repair/tasks.py",
        "hidden=tuple(test for test in home.names if test not in public),",
        "hidden=tuple(home.names),",
        "packages/refork-testbed/tests/worlds/repair/test_tasks.py::test_each_breaks_a_public_and_a_hidden_test_and_gold_mends_all",
    ),
    Mutation(
        "refork_methods/localize/gold.py",
        "max(1, before - 1), before + 1",
        "max(1, before), before + 1",
        "packages/refork-methods/tests/localize/test_localize_gold.py::test_chunks_of_hand_made_diffs",
    ),
    Mutation(
        "refork/sandbox/inside/seccomp.py",
        "Instruction(ANY_BIT, 1, 0, PROT_EXEC)",
        "Instruction(ANY_BIT, 0, 0, PROT_EXEC)",
        "packages/refork/tests/sandbox/test_seccomp.py::test_no_memory_is_made_executable",
    ),
]


# Every run needs a process that has not seen the package. One that has read the libraries already is forked
# for each: reading them takes longer than most of the tests.
SERVER = """
import gc, json, os, sys
from importlib.metadata import entry_points
import beartype, hypothesis, jaxtyping, numpy, openai, pandas, pytest, networkx, pydantic
import scipy.stats, sklearn.linear_model, torch, transformers, typer
import transformers.models.llama.modeling_llama
for plugin in entry_points(group="pytest11"):
    plugin.load()
assert not any(name.partition(".")[0] == "refork" for name in sys.modules)
gc.freeze()  # the collector of a fork need not touch, so copy, what is shared
for line in sys.stdin:
    source, log, arguments = json.loads(line)
    child = os.fork()
    if child == 0:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1), os.dup2(out, 2)
        sys.path.insert(0, source)
        import refork
        print(refork.__file__, flush=True)
        code = int(pytest.main(arguments))
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def server():
    """A process that runs tests in forks of itself."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("COV", "PYTEST"))}
    env |= {"PYTHONDONTWRITEBYTECODE": "1"}  # what is compiled of a broken line must not outlive it
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(
        command, cwd=ROOT, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package, with what is compiled of it: compiling takes longer than most of the tests."""
    folder = tmp_path_factory.mktemp("copy")
    for source in ROOT.glob("packages/*/src"):
        shutil.copytree(source, folder / "src", dirs_exist_ok=True)
    compileall.compile_dir(folder / "src", quiet=2)
    return folder / "src"


@contextmanager
def broken(file, mutation):
    """The file with its mutation, and a time of its own, so that nothing compiled before stands for it."""
    source, times = file.read_bytes(), file.stat()
    text = source.decode()
    assert text.count(mutation.text) == 1, f"{mutation.text!r} does not stand in {mutation.file} just once"
    try:
        file.write_text(text.replace(mutation.text, mutation.becomes))
        os.utime(file, (times.st_atime, times.st_mtime + 10))
        yield
    finally:
        file.write_bytes(source)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def run_tests(server, package, *tests):
    """The exit status of pytest where ``package`` is the installed one, and what it printed."""
    log = package.parent / "log"
    quick = ["-x", "-p", "no:xdist", "-p", "no:cov", "--hypothesis-profile=no-shrink"]
    quick += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # libraries read before pytest was set up
    arguments = [*quick, *tests]
    server.stdin.write(json.dumps([str(package), str(log), arguments]) + "\n")
    server.stdin.flush()
    code = int(server.stdout.readline())
    said = log.read_text()
    assert said.startswith(str(package)), said
    return code, said


def test_the_copy_is_what_is_tested_and_passes_unbroken(server, copy):
    code, said = run_tests(server, copy, *(mutation.test for mutation in MUTATIONS))
    assert code == 0, said


@pytest.mark.parametrize(
    "mutation", MUTATIONS, ids=[f"{m.file}-{m.test.rpartition(':')[2]}" for m in MUTATIONS]
)
def test_a_broken_line_is_noticed(mutation, server, copy):
    with broken(copy / mutation.file, mutation):
        code, said = run_tests(server, copy, mutation.test)
    assert code == 1, f"not noticed:\n{said}"
    assert " failed" in said, said
