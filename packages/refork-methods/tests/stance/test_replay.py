from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork_methods.stance.prompts import rollouts
from refork_methods.stance.replay import causal_cuts, stance_trace
from refork_methods.stance.segments import word_chunks
from refork_testbed.worlds.refusal.distribution import stances
from refork_testbed.worlds.refusal.truth import performative_share


def lean(word):
    return stances([word])[0]


def traces(made, count=2, annotators=(lean,), **options):
    return [
        stance_trace(case, node, made.marker, annotators, chunker=word_chunks, **options)
        for case in made.cases
        for node in rollouts(case, made.policy.card)[:count]
    ]


def judged(made, some, **options):
    return causal_cuts(some, made.policy, made.panel, made.marker, **({"k": 40} | options))


def test_chunks_end_where_their_tokens_end(planted):
    made = planted("D", 2, 2)
    for trace in traces(made):
        for chunk, end in zip(trace.chunks, trace.ends, strict=True):
            kept = made.policy.decode(trace.node.tokens[:end])
            assert kept.endswith(chunk.text)
        assert list(trace.labels) == [lean(chunk.text) for chunk in trace.chunks]


def test_in_world_d_every_turn_moves_the_outcome_the_way_it_says(planted):
    made = planted("D", 6, 2)
    some = traces(made)
    found = judged(made, some)
    turns = sum(len(t.turns()) for t in some)
    assert len(found.table.cuts) == turns > 10
    assert found.table.performative.estimate == performative_share(made.world.distribution) == 0.0
    assert found.table.agreement.estimate == 1.0
    assert found.table.cells["locked meaningful"] == turns
    assert found.per_trace == found.meaningful_per_trace == turns / len(some)


def test_in_world_p_no_turn_does(planted):
    # About 60 turns of nothing; one false "meaningful" in at most 5 % of seeds.
    made = planted("P", 6, 2)
    found = judged(made, traces(made, 1))
    assert found.table.performative.estimate >= 0.95
    assert found.with_turns.estimate == 1.0
    assert found.kappa is None


def test_in_world_c_only_the_deciding_word_does(planted):
    made = planted("C", 6, 2)
    found = judged(made, traces(made, 1), k=60)
    behind = [cut for cut, at in zip(found.table.cuts, found.positions, strict=True) if at.before > 10]
    assert behind
    assert not any(cut.meaningful for cut in behind)
    assert all(cut.locked for cut in behind)


def test_loops_and_torn_traces_are_set_apart(planted):
    made = planted("D", 2, 1)
    torn = traces(made, 1, [lambda w: 1, lambda w: 0, lambda w: -1])
    assert {t.fate for t in torn} == {"unresolved"}
    loops = traces(made, 1, loop=5)
    assert {t.fate for t in loops} == {"loop"}
    found = judged(made, [*torn, *loops])
    assert found.traces == {"kept": 0, "loop": 2, "unresolved": 2, "unopened": 0, "unclosed": 0}
    assert found.per_trace is found.with_turns is None
    assert found.kappa == pytest.approx(-0.5)
    assert found.table.cuts == ()


def test_the_kappa_of_agreeing_annotators_is_one(planted):
    made = planted("D", 1, 1)
    assert judged(made, traces(made, 1, [lean] * 3)).kappa == pytest.approx(1.0)


def test_again_nothing_is_drawn(planted):
    made = planted("C", 2, 1)
    some = traces(made, 1)
    first = judged(made, some)
    size = len(made.tree)
    assert judged(made, some) == first
    assert len(made.tree) == size


def test_refusals(planted):
    made = planted("D", 1, 1)
    with pytest.raises(BadInput, match="odd number"):
        traces(made, 1, [lean, lean])
    with pytest.raises(BadInput, match="need a trace"):
        judged(made, [])
    with pytest.raises(BadInput, match="two answers"):
        judged(made, traces(made, 1), k=1)
    cut = made.policy.encode(" zz")
    other = made.marker.__class__(made.marker.open, cut)
    node = rollouts(made.cases[0], made.policy.card)[0]
    unclosed = stance_trace(made.cases[0], node, other, [lean])
    assert (unclosed.fate, unclosed.turns()) == ("unclosed", [])
    forced = stance_trace(made.cases[0], node, other, [lean], force_unclosed=True)
    assert forced.fate == "kept"
    unopened = stance_trace(made.cases[0], node, made.marker.__class__(cut, made.marker.close), [lean])
    assert (unopened.fate, unopened.turns()) == ("unopened", [])
    # One rollout like these is a count beside the others; nothing else is refused.
    found = judged(made, [*traces(made, 1), unclosed, unopened])
    assert (found.traces["unclosed"], found.traces["unopened"]) == (1, 1)
    assert found.traces["kept"] == judged(made, traces(made, 1)).traces["kept"]
    with pytest.raises(BadInput, match="never opened in any of 2"):
        judged(made, [unopened, unopened])
    with pytest.raises(BadInput, match="1 never close"):
        judged(made, [unopened, unclosed])
