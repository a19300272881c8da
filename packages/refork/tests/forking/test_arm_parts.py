"""The parts of an arm, one by one: what is recorded, what it begins with, whose values count."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from refork.errors import BadChange, BadInput, CannotDo
from refork.forking import EditMessage, Insert, SwapPolicy, fork
from refork.forking import arm as arm_module
from refork.forking.arm import (
    Used,
    _as_now,
    _as_offered,
    _attempt,
    _begin,
    _begins_behind,
    _calls,
    _first_id,
    _Limits,
    _rewrite,
    _same_limits,
    _Start,
    _turns_left,
    _within_limit,
    graded,
    prepare,
    recorded_settings,
    run_jobs,
)
from refork.forking.change import Plan
from refork.forking.episodes import TURNS
from refork.forking.run_on import Branch
from refork.formats import import_file, reader_for
from refork.growing.plant import plant_prompt
from refork.judge import Verdict
from refork.policies.base import Sampling
from refork.policies.renderable import ends_of
from refork.policies.scripted import ScriptedPolicy
from refork.policies.sent import REQUEST
from refork.sampling.noise import NoiseKey
from refork.tree.node import NewNode, Point
from refork.tree.score import DrawRecord, ForkRecord, Producer, Score
from refork.tree.tree import Tree
from refork.types import token_array
from refork.worlds.open import open_world
from support.chain import PLAIN, TABLE
from support.tool_talks import ALL, ASKED, ONE, TOOL, put
from support.tool_talks import policy as tiny

USUAL = Sampling().max_tokens
CARD = {"weights": "w", "name": "n", "tokenizer": "t", "context": None, "capabilities": ["paired", "tokens"]}


class Counting:
    """A judge that counts what it is asked and answers one thing."""

    def __init__(self, value, name="counting", score="success"):
        self.value, self.score, self.asked = value, score, []
        self.producer = Producer(name, "1")

    def judge(self, trajectory):
        self.asked.append(trajectory.leaf.id)
        return Verdict(self.value)


# Values


def failed_and_fine(tree, start, policy):
    """A fork of two draws that end at the same node, the second of them by an error."""
    arm = fork(start, policy, 2, settings=PLAIN)
    leaf = arm.draws[0].leaf
    draws = (arm.draws[0], DrawRecord(arm.record.id, 1, leaf, "error", "lost"))
    return replace(arm, draws=draws), leaf


def test_a_draw_that_failed_has_no_value_though_its_node_has_a_score(tree, start, policy):
    arm, leaf = failed_and_fine(tree, start, policy)
    judge = tree.add_producer(Producer("judge"))
    tree.add_scores([Score(leaf, "success", 1.0, judge)])
    assert arm.values() == [1.0, None]
    assert arm.values(lambda trajectory: 0.5) == [0.5, None]


def test_where_the_judge_of_a_call_has_no_answer_the_world_counts_and_no_other_judge(tree, start, policy):
    arm = fork(start, policy, 3, settings=PLAIN)
    world, mine, other = (
        tree.add_producer(Producer(name)) for name in ("world:lock", "judge:mine", "judge:other")
    )
    one, two, three = (draw.leaf for draw in arm.draws)
    assert len({one, two, three}) == 3
    tree.add_scores([Score(one, "success", 0.25, world), Score(two, "success", 0.5, mine)])
    tree.add_scores([Score(leaf, "success", 1.0, other) for leaf in (one, two, three)])
    assert replace(arm, judge=(mine, "success")).values() == [0.25, 0.5, None]
    assert arm.values() == [0.25, 1.0, 1.0], (
        "without a judge the world counts, and where it is silent the newest"
    )
    assert replace(arm, judge=(mine, "style")).values() == [0.25, 1.0, 1.0]


def test_nothing_is_simulated_where_a_simulator_has_answered_nothing(tree, start, policy):
    arm = fork(start, policy, 1, settings=PLAIN)
    record = replace(arm.record, extra={"simulator": {"model": "m"}})
    assert replace(arm, record=record, draws=()).simulated == 0.0


def test_scores_are_numbers_and_what_is_not_graded_is_none_of_them():
    found = graded([1, 0])
    assert found.dtype == np.float64
    np.testing.assert_array_equal(graded([1, None]), [1.0, np.nan])


# Settings of a recorded turn


def turn(tree, settings, *, extra=None, noise=None, size=5):
    """A task and a turn of a log with some settings."""
    task = tree.append([NewNode(kind="task", text="Well?")])[0]
    said = NewNode(
        kind="action", parent=task.id, text="yes", tokens=token_array(range(size)), settings=settings,
        noise=noise, extra=extra or {},
    )  # fmt: skip
    return task, tree.append([said])[0]


def settings_at(tree, node):
    point = tree.at(node)
    return recorded_settings(point, tree.path(point))


def test_the_turn_that_begins_at_a_point_says_how_it_was_sampled(tree):
    task, _ = turn(tree, {"temperature": 0.25, "max_tokens": 7})
    found = settings_at(tree, task)
    assert (found.temperature, found.max_tokens) == (0.25, 7)


def test_what_was_forced_once_is_not_forced_again(tree):
    recorded = Sampling(max_tokens=7, forced=(1,), banned_first=(2,)).to_json()
    _, said = turn(tree, recorded)
    found = settings_at(tree, said)
    assert (found.forced, found.banned_first, found.max_tokens) == ((), (), 7)


@pytest.mark.parametrize(
    ("settings", "extra", "noise", "limit"),
    [
        ({"temperature": 0.5}, {}, None, 5 + USUAL),  # a log that names no limit
        ({"temperature": 0.5, "max_tokens": 9}, {}, None, 9),
        ({"temperature": 0.5}, {"turn_limit": 6}, None, 6),
        ({"temperature": 0.5, "max_tokens": 9}, {"turn_limit": 6}, None, 6),
        ({"temperature": 0.5}, {}, NoiseKey(0, 0, 0), USUAL),  # ours: what is not written is the usual one
    ],
)
def test_the_limit_of_a_turn_is_what_is_recorded_of_it(tree, settings, extra, noise, limit):
    _, said = turn(tree, settings, extra=extra, noise=noise)
    assert settings_at(tree, said).max_tokens == limit


def test_where_nothing_was_said_a_turn_has_the_usual_limit(tree):
    task = tree.append([NewNode(kind="task", text="Well?")])[0]
    assert settings_at(tree, task) == Sampling(max_tokens=USUAL)


# A context that is written anew


def test_an_edit_in_mid_turn_is_recorded_whole(tree, policy):
    """The rewrite stands where the turn was cut, and carries what was said of it, in text and in tokens."""
    begin = plant_prompt(tree, policy, "Well?")
    said = NewNode(
        kind="action", parent=begin.node.id, text=" think right", tokens=policy.encode(" think right"),
        offsets=np.array([6, 12]),
    )  # fmt: skip
    point = tree.at(tree.append([said])[0], 1)
    plan = EditMessage(0, "Now?").apply(Plan(point, tree.path(point), policy, PLAIN))
    start = _begin(tree, plan)
    node = tree.node(start.at)
    assert (node.kind, node.parent, node.keep, node.policy) == (
        "rewrite", point.node.id, 1, policy.card.name,
    )  # fmt: skip
    assert node.extra == {
        "messages": [{"role": "user", "content": "Now?"}],
        "reason": "message edited",
        "pending": " think",
        "pending_tokens": 1,
        "tokenizer": policy.card.tokenizer,
    }
    assert (start.keep, start.pending, start.mid_turn, start.complete, start.generated) == (
        None, " think", True, False, 1,
    )  # fmt: skip
    np.testing.assert_array_equal(start.tokens, node.tokens)


def rewrite(tree, policy, messages, account=None):
    begin = tree.at(next(tree.tasks()))
    plan = replace(Plan(begin, tree.path(begin), policy, PLAIN), account=account)
    return tree.node(_rewrite(tree, plan, messages, "", "why").at)


@pytest.mark.parametrize(
    ("pending", "complete", "begins"),
    [("", False, (False, False, 0)), (" think", False, (True, False, 1)), (" think", True, (False, True, 0))],
)
def test_a_whole_turn_stays_whole_when_its_context_is_written_anew(
    tree, policy, start, pending, complete, begins
):
    """Inside a turn, whether it is over, and the tokens of it that count against its limit."""
    begin = tree.at(next(tree.tasks()))
    plan = Plan(begin, tree.path(begin), policy, PLAIN)
    found = _rewrite(tree, plan, [{"role": "user", "content": "Now?"}], pending, "why", complete=complete)
    assert (found.mid_turn, found.complete, found.generated) == begins
    assert found.pending == pending


def test_one_edit_is_one_node_in_whatever_order_its_messages_are_written(tree, policy, start):
    """The key is a digest, and trees on disk have it: 16 hex digits of the sorted JSON."""
    one = rewrite(tree, policy, [{"role": "user", "content": "Now?"}])
    two = rewrite(tree, policy, [{"content": "Now?", "role": "user"}])
    assert one.id == two.id
    body = json.dumps(one.extra, sort_keys=True).encode()
    assert one.key == f"edit/{hashlib.blake2b(body, digest_size=8).hexdigest()}"


def test_the_account_of_an_edit_stands_beside_the_messages(tree, policy, start):
    messages = [{"role": "user", "content": "Now?"}]
    node = rewrite(tree, policy, messages, account={"reason": "pinned", "kept": 3})
    assert node.extra["reason"] == "pinned"
    assert node.extra["account"] == {"reason": "pinned", "kept": 3}
    assert node.extra["messages"] == messages
    assert rewrite(tree, policy, messages, account={"kept": 3}).extra["reason"] == "why"


def said_at(tree, policy, text=" think right", finish=None):
    """A prompt, and a turn under it."""
    begin = plant_prompt(tree, policy, "Well?")
    ids = policy.encode(text)
    said = NewNode(
        kind="action", parent=begin.node.id, text=text, tokens=ids, offsets=ends_of(policy, ids, text),
        finish=finish,
    )  # fmt: skip
    return tree.append([said])[0]


def test_what_is_put_behind_a_swap_is_part_of_what_was_begun(tree, policy):
    """Two changes at once: the words of the other tokenizer stand behind what was said."""
    other = ScriptedPolicy.from_chain(TABLE | {" aaa": {"": 1.0}}, name="other")
    point = tree.at(said_at(tree, policy), 1)
    plan = SwapPolicy(other).apply(Plan(point, tree.path(point), policy, PLAIN))
    start = _begin(tree, Insert(text=" right").apply(plan))
    assert start.pending == tree.node(start.at).extra["pending"] == " think right"
    assert start.generated == len(other.encode(" think right"))


@pytest.mark.parametrize("counted", [True, False])
def test_a_turn_begun_behind_an_edit_counts_from_its_first_token(tree, policy, counted):
    """Trees on disk have edits that do not say how many tokens of a turn they carry."""
    point = tree.at(said_at(tree, policy), 1)
    edited = _begin(tree, EditMessage(0, "Now?").apply(Plan(point, tree.path(point), policy, PLAIN)))
    node = tree.node(edited.at)
    if not counted:
        extra = {name: value for name, value in node.extra.items() if name != "pending_tokens"}
        old = NewNode(
            kind="rewrite", parent=node.parent, keep=node.keep, key="old", text=node.text, tokens=node.tokens,
            policy=node.policy, extra=extra,
        )  # fmt: skip
        node = tree.append([old])[0]
    again = tree.at(node)
    start = _begin(tree, Plan(again, tree.path(again), policy, PLAIN))
    assert (start.pending, start.mid_turn, start.generated) == (" think", True, 1)


def test_nothing_of_the_next_turn_is_said_where_a_turn_is_over(tree, policy):
    point = tree.at(said_at(tree, policy, finish="stop"))
    start = _begin(tree, Plan(point, tree.path(point), policy, PLAIN))
    assert (start.mid_turn, start.complete, start.generated) == (False, True, 0)


class Chat:
    """A policy that takes messages only."""

    def __init__(self, policy):
        self.card = replace(policy.card, capabilities=("paired",), name="chat")
        self.encode, self.decode = policy.encode, policy.decode


def test_a_policy_that_takes_messages_begins_at_a_place_between_them(tree, policy):
    said = said_at(tree, policy, finish="stop")
    prompt = tree.at(next(tree.tasks()))
    agent = Chat(policy)
    assert not agent.card.can("tokens")
    start = _begin(tree, Plan(prompt, tree.path(prompt), agent, PLAIN))
    asked = {"role": "user", "content": "Well?"}
    assert start == _Start(prompt.node.id, None, start.tokens, (asked,), "", False, False)
    over = tree.at(said)
    start = _begin(tree, Plan(over, tree.path(over), agent, PLAIN))
    assert start == _Start(said.id, None, start.tokens, (asked,), " think right", False, True)
    assert start.tokens.tolist() == []


def test_a_policy_that_takes_messages_begins_inside_a_prompt_where_it_is_cut(tree, policy):
    prompt = plant_prompt(tree, policy, "Well?").node
    point = Point(prompt, 1, tree)
    start = _begin(tree, Plan(point, tree.path(point), Chat(policy), PLAIN))
    assert (start.at, start.keep, start.mid_turn) == (prompt.id, 1, False)


def test_what_is_inserted_is_one_node_of_its_tokens(tree, policy, start):
    """The key is a digest, and trees on disk have it: 16 hex digits of the ids."""
    plan = Insert(text=" think right").apply(Plan(start, tree.path(start), policy, PLAIN))
    begun = _begin(tree, plan)
    assert (begun.mid_turn, begun.complete, begun.pending) == (True, False, " think right")
    node = tree.node(begun.at)
    assert node.key == f"edit/{hashlib.blake2b(plan.insert.tobytes(), digest_size=8).hexdigest()}"
    np.testing.assert_array_equal(node.offsets, ends_of(policy, plan.insert, " think right"))
    assert (node.text, node.extra) == (" think right", {"edit": "insert"})


@pytest.mark.parametrize("token", [None, 1])
def test_a_policy_that_takes_messages_goes_on_inside_no_turn(tree, policy, token):
    """Neither inside one that was said nor behind a beginning that is put there."""
    said = said_at(tree, policy)
    point = tree.at(next(tree.tasks())) if token is None else tree.at(said, token)
    plan = Plan(point, tree.path(point), Chat(policy), PLAIN)
    if token is None:
        plan = replace(plan, insert=policy.encode(" think"))
    with pytest.raises(CannotDo, match="cannot go on inside a turn"):
        _begin(tree, plan)


# What a log's agent was offered


def offered(tree, messages, *, root=None, request=None):
    """The messages of a fork at a log's task, before a turn that was asked for by ``request``."""
    task = tree.append([NewNode(kind="task", text="Well?", extra={} if root is None else {"tools": root})])[0]
    extra = {} if request is None else {REQUEST: request}
    tree.append([NewNode(kind="action", parent=task.id, text="yes", extra=extra)])
    point = tree.at(task)
    return _as_offered(point, tree.path(point), tuple(messages))


