from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from refork.errors import BadInput
from refork.forking.arm import fork
from refork.growing import grow_trees
from refork.growing.plant import plant_prompt
from refork.growing.points import candidates
from refork.growing.selector import PointValues
from refork.growing.uucb import UUCB
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.tree.node import NewNode
from refork.tree.tree import Tree
from refork.types import token_array
from refork.worlds.open import open_world
from refork_methods.credit.methods import fixed_pair
from refork_methods.implicit import implicit_advantages
from refork_methods.implicit.aggregate import step_advantages, token_advantages
from refork_methods.implicit.logged import read_scored, realised, scored_line
from refork_methods.implicit.on_tree import (
    NAME,
    model_pairs,
    recorded_pair,
    tree_implicit,
    walk_steps,
)
from refork_methods.implicit.pair import ImplicitPair
from refork_methods.implicit.points import ImplicitValues
from refork_methods.implicit.report import (
    attribution_report,
    best_report,
    predict_report,
    scores_of,
    warnings_of,
)
from refork_methods.implicit.score import scored_tree
from refork_methods.train.batch import trajectories_to_batch


@pytest.fixture(scope="module")
def sampler(policy, reference):
    return LocalPolicy(policy.model, policy.codec, name="sampler", reference=reference)


@pytest.fixture
def grown(sampler):
    with Tree.memory() as tree:
        arms = [
            fork(
                plant_prompt(tree, sampler, f"at the {where}"), sampler, 6,
                settings=Sampling(max_tokens=12), judge=MatchJudge("o"), seed=3,
            )
            for where in ("door", "key")
        ]  # fmt: skip
        yield tree, arms


def walks_of(arms):
    return [trajectory for arm in arms for trajectory in arm.leaves()]


def test_recorded_log_probs_are_those_of_the_pair(grown, policy, reference):
    _, arms = grown
    trajectories = walks_of(arms)
    for mine, again in zip(
        map(recorded_pair, trajectories),
        model_pairs(trajectories, ImplicitPair(policy, reference)),
        strict=True,
    ):
        assert np.array_equal(mine.step_id, again.step_id)
        assert np.allclose(token_advantages(mine), token_advantages(again), atol=1e-5, equal_nan=True)


def test_a_turn_that_ran_into_the_limit_is_cut(grown):
    _, arms = grown
    for trajectory in walks_of(arms):
        assert walk_steps(trajectory).cut.tolist() == [trajectory.leaf.finish == "length"]


def test_a_turn_that_was_forked_in_its_middle_is_one_step(grown, sampler):
    tree, arms = grown
    leaf = max((w.leaf for w in walks_of(arms)), key=lambda node: node.length)
    (inner,) = fork(tree.at(leaf, 2), sampler, 1, settings=Sampling(max_tokens=12), seed=5).leaves()
    steps = walk_steps(inner)
    assert steps.nodes == ((leaf.id, inner.leaf.id),)
    found = recorded_pair(inner)
    dense = token_advantages(found)
    assert np.isfinite(dense).sum() == 2 + inner.leaf.length
    outside = recorded_pair(tree.path(leaf))
    assert np.array_equal(dense[found.step_id >= 0][:2], token_advantages(outside)[outside.step_id >= 0][:2])


def test_scores_are_written_with_both_names_and_once(grown, policy, reference):
    tree, arms = grown
    pair = ImplicitPair(policy, reference, beta=0.5)
    trajectories = walks_of(arms)
    pairs, producer = tree_implicit(tree, trajectories, pair)
    stored = {s.node: s for s in tree.scores(name=NAME)}
    assert set(stored) == {w.leaf.id for w in trajectories}
    (live,) = [p for p in tree.producers() if p.name == "implicit-advantage"]
    assert live.id == producer.id
    assert live.config["reference"]["weights"] == reference.card.weights
    first = token_advantages(pairs[0], 0.5)
    assert np.allclose(stored[trajectories[0].leaf.id].value, first[np.isfinite(first)])
    tree_implicit(tree, trajectories, pair)
    assert len(list(tree.scores(name=NAME))) == len(stored)


