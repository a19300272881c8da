"""The experiment end to end on a tiny organism: recipe, cells, resume, processes, picture."""

import json
import os
import shutil
import signal
import time

import pytest

from refork.errors import BadInput, CannotDo, InternalError, Mismatch
from refork.forking.backend.worker import wrong
from refork.progress import silent
from refork_methods.compare import CompareRecipe, places_named, run_compare
from refork_methods.compare import run as run_module
from refork_methods.compare.picture import learning_figure
from refork_methods.compare.recipe import ARMS, Arm, WorldPlan


@pytest.fixture(scope="module")
def tiny():
    # The smallest organism, in a house it never saw: it fails, and every part runs.
    place = WorldPlan(world="household:2", organism="test-tiny", tasks=2, budget=60)
    return CompareRecipe(
        worlds=(place,), arms=("independent+grpo", "uucb+g2po+implicit"), seeds=1, updates=2,
        leaves=3, roots=2, at_once=1, held_out=2, draws=1, evaluate_every=1,
    )  # fmt: skip


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """The comparison run in one go: its folder, its summary, and the progress that was told."""
    folder, told = tmp_path_factory.mktemp("whole"), []
    return folder, run_compare(tiny, folder, lambda *a, **k: told.append(a), workers=1), told


def test_arms_are_read_from_their_names():
    assert Arm.parse("uucb+g2po+implicit") == Arm("uucb", "g2po", True)
    assert Arm.parse("independent+grpo") == Arm("independent", "grpo", False)
    assert all(Arm.parse(arm) for arm in ARMS)
    for name in ("uucb", "uucb+nothing", "best+grpo", "uucb+grpo+more", "random+grpo+implicit"):
        with pytest.raises(BadInput):
            Arm.parse(name)


def test_recipes_whose_parts_do_not_fit_are_refused():
    for said, wrong_parts in {
        "baseline": {"arms": ("uucb+grpo",)},
        "roots": {"roots": 9, "leaves": 4},
        "rates": {"rates": {"random+grpo": 1e-3}},
        "arm once": {"arms": ("uucb+grpo", "uucb+grpo")},
        "world once": {"worlds": (WorldPlan(world="maze"), WorldPlan(world="maze"))},
        "at least one": {"worlds": ()},
    }.items():
        with pytest.raises(BadInput, match=said):
            CompareRecipe(**wrong_parts).checked()


def test_a_world_named_alone_keeps_its_settings():
    (place,) = places_named(["reasoning-gym:chain_sum"])
    assert place["tasks"] == 32
    assert places_named(["maze:2,2,2"])[0]["tasks"] == 12


def test_a_comparison_runs_resumes_and_draws(tiny, whole):
    folder, summary, told = whole
    (world,) = summary["worlds"]
    rows = summary["worlds"][world]["rows"]
    assert [row["arm"] for row in rows] == list(tiny.arms)
    assert told[-1][1:] == (4, 4)
    assert json.loads((folder / "summary.json").read_text())["worlds"] == summary["worlds"]
    figure = learning_figure(summary["worlds"])
    assert list(dict.fromkeys(line for line, *_ in figure.rows)) == list(tiny.arms)
    assert figure.more == ()

    again = run_compare(tiny, folder, workers=1)
    assert again["worlds"] == summary["worlds"]
    with pytest.raises(Mismatch):
        run_compare(tiny.model_copy(update={"updates": 3}), folder, workers=1)


