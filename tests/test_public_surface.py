"""The names a user may import from ``refork`` itself. A change here is a change of the interface."""

import subprocess
import sys

import refork

NAMES = [
    "ActivationStore",
    "Ban",
    "Brief",
    "Capture",
    "ChatModel",
    "Compose",
    "Draft",
    "Edit",
    "EditMessage",
    "Effect",
    "EnvTrajectory",
    "Force",
    "Fork",
    "Grammar",
    "Insert",
    "Judge",
    "LiveDecoder",
    "LocalPolicy",
    "MatchJudge",
    "Node",
    "Point",
    "Policy",
    "PolicyChat",
    "Producer",
    "ReforkError",
    "RemotePolicy",
    "Remove",
    "Replace",
    "Sampling",
    "Score",
    "ScriptedChat",
    "ScriptedPolicy",
    "Set",
    "Simulator",
    "SwapPolicy",
    "SwapWorld",
    "Sweep",
    "Task",
    "Trajectory",
    "Tree",
    "UUCB",
    "UserError",
    "World",
    "break_even",
    "collapse_report",
    "compare",
    "compare_until",
    "fit_calibration",
    "fork",
    "grow",
    "grow_trees",
    "leaf_batch",
    "open_policy",
    "open_world",
    "plant_prompt",
    "sweep",
]


def test_surface_is_this_list_and_sorted():
    names = list(refork.__all__)
    assert names == sorted(names)
    assert names == NAMES


def test_every_name_is_there_and_says_what_it_is():
    for name in NAMES:
        thing = getattr(refork, name)
        assert (thing.__doc__ or "").strip()


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
