"""Repair tasks: a project with a mutation that breaks tests, what a user reports of it, and the gold edit."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from typing import final

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.base import Split
from refork.worlds.dice import Dice, digest
from refork_testbed.worlds.repair.mutation import KINDS, Mutation, mutations, unified_diff
from refork_testbed.worlds.repair.package import Check, Project
from refork_testbed.worlds.repair.projects import project, project_names, shared_runner
from refork_testbed.worlds.repair.rename import renamed_project
from refork_testbed.worlds.repair.runner import Variant
from refork_testbed.worlds.repair.small import mutation_split

#: Public tests of a task: one that fails and others that pass.
PUBLIC = 2
#: How often a report is of a test of another module than the broken one, where such a test fails.
INDIRECT = 0.5
#: Tests that a mutation must break: one is public, the hidden suite must fail as well.
LEAST = 2
#: Mutations that are tried together.
_BATCH = 8


@final
@dataclass(frozen=True, slots=True)
class RepairTask:
    """A broken project: the file at ``path`` has the text ``broken``.

    ``failing``: every test that the mutation breaks, with why. ``public`` and ``hidden`` share no test and
    are all tests together; the first public one fails, and at least one hidden one does.
    """

    id: str
    project: Project
    path: str
    broken: str
    mutation: Mutation
    public: tuple[str, ...]
    hidden: tuple[str, ...]
    failing: dict[str, str]
    issue: str
    renamed: bool = False

    @property
    def files(self) -> dict[str, str]:
        """Path -> source of the broken project, without tests."""
        return {**self.project.files, self.path: self.broken}

    @property
    def tests(self) -> dict[str, str]:
        """Path -> source of all test files, public and hidden."""
        return self.project.tests

    @property
    def gold(self) -> str:
        """The reversed mutation as a unified diff."""
        return unified_diff(self.path, self.broken, self.project.files[self.path])

    def to_json(self) -> Json:
        """What rebuilds it, with a digest of the broken text."""
        return {
            "project": self.project.name,
            "path": self.path,
            "mutation": self.mutation.id,
            "broken": digest(self.broken),
            "public": list(self.public),
            "issue": self.issue,
        }


def repair_tasks(
    count: int = 400,
    seed: int = 0,
    *,
    renamed: bool = False,
    names: Sequence[str] | None = None,
    among: Split | None = None,
) -> list[RepairTask]:
    """Seeded tasks, the projects (all forty, or ``names``) taking turns; a shorter list begins a longer one.

    ``renamed``: the same tasks with every identifier, module and folder of the project renamed, in code and
    tests alike, and the words of the issue kept. ``among``: only mutations of that split, as
    :func:`~refork_testbed.worlds.repair.small.mutation_split` divides them.

    Raises:
        BadInput: there are not so many mutations that break tests.
    """
    chosen = project_names() if names is None else tuple(names)
    whole, rest = divmod(count, len(chosen))
    shares = [(name, whole + (place < rest)) for place, name in enumerate(chosen)]
    rows = [tasks_of(name, share, seed, among) for name, share in shares if share]
    mixed = [task for row in zip_longest(*rows) for task in row if task is not None]
    if len(mixed) < count:
        raise BadInput(f"there are only {len(mixed)} repair tasks, not {count}", hint="ask for fewer tasks")
    return [renamed_task(task) for task in mixed] if renamed else mixed


def tasks_of(name: str, count: int, seed: int = 0, among: Split | None = None) -> list[RepairTask]:
    """The first tasks of one project, of all or of one split's mutations; fewer where it has not so many."""
    known, more = _supply(name, seed, among)
    while len(known) < count and (batch := next(more, None)) is not None:
        known += batch
    return known[:count]


@cache
def _supply(name: str, seed: int, among: Split | None) -> tuple[list[RepairTask], Iterator[list[RepairTask]]]:
    # The cache holds a list that grows and what grows it: asking for more tries no mutation twice.
    return [], _batches(project(name), seed, among)