@pytest.mark.parametrize(
    ("one", "two", "titles"),
    [
        (
            {"world": "maze?seed=1"},
            {"world": "maze?seed=2"},
            ["maze?seed=1", "maze?seed=2"],
        ),
        (
            {"world": "maze", "organism": "a"},
            {"world": "maze", "organism": "b", "tasks": 3},
            ["maze (organism a, tasks 12)", "maze (organism b, tasks 3)"],
        ),
    ],
)
def test_two_places_of_a_comparison_never_share_a_cell_or_a_row(tmp_path, one, two, titles):
    both = (WorldPlan(**one), WorldPlan(**two), WorldPlan(world="lock:3"))
    recipe = CompareRecipe(worlds=both, arms=("independent+grpo",), seeds=1)
    cells = run_module.cells_of(recipe, tmp_path)
    assert len({cell.folder for cell in cells}) == 3
    assert cells[2].folder.name == "lock-3-independent+grpo-0"
    for i, cell in enumerate(cells):
        (cell.folder / "checkpoints" / "00000001").mkdir(parents=True)
        place = {"done": [{"mixed": 0.5}]}
        state = {"step": 1, "weights": "", "position": {"place": place}}
        (cell.folder / "checkpoints" / "00000001" / "state.json").write_text(json.dumps(state))
        cell.file.write_text(json.dumps([{"update": n, "tokens": n, "success": [i / 4]} for n in (0, 1)]))
    worlds = run_module.summary_of(recipe, cells)["worlds"]
    assert [(title, data["rows"][0]["final"]) for title, data in worlds.items()] == [
        (titles[0], 0.0), (titles[1], 0.25), ("lock:3", 0.5),
    ]  # fmt: skip


def test_an_evaluation_that_a_killed_run_had_left_is_made_up_for(tiny, whole, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(whole[0], folder)
    cell = run_module.cells_of(tiny, folder)[0]
    cell.file.write_text(json.dumps(cell.rows[:-1]))
    assert not cell.done
    assert run_compare(tiny, folder, workers=1)["worlds"] == whole[1]["worlds"]
    assert cell.done


def test_an_interrupted_comparison_goes_on_where_it_was(tiny, whole, tmp_path, monkeypatch):
    done = []

    def stop_after_one(cell):
        if done:
            raise KeyboardInterrupt
        done.append(cell)
        run_cell(cell)

    run_cell = run_module.run_cell
    monkeypatch.setattr(run_module, "run_cell", stop_after_one)
    with pytest.raises(KeyboardInterrupt):
        run_compare(tiny, tmp_path / "cut", workers=1)
    monkeypatch.setattr(run_module, "run_cell", run_cell)
    assert run_compare(tiny, tmp_path / "cut", workers=1)["worlds"] == whole[1]["worlds"]


def test_worker_processes_give_the_same_curves(tiny, whole, tmp_path):
    assert run_compare(tiny, tmp_path, workers=2)["worlds"] == whole[1]["worlds"]


def die_once(cell):
    """As a cell is trained whose process is killed, once, between two updates."""
    cell.folder.mkdir(parents=True, exist_ok=True)
    if not (cell.folder / "died").exists():
        (cell.folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    cell.file.write_text(json.dumps([{"update": cell.recipe.updates, "tokens": 1, "success": [1.0]}]))
    return {}


def die(cell):
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(cell):
    return wrong(BadInput("no such thing", where="here", hint="another"))


def crash(cell):
    return wrong(ZeroDivisionError("by nothing"))


def wait_for_ever(cell):
    cell.folder.mkdir(parents=True, exist_ok=True)
    (cell.folder / "part").write_text(str(os.getpid()))
    (cell.folder / "part").rename(cell.folder / "pid")
    time.sleep(600)


def test_a_killed_process_is_replaced_and_its_cell_goes_on(tiny, tmp_path):
    cells = run_module.cells_of(tiny, tmp_path)[:1]
    run_module._run(cells, 2, silent, die_once)
    assert cells[0].done


@pytest.mark.parametrize(
    ("work", "error", "said"),
    [
        (refuse, BadInput, r"no such thing \(here\)"),
        (crash, InternalError, "(?s)household.*grpo.*ZeroDivisionError: by nothing"),
        (die, CannotDo, "lost 3 times, with 1 cells"),
    ],
)
def test_what_a_cell_fails_of_is_raised_where_the_comparison_is(tiny, tmp_path, work, error, said):
    with pytest.raises(error, match=said):
        run_module._run(run_module.cells_of(tiny, tmp_path)[:1], 2, silent, work)


def test_an_interrupt_ends_the_processes(tiny, tmp_path):
    cells = run_module.cells_of(tiny, tmp_path)[:1]
    pid = cells[0].folder / "pid"

    def stop(*given, **more):
        if pid.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_module._run(cells, 2, stop, wait_for_ever)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
