"""How passes are computed on a GPU, run on a processor: pieces of equal size, attention in float64."""

import numpy as np
import pytest
import torch

from refork.decoding import alone, attention, packed
from refork.decoding.backbone import Backbone
from refork.decoding.loop import BranchDecoder
from refork.decoding.score import score
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey
from support import decoder_models as models

PREFIXES = models.prefixes()
SETTINGS = Sampling(max_tokens=12)
NAMES = ("llama", "qwen3", "gemma2", "gpt_oss", "gpt2", "falcon")


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(alone, "EXACT", ("cpu",))
    monkeypatch.setattr(packed, "pieced", lambda weight: True)
    monkeypatch.setattr(packed, "packs", lambda weight: False)
    monkeypatch.setattr(Backbone, "granule", property(lambda self: self.linears.piece))
    monkeypatch.setattr(Backbone, "padded", lambda self, count: -(-count // self.granule) * self.granule)


def draw(decoder, which):
    noise = [NoiseKey(7, i, 0) for i in which]
    drawn = decoder.sample([PREFIXES[i] for i in which], noise, SETTINGS)
    return {which[x.index]: (x.tokens.tobytes(), x.logprobs_t1.tobytes()) for x in drawn}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [name for name in NAMES if name in models.ARCHITECTURES])
def test_it_gives_the_models_own_log_probs_whatever_else_is_drawn(as_on_a_gpu, name, dtype):
    model = models.make(name).to(dtype)
    backbone = Backbone(model)
    assert backbone.granule in (64, 128, 256, 512)
    assert backbone.steady
    decoder = BranchDecoder(backbone)
    whole = draw(decoder, list(range(len(PREFIXES))))
    for i in (0, 4, len(PREFIXES) - 1):
        assert draw(BranchDecoder(backbone), [i])[i] == whole[i]
    texts = [np.concatenate([PREFIXES[i], np.frombuffer(whole[i][0], np.int32)]) for i in (3, 5)]
    for text, found in zip(texts, score(decoder, texts), strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.from_numpy(text.astype(np.int64))[None]).logits[0, :-1]
        own = torch.log_softmax(logits.float(), -1).gather(
            1, torch.from_numpy(text[1:, None].astype(np.int64))
        )
        apart = np.abs(found - own[:, 0].numpy())
        # In bfloat16 a token may be sent to another expert, which moves it by more than rounding.
        assert apart.max() < 2e-4 if dtype == torch.float32 else np.median(apart) < 0.05


def test_attention_is_computed_in_float64_and_given_back_in_the_models_format(as_on_a_gpu, monkeypatch):
    seen = []
    whole = attention.softmax
    monkeypatch.setattr(attention, "softmax", lambda scores: seen.append(scores.dtype) or whole(scores))
    draw(BranchDecoder(Backbone(models.make("llama").to(torch.bfloat16))), [0, 3, 5])
    assert set(seen) == {torch.float64}


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("bias", [False, True])
def test_pieces_are_the_whole_product(rows, bias):
    layer = torch.nn.Linear(24, 40, bias=bias)
    given = torch.randn(1, rows, 24)
    with torch.inference_mode():
        found = packed.in_pieces(given, layer.weight, layer.bias, 64)
        torch.testing.assert_close(found, layer(given))
        # A row's product has 64 rows, whatever the row's place and company.
        alone_ = packed.in_pieces(given[:, -1:], layer.weight, layer.bias, 64)
        assert torch.equal(alone_[0, 0], found[0, -1])


def test_a_size_of_piece_in_which_places_differ_is_not_taken(monkeypatch):
    monkeypatch.setattr(packed, "pieced", lambda weight: True)
    asked = []

    def same(weight, rows):
        asked.append(rows)
        return rows == 128

    monkeypatch.setattr(packed, "_same_anywhere", same)
    assert packed.PackedLinears(torch.nn.Sequential(torch.nn.Linear(4, 4))).piece == 128
    assert asked == [256, 128]
