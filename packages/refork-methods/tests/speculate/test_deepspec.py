"""Our drafters beside DeepSpec's own class, on a CPU, where it takes seconds.

DeepSpec is on no package index, so the class is read from a clone of github.com/deepseek-ai/DeepSpec that
``REFORK_DEEPSPEC`` names (commit afdfa7c was used); without one these tests are skipped.
"""

import os
import sys
from pathlib import Path

import pytest
import torch

from refork_methods.speculate.config import draft_config
from refork_methods.speculate.layouts import export_draft, import_draft
from refork_methods.speculate.model import build_draft
from support.drafters import random_target, shaken

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


@pytest.fixture(scope="module")
def net():
    """DeepSpec's class of drafters for Qwen3."""
    place = str(Path(PLACE).resolve())
    sys.path.insert(0, place)
    try:
        from deepspec.modeling.dspark.qwen3.modeling import Qwen3DSparkModel
    finally:
        sys.path.remove(place)
    return Qwen3DSparkModel


@pytest.fixture(scope="module")
def target():
    return random_target()


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


@pytest.mark.parametrize("head", HEADS)
def test_their_class_computes_what_our_exported_drafter_does(net, target, tmp_path, head):
    config = draft_config(
        target, "dspark", mask_token=MASK, block=BLOCK, layers=2, target_layers=(0, 2), **HEADS[head]
    )
    ours = shaken(build_draft(config, target, seed=1))
    export_draft(ours, target, tmp_path / "draft", "deepspec")
    agree(ours, loaded(net, tmp_path / "draft"))


@pytest.mark.parametrize("head", HEADS)
def test_ours_computes_what_a_folder_of_their_class_does(net, target, tmp_path, head):
    """A drafter that their class made and saved, with the target's embedding and head."""
    config = draft_config(
        target, "dspark", mask_token=MASK, block=BLOCK, layers=2, target_layers=(0, 2), **HEADS[head]
    )
    export_draft(build_draft(config, target), target, tmp_path / "shape", "deepspec")
    theirs = shaken(net(loaded(net, tmp_path / "shape").config))
    model = target.decoder.backbone.model
    theirs.initialize_embeddings_and_head(
        embed_tokens=model.get_input_embeddings(), lm_head=model.get_output_embeddings()
    )
    theirs.save_pretrained(tmp_path / "theirs")
    agree(import_draft(tmp_path / "theirs", target), theirs)
