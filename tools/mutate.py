"""Mutation testing of the numeric files by mutmut: every change of a line that no test notices is told.

What is mutated, by which tests each file is judged, and the survivors that are known, each with the reason
why no test can or need notice it, stand in tests/mutation_survivors.toml. It fails on a survivor that is not
listed, and on a listed one that no longer survives.

    python mutate.py                 all files: hours
    python mutate.py stats credit    the files whose path holds one of these words
    python mutate.py stats --write   and list new survivors, with no reason yet

Every file is mutated in a copy of the package, so that nothing here is touched. mutmut leaves alone what
stands outside functions, and decorated functions, properties among them. Texts of errors are not mutated.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/mutation_survivors.toml"

#: Lines that hold nothing but the text of an error: what it says is for people to judge.
TEXTS = [r"^\s*raise \w+\(", r"^\s*(where|hint)=", r"^\s*f?[\"'][^\"']*[\"'],?\s*$", r"^\s*f\".*\",?\s*$"]
#: What mutmut calls a mutant that a test noticed; one that ended no test in time was noticed too.
NOTICED = {"killed", "timeout", "caught by type check"}


@dataclass(frozen=True)
class Survivor:
    """A mutation that no test notices: the function, its line and what it becomes."""

    file: str
    function: str
    was: str
    becomes: str


@dataclass(frozen=True)
class Found:
    """What the run of one file found: how many mutations there were, and which of them survived."""

    mutants: int
    survivors: list[Survivor]


def config(file: str, tests: list[str]) -> str:
    """The settings of mutmut for one file, beside pytest's own."""
    own = (ROOT / "pyproject.toml").read_text()
    pytest = re.search(r"^\[tool\.pytest\.ini_options\]\n.*?(?=^\[)", own, re.DOTALL | re.MULTILINE)
    assert pytest is not None
    quick = ["-p", "no:xdist", "-p", "no:cov", "--hypothesis-profile=no-shrink", "-x"]
    return pytest[0] + "\n".join(
        [
            "[tool.mutmut]",
            'source_paths = ["src"]',
            f"only_mutate = [{json.dumps(f'src/ramify/{file}')}]",
            f"do_not_mutate_patterns = {json.dumps(TEXTS)}",
            f"pytest_add_cli_args = {json.dumps(quick)}",
            f"pytest_add_cli_args_test_selection = {json.dumps([f'tests/{test}' for test in tests])}",
            "use_git_change_detection = false",
            "track_dependencies = false",
            "",
        ]
    )


def run(file: str, tests: list[str], folder: Path) -> Found:
    """Mutate one file in a folder and judge every mutation by the tests."""
    for name in ("src", "tests"):
        if not (folder / name).exists():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(folder / "mutants", ignore_errors=True)
    (folder / "pyproject.toml").write_text(config(file, tests))
    done = mutmut(folder, "run", "--max-children", "1")
    if "Running mutation testing" not in done.stdout:
        raise SystemExit(f"mutate: {file} could not be judged\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    fates = re.findall(r"^\s*(ramify\.\S+): (.+)$", mutmut(folder, "results", "--all", "true").stdout, re.M)
    left = [name for name, fate in fates if fate.strip() not in NOTICED]
    return Found(len(fates), [survivor(file, name, mutmut(folder, "show", name).stdout) for name in left])


def mutmut(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of mutmut in a folder."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("COV", "PYTEST", "PYTHONPATH"))}
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(
        command, cwd=folder, env=env | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )


def survivor(file: str, name: str, shown: str) -> Survivor:
    """A mutant by what it changes: its number changes with every line that is added above it."""
    lines = [line for line in shown.splitlines() if not line.startswith(("---", "+++"))]
    was, becomes = (
        "\n".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in ("-", "+")
    )
    function = name.rpartition("__mutmut_")[0].rpartition(".")[2]
    return Survivor(file, re.sub(r"^x_|^xǁ", "", function).replace("ǁ", "."), was, becomes)


def listed() -> list[dict[str, str]]:
    """The known survivors with their reasons."""
    return list(tomllib.loads(LIST.read_text()).get("survivor", []))


def targets(words: list[str]) -> list[tuple[str, list[str]]]:
    """The files to mutate, each with its tests; those whose path holds one of the words."""
    rows = tomllib.loads(LIST.read_text())["target"]
    return [
        (row["file"], row["tests"]) for row in rows if not words or any(word in row["file"] for word in words)
    ]


def write(new: list[Survivor]) -> None:
    """Add survivors to the list, each waiting for its reason."""
    with LIST.open("a") as out:
        for one in new:
            rows = "".join(f"{k} = {json.dumps(v, ensure_ascii=False)}\n" for k, v in asdict(one).items())
            out.write(f'\n[[survivor]]\n{rows}reason = ""\n')


def judge(found: list[Survivor], files: set[str]) -> tuple[list[Survivor], list[str]]:
    """Survivors that are not listed, and what is wrong with the list for the files that were run."""
    known = {Survivor(**{k: v for k, v in row.items() if k != "reason"}): row for row in listed()}
    wrong = [
        f"{one.file}, {one.function}: {one.was!r} is listed and does not survive"
        for one in known
        if one.file in files and one not in found
    ]
    wrong += [
        f"{one.file}, {one.function}: {one.was!r} is listed without a reason"
        for one, row in known.items()
        if one.file in files and not row["reason"]
    ]
    return [one for one in dict.fromkeys(found) if one not in known], wrong


def main(arguments: list[str] | None = None) -> int:
    """Mutate, tell what survived, and compare it with the list; 1 where the two differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of paths; default: every file")
    parser.add_argument("--write", action="store_true", help="list new survivors")
    asked = parser.parse_args(arguments)
    found: list[Survivor] = []
    files: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        for file, tests in targets(asked.words):
            one = run(file, tests, Path(folder))
            found += one.survivors
            files.add(file)
            new, _ = judge(one.survivors, set())
            print(
                f"{file}: {one.mutants} mutants, {len(one.survivors)} survive, {len(new)} not listed",
                flush=True,
            )
    new, wrong = judge(found, files)
    for each in new:
        print(f"\n{each.file}, {each.function}\n- {each.was}\n+ {each.becomes}")
    for line in wrong:
        print(line)
    if asked.write:
        write(new)
    return int(bool(new or wrong))


if __name__ == "__main__":
    sys.exit(main())
