"""What was made while the package was called Ramify is still read. ``former`` holds what it wrote itself."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer import Typer
from typer.testing import CliRunner

from refork.cli import fork, grow, tree
from refork.formats import import_file, reader_for
from refork.runs.recipe import GrowRecipe, resolve
from refork.settings import home, present_mark, variable, variables
from refork.tree.tree import Tree

FORMER = Path(__file__).parent / "former"


@pytest.fixture
def run(tmp_path):
    """A grown run: two tasks of a lock, four draws each, and one fork with its control."""
    folder = tmp_path / "a"
    folder.mkdir()
    shutil.copy(FORMER / "recipe.json", folder)
    (folder / "tree.db").write_bytes(gzip.decompress((FORMER / "tree.db.gz").read_bytes()))
    return folder


APP = Typer()
APP.add_typer(tree.app, name="tree")
APP.command("fork")(fork.fork_command)
APP.command("grow")(grow.grow_command)


def cli(*words):
    done = CliRunner().invoke(APP, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_tree_is_whole_and_its_noise_draws_the_same_tokens(run):
    words = ["tree", "verify", run / "tree.db", "--policy", "scripted:lock", "--redraw", "--json"]
    assert json.loads(cli(*words)) == []


def test_a_run_is_resumed_and_nothing_is_drawn_again(run):
    words = ["--world", "lock", "--policy", "scripted:lock", "--draws", 4, "--set", "tasks.count=2"]
    words += ["--set", "sampling.max_tokens=40", "--out", run, "--json"]
    assert json.loads(cli("grow", *words))["tokens"] == 0


def test_a_fork_is_the_one_that_is_there(run):
    with Tree.open(run / "tree.db", mode="r") as tree:
        before = sorted(fork.id for fork in tree.forks())
    words = ["--token", 3, "--change", "set:temperature=0.5", "--policy", "scripted:lock", "--draws", 3]
    cli("fork", "--tree", run / "tree.db", "--node", "7a406f77", *words)
    with Tree.open(run / "tree.db", mode="r") as tree:
        assert sorted(fork.id for fork in tree.forks()) == before


@pytest.mark.parametrize("name", ["native.jsonl", "otlp.json"])
def test_exports_give_the_same_nodes_under_either_name(tmp_path, name):
    text = gzip.decompress((FORMER / f"{name}.gz").read_bytes()).decode()
    file = tmp_path / name
    found = []
    for form in (text, text.replace("ramify.", "refork.").replace('{"ramify"', '{"refork"')):
        file.write_text(form)
        with Tree.memory() as tree:
            import_file(tree, file, reader_for(file))
            found.append((sorted(node.id for node in tree.walk()), tree.producers()))
        assert any(producer.name == "world:lock" for producer in found[-1][1]), found[-1][1]
    assert form != text
    assert found[0] == found[1]


def test_variables_and_the_cache_folder(tmp_path, monkeypatch):
    given = {"RAMIFY_HOME": "text", "RAMIFY_DRAWS": "3", "REFORK_DRAWS": "5", "OTHER": "x"}
    assert variables(given) == {"REFORK_DRAWS": "5", "REFORK_HOME": "text"}
    assert variable("REFORK_HOME", given) == "text"
    recipe = resolve(GrowRecipe, None, (), given, world="lock", policy="scripted:lock")
    assert recipe.draws == 5
    for name in ("REFORK_HOME", "RAMIFY_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = tmp_path / ".cache"
    assert home() == cache / "refork"
    (cache / "ramify").mkdir(parents=True)
    assert home() == cache / "ramify"
    (cache / "refork").mkdir()
    assert home() == cache / "refork"
    monkeypatch.setenv("RAMIFY_HOME", "/former")
    assert home() == Path("/former")
    monkeypatch.setenv("REFORK_HOME", "/present")
    assert home() == Path("/present")


def test_marks():
    assert present_mark("ramify sequential temperature scaling 1").startswith("refork ")
    assert present_mark("my-ramifyer") == "my-ramifyer"


def _step_cost(folder):
    from refork_methods.speculate.step_cost import StepCost

    cost = StepCost.of({1: 1.0, 2: 1.25}, {1: 0.5}, shares={1: 0.75})
    return cost.save, StepCost.load


def _calibration(folder):
    from refork_methods.speculate.calibrate import SequentialTemperatureScaling

    return SequentialTemperatureScaling((0.5, 2.0), (900, 600)).save, SequentialTemperatureScaling.load


def _case(folder):
    from refork_methods.localize.casefile import CaseFile

    case = CaseFile((), "empty")
    return lambda file: file.write_text(case.dumps()), lambda file: CaseFile.loads(file.read_text())


@pytest.mark.parametrize("kind", [_step_cost, _calibration, _case])
def test_files_with_the_former_mark(kind, tmp_path):
    save, load = kind(tmp_path)
    file = tmp_path / "file.json"
    save(file)
    text = file.read_text()
    present = load(file)
    file.write_text(text.replace('"refork ', '"ramify '))
    assert file.read_text() != text
    assert np.array_equal(repr(load(file)), repr(present))


def test_a_kernel_says_its_sizes_with_the_former_word(tmp_path):
    from refork_methods.kernel.problem import read_problem

    source = "// {}: entry=f n=8 a=n:inout\nvoid f(float *a, int n) {{ a[0] += n; }}\n"
    found = []
    for word in ("ramify", "refork"):
        (tmp_path / "f.c").write_text(source.format(word))
        found.append(read_problem(tmp_path / "f.c"))
    assert found[0].sizes == found[1].sizes == {"n": 8}
