"""The whole command line: exit statuses, messages, and the verbs that grow, fork and sweep."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from refork import __version__, cli
from refork.errors import CannotDo, UserError
from refork.tree.tree import Tree
from support.command import refork

REFORK = [str(Path(sys.executable).with_name("refork"))]

WALK = ("grow", "--world", "maze:2,2,2", "--policy", "scripted:walker")
GROW = (*WALK, "--draws", "4", "--set", "tasks.count=2")


def started(*arguments, status=0):
    """The same by the installed script, in a process of its own."""
    done = subprocess.run(
        [*REFORK, *map(str, arguments)], check=False, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    started(*GROW, "--out", folder)
    return folder


def first_task(run):
    return json.loads(refork("tree", "list", run / "tree.db", "--json").stdout)["lines"][0]["id"]


def test_version_and_help():
    assert started("--version").stdout == f"refork {__version__}\n"
    shown = refork("--help").stdout
    for noun in ("tree", "fork", "sweep", "grow", "demo", "policy", "world"):
        assert noun in shown


def test_growing_again_resumes(run):
    again = json.loads(refork(*GROW, "--out", run, "--json").stdout)
    assert again["resumed"]
    assert again["tokens"] == 0


def test_another_recipe_in_the_same_folder_names_the_keys(run):
    failed = started(*WALK, "--draws", "5", "--out", run, status=2)
    assert "draws (was 4, now 5)" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_a_dry_run_writes_nothing(tmp_path):
    lock = ("--world", "lock", "--policy", "scripted:lock")
    grow = ("grow", *lock, "--out", tmp_path / "x", "--dry-run", "--json")
    assert json.loads(refork(*grow).stdout)["rollouts"] == 16 * 8
    assert not (tmp_path / "x").exists()


def test_fork_prints_an_effect(run):
    fork = ("fork", "--tree", run / "tree.db", "--node", first_task(run), "--policy", "scripted:walker")
    effect = json.loads(refork(*fork, "--change", "force:go branch 1", "--draws", "8", "--json").stdout)
    assert effect["draws"] == 8
    assert effect["low"] <= effect["difference"] <= effect["high"]
    card = refork(*fork, "--change", "force:go branch 1", "--draws", "8").stdout
    assert "success" in card


def test_fork_without_a_change_shows_the_control(run):
    fork = ("fork", "--tree", run / "tree.db", "--node", first_task(run), "--policy", "scripted:walker")
    arm = json.loads(refork(*fork, "--draws", "8", "--json").stdout)
    assert arm["graded"] == 8


def test_until_clear_says_whether_it_was(run):
    fork = ("fork", "--tree", run / "tree.db", "--node", first_task(run), "--policy", "scripted:walker")
    effect = json.loads(
        refork(*fork, "--change", "set:temperature=0.9", "--draws", "16", "--until-clear", "--json").stdout
    )
    assert effect["decided"] in (True, False)


def test_sweep_values_every_token(run):
    with_leaf = json.loads(refork("tree", "show", run / "tree.db", "--json").stdout)
    leaf = next(line["id"] for line in with_leaf["lines"] if line.get("kind") == "verdict")
    sweep = ("sweep", "--tree", run / "tree.db", "--node", leaf, "--policy", "scripted:walker")
    report = json.loads(refork(*sweep, "--draws", "8", "--every", "turn", "--json").stdout)
    assert report["served"] >= 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fork", "--tree", "none.db", "--node", "a", "--policy", "scripted:coin"), "no such file"),
        (("grow", "--world", "nowhere", "--policy", "scripted:coin", "--out", "x"), "nowhere"),
        (("grow", "--world", "lock", "--policy", "nonsense", "--out", "x"), "names no policy"),
        (
            ("grow", "--world", "lock", "--policy", "scripted:lock", "--out", "x", "--set", "tasks.count=0"),
            "tasks.count",
        ),
    ],
)
def test_what_the_user_can_mend_is_a_message_and_status_2(tmp_path, arguments, message):
    failed = refork(*arguments, cwd=tmp_path, status=2)
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr


def test_an_unknown_node_is_named(run):
    fork = ("fork", "--tree", run / "tree.db", "--node", "ffffffff", "--policy", "scripted:walker")
    assert "ffffffff" in refork(*fork, status=2).stderr


def begun(tree):
    """Whether rollouts are being recorded, so that Ctrl-C is heeded and there is something to keep."""
    try:
        with Tree.open(tree, "r") as opened:
            return len(opened) > 20
    except UserError:
        return False


def test_ctrl_c_stops_with_130_and_the_same_command_goes_on(tmp_path):
    grow = [
        *REFORK, "grow", "--world", "maze:3,3,3", "--policy", "scripted:walker", "--draws", "40",
        "--set", "tasks.count=8", "--set", "max_turns=400", "--out", str(tmp_path / "run"),
    ]  # fmt: skip
    # A shell that runs the tests in the background makes its children ignore the signal; undo that.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    running = subprocess.Popen(grow, stderr=subprocess.PIPE, text=True, preexec_fn=heed)  # noqa: PLW1509
    tree = tmp_path / "run" / "tree.db"
    deadline = time.monotonic() + 900
    while not begun(tree) and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=900)
    assert running.returncode == 130, said
    assert "goes on from there" in said
    assert refork("tree", "verify", tree).returncode == 0


def failing_with(error, monkeypatch, *, answered=False):
    """What a command with --json prints that fails with an error, having answered or not."""
    from refork.cli.common import print_json

    app = typer.Typer()

    @app.command()
    def verb():
        if answered:
            print_json({"rows": 3})
        raise error

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(sys, "argv", ["refork"])
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "argv", ["refork", "--json"])
    app.info.context_settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises((SystemExit, ArithmeticError)) as stop,
    ):
        cli.main()
    return out.getvalue(), err.getvalue(), stop.value


def test_a_command_that_gives_up_says_why_in_its_json(tmp_path, monkeypatch):
    refused = refork("tree", "list", tmp_path / "no.db", "--json", status=2)
    assert json.loads(refused.stdout)["error"] == {
        "kind": "NotATree", "what": "this is not a tree file: no such file", "where": str(tmp_path / "no.db"),
        "hint": "check the path",
    }  # fmt: skip
    assert "no such file" in refused.stderr
    assert refork("tree", "list", tmp_path / "no.db", status=2).stdout == ""


def test_a_stop_and_a_bug_are_in_the_json_too(monkeypatch):
    stopped, _, status = failing_with(KeyboardInterrupt(), monkeypatch)
    assert json.loads(stopped)["error"]["kind"] == "Interrupted"
    assert status.code == 130
    broke, _, raised = failing_with(ZeroDivisionError("nothing to divide by"), monkeypatch)
    assert json.loads(broke)["error"] | {"hint": ""} == {
        "kind": "ZeroDivisionError", "what": "nothing to divide by", "where": None, "hint": "",
    }  # fmt: skip
    assert isinstance(raised, ZeroDivisionError)


def test_an_answer_that_was_printed_stays_one_document(monkeypatch):
    out, err, _ = failing_with(CannotDo("the disk is gone"), monkeypatch, answered=True)
    assert json.loads(out) == {"rows": 3}
    assert "the disk is gone" in err
