"""``swe``: a real git repository with real tests, and a mistake in its last commit.

A turn is a command line in the repository, an edit of one line (``edit FILE N: code``), or ``submit``, which
is answered by ``accepted`` where all tests of the broken module pass, those that were not shown included.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import posixpath
import re
import shlex
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, final

from refork.errors import BadInput, CannotDo
from refork.sandbox.shell import Ran, Shell, ShellLimits, ShellState, shared_shell
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest
from refork.worlds.environment import Brief, DomainName, ScriptedAgent
from refork.worlds.game import need, reading
from refork.worlds.spec import Spec
from refork_testbed.worlds.repair.edits import EditError, as_action, edited
from refork_testbed.worlds.repair.mutation import lines
from refork_testbed.worlds.repair.projects import project_names, split_of_project
from refork_testbed.worlds.repair.runner import test_names
from refork_testbed.worlds.repair.tasks import RepairTask, tasks_of
from refork_testbed.worlds.terminal.actions import action_in, knowable, note, submitted
from refork_testbed.worlds.terminal.agents import Scripted
from refork_testbed.worlds.terminal.words import MISSING
from refork_testbed.worlds.terminal.world import ACCEPTED, REJECTED, ShellWorld, printed

# Small repositories with a mistake in their last commit, made of the projects of ``repair``.


#: Tests that the repository shows, the failing ones first; the verdict asks all of the module's.
LISTED = 4
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b")


@final
@dataclass(frozen=True, slots=True)
class Repository:
    """A repository: ``before`` and ``files`` (path -> text) are its state before and after the mistake.

    ``tests``: what the verdict runs, path -> text. ``edits``: the line edits that mend it.
    """

    project: str
    path: str
    function: str
    issue: str
    before: dict[str, str]
    files: dict[str, str]
    tests: dict[str, str]
    edits: tuple[str, ...]

    def to_json(self) -> Json:
        """Plain JSON: the data of a task."""
        return asdict(self) | {"edits": list(self.edits)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Repository:
        """Inverse of :meth:`to_json`."""
        return cls(**{**data, "edits": tuple(data["edits"])})

    @property
    def mark(self) -> str:
        """Digest of all of it."""
        return digest(self.to_json())[:16]


def repositories(split: Split, seed: int) -> Iterator[Repository]:
    """Seeded repositories of a split, the projects taking turns until all are used up."""
    names = [name for name in project_names() if not name.startswith("std-")]
    names = [name for name in names if split_of_project(name) == split]
    taken = dict.fromkeys(Dice("swe", split, seed).sample(names, len(names)), 0)
    while taken:
        for name in list(taken):
            while True:
                known = tasks_of(name, taken[name] + 1, seed)
                if len(known) <= taken[name]:
                    del taken[name]
                    break
                found = repository(known[taken[name]])
                taken[name] += 1
                if found is not None:
                    yield found
                    break


@cache
def _functions(source: str) -> dict[str, str]:
    """Name -> text of the functions of a module."""
    rows = lines(source)
    return {
        node.name: "".join(rows[node.lineno - 1 : node.end_lineno])
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
    }


def repository(task: RepairTask) -> Repository | None:
    """The part of a project that a mistake concerns; None where no line edit mends it or no test fails."""
    home = task.project
    edit = as_action(task.path, task.broken, home.files[task.path])
    module = task.path.removesuffix(".py").replace("/", ".")
    failing = [test for test in task.failing if home.checks[test].module == module]
    if not edit.startswith("line ") or not failing:
        return None
    (path,) = {test.partition("::")[0] for test in failing}
    functions = _functions(home.tests[path])
    names = [test.partition("::")[2] for test in home.names if test.startswith(f"{path}::")]
    bad = [test.partition("::")[2] for test in failing]
    good = [name for name in names if name not in bad]
    some = sorted([*bad[: LISTED // 2], *good[: LISTED - min(len(bad), LISTED // 2)]], key=names.index)
    head = home.tests[path].partition("\n\n\n")[0]
    shown = head + "\n" + "".join(f"\n\n{functions[name]}" for name in some)
    support = {
        one: text for one, text in home.tests.items() if not one.rpartition("/")[2].startswith("test_")
    }
    needed = _needed(home.files, [task.path, *_imported(home.tests[path], path, home.files)])
    before = {one: home.files[one] for one in needed} | support | {path: shown}
    told = home.checks[failing[0]]
    return Repository(
        project=home.name, path=task.path, function=task.mutation.function,
        issue=f"{told.about} comes out wrong : see {told.call}",
        before=before, files={**before, task.path: task.broken}, tests={path: home.tests[path]},
        edits=(f"edit {task.path} {edit.removeprefix('line ')}",),
    )  # fmt: skip


def _needed(files: Mapping[str, str], wanted: list[str]) -> list[str]:
    """These files, what they import, and the packages that they lie in."""
    found: set[str] = set()
    while wanted:
        path = wanted.pop()
        if path in found:
            continue
        found.add(path)
        wanted += _imported(files[path], path, files)
        while folder := posixpath.dirname(path):
            path = folder
            if f"{folder}/__init__.py" in files:
                wanted.append(f"{folder}/__init__.py")
    return sorted(found)


def _imported(source: str, path: str, files: Mapping[str, str]) -> list[str]:
    """Files of the project that a module imports from."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ImportFrom):
            continue
        parts = path.removesuffix(".py").split("/")[: -node.level] if node.level else []
        base = "/".join([*parts, *(node.module.split(".") if node.module else [])])
        names = [base, *(f"{base}/{alias.name}" for alias in node.names)]
        found += [f"{name}.py" for name in names if f"{name}.py" in files]
    return found


