"""The local policy over a tiny model with a real byte-level tokenizer."""

import dataclasses

import numpy as np
import pytest
import torch

from refork.decoding.draw import RunningRequest
from refork.decoding.states import Capture, Edit
from refork.errors import BadInput, CannotDo, WrongTokenizer, WrongWeights
from refork.policies.base import Policy, Request, Sampling, sample_all
from refork.policies.load import cache_only
from refork.policies.local import LocalPolicy
from refork.policies.weights import require_weights, weights_digest
from refork.sampling import distribution
from refork.sampling.noise import NoiseKey
from refork.types import token_array
from support import decoder_models as models
from support.models import CONTEXT, make_model, make_tokenizer


@pytest.fixture(scope="module")
def policy():
    return LocalPolicy(make_model(), make_tokenizer(), name="tiny")


def requests(policy, text="hello ", count=3):
    tokens = policy.encode(text)
    return [Request(tokens, NoiseKey(5, 0, draw)) for draw in range(count)]


def test_it_is_a_policy_and_says_who_it_is(policy):
    assert isinstance(policy, Policy)
    card = policy.card
    assert (card.name, card.kind, card.vocabulary, card.context) == ("tiny", "local", 258, CONTEXT)
    assert card.weights == weights_digest(policy.model)
    assert card.tokenizer == policy.codec.digest
    assert all(card.can(c) for c in ("tokens", "logprobs", "scores", "paired", "whitebox"))


def test_a_continuation_is_complete(policy):
    drawn = sample_all(policy, requests(policy), Sampling(max_tokens=12, entropy_top_k=5))
    for item in drawn:
        assert item.text == policy.decode(item.tokens)
        assert item.offsets is not None
        assert item.offsets[-1] == len(item.text)
        assert item.entropy is not None
        assert len(item.entropy) == len(item.logprobs) == len(item.tokens)
        assert (item.cost.tokens_in, item.cost.tokens_out) == (6, len(item.tokens))
        assert item.ref_logprobs is None
    assert len({item.tokens.tobytes() for item in drawn}) == 3


def test_sampled_and_scored_logprobs_agree(policy):
    drawn = sample_all(policy, requests(policy), Sampling(max_tokens=20))
    prefix = policy.encode("hello ")
    scored = policy.logprobs([np.concatenate([prefix, item.tokens]) for item in drawn])
    for item, values in zip(drawn, scored, strict=True):
        np.testing.assert_allclose(item.logprobs, values[len(prefix) - 1 :], atol=1e-5, rtol=0)


def test_end_of_sequence_and_stop_ids(policy):
    always_end = Sampling(max_tokens=5, banned=tuple(range(1, 258)))
    first = sample_all(policy, requests(policy), always_end)[0]
    assert (first.tokens.tolist(), first.finish, first.text) == ([0], "stop", "")
    ignored = sample_all(policy, requests(policy), always_end.but(ignore_eos=True))[0]
    assert (ignored.tokens.tolist(), ignored.finish) == ([0] * 5, "length")
    letter = int(policy.encode("q")[0])
    stopped = sample_all(policy, requests(policy), Sampling(forced=(letter,), stop_ids=(letter,)))[0]
    assert (stopped.tokens.tolist(), stopped.finish, stopped.text) == ([letter], "stop", "q")


@pytest.mark.parametrize(
    ("said", "stop", "kept"),
    [
        ("xyz!", "yz", "xyz"),  # over a border
        ("abab", "b", "ab"),  # inside a token
        ("12345", "45", "12345"),
        ("xé!", "é", "xé"),  # a letter of two tokens
        ("a b", " ", "a "),
        ("xyz", "Q", "xyz"),
    ],
)
def test_stop_strings(policy, said, stop, kept):
    """Only one token is allowed at each place: the text is forced through bans, not through ``forced``."""
    ids = policy.encode(said)
    model = make_model()
    chain = {0: int(ids[0])} | {i + 1: int(t) for i, t in enumerate(ids[1:])}
    scripted = _Chain(model, chain)
    other = LocalPolicy(model, make_tokenizer())
    with scripted:
        drawn = sample_all(other, requests(other, "hello ", 1), Sampling(max_tokens=len(ids), stop=(stop,)))[
            0
        ]
    assert drawn.text == kept
    assert drawn.finish == ("stop" if stop in kept else "length")