USER = {"role": "user", "content": "Well?"}
OTHER = [{"type": "function", "function": {"name": "other"}}]


@pytest.mark.parametrize(
    ("messages", "root", "request_", "first"),
    [
        ([USER], None, None, USER),
        ([USER], OTHER, None, USER | {"tools": OTHER}),
        # How the turn itself was asked for comes before what the log says at its beginning.
        ([USER], OTHER, {"tools": [TOOL], "top_k": 3}, USER | {"tools": [TOOL], REQUEST: {"top_k": 3}}),
        ([USER], OTHER, {"top_k": 3}, USER | {"tools": OTHER, REQUEST: {"top_k": 3}}),
        ([USER], None, {}, USER | {REQUEST: {}}),
        # A chat that carries its tools keeps them.
        ([USER | {"tools": OTHER}], [TOOL], {"top_k": 3}, USER | {"tools": OTHER, REQUEST: {"top_k": 3}}),
    ],
)
def test_a_chat_carries_what_its_logs_agent_was_offered(tree, messages, root, request_, first):
    more = {"role": "user", "content": "Quick!"}
    assert offered(tree, [*messages, more], root=root, request=request_) == (first, more)


def test_a_chat_without_messages_carries_nothing(tree):
    assert offered(tree, [], root=OTHER, request={"top_k": 3}) == ()


