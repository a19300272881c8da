"""The names a user may import from ``refork`` itself. A change here is a change of the interface."""

import subprocess
import sys

import refork


def test_the_top_has_few_names_each_written_once_and_each_says_what_it_is():
    names = refork.__all__
    assert len(names) == len(set(names)) <= 24
    assert {"Tree", "fork", "sweep", "compare", "grow", "open_policy", "open_world"} <= set(names)
    for name in names:
        assert (getattr(refork, name).__doc__ or "").strip(), name


ALONE = """
import importlib, pkgutil, sys
names = [part.name for part in pkgutil.iter_modules(importlib.import_module("refork").__path__, "refork.")]
for name in names:
    for read in [one for one in sys.modules if one.partition(".")[0] == "refork"]:
        del sys.modules[read]
    importlib.import_module(name)
print(len(names))
"""


def test_each_room_can_be_the_first_that_is_imported():
    """A circle of imports shows only where it is entered at the wrong place."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20
