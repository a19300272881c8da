"""Episodes on the tree: the account on the rewrite node, paired forks, scores with their producers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from refork.errors import BadChange, BadInput
from refork.policies.base import PolicyCard, Sampling
from refork.tree.tree import Tree
from refork_methods.pin import PinnedBuffer, PinnedCompactor
from refork_methods.pin.constraint import Constraint
from refork_methods.pin.strategies import HeadTail, Summarise, Truncate
from refork_methods.rot.on_tree import GovernanceProbe, rule_producer, survival_producer
from refork_testbed.worlds.house_rules.agents import RuleAgent
from refork_testbed.worlds.house_rules.scenario import scenario
from refork_testbed.worlds.house_rules.summarisers import SUMMARISERS
from refork_testbed.worlds.house_rules.tasks import TASKS

TASK = TASKS["spend"]
SESSION = scenario("spend", 3, turns=8, wording="small")
SETTINGS = Sampling(temperature=1.0, max_tokens=64)


def probe(tree, error=0.1, seed=0):
    return GovernanceProbe(tree, RuleAgent(error=error, compact=True).policy(), settings=SETTINGS, seed=seed)


def run(tree, compactor, draws=60, **more):
    one = probe(tree, **more)
    return one.fork_at_compaction(one.record(SESSION.messages), compactor, SESSION.rule, TASK.checker, draws)


def test_the_compaction_is_a_recorded_edge():
    with Tree.memory() as tree:
        found = run(tree, Summarise(SUMMARISERS["drops-rules"](), 60), 2)
        nodes = [n for n in tree.walk() if n.kind == "rewrite"]
        assert len(nodes) == 1
        account = nodes[0].extra["account"]
        assert nodes[0].extra["reason"] == account["reason"]
        assert account["reason"].startswith("summarised")
        assert account["before"] == [m["id"] for m in SESSION.history]
        assert account["after"][-1] == "trigger"
        call = account["rounds"][0]["calls"][0]
        assert SESSION.rule in str(call["prompt"])
        assert SESSION.rule not in call["answer"]
        assert nodes[0].extra["messages"] == found.stage.asked
        assert {n.text for n in tree.walk() if n.kind == "verdict"} <= {"violation", "refused"}
        record = found.forks[1].record
        assert record.change["kind"] == "context"
        assert record.change["compactor"] == "summarise"
        assert list(tree.verify()) == []


def test_arms_are_paired_and_compared_by_mcnemar():
    with Tree.memory() as tree:
        found = run(tree, Truncate(60))
        assert found.paired
        assert found.test.method == "McNemar exact"
        assert found.interval.method == "Newcombe paired"
        assert (found.pairs, found.other) == (60, 60)
        assert found.losses == 0
        assert found.gains == found.other - found.base
        assert found.interval.low > 0.5
        assert found.survival.fate == "trimmed"
        told = found.to_json()
        assert told["decay"] == (found.other - found.base) / 60


def test_every_compactor_can_be_swapped_at_the_same_point():
    pinned = PinnedBuffer((Constraint("spend", SESSION.rule),))
    with Tree.memory() as tree:
        kept = run(tree, HeadTail(60))
        lost = run(tree, Truncate(60))
        safe = run(tree, PinnedCompactor(Truncate(60), pinned))
        assert kept.forks[0].record.id == lost.forks[0].record.id == safe.forks[0].record.id
        # With the rule in view the same noise draws the same answers.
        assert (kept.gains, kept.losses) == (0, 0)
        assert (safe.gains, safe.losses) == (0, 0)
        assert lost.gains > 0
        assert len(list(tree.tasks())) == 1


def test_done_again_nothing_is_drawn_and_nothing_added():
    with Tree.memory() as tree:
        first = run(tree, Truncate(60), 8)
        size = len(tree)
        again = run(tree, Truncate(60), 8)
        assert again.to_json() == first.to_json()
        assert len(tree) == size
        assert again.forks[1].tokens == 0


def test_scores_carry_their_producers():
    with Tree.memory() as tree:
        found = run(tree, Truncate(60), 4)
        checker = rule_producer(SESSION.rule, TASK.checker).id
        leaves = [a.leaf for a in found.after]
        assert tree.score_map("violation", leaves, checker) == dict.fromkeys(leaves, 1.0)
        survival = survival_producer(SESSION.rule).id
        assert tree.score_map("survived", leaves, survival) == dict.fromkeys(leaves, 0.0)
        assert tree.score_map("survived", [a.leaf for a in found.control]) == {}
        assert rule_producer("a", TASK.checker).id != checker


def test_two_rules_of_one_session_survive_each_for_itself():
    kept = SESSION.messages[-2]["content"][:40]
    with Tree.memory() as tree:
        one = probe(tree)
        point = one.record(SESSION.messages)
        found = [
            one.fork_at_compaction(point, Truncate(60), rule, TASK.checker, 2)
            for rule in (SESSION.rule, kept)
        ]
        leaves = [a.leaf for a in found[0].after]
        assert leaves == [a.leaf for a in found[1].after]
        for rule, value in ((SESSION.rule, 0.0), (kept, 1.0)):
            told = tree.score_map("survived", leaves, survival_producer(rule).id)
            assert told == dict.fromkeys(leaves, value)


def test_a_trigger_that_was_not_reached_gives_no_decay():
    with Tree.memory() as tree:
        found = run(tree, Truncate(100_000), 4)
        assert not found.valid
        assert (found.interval, found.test) == (None, None)
        assert {a.result for a in found.after} == {"invalid"}
        assert tree.score_map("violation", [a.leaf for a in found.after]) == {}


class Unpaired:
    """The same policy, but chat messages only: no token ids, no shared noise."""

    def __init__(self, inner):
        self._inner = inner
        card = inner.card
        self.card = PolicyCard("chat-only", "test", None, None, None, frozenset(), extra=card.extra)

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def sample(self, requests, settings):
        # What a server does: it renders the messages itself and gives text back.
        plain = [replace(r, tokens=self._inner.render([], r.tokens[:0], r.messages).tokens) for r in requests]
        for said in self._inner.sample(plain, settings):
            yield replace(said, logprobs=None, logprobs_t1=None, offsets=None)


def test_a_chat_only_policy_forks_at_the_message_and_is_not_paired():
    with Tree.memory() as tree:
        one = GovernanceProbe(tree, Unpaired(RuleAgent(compact=True).policy()), settings=SETTINGS)
        point = one.record(SESSION.messages)
        found = one.fork_at_compaction(point, Truncate(60), SESSION.rule, TASK.checker, 6)
        assert not found.paired
        assert found.test.method == "Fisher exact"
        assert (found.base, found.other) == (0, 6)


def test_what_cannot_be_probed_is_refused():
    with Tree.memory() as tree:
        one = probe(tree)
        point = one.record(SESSION.messages)
        with pytest.raises(BadInput, match="does not hold the rule"):
            one.fork_at_compaction(point, Truncate(60), "Never on a Sunday.", TASK.checker)
        alone = one.record([SESSION.messages[0]])
        with pytest.raises(BadChange, match="one request after it"):
            one.fork_at_compaction(alone, Truncate(60), SESSION.rule, TASK.checker)
        with pytest.raises(BadInput, match="empty"):
            one.record([])


def test_errors_and_unreadable_answers_are_data():
    class Broken(Unpaired):
        def sample(self, requests, settings):
            for n, said in enumerate(super().sample(requests, settings)):
                text = '{"name": "purchase"' if n % 2 else said.text
                yield replace(said, text=text, error=None if n else "gone")

    with Tree.memory() as tree:
        one = GovernanceProbe(tree, Broken(RuleAgent(compact=True).policy()), settings=SETTINGS)
        point = one.record(SESSION.messages)
        found = one.fork_at_compaction(point, Truncate(60), SESSION.rule, TASK.checker, 4)
        results = [a.result for a in found.control]
        assert results.count("error") == 1
        assert "unparseable" in results
        assert found.base == 0