def test_a_message_calls_tools_or_is_none(tree):
    task = tree.append([NewNode(kind="task", text="Well?")])[0]
    calls = {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}
    for message, found in ((calls, calls), ({"role": "assistant", "content": "no"}, None), (None, None)):
        said = tree.append([NewNode(kind="action", parent=task.id, text="x", message=message)])[0]
        assert _calls(tree.path(said)) == found


# A log without token ids


def untokenised(tmp_path, tree):
    file = put(tmp_path, ONE)
    import_file(tree, file, reader_for(file))
    (trajectory,) = tree.paths(tree.leaves())
    return trajectory, tiny(ALL["hermes"])


def test_a_turn_of_a_log_that_stands_whole_waits_for_its_answer(tmp_path, tree):
    trajectory, agent = untokenised(tmp_path, tree)
    said = next(step.node for step in trajectory if step.node.kind == "action")
    point = tree.at(said)
    start = _begin(tree, Plan(point, tree.path(point), agent, Sampling()), answered=True)
    assert start == _Start(
        said.id, None, start.tokens, start.messages, said.text, mid_turn=False, complete=True
    )
    assert start.tokens.tolist() == []
    assert start.messages[0]["tools"] == [TOOL]
    assert start.messages[1] == ASKED


def test_a_turn_of_a_log_that_nobody_will_answer_is_not_over(tmp_path, tree):
    trajectory, agent = untokenised(tmp_path, tree)
    point = tree.at(next(step.node for step in trajectory if step.node.kind == "action"))
    with pytest.raises(CannotDo, match="nothing can go on inside it or behind it"):
        _begin(tree, Plan(point, tree.path(point), agent, Sampling()))


