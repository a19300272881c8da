"""The names a user may import from ``ramify`` itself. A change here is a change of the interface."""

import ramify

NAMES = [
    "Ban",
    "Compose",
    "Draft",
    "EditMessage",
    "Effect",
    "Force",
    "Fork",
    "Insert",
    "Judge",
    "LocalPolicy",
    "MatchJudge",
    "Node",
    "Point",
    "Policy",
    "Producer",
    "RamifyError",
    "RemotePolicy",
    "Remove",
    "Replace",
    "Sampling",
    "Score",
    "ScriptedPolicy",
    "Set",
    "SwapPolicy",
    "SwapWorld",
    "Sweep",
    "Task",
    "Trajectory",
    "Tree",
    "UserError",
    "World",
    "compare",
    "compare_until",
    "fork",
    "grow",
    "grow_trees",
    "open_policy",
    "open_world",
    "plant_prompt",
    "sweep",
]


def test_surface_is_this_list_and_sorted():
    names = list(ramify.__all__)
    assert names == sorted(names)
    assert names == NAMES


def test_every_name_is_there_and_says_what_it_is():
    for name in NAMES:
        thing = getattr(ramify, name)
        assert (thing.__doc__ or "").strip()
