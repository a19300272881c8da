from __future__ import annotations

from dataclasses import replace

import pytest

from refork.errors import BadChange, WrongTokenizer
from refork.forking import (
    Ban,
    Compose,
    EditMessage,
    Force,
    Insert,
    Remove,
    Replace,
    Set,
    SwapPolicy,
    change_from_json,
    fork,
    parse_change,
)
from refork.forking.change import Plan
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.types import token_array
from support.chain import PLAIN, TABLE


def never(spec: str):  # a policy or world that no test here opens
    raise AssertionError(spec)


def guess_point(tree, start, policy, judge):
    base = fork(start, policy, 40, settings=PLAIN, judge=judge)
    leaf = next(w.leaf for w in base.leaves() if w.leaf.text.startswith(" guess"))
    return tree.at(leaf, 1)


def texts(arm):
    return ["".join(s.text for s in trajectory if s.node.kind == "action") for trajectory in arm.leaves()]


def test_remove_goes_back_before_the_token(tree, start, policy, judge):
    point = guess_point(tree, start, policy, judge)
    arm = fork(point, policy, 60, Remove(1), judge=judge)
    assert {t.split()[0] for t in texts(arm)} == {"think", "guess"}


def test_control_keeps_the_token(tree, start, policy, judge):
    arm = fork(guess_point(tree, start, policy, judge), policy, 30, judge=judge)
    assert {t.split()[0] for t in texts(arm)} == {"guess"}


def test_replace_puts_another_token_in_its_place(tree, start, policy, judge):
    arm = fork(guess_point(tree, start, policy, judge), policy, 30, Replace(1, text=" think"), judge=judge)
    assert {t.split()[0] for t in texts(arm)} == {"think"}
    edit = arm.leaves()[0].steps[-2].node
    assert edit.extra == {"edit": "insert"}
    assert edit.logprobs is None, "an edit was not sampled, so it has no log-prob"


def test_insert_and_force_say_the_same_words_but_only_force_has_logprobs(tree, start, policy, judge):
    inserted = fork(start, policy, 20, Insert(text=" think"), settings=PLAIN, judge=judge)
    forced = fork(start, policy, 20, Force(text=" think"), settings=PLAIN, judge=judge)
    assert {t.split()[0] for t in texts(inserted)} == {t.split()[0] for t in texts(forced)} == {"think"}
    leaf = forced.leaves()[0].leaf
    assert leaf.logprobs_t1[0] == pytest.approx(-0.6931, abs=1e-3)


def test_ban_forbids_the_next_token_only(tree, start, policy, judge):
    arm = fork(start, policy, 40, Ban(text=" guess"), settings=PLAIN, judge=judge)
    assert {t.split()[0] for t in texts(arm)} == {"think"}


def test_edit_message_writes_a_rewrite_node_with_the_whole_context(tree, start, policy, judge):
    arm = fork(start, policy, 5, EditMessage(0, "Really?"), settings=PLAIN, judge=judge)
    trajectory = arm.leaves()[0]
    rewrite = trajectory.context[0].node
    assert rewrite.kind == "rewrite"
    assert "Really?" in rewrite.text
    assert trajectory.root.text == "Well?", "the record itself is never edited"


def test_set_changes_settings(tree, start, policy, judge):
    arm = fork(start, policy, 30, Set(temperature=0), settings=PLAIN, judge=judge)
    assert len(set(texts(arm))) == 1


def test_swap_policy_with_another_tokenizer_retokenises(tree, start, policy, judge):
    other = ScriptedPolicy.from_replies(["always right"])
    arm = fork(start, policy, 3, SwapPolicy(other), settings=PLAIN, judge=judge)
    assert texts(arm) == ["always right"] * 3
    written = arm.leaves()[0].context[0].node
    assert (written.kind, written.extra["reason"]) == ("rewrite", "handed over to another tokenizer")


