"""Our drafters beside DeepSpec's own classes, on a CPU, where it takes seconds.

DeepSpec is on no package index, so the classes are read from a clone of github.com/deepseek-ai/DeepSpec that
``REFORK_DEEPSPEC`` names (commit afdfa7c was used); without one these tests are skipped. Its classes of Gemma
4's layers need the transformers that it names (5.10.2): under a newer one their tests are skipped.
"""

import importlib
import inspect
import os
import sys
from pathlib import Path

import pytest
import torch
from transformers import DynamicCache

from refork_methods.speculate.config import draft_config
from refork_methods.speculate.layouts import export_draft, import_draft
from refork_methods.speculate.model import build_draft
from support.drafters import GEMMA, random_gemma, random_target, shaken

PLACE = os.environ.get("REFORK_DEEPSPEC")
pytestmark = pytest.mark.skipif(
    PLACE is None, reason="REFORK_DEEPSPEC names no clone of github.com/deepseek-ai/DeepSpec"
)
#: Largest difference of float32 hidden states, logits and confidence logits, which are of order 1 to 10.
NEAR = 1e-5
MASK, BLOCK, LENGTH, WIDTH = 257, 4, 20, 32
HEADS = {
    "markov": {"head": "markov", "rank": 6},
    "markov, confidence without it": {"head": "markov", "rank": 6, "confidence_with_markov": False},
    "gated": {"head": "gated", "rank": 6},
    "rnn": {"head": "rnn", "rank": 6},
    "none": {"head": "none", "rank": 0, "confidence": False, "confidence_with_markov": False},
}


NETS = {
    "qwen3": ("qwen3", "Qwen3", {"qk_norm": True}),
    "gemma4": ("gemma4", "Gemma4", GEMMA),
    "gemma4, values of their own": ("gemma4", "Gemma4", GEMMA | {"shared_values": False, "kv_heads": 2}),
}


@pytest.fixture(scope="module", params=NETS)
def family(request):
    """How to find DeepSpec's class of a kind, the target it drafts for, and what its layers are."""
    folder, name, changes = NETS[request.param]
    if folder == "gemma4":
        from transformers.models.gemma4.modeling_gemma4 import Gemma4TextRotaryEmbedding

        if "layer_type" not in inspect.signature(Gemma4TextRotaryEmbedding.__init__).parameters:
            pytest.skip("DeepSpec's Gemma 4 classes are for transformers 5.10")
    target = (
        random_gemma(attention_k_eq_v=changes["shared_values"]) if folder == "gemma4" else random_target()
    )

    def net(kind, part):
        place = str(Path(PLACE).resolve())
        sys.path.insert(0, place)
        try:
            module = importlib.import_module(f"deepspec.modeling.{kind}.{folder}.modeling")
        finally:
            sys.path.remove(place)
        return getattr(module, name + part)

    return net, target, changes


def loaded(net, folder):
    """The folder in their class: every tensor of it, and no other."""
    theirs, told = net.from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
    assert not any(told.values()), told
    return theirs.eval()


def agree(ours, theirs):
    """Blocks at several anchors, and the greedy drafts in them: hidden states, logits, confidence, tokens."""
    generator = torch.Generator().manual_seed(2)
    states = torch.randn((1, LENGTH, len(ours.config.target_layers), WIDTH), generator=generator)
    anchors = torch.tensor([[1, 7, LENGTH - 1]])
    tokens = torch.tensor([[3, 200, 77]])
    furthest = 0.0

    def near(mine, other):
        nonlocal furthest
        furthest = max(furthest, (mine - other).abs().max().item())

    with torch.no_grad():
        packed = ours.packed(states, anchors, tokens)[0]
        for hidden, anchor, token in zip(packed, anchors[0].tolist(), tokens[0], strict=True):
            ids = torch.cat([token[None], torch.full((BLOCK - 1,), MASK)])[None]
            other = theirs._forward_backbone(
                position_ids=torch.arange(anchor + BLOCK)[None],
                noise_embedding=theirs.embed_tokens(ids),
                target_hidden_states=states[:, :anchor].flatten(2),
            )
            near(hidden, other[0])
            base = theirs.compute_logits(other)
            near(ours.base_logits(hidden), base[0])
            drafts, logits = theirs.sample_draft_tokens(
                base, first_prev_token_ids=token[None], hidden_states=other
            )
            before, state = token[None], None
            for k in range(BLOCK):
                mine, state = ours.next_logits(
                    k, ours.base_logits(hidden[k])[None], hidden[k][None], before, state
                )
                near(mine, logits[:, k])
                if ours.confidence_head is not None:
                    sure = theirs.predict_confidence_step(other[:, k], prev_token_ids=before)
                    near(ours.confidence(hidden[k][None], before), sure)
                before = mine.argmax(-1)
                assert before.tolist() == drafts[:, k].tolist()
    print(f"furthest apart: {furthest:.1e}")
    assert furthest < NEAR


