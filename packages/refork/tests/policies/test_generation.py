"""A draw ends where the model's own ``generate`` ends, and the card says what else ``generate`` would do."""

import numpy as np
import pytest
import torch

from refork.decoding.live import LiveDecoder
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.generation import end_ids
from refork.policies.local import LocalPolicy
from refork.sampling.noise import NoiseKey
from support.models import make_model, make_tokenizer

LIST = [7, 40, 201]
LIMIT = 60


def listing(eos):
    """The tiny model whose generation config names these ends."""
    model = make_model()
    model.generation_config.eos_token_id = eos
    return LocalPolicy(model, make_tokenizer(), name="tiny")


def prompts(policy):
    return [policy.encode(text) for text in ("hello ", "x", "some longer text 12", "?!")]


def generated(policy, prompt, said):
    """How many of some tokens ``generate`` would have said: what it is made to say is what was drawn."""

    def only(_, ids):
        place = ids.shape[-1] - len(prompt)
        return [int(said[place])]

    ids = torch.from_numpy(prompt.copy()).long()[None]
    out = policy.model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=len(said),
        do_sample=False,
        pad_token_id=policy.codec.tokenizer.eos_token_id,
        prefix_allowed_tokens_fn=only,
    )
    return out.shape[1] - len(prompt)


@pytest.mark.parametrize("eos", [LIST, 40, None, [7, 9999]])
def test_no_draw_runs_past_where_generate_stops(eos):
    """What was drawn with no end at all is given to ``generate``, which stops where the draws do."""
    policy = listing(eos)
    requests = [Request(p, NoiseKey(3, i, d)) for i, p in enumerate(prompts(policy)) for d in range(8)]
    free = sample_all(policy, requests, Sampling(max_tokens=LIMIT, ignore_eos=True))
    drawn = sample_all(policy, requests, Sampling(max_tokens=LIMIT))
    own = set(policy.codec.eos_ids)
    stopped = 0
    for request, whole, item in zip(requests, free, drawn, strict=True):
        mine = [place for place, token in enumerate(whole.tokens.tolist()) if token in own]
        until = min([generated(policy, request.tokens, whole.tokens), *(place + 1 for place in mine)])
        np.testing.assert_array_equal(item.tokens, whole.tokens[:until])
        ended = whole.tokens[until - 1] in own | end_ids(policy.model, 258)
        assert (item.finish == "stop") == ended
        stopped += ended and int(item.tokens[-1]) not in own
    assert (stopped > 2) == (eos is not None)


def test_a_served_request_ends_at_the_list_too():
    policy = listing(LIST)
    live = LiveDecoder(policy.decoder)
    asked, said = {}, {}
    for draw, prompt in enumerate(prompts(policy) * 6):
        key = NoiseKey(8, 0, draw)
        asked[live.submit(policy.ask(prompt, key, Sampling(max_tokens=LIMIT)))] = Request(prompt, key)
    while not live.idle:
        for part in live.step():
            said.setdefault(part.request_id, []).extend(part.tokens.tolist())
    plain = sample_all(policy, list(asked.values()), Sampling(max_tokens=LIMIT))
    assert [said[ticket] for ticket in asked] == [item.tokens.tolist() for item in plain]
    assert any(tokens[-1] in LIST for tokens in said.values())


def test_the_card_names_the_ends_and_what_is_not_obeyed():
    policy = listing(LIST)
    assert policy.card.extra["ends"] == sorted({*LIST, *policy.codec.eos_ids})
    assert "generation_config_not_applied" not in policy.card.extra
    model = make_model()
    said = {"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1, "do_sample": True}
    said["suppress_tokens"] = [3, 4]
    model.generation_config.update(**said, max_new_tokens=5)
    model.generation_config.stop_strings = ["Human:"]
    card = LocalPolicy(model, make_tokenizer()).card
    assert card.extra["generation_config_not_applied"] == {**said, "stop_strings": ["Human:"]}


def test_ends_follow_the_config_as_it_is_now():
    policy = listing(None)
    before = policy.end_ids
    policy.model.generation_config.eos_token_id = 12
    assert policy.end_ids == before | {12}