def test_recorded_scores_name_the_reference(grown, sampler, reference):
    tree, arms = grown
    _, producer = tree_implicit(tree, walks_of(arms))
    assert producer.config["reference"] == [reference.card.weights]
    assert producer.config["policy"] == [sampler.card.weights]


def test_nothing_is_written_unless_every_walk_can_be_scored(grown):
    tree, arms = grown
    root = arms[0].point.node
    bare = tree.append(
        [NewNode(kind="action", parent=root.id, text="go", tokens=token_array([5]), key="bare")]
    )[0]
    before = len(list(tree.records()))
    with pytest.raises(BadInput, match="no log-probs"):
        tree_implicit(tree, [*walks_of(arms), tree.path(bare)])
    assert len(list(tree.records())) == before


def recorded(tree, **fields):
    root = tree.append([NewNode(kind="task", text="t", tokens=token_array([5, 6]))])[0]
    plain = {"text": "gogo", "tokens": token_array([7, 8]), "offsets": token_array([2, 4])}
    node = tree.append([NewNode(kind="action", parent=root.id, **plain | fields)])[0]
    return tree.path(node)


F = np.float32


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"logprobs": np.array([-1, -1], F)}, "no reference log-probs"),
        (
            {"logprobs": np.array([-1, -1], F), "ref_logprobs": np.array([-1, -2], F),
             "settings": {"temperature": 0.7}},
            "temperature 0.7",
        ),
        (
            {"logprobs": np.array([-1, -1], F), "ref_logprobs": np.array([-1, -2], F),
             "settings": {"top_p": 0.9}},
            "another distribution",
        ),
        (
            {"logprobs_t1": np.array([-1, -1], F), "ref_logprobs": np.array([-1, -np.inf], F)},
            "reference gives token 3 'go' the log-prob -inf",
        ),
    ],
)  # fmt: skip
def test_records_that_cannot_be_read_are_refused(fields, said):
    with Tree.memory() as tree, pytest.raises(BadInput, match=said):
        recorded_pair(recorded(tree, **fields))


def test_the_law_at_temperature_one_is_read_at_any_sampling_temperature():
    with Tree.memory() as tree:
        trajectory = recorded(
            tree, logprobs=np.array([-9, -9], F), logprobs_t1=np.array([-1, -1], F),
            ref_logprobs=np.array([-3, -2], F), settings={"temperature": 0.7},
        )  # fmt: skip
        assert step_advantages(recorded_pair(trajectory)).tolist() == [3.0]


def test_forced_tokens_were_nobodys_choice():
    with Tree.memory() as tree:
        trajectory = recorded(
            tree, logprobs_t1=np.array([-9, -1], F), ref_logprobs=np.array([-1, -2], F),
            settings={"forced": [7]},
        )  # fmt: skip
        assert step_advantages(recorded_pair(trajectory)).tolist() == [1.0]


def test_advantages_fit_the_trainer(grown):
    _, arms = grown
    trajectories = walks_of(arms[:1])
    outcomes = np.array([1.0, 0, 0, 1, 0, 0])
    dense = implicit_advantages(trajectories, outcomes, coefficient=0.5, normalise="mean")
    plain = implicit_advantages(trajectories, outcomes, coefficient=0.0, normalise="mean")
    for trajectory, row, base, outcome in zip(trajectories, dense, plain, outcomes, strict=True):
        pair = recorded_pair(trajectory)
        chosen = pair.step_id >= 0
        assert np.array_equal(np.isfinite(row), chosen)
        assert np.allclose(base[chosen], outcome - outcomes.mean())
        assert np.allclose(row[chosen] - base[chosen], 0.5 * token_advantages(pair)[chosen])
    batch = trajectories_to_batch(trajectories, dense)
    assert int(batch.mask.sum()) == sum(w.leaf.length for w in trajectories)