@pytest.mark.parametrize("stops", [("\n\n", "é "), ("ab", "a\nb"), ("b" * 30,)])
def test_a_stop_string_is_found_in_the_end_of_a_text_as_in_all_of_it(policy, stops):
    rng = np.random.default_rng(0)
    alphabet = np.concatenate([policy.encode("ab\né "), policy.encode("b" * 6), [0]])
    check = policy.ask(alphabet, NoiseKey(0, 0, 0), Sampling(stop=stops)).ends.check
    met = 0
    for _ in range(6):
        said = rng.choice(alphabet, size=260).astype(np.int32)
        if len(stops[0]) == 30:
            said[200:231] = policy.encode("b")[0]
        for count in range(1, len(said) + 1):
            text, offsets = policy.codec.pieces(said[:count])
            before = int(offsets[-2]) if count > 1 else 0
            whole = any(text.find(stop, max(0, before - len(stop) + 1)) >= 0 for stop in stops)
            assert check(said[:count]) == whole
            met += whole
    assert met > 6


class _Chain:
    """Makes a model say given tokens: its logits are replaced by the place in the sequence."""

    def __init__(self, model, chain):
        self.model, self.chain = model, chain

    def __enter__(self):
        start = len("hello ")
        seen = {}

        def remember(module, args, kwargs):
            seen["places"] = kwargs["position_ids"][0]
            seen["wanted"] = kwargs["logits_to_keep"]

        def replace(module, args, kwargs, out):
            places, wanted = seen["places"], seen["wanted"]
            rows = places if isinstance(wanted, int) else places[wanted]
            for row, place in enumerate(rows.tolist()):
                if place - start + 1 in self.chain:
                    out.logits[0, row, self.chain[place - start + 1]] += 1e4
            return out

        self.hooks = [
            self.model.register_forward_pre_hook(remember, with_kwargs=True),
            self.model.register_forward_hook(replace, with_kwargs=True),
        ]

    def __exit__(self, *_):
        for hook in self.hooks:
            hook.remove()


def test_forced_tokens_come_first_and_do_not_stop(policy):
    forced = tuple(int(t) for t in policy.encode("a,b"))
    settings = Sampling(max_tokens=6, forced=forced, stop=(",",), banned_first=(7,))
    for item in sample_all(policy, requests(policy), settings):
        assert tuple(item.tokens[:3]) == forced
        assert item.tokens[3] != 7
        assert np.isfinite(item.logprobs).all()


def test_a_stop_string_may_begin_in_what_the_turn_has_said(policy):
    """A greedy turn that is cut anywhere inside its stop string and goes on ends where it ended."""
    cold = Sampling(max_tokens=12, temperature=0.0, ignore_eos=True)
    prompt = policy.encode("hello ")
    whole = sample_all(policy, [Request(prompt, NoiseKey(0, 0, 0))], cold)[0]
    ends = [0, *whole.offsets.tolist()]
    stop = whole.text[ends[3] : ends[7]]
    assert len(stop) > 1
    place = whole.text.index(stop) + len(stop)
    size = ends.index(min(end for end in ends if end >= place))
    asked = cold.but(stop=(stop,))
    for cut in range(size):
        prefix = np.concatenate([prompt, whole.tokens[:cut]])
        request = Request(prefix, NoiseKey(0, 0, 0), generated=cut)
        (found,) = sample_all(policy, [request], asked)
        assert found.finish == "stop"
        assert found.tokens.tolist() == whole.tokens[cut:size].tolist()
        live = RunningRequest(0, policy.ask(prefix, request.noise, asked, generated=cut), 12)
        said = [live.ended(int(token), n) for n, token in enumerate(whole.tokens[cut:size], 1)]
        assert said == [None] * (size - cut - 1) + ["stop"]


def test_the_context_ends_a_continuation(policy):
    long = token_array([5] * (CONTEXT - 3))
    item = next(
        iter(policy.sample([Request(long, NoiseKey(0, 0, 0))], Sampling(max_tokens=9, ignore_eos=True)))
    )
    assert (len(item.tokens), item.finish) == (3, "length")
    with pytest.raises(BadInput, match="context"):
        list(policy.sample([Request(token_array([5] * CONTEXT), NoiseKey(0, 0, 0))], Sampling()))
    with pytest.raises(BadInput, match="context"):
        policy.logprobs([token_array([5] * (CONTEXT + 1))])


