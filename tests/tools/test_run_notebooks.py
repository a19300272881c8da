"""What the runner of notebooks compares, stores and says; the notebooks themselves run in `make check`."""

import json

import nbformat

from support.toolbox import load

run_notebooks = load("run_notebooks")


def book(source="print(1)", outputs=()):
    """A notebook of one code cell."""
    made = nbformat.v4.new_notebook()
    made.cells.append(nbformat.v4.new_code_cell(source, outputs=list(outputs), metadata={"a": 1}))
    return made


def printed(text):
    return nbformat.v4.new_output("stream", text=text)


def test_kinds_and_tidy():
    """Streams are text; what changes with each run is taken out."""
    picture = nbformat.v4.new_output("display_data", data={"image/png": "QQ==", "text/plain": "x"})
    made = book(outputs=[printed("1\n"), picture])
    assert run_notebooks.kinds(made) == [["image/png", "text/plain"]]
    run_notebooks.tidy(made)
    assert made.cells[0].id == "cell-0"
    assert made.cells[0].metadata == {}
    nbformat.validate(made)


def test_stale_failed_written(monkeypatch, tmp_path):
    """Kinds that differ are stale, a cell that raises fails, and only --write changes the file."""
    path = tmp_path / "one.ipynb"
    path.write_text(nbformat.writes(book()))
    before = path.read_text()
    monkeypatch.setattr(run_notebooks, "execute", lambda made: made.cells[0].outputs.append(printed("1\n")))
    told, well = run_notebooks.run(path, write=False)
    assert told.startswith("STALE  one.ipynb")
    assert not well
    assert path.read_text() == before
    assert run_notebooks.run(path, write=True)[1]
    assert json.loads(path.read_text())["cells"][0]["outputs"][0]["text"] == ["1\n"]
    monkeypatch.setattr(run_notebooks, "execute", lambda made: None)
    assert run_notebooks.run(path, write=False)[0].startswith("ok     one.ipynb")

    def fails(made):
        raise run_notebooks.CellExecutionError("\x1b[31mboom\x1b[0m", "E", "v")

    monkeypatch.setattr(run_notebooks, "execute", fails)
    told, well = run_notebooks.run(path, write=False)
    assert told == "FAILED one.ipynb\nboom"
    assert not well


def test_the_kernel_starts_by_the_given_launch(tmp_path):
    """The kernel that Jupyter finds is the launcher behind the warm start."""
    run_notebooks.install_kernel(tmp_path, ("python", "warm.py"))
    spec = json.loads((tmp_path / "kernels/refork/kernel.json").read_text())
    assert spec["argv"][:2] == ["python", "warm.py"]
    assert spec["argv"][2].endswith("ipykernel_launcher.py")