def hashes(text: str) -> set[str]:
    """What looks like a commit's or a file's hash."""
    return set(_HASH.findall(text))


def canonical(state: ShellState) -> list[list[Any]]:
    """What a repository's state is: files, modes, what git holds by name, and what is staged.

    Times and numbers in git's index, and the packing of its objects, differ between equal states.
    """
    found: list[list[Any]] = []
    for entry in state.entries:
        if entry.path == ".git/index":
            found.append([entry.path, staged(entry.text)])
        elif entry.path.startswith(".git/objects/"):
            found.append([entry.path])
        else:
            found.append([entry.path, entry.kind, entry.mode, entry.text])
    return found


def staged(index: str) -> list[list[str]]:
    """Path and hash of each entry of git's index (version 2); a digest of the whole for another."""
    data = index.encode("utf-8", "surrogateescape")
    if data[:8] != b"DIRC\0\0\0\2":
        return [["index", str(zlib.crc32(data))]]
    found, at = [], 12
    for _ in range(int.from_bytes(data[8:12], "big")):
        end = data.index(b"\0", at + 62)
        found.append([data[at + 62 : end].decode(), data[at + 40 : at + 60].hex()])
        # An entry of git's index is filled up with 1 to 8 zero bytes to a multiple of 8.
        at += (end - at) // 8 * 8 + 8
    return found


OPTIONS: dict[str, type | tuple[type, ...]] = {"turns": int, "unconfined": bool, "chars": int}
_KEYS = ("project", "path", "function", "issue", "before", "files", "tests", "edits")
LIMITS = ShellLimits(seconds=20.0, disk=16 << 20, files=2048, memory=2 << 30)
DATE = "2024-01-01T12:00:00+0000"
#: git without a person's settings and without times; pytest without times, caches and plugins.
_GIT = {
    "user.name": "agent", "user.email": "agent@box", "init.defaultBranch": "main", "core.pager": "cat",
    "color.ui": "false", "gc.auto": "0", "maintenance.auto": "false", "commit.gpgSign": "false",
    "core.abbrev": "7", "advice.detachedHead": "false", "safe.directory": "*",
}  # fmt: skip
_PYTEST = "-qq --color=no --tb=no -rf -p no:cacheprovider -o console_output_style=classic"
ENVIRONMENT = {
    "GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE, "GIT_PAGER": "cat",
    "PAGER": "cat", "GIT_EDITOR": "true",
    "PYTEST_ADDOPTS": _PYTEST, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0", "COLUMNS": "100", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_COUNT": str(len(_GIT)),
    **{f"GIT_CONFIG_KEY_{at}": key for at, key in enumerate(_GIT)},
    **{f"GIT_CONFIG_VALUE_{at}": value for at, value in enumerate(_GIT.values())},
}  # fmt: skip
ACTIONS = (
    "A command line of sh in the repository (git, pytest, cat, sed, grep, ...), answered by what it prints.\n"
    "edit FILE N: CODE : line N of the file becomes CODE.\n"
    "submit : all is mended. It is answered by accepted or rejected, and ends."
)
DESCRIPTION = (
    "A git repository in /home/agent . A report : {issue} . Mend it ; the tests of {path} must pass ."
)


