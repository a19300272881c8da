from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput, WrongWeights
from refork.forking import fork
from refork.growing.plant import plant_prompt
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork_methods.probe.rows import read_rows
from refork_methods.stance.guards import CallGuard, Panel, panel_of
from refork_methods.stance.label import close_by_force, label
from refork_methods.stance.marker import Marker, marker_of
from refork_methods.stance.prompts import Case, draw_answers, draw_rollouts, rollouts
from refork_methods.stance.resample import Uncut, continuation_variance
from refork_testbed.worlds.refusal.truth import mean_variance

CUTS = (0.2, 0.6, 1.0)


def measure(made, **options):
    given = {"cuts": CUTS, "n_prefix": 4, "n_cont": 8, "resamples": 200} | options
    return continuation_variance(made.cases, made.policy, made.panel, made.marker, **given)


def near(found, truth, errors=4.0):
    """Within so many standard errors of the truth, the error read off the interval."""
    width = max((found.value.high - found.value.low) / 3.92, 0.01)
    return abs(found.value.estimate - truth) <= errors * width


def test_world_d_is_closed_by_force_and_open_when_thinking_goes_on(planted):
    # Free V at 20 % is 0.999 by the closed form. 16 prompts, 4 prefixes, 8 answers; 4 standard errors.
    made = planted("D", 16, 8)
    table = measure(made)
    for cut in CUTS:
        forced, free = table.at(cut, "force_close"), table.at(cut, "free")
        assert forced.value.estimate == 0.0
        assert near(free, mean_variance(made.world.distribution, [0.5], cut, "free"))
    assert table.at(0.2, "free").value.estimate >= 0.9
    assert near(table.at(0), 1.0)
    assert (table.unclosed, table.unvoted, table.errors, table.short) == (0, 0, 0, 0)


def test_world_c_is_a_coin_before_the_word_and_settled_behind_it(planted):
    made = planted("C", 6, 8)
    table = measure(made)
    for mode in ("force_close", "free"):
        assert near(table.at(0.2, mode), 1.0)
        assert table.at(0.6, mode).value.estimate == 0.0
        assert table.at(1.0, mode).value.estimate == 0.0


def test_world_p_says_the_same_in_both_modes(planted):
    made = planted("P", 20, 8)
    truth = {}
    for case, task in zip(made.cases, made.tasks, strict=True):
        q = made.world.truth(task)
        truth.setdefault(case.intent, []).append(4 * q * (1 - q))
    value = float(np.mean([np.mean(v) for v in truth.values()]))
    table = measure(made, n_prefix=2)
    for row in table.rows:
        assert near(row.variance, value), row.cut


def test_total_variance_holds_at_one_mode(planted):
    # Free: what is open plus what the prefix decided is the prompt's own variance, 1 in world D.
    table = measure(planted("D", 24, 8), cuts=(0.8,), modes=("free",), n_prefix=8)
    parts = table.rows[1].parts
    assert parts.total == pytest.approx(parts.within + parts.between)
    assert parts.total == pytest.approx(1.0, abs=0.12)
    assert parts.within == pytest.approx(0.832, abs=0.1)


def test_again_nothing_is_drawn_and_more_continuations_keep_the_first(planted):
    made = planted("D", 4, 4)
    first = measure(made)
    size = len(made.tree)
    assert measure(made) == first
    assert len(made.tree) == size
    more = measure(made, n_cont=10)
    assert len(made.tree) > size
    assert more.rows[1].variance.answers == 10 * 16
    again = measure(made)
    assert again == first


def test_an_interrupted_run_goes_on_to_the_same_result(planted):
    class Halt(Exception):
        pass

    def stop(stage, done, total, **more):
        if stage == "thinking on" and done:
            raise Halt

    whole, halted = planted("D", 4, 4), planted("D", 4, 4)
    with pytest.raises(Halt):
        # Thinking on past the end is sampled first, so it is recorded when this stops.
        measure(halted, cuts=(0.4, 1.5), progress=stop)
    assert measure(halted, cuts=(0.4,)) == measure(whole, cuts=(0.4,))


def test_arms_are_seeded_by_prompt_prefix_cut_and_mode(planted):
    made = planted("D", 3, 2)
    measure(made, cuts=(0.2, 0.4), n_prefix=2)
    seeds = [r.seed for r in made.tree.forks() if r.token is not None]
    assert len(seeds) == len(set(seeds)) == 3 * 2 * 2 * 2


