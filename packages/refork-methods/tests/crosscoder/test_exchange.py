"""Files: ours, and those of dictionary_learning, whose encoders are written out here as it defines them."""

import json

import numpy as np
import pytest
import torch

from refork.errors import BadInput, Mismatch
from refork_methods.crosscoder.exchange import (
    from_dictionary_learning,
    load,
    load_dictionary_learning,
    save,
    save_dictionary_learning,
    to_dictionary_learning,
)
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.partition import Partition
from refork_methods.crosscoder.sources import ArrayPairs
from refork_methods.crosscoder.train import TrainSettings, train


def trained(activation="batch_topk", widths=(6, 6), scoring=None):
    rng = np.random.default_rng(0)
    hidden = np.maximum(rng.normal(size=(800, 9)), 0)
    source = ArrayPairs(
        *(hidden @ rng.normal(size=(9, d)) * rng.uniform(0.1, 9, d) + 5 for d in widths),
        origin={"layer": 2, "A": {"name": "rl"}},
    )
    model = CrossCoder(widths, 24, 4, activation, Partition(a=0.2, b=0.1), scoring=scoring, seed=1)
    train(model, source, TrainSettings(steps=60, batch=80, rate=0.01))
    a, b = (torch.from_numpy(x) for x in source.chunk(0))
    return model, a, b


def theirs(state, config, a, b):
    """Features and reconstruction as their classes compute them from raw activations."""
    name = config["trainer"]["dict_class"]
    if name in ("CrossCoder", "BatchTopKCrossCoder"):
        x = torch.stack([a, b], dim=1)
        f = torch.relu(torch.einsum("bld,ldf->bf", x, state["encoder.weight"]) + state["encoder.bias"])
        if name == "BatchTopKCrossCoder":
            norm = state["decoder.weight"].norm(dim=2).sum(dim=0)
            norm = torch.ones_like(norm) if config["trainer"]["code_normalization"] == "NONE" else norm
            f = f * (f * norm > state["threshold"])
        out = torch.einsum("bf,lfd->bld", f, state["decoder.weight"]) + state["decoder.bias"]
        return f, out.flatten(1)
    x = torch.cat([a, b], dim=1)
    base = state["bias"] if name == "AutoEncoder" else state["b_dec"]
    f = torch.relu((x - base) @ state["encoder.weight"].T + state["encoder.bias"])
    if name == "AutoEncoderTopK":
        f = f * torch.zeros_like(f).scatter(1, f.topk(int(state["k"]), dim=1).indices, 1.0)
    if name == "BatchTopKSAE":
        f = f * (f > state["threshold"])
    return f, f @ state["decoder.weight"].T + base


CASES = [
    ("topk", "value", "sae"), ("topk", "decoder_norm", "sae"), ("batch_topk", "decoder_norm", "sae"),
    ("batch_topk", "value", "sae"), ("l1", "value", "sae"), ("batch_topk", "decoder_norm", "crosscoder"),
    ("batch_topk", "value", "crosscoder"), ("l1", "value", "crosscoder"),
]  # fmt: skip


@pytest.mark.parametrize(("activation", "scoring", "layout"), CASES)
def test_exported_weights_do_in_their_classes_what_they_do_in_ours(activation, scoring, layout, tmp_path):
    model, a, b = trained(activation, scoring=scoring)
    ours = torch.cat(model(a, b), dim=1)
    f, found = theirs(*to_dictionary_learning(model, layout), a, b)
    assert torch.equal(f > 0, model.encode(a, b) > 0)
    assert (found - ours).abs().max() < 1e-5 * ours.abs().max()
    save_dictionary_learning(model, tmp_path, layout)
    back = load_dictionary_learning(tmp_path)
    assert (torch.cat(back(a, b), dim=1) - ours).abs().max() < 2e-5 * ours.abs().max()
    assert back.activation == activation
    assert back.k == (None if activation == "l1" else 4)


