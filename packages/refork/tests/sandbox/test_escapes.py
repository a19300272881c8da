"""Every attempt to get out is contained, told by its effect; and again where the kernel alone holds it."""

import sys

import pytest

from refork.sandbox import Limits, Sandbox, UnconfinedWarning, refusal
from refork_testbed.sandbox.arena import Arena
from refork_testbed.sandbox.escapes import ESCAPES, attempt, try_all
from refork_testbed.worlds.repair.runner import STANDARD

LIMITS = Limits(seconds=0.5)
#: What seccomp alone contains, it contains with more layers over it: these three bound all ways between.
WAYS = {
    "all layers": (),
    "no screen": ("screen",),
    "seccomp alone": ("screen", "builtins", "landlock"),
}
#: As the tests of whole packages are run: the kernel's layers, and more of the standard library at hand.
KERNEL = ("screen", "builtins")


@pytest.fixture(scope="module")
def arena():
    with Arena() as made:
        yield made


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: way.replace(" ", "-"))
def sandbox(request, arena):
    with Sandbox(LIMITS, off=WAYS[request.param]) as made:
        on = {layer.name: layer for layer in made.layers}
        if WAYS[request.param] and not on["seccomp"].on:
            pytest.skip(f"seccomp does not hold here: {on['seccomp'].note}")
        yield made


@pytest.mark.parametrize("escape", ESCAPES, ids=lambda one: f"{one.group}-{one.name}".replace(" ", "-"))
def test_contained(escape, sandbox, arena):
    if escape.name.startswith("memory") and "RLIMIT_AS" in sandbox.layers[2].note:
        pytest.skip("this system does not bound memory")
    outcome = attempt(escape, sandbox, arena)
    assert outcome.contained, (outcome.effects, outcome.kind, outcome.error)


@pytest.fixture(scope="module")
def with_library(arena):
    with Sandbox(LIMITS, off=KERNEL, preload=STANDARD) as made:
        if not made.layers[4].on:
            pytest.skip(f"seccomp does not hold here: {made.layers[4].note}")
        yield made


@pytest.mark.parametrize("escape", ESCAPES, ids=lambda one: f"{one.group}-{one.name}".replace(" ", "-"))
def test_contained_with_more_modules_loaded(escape, with_library, arena):
    outcome = attempt(escape, with_library, arena)
    assert outcome.contained, (outcome.effects, outcome.kind, outcome.error)


def test_there_are_enough_and_no_two_are_the_same():
    assert len(ESCAPES) >= 40
    assert (
        len({one.source for one in ESCAPES})
        == len({(one.group, one.name) for one in ESCAPES})
        == len(ESCAPES)
    )
    assert {one.group for one in ESCAPES} >= {
        "files",
        "network",
        "processes",
        "signals",
        "environment",
        "resources",
    }


def test_the_screen_alone_names_a_reason_for_all_but_those_that_only_use_too_much():
    passed = [one for one in ESCAPES if refusal(one.source) is None]
    assert {one.group for one in passed} == {"descriptors", "resources"}
    assert all(one.fails for one in passed)


@pytest.mark.skipif(
    sys.platform != "linux", reason="without layers, only Linux cleans up what is left behind"
)
def test_without_layers_most_of_them_succeed():
    """The control: an attempt that cannot succeed anywhere proves nothing when it fails."""
    wanted = [one for one in ESCAPES if one.group in ("files", "network", "signals")]
    off = (*WAYS["seccomp alone"], "seccomp", "rlimits")
    with pytest.warns(UnconfinedWarning), Sandbox(LIMITS, off=off, unconfined=True) as bare:
        outcomes = try_all(bare, wanted)
    assert sum(not outcome.contained for outcome in outcomes) > 0.8 * len(outcomes)
