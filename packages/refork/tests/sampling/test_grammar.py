"""Turns held to a grammar: the exact law, whatever is drawn beside, from a turn's middle, and bad input."""

import itertools
import json
import re

import jsonschema
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refork.decoding.live import LiveDecoder
from refork.decoding.states import Capture
from refork.errors import BadInput, CannotDo
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.scripted import ScriptedPolicy
from refork.sampling import distribution
from refork.sampling.grammar import Grammar
from refork.sampling.guide import Guides, source_of
from refork.sampling.noise import NoiseKey
from refork.types import token_array
from support.models import tiny_policy

END = 0
CHOICE = Grammar.regex("(ab|a)b{1,3}|ba?")
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "w": {"enum": ["ab", "é", 'q"']}},
    "required": ["n", "w"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


@pytest.fixture(scope="module")
def prompt(policy):
    return policy.encode("it is")


def asked(prompt, count, start=0, **more):
    return [Request(prompt, NoiseKey(3, 4, i), **more) for i in range(start, start + count)]


def whole_texts(policy, depth=7):
    """Every row of tokens that spells a text of CHOICE, the end included: brute force over a, b and ab."""
    ids = {name: int(policy.encode(name)[0]) for name in ("a", "b", "ab")}
    found = []
    for size in range(1, depth):
        for names in itertools.product(ids, repeat=size):
            if re.fullmatch(CHOICE.text, "".join(names)):
                found.append((*[ids[name] for name in names], END))
    return found


def test_each_token_s_law_is_the_plain_one_renormalised_over_what_may_still_become_a_text(policy, prompt):
    texts = whole_texts(policy)
    prefixes = sorted({text[:k] for text in texts for k in range(len(text))})
    distributions = policy.next_logprobs([token_array([*prompt, *prefix]) for prefix in prefixes])
    plain = dict(zip(prefixes, distributions, strict=True))
    drawn = sample_all(policy, asked(prompt, 400), Sampling(grammar=CHOICE))
    seen = set()
    for said in drawn:
        assert said.finish == "stop"
        assert re.fullmatch(CHOICE.text, said.text)
        row = tuple(said.tokens.tolist())
        seen.add(row)
        for k, token in enumerate(row):
            allowed = sorted({text[k] for text in texts if text[:k] == row[:k] and len(text) > k})
            share = plain[row[:k]][allowed].astype(np.float64)
            law_here = share - np.logaddexp.reduce(share)
            assert said.logprobs[k] == pytest.approx(law_here[allowed.index(token)], abs=1e-5)
            assert said.logprobs_t1[k] == pytest.approx(plain[row[:k]][token], abs=1e-5)
    assert len(seen) > 6


@pytest.mark.parametrize("kind", [{}, {"temperature": 0.7, "top_k": 2}, {"top_p": 0.6}, {"temperature": 0.0}])
def test_filters_act_on_what_is_left(kind):
    torch.manual_seed(0)
    logits = torch.randn(3, 9)
    allowed = torch.zeros(3, 9, dtype=torch.bool)
    allowed[:, [1, 4, 6, 8]] = True
    noise = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    got = distribution.draw(logits, Sampling(**kind), noise, allowed=allowed)
    few = distribution.draw(logits[:, [1, 4, 6, 8]], Sampling(**kind), noise)
    assert got.tokens.tolist() == [[1, 4, 6, 8][i] for i in few.tokens.tolist()]
    torch.testing.assert_close(got.logprobs, few.logprobs)
    torch.testing.assert_close(
        got.logprobs_t1, torch.log_softmax(logits, 1).gather(1, got.tokens[:, None])[:, 0]
    )


def test_a_row_that_may_say_all_keeps_its_bits_beside_one_that_may_not():
    torch.manual_seed(1)
    logits = torch.randn(8, 300)
    free = torch.ones(8, 300, dtype=torch.bool)
    free[3, 5:] = False
    noise = torch.rand(8, dtype=torch.float64)
    for kind in (Sampling(), Sampling(temperature=0.8, top_k=40, top_p=0.9, banned=(3,))):
        beside, alone = (
            distribution.draw(logits, kind, noise, allowed=free),
            distribution.draw(logits, kind, noise),
        )
        for row in (0, 1, 2, 4, 5, 6, 7):
            assert beside.tokens[row] == alone.tokens[row]
            assert beside.logprobs[row] == alone.logprobs[row]


@pytest.mark.parametrize("coupling", ["inverse", "gumbel"])
def test_the_same_tokens_in_any_batch_and_from_either_decoder(policy, prompt, coupling):
    law_ = Sampling(grammar=Grammar.json_schema(SCHEMA), coupling=coupling, max_tokens=60)
    many = sample_all(policy, asked(prompt, 6), law_)
    plain = sample_all(policy, asked(prompt, 3), Sampling(max_tokens=30))
    live = LiveDecoder(policy.decoder, width=5)
    tickets = [live.submit(policy.ask(prompt, NoiseKey(3, 4, i), law_, generated=0)) for i in range(6)]
    others = [live.submit(policy.ask(prompt, NoiseKey(3, 4, i), Sampling(max_tokens=30))) for i in range(3)]
    spoken = {ticket: ([], []) for ticket in (*tickets, *others)}
    while not live.idle:
        for said in live.step():
            spoken[said.request_id][0].extend(said.tokens.tolist())
            spoken[said.request_id][1].extend(said.logprobs.tolist())
    for i, said in enumerate(many):
        (alone,) = sample_all(policy, asked(prompt, 1, i), law_)
        assert alone.tokens.tolist() == said.tokens.tolist() == spoken[tickets[i]][0]
        assert alone.logprobs.tolist() == said.logprobs.tolist() == spoken[tickets[i]][1]
        if said.finish == "stop":
            jsonschema.validate(json.loads(said.text), SCHEMA)
    for i, said in enumerate(plain):
        assert said.tokens.tolist() == spoken[others[i]][0]
        assert said.logprobs.tolist() == spoken[others[i]][1]


def test_a_turn_goes_on_from_its_middle_as_it_went(policy, prompt):
    law_ = Sampling(grammar=CHOICE)
    for draw, said in enumerate(sample_all(policy, asked(prompt, 12), law_)):
        for cut in range(1, len(said.tokens) - 1):
            prefix = token_array([*prompt, *said.tokens[:cut]])
            many = sample_all(
                policy, [Request(prefix, NoiseKey(draw, 0, i), generated=cut) for i in range(6)], law_
            )
            head = said.text[: said.offsets[cut - 1]]
            assert all(re.fullmatch(CHOICE.text, head + other.text) for other in many)
    (wrong,) = sample_all(policy, asked(prompt, 1, generated=2), law_)
    assert (wrong.finish, len(wrong.tokens)) == ("error", 0)
    assert "breaks the grammar" in wrong.error


def test_what_is_wrong_with_one_is_said_of_that_one(policy, prompt):
    good = token_array([*prompt, *policy.encode("a")])
    requests = [
        Request(prompt, NoiseKey(0, 0, 0), generated=1),
        Request(good, NoiseKey(0, 0, 1), generated=1),
    ]
    bad, fine = sample_all(policy, requests, Sampling(grammar=CHOICE))
    assert (bad.finish, fine.finish) == ("error", "stop")
    live = LiveDecoder(policy.decoder)
    tickets = [
        live.submit(policy.ask(r.tokens, r.noise, Sampling(grammar=CHOICE), generated=1)) for r in requests
    ]
    ends = {}
    while not live.idle:
        ends |= {said.request_id: said for said in live.step() if said.finish}
    assert [ends[ticket].finish for ticket in tickets] == ["error", "stop"]
    assert "breaks the grammar" in ends[tickets[0]].error


def test_ends(policy, prompt):
    (cut,) = sample_all(policy, asked(prompt, 1), Sampling(grammar=Grammar.regex("b{40}"), max_tokens=7))
    assert (cut.text, cut.finish) == ("b" * 7, "length")
    (bare,) = sample_all(policy, asked(prompt, 1), Sampling(grammar=Grammar.regex("b{4}"), ignore_eos=True))
    assert (bare.text, bare.tokens.tolist()[-1] != END, bare.finish) == ("bbbb", True, "stop")
    (stopped,) = sample_all(policy, asked(prompt, 1), Sampling(grammar=Grammar.regex("b{9}"), stop=("bbb",)))
    assert (stopped.text, stopped.finish) == ("bbb", "stop")
    stop = int(policy.encode("z")[0])
    own = Sampling(grammar=Grammar.regex("b{4}"), ignore_eos=True, stop_ids=(stop,))
    assert sample_all(policy, asked(prompt, 1), own)[0].text == "bbbbz"
    forced = Sampling(grammar=CHOICE, forced=tuple(policy.encode("b").tolist()))
    assert {said.text for said in sample_all(policy, asked(prompt, 20), forced)} == {"b", "ba"}


def test_what_leaves_nothing_ends_that_turn_alone(policy, prompt):
    b = int(policy.encode("b")[0])
    law_ = Sampling(grammar=Grammar.regex("ab{3}"), banned=(b,))
    for said in sample_all(policy, asked(prompt, 2), law_):
        assert said.finish == "error"
        assert "banned" in said.error
    a = int(policy.encode("a")[0])
    first = Sampling(grammar=Grammar.regex("a|c"), banned_first=(a,))
    assert {said.text for said in sample_all(policy, asked(prompt, 9), first)} == {"c"}
    (left,) = sample_all(policy, asked(prompt, 1, exclude_first=a), Sampling(grammar=Grammar.regex("a")))
    assert left.finish == "error"
    guides = Guides([b"x", b"y"], (), 2)
    guide = guides.factory(Grammar.regex("x?z"), ())(token_array([]))
    assert guide.allowed().tolist() == [True, False]
    guide.take(0)
    with pytest.raises(BadInput, match="nothing may follow"):
        guide.allowed()


def test_hidden_states_come_with_it(policy, prompt):
    found = list(policy.sample_captured(asked(prompt, 5), Sampling(grammar=CHOICE), Capture((-1,))))
    own = sample_all(policy, asked(prompt, 5), Sampling(grammar=CHOICE))
    for said, states in found:
        assert said.tokens.tolist() == own[said.index].tokens.tolist()
        assert states.fresh.shape[1] == len(said.tokens)


WORDS = st.sampled_from(["a", "né", 'q"', "x y", "\\", "\n"])
LEAVES = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(lambda a, b: {"type": "integer", "minimum": min(a, b), "maximum": max(a, b)},
              st.integers(-99, 99), st.integers(-99, 99)),
    st.builds(lambda values: {"enum": values}, st.lists(WORDS | st.integers(-3, 3), min_size=1, max_size=3)),
    st.builds(lambda n: {"type": "string", "maxLength": n}, st.integers(0, 4)),
)  # fmt: skip
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda props, some: {
                "type": "object", "properties": props, "additionalProperties": False,
                "required": [name for name, keep in zip(props, some, strict=False) if keep],
            },
            st.dictionaries(WORDS, inner, max_size=3), st.lists(st.booleans(), min_size=3, max_size=3),
        ),
        st.builds(lambda item, n: {"type": "array", "items": item, "maxItems": n}, inner, st.integers(0, 2)),
        st.builds(lambda some: {"anyOf": some}, st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=4,
)  # fmt: skip


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(SCHEMAS, st.integers(0, 2**20))
def test_every_text_that_ends_validates(policy, schema, seed):
    prompt = policy.encode(".")
    tight = schema | {"x-guidance": {"whitespace_flexible": False}}
    law_ = Sampling(grammar=Grammar.json_schema(tight), max_tokens=80, temperature=0.7)
    for said in sample_all(policy, [Request(prompt, NoiseKey(seed, 0, i)) for i in range(3)], law_):
        assert said.error is None
        if said.finish == "stop":
            jsonschema.validate(json.loads(said.text), schema)


