"""Activations from policies: stores, live reading, caches, and everything that is not a pair."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from refork.errors import BadInput, Mismatch, WrongTokenizer, WrongWeights
from refork.policies.local import LocalPolicy
from refork_methods.activations import Activations, ActivationStore
from refork_methods.crosscoder.cache import (
    LabelledText,
    cache_for,
    cache_texts,
    cached_tree,
    encode_cache,
    example_of,
    labels_of,
    open_cache,
    read_texts,
)
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.run import CrossCoderRecipe, run_rank, run_train
from refork_methods.crosscoder.sources import Aligned, ArrayPairs, PolicyPairs, StorePairs
from refork_methods.crosscoder.train import TrainSettings, train
from support.models import make_model, make_tokenizer, tiny_policy


@pytest.fixture(scope="module")
def policies():
    return tiny_policy(0), tiny_policy(1)


@pytest.fixture(scope="module")
def other():
    """The same model under another tokenizer."""
    return LocalPolicy(make_model(0, 259), make_tokenizer(["xy"]), name="other")


def texts(count=60):
    rng = np.random.default_rng(0)
    words = ["sun", "rain", "map", "red"]
    told = []
    for i in range(count):
        body = " ".join(rng.choice(words, 3)) + f" {i}"
        told.append(LabelledText(f"call({body})", "tool") if i % 2 else LabelledText(f"say {body}.", "prose"))
    return told


@pytest.fixture(scope="module")
def cached(policies, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    told = cache_texts(texts(), *policies, [1, "raw"], folder, which="all")
    return folder, told


def test_arrays_must_be_pairs():
    source = ArrayPairs(np.zeros((4, 2)), np.ones((4, 3)))
    assert source.d_in == (2, 3)
    assert source.sizes == (4,)
    assert source.digest() != ArrayPairs(np.ones((4, 2)), np.ones((4, 3))).digest()
    for a, b in ((np.zeros((4, 2)), np.zeros((5, 2))), (np.zeros(4), np.zeros(4))):
        with pytest.raises(BadInput, match="are not pairs"):
            ArrayPairs(a, b)


def test_a_cache_holds_what_the_policies_show(cached, policies):
    folder, told = cached
    source = open_cache(folder, 1)
    assert told["texts"] == 60
    assert told["rows"] == sum(source.sizes)
    assert source.d_in == (32, 32)
    a, b = source.chunk(0)
    ids = policies[0].encode(texts()[0].text)
    for states, policy in ((a, policies[0]), (b, policies[1])):
        wanted = policy.hidden_states([ids], [1])[0][0]
        assert np.allclose(states[: len(ids)], wanted, atol=1e-5)
    assert source.origin()["layer"] == 1
    assert source.origin()["B"]["weights"] == policies[1].card.weights
    again = cache_texts(texts(), *policies, [1, "raw"], folder, which="all")
    assert again == told


def test_chunks_cut_a_store_without_losing_a_row(cached):
    whole = open_cache(cached[0], "raw")
    parts = StorePairs(*whole.stores, "raw", chunk_rows=100)
    assert sum(parts.sizes) == sum(whole.sizes)
    assert parts.sizes[0] == 100
    assert len(parts.sizes) > 2
    joined = np.concatenate([parts.chunk(i)[0] for i in range(len(parts.sizes))])
    assert np.array_equal(joined, whole.chunk(0)[0])
    model = CrossCoder((32, 32), 64, 4, seed=0)
    report = train(model, parts, TrainSettings(steps=40, batch=64, log_every=40))
    assert report.log[-1].fve > 0
    assert model.origin["layer"] == "raw"


def test_live_reading_gives_what_a_cache_gives(cached, policies):
    ids = [policies[0].encode(item.text) for item in texts()]
    live = PolicyPairs(*policies, ids, 1, texts_per_chunk=25)
    assert len(live.sizes) == 3
    assert live.sizes[0] == sum(len(i) for i in ids[:25])
    whole = open_cache(cached[0], 1).chunk(0)
    for side in (0, 1):
        joined = np.concatenate([live.chunk(i)[side] for i in range(3)])
        assert np.allclose(joined, whole[side], atol=1e-5)
    last = PolicyPairs(*policies, ids, 1, last_only=True)
    assert last.sizes == (60,)
    assert last.origin()["positions"] == "last"
    ends = np.cumsum([len(i) for i in ids]) - 1
    assert np.allclose(last.chunk(0)[0], whole[0][ends], atol=1e-5)
    plan = TrainSettings(steps=12, batch=64)
    models = [CrossCoder((32, 32), 64, 4, seed=0) for _ in range(2)]
    for model in models:
        train(model, live, plan)
    assert torch.equal(models[0].W_dec, models[1].W_dec)
    assert live.digest() != last.digest()


def store(folder, nodes, tokens, card, width=4):
    made = ActivationStore.create(folder, [1], card, dtype="float32")
    for node, ids in zip(nodes, tokens, strict=True):
        states = np.zeros((len(ids), 1, width), np.float32)
        made.append([Activations(node, np.arange(len(ids), dtype=np.int32), np.array(ids, np.int32), states)])
    made.flush()
    return made


@pytest.mark.parametrize(
    ("nodes", "tokens", "words"),
    [
        (["x", "y"], [[1, 2], [3, 5]], "row 3 is token 1 of node y"),
        (["x", "z"], [[1, 2], [3, 4]], "row 2 is token 0 of node y"),
        (["x"], [[1, 2]], "4 rows of A and 2 of B"),
    ],
)
def test_unpaired_shards_are_refused(tmp_path, policies, nodes, tokens, words):
    card = policies[0].card
    a = store(tmp_path / "a", ["x", "y"], [[1, 2], [3, 4]], card)
    b = store(tmp_path / "b", nodes, tokens, card)
    with pytest.raises(Mismatch, match=words):
        StorePairs(a, b, 1)


def test_different_tokenisers_need_an_alignment(tmp_path, policies, other):
    a = store(tmp_path / "a", ["x"], [[1, 2]], policies[0].card)
    b = store(tmp_path / "b", ["x"], [[1, 2]], other.card)
    with pytest.raises(WrongTokenizer, match="tokenisers differ"):
        StorePairs(a, b, 1)
    with pytest.raises(WrongTokenizer, match="tokenisers differ"):
        PolicyPairs(policies[0], other, [policies[0].encode("hello")], 1)
    with pytest.raises(WrongTokenizer, match="tokenisers differ"):
        cache_texts(texts(2), policies[0], other, [1], tmp_path / "c")
    ids_a, ids_b = policies[0].encode("a cab"), other.encode("a cab")
    at = np.array([0, len(ids_a) - 1], np.int32)
    live = PolicyPairs(
        policies[0], other, [Aligned(ids_a, ids_b, at, np.array([0, len(ids_b) - 1], np.int32))], 1
    )
    assert live.sizes == (2,)
    assert live.chunk(0)[1].shape == (2, 32)
    for bad in (Aligned(ids_a, ids_b, at, at[:1]), Aligned(ids_a, ids_b, at + 90, at)):
        with pytest.raises(BadInput):
            PolicyPairs(policies[0], other, [bad], 1)


def test_texts_are_checked(tmp_path, policies):
    file = tmp_path / "t.jsonl"
    file.write_text('{"text": "one", "label": "tool"}\n\n{"text": "two"}\n')
    assert read_texts(file) == [LabelledText("one", "tool"), LabelledText("two")]
    for body, words in (('{"label": 1}\n', "no text"), ("", "no texts")):
        file.write_text(body)
        with pytest.raises(BadInput, match=words):
            read_texts(file)
    with pytest.raises(BadInput, match="under another label than 'b'"):
        cache_texts([LabelledText("x", "a"), LabelledText("x", "b")], *policies, [1], tmp_path / "c")
    with pytest.raises(BadInput, match="no texts to read"):
        PolicyPairs(*policies, [], 1)


def test_a_crosscoder_is_used_at_its_layer_and_on_its_policies(cached):
    source = open_cache(cached[0], 1)
    model = CrossCoder((32, 32), 64, 4, seed=0)
    train(model, source, TrainSettings(steps=5, batch=64))
    assert cache_for(model, cached[0]).layers == (1, 1)
    with pytest.raises(BadInput, match="keeps layers"):
        open_cache(cached[0])
    model.origin["layer"] = 2
    with pytest.raises(BadInput, match="layer 2 was not kept"):
        cache_for(model, cached[0])
    model.origin |= {"layer": 1, "B": {"weights": "0" * 64}}
    with pytest.raises(WrongWeights, match="model B"):
        cache_for(model, cached[0])


def test_values_are_pooled_by_text_and_examples_read_back(cached):
    source = open_cache(cached[0], 1)
    model = CrossCoder((32, 32), 64, 4, seed=0)
    train(model, source, TrainSettings(steps=30, batch=64))
    encoded = encode_cache(model, source)
    nodes, last = encoded.by_node()
    _, most = encoded.by_node("max")
    assert len(nodes) == 60
    assert nodes == list(dict.fromkeys(encoded.nodes))
    rows = [i for i, node in enumerate(encoded.nodes) if node == nodes[7]]
    assert np.array_equal(last[7], encoded.values[rows[-1]])
    assert np.array_equal(most[7], encoded.values[rows].max(axis=0))
    with cached_tree(source) as tree:
        assert labels_of(tree, nodes)[nodes[7]] == "tool"
        shown = example_of(tree, encoded)(rows[2], 1.5)
        assert (shown.before + shown.token + shown.after).startswith("call(")
        assert shown.token == "l"


def test_a_whole_run_on_the_command_line(policies, tmp_path):
    from refork_methods.crosscoder.commands import fit as crosscoder

    for name, policy in zip("ab", policies, strict=True):
        policy.decoder.backbone.model.save_pretrained(tmp_path / name)
        policy.codec.tokenizer.save_pretrained(tmp_path / name)
    lines = [json.dumps({"text": item.text, "label": item.label}) for item in texts()]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    told = {}
    for words in (
        f"cache --texts {tmp_path}/t.jsonl --a hf:{tmp_path}/a --b hf:{tmp_path}/b --layer 1 --tokens all "
        f"--out {tmp_path}/cache",
        f"train --cache {tmp_path}/cache --out {tmp_path}/run --dict-size 64 --k 4 --set exclusive.a=0.1 "
        "--set training.steps=60 --set training.batch=64 --set training.rate=0.003",
        f"rank --out {tmp_path}/run --positive tool",
    ):
        found = CliRunner().invoke(crosscoder.app, [*words.split(), "--json"])
        assert found.exit_code == 0, (found.output, found.exception)
        told[words.split()[0]] = json.loads(found.stdout)
    assert told["cache"]["texts"] == 60
    assert told["train"]["steps"] == 60
    assert told["train"]["forbidden_weight_max"] == 0
    assert told["train"]["activations_per_second"] > 0
    assert told["rank"]["texts"] == [30, 30]
    assert len(told["rank"]["features"]) == 64
    assert (tmp_path / "run" / "features.svg").read_text().startswith("<svg")
    plain = CliRunner().invoke(crosscoder.app, ["rank", "--out", f"{tmp_path}/run", "--positive", "tool"])
    assert "30 tool texts, 30 others" in plain.stdout
    assert plain.exit_code == 0
    with pytest.raises(BadInput, match="labels here: prose, tool"):
        run_rank(tmp_path / "run", None, "web")
    recipe = CrossCoderRecipe(cache=f"{tmp_path}/cache", dict_size=64, k=5)
    with pytest.raises(Mismatch, match="another recipe"):
        run_train(recipe, tmp_path / "run")


def test_the_command_line_refuses_what_it_cannot_read(tmp_path):
    from refork_methods.crosscoder.commands import fit as crosscoder

    base = ["cache", "--a", "hf:x", "--b", "hf:y", "--out", str(tmp_path)]
    for more, words in (
        (["--layer", "1"], "either --texts or a --tree"),
        (["--layer", "one", "--texts", __file__], "--layer is 'one'"),
        (["--layer", "1", "--texts", __file__, "--tokens", "some"], "--tokens is 'some'"),
    ):
        found = CliRunner().invoke(crosscoder.app, [*base, *more])
        assert words in str(found.exception)
    words = ["rank", "--out", str(tmp_path), "--positive", "x", "--pool", "no"]
    assert "--pool is 'no'" in str(CliRunner().invoke(crosscoder.app, words).exception)