@final
@dataclass(frozen=True)
class SweWorld(ShellWorld):
    """Repositories of twenty small projects, half of them for either split."""

    turns: int = 12
    chars: int = 4000
    domain: DomainName = "swe"

    def shell(self) -> Shell:
        """The shell that all repositories of this process share; it sees this Python and its packages.

        Raises:
            CannotDo: this Python lies where the sandbox has a folder of its own, or no sandbox is granted.
        """
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        shown = sorted({sys.prefix, sys.base_prefix} - {"/usr"})
        if covered := [place for place in shown if Path(place).is_relative_to("/tmp")]:
            raise CannotDo(
                "this Python lies in /tmp, which commands in the sandbox have for themselves",
                where=covered[0],
                hint="install Refork in another folder",
            )
        environment = {**ENVIRONMENT, "PATH": path}
        return shared_shell(LIMITS, shown, unconfined=self.unconfined, environment=environment)

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different seeded tasks; no project is in both splits.

        Raises:
            BadInput: there are not so many.
        """
        found: list[Task] = []
        for home in repositories(split, seed):
            if len(found) == count:
                break
            prompt = f"{DESCRIPTION.format(issue=home.issue, path=home.path)}\n{ACTIONS}"
            found.append(Task(f"swe/{home.project}/{home.mark}", self.name, split, prompt, home.to_json()))
        if len(found) < count:
            raise BadInput(f"there are only {len(found)} {split} tasks of swe, not {count}")
        return found

    def start(self, task: Task, seed: int) -> SweEpisode:
        """Begin; there is no chance.

        Raises:
            CannotDo: git or pytest is missing.
        """
        del seed
        home = _home(task)
        state, log = _begun(json.dumps(task.data, sort_keys=True), self)
        return SweEpisode(self, task, home, state, known=tuple(sorted(hashes(log))))

    def restore(self, task: Task, snapshot: bytes) -> SweEpisode:
        """An episode in the state of a snapshot; raises BadInput where it is not one of this task."""
        home = _home(task)
        with reading(self.name, task, snapshot) as record:
            turn, known = int(record["turn"]), tuple(record["known"])
            state = ShellState.from_json(record["state"])
            seen = None if record["seen"] is None else Observation(**record["seen"])
        return SweEpisode(self, task, home, state, turn=turn, observation=seen, known=known)

    def brief(self, task: Task) -> Brief:
        """The report, the log, and every file of the repository."""
        home = _home(task)
        _, log = _begun(json.dumps(task.data, sort_keys=True), self)
        files = "\n".join(f"file {path}\n{text}".rstrip("\n") for path, text in sorted(home.files.items()))
        return Brief(
            task_description=DESCRIPTION.format(issue=home.issue, path=home.path),
            action_space=ACTIONS,
            initial_state=f"log\n{log}\n{files}",
        )

    def agent(self, task: Task, seed: int) -> ScriptedAgent:
        """Mends, errs or looks around, by the seed."""
        return scripted_agent(_home(task), self.turns, Dice("swe actor", task.id, seed))

    def passes(self, home: Repository, state: ShellState) -> bool:
        """Whether all tests of the broken module pass, whatever was done to the test files.

        Raises:
            ShellLostError: the process that runs commands was lost or altered.
        """
        texts = {path: text for path, text in home.before.items() if path.startswith("tests/")} | home.tests
        # What the agent made of the tests, or of pytest's settings, has no say in the grade.
        kept = [one for one in state.entries if not _among_tests(one.path)]
        made = {one.path: one for one in (*kept, *ShellState.of_files(texts).entries)}
        entries = tuple(sorted(made.values(), key=lambda one: (one.kind == "same", one.path)))
        command = f"pytest --noconftest -c /dev/null --rootdir . -rp {' '.join(home.tests)}"
        ran = self.shell().run(ShellState(entries), command).checked()
        # Every test by its name: a package that ends the process has passed none.
        passed = set(re.findall(r"^PASSED (\S+)", ran.output, re.MULTILINE))
        return ran.status == 0 and set(test_names(home.tests)) <= passed


def open_swe(spec: Spec) -> SweWorld:
    """``swe``: a git repository with a mistake, its tests, a real shell (options turns, chars).

    Raises:
        BadInput: options that it has not. CannotDo: git or pytest is missing.
    """
    if spec.argument:
        raise BadInput(f"swe takes no argument, not {spec.argument!r}", where="swe")
    return SweWorld(**spec.take(OPTIONS), options=spec.query)


@final
class SweEpisode:
    """A repository, and a shell in it. ``known``: hashes that were told so far."""

    def __init__(
        self, world: SweWorld, task: Task, home: Repository, state: ShellState, *, turn: int = 0,
        observation: Observation | None = None, known: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.task, self.state = task, state
        self._world, self._home, self._turn, self._seen, self._known = world, home, turn, observation, known

    @property
    def first(self) -> Observation:
        """The log, before any command."""
        state, log = _begun(json.dumps(self.task.data, sort_keys=True), self._world)
        return Observation(log, _key(self.task, state, False))

    def step(self, action: str) -> Observation:
        """Run a command, edit a line, or submit and be graded.

        Raises:
            ShellLostError: the process that runs commands was lost or altered.
        """
        if self._seen is not None and self._seen.done:
            return self._seen
        self._turn += 1
        command = action_in(action)
        if submitted(command) is not None:
            reward = float(self._world.passes(self._home, self.state))
            info: Json = {"exact": True, "note": "all tests pass" if reward else "a test fails"}
            text = ACCEPTED if reward else REJECTED
            self._seen = Observation(text, _key(self.task, self.state, True), True, reward, info)
            return self._seen
        before = self.state
        ran = (
            self._edited(command)
            if command.startswith("edit ")
            else self._world.shell().run(before, command).checked()
        )
        self.state = ran.state
        text = printed(ran.output, ran.ended, self._world.chars)
        fresh = {one for one in hashes(text) if not any(old.startswith(one) for old in self._known)}
        self._known = tuple(sorted({*self._known, *fresh}))
        exact = knowable(command, ran) and not fresh
        info = {"exact": exact, "note": _note(before, command), "status": ran.status}
        done = self._turn >= self._world.turns
        key = _key(self.task, self.state, done)
        self._seen = Observation(text, key, done, 0.0 if done else None, info)
        return self._seen

    def _edited(self, command: str) -> Ran:
        """One line of a file replaced."""
        place, _, code = command.removeprefix("edit ").partition(":")
        path, _, number = place.strip().rpartition(" ")
        files = self.state.files()
        if path not in files or not _is_line(number):
            told = f"edit: {path}: No such file" if _is_line(number) else "edit: write edit FILE N: CODE"
            return Ran(told, 1, "exit", self.state)
        try:
            text = edited(files, path, f"line {number}: {code.removeprefix(' ')}")[path]
        except EditError as error:
            return Ran(f"edit: {error}", 1, "exit", self.state)
        entries = tuple(replace(one, text=text) if one.path == path else one for one in self.state.entries)
        # A diff is taken as well, whatever line it was said to be for.
        line = "".join(text.splitlines()[int(number) - 1 : int(number)])
        return Ran(f"line {number} : {line.strip()}", 0, "exit", replace(self.state, entries=entries))

    def snapshot(self) -> bytes:
        """The whole folder with git's own files, variables, turn and last answer, as JSON."""
        seen = None if self._seen is None else asdict(self._seen)
        record = {"task": self.task.id, "turn": self._turn, "state": self.state.to_json(), "seen": seen}
        return json.dumps(record | {"known": self._known}, sort_keys=True).encode()

    def reseed(self, seed: int) -> None:
        """There is no chance."""

    def close(self) -> None:
        """The shell is shared by all episodes of the process."""