def loose(closing, answer):
    """A policy that thinks "a" and closes with some chance, then answers; a dot ends nothing."""

    def law(text):
        if "</think>" in text:
            return {"": 1.0} if text.rstrip().endswith(("yes", "no")) else answer
        if text.endswith("\n"):
            return {"<think>": 1.0}
        return {"a": 1 - closing, "</think>": closing}

    return ScriptedPolicy.from_text(law, ["<think>", "</think>", "yes", "no"], name=f"loose{closing}")


@pytest.fixture
def thinker():
    policy, tree = loose(0.2, {"yes": 0.5, "no": 0.5}), Tree.memory()
    cases = [Case(plant_prompt(tree, policy, f"{i}?"), "harmful") for i in range(3)]
    draw_rollouts(cases, policy, 4, Sampling(max_tokens=60))
    return policy, cases, marker_of(policy), panel_of(lambda text: "no" in text)


def test_further_thinking_is_forced_with_the_closing_banned(thinker):
    policy, cases, marker, panel = thinker
    table = continuation_variance(cases, policy, panel, marker, cuts=(1.0, 1.6), n_prefix=4, resamples=200)
    assert table.short == 0
    cut = 12 - table.uncut.empty
    assert table.at(1.6, "force_close").groups == table.at(1.6, "free").groups == cut
    close, tree = int(marker.close[0]), cases[0].tree
    extended = [n for n in tree.walk() if close in (n.settings or {}).get("banned", ())]
    assert len(extended) == cut
    for node in extended:
        assert close not in node.tokens
        # A turn opens with one token, so its thinking is one shorter than what is kept of it.
        assert node.length == max(1, int(0.6 * (node.keep - 1) + 1e-9)) + 1
        assert {child.keep for child in tree.children(node)} == {node.length - 1}


def test_prefixes_that_cannot_be_carried_on_are_counted(planted):
    # The planted distribution can say nothing but the closing there, so a ban leaves no token.
    table = measure(planted("D", 2, 2), cuts=(1.5,), n_prefix=2)
    assert table.short == 4
    assert table.at(1.5, "free") is None


def test_a_trace_that_never_closes_needs_forced_closing():
    policy, tree = loose(0.0, {"yes": 0.5, "no": 0.5}), Tree.memory()
    cases = [Case(plant_prompt(tree, policy, "q?"), "harmful")]
    draw_rollouts(cases, policy, 3, Sampling(max_tokens=10))
    marker, panel = marker_of(policy), panel_of(lambda text: "no" in text)
    with pytest.raises(BadInput, match="3 never close it"):
        continuation_variance(cases, policy, panel, marker)
    table = continuation_variance(
        cases, policy, panel, marker, cuts=(0.5, 1.0), force_unclosed=True, resamples=200
    )
    assert table.unclosed == 0
    assert [row.variance.answers for row in table.rows] == [3, 24, 24, 24, 24]


def test_free_draws_that_never_close_are_counted_and_rollouts_that_do_not_think_left_out():
    # Closing has a chance of 0.2 a word and 12 tokens are all there are: many draws run out.
    policy, tree = loose(0.2, {"yes": 0.5, "no": 0.5}), Tree.memory()
    cases = [Case(plant_prompt(tree, policy, "q?"), "benign")]
    draw_rollouts(cases, policy, 30, Sampling(max_tokens=12))
    nodes = rollouts(cases[0], policy.card)
    closed = [n for n in nodes if n.finish == "stop"]
    silent = [n for n in nodes if n.text.startswith("<think></think>")]
    assert silent
    assert 0 < len(closed) < 30
    marker, panel = marker_of(policy), panel_of(lambda text: "no" in text)
    options = {"cuts": (0.2,), "n_prefix": 30, "resamples": 200}
    plain = continuation_variance(cases, policy, panel, marker, **options)
    assert plain.uncut == Uncut(len(silent), 0, sum(marker.close[0] not in n.tokens for n in nodes))
    answered = [n for n in nodes if "yes" in n.text or "no" in n.text]
    assert plain.rows[0].groups[0].answers == len(answered)
    table = continuation_variance(cases, policy, panel, marker, force_unclosed=True, **options)
    assert table.uncut == Uncut(len(silent), 0, 0)
    # What has no answer even so was cut off by its limit right behind the closing marker.
    answers = sum(row.variance.answers for row in table.rows)
    assert table.unclosed > 0
    assert answers + table.unclosed == 30 + 2 * 8 * (30 - len(silent))
    # The same leaves, asked without closing by force, have no answer.
    found = label(tree, [n.id for n in nodes], policy, panel, marker)
    assert len(found.refused) == len(answered) == 30 - len(found.unclosed)


