"""No command lets a text act on the terminal: every one that reads a file is told hostile ones."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

from refork import cli
from refork.cli import screen
from refork.cli.live import LiveProgress
from refork.visible import show_only
from support.command import kind, verbs
from support.hostile_text import (
    EVIL,
    READ,
    SERVING,
    WORD,
    WORDS,
    Terminal,
    columns_without,
    hostile_files,
    hostile_server,
    left,
    told,
    whole,
    words_for,
)
from support.repository import ROOT

#: Nouns of verbs that read a tree and draw from a model or train one, which is not at hand here.
MODELS = {
    "fork", "sweep", "why", "grow", "train sft", "train dpo", "train check", "cliff scan",
    "probe fit", "probe ceiling", "probe variance", "probe cuts", "crosscoder cache", "gate collect",
    "gate live", "localize run", "implicit score",
}  # fmt: skip


@pytest.fixture(scope="module")
def root():
    return whole()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    files, step = hostile_files(folder)
    return folder, files, step


@pytest.fixture
def here(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    return place


def held(value):
    """All texts in JSON data."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from held(one)
    else:
        yield value


def test_every_text_of_the_tree_is_hostile(place):
    assert set(columns_without(place[1]["db"])) <= WORDS


@pytest.mark.parametrize("what", ["db", "spoiled", "json", "jsonl", "csv", "missing"])
def test_no_command_that_is_told_a_hostile_file_lets_it_act(root, here, what):
    _, files, step = here
    wrong, asked = [], 0
    for path, command in verbs(root):
        typed = None if path in SERVING else words_for(path, command, files[what], step)
        if typed is None:
            continue
        asked += 1
        _, out, err = told(root, *typed)
        wrong += [f"{' '.join(path)}: {one}" for one in (*left(out), *left(err))]
    assert wrong == []
    assert asked > 60


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("line", READ)
def test_what_reads_a_hostile_tree_to_its_end_shows_it(root, here, line, terminal):
    _, files, step = here
    given = [part.format(**files, step=step) for part in line.split()]
    status, out, err = told(root, *given, terminal=terminal)
    assert status in (0, 1), err
    assert "Traceback" not in err
    if line.startswith("tree export") and not terminal:
        assert EVIL in [
            value for text in out.strip("\n").split("\n") for value in held(json.loads(text))
        ]  # data stays data
        return
    assert left(out) == []
    assert left(err) == []
    if "--json" in line:
        json.loads(out)


def test_a_verb_that_reads_a_tree_is_read_to_its_end_or_needs_a_model(root):
    known = {" ".join(word for word in line.split() if word.isalpha()) for line in READ} | MODELS
    for path, command in verbs(root):
        if any(param.name == "tree" and "path" in kind(param) for param in command.params):
            assert any(line == " ".join(path) or line.startswith(" ".join(path) + " ") for line in known), (
                path
            )


def test_what_a_server_answers_is_shown(root, here):
    with hostile_server() as address:
        for spec in (f"openai:{address}/v1#{WORD}", f"openai:{address}/raw#m"):
            for verb in ("probe", "show"):
                _, out, err = told(root, "policy", verb, spec)
                assert left(out) + left(err) == []
        typed = ["fork", "--tree", here[1]["db"], "--node", here[2][:8], "--policy", spec, "--world", "none"]
        _, out, err = told(root, *typed, "--success-regex", "x", "--draws", "2")
        assert left(out) + left(err) == []
    assert "owned" in out + err


def test_a_traceback_of_ours_shows_what_it_quotes(root, here, monkeypatch):
    def broken(*given, **named):
        raise ZeroDivisionError(EVIL)

    monkeypatch.setattr("refork.tree.Tree.open", broken)
    _, out, err = told(root, "tree", "stats", here[1]["db"])
    assert "Traceback" in err
    assert "owned" in err
    assert left(out) + left(err) == []


def test_a_word_that_is_no_option_is_shown(root, here):
    _, out, err = told(root, "tree", "list", f"--{WORD}")
    assert "owned" in err
    assert left(out) + left(err) == []


@pytest.mark.parametrize("terminal", [True, False])
def test_the_live_line_shows_its_words_and_lines_printed_meanwhile(monkeypatch, terminal):
    out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    show_only()
    with LiveProgress(every=0) as live:
        live(EVIL, 1, 3, tokens=5, waiting=EVIL)
        print(f"beside {EVIL}")
        screen.secho(f"coloured {EVIL}", fg="red", err=True)
        live(EVIL, 2, 3, tokens=9, waiting=EVIL)
    print(f"after {EVIL}")
    assert "after ␛]0;owned" in out.getvalue()
    written = out.getvalue() + err.getvalue()
    assert "beside ␛]0;owned" in (err if terminal else out).getvalue()  # above the bars, where there are any
    assert "coloured ␛]0;owned" in written
    assert "waiting: ␛]0;owned" in written
    assert left(out.getvalue()) + left(err.getvalue()) == []
    assert sys.stdout.beside is None


