from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.forking.arm import fork
from refork.forking.change import Insert
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.runs.recipe import resolve
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork_methods.activations import ActivationStore
from refork_methods.probe import load_probe, position_states, prompt_sweep, read_rows, thinking_states
from refork_methods.probe.on_tree import SCORE, content_span
from refork_methods.probe.run import ProbeRecipe, leaks, run_fit
from refork_methods.probe.sweep import anchors, sweep_layers
from refork_methods.probe.tally import ceiling_report, read_tallies, tallies_of
from refork_methods.stance.marker import marker_of
from refork_methods.stance.prompts import plant_cases, read_prompts
from support.models import tiny_policy

# A random model of bytes says anything; what it says is called a refusal where it holds an early letter.
REFUSES = r"[A-Fa-f]"
LAW = Sampling(max_tokens=5)


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    file = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    rows = [
        {"prompt": f"{word} {n}", "intent": "harmful" if n % 2 else "benign", "source": f"s{n % 3}"}
        for n, word in enumerate(["hack", "help", "tell", "make"] * 10)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def recipe(prompts, **more):
    return resolve(
        ProbeRecipe, None, ["sampling.max_tokens=5"], {}, tree="here", policy="tiny", prompts=str(prompts),
        refusal_regex=REFUSES, opening="", close="<end>", **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def done(policy, prompts, tmp_path_factory):
    """A run on a tree, with its folder and report."""
    folder = tmp_path_factory.mktemp("run")
    tree = Tree.open(folder / "tree.db")
    told = run_fit(folder, recipe(prompts, draws=6, permutations=20, sweep=True), tree, policy)
    yield tree, folder, told
    tree.close()


@pytest.fixture(scope="module")
def rows(done, policy, prompts):
    cases = plant_cases(done[0], policy, read_prompts(prompts.read_text().splitlines()))
    return read_rows(done[0], cases, policy.card, marker_of(policy, "<end>", ""))


def test_a_run_reports_every_auroc_beside_its_ceiling(done):
    _, folder, told = done
    assert told["rows"]["rollouts"] == 240
    assert told == json.loads((folder / "report.json").read_text())
    for probe in told["probes"].values():
        for part in (probe["pooled"], *probe["within"].values()):
            assert (part["ceiling"] is None) != (part["no_ceiling"] is None)
    assert told["probes"]["last_prompt"]["pooled"]["ceiling"]["rollouts"] == [6, 6]
    assert len(told["curve"]["above"]) == 100
    assert len(told["sweep"]["areas"][0]) == 21
    assert leaks(told) == []


def test_the_same_run_again_draws_nothing(done, policy, prompts):
    tree, folder, told = done
    before = len(tree)
    again = run_fit(folder, recipe(prompts, draws=6, permutations=20, sweep=True), tree, policy)
    assert len(tree) == before
    assert again == told


def test_what_was_read_is_not_read_again(done, rows, policy, prompts, monkeypatch, tmp_path):
    tree, folder, told = done
    plain = position_states(rows, policy, "first_thinking")

    def refuse(*_, **__):
        raise AssertionError("the model was run")

    monkeypatch.setattr(type(policy), "hidden_states", refuse)
    assert run_fit(folder, recipe(prompts, draws=6, permutations=20, sweep=True), tree, policy) == told
    kept = folder / "states" / "first_thinking"
    np.testing.assert_array_equal(position_states(rows, policy, "first_thinking", folder=kept), plain)
    held = ActivationStore.open(kept)
    assert held.layers == (-1,)
    assert held.index.tolist() == [0] * len(held)
    firsts = {row.node.id: row.token for row in rows.rows}
    assert [firsts[node] for node in held.nodes] == held.tokens.tolist()
    with pytest.raises(BadInput, match="other activations"):
        position_states(rows, policy, "first_thinking", [0], folder=kept)
    mine = [row for row in rows.rows if row.node.id in set(held.nodes) and row.end > 1]
    shifted = rows.only(replace(row, first=1) for row in mine)
    with pytest.raises(BadInput, match="other tokens"):
        position_states(shifted, policy, "first_thinking", folder=kept)


def test_a_stopped_reading_goes_on_where_it_stopped(rows, policy, tmp_path, monkeypatch):
    class Halt(Exception):
        pass

    def stop(stage, done, total, **more):
        if done == 64:
            raise Halt

    asked = []
    read = type(policy).hidden_states

    def counting(self, sequences, *more):
        asked.append(len(sequences))
        return read(self, sequences, *more)

    plain = position_states(rows, policy, "first_thinking")
    monkeypatch.setattr(type(policy), "hidden_states", counting)
    with pytest.raises(Halt):
        position_states(rows, policy, "first_thinking", progress=stop, folder=tmp_path / "s")
    assert asked == [32, 32]
    found = position_states(rows, policy, "first_thinking", folder=tmp_path / "s")
    assert sum(asked) == len(ActivationStore.open(tmp_path / "s"))
    np.testing.assert_array_equal(found, plain)


def test_pooling_from_the_shards_is_pooling(rows, policy, tmp_path):
    some = rows.only(rows.rows[:40])
    plain = thinking_states(some, policy, how="pooling", positions=3)
    for _ in range(2):
        kept = thinking_states(some, policy, how="pooling", positions=3, folder=tmp_path / "new")
        np.testing.assert_array_equal(kept, plain)
    assert len(ActivationStore.open(tmp_path / "new" / "thinking-pooling")) == sum(r.end for r in some.rows)


def test_scores_are_written_with_their_producer(done, rows):
    tree, folder, _ = done
    made = [p for p in tree.producers() if p.name == "first-token-probe"]
    assert {p.config["position"] for p in made} == {"last_prompt", "first_thinking"}
    for producer in made:
        found = tree.score_map(SCORE, [row.node for row in rows.rows], producer.id)
        assert len(found) == 240
        assert all(0 < value < 1 for value in found.values())
    probe, linear, about = load_probe(folder / "last_prompt.safetensors")
    assert (probe.position, about["policy"]) == ("last_prompt", "tiny")
    assert linear.weight.shape == (32,)


def test_more_rollouts_make_another_fit_and_another_producer(policy, prompts, tmp_path):
    with Tree.open(tmp_path / "tree.db") as tree:
        for draws in (4, 6):
            run_fit(tmp_path, recipe(prompts, draws=draws, curve="none"), tree, policy)
        assert sum(p.name == "first-token-probe" for p in tree.producers()) == 4


def test_states_are_the_models_own(rows, policy):
    some = rows.only(rows.rows[:12])
    last = position_states(some, policy, "last_prompt", [0, -1])
    first = position_states(some, policy, "first_thinking", [0, -1])
    for i, row in enumerate(some.rows):
        prompt = some.tree.path(some.cases[row.case].root).tokens
        whole = np.concatenate([prompt, row.node.tokens]).astype(np.int32)
        states = policy.hidden_states([whole], [0, -1])[0]
        np.testing.assert_allclose(last[:, i], states[:, len(prompt) - 1], atol=1e-4)
        np.testing.assert_allclose(first[:, i], states[:, len(prompt)], atol=1e-4)
    # Rollouts of a prompt share its last state to the bit.
    np.testing.assert_array_equal(last[:, 0], last[:, 1])


def test_the_thinking_is_read_from_its_first_token_to_its_last(rows, policy, tmp_path):
    some = rows.only(rows.rows[:3])
    found = thinking_states(some, policy, folder=tmp_path, positions=7)
    assert found.shape == (3, 7, 32)
    row = some.rows[0]
    prompt = some.tree.path(some.cases[0].root).tokens
    whole = np.concatenate([prompt, row.node.tokens[: row.end]]).astype(np.int32)
    states = policy.hidden_states([whole], [-1])[0][0]
    np.testing.assert_allclose(found[0, 0], states[len(prompt)], atol=2e-2, rtol=2e-3)
    np.testing.assert_allclose(found[0, -1], states[-1], atol=2e-2, rtol=2e-3)
    np.testing.assert_array_equal(found, thinking_states(some, policy, positions=7))


def test_an_opening_marker_is_not_the_first_thought(policy):
    tree = Tree.memory()
    cases = plant_cases(tree, policy, read_prompts(['{"prompt": "x", "intent": "benign"}']))
    arm = fork(cases[0].root, policy, 2, settings=LAW.but(forced=tuple(policy.encode("<t>").tolist())))
    producer = tree.add_producer(Producer("judge"))
    tree.add_scores(Score(draw.leaf, "refusal", 1.0, producer) for draw in arm.draws)
    found = read_rows(tree, cases, policy.card, marker_of(policy, "<end>", "<t>"))
    assert [row.first for row in found.rows] == [3, 3]
    assert found.rows[0].token == found.rows[0].node.tokens[3]
    assert found.to_json()["without_thinking"] == 0
    unopened = read_rows(tree, cases, policy.card, marker_of(policy, "<end>", "<other>"))
    assert unopened.to_json()["without_thinking"] == 2
    with pytest.raises(BadInput, match="no thinking token"):
        position_states(unopened, policy, "first_thinking")
    with pytest.raises(BadInput, match="no thinking to read"):
        thinking_states(unopened, policy)


def test_rollouts_that_said_something_else_before_the_opening_share_no_state(policy):
    tree = Tree.memory()
    cases = plant_cases(tree, policy, read_prompts(['{"prompt": "x", "intent": "benign"}']))
    heads = [tuple(policy.encode(head).tolist()) for head in ("<t>a", "so<t>a", "so<t>a")]
    arms = [
        fork(cases[0].root, policy, 1, settings=Sampling(max_tokens=8, forced=h), seed=n)
        for n, h in enumerate(heads)
    ]
    producer = tree.add_producer(Producer("judge"))
    leaves = [draw.leaf for arm in arms for draw in arm.draws]
    tree.add_scores(
        Score(leaf, "refusal", v, producer) for leaf, v in zip(leaves, (1.0, 0.0, 0.0), strict=True)
    )
    found = read_rows(tree, cases, policy.card, marker_of(policy, "<end>", "<t>"))
    rows = sorted(found.rows, key=lambda row: row.first)
    assert len({row.token for row in rows}) == 1
    found = found.only(rows)
    assert found.sharing(found, "first_thinking") == ([1, 0, 0], [1, 2, 2])
    assert found.sharing(found, "first_thinking", token_alone=True) == ([1, 1, 1], [3, 3, 3])
    states = position_states(found, policy, "first_thinking")[0]
    prompt = tree.path(cases[0].root).tokens
    for state, row in zip(states, rows, strict=True):
        whole = np.concatenate([prompt, row.node.tokens[: row.first + 1]]).astype(np.int32)
        np.testing.assert_allclose(state, policy.hidden_states([whole], [-1])[0][0, -1], atol=1e-4)


def test_a_policy_that_cannot_be_swept_costs_the_sweep_alone(policy, prompts, tmp_path, monkeypatch):
    def cannot(*_, **__):
        raise CannotDo("no frame")

    monkeypatch.setattr("refork_methods.probe.run.prompt_sweep", cannot)
    with Tree.memory() as tree:
        asked = recipe(prompts, draws=6, curve="none", sweep=True)
        told = run_fit(tmp_path, asked, tree, policy)
    assert told["notes"] == ["no prompt sweep: no frame"]
    assert told["probes"]["last_prompt"]["pooled"] is not None


def test_changed_arms_other_policies_and_ungraded_rollouts_are_no_rows(policy):
    tree = Tree.memory()
    cases = plant_cases(tree, policy, read_prompts(['{"prompt": "x", "intent": "benign"}']))
    root = cases[0].root
    arms = [
        fork(root, policy, 3, settings=LAW),
        fork(root, policy, 2, Insert(text="no"), settings=LAW),
        fork(root, tiny_policy(1), 4, settings=LAW),
    ]
    producer = tree.add_producer(Producer("judge"))
    leaves = [draw.leaf for arm in arms for draw in arm.draws]
    tree.add_scores(Score(leaf, "refusal", 0.5, producer) for leaf in leaves[1:])
    found = read_rows(tree, cases, policy.card, marker_of(policy, "<end>", ""))
    assert (len(found.rows), found.ungraded) == (2, 1)
    # A tie of the guards complies.
    assert not found.labels.any()
    with pytest.raises(BadInput, match="2 policies"):
        tallies_of(tree, cases)
    with pytest.raises(BadInput, match="ungraded"):
        read_rows(tree, cases, policy.card, marker_of(policy, "<end>", ""), "other")


def test_a_remote_or_scripted_policy_cannot_be_probed(rows, prompts, tmp_path):
    for call in (
        lambda: run_fit(tmp_path, recipe(prompts), Tree.memory(), open_policy("scripted:coin")),
        lambda: position_states(rows, open_policy("scripted:coin")),
        lambda: prompt_sweep(rows, open_policy("scripted:coin"), [0]),
    ):
        with pytest.raises(CannotDo, match="local model"):
            call()


def test_anchors_lie_in_the_users_words(policy):
    text = "how do I do it"
    tokens = policy.render([], np.zeros(0, dtype=np.int32), [{"role": "user", "content": text}]).tokens
    begin, end = content_span(policy, tokens)
    assert policy.decode(tokens[begin:end]).strip() == text
    assert anchors(begin, end)[0] == begin
    assert anchors(begin, end)[-1] == end - 1
    assert anchors(3, 4, 3) == [3, 3, 3]
    with pytest.raises(BadInput):
        anchors(3, 3)
    empty = policy.render([], np.zeros(0, dtype=np.int32), [{"role": "user", "content": ""}]).tokens
    with pytest.raises(CannotDo, match="cannot be found"):
        content_span(policy, empty)


@pytest.mark.parametrize(
    ("blocks", "layers"), [(8, (0, 2, 4, 6, 8)), (2, (0, 1, 2)), (36, (0, 9, 18, 27, 36))]
)
def test_five_depths(blocks, layers):
    assert sweep_layers(blocks) == layers


def test_tallies_and_their_ceiling(done, prompts, policy):
    cases = plant_cases(done[0], policy, read_prompts(prompts.read_text().splitlines()))
    tallies, ungraded = tallies_of(done[0], cases)
    assert (len(tallies), ungraded) == (40, 0)
    told = ceiling_report(tallies)
    assert told["groups"]["pooled"]["rollouts"] == 240
    assert set(told["groups"]) == {"pooled", "harmful", "benign"}
    one = told["prompts"][0]
    assert one["low"] <= one["rate"] <= one["high"]
    assert ceiling_report(read_tallies(['{"id": "a", "refusals": 1, "rollouts": 1}']))["groups"]["pooled"][
        "no_ceiling"
    ].startswith("one rollout")


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '{"id": "a", "refusals": 3, "rollouts": 2}',
        '{"id": "a", "refusals": 1.5, "rollouts": 2}',
        '{"id": "a", "refusals": true, "rollouts": 2}',
        '{"id": "a", "refusals": 0, "rollouts": 0}',
        "",
    ],
)
def test_lines_that_are_no_tally(line):
    with pytest.raises(BadInput):
        read_tallies([line])
    with pytest.raises(BadInput, match="every prompt needs its own"):
        read_tallies(['{"id": "a", "refusals": 1, "rollouts": 2}'] * 2)


def test_a_missing_prompt_file(policy, tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        run_fit(tmp_path, recipe(tmp_path / "none.jsonl"), Tree.memory(), policy)
