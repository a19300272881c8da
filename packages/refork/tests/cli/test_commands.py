"""Commands by name: which stand where, what is read for them, and plug-ins that are broken."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import subprocess
import sys
from functools import partial

import pytest
import typer

from refork import cli, registry
from refork.cli.commands import GROUPS, MOVED, PRODUCT
from refork.registry import own, register, registered, unregister
from support import command

#: What stood at the top before there was ``refork method``.
BEFORE = [
    "tree", "organism", "policy", "world", "implicit", "credit", "maze", "recovery", "train", "learn",
    "cliff", "collapse", "probe", "forensics", "crosscoder", "memory", "rot", "pin", "gate", "route",
    "localize", "kernel", "evolve", "judge", "speculate", "simulate", "theory", "run", "fork", "compare",
    "sweep", "grow", "demo", "serve", "view",
]  # fmt: skip
METHODS = [name for name in BEFORE if name not in PRODUCT and name not in MOVED]


refork = partial(command.refork, columns=200)


def listed(text):
    """The rows of a help's tables of commands: name and description."""
    tables = text[text.index("╭─ Options") :].split("╭─ ")[2:]
    rows = [line.strip("│ ").split(None, 1) for table in tables for line in table.splitlines()[1:]]
    return {row[0]: row[1].strip() for row in rows if len(row) == 2}


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Installs commands of another package beside those of Refork: names and texts of modules."""
    monkeypatch.syspath_prepend(str(tmp_path))
    points = list(importlib.metadata.entry_points(group="refork.commands"))

    def put(**texts):
        for name, text in texts.items():
            (tmp_path / f"module_of_{name}.py").write_text(text)
            sys.modules.pop(f"module_of_{name}", None)
            points.append(importlib.metadata.EntryPoint(name, f"module_of_{name}:command", "refork.commands"))
        monkeypatch.setattr(registry, "entry_points", lambda group: points if "commands" in group else [])
        registered.cache_clear()

    yield put
    monkeypatch.undo()
    registered.cache_clear()


def test_the_product_stands_at_the_top_and_methods_under_method():
    told = refork("--help").stdout
    assert list(listed(told)) == [*PRODUCT, "method"]
    assert [told.index(f"╭─ {group} ") for group in GROUPS] == sorted(told.index(f"╭─ {g} ") for g in GROUPS)
    assert len(PRODUCT) + 1 <= 14
    rows = listed(refork("method", "--help").stdout)
    assert set(METHODS) <= set(rows)
    assert not set(PRODUCT) & set(rows)
    assert not set(MOVED) & (set(rows) | set(listed(told)))
    for old, new in MOVED.items():
        helps = [refork(*name.split(), "--help").stdout for name in (old, new)]
        assert listed(helps[0].split("Usage", 1)[1]) == listed(helps[1].split("Usage", 1)[1]), (old, new)
    assert rows["pin"] == "Pin rules so that compaction cannot lose them."
    assert sorted(own("commands")) == sorted([*BEFORE, "agent", "why"])


@pytest.mark.parametrize("name", BEFORE)
def test_an_old_name_does_what_the_new_one_does(name):
    group = typer.main.get_command(cli.app)
    methods = group.commands["method"]
    old, new = group.commands[name], methods.commands[name]
    assert old.help == new.help
    assert not old.help.startswith("Cannot be used")
    verbs = {"": (old, new)}
    if hasattr(old, "commands"):
        assert [*old.commands] == [*new.commands]
        verbs = {verb: (one, new.commands[verb]) for verb, one in old.commands.items()}
    for one, other in verbs.values():
        assert inspect.unwrap(one.callback) is inspect.unwrap(other.callback)
        assert [param.name for param in one.params] == [param.name for param in other.params]


def test_an_old_name_prints_the_same(tmp_path):
    rewards = tmp_path / "rewards.jsonl"
    rewards.write_text("".join(json.dumps({"group": g, "reward": r}) + "\n" for g in "ab" for r in (0, 1)))
    old = refork("collapse", "report", rewards, "--json").stdout
    assert json.loads(old)
    assert refork("method", "collapse", "report", rewards, "--json").stdout == old


def test_only_the_module_of_the_command_is_read():
    code = (
        "import sys, refork.cli as cli; sys.argv = ['refork', 'pin', '--help']\n"
        "try: cli.main()\n"
        "except SystemExit: "
        "print(*[n for n in sys.modules if 'commands' in n], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = {name for name in done.stdout.splitlines()[-1].split()[:-1] if name.startswith("refork_")}
    assert modules == {"refork_methods.pin.commands"}
    assert done.stdout.split()[-1] == "False"


def test_a_typo_has_neighbours():
    assert "Did you mean 'credit'?" in refork("credti", status=2).stderr
    assert "Did you mean 'sweep'?" in refork("swep", status=2).stderr


def test_a_function_and_a_typer_of_another_package(installed):
    installed(
        hello="def command(name: str, often: int = 1) -> None:\n"
        "    'Greet.'\n    print(f'hello {name} ' * often)\n",
        talk="import typer\ncommand = typer.Typer(help='Talk.')\n"
        "@command.command()\ndef once() -> None:\n    'Say it.'\n    print('said')\n",
    )
    rows = listed(refork("method", "--help").stdout)
    assert (rows["hello"], rows["talk"]) == ("Greet.", "Talk.")
    assert refork("method", "hello", "you", "--often", "2").stdout == "hello you hello you \n"
    assert refork("method", "talk", "once").stdout == "said\n"
    assert "No such command 'hello'" in refork("hello", "you", status=2).stderr
    assert "hello" not in refork("--help").stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import no_such_library\n", "No module named 'no_such_library'"),
        ("command = 3\n", "is a int, not a typer.Typer or a function"),
        ("def command(what: 'NoSuchType') -> None: ...\n", "is no command line"),
        (
            "from refork.errors import MissingExtra\nraise MissingExtra('chess', 'worlds')\n",
            "next: pip install",
        ),
    ],
)
def test_a_broken_command_breaks_nothing_else(installed, text, says):
    installed(broken=text)
    assert "broken" not in refork("--help").stdout
    told = refork("method", "--help").stdout
    assert says in " ".join(told.replace("│", " ").split())
    assert set(METHODS) < set(listed(told))
    for more in ([], ["verb", "--option"], ["--help"]):
        refused = refork("method", "broken", *more, status=2)
        assert says in refused.stderr
        assert "Traceback" not in refused.stderr
    assert refork("credit", "--help").stdout


@pytest.mark.parametrize(("name", "owner"), [("tree", "refork"), ("credit", "refork-methods")])
def test_a_name_of_reforks_cannot_be_taken(installed, name, owner):
    installed(**{name: "def command() -> None:\n    print('taken')\n"})
    assert f"refork {name} [OPTIONS] COMMAND" in refork(name, "--help").stdout
    assert f"registered by {owner} and by" in refork("method", name, status=2).stderr
    assert f"registered by {owner} and by" in " ".join(
        listed(refork("method", "--help").stdout)[name].split()
    )


def test_a_command_of_this_process():
    def mine() -> None:
        """Mine."""
        print("mine")

    register("commands", "mine", mine)
    try:
        assert refork("method", "mine").stdout == "mine\n"
    finally:
        unregister("commands", "mine")
    assert "No such command" in refork("method", "mine", status=2).stderr


def test_a_command_in_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def greet(name: str) -> None:\n    print(f'hello {name}')\n")
    assert refork("method", f"{file}:greet", "you").stdout == "hello you\n"
    assert "has no 'great'" in refork("method", f"{file}:great", status=2).stderr


def test_options_of_a_function_are_typers(installed):
    installed(
        often="from typing import Annotated\nimport typer\n"
        "def command(n: Annotated[int, typer.Option('--number', min=1)] = 1) -> None:\n    print(n)\n"
    )
    assert refork("method", "often", "--number", "3").stdout == "3\n"
    assert "Invalid value for '--number'" in refork("method", "often", "--number", "0", status=2).stderr