@pytest.mark.parametrize("tokens", [[], [258], [-1], [3, 4, 999]])
def test_bad_prefixes_are_refused(policy, tokens):
    request = Request(token_array(tokens), NoiseKey(0, 0, 0))
    with pytest.raises(BadInput) as caught:
        list(policy.sample([request], Sampling()))
    assert caught.value.where is not None
    assert "request 0" in caught.value.where
    with pytest.raises(BadInput):
        policy.logprobs([request.tokens])


@pytest.mark.parametrize("field", ["banned", "banned_first", "forced", "stop_ids"])
def test_bad_ids_in_the_settings_are_refused(policy, field):
    with pytest.raises(BadInput, match="999"):
        list(policy.sample(requests(policy), Sampling(**{field: (999,)})))


def test_logits_that_are_not_finite_name_request_and_place():
    model = make_model()
    with torch.no_grad():
        model.model.embed_tokens.weight[9] = torch.nan
    broken = LocalPolicy(model, make_tokenizer())
    good, bad = broken.encode("hello"), token_array([9])
    keys = [NoiseKey(0, 0, i) for i in range(2)]
    with pytest.raises(BadInput, match="not finite") as caught:
        list(broken.sample([Request(good, keys[0]), Request(bad, keys[1])], Sampling(max_tokens=2)))
    assert caught.value.where == "request 1, new token 0"


def test_rows_without_text_are_never_drawn():
    padded = LocalPolicy(make_model(size=300, spread=0.01), make_tokenizer())
    assert padded.card.vocabulary == 258
    drawn = sample_all(padded, requests(padded, count=8), Sampling(max_tokens=16, ignore_eos=True))
    assert max(int(item.tokens.max()) for item in drawn) < 258
    asked = padded.ask(padded.encode("a"), NoiseKey(0, 0, 0), Sampling(stop=("b",), banned=(5,)), top=2)
    assert asked.settings.banned == (5, *range(258, 300))
    assert (asked.top, set(padded.codec.eos_ids) <= asked.ends.ids) == (2, True)
    assert asked.ends.check(padded.encode("xb"))
    with pytest.raises(BadInput, match="empty"):
        padded.ask(token_array([]), NoiseKey(0, 0, 0), Sampling())
    with pytest.raises(BadInput, match="outside the vocabulary"):
        padded.ask(padded.encode("a"), NoiseKey(0, 0, 0), Sampling(banned=(300,)))


def test_hidden_states_of_given_and_fresh_tokens(policy):
    settings = Sampling(max_tokens=5, ignore_eos=True)
    asked = requests(policy)
    plain_draws = sample_all(policy, asked, settings)
    for item, states in policy.sample_captured(asked, settings, Capture((0, -1), prefix="last")):
        np.testing.assert_array_equal(item.tokens, plain_draws[item.index].tokens)
        whole = np.concatenate([asked[item.index].tokens, item.tokens])
        with torch.no_grad():
            plain = policy.model(
                torch.from_numpy(whole).long()[None], output_hidden_states=True
            ).hidden_states
        assert states.fresh.shape == (2, 5, 32)
        np.testing.assert_allclose(states.prefix[0, 0], plain[0][0, -6].numpy(), atol=1e-5)
        np.testing.assert_allclose(states.fresh[0], plain[0][0, -5:].numpy(), atol=1e-5)
        np.testing.assert_allclose(states.fresh[1], plain[-1][0, -5:].numpy(), atol=2e-5)
        read = policy.hidden_states([whole], [0, 2], starts=[len(whole) - 5])[0]
        np.testing.assert_allclose(read, states.fresh, atol=2e-5)
    with pytest.raises(BadInput, match="layer"):
        policy.hidden_states([asked[0].tokens], [3])
    with pytest.raises(BadInput, match="layer"):
        list(policy.sample_captured(asked, settings, Capture((7,))))