def test_what_is_put_where_a_turn_begins_is_its_beginning(tmp_path, tree):
    trajectory, agent = untokenised(tmp_path, tree)
    point = tree.at(trajectory.root)
    plan = Insert(text="dark").apply(Plan(point, tree.path(point), agent, Sampling()))
    start = _begin(tree, plan)
    node = tree.node(start.at)
    assert node.extra["reason"] == "rendered with the policy's template: the log has no token ids"
    assert node.extra["pending"] == start.pending == agent.decode(plan.insert)
    assert start.mid_turn
    assert start.generated == len(plan.insert)


# Arms from before identities had a version


def records(before, now, *, then=None):
    """A record of then and one of today, with what their policies' cards say beside the rest."""
    plain = ForkRecord("old", "", None, None, {}, {}, None, 0, 0)
    return (
        replace(plain, policy=CARD | (then or {}) | {"extra": before}),
        replace(plain, id="new", policy=CARD | {"extra": now}),
    )


NOTHING = _Start("", None, token_array([]), (), "", mid_turn=False, complete=False)


@pytest.mark.parametrize(
    ("before", "now", "then", "goes_on"),
    [
        ({}, {}, None, True),
        ({"layer": 1}, {"layer": 1}, None, True),
        ({"layer": 1}, {"layer": 1, "told since": 2}, None, True),
        ({"layer": 1}, {"layer": 2}, None, False),
        ({"layer": 1}, {}, None, False),
        ({}, {}, {"weights": "others"}, False),
        ({}, {}, {"capabilities": ["tokens"]}, False),
    ],
)
def test_an_older_arm_of_another_policy_does_not_go_on(tree, before, now, then, goes_on):
    old, new = records(before, now, then=then)
    assert _as_now(tree, old, new, NOTHING, _Limits(None, None)) is goes_on