def test_a_step_may_share_what_it_earned_and_outcomes_may_stay_unread(grown):
    _, arms = grown
    trajectories = walks_of(arms[:1])
    rows = implicit_advantages(trajectories, [np.nan] * 6, outcome_weight=0.0, spread="step", beta=0.5)
    for trajectory, row in zip(trajectories, rows, strict=True):
        pair = recorded_pair(trajectory)
        total = 0.5 * (pair.policy - pair.reference)[pair.step_id >= 0].sum()
        assert np.allclose(row[pair.step_id >= 0], total)
    ungraded = implicit_advantages(trajectories, [np.nan] * 6)
    assert all(np.isnan(row).all() for row in ungraded)


def test_credit_from_a_fixed_pair(grown, policy, reference):
    tree, arms = grown
    trajectories = walks_of(arms)
    tree_implicit(tree, trajectories, ImplicitPair(policy, reference))
    given = {s.node: s.value for s in tree.scores(name=NAME)}
    mine = implicit_advantages(trajectories, np.zeros(12), scores=given)
    recorded_ = implicit_advantages(trajectories, np.zeros(12))
    for a, b in zip(mine, recorded_, strict=True):
        assert np.allclose(a, b, atol=1e-5, equal_nan=True)
    # The same as a method of credit, which another policy may be trained by.
    outcomes = np.arange(12) % 2.0
    credit = fixed_pair(ImplicitPair(policy, reference, beta=0.5), coefficient=3.0)(trajectories, outcomes)
    wanted = implicit_advantages(trajectories, outcomes, beta=0.5, coefficient=3.0)
    for a, b in zip(credit, wanted, strict=True):
        assert np.allclose(a, b, atol=1e-5, equal_nan=True)
    # A turn that was forced to begin in some way has no stored score, and yet its other tokens are scored.
    last = trajectories[0].steps[-1]
    forced = replace(last.node, settings={**last.node.settings, "forced": last.node.tokens[:1].tolist()})
    steps = (*trajectories[0].steps[:-1], replace(last, node=forced))
    begun = replace(trajectories[0], steps=steps)
    found = fixed_pair(ImplicitPair(policy, reference, beta=0.5), coefficient=3.0)(
        [begun, *trajectories[1:]], outcomes
    )
    first = len(credit[0]) - last.node.length
    expected = np.where(np.arange(len(credit[0])) == first, np.nan, credit[0])
    assert np.allclose(found[0], expected, atol=1e-5, equal_nan=True)
    with pytest.raises(BadInput, match="no implicit score"):
        implicit_advantages(trajectories, np.zeros(12), scores={})
    with pytest.raises(BadInput, match="scores for"):
        implicit_advantages(trajectories, np.zeros(12), scores={node: [0.0] for node in given})
    with pytest.raises(BadInput, match="12 trajectories but 1"):
        implicit_advantages(trajectories, [0.0])
    with pytest.raises(BadInput, match="spread"):
        implicit_advantages(trajectories, np.zeros(12), spread="all")


# -- scored lines and what is made of them ---------------------------------------------------------


def line(name, task, outcome, rows, **more):
    actions = [{"message": m, "policy": p, "reference": r} for m, p, r in rows]
    return {"id": name, "task": task, "outcome": outcome, "actions": actions, **more}


def lines(tmp_path, *given):
    file = tmp_path / "scored.jsonl"
    file.write_text("".join(json.dumps(item) + "\n" for item in given))
    return file