def test_as_a_recorded_value():
    for grammar in (CHOICE, Grammar.json_schema(SCHEMA), Grammar.json_schema(), Grammar.lark('start: "a"')):
        own = Sampling(grammar=grammar, temperature=0.5)
        again = Sampling.from_json(json.loads(json.dumps(own.to_json(), sort_keys=True)))
        assert again == own
        assert hash(again) == hash(own)
    as_object = Sampling.from_json({"grammar": {"json_schema": SCHEMA}})
    assert list(json.loads(as_object.grammar.text)["properties"]) == ["n", "w"]
    assert Sampling().to_json() == {}


@pytest.mark.parametrize(
    ("grammar", "says"),
    [
        ({"json_schema": {"type": "strin"}}, "strin"),
        ({"json_schema": {"not": {}}}, "Unimplemented"),
        ({"json_schema": {"enum": []}}, "Unsatisfiable"),
        ({"json_schema": {"$ref": "#/nowhere"}}, "nowhere"),
        ({"json_schema": "[1]"}, "must be an object"),
        ({"json_schema": "{"}, "not JSON"),
        ({"json_schema": {1j}}, "plain JSON"),
        ({"regex": "(a"}, "unclosed"),
        ({"regex": " "}, "must be a text"),
        ({"lark": "start: nothing"}, "unknown name"),
        ({"lark": "%llguidance {,}\nstart: \"a\""}, "not JSON"),
        ({"yaml": "a"}, "no grammar of kind"),
        ({"regex": "a", "lark": "b"}, "one kind"),
        ("a", "unknown|Grammar"),
    ],
)  # fmt: skip
def test_bad_grammars_are_refused(policy, prompt, grammar, says):
    with pytest.raises(BadInput, match=says):
        sample_all(policy, asked(prompt, 1), Sampling.from_json({"grammar": grammar}))


def test_options_of_a_lark_grammar_stay():
    text = '%llguidance {"allow_initial_skip": true}\nstart: "a" /b+/\n%ignore " "'
    assert '"allow_initial_skip": true, "no_forcing": true' in source_of(Grammar.lark(text))


def test_who_cannot_says_so(policy, prompt):
    script = ScriptedPolicy.from_replies(["yes"])
    with pytest.raises(CannotDo, match="no turn to a grammar"):
        sample_all(script, asked(script.encode("x"), 1), Sampling(grammar=CHOICE))
    with pytest.raises(CannotDo, match="where the turn begins"):
        policy.ask(prompt, NoiseKey(0, 0, 0), Sampling(grammar=CHOICE))
    with pytest.raises(BadInput, match="a turn of 99 tokens"):
        sample_all(policy, asked(prompt, 1, generated=99), Sampling(grammar=CHOICE))