@pytest.mark.parametrize(
    ("complete", "settings", "goes_on"),
    [(True, {"forced": [1]}, False), (True, {}, True), (False, {"forced": [1]}, True)],
)
def test_an_older_arm_that_dropped_what_was_forced_behind_an_answer_does_not_go_on(
    tree, complete, settings, goes_on
):
    old, new = records({}, {})
    new = replace(new, settings=settings)
    start = replace(NOTHING, complete=complete)
    assert _as_now(tree, old, new, start, _Limits(None, None)) is goes_on


@pytest.mark.parametrize(
    ("asked", "keep", "generated", "complete", "expected"),
    [
        ({}, None, 0, True, False),
        ({"forced": (1,)}, None, 0, True, True),
        ({"banned_first": (1,)}, None, 0, True, True),
        ({}, 2, 0, True, True),
        ({"frequency_penalty": 0.5}, None, 3, True, True),
        ({"frequency_penalty": 0.5}, None, 0, True, False),
        ({}, None, 3, True, False),
        ({"forced": (1,)}, 2, 3, False, False),
    ],
)
def test_what_draws_behind_an_answer_were_once_not_given(asked, keep, generated, complete, expected):
    start = replace(NOTHING, keep=keep, generated=generated, complete=complete)
    assert _begins_behind(start, Sampling(**asked)) is expected


@pytest.fixture
def drawn(tree):
    """A function that makes a draw of an arm from the nodes it wrote, and its trajectory."""
    task = tree.append([NewNode(kind="task", text="Well?")])[0]
    tree.begin_fork(ForkRecord("arm", task.id, None, None, CARD | {"extra": {}}, {}, None, 0, 0))
    count = itertools.count()

    def make(*nodes, end="done", reason=None):
        at, draw = task.id, next(count)
        for number, node in enumerate(nodes):
            last = number == len(nodes) - 1 and reason is not None
            extra = {"reason": reason} if last else {}
            made = replace(node, parent=at, fork="arm", extra=node.extra | extra, key=f"{draw}/{number}")
            at = tree.append([made])[0].id
        return DrawRecord("arm", draw, at, end), tree.path(at)

    return make


def action(size, turn=0, finish="stop"):
    tokens = token_array(range(size))
    return NewNode(kind="action", tokens=tokens, text="x", noise=NoiseKey(0, 0, 0, turn), finish=finish)


ANSWER = NewNode(kind="observation", text="ok", tokens=token_array([1]))
PUT = NewNode(kind="action", text="y", tokens=token_array([1]), extra={"edit": "insert"})