def test_a_missing_vote_leaves_its_answer_out(planted):
    made = planted("D", 3, 3)
    calls = []

    def flaky(text):
        calls.append(text)
        raise ValueError(text)

    panel = Panel((*made.panel.guards, CallGuard(flaky, "flaky"), CallGuard(lambda t: True, "always")))
    found = continuation_variance(made.cases, made.policy, panel, made.marker, cuts=(0.5,), resamples=200)
    assert found.at(0.5, "free") is None
    assert found.unvoted == 3 * 3 + 2 * 9 * 8


def test_only_the_guard_whose_vote_is_missing_is_asked_again(planted):
    made = planted("D", 1, 4)
    leaves = [n.id for case in made.cases for n in rollouts(case, made.policy.card)]
    asked, up = {"one": 0, "two": 0}, False

    def one(text):
        asked["one"] += 1
        if up:
            raise RuntimeError("gone")
        return "refuse" in text

    def two(text):
        asked["two"] += 1
        if not up:
            raise RuntimeError("down")
        return "refuse" in text

    panel = panel_of(one, two, tie="comply")
    assert len(label(made.tree, leaves, made.policy, panel, made.marker).unvoted) == 4
    before = dict(asked)
    up = True
    found = label(made.tree, leaves, made.policy, panel, made.marker)
    assert (len(found.refused), found.unvoted) == (4, frozenset())
    assert asked["one"] == before["one"]
    assert asked["two"] > before["two"]


def test_votes_are_recorded_and_retired_with_their_guard(planted):
    made = planted("D", 2, 2)
    measure(made, cuts=(0.5,))
    guard = made.panel.guards[0].producer
    labels = list(made.tree.scores(name="refusal"))
    assert len(labels) == len(list(made.tree.scores(name="refusal-vote", producer=guard.id)))
    made.tree.retire(guard.id, "wrong")
    assert list(made.tree.scores(name="refusal")) == [
        s for s in labels if s.producer != made.panel.producer.id
    ]


def test_even_splits_follow_the_rule_and_are_counted(planted):
    made = planted("D", 2, 4)
    for tie, refused in (("comply", 0), ("refuse", 8)):
        both = Panel((CallGuard(lambda t: True, "yes"), CallGuard(lambda t: False, "no")), tie)
        table = continuation_variance(made.cases, made.policy, both, made.marker, cuts=(0.5,), resamples=200)
        assert table.ties == 8 + 2 * 8 * 8
        assert sum(g.refused for g in table.rows[0].groups) == refused


def test_answers_without_thinking_and_other_arms_are_no_rollouts(planted):
    made = planted("P", 2, 3)
    arms = draw_answers(made.cases, made.policy, made.marker, 4, Sampling(max_tokens=8))
    assert all("<< >>" in "".join(s.text for s in trajectory.steps[1:]) for trajectory in arms[0].leaves())
    assert len(rollouts(made.cases[0], made.policy.card)) == 3
    before = measure(made, cuts=(0.5,))
    fork(made.cases[0].root, made.policy, 5, settings=Sampling(max_tokens=32, temperature=0.5), seed=9)
    assert len(rollouts(made.cases[0], made.policy.card)) == 8
    assert before.rows[0].groups[0].answers == 3


def test_another_policy_is_refused(planted):
    made = planted("D", 1, 2)
    other = planted("P", 1, 2).policy
    with pytest.raises(BadInput, match="no rollout"):
        continuation_variance(made.cases, other, made.panel, made.marker)
    point = made.tree.at(rollouts(made.cases[0], made.policy.card)[0], 5)
    with pytest.raises(WrongWeights):
        fork(point, other, 2)


def test_refusals(planted):
    made = planted("D", 1, 2)
    for options, told in (
        ({"cuts": ()}, "shares above 0"),
        ({"cuts": (0.2, 0.2)}, "shares above 0"),
        ({"cuts": (0.0,)}, "shares above 0"),
        ({"modes": ("half",)}, "unknown modes"),
        ({"modes": ()}, "unknown modes"),
        ({"n_cont": 1}, "two continuations"),
    ):
        with pytest.raises(BadInput, match=told):
            measure(made, **options)
    with pytest.raises(BadInput, match="no prompts"):
        continuation_variance([], made.policy, made.panel, made.marker)
    empty = Marker(made.policy.encode("<< >>"), made.marker.close)
    with pytest.raises(BadInput, match="never opened"):
        continuation_variance(made.cases, made.policy, made.panel, empty)
    with pytest.raises(BadInput, match="not measured"):
        measure(made).at(0.3, "free")