def _is_line(number: str) -> bool:
    # As many digits as a line of an edit may have.
    return number.isascii() and number.isdecimal() and len(number) <= 6


def _note(state: ShellState, command: str) -> str:
    """What decides the answer: of an edit, the line that it replaces."""
    place = command.removeprefix("edit ").partition(":")[0].strip()
    path, _, number = place.rpartition(" ")
    rows = state.files().get(path, "").splitlines()
    if command.startswith("edit ") and _is_line(number) and 0 < int(number) <= len(rows):
        return f"line {number} of {path} was {rows[int(number) - 1].strip()}"
    return note(state, command)


def _among_tests(path: str) -> bool:
    """What could change how tests run: the tests, and pytest's own settings."""
    name = path.rpartition("/")[2]
    return (
        path == "tests"
        or path.startswith(("tests/", ".git/"))
        or name in ("conftest.py", "pytest.py", "pytest")
    )


def _key(task: Task, state: ShellState, done: bool) -> str:
    return digest("swe", task.id, canonical(state), state.cwd, state.variables, done)


@lru_cache(maxsize=128)
def _begun(data: str, world: SweWorld) -> tuple[ShellState, str]:
    """The repository of a task at its beginning, and its log.

    Raises:
        CannotDo: git or pytest is missing.
    """
    home = Repository.from_json(json.loads(data))
    shell = world.shell()
    if importlib.util.find_spec("pytest") is None or not os.access(
        Path(sys.executable).parent / "pytest", os.X_OK
    ):
        raise CannotDo("the world swe runs pytest, and it is not installed here", hint="pip install pytest")
    module = home.path.rpartition("/")[2]
    package = {path: text for path, text in home.before.items() if not path.startswith("tests/")}
    state = ShellState.of_files(package)
    steps = [
        (
            state,
            f"git init -q --template= . && git add -A && git commit -qm 'begin {home.project}'",
        ),
        (_with(home.before), "git add -A && git commit -qm 'add tests'"),
        (_with(home.files), f"git commit -qam {shlex.quote(f'tidy {module}')}"),
        (None, "git log --oneline"),
    ]
    ran = Ran("", 0, "exit", ShellState())
    for files, command in steps:
        if files is not None:
            git = tuple(one for one in ran.state.entries if one.path.startswith(".git"))
            ran = replace(ran, state=replace(files, entries=(*git, *files.entries)))
        ran = shell.run(ran.state, command)
        if ran.status:
            raise CannotDo(
                f"git could not make the repository: {ran.output.strip()}", hint="install git 2.31 or later"
            )
    # As the commands left it, without what only the last of them would leave.
    return replace(ran.state, variables={}), ran.output.strip()