@pytest.mark.parametrize(
    ("nodes", "limits", "goes_on"),
    [
        # The first turn of the draw itself: as long as today's limit, cut there or not.
        ([action(4)], (None, 4), True),
        ([action(4, finish="length")], (None, 4), True),
        ([action(3)], (None, 4), True),
        ([action(3, finish="length")], (None, 4), False),
        ([action(5)], (None, 4), False),
        ([action(9)], (None, None), True),
        # A draw that the world's answer ended has no turn of its own.
        ([ANSWER], (None, 4), True),
        ([ANSWER], (1, None), True),
        ([action(4), ANSWER, action(4, 1), ANSWER], (2, None), True),
        ([action(4), ANSWER, action(4, 1), ANSWER], (3, None), True),
        ([action(4), ANSWER, action(4, 1), ANSWER], (1, None), False),
        # What was put there is no turn of the draw's.
        ([PUT, ANSWER], (1, None), True),
    ],
)
def test_an_older_draw_goes_as_far_as_todays_limits_let_it(drawn, nodes, limits, goes_on):
    draw, trajectory = drawn(*nodes)
    assert _same_limits(draw, trajectory, _Limits(*limits)) is goes_on


@pytest.mark.parametrize(
    ("reason", "turns", "goes_on"),
    [
        ("turn limit", 2, True),
        ("turn limit", 3, False),
        ("context full", 2, False),
        ("context full", 3, True),
    ],
)
def test_an_older_draw_that_met_a_limit_met_todays(drawn, reason, turns, goes_on):
    draw, trajectory = drawn(action(4), ANSWER, action(4, 1), ANSWER, end="limit", reason=reason)
    assert _same_limits(draw, trajectory, _Limits(turns, None)) is goes_on


def test_an_older_draw_that_failed_is_the_same_under_any_limit(drawn):
    draw, trajectory = drawn(action(9), end="error")
    assert _same_limits(draw, trajectory, _Limits(1, 2))


# What an arm's record says


def test_a_record_says_what_was_asked(tree, start, policy):
    said = fork(start, policy, 1, settings=PLAIN).draws[0].leaf
    inside = tree.at(said, 1)
    plain = prepare(start, policy, 1, settings=PLAIN).record
    assert (plain.node, plain.token, plain.change) == (start.node.id, None, None)
    assert plain.extra == {"identity": plain.extra["identity"]}
    change = Insert(text=" think")
    other = prepare(inside, policy, 1, settings=PLAIN, change=change, exclude_first=4, stream=9, room=3)
    found = other.record
    assert (found.node, found.token, found.change) == (said, 1, change.to_json())
    assert found.stream == 9
    assert found.extra == {"identity": plain.extra["identity"], "exclude_first": 4, "stream": 9, "room": 3}


@pytest.mark.parametrize("change", [None, Insert(text=" think")])
def test_an_arm_of_before_identities_had_a_version_is_gone_on_with(tree, start, policy, change):
    now = prepare(start, policy, 1, settings=PLAIN, change=change).record
    plan = Plan(start, tree.path(start), policy, PLAIN)
    old = tree.begin_fork(replace(now, id=_first_id(now, plan, change, {}), extra={}))
    with Tree.memory() as other:
        again = plant_prompt(other, policy, "Well?")
        other.begin_fork(old)
        assert prepare(again, policy, 1, settings=PLAIN, change=change).record == old


def test_a_draw_of_a_policy_that_repeats_itself_needs_no_other_name(tree, start, policy):
    """What a crash left of it is the same draw, so it is not tried under another name."""
    arm = fork(start, policy, 2, settings=PLAIN)
    (branch,) = prepare(start, policy, [2], settings=PLAIN).branches
    key = f"{arm.record.id}/2/0a"
    tree.append([NewNode(kind="action", parent=start.node.id, keep=branch.keep, key=key, text="x")])
    (branch,) = prepare(start, policy, [2], settings=PLAIN).branches
    assert branch.attempt == ""


# Draws that are tried again, and who does and judges them


def test_another_try_of_an_unpaired_draw_has_a_name_of_its_own(tree, start):
    noise = NoiseKey(0, 0, 3)
    branch = Branch("arm", start.node.id, 2, token_array([]), [], noise)
    names = []
    for _ in range(3):
        names.append(_attempt(tree, branch))
        key = f"arm/3{names[-1]}/0a"
        tree.append([NewNode(kind="action", parent=start.node.id, keep=2, key=key, text="x")])
    assert names == ["", "~1", "~2"]


