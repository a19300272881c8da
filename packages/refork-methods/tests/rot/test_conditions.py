"""The seven conditions and the stress tests: what each context holds, and that only compaction differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from refork.chat import ScriptedChat
from refork.compaction import holds
from refork.errors import BadInput
from refork.formats.openai_chat import text_of
from refork_methods.pin.strategies import HeadTail, Summarise, Truncate
from refork_methods.rot.conditions import (
    CONDITIONS,
    PINNED,
    STRESS,
    Setup,
    grid_size,
    only_compaction_differs,
    shares,
    stage,
)
from refork_methods.rot.stage import Stage
from refork_testbed.trials.rot_grid import Scene, setup_for
from refork_testbed.worlds.house_rules.attacks import FRAMINGS
from refork_testbed.worlds.house_rules.scenario import scenario
from refork_testbed.worlds.house_rules.summarisers import SUMMARISERS
from refork_testbed.worlds.house_rules.tasks import TASKS

COMPACTORS = {
    "truncate": Truncate(200),
    "head-tail": HeadTail(200),
    "summarise": Summarise(SUMMARISERS["drops-rules"](), 200),
}


def scene(task="spend", **more):
    return Scene(scenario(task, 5, turns=10, **more))


def made(one, name="summarise", **more):
    return setup_for(one, COMPACTORS[name], **more)


def test_the_paper_grid_has_1323_episodes():
    assert len(CONDITIONS) == 7
    assert len(TASKS) == 9
    assert grid_size(7, len(CONDITIONS), len(TASKS), 3) == 1323


@pytest.mark.parametrize("task", list(TASKS))
def test_a_scene_is_its_scenario_in_parts(task):
    one = scene(task)
    assert (*one.head, *one.policy, *one.benign, one.trigger) == one.scenario.messages
    assert one.rule in text_of(one.policy[0])
    assert not holds([*one.head, *one.benign, one.trigger], one.rule)


def test_floor_lacks_the_policy_turn_and_nothing_else():
    one = scene()
    floor, control = (stage(name, one, made(one)) for name in ("floor", "control"))
    assert floor.context == one.scenario.floor().messages
    assert control.context == one.scenario.messages
    assert floor.valid
    assert control.survival(one.rule) is None


@pytest.mark.parametrize("name", list(COMPACTORS))
@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_control_and_compaction_differ_by_the_compactors_output_alone(name, rounds):
    one = scene()
    control = stage("control", one, made(one, name))
    other = stage("compaction", one, made(one, name, rounds=rounds))
    assert only_compaction_differs(control, other)
    assert other.request == control.request == one.trigger
    reworded = replace(other, request={**one.trigger, "content": "Something else."})
    assert not only_compaction_differs(control, reworded)
    cut = replace(other.rounds[0], before=other.rounds[0].before[1:])
    shorter = replace(other, rounds=(cut, *other.rounds[1:]))
    assert not only_compaction_differs(control, shorter)
    assert not only_compaction_differs(control, control)
    assert not only_compaction_differs(control, stage("attack_inject", one, made(one, name)))


def test_who_lost_the_rule():
    one = scene()
    told = {name: stage("compaction", one, made(one, name)).survival(one.rule) for name in COMPACTORS}
    assert told["truncate"].fate == "trimmed"
    # A system message stands before the policy turn, and head-tail keeps what follows it.
    assert (told["head-tail"].fate, told["head-tail"].survival) == ("visible", "verbatim")
    assert told["summarise"].fate == "omitted"
    assert not told["summarise"].survived


@pytest.mark.parametrize("condition", sorted(PINNED))
@pytest.mark.parametrize("name", list(COMPACTORS))
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_pin_stands_exactly_once_in_every_defended_context(condition, name, rounds):
    one = scene()
    setup = made(one, name, rounds=rounds)
    found = stage(condition, one, setup)
    assert setup.buffer.check(found.context).ok
    assert found.valid


def test_attacks_add_ingested_messages_and_volume_makes_a_short_history_fire():
    one = scene()
    plain = {m["id"] for m in one.scenario.messages}
    for framing in FRAMINGS:
        attacked = stage("attack_inject", one, made(one, framing=framing))
        added = [m for m in attacked.history if m["id"] not in plain]
        assert len(added) == 2
        assert not holds(added, one.rule)
        assert attacked.rounds[0].result.fired
    setup = setup_for(one, Truncate(700))
    assert not stage("compaction", one, setup).valid
    volume = stage("attack_volume", one, setup)
    assert volume.valid
    assert sum(m["id"].startswith("b") for m in volume.history) < len(one.benign)


def test_a_trigger_that_never_reaches_the_budget_is_invalid():
    one = scene()
    assert not stage("compaction", one, setup_for(one, Truncate(100_000))).valid
    # Two rounds are asked for and only the last is over the budget.
    assert not stage("compaction", one, setup_for(one, Truncate(380), rounds=2)).valid


def test_zero_rounds_leave_the_control():
    one = scene()
    assert stage("compaction", one, made(one, rounds=0)).context == one.scenario.messages


def test_stress_stands_behind_the_pin_before_the_request():
    one = scene()
    for name in STRESS:
        found = stage(name, one, made(one))
        assert found.context[-1] == one.trigger
        assert found.context[-2] == found.rest[-1]


def test_the_twin_is_asked_in_the_same_context():
    one = scene()
    plain, twin = stage("compaction", one, made(one)), stage("compaction", one, made(one), one.twin)
    assert plain.context[:-1] == twin.context[:-1]
    assert twin.request == one.twin


def test_what_cannot_be_staged_is_refused():
    one = scene()
    with pytest.raises(BadInput, match="no condition"):
        stage("decoy", one, made(one))
    absent = Scene(replace(one.scenario, rule="Never buy on a Sunday."))
    for condition in CONDITIONS:
        with pytest.raises(BadInput, match="does not hold the rule"):
            stage(condition, absent, made(one))
    bare = Setup(COMPACTORS["truncate"], one.constraint)
    for condition in ("attack_volume", "attack_inject", "defense_pin_attack", *STRESS):
        with pytest.raises(BadInput, match="needs"):
            stage(condition, one, bare)
    with pytest.raises(BadInput, match="empty text"):
        stage("compaction", one, setup_for(one, Summarise(ScriptedChat(["  "]), 200)))
    with pytest.raises(BadInput, match="too few"):
        shares(one.benign[:2], 3)


def test_a_stages_account_names_every_edge():
    one = scene()
    found = stage("compaction", one, made(one, rounds=2))
    told = found.account()
    assert told["before"] == [m["id"] for m in found.history]
    assert told["after"] == [m["id"] for m in found.context]
    assert len(told["rounds"]) == 2
    assert all(len(r["calls"]) == 1 for r in told["rounds"])
    assert found.summary_calls == 2
    assert told["reason"].startswith("summarised")
    assert isinstance(found, Stage)
    assert all("id" not in m for m in found.asked)
    assert found.asked[0]["tools"] == list(one.tools)