def test_an_edited_view_is_another_policy_of_the_same_model(policy):
    settings = Sampling(max_tokens=8, ignore_eos=True)
    asked = requests(policy)
    before = sample_all(policy, asked, settings)
    same = policy.edited(Edit(1, lambda states: states * 1.0, "nothing"))
    push = torch.linspace(-3, 3, 32)
    moved = policy.edited(Edit(1, lambda states: states + push, "push"))
    back = moved.edited(Edit(1, lambda states: states - push, "pull"))
    assert same.model is policy.model
    assert back.card.name == f"{policy.card.name}+push+pull"
    assert [edit["name"] for edit in back.card.extra["edits"]] == ["push", "pull"]
    assert back.card.extra["unedited"] == policy.card.weights
    digests = {p.card.weights for p in (policy, same, moved, back)}
    assert len(digests) == 4
    assert policy.card.can("whitebox")
    for view, changes in ((same, False), (moved, True), (back, False)):
        drawn = sample_all(view, asked, settings)
        equal = all(np.array_equal(a.tokens, b.tokens) for a, b in zip(before, drawn, strict=True))
        assert equal != changes
    again = sample_all(policy, asked, settings)
    for one, two in zip(before, again, strict=True):
        np.testing.assert_array_equal(one.logprobs, two.logprobs)
    with pytest.raises(BadInput, match="no edit"):
        policy.edited()
    whole = asked[0].tokens
    with pytest.raises(BadInput, match="prompt of"):
        moved.logprobs([whole], prompts=[len(whole) + 1])
    with pytest.raises(BadInput, match="2 prompts"):
        moved.logprobs([whole], prompts=[1, 1])


def test_reference_logprobs():
    reference = LocalPolicy(make_model(seed=1), make_tokenizer())
    policy = LocalPolicy(make_model(), make_tokenizer(), reference=reference)
    plain = LocalPolicy(make_model(), make_tokenizer())
    asked, settings = requests(policy, count=300), Sampling(max_tokens=3)
    with_reference, without = sample_all(policy, asked, settings), sample_all(plain, asked, settings)
    scored = reference.logprobs([np.concatenate([asked[0].tokens, x.tokens]) for x in with_reference])
    for item, other, values in zip(with_reference, without, scored, strict=True):
        np.testing.assert_array_equal(item.ref_logprobs, values[len(asked[0].tokens) - 1 :])
        same = dataclasses.replace(item, ref_logprobs=None)
        assert same.tokens.tobytes() == other.tokens.tobytes()
        assert same.logprobs.tobytes() == other.logprobs.tobytes()
    with pytest.raises(WrongTokenizer):
        LocalPolicy(make_model(size=259), make_tokenizer(extra=("ö",)), reference=reference)


def test_refresh_sees_new_weights():
    policy = LocalPolicy(make_model(), make_tokenizer())
    sequence = token_array(list(range(1, 130)))
    before, digest = policy.logprobs([sequence])[0], policy.card.weights
    with torch.no_grad():
        policy.model.lm_head.weight.mul_(0.5)
        policy.model.model.layers[0].self_attn.k_proj.weight.mul_(2.0)
    policy.refresh()
    after = policy.logprobs([sequence])[0]
    assert policy.card.weights != digest
    assert not np.array_equal(before, after)
    fresh = LocalPolicy(policy.model, make_tokenizer()).logprobs([sequence])[0]
    np.testing.assert_array_equal(after, fresh)


def test_digests_name_the_weights():
    one, same, other = make_model(), make_model(), make_model(seed=2)
    assert weights_digest(one) == weights_digest(same) != weights_digest(other)
    assert weights_digest(one) != weights_digest(make_model().to(torch.bfloat16))
    require_weights("a", "a", "node 1")
    require_weights(None, "a", "node 1")
    with pytest.raises(WrongWeights):
        require_weights("a", "b", "node 1")


def test_loading(tmp_path):
    model = make_model()
    model.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    loaded = LocalPolicy.load(str(tmp_path), reference=str(tmp_path))
    assert loaded.card.name == tmp_path.name
    assert loaded.card.weights == weights_digest(model)
    for item in sample_all(loaded, requests(loaded), Sampling(max_tokens=4)):
        np.testing.assert_allclose(item.ref_logprobs, item.logprobs, atol=1e-5)
    half = LocalPolicy.load(str(tmp_path), dtype="bfloat16")
    assert half.card.extra["dtype"] == "bfloat16"
    assert len(sample_all(half, requests(half), Sampling(max_tokens=4))) == 3
    with pytest.raises(BadInput, match="cannot load a model"):
        LocalPolicy.load(str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match="cannot load an adapter"):
        LocalPolicy.load(str(tmp_path), adapter=str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match="dtype"):
        LocalPolicy.load(str(tmp_path), dtype="int3")
    with pytest.raises(BadInput, match="device"):
        LocalPolicy.load(str(tmp_path), device="abacus")
    if not torch.cuda.is_available():
        with pytest.raises(CannotDo, match="cuda"):
            LocalPolicy.load(str(tmp_path), device="cuda")


