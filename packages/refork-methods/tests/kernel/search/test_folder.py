"""The folder: what is written, and that a search which was stopped anywhere goes on to the same tree."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernel.diagnose.conftest import KNOWN
from kernel.search.helpers_search import FINDING, PROBLEM, evaluator, search, speed
from refork.errors import BadInput, Mismatch, TreeBusy
from refork_methods.kernel.bench.result import Candidate, Evaluated
from refork_methods.kernel.search.folder import SearchFolder, read_facts, read_history
from refork_methods.kernel.search.model import KernelSearchSettings
from refork_methods.kernel.search.run import run_search
from support.kernel_search_fakes import TableEvaluator, WordWriter

FILES = ("nodes.jsonl", "rounds.jsonl", "findings.jsonl")


def texts(folder: Path) -> list[str]:
    return [(folder / name).read_text() for name in FILES]


def test_a_folder_tells_the_whole_search(tmp_path: Path) -> None:
    result = search(tmp_path / "s")
    facts, history = read_facts(tmp_path / "s"), read_history(tmp_path / "s")
    assert tuple(history.nodes) == result.nodes
    assert facts["state"] == "done"
    assert facts["best"] == result.best.number
    assert Evaluated.from_json(facts["final"]) == result.final
    assert facts["problem"]["digest"] == PROBLEM.digest
    assert history.observations[0].findings == (FINDING,)
    assert result.best.number in history.observations
    lines = [json.loads(line) for line in (tmp_path / "s" / "nodes.jsonl").read_text().splitlines()]
    assert lines[0]["parent"] == -1
    assert {"number", "parent", "move", "why", "source", "evaluated", "notes"} <= lines[1].keys()
    for line in lines:
        assert (tmp_path / "s" / "sources" / f"{line['source']}.c").exists()
    assert result.faster
    assert result.chain == tuple(result.best.candidate.source.split()[1:])


def test_the_ceilings_are_those_of_a_diagnosis(tmp_path: Path) -> None:
    wide = replace(PROBLEM, arguments=(replace(PROBLEM.arguments[1], ctype="double"),))
    run_search(
        wide, KernelSearchSettings(evaluations=3), tmp_path / "s", evaluator=evaluator(),
        writer=WordWriter(("a",)), calibration=KNOWN,
    )  # fmt: skip
    told = read_facts(tmp_path / "s")["ceilings"]
    assert told == {"flops": KNOWN.flops64, "bandwidth": KNOWN.cached, "noise": KNOWN.noise}


def test_a_finished_search_is_not_done_again_and_a_longer_one_goes_on(tmp_path: Path) -> None:
    search(tmp_path / "s")
    before = texts(tmp_path / "s")
    none = TableEvaluator(lambda one: pytest.fail("evaluated again"))
    assert search(tmp_path / "s", none).resumed
    assert texts(tmp_path / "s") == before
    search(tmp_path / "s", evaluations=31)
    search(tmp_path / "straight", evaluations=31)
    assert texts(tmp_path / "s")[:2] == texts(tmp_path / "straight")[:2]


def test_the_winner_of_the_last_duel_is_timed_once_more(tmp_path: Path) -> None:
    """Of several equal kernels the luckiest wins: the time by which it won is not what is told."""
    asked: list[int] = []

    class Lucky:
        noise, prepare, evaluate, observe = (
            1.0,
            evaluator().prepare,
            evaluator().evaluate,
            evaluator().observe,
        )

        def duel(self, candidates: Sequence[Candidate]) -> list[Evaluated]:
            asked.append(len(candidates))
            times = [2.0 + number for number in range(len(candidates))] if len(candidates) > 1 else [1.5]
            if fails and len(candidates) == 1:
                return [Evaluated(ok=False, stage="check", why="no")]
            return [Evaluated(ok=True, stage="done", speedup=one, low=one, high=one) for one in times]

    for fails, final in ((False, 1.5), (True, 1.0)):
        asked.clear()
        result = run_search(
            PROBLEM, KernelSearchSettings(evaluations=12), tmp_path / str(fails), evaluator=Lucky(),
            writer=WordWriter(("a", "b")),
        )  # fmt: skip
        assert asked == [asked[0], *([1] * asked[0] if fails else [1])]
        assert asked[0] > 1
        assert result.final.speedup == final
        assert (result.best.number == 0) == fails


class StopError(BaseException):
    """Stands for a process that is killed."""


class Mortal:
    """Evaluates as the fake does, and dies at the given step: in a build, a profile or a timing."""

    noise = 1.0

    def __init__(self, lives: int) -> None:
        self.lives = lives
        self.inner = evaluator()

    def __getattr__(self, name: str) -> object:
        self.lives -= 1
        if self.lives < 0:
            raise StopError
        return getattr(self.inner, name)


@pytest.mark.parametrize("batch", [1, 3])
def test_killed_at_every_step_it_goes_on_to_the_same_tree(tmp_path: Path, batch: int) -> None:
    search(tmp_path / "whole", evaluations=5, batch=batch)
    for lives in range(1, 16):
        folder = tmp_path / f"killed-{lives}"
        try:
            search(folder, Mortal(lives), evaluations=5, batch=batch)  # type: ignore[arg-type]
        except StopError:
            search(folder, evaluations=5, batch=batch)
        assert texts(folder) == texts(tmp_path / "whole"), lives


def test_killed_again_and_again_it_ends(tmp_path: Path) -> None:
    search(tmp_path / "whole", evaluations=9)
    for _ in range(40):
        try:
            search(tmp_path / "often", Mortal(2), evaluations=9)  # type: ignore[arg-type]
            break
        except StopError:
            continue
    assert texts(tmp_path / "often") == texts(tmp_path / "whole")


@pytest.mark.parametrize("name", FILES)
def test_a_line_that_was_cut_short_never_counted(tmp_path: Path, name: str) -> None:
    search(tmp_path / "s", evaluations=9, batch=3)
    whole = texts(tmp_path / "s")
    lines = {one: (tmp_path / "s" / one).read_bytes().splitlines(keepends=True) for one in FILES}
    # In the order of the work: original, findings on it, first round, its three tries.
    before = {"findings.jsonl": (1, 0, 0), "rounds.jsonl": (1, 0, 1), "nodes.jsonl": (3, 1, 1)}[name]
    for one, count in zip(FILES, before, strict=True):
        half = lines[one][count][: len(lines[one][count]) // 2] if one == name else b""
        (tmp_path / "s" / one).write_bytes(b"".join(lines[one][:count]) + half)
    state = json.loads((tmp_path / "s" / "search.json").read_text())
    (tmp_path / "s" / "search.json").write_text(json.dumps(state | {"state": "running", "final": None}))
    search(tmp_path / "s", evaluations=9, batch=3)
    assert texts(tmp_path / "s") == whole


def test_ctrl_c_stops_after_the_try_under_way(tmp_path: Path) -> None:
    def stopping(one: Candidate) -> float | None:
        if len(one.source.split()) == 3 and not stopped:
            stopped.append(True)
            os.kill(os.getpid(), signal.SIGINT)
        return speed(one)

    stopped: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "s", TableEvaluator(stopping, lambda one: (FINDING,)))
    facts = read_facts(tmp_path / "s")
    assert facts["state"] == "stopped"
    assert 0 < facts["tried"] < 20
    search(tmp_path / "s")
    search(tmp_path / "straight")
    assert texts(tmp_path / "s") == texts(tmp_path / "straight")


def test_another_search_in_the_folder_is_refused_by_name(tmp_path: Path) -> None:
    search(tmp_path / "s")
    with pytest.raises(Mismatch, match=r"seed \(was 0, now 5\)"):
        search(tmp_path / "s", seed=5)
    with pytest.raises(Mismatch, match="writer"):
        run_search(
            PROBLEM, KernelSearchSettings(evaluations=20), tmp_path / "s", evaluator=evaluator(),
            writer=WordWriter(("z",)),
        )  # fmt: skip


def test_another_machine_or_compiler_is_refused_by_name(tmp_path: Path) -> None:
    def on(machine: dict[str, str] | None) -> None:
        known = None if machine is None else replace(KNOWN, machine=machine)
        run_search(
            PROBLEM, KernelSearchSettings(evaluations=3), tmp_path / "s", evaluator=evaluator(),
            writer=WordWriter(("a",)), calibration=known,
        )  # fmt: skip

    on({"processor": "p", "gcc": "12"})
    on({"processor": "p", "gcc": "12"})
    with pytest.raises(Mismatch, match=r"machine's gcc \(was '12', now '13'\)"):
        on({"processor": "p", "gcc": "13"})
    # A folder that knows of no machine holds no search of another one.
    on(None)
    facts = read_facts(tmp_path / "s") | {"machine": None}
    (tmp_path / "s" / "search.json").write_text(json.dumps(facts))
    on({"processor": "p", "gcc": "13"})


def test_a_folder_is_one_searchs_at_a_time(tmp_path: Path) -> None:
    facts = {"settings": {}, "writer": "w", "problem": {}}
    with SearchFolder(tmp_path / "s", facts), pytest.raises(TreeBusy):
        SearchFolder(tmp_path / "s", facts)
    SearchFolder(tmp_path / "s", facts).close()


def test_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not the folder of a search"):
        read_facts(tmp_path)
    search(tmp_path / "s", evaluations=5)
    source = next(iter((tmp_path / "s" / "sources").iterdir()))
    kept = source.read_text()
    source.write_text(kept + "!")
    with pytest.raises(BadInput, match="not what was tried"):
        read_history(tmp_path / "s")
    source.unlink()
    with pytest.raises(BadInput, match="is gone"):
        read_history(tmp_path / "s")
    source.write_text(kept)
    nodes = tmp_path / "s" / "nodes.jsonl"
    lines = nodes.read_text().splitlines(keepends=True)
    nodes.write_text("".join([lines[0], *lines[2:]]))
    with pytest.raises(BadInput, match="out of order"):
        read_history(tmp_path / "s")
    nodes.write_text("no json\n")
    with pytest.raises(BadInput, match=r"nodes.jsonl:1"):
        read_history(tmp_path / "s")


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    search(tmp_path / "s", evaluations=9)
    search(tmp_path / "t", evaluations=9, seed=1)
    (tmp_path / "s" / "rounds.jsonl").write_text((tmp_path / "t" / "rounds.jsonl").read_text())
    for source in (tmp_path / "t" / "sources").iterdir():
        (tmp_path / "s" / "sources" / source.name).write_text(source.read_text())
    with pytest.raises(Mismatch, match="is not the one that was chosen"):
        search(tmp_path / "s", evaluations=10)


def test_nothing_faster_is_no_success(tmp_path: Path) -> None:
    result = search(tmp_path / "s", TableEvaluator(lambda one: 1.0 if one.source == "start" else None))
    assert result.best.number == 0
    assert not result.faster
    assert result.chain == ()