def test_another_try_behind_a_whole_turn_has_a_name_of_its_own(tree, start):
    """There the answer is the first that a draw writes."""
    branch = Branch("arm", start.node.id, None, token_array([]), [], NoiseKey(0, 0, 3), complete=True)
    key = "arm/3/0o"
    tree.append([NewNode(kind="observation", parent=start.node.id, key=key, text="x")])
    assert _attempt(tree, branch) == "~1"
    assert _attempt(tree, replace(branch, complete=False)) == ""


def test_a_draw_that_never_ends_is_given_up():
    asked = []
    full = SimpleNamespace(has=lambda node: asked.append(node) or True)
    with pytest.raises(BadInput, match="10,000 times"):
        _attempt(full, Branch("arm", "at", None, token_array([]), [], NoiseKey(0, 0, 3)))
    assert len(asked) == len(set(asked)) == 10_000


def test_what_an_arm_took_adds_up():
    assert Used(3, 1, 2.5).plus(4, 5) == Used(7, 6, 2.5)


class Elsewhere:
    """A backend that does the draws here, and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def run(self, jobs, **given):
        self.asked.append((list(jobs), given))
        for job in jobs:
            run_jobs([job], judge=given["judge"])
        return {job.record.id: Used(11, 2) for job in jobs}


def test_a_backend_is_asked_with_all_that_the_call_says(start, policy, judge):
    backend, told = Elsewhere(), []
    arm = fork(
        start,
        policy,
        3,
        settings=PLAIN,
        judge=judge,
        backend=backend,
        progress=lambda *a, **_: told.append(a),
    )
    ((jobs, given),) = backend.asked
    assert [len(job.branches) for job in jobs] == [3]
    assert (given["judge"], given["stage"]) == (judge, "forking")
    given["progress"]("here", 1, 2)
    assert told[-1] == ("here", 1, 2)
    assert (arm.tokens, arm.ties) == (11, 2)
    assert 0 < arm.seconds < 3600
    assert None not in arm.values()


def test_the_seconds_of_arms_are_those_of_their_own_batch(start, policy, monkeypatch):
    """Arms of other settings are another batch: what the first took is not told again of the second."""
    clock = [0.0]

    class Slow:
        def __getattr__(self, name):
            return getattr(policy, name)

        def sample(self, requests, settings):
            clock[0] += 4.0
            return policy.sample(requests, settings)

    monkeypatch.setattr(arm_module.time, "monotonic", lambda: clock[0])
    slow = Slow()
    jobs = [
        prepare(start, slow, 2, settings=PLAIN.but(temperature=t), seed=s)
        for t, s in ((1.0, 0), (0.5, 0), (1.0, 1))
    ]
    assert [arm.seconds for arm in run_jobs(jobs)] == [2.0, 4.0, 2.0]


def test_the_stage_of_a_fork_is_forking(start, policy, judge):
    stages = []
    run_jobs(
        [prepare(start, policy, 4, settings=PLAIN)], judge=judge, progress=lambda *a, **_: stages.append(a[0])
    )
    assert set(stages) == {"forking"}


def test_a_judge_is_asked_once_of_a_draw_and_never_of_one_that_failed(tree, start, policy):
    arm = fork(start, policy, 4, settings=PLAIN)
    tree.finish_draws([DrawRecord(arm.record.id, 9, start.node.id, "error", "lost")])
    unsure = Counting(None, "unsure")
    more = fork(start, policy, 10, settings=PLAIN, judge=unsure)
    assert sorted(unsure.asked) == sorted(draw.leaf for draw in more.draws if draw.end != "error")
    assert len(unsure.asked) == 9
    sure = Counting(1.0, "sure")
    for _ in range(2):
        fork(start, policy, 4, settings=PLAIN, judge=sure)
    assert len(sure.asked) == 9, "what it has graded already it is not asked again"


def test_arms_of_two_policies_are_two_batches_and_each_counts_its_own(tree, start, policy):
    """Tokens and ties are of the arm's own draws in this call; the second call draws nothing."""
    other = ScriptedPolicy.from_chain({"": {" guess": 1.0}, " guess": {"": 1.0}}, name="other")
    greedy = PLAIN.but(temperature=0.0)
    for settings in (PLAIN, greedy):
        jobs = [
            prepare(start, one, 3, settings=settings, any_weights=True, change=change)
            for one, change in ((policy, None), (other, SwapPolicy(other)))
        ]
        first, second = run_jobs(jobs)
        assert {leaf.leaf.text for leaf in second.leaves()} == {" guess"}
        for arm in (first, second):
            assert arm.tokens == sum(leaf.leaf.length for leaf in arm.leaves())
        assert (first.ties > 0, second.ties) == (settings is greedy, 0), "the chain's first choice is even"
        again = run_jobs([prepare(start, policy, 3, settings=settings, any_weights=True)])[0]
        assert (again.tokens, again.ties) == (0, 0)