def chains_agree(ours, theirs):
    """Greedy chains from several anchors: logits and tokens."""
    generator = torch.Generator().manual_seed(2)
    states = torch.randn((1, LENGTH, len(ours.config.target_layers) - 1, WIDTH), generator=generator)
    tokens = torch.randint(256, (1, LENGTH), generator=generator)
    # State 0 of ours is the target's own embedding of each token.
    known = torch.cat([ours.ends.embed(tokens)[:, :, None], states], 2)
    kept = ours.keys_values(ours.context(known), torch.arange(LENGTH)[None])
    furthest = 0.0
    with torch.no_grad():
        for anchor in (1, 7, LENGTH - 1):
            chain, before, cache = ours.start(torch.tensor([anchor]), kept), tokens[:, anchor], DynamicCache()
            # What they make of the last true pair already says the first draft.
            other = theirs(
                hidden_states=states[:, :anchor].flatten(2),
                input_ids=tokens[:, 1 : anchor + 1],
                position_ids=torch.arange(anchor)[None],
                attention_mask=torch.ones(1, anchor),
                past_key_values=cache,
            )[:, -1:]
            for k in range(BLOCK):
                mine, chain = ours.next_logits(k, None, None, before, chain)
                logits = theirs.compute_logits(other)[:, 0]
                furthest = max(furthest, (mine - logits).abs().max().item())
                before = mine.argmax(-1)
                assert before.tolist() == logits.argmax(-1).tolist()
                other = theirs(
                    hidden_states=other,
                    input_ids=before[None],
                    position_ids=torch.tensor([[anchor + k]]),
                    past_key_values=cache,
                )
    print(f"furthest apart: {furthest:.1e}")
    assert furthest < NEAR


def compared(kind, net, target, config, folder):
    """Our drafter in their class, and theirs, made and saved by that class, as ours."""
    ours = shaken(build_draft(config, target, seed=1))
    export_draft(ours, target, folder / "ours", "deepspec")
    beside = chains_agree if kind == "eagle3" else agree
    theirs = loaded(net, folder / "ours")
    beside(ours, theirs)
    made = shaken(net(theirs.config))
    model = target.decoder.backbone.model
    made.initialize_embeddings_and_head(
        embed_tokens=model.get_input_embeddings(), lm_head=model.get_output_embeddings()
    )
    made.save_pretrained(folder / "theirs")
    beside(import_draft(folder / "theirs", target), made)


@pytest.mark.parametrize("head", HEADS)
def test_blocks_are_those_of_their_class_both_ways(family, tmp_path, head):
    net, target, changes = family
    shape = {"mask_token": MASK, "block": BLOCK, "layers": 2, "target_layers": (0, 2)}
    config = draft_config(target, "dspark", **(shape | HEADS[head] | changes))
    compared("dspark", net("dspark", "DSparkModel"), target, config, tmp_path)


def test_eagle_chains_are_those_of_their_class_both_ways(family, tmp_path):
    net, target, changes = family
    config = draft_config(target, "eagle", block=BLOCK, **changes)
    compared("eagle3", net("eagle3", "Eagle3Model"), target, config, tmp_path)
