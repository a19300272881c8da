"""Workflows on the tree."""

from __future__ import annotations

from refork.chat import ScriptedChat
from refork.tree.tree import Tree
from refork_methods.route.conduct.execute import execute
from refork_methods.route.conduct.on_tree import record
from refork_methods.route.conduct.plan import Plan
from refork_methods.route.pool import Price, Worker, WorkerPool

PLAN = Plan(("A", "B"), ("one", "two"), ((), (1,)))


def said_by(name: str) -> ScriptedChat:
    return ScriptedChat(lambda messages: f"{name}!", name)


def pool() -> WorkerPool:
    chats = [said_by(name) for name in "AB"]
    return WorkerPool(tuple(Worker(c.name, chat=c, price=Price(0, 0, 1.5)) for c in chats))


def test_every_call_is_a_node_with_its_context_and_cost() -> None:
    with Tree.memory() as tree:
        last = record(tree, "the query", execute(PLAN, pool()), text="[A,B]...", author="writer")
        trajectory = tree.path(last)
        kinds = [(s.node.kind, s.node.policy) for s in trajectory]
        assert kinds == [
            ("task", None),
            ("action", "writer"),
            ("rewrite", "A"),
            ("action", "A"),
            ("rewrite", "B"),
            ("action", "B"),
        ]
        context, answer = [s.node for s in trajectory][-2:]
        assert context.extra["messages"] == [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "A!"},
            {"role": "user", "content": "two"},
        ]
        assert context.extra["shown"] == [1]
        assert answer.text == "B!"
        assert answer.cost.money == 1.5
        assert answer.cost.tokens_in == 3
        assert [finding for finding in tree.verify() if finding.severity == "error"] == []


def test_the_same_run_is_found_and_another_is_beside_it() -> None:
    with Tree.memory() as tree:
        done = execute(PLAN, pool())
        assert record(tree, "q", done) == record(tree, "q", done)
        count = len(tree)
        record(tree, "q", done, draw=1)
        assert len(tree) > count
        assert len(list(tree.tasks())) == 1


def test_a_failed_step_is_on_the_tree() -> None:
    with Tree.memory() as tree:
        broken = execute(PLAN, WorkerPool.of("A", "B"))
        last = record(tree, "q", broken)
        assert last.error == "needs the answer of step 1, which failed"
        assert last.text == ""