@pytest.fixture
def scored(tmp_path):
    rng = np.random.default_rng(0)
    made = []
    for number in range(24):
        outcome = float(rng.random() < 0.5)
        mine = -rng.exponential(size=3)
        lead = (1.0 if outcome else -1.0) * np.array([0.1, 1.5, 0.2]) + 0.5 * rng.normal(size=3)
        rows = [
            (2 * i + 1, [float(m)], [min(float(m - d), 0.0)])
            for i, (m, d) in enumerate(zip(mine, lead, strict=True))
        ]
        marked = {} if outcome else {"decisive": 3}
        made.append(line(f"n{number}", f"t{number // 4}", outcome, rows, reference={"name": "r"}, **marked))
    return read_scored(lines(tmp_path, *made))


def test_lines_come_back_as_they_were_written(grown, sampler, tmp_path):
    tree, _ = grown
    items = scored_tree(tree, None)
    assert len(items) == 12
    assert all(item.facts.outcome in (0.0, 1.0) for item in items)
    again = read_scored(lines(tmp_path, *map(scored_line, items)))
    for a, b in zip(items, again, strict=True):
        assert a.facts == b.facts
        assert step_advantages(a.pair).tolist() == pytest.approx(
            step_advantages(b.pair).tolist(), nan_ok=True
        )
        assert a.models == b.models
    assert any("cut" in text for text in warnings_of(items)) == any(item.pair.cut.any() for item in items)


def test_a_tree_is_scored_with_the_beta_of_its_pair(grown, policy, reference):
    tree, _ = grown
    pair = ImplicitPair(policy, reference, beta=0.25)
    assert {item.beta for item in scored_tree(tree, pair)} == {0.25}
    assert {item.beta for item in scored_tree(tree, pair, beta=2.0)} == {2.0}
    assert {item.beta for item in scored_tree(tree, None)} == {1.0}


def test_reports(scored):
    best = best_report(scored)
    assert best["exact"]
    assert best["mean"] < best["expected"] <= best["oracle"]
    assert len(best["picks"]) == 6
    told = predict_report(scored)
    assert told["auroc"]["low"] > 0.5
    assert told["grid"]["sum/sum"] == pytest.approx(told["auroc"]["estimate"])
    assert told["tuned"] is None
    blamed = attribution_report(scored)
    assert len(blamed["failures"]) == told["failures"]
    assert blamed["accuracy"]["lowest"]["exact"] > 0.6
    assert set(blamed["accuracy"]) == {"lowest", "running-sum", "drop"}


def test_perfect_separation_is_not_reported_as_certain(scored):
    won = [item for item in scored if item.facts.outcome == 1.0]
    lost = [item for item in scored if item.facts.outcome == 0.0]
    order = sorted(scores_of(lost, "sum", "sum"))
    apart = [x for x in won if scores_of([x], "sum", "sum")[0] > order[-1]] + lost
    told = predict_report(apart)
    assert told["auroc"]["low"] == told["auroc"]["high"] == 1.0
    assert told["delong"]["low"] < 1.0
    assert any("no width" in note for note in told["warnings"])


def test_tuning_needs_other_trajectories(scored):
    told = predict_report(scored[12:], tune_on=scored[:12])
    assert told["tuned"]["on"] == 12
    with pytest.raises(BadInput, match="12 trajectories to report on were also used"):
        predict_report(scored, tune_on=scored[:12])


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"actions": []}, "no actions"),
        ({"actions": [{"policy": [-1], "reference": [-1]}], "temperature": 0.7}, "temperature 0.7"),
        ({"actions": [{"policy": [-1], "reference": [None]}]}, "reference gives token 0 no log-prob"),
        ({"actions": [{"policy": [-1, -2], "reference": [-1]}]}, "2 policy and 1 reference"),
        (
            {"actions": [{"policy": [-1, -2], "reference": [-1]}, {"policy": [-1], "reference": [-1, -2]}]},
            "2 policy and 1 reference",
        ),
        ({"actions": [{"policy": [-1], "reference": [-2]}], "outcome": float("nan")}, "outcome"),
        ({"actions": [{"policy": [-1], "reference": [-2]}], "reward": float("inf")}, "outcome"),
        ({"actions": [{"policy": [-1], "reference": [-2], "tokens": ["go"]}], "outcome": "won"}, "outcome"),
        (
            {"actions": [{"policy": [-1], "reference": [{"a": -1}], "tokens": ["b"]}]},
            "reference's top 1 leave out token 0 'b'",
        ),
        ({"actions": [{"policy": [-1], "reference": [float("-inf")], "tokens": ["b"]}]}, "token 0 'b'"),
    ],
)
def test_lines_that_cannot_be_read_are_refused(tmp_path, item, said):
    with pytest.raises(BadInput, match=said) as found:
        read_scored(lines(tmp_path, item))
    assert "scored.jsonl:1" in str(found.value.where)
    empty = lines(tmp_path)
    with pytest.raises(BadInput, match="no trajectory"):
        read_scored(empty)


