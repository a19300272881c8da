"""Mutation testing of the numeric files by mutmut: every change of a line that no test notices is told.

What is mutated, by which tests each file is judged, and the survivors that are known, each with the reason
why no test can or need notice it, stand in tests/mutation_survivors.toml. It fails on a survivor that is not
listed, and on a listed one that no longer survives.

    python mutate.py                 all files: an hour or more
    python mutate.py stats credit    the files whose path holds one of these words
    python mutate.py stats --write   and list new survivors, with no reason yet
    python mutate.py --keep FOLDER   remember there what was judged; an interrupted run goes on from it
    python mutate.py --jobs 2        so many mutations at a time

Every file is mutated in a copy of the package, so that nothing here is touched. mutmut leaves alone what
stands outside functions, and decorated functions; properties are made plain for it. Texts of errors are not
mutated. What a zip's strict=True becomes is not looked at: it asserts what our own lines see to.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/mutation_survivors.toml"

#: Lines that hold nothing but the text of an error: what it says is for people to judge.
TEXTS = [r"^\s*raise \w+\(", r"^\s*(where|hint)=", r"^\s*f?[\"'][^\"']*[\"'],?\s*$", r"^\s*f\".*\",?\s*$"]
#: What mutmut calls a mutant that a test noticed; one that ended no test in time, or with which no test could
#: even be read ("interrupted"), was noticed too.
NOTICED = {"killed", "timeout", "check was interrupted by user", "caught by type check"}
#: What says by itself whether tests notice a mutant.
PLAIN = {"killed", "survived", "no tests", "caught by type check"}


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
    settings = re.sub(r"packages/([\w-]+)/tests", r"tests/of-\1", pytest[0])
    quick = ["-p", "no:xdist", "-p", "no:cov", "--hypothesis-profile=no-shrink", "-x"]
    quick += [f"--deselect={lies(test[1:])}" for test in tests if test.startswith("-")]
    chosen = [lies(test) for test in tests if not test.startswith("-")]
    return settings + "\n".join(
        [
            "[tool.mutmut]",
            'source_paths = ["src"]',
            f"only_mutate = [{json.dumps(f'src/{file}')}]",
            f"do_not_mutate_patterns = {json.dumps(TEXTS)}",
            f"pytest_add_cli_args = {json.dumps(quick)}",
            f"pytest_add_cli_args_test_selection = {json.dumps(chosen)}",
            "use_git_change_detection = false",
            "track_dependencies = false",
            "timeout_multiplier = 6.0",
            "",
        ]
    )


def lies(test: str) -> str:
    """Where a test lies in the copy: mutmut takes one folder of tests along."""
    return re.sub(r"^packages/([\w-]+)/tests/", r"tests/of-\1/", test)


def digest(file: str, tests: list[str]) -> str:
    """What a verdict rests on, in short: the file, its tests and the settings."""
    named = {test.lstrip("-").partition("::")[0] for test in tests}
    read = [
        next(ROOT.glob(f"packages/*/src/{file}")),
        Path(__file__),
        *(ROOT / name for name in sorted(named)),
    ]
    parts = [config(file, tests).encode(), *(path.read_bytes() for path in read)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def copy(file: str, tests: list[str], folder: Path) -> None:
    """Copy what one file is judged with to a folder."""
    for name in ("src", "tests", "mutants"):
        shutil.rmtree(folder / name, ignore_errors=True)
    left = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=left)
    shutil.copy(ROOT / "conftest.py", folder / "tests")
    for own in ROOT.glob("packages/*/tests"):
        shutil.copytree(own, folder / "tests" / f"of-{own.parent.name}", ignore=left)
    for source in ROOT.glob("packages/*/src"):
        shutil.copytree(source, folder / "src", ignore=left, dirs_exist_ok=True)
    (folder / "pyproject.toml").write_text(config(file, tests))
    judged_file = folder / "src" / file
    judged_file.write_text(plain(judged_file.read_text()))


def plain(source: str) -> str:
    """A module with each ``@property`` written as a function that is made one behind it, for mutmut."""
    lines = source.splitlines()
    found = [
        one
        for owner in ast.walk(ast.parse(source))
        if isinstance(owner, ast.ClassDef)
        for one in owner.body
        if isinstance(one, ast.FunctionDef) and [ast.unparse(d) for d in one.decorator_list] == ["property"]
    ]
    for one in sorted(found, key=lambda one: -one.lineno):
        assert one.end_lineno is not None
        lines.insert(one.end_lineno, f"{' ' * one.col_offset}{one.name} = property({one.name})")
        del lines[one.decorator_list[0].lineno - 1]
    return "\n".join(lines) + "\n"


def run(file: str, tests: list[str], folder: Path, jobs: int = 1) -> Found:
    """Mutate one file in a folder and judge every mutation by the tests."""
    copy(file, tests, folder)
    told = judged(folder, file, jobs)
    if "Running mutation testing" not in told:
        raise SystemExit(f"mutate: {file} could not be judged\n{told[-3000:]}")
    # What ended in no plain way is asked once more: on a machine that is busy that may be its doing.
    odd = [name for name, fate in verdicts(folder).items() if fate not in PLAIN]
    if odd:
        judged(folder, file, jobs, odd)
    fates = verdicts(folder)
    left = [name for name, fate in fates.items() if fate not in NOTICED]
    survivors = [survivor(file, name, mutmut(folder, "show", name)) for name in left]
    return Found(len(fates), [one for one in survivors if not same(one)])


def verdicts(folder: Path) -> dict[str, str]:
    """What became of each mutant."""
    told = mutmut(folder, "results", "--all", "true")
    return dict(re.findall(r"^\s*(refork\w*\.\S+): (.+?)\s*$", told, re.MULTILINE))


def same(one: Survivor) -> bool:
    """Whether a mutant is the same program for a reason that needs no looking at.

    A number so large that one more is the same float; numpy's two names of float64; a zip's ``strict``.
    """

    def program(line: str) -> str:
        line = re.sub(r",\s*strict=(True|False|None)\b", "", line)
        return re.sub(r",\s*\)", ")", line.replace(".astype(None)", ".astype(np.float64)"))

    return program(one.was) == program(one.becomes)


def mutmut(folder: Path, *arguments: str) -> str:
    """What a command of mutmut in a folder says."""
    with start(folder, *arguments) as child:
        return child.communicate()[0]


def judged(folder: Path, file: str, jobs: int, names: Sequence[str] = ()) -> str:
    """Run the mutations, or some of them, and say how far it is, on a terminal; what mutmut said."""
    told = ""
    begin = time.monotonic()
    with start(folder, "run", "--max-children", str(jobs), *names) as child:
        assert child.stdout is not None
        # mutmut writes its line anew from its beginning: what is read as text ends there.
        for line in child.stdout:
            told += line
            seen = re.search(r"(\d+)/(\d+) .*🙁 (\d+)", line)
            if seen and sys.stderr.isatty():
                done, of, left = seen.groups()
                spent = time.monotonic() - begin
                now = f"{file}: {done} of {of}, {left} survive, {spent:.0f} s"
                print(f"\r{now:<100}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r" + " " * 100, end="\r", file=sys.stderr, flush=True)
    return told


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command of mutmut in a folder."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("COV", "PYTEST", "PYTHONPATH"))}
    command = [sys.executable, "-m", "mutmut", *arguments]
    env |= {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
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


def remembered(file: str, tests: list[str], folder: Path, jobs: int) -> Found:
    """What the folder remembers of a file and tests that are still the same, or else a run."""
    told = folder / "judged.json"
    known = json.loads(told.read_text()) if told.exists() else {}
    now = digest(file, tests)
    if known.get(file, {}).get("digest") != now:
        known[file] = {"digest": now} | asdict(run(file, tests, folder, jobs))
        told.write_text(json.dumps(known, indent=1))
    row = known[file]
    return Found(row["mutants"], [Survivor(**one) for one in row["survivors"]])


def main(arguments: list[str] | None = None) -> int:
    """Mutate, tell what survived, and compare it with the list; 1 where they differ, 130 if interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of paths; default: every file")
    parser.add_argument("--write", action="store_true", help="list new survivors")
    parser.add_argument("--keep", type=Path, help="folder that remembers what was judged; default: none")
    parser.add_argument("--jobs", type=int, default=1, help="mutations judged at a time (1)")
    asked = parser.parse_args(arguments)
    try:
        found, files = every(asked)
    except KeyboardInterrupt:
        hint = "what was judged is kept" if asked.keep else "--keep FOLDER goes on where it stopped"
        print(f"\nmutate: stopped; {hint}", file=sys.stderr)
        return 130
    new, wrong = judge(found, files)
    for line in wrong:
        print(line)
    if asked.write:
        write(new)
    return int(bool(new or wrong))


def every(asked: argparse.Namespace) -> tuple[list[Survivor], set[str]]:
    """The survivors of every file that was asked for, told file by file, and the files."""
    found: list[Survivor] = []
    files: set[str] = set()
    if asked.keep:
        asked.keep.mkdir(parents=True, exist_ok=True)
    with nullcontext(asked.keep) if asked.keep else tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        for file, tests in targets(asked.words):
            begin = time.monotonic()
            one = remembered(file, tests, Path(folder), asked.jobs)
            found += one.survivors
            files.add(file)
            new, _ = judge(one.survivors, set())
            print(
                f"{file}: {one.mutants} mutants, {len(one.survivors)} survive, {len(new)} not listed "
                f"({time.monotonic() - begin:.0f} s)",
                *(f"\n{each.function}\n- {each.was}\n+ {each.becomes}\n" for each in new),
                sep="\n",
                flush=True,
            )
    return found, files


if __name__ == "__main__":
    sys.exit(main())
