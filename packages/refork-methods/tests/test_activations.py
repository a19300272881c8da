"""Hidden states beside a tree: what is written is what is read, by node and token."""

import numpy as np
import pytest
import torch

from refork.decoding.states import Capture, Edit
from refork.errors import BadInput, CannotDo, WrongWeights
from refork.forking import SwapPolicy, fork
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.policies.whitebox import white_box
from refork.tree.tree import Tree
from refork_methods.activations import Activations, ActivationStore, activations_folder
from refork_methods.crosscoder.capture import Capturing, record_activations
from support.chain import TABLE
from support.models import tiny_policy

SETTINGS = Sampling(max_tokens=6, ignore_eos=True)
JUDGE = MatchJudge("a")


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


@pytest.fixture
def tree(tmp_path):
    with Tree.open(tmp_path / "t.db") as made:
        yield made


def drawn(tree, policy, draws=5):
    start = plant_prompt(tree, policy, "hello there")
    arm = fork(start, policy, draws=draws, settings=SETTINGS, judge=JUDGE, seed=3)
    return start, arm, [node for node in tree.walk() if node.kind == "action"]


def rows(node, count, layers=2, width=4, fill=0.0):
    every = np.arange(count, dtype=np.int32)
    states = np.random.default_rng(int(fill)).normal(size=(count, layers, width)).astype(np.float32)
    return Activations(node, every, every + 7, states)


def test_recorded_nodes_are_read_as_the_policy_reads_them(tree, policy):
    _, _, nodes = drawn(tree, policy)
    folder = activations_folder(tree, "whole")
    store = ActivationStore.create(folder, (1, -1, "raw"), policy.card, dtype="float32")
    told = []
    added = record_activations(
        tree, nodes, policy, store, progress=lambda stage, done, total, **_: told.append((done, total))
    )
    assert added == len(store) == 5 * 6
    assert told[-1] == (5, 5)
    again = ActivationStore.open(folder)
    assert again.layers == (1, -1, "raw")
    for node in nodes:
        mine = np.array([name == node.id for name in again.nodes])
        np.testing.assert_array_equal(again.tokens[mine], node.tokens)
        np.testing.assert_array_equal(again.index[mine], np.arange(6))
        trajectory = tree.path(node).tokens
        states = policy.hidden_states([trajectory], [1, -1, "raw"])[0][:, -6:]
        for layer, wanted in zip((1, -1, "raw"), states, strict=True):
            np.testing.assert_array_equal(again.states(layer, mine), wanted)
    # A second time there is nothing left to do.
    assert record_activations(tree, nodes, policy, again) == 0


def test_first_and_last_tokens_only(tree, policy):
    _, _, nodes = drawn(tree, policy)
    for which, place in (("first", 0), ("last", 5)):
        store = ActivationStore.create(activations_folder(tree, which), (1,), policy.card)
        assert record_activations(tree, nodes, policy, store, which=which) == 5
        assert set(store.index) == {place}
    store = ActivationStore.create(activations_folder(tree, "odd"), (1,), policy.card)
    with pytest.raises(BadInput, match="'odd'"):
        record_activations(tree, nodes, policy, store, which="odd")


def test_fresh_states_are_filed_under_the_nodes_they_became(tree, policy):
    seeing = Capturing(policy, Capture((1, -1), "all", "last"))
    start, arm, nodes = drawn(tree, seeing)
    plain = fork(start, policy, draws=5, settings=SETTINGS, judge=JUDGE, seed=3)
    assert [d.leaf for d in plain.draws] == [d.leaf for d in arm.draws]
    store = ActivationStore.create(activations_folder(tree, "fresh"), (1, -1), policy.card, dtype="float32")
    assert seeing.file(tree, nodes, store) == 5 * 7
    assert seeing.file(tree, nodes, store) == 0
    for node in nodes:
        mine = np.array([name == node.id for name in store.nodes])
        np.testing.assert_array_equal(store.index[mine], np.arange(-1, 6))
        trajectory = tree.path(node).tokens
        np.testing.assert_array_equal(store.tokens[mine], trajectory[-7:])
        states = policy.hidden_states([trajectory], [1])[0][0, -7:]
        np.testing.assert_allclose(store.states(1, mine), states, atol=2e-5)
    # Equal draws are several nodes.
    greedy = SETTINGS.but(temperature=0)
    arm = fork(start, seeing, draws=3, settings=greedy, judge=JUDGE, seed=4)
    same = [tree.node(draw.leaf) for draw in arm.draws]
    assert len({node.id for node in same}) == 3
    assert seeing.file(tree, same, store) == 3 * 7
    other = ActivationStore.create(activations_folder(tree, "other"), (0,), policy.card)
    with pytest.raises(BadInput, match="captured"):
        seeing.file(tree, nodes, other)


