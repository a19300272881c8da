import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from refork.errors import BadInput, CannotDo, WrongTokenizer, WrongWeights
from refork_methods.speculate.config import draft_config
from refork_methods.speculate.layouts import (
    export_draft,
    import_draft,
    layout_of,
    layout_of_folder,
    read_fields,
    write_fields,
)
from refork_methods.speculate.model import build_draft
from support.drafters import GEMMA, random_gemma, random_target, shaken

MASK = 257


@pytest.fixture(scope="module")
def target():
    return random_target()


def drafter(target, kind="dspark", **changes):
    """A drafter whose weights are nowhere at their start."""
    fields = {"mask_token": MASK, "block": 4, **({} if kind == "eagle" else {"layers": 2, "rank": 6})}
    return shaken(build_draft(draft_config(target, kind, **(fields | changes)), target, seed=1))


def body(folder):
    return json.loads((folder / "config.json").read_text())


def change(folder, **fields):
    """Write fields of a config; None takes one out."""
    new = {k: v for k, v in (body(folder) | fields).items() if v is not None}
    (folder / "config.json").write_text(json.dumps(new))


BARE = {"rank": 0, "confidence_with_markov": False}
FITS = [
    ("deepspec", "dspark", {}),
    ("deepspec", "dspark", {"head": "gated", "confidence_with_markov": False}),
    ("deepspec", "dspark", {"head": "rnn"}),
    ("deepspec", "dspark", {"head": "none", "rank": 0, "confidence": False, "confidence_with_markov": False}),
    ("deepspec", "eagle", BARE | {"mask_token": None, "qk_norm": True}),
    ("speculators", "dspark", {"window": 5}),
    ("speculators", "dspark", {"head": "rnn", "kv_heads": 1}),
    ("speculators", "dflash", BARE),
    ("speculators", "dflash", {"head": "gated", "confidence": True}),
    ("speculators", "eagle", BARE | {"mask_token": None}),
    ("speculators", "eagle", BARE | {"mask_token": None, "qk_norm": True}),
]


@pytest.mark.parametrize(("layout", "kind", "changes"), FITS)
def test_there_and_back_bit_for_bit(target, tmp_path, layout, kind, changes):
    draft = drafter(target, kind, **changes)
    export_draft(draft, target, tmp_path / "out", layout, verifier="the/target")
    assert layout_of_folder(tmp_path / "out") == layout
    again = import_draft(tmp_path / "out", target)
    assert again.config == draft.config
    before, after = draft.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.fixture(scope="module")
def gemma():
    return random_gemma()


@pytest.mark.parametrize("own", [{}, {"shared_values": False, "kv_heads": 2, "rotary": 1.0}])
@pytest.mark.parametrize("kind", ["dspark", "eagle"])
def test_drafters_of_gemma_layers_there_and_back(gemma, tmp_path, kind, own):
    changes = BARE | {"mask_token": None} if kind == "eagle" else {}
    draft = drafter(gemma, kind, **(changes | GEMMA | own))
    export_draft(draft, gemma, tmp_path / "out", "deepspec")
    name = "Gemma4Eagle3Model" if kind == "eagle" else "Gemma4DSparkModel"
    assert body(tmp_path / "out")["architectures"] == [name]
    again = import_draft(tmp_path / "out", gemma)
    assert again.config == draft.config
    before, after = draft.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[part], after[part]) for part in before)


ODD_GEMMA = [
    (
        {"enable_moe_block": True, "num_experts": 2, "top_k_experts": 1, "moe_intermediate_size": 8},
        CannotDo,
        "moe",
    ),
    ({"hidden_size_per_layer_input": 4}, CannotDo, "hidden_size_per_layer_input"),
    ({"layer_types": ["sliding_attention", "full_attention"]}, CannotDo, "attend differently"),
    ({"final_logit_softcapping": 30.0}, WrongWeights, "caps its logits otherwise"),
    ({"architectures": ["Qwen3DSparkModel"]}, CannotDo, "Gemma4DSparkModel does"),
    ({"some_scale": 2.0}, CannotDo, "some_scale"),
]


@pytest.mark.parametrize(("fields", "error", "says"), ODD_GEMMA)
def test_gemma_configs_that_cannot_be_mapped(gemma, tmp_path, fields, error, says):
    export_draft(drafter(gemma, **GEMMA), gemma, tmp_path / "out", "deepspec")
    change(tmp_path / "out", **fields)
    with pytest.raises(error, match=says):
        import_draft(tmp_path / "out", gemma)