def test_logged_tables_give_the_token_that_was_said():
    assert realised([{"a": -1.0, "b": -2.0}, -3.0], ["b", "c"]) == [-2.0, -3.0]


def test_reports_refuse_what_says_nothing(tmp_path, scored):
    same = read_scored(lines(tmp_path, line("a", "t", 1, [(1, [-1.0], [-1.0])])))
    for report in (best_report, predict_report, attribution_report):
        with pytest.raises(BadInput, match="same everywhere"):
            report(same)
    won = [item for item in scored if item.facts.outcome == 1.0]
    with pytest.raises(BadInput, match="nothing can be told apart"):
        predict_report(won)
    with pytest.raises(BadInput, match="every trajectory succeeded"):
        attribution_report(won)
    with pytest.raises(BadInput, match="no outcome"):
        predict_report(read_scored(lines(tmp_path, line("a", "t", None, [(1, [-1.0], [-2.0])]))))
    with pytest.raises(BadInput, match="token rule"):
        best_report(scored, token="median")
    with pytest.raises(BadInput, match="step rule"):
        best_report(scored, step="median")


# -- values of points ------------------------------------------------------------------------------


def test_values_of_points_for_a_selector(grown, policy, reference):
    tree, arms = grown
    trajectories = walks_of(arms[:1])
    known = candidates(tree, trajectories, inside=2)
    source = ImplicitValues(tree, beta=0.5, prior=0.3)
    assert isinstance(source, PointValues)
    totals = source.totals(known)
    root = known.node.index(trajectories[0].root.id)
    assert totals[root] == 0.0
    assert source.values(known)[root] == pytest.approx(4 * 0.3 * 0.7)
    for node, token, total in zip(known.node, known.token, totals, strict=True):
        trajectory = tree.path(tree.at(node, None if token < 0 else int(token)))
        if node != trajectories[0].root.id:
            assert total == pytest.approx(np.nansum(token_advantages(recorded_pair(trajectory), 0.5)))
    by_models = ImplicitValues(tree, ImplicitPair(policy, reference, beta=0.5), prior=0.3)
    assert np.allclose(by_models.totals(known), totals, atol=1e-5)
    rate = ImplicitValues(tree, prior=0.3, value="win_rate").values(known)
    assert ((rate > 0) & (rate < 1)).all()
    assert "reference=recorded" in source.name
    assert reference.card.weights[:12] in by_models.name
    with pytest.raises(BadInput, match="unknown value"):
        ImplicitValues(tree, value="best")


def test_a_selector_grows_a_tree_by_them(sampler):
    world = open_world("lock")
    with Tree.memory() as tree:
        selector = UUCB(value=ImplicitValues(tree, prior=0.1), entropy_coef=0.0, inside=0)
        groups, log = grow_trees(
            tree, sampler, world, world.tasks("train", 1), selector=selector, leaves=4,
            settings=Sampling(max_tokens=6),
        )[:2]  # fmt: skip
        assert len(groups[0].values()) == 4
    assert "implicit(mixed" in selector.name
    assert any("value" in entry.choice.terms for entry in log)