def test_after_a_swap_the_ids_are_the_other_tokenizers(tree, start, policy):
    """B's turns go on with B; back to A is a swap again, and A reads what was said, not B's ids."""
    other = ScriptedPolicy.from_chain(TABLE | {" aaa": {"": 1.0}}, name="other")
    assert other.card.tokenizer != policy.card.tokenizer
    leaf = fork(start, policy, 1, SwapPolicy(other), settings=PLAIN).leaves()[0].leaf
    point = tree.at(leaf, 1)
    began = leaf.text_upto(1)
    assert policy.decode(leaf.tokens[:1]) != began
    assert [s.node.kind for s in fork(point, other, 2).leaves()[0]] == ["task", "rewrite", "action", "action"]
    back = fork(point, other, 2, SwapPolicy(policy)).leaves()[0]
    assert [s.node.kind for s in back] == ["task", "rewrite", "action", "rewrite", "action"]
    shown = policy.render([], token_array([]), [{"role": "user", "content": "Well?"}]).tokens
    assert back.context[0].tokens.tolist() == [*shown, *policy.encode(began)]
    with pytest.raises(WrongTokenizer, match="another tokenizer"):
        fork(point, policy, 2)


def test_swap_policy_with_the_same_tokenizer_keeps_the_tokens(tree, start, policy, judge):
    other = ScriptedPolicy.from_chain(TABLE | {"": {" think": 1.0, " guess": 0.0}})
    arm = fork(start, policy, 10, SwapPolicy(other), settings=PLAIN, judge=judge)
    assert {t.split()[0] for t in texts(arm)} == {"think"}
    assert all(step.node.kind != "rewrite" for step in arm.leaves()[0])


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (Remove(1), Insert(text=" think")),
        (Remove(1), Remove(2)),
        (Set(temperature=0.5), Set(temperature=0.7)),
        (EditMessage(0, "a"), EditMessage(0, "b")),
        (EditMessage(0, "a"), Remove(1)),
        (Force(text=" think"), Force(text=" guess")),
        (Force(text=" think"), Set(forced=(5,))),
        (Ban(text=" think", always=True), Set(banned=(5,))),
        (Set(banned_first=(5,)), Ban(text=" think")),
        (Compose(Ban(text=" think"), Set(top_k=2)), Set(banned_first=())),
        (Ban(text=" think"), Ban(text=" think", always=True)),
    ],
)
def test_overlapping_changes_are_refused(one, two):
    with pytest.raises(BadChange, match="both change"):
        Compose(one, two)


@pytest.mark.parametrize(
    "changes",
    [
        (Ban(text=" think"), Ban(text=" guess"), Ban(text=" right", always=True)),
        (Ban(text=" a"), Ban(text=" a:b")),
        (Ban(text=" think"), Set(banned=(5,))),
        (Compose(Ban(text=" think"), Ban(text=" guess")), Ban(text=" right")),
    ],
)
def test_bans_of_different_tokens_go_together(changes):
    assert Compose(*changes).changes == changes


def test_changes_that_do_not_overlap_compose(tree, start, policy, judge):
    point = guess_point(tree, start, policy, judge)
    arm = fork(point, policy, 30, Compose(Remove(1), Ban(text=" guess")), judge=judge)
    assert {t.split()[0] for t in texts(arm)} == {"think"}
    assert arm.diff.what == "remove 1 token(s) + ban as the next token"


def test_a_token_cannot_be_forced_and_banned(start, policy):
    with pytest.raises(BadChange, match="both forced and banned"):
        fork(start, policy, 2, Compose(Force(text=" think"), Ban(text=" think")), settings=PLAIN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Remove(5), "cannot take 5"),
        (Remove(0), "cannot take 0"),
        (Insert(), "either token ids or text"),
        (Insert(ids=(10**6,)), "outside the vocabulary"),
        (Insert(ids=(-1,)), "outside the vocabulary"),
        (Insert(text=""), "nothing to put in"),
        (EditMessage(7, "x"), "no message 7"),
    ],
)
def test_impossible_changes_are_refused_with_the_place(tree, start, policy, judge, change, message):
    point = guess_point(tree, start, policy, judge)
    before = tree.stats()
    with pytest.raises(BadChange, match=message) as caught:
        fork(point, policy, 2, change, judge=judge)
    assert "node" in str(caught.value)
    assert tree.stats() == before, "a refused change leaves nothing on the tree"