def test_gemma_layers_go_with_a_gemma_target_and_deepspec_only(target, gemma, tmp_path):
    shape = GEMMA | {"heads": 4}
    for place, layout, says in (
        (gemma, "speculators", "no speculators layout"),
        (target, "deepspec", "in another way than Gemma 4"),
    ):
        with pytest.raises(CannotDo, match=says):
            export_draft(drafter(place, **shape), place, tmp_path / "out", layout)
    with pytest.raises(CannotDo, match="changes its embedding"):
        export_draft(drafter(gemma), gemma, tmp_path / "out", "deepspec")
    for wrong, says in (
        ({"qk_norm": False}, "norm their queries"),
        ({"family": "llama"}, "share a map"),
        ({"rotary": 0.0}, "share of a head"),
    ):
        with pytest.raises(BadInput, match=says):
            drafter(gemma, **(GEMMA | wrong))


REFUSED = [
    ("deepspec", "dspark", {"mask_token": None}, "mask row"),
    ("deepspec", "dspark", {"window": 5}, "windows"),
    ("deepspec", "dspark", {"qk_norm": False}, "norm their queries"),
    ("deepspec", "dflash", {}, "every slot predicts"),
    ("deepspec", "eagle", {}, "norm their queries and keys, this one does not"),
    ("speculators", "dflash", {"head": "rnn"}, "recurrent head"),
]


@pytest.mark.parametrize(("layout", "kind", "changes", "says"), REFUSED)
def test_what_a_layout_cannot_hold_is_refused(target, tmp_path, layout, kind, changes, says):
    with pytest.raises(CannotDo, match=says):
        export_draft(drafter(target, kind, **changes), target, tmp_path / "out", layout)
    assert not (tmp_path / "out").exists()


def test_fields_of_each_layout(target):
    config = draft_config(target, layers=2, rank=6, block=4, mask_token=MASK, target_layers=(0, 2))
    deepspec = write_fields(config, "deepspec", None, ())
    # Their layer numbers count blocks from 0, and -1 is the embedding.
    assert deepspec["target_layer_ids"] == [-1, 1]
    assert deepspec["block_size"] == 4
    assert (deepspec["num_target_layers"], deepspec["markov_head_type"]) == (3, "vanilla")
    theirs = write_fields(config, "speculators", "the/target", ["LlamaForCausalLM"])
    assert theirs["aux_hidden_state_layer_ids"] == [0, 2]
    assert theirs["sample_from_anchor"] is True
    assert theirs["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 4
    assert theirs["speculators_config"]["verifier"]["name_or_path"] == "the/target"
    plain = write_fields(config.but(kind="dflash", head="none", confidence=False), "speculators", None, ())
    # The anchor is one of the block there.
    assert plain["block_size"] == 5
    with pytest.raises(BadInput, match="no layout"):
        write_fields(config, "other", None, ())
    with pytest.raises(BadInput, match="no drafter in a layout"):
        layout_of({"model_type": "qwen3"})


def test_a_config_as_deepspec_writes_it():
    """The fields of its published class, with the transformer's as transformers 4 named them."""
    config = {
        "architectures": ["Qwen3DSparkModel"], "attention_bias": False, "attention_dropout": 0.0,
        "block_size": 7, "bos_token_id": 151643, "confidence_head_with_markov": True,
        "dtype": "bfloat16", "enable_confidence_head": True, "eos_token_id": 151645, "head_dim": 128,
        "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.02, "intermediate_size": 9728,
        "layer_types": ["full_attention"] * 5, "markov_head_type": "vanilla", "markov_rank": 256,
        "mask_token_id": 151669, "max_position_embeddings": 40960, "max_window_layers": 36,
        "model_type": "qwen3", "num_anchors": 512, "num_attention_heads": 32, "num_hidden_layers": 5,
        "num_key_value_heads": 8, "num_target_layers": 36, "rms_norm_eps": 1e-06, "rope_scaling": None,
        "rope_theta": 1000000, "sliding_window": None, "target_layer_ids": [1, 9, 17, 25, 33],
        "tie_word_embeddings": False, "transformers_version": "4.57.1", "use_cache": True,
        "use_sliding_window": False, "vocab_size": 151936,
    }  # fmt: skip
    assert read_fields(config) == {
        "kind": "dspark", "hidden": 2560, "layers": 5, "heads": 32, "kv_heads": 8, "head_dim": 128,
        "intermediate": 9728, "vocabulary": 151936, "qk_norm": True, "rope_theta": 1e6, "norm_eps": 1e-6,
        "max_positions": 40960, "block": 7, "target_layers": (2, 10, 18, 26, 34), "mask_token": 151669,
        "target_depth": 36, "rank": 256, "head": "markov", "confidence": True,
        "confidence_with_markov": True,
    }  # fmt: skip


ODD_CONFIGS = [
    ({"architectures": ["Gemma4DSparkModel"]}, CannotDo, "does not belong to such a config"),
    ({"hidden_act": "gelu"}, CannotDo, "hidden_act"),
    ({"attention_bias": True}, CannotDo, "attention_bias"),
    ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}}, CannotDo, "yarn"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, CannotDo, "attend differently"),
    ({"markov_head_type": "lstm"}, CannotDo, "lstm"),
    ({"extra_scale": 2.0}, CannotDo, "extra_scale"),
    ({"model_type": "gemma3_text"}, CannotDo, "gemma3_text"),
    ({"mask_token_id": None}, BadInput, "no mask_token_id"),
    ({"target_layer_ids": [0, 2]}, BadInput, "after the final norm"),
    ({"target_layer_ids": [1, 0]}, BadInput, "increasing"),
    ({"vocab_size": 300}, WrongTokenizer, "vocabulary of 300"),
    ({"num_target_layers": 4}, BadInput, "4 layers"),
    ({"markov_rank": 0}, BadInput, "markov_w1"),
]


