"""``refork localize inject`` and ``transfer``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from refork.errors import BadInput, CannotDo
from refork_methods.localize import commands as localize
from refork_methods.localize.casefile import CaseFile, Location
from refork_methods.localize.inject import GOLD, GateRun, InjectionGate, measure_agent

RUNNER = CliRunner()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "shop.py").write_text("def has_discount(total):\n    return total > 100\n")
    place = Location("shop.py", 1, 2, "why", "the limit itself is left out", "include it", score=0.9)
    case = CaseFile((place,), meta={"producer": {"name": "x"}})
    (tmp_path / "case.json").write_text(case.dumps())
    (tmp_path / "oracle.json").write_text(CaseFile((place,), meta={GOLD: True}).dumps())
    runs = [GateRun(f"t{n}", n / 40, n >= 20, "x") for n in range(40)]
    weak = measure_agent("weak", np.zeros(10), np.ones(10), np.zeros(10))
    strong = measure_agent("strong", np.ones(10), np.ones(10), np.zeros(10))
    InjectionGate.fit(runs, [weak, strong]).write(tmp_path / "gate.json")
    rows = {"with": [1, 1, 1, 1, 1, 1, 0], "without": [0, 0, 0, 0, 0, 0, 1]}
    for name, values in rows.items():
        told = [
            {"task": f"t{n}", "resolved": v, "findings": "all" if name == "with" else "none", "tokens": 100}
            for n, v in enumerate(values)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    return tmp_path


def run(*words: object) -> tuple[int, str, str]:
    done = RUNNER.invoke(localize.app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_inject_prints_the_markdown_only_where_it_pays(files: Path) -> None:
    gate = ("--gate", files / "gate.json", "--agent")
    code, out, err = run("inject", files / "case.json", *gate, "weak", "--root", files / "shop")
    assert code == 0
    assert out.startswith("# Case file")
    assert "return total > 100" in out
    assert err.startswith("inject: the chance of being right, 0.9")
    code, out, err = run("inject", files / "case.json", *gate, "strong")
    assert (code, out) == (1, "")
    assert err.startswith("do not inject")


def test_inject_by_numbers_and_json(files: Path) -> None:
    words = ("inject", files / "case.json", "--gain", 0.053, "--loss", 0.159, "--json", "--chance")
    code, out, _ = run(*words, 0.8)
    told = json.loads(out)
    assert code == 0
    assert told["inject"] is True
    assert told["break_even"] == pytest.approx(0.75)
    assert told["markdown"].startswith("# Case file")
    code, out, _ = run(*words, 0.7)
    assert code == 1
    assert json.loads(out)["markdown"] is None


def test_inject_refuses(files: Path) -> None:
    case = files / "case.json"
    for words in (
        (case,),
        (case, "--gain", 1),
        (case, "--gain", 1, "--loss", 1),
        (case, "--gate", files / "gate.json"),
        (case, "--gate", files / "gate.json", "--agent", "weak", "--gain", 1),
        (case, "--gate", files / "gate.json", "--agent", "nobody"),
        (case, "--gate", files / "gate.json", "--agent", "weak", "--task", "t3"),
    ):
        with pytest.raises(BadInput):
            run("inject", *words)
    with pytest.raises(CannotDo):
        run("inject", files / "oracle.json", "--gain", 1, "--loss", 1, "--chance", 0.9)


def test_transfer(files: Path) -> None:
    code, out, _ = run("transfer", files / "with.jsonl", files / "without.jsonl")
    assert code == 0
    assert "+0.714" in out
    assert "0.1250" in out
    assert "localizer's not counted" in " ".join(out.split())
    told = json.loads(run("transfer", files / "with.jsonl", files / "without.jsonl", "--json")[1])
    assert told["settings"][0]["gains"] == 6
    with pytest.raises(BadInput, match="had some"):
        run("transfer", files / "without.jsonl", files / "with.jsonl")
    text = (files / "with.jsonl").read_text().replace('"all"', '"oracle"')
    (files / "with.jsonl").write_text(text)
    assert "control" in run("transfer", files / "with.jsonl", files / "without.jsonl")[1]
    with pytest.raises(CannotDo):
        run("transfer", files / "with.jsonl", files / "without.jsonl", "--deploy")
