"""Processes that train cells: what is shown of them, and one that is killed while it works."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from multiprocessing import Pipe
from pathlib import Path

import pytest

from refork.errors import BadInput, CannotDo, InternalError
from refork.runs.record import new_record
from refork.runs.running import Run
from refork.runs.workers import together
from refork_methods.compare.cell import UPDATES, Cell
from refork_methods.compare.cell_pool import CellPool, _CellProgress, _done, _Member
from refork_methods.compare.recipe import CompareRecipe, WorldPlan

RECIPE = CompareRecipe(updates=3)


def train(cell, progress):
    """As a cell is trained: it goes on from what its folder holds, one update after the other."""
    file = cell.folder / "updates"
    cell.folder.mkdir(parents=True, exist_ok=True)
    done = len(file.read_text()) if file.exists() else 0
    progress(UPDATES, done, 3, tokens=10 * done)
    for number in range(done, 3):
        progress(f"update {number + 1}: growing", 1, 2)
        if number == 1 and cell.arm == "deadly" and not (cell.folder / "died").exists():
            (cell.folder / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        with file.open("a") as out:
            out.write("x")
        progress(UPDATES, number + 1, 3, tokens=10 * (number + 1))


def refuse(cell, progress):
    raise BadInput("no such thing", where="here", hint="another")


def crash(cell, progress):
    raise ZeroDivisionError("by nothing")


def die(cell, progress):
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_ever(cell, progress):
    cell.folder.mkdir(parents=True, exist_ok=True)
    part = cell.folder / "part"
    part.write_text(str(os.getpid()))
    part.rename(cell.folder / "pid")
    time.sleep(600)


def cells(folder, arms):
    return [Cell(RECIPE, WorldPlan(world="lock"), arm, n, folder / str(n)) for n, arm in enumerate(arms)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A crew of one that trained three cells; its process was killed over the second."""
    folder, crew, seen = tmp_path_factory.mktemp("crew"), CellPool(1, train), []
    crew.run(cells(folder, ["a", "deadly", "c"]), lambda: seen.append(crew.roster.to_json()))
    return folder, crew, seen


def test_a_killed_process_is_shown_as_lost_and_its_cell_goes_on_from_where_it_was(trained):
    folder, crew, _ = trained
    assert [(folder / name / "updates").read_text() for name in "012"] == ["xxx"] * 3
    shown = crew.roster.to_json()
    (lost,) = (one for one in shown if one["state"] == "lost")
    assert (lost["why"], lost["task"]) == ("it was ended by SIGKILL", "lock deadly seed 1")
    assert lost["pid"] not in {one["pid"] for one in shown if one is not lost}
    sums = together(shown)
    assert (sums["workers"], sums["lost"], sums["ended"]) == (2, 1, 1)
    # The killed one had made an update of its cell, which nobody makes again.
    assert (sums["tasks"], sums["finished"], sums["tokens"]) == (3, 8, 80)


def test_processes_say_who_they_are_and_what_they_train(trained):
    _, _, seen = trained
    at_work = [one for shown in seen for one in shown if one["state"] == "working"]
    assert {one["task"] for one in at_work} <= {"lock a seed 0", "lock deadly seed 1", "lock c seed 2"}
    assert all(one["pid"] and one["total"] == 3 and one["unit"] == "updates" for one in at_work)


@pytest.mark.parametrize(
    ("work", "error", "said"),
    [
        (refuse, BadInput, r"no such thing \(here\)"),
        (crash, InternalError, "(?s)lock a seed 0.*ZeroDivisionError: by nothing"),
    ],
)
def test_what_a_cell_fails_of_is_raised_where_the_comparison_is(tmp_path, work, error, said):
    (cell,) = cells(tmp_path, ["a"])
    answer = _done(cell, work, _CellProgress(Run(new_record("learn compare", (), None), keep=False)))
    crew, (ours, theirs) = CellPool(1), Pipe()
    crew._members[0] = _Member(None, ours, 0.0, cell)
    with ours, theirs:
        theirs.send(answer)
        with pytest.raises(error, match=said):
            crew._hear([], Counter())


def test_a_cell_whose_processes_die_again_and_again_is_named_and_no_process_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("refork_methods.compare.cell_pool.LIVES", 1)
    crew = CellPool(1, die)
    with pytest.raises(CannotDo, match=r"1 processes in turn were lost at lock a seed 0: .* SIGKILL"):
        crew.run(cells(tmp_path, ["a"]), lambda: None)
    assert not crew._members


def test_an_interrupt_ends_the_processes(tmp_path):
    crew = CellPool(1, wait_for_ever)

    def stop():
        if (tmp_path / "0" / "pid").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crew.run(cells(tmp_path, ["a"]), stop)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "0" / "pid").read_text() or 0), 0)
    assert {one["state"] for one in crew.roster.to_json()} == {"ended"}


def test_nothing_is_written_beside_what_cells_write(trained):
    folder, _, _ = trained
    found = {str(file.relative_to(folder)) for file in Path(folder).rglob("*") if file.is_file()}
    assert found == {"0/updates", "1/updates", "1/died", "2/updates"}
    json.dumps(trained[1].roster.to_json())
