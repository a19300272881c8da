"""A fork's identity: whatever can change a draw is in it, whatever is not in it changes no draw.

Every parameter of the public calls is classified here, and the classification is tried: the same call with
another value, on a tree that holds the first call's draws, must give what it gives on an empty tree.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from refork.forking import Ban, Insert, Remove, Replace, SwapPolicy, fork, fork_both, sweep
from refork.forking.arm import IDENTITY, _Limits, _Start, fork_id, prepare, recorded_settings, run_jobs
from refork.growing import UUCB, Independent, RandomNode, Speculation, grow, grow_trees
from refork.growing.allocator import AdaptiveBudgetAllocator
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.types import Json, token_array
from refork.worlds.open import open_world
from refork_methods.simulate.world import LearnedSimulator
from support.shelf import Shelf, model

SAYS = ["ls", "rm b", "touch z", "submit 2", "submit 1"]
AGENT = ScriptedPolicy.from_replies(SAYS)
OTHER = ScriptedPolicy.from_replies(
    {"ls": 0.6, "rm b": 0.1, "touch z": 0.1, "submit 2": 0.1, "submit 1": 0.1}
)
LAW = Sampling(max_tokens=12)
WORLD = Shelf()
SIMULATOR = LearnedSimulator(model(settings=Sampling(max_tokens=40)))

#: A draw may only be found again where nothing that changes it differs (another identity), or where what
#: differs cannot change it (the same draws).
OTHER_ID, SAME = "another identity", "the same draws"


def texts(arms):
    """What every draw of some arms is: kinds, texts and token ids of its whole trajectory."""
    return [
        [(s.node.kind, s.text, None if s.tokens is None else s.tokens.tolist()) for s in trajectory]
        for arm in arms
        for trajectory in arm.leaves()
    ]


@dataclass(frozen=True)
class Given:
    """A tree with one recorded run, and places in it."""

    tree: Tree

    def walk(self):
        start = grow(self.tree, AGENT, WORLD, WORLD.tasks("train", 1), draws=6, settings=LAW)[0]
        return max(start.forks[0].leaves(), key=len)

    @property
    def turn(self):
        """In the middle of the second turn."""
        node = [s.node for s in self.walk() if s.node.kind == "action"][1]
        return self.tree.at(node, 1)

    @property
    def answer(self):
        """Behind the first answer."""
        return next(self.tree.at(s.node) for s in self.walk() if s.node.kind == "observation")

    @property
    def end(self):
        return self.tree.at(self.walk().leaf)


def _fork(given: Given, **values: Any) -> Any:
    base: dict[str, Any] = {
        "point": given.answer, "policy": AGENT, "draws": 6, "world": WORLD, "seed": 3, "max_turns": None,
    }  # fmt: skip
    asked = base | {k: v(given) if callable(v) and k == "point" else v for k, v in values.items()}
    if "policy" in values:
        asked["any_weights"] = True
    arm = fork(**asked)
    return [arm], [arm.record.id]


def _both(given: Given, **values: Any) -> Any:
    base: dict[str, Any] = {
        "point": given.answer, "policy": AGENT, "draws": 6, "change": Ban(text="ls"), "world": WORLD,
    }  # fmt: skip
    asked = base | {k: v(given) if callable(v) and k == "point" else v for k, v in values.items()}
    if "policy" in values:
        asked["any_weights"] = True
    arms = fork_both(**asked)
    return list(arms), [arm.record.id for arm in arms]


def _prepare(given: Given, **values: Any) -> Any:
    base: dict[str, Any] = {"point": given.turn, "policy": AGENT, "draws": 6, "world": WORLD}
    asked = base | {k: v(given) if callable(v) and k == "point" else v for k, v in values.items()}
    job = prepare(**asked)
    wanted = range(asked["draws"]) if isinstance(asked["draws"], int) else asked["draws"]
    (arm,) = run_jobs([job])
    return [replace(arm, draws=tuple(d for d in arm.draws if d.draw in wanted))], [job.record.id]


def _sweep(given: Given, **values: Any) -> Any:
    base: dict[str, Any] = {"end": given.end, "policy": AGENT, "draws": 6, "world": WORLD, "seed": 3}
    before = {f.id for f in given.tree.forks()}
    asked = base | {k: v(given) if callable(v) and k == "end" else v for k, v in values.items()}
    found = sweep(**asked)
    rows = [found.total.tolist(), found.count.tolist(), found.follow.tolist(), found.sampled, found.served]
    return rows, [f.id for f in given.tree.forks() if f.id not in before]


def _groups(groups):
    arms = [arm for group in groups for arm in group.forks]
    return arms, [arm.record.id for arm in arms]


def _grow(given: Given, **values: Any) -> Any:
    base: dict[str, Any] = {
        "tree": given.tree, "policy": AGENT, "world": WORLD, "tasks": WORLD.tasks("train", 2), "draws": 6,
        "settings": LAW, "seed": 3,
    }  # fmt: skip
    return _groups(grow(**(base | values)))


def _trees(given: Given, **values: Any) -> Any:
    base: dict[str, Any] = {
        "tree": given.tree, "policy": AGENT, "world": WORLD, "tasks": WORLD.tasks("train", 2), "leaves": 6,
        "settings": LAW, "seed": 3, "selector": RandomNode(1),
    }  # fmt: skip
    if "tokens" in values:
        base["leaves"] = None
    return _groups(grow_trees(**(base | values))[0])


#: For every call, every parameter: other values than the base's, each with what must follow of it.
CASES: dict[Callable[..., Any], tuple[Callable[..., Any], dict[str, list[tuple[Any, str]]]]] = {
    fork: (
        _fork,
        {
            "point": [(lambda given: given.turn, OTHER_ID)],
            "policy": [(OTHER, OTHER_ID)],
            "draws": [(3, SAME), (9, SAME)],
            "change": [(Ban(text="ls"), OTHER_ID), (SwapPolicy(OTHER), OTHER_ID)],
            "settings": [
                (LAW, SAME), (LAW.but(temperature=0.7), OTHER_ID), (LAW.but(max_tokens=1), OTHER_ID),
                (LAW.but(stop=("s",)), OTHER_ID), (LAW.but(coupling="gumbel"), OTHER_ID),
            ],
            "world": [(None, OTHER_ID), (Shelf(saves=False), SAME)],
            "judge": [(MatchJudge("2"), SAME)],
            "seed": [(4, OTHER_ID)],
            "max_turns": [(2, OTHER_ID), (3, OTHER_ID), (WORLD.max_turns, SAME)],
            "any_weights": [(True, SAME)],
            "simulator": [(SIMULATOR, SAME)],
            "progress": [(lambda *_, **__: None, SAME)],
            "backend": [],
        },
    ),
    fork_both: (
        _both,
        {
            "point": [(lambda given: given.turn, OTHER_ID)],
            "policy": [(OTHER, OTHER_ID)],
            "draws": [(3, SAME)],
            "change": [(Ban(text="rm b"), "one of the two")],
            "settings": [(LAW, SAME), (LAW.but(temperature=0.7), OTHER_ID)],
            "world": [(None, OTHER_ID)],
            "judge": [(MatchJudge("2"), SAME)],
            "seed": [(4, OTHER_ID)],
            "max_turns": [(2, OTHER_ID)],
            "any_weights": [(True, SAME)],
            "simulator": [(SIMULATOR, SAME)],
            "progress": [(lambda *_, **__: None, SAME)],
            "backend": [],
        },
    ),
    prepare: (
        _prepare,
        {
            "point": [(lambda given: given.answer, OTHER_ID)],
            "policy": [],
            "draws": [([1, 4, 5], SAME), (9, SAME)],
            "change": [(Remove(1), OTHER_ID)],
            "settings": [(LAW, SAME), (LAW.but(max_tokens=2), OTHER_ID)],
            "world": [(None, OTHER_ID)],
            "seed": [(4, OTHER_ID)],
            "max_turns": [(2, OTHER_ID)],
            "any_weights": [(True, SAME)],
            "exclude_first": [(int(AGENT.encode("ls")[0]), OTHER_ID), (int(AGENT.encode(" 2")[0]), OTHER_ID)],
            "stream": [(5, OTHER_ID)],
            "simulator": [(SIMULATOR, SAME)],
            "room": [(1, OTHER_ID), (2, OTHER_ID)],
            "judge": [(MatchJudge("2"), SAME)],
            "progress": [(lambda *_, **__: None, SAME)],
            "backend": [],
        },
    ),
    sweep: (
        _sweep,
        {
            "end": [(lambda given: given.turn, "rows")],
            "policy": [],
            "draws": [(3, "rows"), (12, "rows")],
            "every": [("turn", "rows")],
            "at": [([0, 2], "rows")],
            "score": [("reward", "rows")],
            "reuse": [(False, "rows")],
            "settings": [(LAW, "rows"), (LAW.but(max_tokens=11), "rows")],
            "world": [(Shelf(saves=False), "rows")],
            "judge": [(MatchJudge("submit 2"), "rows")],
            "seed": [(4, "rows")],
            "max_turns": [(2, "rows")],
            "any_weights": [(True, "rows")],
            "simulator": [(SIMULATOR, "rows")],
            "progress": [(lambda *_, **__: None, "rows")],
            "backend": [],
        },
    ),
    grow: (
        _grow,
        {
            "tree": [],
            "policy": [(OTHER, OTHER_ID)],
            "world": [(Shelf(saves=False), SAME)],
            "tasks": [(WORLD.tasks("train", 3), "more of them")],
            "draws": [(3, SAME), (9, SAME)],
            "settings": [(LAW.but(temperature=0.7), OTHER_ID)],
            "seed": [(4, OTHER_ID)],
            "max_turns": [(2, OTHER_ID), (WORLD.max_turns, SAME)],
            "any_weights": [(True, SAME)],
            "simulator": [(SIMULATOR, SAME)],
            "judge": [(MatchJudge("2"), SAME)],
            "tasks_at_once": [(1, SAME)],
            "progress": [(lambda *_, **__: None, SAME)],
            "backend": [],
        },
    ),
    grow_trees: (
        _trees,
        {
            "tree": [],
            "policy": [(OTHER, "rows")],
            "world": [(Shelf(saves=False), "rows")],
            "tasks": [(WORLD.tasks("train", 3), "rows")],
            "selector": [(Independent(), "rows"), (UUCB(), "rows"), (RandomNode(2), "rows")],
            "leaves": [(9, "rows")],
            "tokens": [(60, "rows")],
            "floor": [(1.0, "rows")],
            "settings": [(LAW.but(temperature=0.7), "rows"), (LAW.but(max_tokens=2), "rows")],
            "seed": [(4, "rows")],
            "max_turns": [(2, "rows")],
            "any_weights": [(True, "rows")],
            "simulator": [(SIMULATOR, "rows")],
            "judge": [(MatchJudge("2"), "rows")],
            "allocator": [(AdaptiveBudgetAllocator, "rows")],
            "speculation": [(Speculation(1), "rows")],
            "progress": [(lambda *_, **__: None, "rows")],
            "backend": [],
        },
    ),
}  # fmt: skip

#: What has no other value here, and where it is tried instead.
ELSEWHERE = {
    "backend": "forking/backend/test_backend.py: workers write the same bytes as one process",
    "tree": "where it is written",
    "policy": "the recorded policy alone may go on inside a turn; the others are tried with fork",
}


@pytest.mark.parametrize("call", CASES, ids=lambda c: c.__name__)
def test_every_parameter_is_classified(call):
    named = set(inspect.signature(call).parameters)
    _, cases = CASES[call]
    assert set(cases) == named, "say of every parameter whether it belongs to the identity"
    assert {name for name, tried in cases.items() if not tried} <= set(ELSEWHERE)


TRIED = [
    pytest.param(run, name, value, kind, id=f"{call.__name__}-{name}-{number}")
    for call, (run, cases) in CASES.items()
    for name, tried in cases.items()
    for number, (value, kind) in enumerate(tried)
]


@pytest.mark.parametrize(("run", "name", "value", "kind"), TRIED)
def test_another_value_gives_its_own_draws_whatever_is_on_the_tree(run, name, value, kind):
    def made():
        return value() if inspect.isclass(value) else value

    with Tree.memory() as shared, Tree.memory() as alone:
        base, ids = run(Given(shared))
        found, others = run(Given(shared), **{name: made()})
        fresh, _ = run(Given(alone), **{name: made()})
        if run is _sweep:
            assert found == fresh
            return
        assert texts(found) == texts(fresh)
        assert [arm.values() for arm in found] == [arm.values() for arm in fresh]
        if kind == OTHER_ID:
            assert not set(ids) & set(others)
        elif kind == SAME:
            assert ids == others
            for one, two in zip(base, found, strict=True):
                both = {d.draw for d in one.draws} & {d.draw for d in two.draws}
                assert both
                left, right = ({d.draw: d.leaf for d in arm.draws if d.draw in both} for arm in (one, two))
                assert left == right


def test_the_turn_limit_of_an_earlier_call_is_not_this_ones():
    with Tree.memory() as tree:
        point = Given(tree).answer
        short = fork(point, AGENT, 24, world=WORLD, max_turns=2)
        long = fork(point, AGENT, 24, world=WORLD, max_turns=6)
        assert max(turns(short)) == 2
        assert max(turns(long)) > 2


def turns(arm):
    return [sum(s.node.kind == "observation" for s in trajectory) for trajectory in arm.leaves()]


def test_recorded_settings_and_the_same_given_are_one_arm():
    with Tree.memory() as tree:
        point = Given(tree).turn
        sampling = recorded_settings(point, tree.path(point))
        one, two = fork(point, AGENT, 8, world=WORLD), fork(point, AGENT, 8, settings=sampling, world=WORLD)
        assert one.record == two.record
        assert two.tokens == 0


def test_two_changes_that_come_to_the_same_are_two_arms():
    with Tree.memory() as tree:
        point = Given(tree).turn
        (before,) = point.node.tokens[:1].tolist()
        changes = (Insert(text="l"), Replace(1, ids=(before, *AGENT.encode("l").tolist())))
        one, two = (fork(point, AGENT, 4, change=change, world=WORLD) for change in changes)
        # The same draws, told of in other words: the second arm is not the first one's record.
        whole = [["".join(step.text for step in path) for path in arm.leaves()] for arm in (one, two)]
        assert whole[0] == whole[1]
        assert one.record.id != two.record.id
        assert [arm.diff.what for arm in (one, two)] == ["insert", "replace 1 token(s)"]
        assert [arm.record.change["kind"] for arm in (one, two)] == ["insert", "replace"]


def card_of(policy, **changes):
    """The same policy under another card."""

    class Named:
        card = replace(policy.card, **changes)

        def __getattr__(self, name):
            return getattr(policy, name)

    return Named()


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"name": "another"}, True),
        ({"extra": {"device": "cuda"}}, True),
        ({"extra": {"reference": "abc"}}, True),
        # What the probe of a server counted; whether seeds are honoured is among what the card can.
        ({"extra": {"seed": "not known: 3 of 10 seeds gave the same text twice"}}, True),
        ({"extra": {"seeds": "by draw"}}, False),
        ({"extra": {"forward": "packed", "not packed": "0.3 nats off", "batches": "may differ"}}, True),
        ({"extra": {"ends": [1, 2]}}, False),
        ({"weights": "another"}, False),
        ({"context": 40}, False),
        ({"extra": {"filters": "the server's own"}}, False),
        ({"extra": {"mode": "chat"}}, False),
        ({"capabilities": frozenset({"tokens", "logprobs"})}, False),
    ],
    ids=lambda value: value if isinstance(value, bool) else "-".join(value),
)
def test_what_of_a_card_belongs_to_the_identity(changes, same):
    with Tree.memory() as tree:
        start = plant_prompt(tree, AGENT, "Well?")
        one = prepare(start, AGENT, 1, settings=LAW)
        two = prepare(start, card_of(AGENT, **changes), 1, settings=LAW)
        assert (one.record.id == two.record.id) is same
        assert one.record.extra["identity"] == IDENTITY


def test_an_identity_is_the_one_that_trees_hold():
    """Another id would draw every recorded fork anew: who means to change one raises IDENTITY."""
    with Tree.memory() as tree:
        start = plant_prompt(tree, AGENT, "Well?")
        plan = prepare(start, AGENT, 1, settings=LAW).plan
        begin = _Start(start.node.id, None, token_array([3, 1, 2]), ({"role": "user"},), "", False, True)
        given: Json = {"seed": 5, "stream": 2, "start": begin, "limits": _Limits(None, None)}
        unread = replace(begin, tokens=token_array([]), messages=({"content": "Well?", "role": "user"},))
        assert {
            "plain": fork_id(plan, None, **given),
            "changed": fork_id(plan, Remove(2), **given),
            "in a world": fork_id(replace(plan, world=WORLD), None, **given),
            "excluded": fork_id(plan, None, **given, exclude_first=7),
            "simulated": fork_id(plan, None, **given, simulator={"b": 1, "a": {"d": 2, "c": 3}}),
            "messages": fork_id(plan, None, **given | {"start": unread}),
            "limited": fork_id(plan, None, **given | {"limits": _Limits(3, 4)}),
            "open turn": fork_id(plan, None, **given | {"start": replace(begin, mid_turn=True)}),
        } == {
            "plain": "09e95384b660116a2c63e232708e8a65",
            "changed": "116f68103677807bb2b643bc9ac3d2ce",
            "in a world": "7e960a1e6035d660b1f93847207d4ac0",
            "excluded": "aaa7e511d2a63271e7a32959499e8146",
            "simulated": "8c3c6ca0036802d49a345b73734334a7",
            "messages": "ccfcb5f9ce346d1193c709f49c3edde9",
            "limited": "3fb1c7fc40af3593a9a60794ca08244a",
            "open turn": "b30e5b154dca1c2e6923bfa6704c68f8",
        }


def test_a_slip_belongs_to_a_worlds_name():
    plain = open_world("household:1")
    slippery = replace(plain, slip=0.25)
    assert slippery.name == "household:1?slip=0.25"
    assert open_world(slippery.name).slip == 0.25


# Trees from before identities had a version


@pytest.fixture
def as_before(monkeypatch):
    """Records arms under the identity that knew no limits."""
    from refork.forking import arm

    def recorded(tree, plan, change, **given):
        record = arm_recorded(tree, plan, change, **given, dry=True)
        return tree.begin_fork(record)

    def arm_recorded(tree, plan, change, *, start, limits, seed, episodes, exclude_first, stream, dry):
        del start, limits, dry
        from refork.sampling.noise import stream_of
        from refork.tree.score import ForkRecord

        point = plan.point
        extra = {} if exclude_first is None else {"exclude_first": exclude_first}
        extra |= {} if stream is None else {"stream": stream}
        extra |= {"simulator": episodes.simulated} if episodes and episodes.simulated else {}
        made = ForkRecord(
            "", point.node.id, point.keep if point.mid_node else None, change.to_json() if change else None,
            plan.policy.card.to_json(), plan.settings.to_json(), plan.world.name if plan.world else None,
            seed, stream_of(point.address) if stream is None else stream, extra,
        )  # fmt: skip
        return replace(made, id=arm._first_id(made, plan, change, extra))

    def use():
        monkeypatch.setattr(arm, "_recorded", recorded)

    use.undo = monkeypatch.undo
    return use


@pytest.mark.parametrize(
    ("place", "before", "now", "kept"),
    [
        ("answer", {"max_turns": 4}, {"max_turns": 4}, True),
        ("answer", {"max_turns": 2}, {"max_turns": 4}, False),
        ("answer", {"max_turns": 4}, {"max_turns": 2}, False),
        ("turn", {"world": None}, {"world": None}, True),
        ("turn", {"world": None, "room": 1}, {"world": None}, False),
        ("turn", {}, {}, False),
    ],
)
def test_an_arm_of_an_older_version_goes_on_only_where_its_draws_are_those_of_today(
    as_before, place, before, now, kept
):
    with Tree.memory() as tree, Tree.memory() as alone:
        point = getattr(Given(tree), place)
        as_before()
        shared = {"settings": LAW, "world": WORLD}
        (first,) = run_jobs([prepare(point, AGENT, 12, **(shared | before))])
        assert "identity" not in first.record.extra
        as_before.undo()
        (again,) = run_jobs([prepare(point, AGENT, 20, **(shared | now))])
        assert (again.record.id == first.record.id) is kept
        (fresh,) = run_jobs([prepare(getattr(Given(alone), place), AGENT, 20, **(shared | now))])
        assert texts([again]) == texts([fresh]), "whatever is kept, the draws are those of this call"
        assert len(again.draws) == 20
