"""Tasks: projects of both origins, mutations that break tests, reports without paths, the renamed control."""

import ast
import re
from collections import Counter

import pytest

from refork.errors import BadInput
from refork_testbed.worlds.repair.edits import edited
from refork_testbed.worlds.repair.generated import blocks, generated
from refork_testbed.worlds.repair.mutation import KINDS
from refork_testbed.worlds.repair.package import SUPPORT_PATH
from refork_testbed.worlds.repair.projects import project, project_names, shared_runner, split_of_project
from refork_testbed.worlds.repair.rename import renamed_project
from refork_testbed.worlds.repair.stdlib import source_of
from refork_testbed.worlds.repair.tasks import LEAST, PUBLIC, repair_tasks, task_from_json

NAMES = ("harbour", "std-textwrap", "clinic", "std-bisect", "museum", "std-getopt")


@pytest.fixture(scope="module")
def tasks():
    return repair_tasks(30, names=NAMES)


def test_there_are_forty_projects_half_of_either_kind_and_split():
    names = project_names()
    assert len(set(names)) == 40
    assert sum(name.startswith("std-") for name in names) == 20
    splits = Counter((split_of_project(name), name.startswith("std-")) for name in names)
    assert set(splits.values()) == {10}
    assert len(splits) == 4


def test_generated_projects_have_8_to_20_modules_that_import_each_other():
    seen = set()
    for number in range(20):
        name, files, checks = generated(number)
        modules = [path for path in files if not path.endswith("__init__.py")]
        assert 8 <= len(modules) <= 20, name
        ways = [
            node.level > 0
            for text in files.values()
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith(name))
        ]
        assert ways, name
        seen |= set(ways)
        assert not re.search(
            r"\bq(item|items|group|amount|place|person)|@\w+ import", "".join(files.values())
        )
        assert {one.module.replace(".", "/") + ".py" for one in checks} <= set(files)
    assert seen == {True, False}
    first, second = ({key for key in blocks() if _used(key, n)} for n in (range(0, 20, 2), range(1, 20, 2)))
    assert not first & second


def _used(key, numbers):
    head = blocks()[key].text.split("def ")[1].split("(")[1][:40]
    return any(f"({head}" in text for n in numbers for text in generated(n)[1].values()) and any(
        re.search(rf"/({'|'.join(blocks()[key].files)})\.py", path)
        for n in numbers
        for path in generated(n)[1]
    )


def test_standard_modules_are_as_installed_without_their_compiled_twins():
    text = source_of("bisect")
    assert "from _bisect" not in text
    assert "def bisect_right" in text
    assert len(text.split("\n")) >= 100
    assert project("std-bisect").targets == (next(p for p in project("std-bisect").files if "bisect" in p),)


def test_tasks_are_seeded_and_take_turns(tasks):
    assert repair_tasks(12, names=NAMES) == tasks[:12]
    assert [one.project.name for one in tasks[:6]] == list(NAMES)
    assert len({one.id for one in tasks}) == 30
    assert {one.mutation.kind for one in tasks} == set(KINDS)
    other = repair_tasks(6, seed=1, names=NAMES)
    assert [one.id for one in other] != [one.id for one in tasks[:6]]
    with pytest.raises(BadInput, match="there are only"):
        repair_tasks(5000, names=["std-bisect"])


def test_each_breaks_a_public_and_a_hidden_test_and_gold_mends_all(tasks):
    for one in tasks:
        assert not set(one.public) & set(one.hidden)
        assert {*one.public, *one.hidden} == set(one.project.names)
        assert len(one.public) == PUBLIC
        assert len(one.failing) >= LEAST
        assert one.public[0] in one.failing
        assert set(one.failing) & set(one.hidden)
        assert one.mutation.kind in KINDS
        mended = edited(one.files, one.path, one.gold)
        assert mended == one.project.files
        assert mended != one.files


def test_alone_a_broken_project_fails_the_same_tests(tasks):
    for one in tasks[::3]:
        report = shared_runner().run(one.files, one.tests)
        assert set(report.failed) == set(one.failing), one.id


def test_a_report_names_no_path_and_shows_the_failure(tasks):
    named = 0
    for one in tasks:
        check = one.project.checks[one.public[0]]
        for path in one.project.files:
            assert path not in one.issue
            if path.count("/") > 1 or "_" in path:
                assert path.removesuffix(".py").replace("/", ".") not in one.issue
        assert ".py" not in one.issue
        assert "Traceback" not in one.issue
        assert check.about in one.issue
        named += f"{check.name}(" in one.issue
    assert 8 <= named <= 27


def test_a_task_is_rebuilt_from_json_and_another_text_is_refused(tasks):
    one = tasks[1]
    assert task_from_json(one.to_json()) == one
    with pytest.raises(BadInput, match="another text"):
        task_from_json(one.to_json() | {"broken": "0"})
    with pytest.raises(BadInput, match="another text"):
        task_from_json(one.to_json() | {"path": "x.py"})
    with pytest.raises(BadInput, match="public tests"):
        task_from_json(
            one.to_json() | {"public": list(one.hidden[:1] if one.hidden[0] not in one.failing else [])}
        )
    with pytest.raises(BadInput, match="no project"):
        task_from_json(one.to_json() | {"project": "nowhere"})


def test_renamed_tasks_keep_lines_words_and_failures(tasks):
    renamed = repair_tasks(30, names=NAMES, renamed=True)
    for one, other in zip(tasks[:12], renamed[:12], strict=True):
        assert other.issue == one.issue
        assert other.renamed
        assert other.path != one.path
        assert len(other.broken.split("\n")) == len(one.broken.split("\n"))
        assert len(other.files) == len(one.files)
        report = shared_runner().run(other.files, other.tests, list(other.failing))
        assert set(report.failed) == set(other.failing), one.id
        assert edited(other.files, other.path, other.gold) == other.project.files


@pytest.mark.parametrize("name", ["clinic", "std-textwrap", "std-bisect", "std-getopt"])
def test_a_renamed_project_passes_its_tests_and_says_no_old_name(name):
    home = project(name)
    other, renaming = renamed_project(home)  # which runs all of its tests
    assert len(other.names) == len(home.names)
    assert len(set(renaming.names.values()) | set(renaming.modules.values())) >= len(renaming.names)
    called = {one.name for one in home.checks.values()}
    assert called <= set(renaming.names)
    for path, text in {**other.files, **other.tests}.items():
        if path == SUPPORT_PATH:
            continue
        names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        assert not names & set(renaming.names)
        assert not set(path.removesuffix(".py").split("/")) & set(renaming.modules)