def test_brackets_in_texts_are_no_markup(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    table = Table("[bold]head[/bold]", box=None)
    table.add_row("[red]cell[/nothing] :boom:")
    screen.open_console(width=60).print("[link=http://x]line", table)
    for word in ("[link=http://x]line", "[bold]head[/bold]", "[red]cell[/nothing] :boom:"):
        assert word in out.getvalue()


def test_ours_is_in_colour_on_a_terminal_and_the_help_too(root, here):
    _, out, _ = told(root, "tree", "show", here[1]["db"])
    assert "\x1b[" in out
    _, out, _ = told(root, "tree", "--help")
    assert "\x1b[" in out
    _, out, _ = told(root, "tree", "show", "--help", terminal=False)
    assert "\x1b" not in out
    _, _, err = told(root, "tree", "list", here[1]["missing"])
    assert err.startswith("\x1b[31m\x1b[1merror: \x1b[0m")


def test_binary_data_does_not_go_to_a_terminal(monkeypatch):
    from refork.errors import BadInput

    monkeypatch.setattr(sys, "stdout", Terminal())
    with pytest.raises(BadInput, match="binary"):
        screen.data_stream(binary=True)
    under = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", under)
    show_only()
    assert screen.data_stream(binary=True) is under.buffer
    assert screen.data_stream(binary=False) is under


def test_the_installed_command_shows_too(here):
    script = str(Path(sys.executable).with_name("python"))
    call = "from refork.cli import main; main()"
    done = subprocess.run(
        [script, "-c", call, "tree", "path", here[1]["db"], here[2]],
        capture_output=True, check=True, timeout=900, env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert left(done.stdout.decode()) == []
    assert b"owned" in done.stdout


def test_no_command_writes_to_the_terminal_another_way():
    wrong = []
    for file in sorted(Path(cli.__file__).parent.glob("*.py")):
        if file.name.startswith("screen"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name in ("typer.secho", "Console", "print") or name.endswith(
                    (".buffer.write", "__stdout__.write")
                ):
                    wrong.append(f"{file.name}:{node.lineno}: {name}")
                if name.split(".")[-1] in (
                    "Live",
                    "Progress",
                    "Status",
                ) and "redirect_stdout=False" not in ast.unparse(node):
                    wrong.append(f"{file.name}:{node.lineno}: {name} takes standard output for itself")
    assert wrong == []


@pytest.mark.parametrize(
    "program",
    [
        "import refork.forking.backend.worker as w\nw.serve = lambda *a: say()\nw.main(1)",
        "import refork_methods.compare.run as c\nc._begin()\nsay()",
    ],
    ids=["fork", "learn"],
)
def test_a_worker_shows_what_it_says(program):
    head = "import sys\nsaid = sys.argv[1]\ndef say():\n    print(said)\n    print(said, file=sys.stderr)\n"
    done = subprocess.run(
        [sys.executable, "-c", head + program, WORD], capture_output=True, check=True, timeout=900,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    written = (done.stdout + done.stderr).decode()
    assert "owned" in written
    assert left(written) == []


#: Processes whose errors are ours or go elsewhere: a worker shows what it says, victims of attacks print
#: nothing, and what starts a server anew is itself started with a file for what that says.
OURS_TOO = {"processes.py", "arena.py", "disguised.py", "mcp_fresh.py"}
#: A word of every name by which a process is begun.
BEGINNERS = ("Popen", "check_output", "check_call", "subprocess", "system")


def test_no_other_process_has_the_terminal_for_its_errors():
    wrong = []
    for file in sorted(ROOT.glob("packages/*/src/**/*.py")):
        text = file.read_text()
        # A call has its name in the text: what holds no such word need not be parsed.
        if file.name in OURS_TOO or not any(word in text for word in BEGINNERS):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).split(".")[-1]
                started = name in {"Popen", "check_output", "check_call"} or (  # anyio's own makes a pipe
                    ast.unparse(node.func) in {"subprocess.run", "subprocess.call", "os.system"}
                )
                given = {one.arg for one in node.keywords}
                if started and not given & {"stderr", "capture_output", None}:
                    wrong.append(f"{file.name}:{node.lineno}")
    assert wrong == []
