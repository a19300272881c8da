"""The results page comes from stored figures alone."""

import json
import re
import sys

import pytest

from support.toolbox import load

results = load("results")


def record(figures):
    box = {"cpu": "Some CPU", "cores": 2, "python": "3.11", "torch": "2.13", "system": "Linux"}
    return {"command": "python benchmarks/store.py", "figures": figures, "machine": box}


def test_every_figure_is_shown_with_its_verdict():
    page = results.render({"store": record({"open_ms": 120.0, "lost_committed": 0, "append_ms": 0.01234})})
    assert re.search(r"opening a tree.*\| 120 \| at most 100 \| \*\*no\*\* \|", page)
    assert re.search(r"lost by the kills \| 0 \| 0 \| yes \|", page)
    assert re.search(r"durable append.*\| 0.0123 \| - \| - \|", page)
    assert re.search(r"readers beside a writer \| not given", page)
    assert page.count("Not run yet.") == len(results.REGISTRY) - 1
    assert "2 cores of Some CPU" in page


def test_nested_figures_and_published_numbers():
    entry = results.Entry(
        "x", "product", "Claim.", (results.Figure("a.b", "thing", 1, 2, published="1.7"),), "Note."
    )
    page = results.section(entry, record({"a": {"b": 1.5}}))
    assert "| thing | 1.7 | 1.5 | 1 to 2 | yes |" in page
    assert results.look_up({"a": 3}, "a.b") is None


@pytest.mark.parametrize(
    ("value", "shown"), [(3.0, "3"), (12345.6, "12,300"), (0.000123, "0.000123"), (2.345, "2.35")]
)
def test_numbers_in_print(value, shown):
    assert results.number(value) == shown


def test_the_machine_has_no_name_and_no_path():
    box = results.machine()
    assert set(box) == {"cpu", "cores", "python", "torch", "system"}
    assert "/" not in json.dumps(box).replace("w/", "")


def test_a_run_stores_the_last_line(tmp_path, monkeypatch):
    (tmp_path / "benchmarks").mkdir()
    bench = tmp_path / "benchmarks/store.py"
    bench.write_text("import sys\nprint('a table')\nprint('{\"open_ms\": %d}' % len(sys.argv))\n")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "STORED", tmp_path / "stored")
    entry = next(entry for entry in results.REGISTRY if entry.name == "store")
    results.run(entry, quick=True)
    stored = results.read_stored()["store"]
    assert stored["figures"] == {"open_ms": 2}
    assert stored["command"] == "python benchmarks/store.py --quick"
    for body in ("print('no json')\n", "raise SystemExit(1)\n"):
        bench.write_text(body)
        with pytest.raises(SystemExit):
            results.run(entry, quick=False)


def test_a_benchmark_of_a_device_that_is_not_here_keeps_what_is_stored(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "STORED", tmp_path)
    monkeypatch.setattr(results, "has", lambda device: False)
    (tmp_path / "gpu.json").write_text("{}")
    results.run(next(entry for entry in results.REGISTRY if entry.name == "gpu"), quick=False)
    assert (tmp_path / "gpu.json").read_text() == "{}"
    assert "gpu is left as it is: this machine has no cuda device" in capsys.readouterr().out


def test_a_page_out_of_date_and_a_stray_benchmark_are_noticed(tmp_path, monkeypatch, capsys):
    (tmp_path / "benchmarks").mkdir()
    for name, value in {
        "ROOT": tmp_path,
        "BENCHMARKS": tmp_path / "benchmarks",
        "PAGE": tmp_path / "results.md",
        "QUOTING": (tmp_path / "papers.md", tmp_path / "other.md"),
    }.items():
        monkeypatch.setattr(results, name, value)
    monkeypatch.setattr(results, "STORED", tmp_path / "stored")
    (tmp_path / "papers.md").write_text('[7](results.md#store "open_ms")')
    (tmp_path / "other.md").write_text('[8](results.md#store "open_ms")')
    monkeypatch.setattr(sys, "argv", ["results.py", "--check"])
    assert results.main() == 1
    said = capsys.readouterr().out
    assert "papers.md is not what" in said
    assert "other.md is not what" in said
    monkeypatch.setattr(sys, "argv", ["results.py"])
    assert results.main() == 0
    monkeypatch.setattr(sys, "argv", ["results.py", "--check"])
    assert results.main() == 0
    (tmp_path / "benchmarks/other.py").write_text("")
    assert results.main() == 2
    assert "other" in capsys.readouterr().out


def test_quoted_figures_are_the_stored_ones():
    stored = {"store": record({"open_ms": 120.0})}
    assert results.quote('opens in [7](results.md#store "open_ms") ms', stored) == (
        'opens in [120](results.md#store "open_ms") ms'
    )
    assert "[not run yet](" in results.quote('[7](results.md#store "open_ms")', {})
    with pytest.raises(ValueError, match="store claims no 'speed'"):
        results.quote('[7](results.md#store "speed")', stored)