ROUND_TRIP = [
    "remove:2",
    "replace:1: think",
    "insert: think",
    "ban: guess",
    "ban-always: guess",
    "force: think",
    "message:0:Hello: again",
    "set:temperature=0.5",
    "set:top_k=3",
]


@pytest.mark.parametrize("text", ROUND_TRIP)
def test_a_change_survives_storage(text):
    change = parse_change([text], never, never)
    assert change_from_json(change.to_json(), never, never) == change


def test_several_arguments_compose_and_survive():
    change = parse_change(["remove:1", "set:temperature=0"], never, never)
    assert isinstance(change, Compose)
    assert change_from_json(change.to_json(), never, never).to_json() == change.to_json()
    assert parse_change([], never, never) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("temperature=0", 0), ("temperature=0.5", 0.5), ("temperature=1e-1", 0.1), ("top_k=3", 3),
        ("top_k=none", None), ("top_p=.5", 0.5), ("ignore_eos=false", False), ("ignore_eos=True", True),
        ('stop=["abc"]', ["abc"]), ("banned=[1, 2]", [1, 2]), ("coupling=gumbel", "gumbel"),
        ('grammar={"regex": "a+"}', {"regex": "a+"}),
    ],
)  # fmt: skip
def test_a_setting_is_read_as_what_it_is(start, policy, text, value):
    change = parse_change([f"set:{text}"], never, never)
    assert change == Set({text.partition("=")[0]: value})
    assert type(change.values[text.partition("=")[0]]) is type(value), "what trees hold is as it was written"
    plan = change.apply(Plan(start, start.tree.path(start), policy, PLAIN))
    wanted = Sampling.from_json(PLAIN.to_json() | {text.partition("=")[0]: value})
    assert plan.settings == wanted


SETTINGS = [
    "stop=abc", "stop=7", "top_k=2.5", "temperature=none", "temperature=hot", "ignore_eos=maybe",
    "ignore_eos=1", "banned=[1.5]", "coupling=other", "nonsense=1", "grammar=a+",
    'grammar={"of": "a+"}', 'grammar=["regex", "a+"]',
]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "remove", "remove:x", "nonsense:1", "set:temperature", "replace:1", "message:x:y",
        *(f"set:{text}" for text in SETTINGS),
    ],
)  # fmt: skip
def test_nonsense_is_refused(text):
    with pytest.raises(BadChange):
        parse_change([text], never, never)


@pytest.mark.parametrize("text", ["stop=abc", "stop=7", "banned=7"])
def test_what_should_be_a_list_is_shown_as_one_that_is_taken(text):
    with pytest.raises(BadChange) as refused:
        parse_change([f"set:{text}"], never, never)
    assert parse_change([refused.value.hint], never, never).values


class Told(EditMessage):
    """An edit that says how it came about."""

    def apply(self, plan):
        return replace(super().apply(plan), account={"reason": "cut to the budget", "before": ["a", "b"]})


def test_a_change_may_give_an_account_of_the_context_it_made(tree, start, policy):
    fork(start, policy, 1, Told(0, "Well then?"), settings=PLAIN)
    fork(start, policy, 1, EditMessage(0, "Well then?"), settings=PLAIN, seed=1)
    told, plain = (n for n in tree.walk() if n.kind == "rewrite")
    assert told.extra["account"] == {"reason": "cut to the budget", "before": ["a", "b"]}
    assert told.extra["reason"] == "cut to the budget"
    assert plain.extra["reason"] == "message edited"
    assert "account" not in plain.extra