def test_their_crosscoder_scores_by_decoder_norms():
    model, a, b = trained("batch_topk", scoring="value")
    state, config = to_dictionary_learning(model, "crosscoder")
    config["trainer"]["code_normalization"] = "CROSSCODER"
    back = from_dictionary_learning(state, config)
    assert back.scoring == "decoder_norm"
    f, _ = theirs(state, config, a, b)
    assert torch.equal(f > 0, back.encode(a, b) > 0)
    config["trainer"]["code_normalization"] = "DECOUPLED"
    with pytest.raises(BadInput, match="not supported"):
        from_dictionary_learning(state, config)


def test_a_scale_that_their_biases_do_not_hold_is_given():
    model, a, b = trained("l1")
    state, config = to_dictionary_learning(model)
    scaled = from_dictionary_learning(state, config, scale=4.0)
    plain = from_dictionary_learning(state, config)
    assert torch.allclose(scaled.encode(a * 4, b * 4), plain.encode(a, b), atol=1e-4)
    assert torch.allclose(scaled(a * 4, b * 4)[0], plain(a, b)[0] * 4, rtol=1e-4, atol=1e-3)
    with pytest.raises(BadInput, match="must be above 0"):
        from_dictionary_learning(state, config, scale=0.0)


@pytest.mark.parametrize("activation", ["topk", "batch_topk"])
def test_topk_weights_are_not_loaded_as_relu(activation):
    state, config = to_dictionary_learning(trained(activation)[0])
    config["trainer"]["dict_class"] = "AutoEncoder"
    with pytest.raises(BadInput, match="every feature would fire"):
        from_dictionary_learning(state, config)


def test_what_cannot_be_exchanged_is_refused(tmp_path):
    model, _, _ = trained("topk")
    state, config = to_dictionary_learning(model)
    for change, words in (
        ({"dict_class": "GatedAutoEncoder"}, "unknown dictionary class"),
        ({"dict_class": "BatchTopKCrossCoder"}, "not one of a BatchTopKCrossCoder"),
    ):
        with pytest.raises(BadInput, match=words):
            from_dictionary_learning(state, {"trainer": config["trainer"] | change})
    with pytest.raises(BadInput, match="do not add up"):
        from_dictionary_learning(state, config, d_in=(5, 6))
    with pytest.raises(BadInput, match="no per-sample TopK"):
        to_dictionary_learning(model, "crosscoder")
    with pytest.raises(BadInput, match="knows one width"):
        to_dictionary_learning(trained("l1", (5, 7))[0], "crosscoder")
    with pytest.raises(BadInput, match="cannot be read"):
        load_dictionary_learning(tmp_path)
    fresh, _, _ = trained("batch_topk")
    fresh.threshold.fill_(-1.0)
    with pytest.raises(BadInput, match="no threshold yet"):
        to_dictionary_learning(fresh)


def test_a_saved_crosscoder_comes_back_whole(tmp_path):
    model, a, b = trained()
    save(model, tmp_path)
    back = load(tmp_path)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, back.state_dict()[name]), name
    assert back.config() == model.config()
    assert back.origin["layer"] == 2
    assert torch.equal(back.encode(a, b), model.encode(a, b))
    save(model.folded(), tmp_path / "folded")
    folded = load(tmp_path / "folded")
    assert torch.equal(folded.encode(a, b), model.folded().encode(a, b))
    # A run keeps its crosscoder in a folder of that name; naming the run is enough.
    save(model, tmp_path / "run" / "model")
    assert torch.equal(load(tmp_path / "run").encode(a, b), model.encode(a, b))


def test_a_damaged_crosscoder_is_refused(tmp_path):
    save(trained()[0], tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(BadInput, match="can be read"):
        load(tmp_path)


def test_a_crosscoder_without_statistics_is_neither_saved_nor_loaded(tmp_path):
    with pytest.raises(BadInput, match="no use to anybody"):
        save(CrossCoder((6, 6), 8, 2), tmp_path)
    save(trained()[0], tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(about | {"normalized": False}))
    with pytest.raises(BadInput, match="no normaliser statistics"):
        load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(about | {"digest": "0"}))
    with pytest.raises(Mismatch):
        load(tmp_path)
    for bad in ({"version": 9}, {"format": "other"}, {"dict_size": 25}):
        (tmp_path / "config.json").write_text(json.dumps(about | bad))
        with pytest.raises(BadInput, match="not a crosscoder"):
            load(tmp_path)