def _with(files: dict[str, str]) -> ShellState:
    return ShellState.of_files(files)


def _home(task: Task) -> Repository:
    need(task.data, _KEYS, "swe")
    try:
        return Repository.from_json(task.data)
    except (TypeError, ValueError, KeyError) as error:
        raise BadInput(f"not a task of swe: {error!r}", where=f"task {task.id}") from error


def scripted_agent(home: Repository, turns: int, dice: Dice) -> ScriptedAgent:
    """The actor of a task: half of them mend at once, a quarter err first, a quarter explore."""
    role = dice.choice(("mend", "mend", "err", "explore"))
    said = [_look(home, dice) for _ in range(1 + dice.below(3))]
    if role == "explore":
        said += [_any(home, dice) for _ in range(3 + dice.below(max(1, turns - 7)))]
        return Scripted(tuple([*said, "submit"][-turns:]))
    said += ["pytest"] if dice.uniform() < 0.7 else []
    said += [f"grep -n 'def ' {home.path}"] if dice.uniform() < 0.4 else []
    if role == "err":
        said += [_spoilt(home, dice), "pytest"]
    said += home.edits if role == "mend" or dice.uniform() < 0.8 else ()
    said += [] if role == "mend" else [f"git checkout {home.path}", *home.edits]
    said += ["pytest"] if dice.uniform() < 0.8 else []
    said += ["git diff"] if dice.uniform() < 0.5 else []
    said += [f"git commit -qam 'mend {home.function}'", "git status"] if dice.uniform() < 0.5 else []
    return Scripted(tuple([*said, "submit"][-turns:]))


def _number(home: Repository, dice: Dice) -> int:
    return 1 + dice.below(len(lines(home.files[home.path])))


def _look(home: Repository, dice: Dice) -> str:
    path, test = home.path, next(iter(home.tests))
    first = _number(home, dice)
    name = home.function.rpartition(".")[2]
    return dice.choice(
        (
            "git log --oneline", "git status", "ls", "git ls-files", f"cat {path}", f"cat {path}",
            f"cat {test}", f"sed -n {first},{first + 5}p {path}", f"grep -n {name} {path}",
            f"grep -c def {test}",
            f"wc -l {path}", "git show --stat HEAD", "git log --format=%s", f"git log --format=%s -- {path}",
            f"head -n 5 {test}",
        )
    )  # fmt: skip


def _wrong(home: Repository, dice: Dice) -> str:
    miss = dice.choice(MISSING)
    return dice.choice(
        (
            f"cat {miss}.py", f"git show {miss}", f"edit {miss}.py 3: pass", f"edit {home.path} 9999: pass",
            f"pytest tests/{miss}.py", f"git checkout {miss}", "git commit -m nothing",
            f"git {miss}", f"ls {miss}",
        )
    )  # fmt: skip


def _spoilt(home: Repository, dice: Dice) -> str:
    """An edit of the right line, or of another, that mends nothing."""
    number, _, code = home.edits[0].removeprefix(f"edit {home.path} ").partition(": ")
    if dice.uniform() < 0.5:
        changed = re.sub(r"\d+", lambda one: str(int(one[0]) + 1), code, count=1)
        changed = changed if changed != code else code.replace(" + ", " - ") + "  # mended"
        return f"edit {home.path} {number}: {changed}"
    return f"edit {home.path} {_number(home, dice)}: pass"


def _any(home: Repository, dice: Dice) -> str:
    roll = dice.uniform()
    if roll < 0.45:
        return _look(home, dice)
    if roll < 0.7:
        return _wrong(home, dice)
    return dice.choice(
        ("pytest", "git diff", "git diff --stat", _spoilt(home, dice), "git add -A", "git stash -q",
         f"git commit -qam 'change {home.function}'", f"git checkout {home.path}", "git reset -q --hard")
    )  # fmt: skip