def test_votes_given_before_a_stop_are_not_asked_for_again(planted, monkeypatch):
    monkeypatch.setattr("refork_methods.stance.label._PAGE", 5)
    made, asked = planted("D", 2, 8), []

    def counting(text):
        asked.append(text)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return "refuse" in text

    leaves = [n.id for case in made.cases for n in rollouts(case, made.policy.card)]
    panel = panel_of(counting)
    with pytest.raises(KeyboardInterrupt):
        label(made.tree, leaves, made.policy, panel, made.marker)
    first = len(list(made.tree.scores(name="refusal-vote")))
    assert first == 5
    asked.extend([""] * 3)
    found = label(made.tree, leaves, made.policy, panel, made.marker)
    assert len(found.refused) == 16
    assert len(list(made.tree.scores(name="refusal-vote"))) == 16


@pytest.fixture
def mixed():
    """A prompt whose turns think and answer, answer at once, or think on to the limit; one without turns."""

    def law(text):
        if text.endswith("\n"):
            return {"<think>": 0.7, "yes": 0.3}
        if text.endswith(("yes", "no")):
            return {"": 1.0}
        if "</think>" in text:
            return {"yes": 0.5, "no": 0.5}
        return {"a": 0.9, "</think>": 0.1}

    policy = ScriptedPolicy.from_text(law, ["<think>", "</think>", "yes", "no"], name="mixed")
    tree = Tree.memory()
    cases = [Case(plant_prompt(tree, policy, f"{name}?"), "harmful") for name in "pq"]
    draw_rollouts(cases[:1], policy, 40, Sampling(max_tokens=12))
    nodes = rollouts(cases[0], policy.card)
    bare = {n.id for n in nodes if "<think>" not in n.text}
    open_ = {n.id for n in nodes if "</think>" not in n.text} - bare
    assert min(len(bare), len(open_), 40 - len(bare) - len(open_)) > 3
    return policy, cases, marker_of(policy), panel_of(lambda text: "no" in text), bare, open_


def test_rollouts_that_never_think_or_never_end_are_data(mixed):
    policy, cases, marker, panel, bare, open_ = mixed
    tree = cases[0].tree
    found = label(tree, [n.id for n in rollouts(cases[0], policy.card)], policy, panel, marker)
    assert found.unopened == bare
    assert open_ <= found.unclosed
    assert len(found.refused) + len(bare) + len(found.unclosed) == 40
    with pytest.raises(BadInput, match=f"any of {len(bare)} turns"):
        label(tree, sorted(bare), policy, panel, marker)
    options = {"cuts": (0.5,), "modes": ("force_close",), "n_prefix": 40, "resamples": 200}
    table = continuation_variance(cases, policy, panel, marker, **options)
    assert (table.unopened, table.bare) == (len(bare), 1)
    assert (table.uncut.unopened, table.uncut.unclosed) == (len(bare), len(open_))
    assert table.rows[1].variance.groups == 40 - len(bare) - len(open_) - table.uncut.empty
    forced = continuation_variance(cases, policy, panel, marker, force_unclosed=True, **options)
    assert (forced.unopened, forced.uncut.unopened, forced.uncut.unclosed) == (len(bare), len(bare), 0)
    assert forced.rows[0].groups[0].answers == 40 - len(bare) - forced.unclosed


def test_a_probe_counts_them_alike_and_reads_answers_behind_a_forced_closing(mixed):
    policy, cases, marker, panel, bare, open_ = mixed
    tree = cases[0].tree
    nodes = [n.id for n in rollouts(cases[0], policy.card)]
    found = label(tree, nodes, policy, panel, marker)
    before = read_rows(tree, cases, policy.card, marker)
    assert (before.unopened, before.unclosed, before.forced) == (len(bare), len(open_), 0)
    assert before.ungraded == 40 - len(found.refused)
    where = close_by_force(tree, nodes, policy, marker)
    assert {leaf for leaf, end in where.items() if leaf != end} == open_
    closed = label(tree, list(where.values()), policy, panel, marker)
    after = read_rows(tree, cases, policy.card, marker)
    assert (after.unopened, after.unclosed, after.forced) == (len(bare), 0, len(open_))
    assert {row.node.id: row.refused for row in after.rows} == {
        leaf: closed.refused[end] for leaf, end in where.items() if end in closed.refused
    }
    # What a cut at the very end drew does not take the place of the answer that stands for the rollout.
    continuation_variance(
        cases, policy, panel, marker, cuts=(1.0,), n_prefix=40, force_unclosed=True, resamples=200
    )
    again = read_rows(tree, cases, policy.card, marker)
    assert [(row.node.id, row.refused) for row in again.rows] == [
        (row.node.id, row.refused) for row in after.rows
    ]
