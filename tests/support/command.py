"""The command line as a function."""

import contextlib
import io
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from refork import cli


def refork(*arguments, cwd=".", status=0, columns=None):
    """What a command prints, in this process: a process of its own costs seconds of imports."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["refork", *map(str, arguments)])
        if columns is not None:
            patch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as stop:
            cli.main()
    done = subprocess.CompletedProcess(arguments, stop.value.code or 0, out.getvalue(), err.getvalue())
    assert done.returncode == status, done.stderr
    return done


def runner(app):
    """A group of commands as a function: what it prints. An error that is meant for the user is raised."""

    def run(*arguments, status=0):
        done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
        assert done.exit_code == status, done.output
        return done.stdout

    return run


def verbs(command, path=()):
    """(words, command) of every verb."""
    for name in command.commands:
        if name != "method":  # its commands are at the top, too
            inner, here = command.commands[name], (*path, name)
            yield from verbs(inner, here) if hasattr(inner, "commands") else [(here, inner)]


def kind(param):
    """The type of a parameter, in words."""
    return str(param.type_descriptor.annotation).lower()