def test_no_requests_no_work(policy):
    assert list(policy.sample([], Sampling())) == []
    assert policy.logprobs([]) == []
    assert policy.logprobs([token_array([5])])[0].shape == (0,)


def test_exclude_first_draws_from_the_filtered_law_without_that_token(policy):
    prefix = policy.encode("hello ")
    settings = Sampling(max_tokens=2, top_k=6, temperature=0.8)
    kept = distribution.restrict(torch.from_numpy(policy.next_logprobs([prefix])[0])[None], settings)
    exact = torch.softmax(kept[0].double(), 0).numpy()
    out = int(exact.argmax())
    asked = [Request(prefix, NoiseKey(1, 0, draw), exclude_first=out) for draw in range(600)]
    said = sample_all(policy, asked, settings)
    exact[out] = 0.0
    exact /= exact.sum()
    counts = np.bincount([int(one.tokens[0]) for one in said], minlength=len(exact))
    assert counts[out] == 0
    # Chi-square with four degrees of freedom: above 23.5 once in ten thousand seeds.
    expected = exact[exact > 0] * len(said)
    assert ((counts[exact > 0] - expected) ** 2 / expected).sum() < 23.5
    for one in said[:20]:
        assert float(np.exp(one.logprobs[0])) == pytest.approx(exact[one.tokens[0]], abs=1e-5)


def test_a_request_has_terms_of_its_own_beside_others(policy):
    prefix = policy.encode("hello ")
    plain = sample_all(policy, requests(policy), Sampling(max_tokens=9, ignore_eos=True))
    first = int(plain[1].tokens[0])
    mixed = [
        Request(prefix, NoiseKey(5, 0, 0), max_tokens=4),
        Request(prefix, NoiseKey(5, 0, 1), exclude_first=first),
        Request(prefix, NoiseKey(5, 0, 2), max_tokens=0),
    ]
    short, other, nothing = sample_all(policy, mixed, Sampling(max_tokens=9, ignore_eos=True))
    np.testing.assert_array_equal(short.tokens, plain[0].tokens[:4])
    assert (short.finish, nothing.finish, len(nothing.tokens), nothing.text) == ("length", "length", 0, "")
    assert other.tokens[0] != first
    only = Sampling(banned=tuple(i for i in range(258) if i != first))
    with pytest.raises(BadInput, match="no token is left"):
        sample_all(policy, [mixed[1]], only)
    with pytest.raises(BadInput, match="exclude_first"):
        sample_all(policy, [Request(prefix, NoiseKey(5, 0, 1), exclude_first=9999)], Sampling())


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch):
    """Nothing cached: refused at once. Cached: read from there. A folder: not asked at all."""
    import huggingface_hub
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(BadInput, match="nothing of that name is cached"):
        LocalPolicy.load("nobody/none")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda name, file: "config.json")
    assert cache_only("a model", "somebody/some") is True
    assert cache_only("a model", ".") is False


def test_the_card_says_where_batches_may_change_last_bits():
    """JetMoE gives each expert as many rows as its router sends, in a loop of its own."""
    from transformers import JetMoeConfig, JetMoeForCausalLM

    torch.manual_seed(0)
    shape = {name: value for name, value in models.PLAIN.items() if name != "num_attention_heads"}
    routed = {"num_key_value_heads": 2, "kv_channels": 16, "num_local_experts": 4, "num_experts_per_tok": 2}
    uneven = JetMoeForCausalLM(JetMoeConfig(**shape, **routed)).eval()
    policy = LocalPolicy(uneven, make_tokenizer(), forward="packed")
    assert "last bits" in policy.card.extra["batches"]
    for name in ("llama", "qwen3_moe", "gpt_oss"):
        assert "batches" not in LocalPolicy(models.make(name), make_tokenizer()).card.extra