def task_from_json(data: Json) -> RepairTask:
    """Inverse of :meth:`RepairTask.to_json`; it runs the tests that the mutation touches.

    Raises:
        BadInput: the mutation, its file or its public tests are not those of this project as it is here.
    """
    home = project(str(data["project"]))
    path = str(data["path"])
    found = (
        [one for one in mutations_of(home.name, path) if one.id == data["mutation"]]
        if path in home.targets
        else []
    )
    if not found or digest(found[0].apply(home.files[path])) != data["broken"]:
        raise BadInput(
            f"the task of {home.name} was made from another text of {path}",
            hint="a task of the standard library belongs to the version of Python that made it",
        )
    public = tuple(str(one) for one in data["public"])
    covering = _covering(home).get((path, found[0].line), ())
    variant = Variant({path: found[0].apply(home.files[path])}, covering)
    (report,) = shared_runner().run_variants(home.files, home.tests, [variant])
    if not public or set(public) - set(home.names) or public[0] not in report.failed:
        raise BadInput(f"the public tests of the task of {home.name} are not what it breaks")
    return _known(_made(home, path, found[0], report.failed, public, str(data["issue"])))


_TASKS: dict[str, RepairTask] = {}


def _known(task: RepairTask) -> RepairTask:
    _TASKS[task.id] = task
    return task


def known_task(name: str) -> RepairTask:
    """A task by its id, of those that this process has built.

    Raises:
        BadInput: it has built no such task.
    """
    if name not in _TASKS:
        raise BadInput(
            f"the repair task {name!r} has not been built here", hint="list the world's tasks first"
        )
    return _TASKS[name]


def _batches(home: Project, seed: int, among: Split | None) -> Iterator[list[RepairTask]]:
    """Valid tasks of a project, as many mutations tried at a time."""
    covering = _covering(home)
    candidates = _candidates(home, covering, seed)
    if among is not None:
        candidates = [(at, one) for at, one in candidates if mutation_split(home.files[at], one) == among]
    for start in range(0, len(candidates), _BATCH):
        some = candidates[start : start + _BATCH]
        variants = [
            Variant({path: one.apply(home.files[path])}, covering[path, one.line]) for path, one in some
        ]
        reports = shared_runner().run_variants(home.files, home.tests, variants)
        pairs = zip(some, reports, strict=True)
        yield [
            _task(home, path, one, report.failed, seed)
            for (path, one), report in pairs
            # A mutation that fails every test leaves none that passes to tell where it is not.
            if LEAST <= len(report.failed) < len(home.names)
        ]


def _covering(home: Project) -> dict[tuple[str, int], tuple[str, ...]]:
    """Tests by the (path, line) that they execute."""
    found: dict[tuple[str, int], list[str]] = {}
    for test in home.names:
        for place in home.spectrum[test]:
            found.setdefault(place, []).append(test)
    return {place: tuple(tests) for place, tests in found.items()}


def _candidates(
    home: Project, covering: dict[tuple[str, int], tuple[str, ...]], seed: int
) -> list[tuple[str, Mutation]]:
    """Mutations in lines that enough tests execute, in random order, the kinds taking turns."""
    dice = Dice("repair", "mutations", home.name, seed)
    by_kind: dict[str, list[tuple[str, Mutation]]] = {kind: [] for kind in KINDS}
    for path in home.targets:
        for one in mutations_of(home.name, path):
            if len(covering.get((path, one.line), ())) >= LEAST:
                by_kind[one.kind].append((path, one))
    rows = [dice.sample(row, len(row)) for row in by_kind.values()]
    return [one for turn in zip_longest(*rows) for one in turn if one is not None]


@cache
def mutations_of(name: str, path: str) -> tuple[Mutation, ...]:
    """The mutations of one file of a project."""
    return tuple(mutations(project(name).files[path]))


def _task(home: Project, path: str, one: Mutation, failed: dict[str, str], seed: int) -> RepairTask:
    """The task of a mutation that breaks these tests: what is public, and what is reported."""
    dice = Dice("repair", "task", home.name, path, one.id, seed)
    module = path.removesuffix(".py").replace("/", ".")
    indirect = [test for test in failed if home.checks[test].module != module]
    direct = [test for test in failed if home.checks[test].module == module]
    reported = dice.choice(indirect if indirect and (not direct or dice.uniform() < INDIRECT) else direct)
    near = _near(home, path, one, set(failed))
    public = (reported, *dice.sample(near, min(PUBLIC - 1, len(near))))
    text = issue(home.checks[reported], failed[reported], dice)
    return _known(_made(home, path, one, failed, public, text))


