import numpy as np
import pytest
import torch
from transformers import MuseGlimmerAssistantModel

from refork.errors import BadInput, CannotDo
from refork.policies.base import Sampling
from refork.policies.load import quiet
from refork.types import token_array
from refork_methods.speculate.config import draft_config
from refork_methods.speculate.data import Prompt, answers
from refork_methods.speculate.decoder import SpeculativeDecoder
from refork_methods.speculate.dflash_hf import as_assistant, save_assistant
from refork_methods.speculate.loss import LossWeights
from refork_methods.speculate.model import build_draft
from refork_methods.speculate.train import DraftTraining, train_draft
from support.drafters import random_target

MASK, TOKENS = 257, 40
GREEDY = Sampling(temperature=0.0, max_tokens=TOKENS)


@pytest.fixture(scope="module")
def target():
    """A random model; greedy, it runs into loops that a small drafter learns soon."""
    return random_target(initializer_range=0.15)


@pytest.fixture(scope="module")
def draft(target):
    prompts = [Prompt(text=chr(97 + i % 26) * (1 + i // 26)) for i in range(48)]
    said = answers(target, prompts, GREEDY).examples
    config = draft_config(target, "dflash", block=4, layers=1, mask_token=MASK)
    plan = DraftTraining(
        steps=60,
        batch=24,
        rows=24,
        anchors=8,
        learning_rate=1e-2,
        terms=LossWeights(1.0, 0.0, 0.0),
        held_out=0,
    )
    return train_draft(target, said, config, plan).draft


def theirs(target, assistant, prompt):
    """What transformers says with the assistant, and how often it was asked to draft."""
    model, asked = target.decoder.backbone.model, []
    hook = assistant.register_forward_hook(lambda *_: asked.append(1))
    try:
        with quiet():
            found = model.generate(
                torch.tensor(prompt[None]).long(),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=TOKENS,
                do_sample=False,
                assistant_model=assistant,
                speculation_type="dflash",
            )
    finally:
        hook.remove()
    return found[0, len(prompt) :].tolist(), len(asked)


def test_transformers_drafts_with_it_as_we_do(target, draft):
    assistant = as_assistant(draft)
    accepted = rounds = 0
    for text in ("q", "hello", "zzz zz"):
        prompt = token_array(target.encode(text))
        with quiet():
            plain = target.decoder.backbone.model.generate(
                torch.tensor(prompt[None]).long(),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=TOKENS,
                do_sample=False,
            )[0, len(prompt) :].tolist()
        said, asked = theirs(target, assistant, prompt)
        assert said == plain
        ours = SpeculativeDecoder(target, draft)
        [mine] = ours.generate([prompt], GREEDY)
        assert mine.tokens.tolist() == plain
        # Greedy rounds are no matter of chance: as many here as there.
        assert ours.stats.rounds == asked
        rounds += asked
        accepted += len(plain) - 1 - asked
    # By chance one round in 258 would keep a draft.
    assert accepted / rounds > 0.2


def test_its_hidden_states_are_ours(target, draft):
    tokens = np.random.default_rng(0).integers(256, size=20).astype(np.int32)
    layers = draft.config.target_layers
    states = torch.from_numpy(target.hidden_states([tokens], layers)[0].copy()).transpose(0, 1)[None]
    anchor = torch.tensor([[20]])
    with torch.no_grad():
        ours = draft.packed(states, anchor, torch.tensor([[7]]))[0, 0]
        block = torch.tensor([[7, *[MASK] * draft.config.block]])
        found = as_assistant(draft)(
            noise_embeds=draft.ends.embed(block),
            context_hidden_states=states.flatten(-2),
            position_ids=torch.arange(20 + block.shape[1])[None],
        )
    assert (found.last_hidden_state[0, 1:] - ours).abs().max() < 1e-5


def test_written_and_read_by_transformers(target, draft, tmp_path):
    save_assistant(draft, tmp_path / "assistant")
    with quiet():
        read = MuseGlimmerAssistantModel.from_pretrained(tmp_path / "assistant")
    assert torch.equal(read.encoder.fc.weight, draft.fc.weight)
    # They name blocks from 0, we name hidden states.
    assert read.config.target_layer_ids == [layer - 1 for layer in draft.config.target_layers]
    with pytest.raises(BadInput, match="holds something"):
        save_assistant(draft, tmp_path / "assistant")


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("dspark", {}, "anchor's slot"),
        ("dflash", {"head": "markov"}, "sequential head"),
        ("dflash", {"mask_token": None}, "a row that it learned"),
        ("dflash", {"window": 8}, "see all context"),
    ],
)
def test_what_transformers_cannot_run_is_refused(target, kind, changes, says):
    fields = {"layers": 1, "rank": 4, "mask_token": MASK} | changes
    with pytest.raises(CannotDo, match=says):
        as_assistant(build_draft(draft_config(target, kind, **fields), target))
