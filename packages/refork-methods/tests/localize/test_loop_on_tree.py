"""Runs on the tree: recorded, resumed, forked at every turn, read back, and scored by agreement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from refork import Tree
from refork.chat import PolicyChat, Reply
from refork.errors import BadInput, ReplayDiverged, ServerError
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.types import Json, Message
from refork_methods.localize.agreement import agreement, cause_similarity, place_agreement
from refork_methods.localize.casefile import CaseFile, Location
from refork_methods.localize.loop import Localizer
from refork_methods.localize.on_tree import agree_on_tree, fork_runs, record_runs, trace_of
from refork_methods.localize.session import LoopSettings
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.tools import RepoTools
from refork_testbed.trials.planted_reader import PlantedReader

ISSUE = "Coupons give a wrong rebate: the discount of a member is taken twice from the price of the basket."
FILES = {
    "shop/rates.py": "def rebate(price, member):\n    # discount of a member\n    return price // 10\n",
    "shop/basket.py": "from shop.rates import rebate\n\n\ndef price(basket):\n    return sum(basket)\n",
    "shop/coupons.py": "WRONG = 1\n\n\ndef coupon(price):\n    return price - 5\n",
}
TOOLS = RepoTools(Snapshot.from_files(FILES))


def localizer(**options: int) -> Localizer:
    return Localizer(PlantedReader(searches=4, wander=2.0), TOOLS, LoopSettings(**options))  # type: ignore[arg-type]


def turns(tree: Tree, leaf: str) -> list[bytes]:
    trajectory = tree.path(leaf)
    return [
        json.dumps(
            [s.node.id, s.node.kind, s.node.text, s.node.message, s.node.extra], sort_keys=True
        ).encode()
        for s in trajectory
        if s.node.kind in ("action", "observation")
    ]


def test_a_run_is_recorded_and_read_back() -> None:
    tree = Tree.memory()
    made = record_runs(tree, localizer(), ISSUE, draws=2)
    for one in made:
        trajectory = tree.path(one.leaf)
        assert trajectory.root.text == ISSUE
        assert trajectory.steps[0].node.kind == "task"
        assert trajectory.leaf.kind == "verdict"
        assert CaseFile.from_json(one.leaf.extra["case"]) == one.trace.case
        again = trace_of(tree, one.leaf, localizer())
        assert [t.bytes() for t in again.turns] == [t.bytes() for t in one.trace.turns]
        assert again.case == one.trace.case
    assert list(tree.verify()) == []
    assert tree.stats() is not None


def test_a_recorded_run_is_not_asked_again() -> None:
    tree = Tree.memory()
    first = record_runs(tree, localizer(), ISSUE, draws=2)
    size = len(tree)
    again = record_runs(tree, localizer(), ISSUE, draws=2)
    assert len(tree) == size
    assert [one.trace.case for one in again] == [one.trace.case for one in first]


def test_forking_at_any_turn_shares_the_turns_before_it() -> None:
    tree = Tree.memory()
    (made,) = record_runs(tree, localizer(), ISSUE)
    whole = turns(tree, made.leaf.id)
    ends = set()
    for turn in range(1, len(made.trace.turns) + 1):
        for other in fork_runs(tree, localizer(), made.leaf, turn, draws=2):
            kept = 2 * (turn - 1)
            assert turns(tree, other.leaf.id)[:kept] == whole[:kept]
            before = [t.bytes() for t in other.trace.turns[: turn - 1]]
            assert before == [t.bytes() for t in made.trace.turns[: turn - 1]]
            ends.add(b"".join(t.bytes() for t in other.trace.turns))
    assert len(ends) > 1
    size = len(tree)
    fork_runs(tree, localizer(), made.leaf, 2, draws=2)
    assert len(tree) == size
    assert list(tree.verify()) == []


def test_truncated_questions_stand_as_rewrites() -> None:
    tree = Tree.memory()
    reader = Localizer(PlantedReader(searches=6), TOOLS, LoopSettings(context=700))
    (made,) = record_runs(tree, reader, ISSUE)
    trajectory = tree.path(made.leaf)
    rewrites = [s.node for s in trajectory if s.node.kind == "rewrite"]
    assert rewrites
    assert all(ISSUE in node.extra["messages"][1]["content"] for node in rewrites)
    assert made.trace.turns[-1].collapsed > 0
    (other,) = fork_runs(tree, reader, made.leaf, len(made.trace.turns))
    assert other.trace.turns[-2].bytes() == made.trace.turns[-2].bytes()


class Stops:
    """Answers as the planted reader does until it is stopped."""

    def __init__(self, after: int, error: type[BaseException]) -> None:
        self.left, self.error, self.inner = after, error, PlantedReader(searches=4, wander=2.0)
        self.name = self.inner.name
        self.asked = 0

    def reply(self, messages: Sequence[Message], *, tools: Sequence[Json] = (), draw: int = 0) -> Reply:
        self.asked += 1
        if self.asked > self.left:
            raise self.error("stop")
        return self.inner.reply(messages, tools=tools, draw=draw)


def test_a_stopped_run_is_resumed_without_asking_again(tmp_path: Path) -> None:
    with Tree.open(tmp_path / "a.db") as tree:
        with pytest.raises(KeyboardInterrupt):
            record_runs(tree, Localizer(Stops(3, KeyboardInterrupt), TOOLS), ISSUE)
        more = Stops(99, KeyboardInterrupt)
        (made,) = record_runs(tree, Localizer(more, TOOLS), ISSUE)
        (whole,) = record_runs(Tree.memory(), localizer(), ISSUE)
        assert more.asked == len(whole.trace.turns) - 3
        assert made.trace.case == whole.trace.case


def test_a_failing_model_is_data_on_the_tree() -> None:
    tree = Tree.memory()
    (made,) = record_runs(tree, Localizer(Stops(2, ValueError), TOOLS), ISSUE)
    (record,) = tree.forks(tree.path(made.leaf).root)
    assert [draw.end for draw in tree.draws(record.id)] == ["error"]
    again = trace_of(tree, made.leaf, Localizer(Stops(0, ValueError), TOOLS))
    assert again.error == made.trace.error
    assert len(again.turns) == 2


def test_a_model_that_did_not_answer_at_all_is_asked_again() -> None:
    tree = Tree.memory()
    with pytest.raises(ServerError, match="no answer: ValueError"):
        record_runs(tree, Localizer(Stops(0, ValueError), TOOLS), ISSUE)
    (made,) = record_runs(tree, Localizer(Stops(99, ValueError), TOOLS), ISSUE)
    assert made.trace.error is None
    with pytest.raises(ServerError):
        fork_runs(tree, Localizer(Stops(0, ValueError), TOOLS), made.leaf, 2)
    (other,) = fork_runs(tree, Localizer(Stops(99, ValueError), TOOLS), made.leaf, 2)
    assert other.trace.error is None
    assert list(tree.verify()) == []


def test_another_snapshot_or_a_foreign_walk_is_refused() -> None:
    tree = Tree.memory()
    (made,) = record_runs(tree, localizer(), ISSUE)
    other = RepoTools(Snapshot.from_files(FILES | {"x.py": "x = 1\n"}))
    with pytest.raises(ReplayDiverged, match="snapshot"):
        fork_runs(tree, Localizer(PlantedReader(), other), made.leaf, 2)
    with pytest.raises(ReplayDiverged, match="other messages"):
        fork_runs(tree, localizer(max_turns=7), made.leaf, 2)
    with pytest.raises(BadInput, match="no turn 50"):
        fork_runs(tree, localizer(), made.leaf, 50)
    with pytest.raises(BadInput, match="at least 1"):
        record_runs(tree, localizer(), ISSUE, draws=0)
    from refork.tree.node import NewNode

    (task,) = tree.append([NewNode(kind="task", text="other")])
    with pytest.raises(BadInput, match="no recorded run"):
        trace_of(tree, task, localizer())


def test_a_policy_runs_the_loop() -> None:
    said = json.dumps({"tool": "tree", "arguments": {}})
    place = {
        "path": "shop/rates.py",
        "start": 1,
        "end": 3,
        "explanation": "a",
        "root_cause": "b",
        "solution_idea": "c",
    }
    answer = json.dumps({"locations": [place]})
    policy = ScriptedPolicy.from_replies({said: 1.0, answer: 1.0})
    chat = PolicyChat(policy, Sampling(max_tokens=500))
    tree = Tree.memory()
    made = record_runs(tree, Localizer(chat, TOOLS, LoopSettings(max_turns=6)), ISSUE, draws=4)
    assert all(one.trace.error is None for one in made)
    assert any(one.trace.case.locations for one in made)
    assert len({b"".join(t.bytes() for t in one.trace.turns) for one in made}) > 1
    # A run is known again by who drew it and how: the same name at another temperature is another's.
    settings, size = LoopSettings(max_turns=6), len(tree)
    record_runs(tree, Localizer(PolicyChat(policy, Sampling(max_tokens=500)), TOOLS, settings), ISSUE)
    assert len(tree) == size
    for other in (
        PolicyChat(policy, Sampling(max_tokens=500, temperature=0.2)),
        PolicyChat(policy, Sampling(max_tokens=400)),
        PolicyChat(policy, Sampling(max_tokens=500), seed=1),
        PolicyChat(ScriptedPolicy.from_replies({answer: 1.0}), Sampling(max_tokens=500)),
    ):
        before = len(tree)
        record_runs(tree, Localizer(other, TOOLS, settings), ISSUE)
        assert len(tree) > before


PLACE = Location("a.py", 1, 10, "why", "The discount is subtracted twice.", "idea")


def moved(**changes: object) -> CaseFile:
    from dataclasses import replace

    return CaseFile((replace(PLACE, **changes),))  # type: ignore[arg-type]


def test_agreement_in_closed_form() -> None:
    same = agreement([moved(), moved(), moved()])
    assert same.score == 1.0
    assert same.best == 0
    other = moved(path="b.py", root_cause="Parsing drops newlines.")
    two = agreement([moved(), other, moved()])
    assert two.by_run.tolist() == [0.5, 0.0, 0.5]
    assert two.best == 0
    assert agreement([CaseFile((), "empty")] * 2).score == 0.0
    half = moved(start=6, end=15).locations[0]
    assert place_agreement(PLACE, half) == 0.75
    assert place_agreement(PLACE, moved(start=4, end=5).locations[0]) == 1.0
    assert place_agreement(PLACE, moved(start=20, end=30).locations[0]) == 0.5
    assert cause_similarity(PLACE, moved(root_cause="Not established: x").locations[0]) == 0.0
    assert cause_similarity(PLACE, moved(root_cause="Not said.").locations[0]) == 0.0
    assert cause_similarity(PLACE, moved(root_cause="A discount, subtracted: twice").locations[0]) == 1.0
    with pytest.raises(BadInput, match="two runs"):
        agreement([moved()])


def test_agreement_does_not_depend_on_the_order_of_runs() -> None:
    rng = np.random.default_rng(3)
    cases = [moved(start=int(n), end=int(n) + 5, path=f"{n % 2}.py") for n in rng.integers(1, 20, 6)]
    found = agreement(cases)
    order = rng.permutation(6)
    shuffled = agreement([cases[n] for n in order])
    assert np.allclose(shuffled.by_run, found.by_run[order])
    assert np.allclose(found.locations, found.locations.T)
    assert ((found.by_run >= 0) & (found.by_run <= 1)).all()


def test_agreement_is_written_at_the_verdicts() -> None:
    tree = Tree.memory()
    runs = record_runs(tree, localizer(), ISSUE, draws=3)
    found = agree_on_tree(tree, runs)
    scores = tree.score_map("agreement", [one.leaf for one in runs])
    assert [scores[one.leaf.id] for one in runs] == pytest.approx(found.by_run.tolist())