def _made(
    home: Project, path: str, one: Mutation, failed: dict[str, str], public: tuple[str, ...], text: str
) -> RepairTask:
    mark = digest(home.name, path, one.id, public, text)
    return RepairTask(
        id=f"repair/{home.name}/{mark[:12]}",
        project=home,
        path=path,
        broken=one.apply(home.files[path]),
        mutation=one,
        public=public,
        hidden=tuple(test for test in home.names if test not in public),
        failing=failed,
        issue=text,
    )


def _near(home: Project, path: str, one: Mutation, failed: set[str]) -> list[str]:
    """Tests that still pass: of those that execute the mutated line, if there are enough, else of all."""
    passing = [test for test in home.names if test not in failed]
    touching = [test for test in passing if (path, one.line) in home.spectrum[test]]
    return touching if len(touching) >= PUBLIC - 1 else passing


def renamed_task(task: RepairTask) -> RepairTask:
    """The task in its renamed project."""
    home, renaming = renamed_project(task.project)
    tests = {test: renaming.test(test) for test in task.project.names}
    return RepairTask(
        id=f"{task.id}/renamed",
        project=home,
        path=renaming.path(task.path),
        broken=renaming.text(task.broken),
        mutation=task.mutation,
        public=tuple(tests[test] for test in task.public),
        hidden=tuple(tests[test] for test in task.hidden),
        failing={tests[test]: reason for test, reason in task.failing.items()},
        issue=task.issue,
        renamed=True,
    )


#: Characters of a value that a report shows.
VALUE_LIMIT = 160
#: Share of the reports that show the call; the others say it in words.
NAMED = 0.6
_WITH_CALL = (
    "Wrong result for {about}.\n\n`{call}` gives `{got}`, but it should give `{expected}`.",
    "I get a wrong answer for {about}. With `{call}` I see `{got}` where I expected `{expected}`.",
    "Unexpected behaviour: {about}.\n\nSteps: call `{call}`.\nActual: {got}\nExpected: {expected}",
    "`{call}` returned `{got}` today. That can not be right for {about}; I would say `{expected}`.",
)
_IN_WORDS = (
    "Something is off with {about}. For {given} the result is {got}, and it ought to be {expected}.",
    "We noticed a mistake in {about}: given {given}, we were told {got}. By hand we arrive at {expected}.",
    "Not what we expect for {about}. Our figures: {given}. We get: {got}. It should be: {expected}.",
    "Could someone look at {about}? It used to say {expected} for {given} and now says {got}.",
)


def issue(check: Check, reason: str, dice: Dice) -> str:
    """The report of a test that failed for ``reason``; three of five show the call."""
    named = dice.uniform() < NAMED
    text = dice.choice(_WITH_CALL if named else _IN_WORDS)
    return text.format(
        about=check.about,
        call=_short(check.call),
        given=_short(arguments_in_words(check.call)),
        got=_short(_answer(reason)),
        expected=_short(_answer_text(check.expected)),
    )


def arguments_in_words(call: str) -> str:
    """The values that a call is given, without the names of functions and parameters."""
    try:
        tree = ast.parse(call, mode="eval").body
    except SyntaxError:
        return "our data"
    found: list[str] = []
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Call):
            inner = [*node.args, *(keyword.value for keyword in node.keywords)]
            pending = (
                [*inner, *pending]
                if not isinstance(node.func, ast.Attribute)
                else [node.func.value, *inner, *pending]
            )
        elif isinstance(node, ast.expr):
            try:
                found.append(repr(ast.literal_eval(node)))
            except ValueError:
                pending = [*ast.iter_child_nodes(node), *pending]
    return " and ".join(found[:4]) or "nothing in particular"


def _answer(reason: str) -> str:
    """What was seen instead, from a failed test's reason."""
    if reason.startswith("found "):
        return _answer_text(reason.removeprefix("found "))
    if reason.startswith("LoopedError") or "it ended the process" in reason:
        return "no answer at all, it does not come to an end"
    kind, colon, _ = reason.partition(":")
    return f"an error ({kind})" if colon else "an error"


def _answer_text(value: str) -> str:
    """A recorded answer; of an error, its kind."""
    return f"an error ({value[8:-1]})" if value.startswith("'raises ") else value


def _short(text: str) -> str:
    return text if len(text) <= VALUE_LIMIT else f"{text[: VALUE_LIMIT - 3]}..."
