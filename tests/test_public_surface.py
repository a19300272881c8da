"""The names a user may import from ``ramify`` itself. A change here is a change of the interface."""

import ramify

NAMES = [
    "AblateDirection",
    "ActivationStore",
    "AddVector",
    "Ban",
    "Capture",
    "Case",
    "ChatModel",
    "ClampDirection",
    "Compose",
    "Constraint",
    "CrossCoder",
    "Draft",
    "Edit",
    "EditMessage",
    "Effect",
    "ExperienceMemory",
    "FirstTokenProbe",
    "Force",
    "Fork",
    "GovernanceProbe",
    "Hypothesis",
    "ImplicitPair",
    "Incident",
    "Insert",
    "Intervention",
    "Judge",
    "LocalPolicy",
    "MatchJudge",
    "Node",
    "PinnedBuffer",
    "PinnedCompactor",
    "Point",
    "Policy",
    "PolicyChat",
    "Producer",
    "RamifyError",
    "RecurrenceGate",
    "RemotePolicy",
    "Remove",
    "Replace",
    "Sampling",
    "Score",
    "ScriptedChat",
    "ScriptedPolicy",
    "Set",
    "StateGraph",
    "SwapPolicy",
    "SwapWorld",
    "Sweep",
    "Task",
    "Trajectory",
    "Tree",
    "TreeTraining",
    "UUCB",
    "UserError",
    "World",
    "causal_cuts",
    "collapse_report",
    "compare",
    "compare_until",
    "continuation_variance",
    "credit_method",
    "fork",
    "grow",
    "grow_trees",
    "improve",
    "leaf_batch",
    "open_policy",
    "open_world",
    "plant_prompt",
    "read_traces",
    "recovery_audit",
    "steering",
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
