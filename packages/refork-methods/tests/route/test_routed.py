from __future__ import annotations

import numpy as np
import pytest

from refork.chat import ChatModel, ScriptedChat
from refork.errors import BadInput, Mismatch, ServerError
from refork.growing.rollouts import grow
from refork.policies.base import Sampling
from refork.tree import Tree
from refork_methods.route.backbone import StateFormat
from refork_methods.route.decision import (
    RoutedChat,
    always,
    decisions_on,
    head_chooser,
    query_of,
    routed_policy,
)
from refork_methods.route.head import SelectionHead
from refork_methods.route.pool import Price, Worker, WorkerPool
from refork_testbed.worlds.specialists import SpecialistsWorld, domain_of, specialist

ASKED = [{"role": "user", "content": "well"}]


class Down:
    name = "down"

    def __init__(self):
        self.asked = 0

    def reply(self, messages, *, tools=(), draw=0):
        self.asked += 1
        raise ServerError("nobody answers")


def pool(**chats):
    made = {
        name: chat or ScriptedChat(lambda m, name=name: f"I am {name}", name) for name, chat in chats.items()
    }
    return WorkerPool(
        tuple(Worker(n, chat=c, price=Price(0, 0, 0.5) if n == "a" else None) for n, c in made.items())
    )


def routed(workers, chances, **more):
    ticks = iter(range(100))
    return RoutedChat(workers, lambda messages: np.array(chances), clock=lambda: float(next(ticks)), **more)


def test_the_chosen_worker_answers_and_the_decision_is_kept():
    chat = routed(pool(a=None, b=None), [0.7, 0.3], name="one-name")
    assert isinstance(chat, ChatModel)
    assert (chat.name, chat.reply(ASKED).text) == ("one-name", "I am a")
    ((made, call),) = chat.log
    assert (made.query, made.chosen, made.runner_up) == (query_of(ASKED), "a", "b")
    assert call == {"money": 0.5, "seconds": 1.0, "error": None}


def test_an_unknown_price_is_logged_as_unknown():
    chat = routed(pool(a=None, b=None), [0.3, 0.7])
    chat.reply(ASKED)
    assert [call["money"] for _, call in chat.log] == [None]


def test_an_opted_out_worker_is_never_called():
    workers = pool(a=None, b=None, c=None)
    chat = routed(workers.without("a"), [0.8, 0.15, 0.05])
    assert chat.reply(ASKED).text == "I am b"
    assert workers["a"].chat.asked == []
    with pytest.raises(BadInput, match="opted out"):
        routed(workers.without("a"), [1.0, 0, 0]).reply(ASKED)


def test_where_a_worker_fails_the_next_best_answers_and_both_tries_are_kept():
    workers = pool(a=Down(), b=None, c=None)
    chat = routed(workers, [0.6, 0.1, 0.3])
    assert chat.reply(ASKED).text == "I am c"
    (first, failed), (second, call) = chat.log
    assert (first.chosen, second.chosen, second.opted_out) == ("a", "c", ("a",))
    assert "nobody answers" in failed["error"]
    assert call["error"] is None
    assert chat.reply(ASKED).text == "I am c"  # a failure is forgiven: it is asked again
    assert workers["a"].chat.asked == 2


def test_failures_end_after_the_last_try():
    for chances, retries, tries in (([0.6, 0.4], 1, 2), ([0.6, 0.4], 0, 1), ([1.0, 0.0], 1, 1)):
        chat = routed(pool(a=Down(), b=Down()), chances, retries=retries)
        with pytest.raises(ServerError, match="nobody answers"):
            chat.reply(ASKED)
        assert len(chat.log) == tries


def test_a_failed_call_is_the_server_s_fault_also_where_nobody_else_can_be_chosen():
    columns = {"expected": np.array([0.9, 0.8]), "prices": np.array([1.0, np.nan]), "value": 10.0}
    chat = routed(pool(a=Down(), b=None), [0.5, 0.5], **columns)
    with pytest.raises(ServerError, match="nobody answers"):
        chat.reply(ASKED)


def test_net_value_routes_by_price():
    columns = {"expected": np.array([0.5, 0.9]), "prices": np.array([0.0, 1.0])}
    workers = pool(a=None, b=None)
    assert routed(workers, [0.5, 0.5], **columns, value=1.0).reply(ASKED).text == "I am a"
    assert routed(workers, [0.5, 0.5], **columns, value=9.0).reply(ASKED).text == "I am b"


def test_a_routed_policy_runs_in_a_harness_and_leaves_its_decisions_on_the_tree():
    workers = WorkerPool(tuple(Worker(f"w{i}", specialist(i)) for i in range(4)))
    world, tree = SpecialistsWorld(), Tree.memory()

    def best(messages):
        return np.eye(4)[[0, 1, 1, 0][domain_of(messages[-1]["content"])]]

    policy = routed_policy(workers, best, identity={"chooser": "best in harness"})
    grow(tree, policy, world, world.tasks("train", 4), draws=1, settings=Sampling(max_tokens=4))
    found = list(decisions_on(tree))
    assert len(found) == 12
    for node, made in found:
        assert tree.node(node).extra["worker"] == made.chosen
        assert tree.node(node).policy == f"scripted:specialist@{made.chosen[1]}"
    other = routed_policy(workers.without("w3"), best, identity={"chooser": "best in harness"})
    assert other.card.weights != policy.card.weights


def test_always_one():
    workers = pool(a=None, b=None)
    assert always(workers, "b")(ASKED).tolist() == [0, 1]
    with pytest.raises(BadInput, match="no worker"):
        always(workers, "z")


class Reader:
    """A backbone whose state of a conversation is its length; it counts what it was asked to settle."""

    digest = "d" * 64

    def __init__(self, rendering="raw"):
        self.format = StateFormat(rendering)
        self.settled = []

    def states(self, talks):
        return np.array([[len(talk), 1.0] for talk in talks])

    def settle(self, offsets, matrices):
        self.settled.append((offsets.tolist(), matrices))


def test_a_fitted_head_chooses_in_the_pool_s_own_order():
    reader = Reader()
    # The head knows three workers in another order; "b" is likeliest for long conversations.
    head = SelectionHead(np.array([[0.0, 1.0], [1.0, 0.0], [-9.0, 0.0]]), ("a", "b", "old")).on(reader)
    workers = pool(a=None, b=None)
    choose = head_chooser(head, reader, workers)
    p = choose(ASKED)
    assert p == pytest.approx([0.5, 0.5])  # scores 1 and 1; "old" is not in the pool
    assert choose(ASKED * 3).argmax() == 1
    assert RoutedChat(workers, choose).reply(ASKED * 3).text == "I am b"
    swapped = WorkerPool(workers.workers[::-1])
    assert head_chooser(head, reader, swapped)(ASKED * 3).argmax() == 0
    assert reader.settled == []
    moved = head.with_offsets(("m",), np.array([0.1]))
    head_chooser(moved, reader, workers)
    assert reader.settled == [([0.1], ("m",))]


def test_a_head_serves_only_what_it_was_fitted_on():
    reader, workers = Reader(), pool(a=None, b=None, new=None)
    head = SelectionHead.zero(["a", "b"], 2).on(reader)
    with pytest.raises(BadInput, match="never fitted on worker 'new'"):
        head_chooser(head, reader, workers)
    p = head_chooser(head, reader, workers.without("new"))(ASKED)
    assert p.tolist() == [0.5, 0.5, 0.0]
    with pytest.raises(Mismatch, match="another format"):
        head_chooser(head, Reader("chat"), workers.without("new"))