def test_an_edited_view_is_an_arm_like_any_other(tree, policy):
    start, base, _ = drawn(tree, policy)
    push = torch.linspace(-4, 4, 32)
    view = policy.edited(Edit(1, lambda states: states + push, "push", phase="decode"))
    arm = fork(start, policy, draws=5, settings=SETTINGS, judge=JUDGE, seed=3, change=SwapPolicy(view))
    texts = [[tree.node(d.leaf).text for d in fork_.draws] for fork_ in (base, arm)]
    assert texts[0] != texts[1]
    made = [node for node in tree.walk() if node.weights == view.card.weights]
    assert {node.policy for node in made} == {view.card.name}
    assert len(made) == 5
    assert not list(tree.verify({p.card.name: p for p in (policy, view)}))
    store = ActivationStore.create(activations_folder(tree, "edited"), (1,), view.card, dtype="float32")
    record_activations(tree, made, view, store)
    crossed = ActivationStore.create(activations_folder(tree, "crossed"), (1,), policy.card, dtype="float32")
    with pytest.raises(WrongWeights, match="drawn with"):
        record_activations(tree, made, policy, crossed)
    record_activations(tree, made, policy, crossed, any_weights=True)
    # Only what was drawn is edited: the difference is the push alone at this layer.
    np.testing.assert_allclose(store.states(1) - crossed.states(1), np.tile(push, (30, 1)), atol=1e-4)


def test_shards_are_appended_and_read_as_one(tmp_path, policy):
    store = ActivationStore.create(tmp_path / "a", (0, 1), policy.card, dtype="float32")
    assert (len(store), store.width, store.nodes) == (0, 0, [])
    assert store.tokens.shape == (0,)
    pieces = [rows("a", 3, fill=1), rows("b", 2, fill=2), rows("c", 4, fill=3)]
    for piece in pieces:
        store.append([piece])
        store.flush()
    assert len(list((tmp_path / "a").glob("*.safetensors"))) == 3
    joined = np.concatenate([piece.states for piece in pieces])
    for reader in (store, ActivationStore.open(tmp_path / "a")):
        np.testing.assert_array_equal(reader.states(1), joined[:, 1])
        np.testing.assert_array_equal(reader.states(0, [8, 0, 3, 3]), joined[[8, 0, 3, 3], 0])
        assert reader.nodes == ["a"] * 3 + ["b"] * 2 + ["c"] * 4
        assert reader.done() == {"a", "b", "c"}
    with pytest.raises(BadInput, match="beyond"):
        store.states(0, [9])
    with pytest.raises(BadInput, match="not kept"):
        store.states(2)


def test_a_second_writer_overwrites_nothing(tmp_path, policy):
    one, two = (
        ActivationStore.create(tmp_path / "a", (0, 1), policy.card, dtype="float32") for _ in range(2)
    )
    one.append([rows("a", 3)])
    one.flush()
    two.append([rows("b", 2)])
    with pytest.raises(BadInput, match="somebody else has written"):
        two.flush()
    assert ActivationStore.open(tmp_path / "a").done() == {"a"}
    one.append([rows("c", 2)])
    one.flush()
    (tmp_path / "a" / "000000.safetensors").unlink()
    rest = ActivationStore.open(tmp_path / "a")
    rest.append([rows("a", 3)])
    rest.flush()
    assert ActivationStore.open(tmp_path / "a").done() == {"a", "c"}


def test_half_precision_is_kept_or_refused(tmp_path, policy):
    store = ActivationStore.create(tmp_path / "h", (0, 1), policy.card)
    piece = rows("a", 3)
    store.append([piece])
    store.flush()
    np.testing.assert_allclose(store.states(0), piece.states[:, 0], rtol=1e-3, atol=1e-6)
    large = Activations("b", piece.index, piece.tokens, piece.states * 1e6)
    with pytest.raises(BadInput, match="cannot hold"), np.errstate(over="ignore"):
        store.append([large])
    with pytest.raises(BadInput, match="for 3 tokens"):
        store.append([Activations("b", piece.index, piece.tokens, piece.states[:, :1])])
    with pytest.raises(BadInput, match="for 3 tokens"):
        store.append([Activations("b", piece.index, piece.tokens, piece.states[:, :, :2])])


def test_a_folder_of_another_kind_is_left_alone(tmp_path, policy):
    ActivationStore.create(tmp_path / "a", (0, 1), policy.card)
    ActivationStore.create(tmp_path / "a", (0, 1), policy.card)
    with pytest.raises(BadInput, match="layers"):
        ActivationStore.create(tmp_path / "a", (0,), policy.card)
    with pytest.raises(BadInput, match="dtype"):
        ActivationStore.create(tmp_path / "a", (0, 1), policy.card, dtype="float32")
    with pytest.raises(BadInput, match="bfloat16"):
        ActivationStore.create(tmp_path / "a", (0, 1), policy.card, dtype="bfloat16")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "mine.txt").write_text("mine")
    with pytest.raises(BadInput, match="something else"):
        ActivationStore.create(tmp_path / "x", (0,), policy.card)
    with pytest.raises(BadInput, match="no activations"):
        ActivationStore.open(tmp_path / "x")
    meta = tmp_path / "a" / "meta.json"
    meta.write_text(meta.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(BadInput, match="version 2"):
        ActivationStore.open(tmp_path / "a")


def test_a_broken_shard_is_named(tmp_path, policy):
    store = ActivationStore.create(tmp_path / "a", (0, 1), policy.card)
    store.append([rows("a", 3)])
    store.flush()
    shard = tmp_path / "a" / "000000.safetensors"
    shard.write_bytes(shard.read_bytes()[:40])
    with pytest.raises(BadInput, match="not a shard"):
        ActivationStore.open(tmp_path / "a")


def test_policies_without_an_inside_say_so():
    policy = ScriptedPolicy.from_chain(TABLE)
    with pytest.raises(CannotDo, match="local model"):
        white_box(policy)
    with pytest.raises(CannotDo, match="local model"):
        Capturing(policy, Capture((0,)))
    with Tree.memory() as tree, pytest.raises(BadInput, match="memory"):
        activations_folder(tree, "x")