@pytest.fixture(scope="module")
def exported(target, tmp_path_factory):
    place = tmp_path_factory.mktemp("exported") / "draft"
    export_draft(drafter(target), target, place, "deepspec")
    return place


@pytest.fixture
def folder(exported, tmp_path):
    """A copy to be spoiled."""
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((exported / name).read_bytes())
    return tmp_path


@pytest.mark.parametrize(("fields", "error", "says"), ODD_CONFIGS)
def test_what_cannot_be_mapped_is_refused_by_name(target, folder, fields, error, says):
    change(folder, **fields)
    with pytest.raises(error, match=says):
        import_draft(folder, target)


def test_an_unknown_field_can_be_passed_over(target, folder):
    known = import_draft(folder, target).config
    change(folder, num_gpus=8)
    assert import_draft(folder, target, ignore=["num_gpus"]).config == known


SPECULATORS = [
    ({"draft_vocab_size": 100}, "100 of 258"),
    ({"target_hidden_size": 64}, "another width"),
    ({"speculators_model_type": "xpress"}, "xpress"),
    ({"sample_from_anchor": False, "markov_head_type": "rnn"}, "one slot before"),
]


@pytest.mark.parametrize(("fields", "says"), SPECULATORS)
def test_speculators_configs_that_cannot_be_mapped(target, tmp_path, fields, says):
    config = write_fields(drafter(target).config, "speculators", None, ())
    with pytest.raises(CannotDo, match=says):
        read_fields(config | fields)


def test_windows_and_eagle_flags_that_cannot_be_mapped(target):
    windowed = write_fields(drafter(target, window=5).config, "speculators", None, ())
    with pytest.raises(CannotDo, match="does not see the slots after it"):
        read_fields(windowed | {"sliding_window_non_causal": False})
    eagle = write_fields(drafter(target, "eagle").config, "speculators", None, ())
    with pytest.raises(CannotDo, match="norm_before_residual"):
        read_fields(eagle | {"norm_before_residual": True})


def test_tensors_that_do_not_fit(target, folder):
    path = folder / "model.safetensors"
    whole = load_file(path)

    def spoil(change, error, says):
        save_file(change(dict(whole)), path)
        with pytest.raises(error, match=says):
            import_draft(folder, target)

    spoil(lambda t: {k: v for k, v in t.items() if k != "fc.weight"}, BadInput, "'fc.weight' is missing")
    spoil(lambda t: t | {"strange": torch.zeros(1)}, BadInput, "'strange' is not known")
    spoil(lambda t: t | {"norm.weight": torch.zeros(3)}, BadInput, "'norm.weight' has another shape")
    spoil(lambda t: t | {"d2t": torch.zeros(3)}, CannotDo, "part of the vocabulary")
    spoil(lambda t: t | {"lm_head.weight": t["lm_head.weight"] + 1}, WrongWeights, "lm_head.weight")
    path.unlink()
    with pytest.raises(BadInput, match="no tensors"):
        import_draft(folder, target)


def test_half_precision_and_several_files(target, folder):
    path = folder / "model.safetensors"
    whole = {name: part.to(torch.bfloat16) for name, part in load_file(path).items()}
    names = sorted(whole)
    path.unlink()
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, inside in shards.items():
        save_file({name: whole[name] for name in inside}, folder / file)
    index = {"weight_map": {name: file for file, inside in shards.items() for name in inside}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    draft = import_draft(folder, target)
    assert draft.fc.weight.dtype == torch.float32
    assert torch.equal(draft.fc.weight.to(torch.bfloat16), whole["fc.weight"])
    index["weight_map"]["fc.weight"] = "../elsewhere.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadInput, match="elsewhere"):
        import_draft(folder, target)


def test_an_other_target_and_a_taken_folder(target, exported):
    with pytest.raises(WrongWeights, match="embed_tokens"):
        import_draft(exported, random_target(seed=1))
    with pytest.raises(BadInput, match="holds something"):
        export_draft(drafter(target), target, exported, "deepspec")


def test_a_target_that_scales_on_the_way(target, tmp_path):
    draft = drafter(target)
    target.model.config.logit_scale = 0.5
    try:
        with pytest.raises(CannotDo, match="logit_scale"):
            export_draft(draft, target, tmp_path / "out", "deepspec")
    finally:
        del target.model.config.logit_scale