@pytest.mark.parametrize("backend", [None, "elsewhere"])
@pytest.mark.parametrize("draws", [(1,), (3, 1)])
def test_the_time_of_a_call_is_shared_by_its_draws(start, policy, monkeypatch, backend, draws):
    """Eight seconds pass between any two looks at the clock, or between the first and the last."""
    clock = itertools.count(100.0, 8.0)
    monkeypatch.setattr("refork.forking.arm.time", SimpleNamespace(monotonic=lambda: next(clock)))
    jobs = [prepare(start, policy, count, settings=PLAIN, seed=number) for number, count in enumerate(draws)]
    # A backend here draws through run_jobs itself, which asks the clock for every job.
    given = None if backend is None else SimpleNamespace(
        run=lambda jobs, **_: {job.record.id: Used() for job in jobs if _draw_all(job)}
    )  # fmt: skip
    arms = run_jobs(jobs, backend=given)
    assert [arm.seconds for arm in arms] == [8.0 * count / sum(draws) for count in draws]


def _draw_all(job):
    tree = job.point.tree
    tree.finish_draws(
        [DrawRecord(job.record.id, b.noise.draw, job.point.node.id, "done") for b in job.branches]
    )
    return True


@pytest.mark.parametrize("change", [None, Insert(text=" think")])
@pytest.mark.parametrize("named", [None, "household:1"])
def test_the_id_of_an_arm_before_identities_had_a_version(tree, start, policy, change, named):
    """As trees on disk have it: the digest of these seven, in this order."""
    world = None if named is None else open_world(named)
    card = policy.card
    plan = Plan(start, tree.path(start), policy, PLAIN, world)
    record = ForkRecord("", start.node.id, None, None, {}, {"max_tokens": 8}, None, 7, 0)
    body = [
        start.address, None if change is None else change.to_json(), [card.weights, card.tokenizer],
        {"max_tokens": 8}, None if world is None else [world.name, world.version], 7, {"stream": 3},
    ]  # fmt: skip
    expected = hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=16).hexdigest()
    assert _first_id(record, plan, change, {"stream": 3}) == expected


def test_turns_that_a_simulator_may_answer(tree, start):
    trajectory = tree.path(start)
    assert _turns_left(trajectory, None, None) is None
    assert _turns_left(trajectory, None, None, simulated=True) == TURNS
    assert _turns_left(trajectory, None, 1, simulated=True) == 1
    said = NewNode(kind="action", parent=start.node.id, text="ls")
    turned = tree.append([said])[0]
    seen = NewNode(kind="observation", parent=turned.id, text="a", origin="simulated")
    again = tree.path(tree.append([seen])[0])
    assert _turns_left(again, None, 3, simulated=True) == 2
    assert _turns_left(again, None, 1, simulated=True) == 1, "there is always one"


@pytest.mark.parametrize(
    ("complete", "generated", "room", "left"),
    [
        (True, 0, 5, None),
        (True, 0, None, None),
        (False, 0, None, None),
        (False, 0, 5, 5),
        (False, 0, 50, 8),
        (False, 3, None, 5),
        (False, 3, 4, 4),
    ],
)
def test_the_room_of_a_draws_first_turn(tree, start, policy, complete, generated, room, left):
    plan = Plan(start, tree.path(start), policy, PLAIN)
    begin = replace(NOTHING, complete=complete, generated=generated)
    assert _within_limit(plan, begin, room) == (begin, left)


def test_a_turn_that_has_said_all_it_may_is_over(tree, start, policy):
    plan = Plan(start, tree.path(start), policy, PLAIN)
    begin = replace(NOTHING, mid_turn=True, generated=PLAIN.max_tokens)
    assert _within_limit(plan, begin, None) == (replace(begin, mid_turn=False, complete=True), None)


def test_as_many_tokens_may_be_forced_as_a_turn_may_still_say(tree, start, policy):
    plan = Plan(start, tree.path(start), policy, replace(PLAIN, forced=(1, 2, 3)))
    begin = replace(NOTHING, mid_turn=True, generated=PLAIN.max_tokens - 3)
    assert _within_limit(plan, begin, None) == (begin, 3)
    with pytest.raises(BadChange, match="3 tokens are forced, and the turn may say 2 more"):
        _within_limit(plan, replace(begin, generated=PLAIN.max_tokens - 2), None)
