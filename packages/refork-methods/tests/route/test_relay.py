from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo, ServerError
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.scripted import ScriptedPolicy
from refork.sampling.noise import NoiseKey
from refork.types import token_array
from refork_methods.route.relay import NextSpeaker, Relay, Voice, by_chance, by_schedule

LAW = Sampling(max_tokens=8)


def says(text, words=("aye", "nay", "yea")):
    def law(before):
        return {"": 1.0} if before.endswith(text) else {text: 1.0}

    return ScriptedPolicy.from_text(law, words, name=f"says {text}")


def key(turn=0, draw=0):
    return NoiseKey(0, 7, draw, turn)


def request(policy, turn=0, draw=0):
    messages = ({"role": "user", "content": "well"},)
    return Request(policy.render([], token_array([]), messages).tokens, key(turn, draw), messages)


def two(rule, second=None, **more):
    members = {"a": Voice(says("aye")), "b": second or Voice(says("nay"))}
    return Relay(members, rule, identity={"of": "test"}, **more)


def test_every_turn_is_said_and_signed_by_the_one_whose_turn_it_is():
    relay = two(by_schedule(["b", "a"]))
    said = sample_all(relay, [request(relay, turn) for turn in range(3)], LAW)
    assert [one.text for one in said] == ["nay", "aye", "aye"]
    assert [one.by.name for one in said] == ["b", "a", "a"]
    assert [one.by.card.name for one in said] == ["says nay", "says aye", "says aye"]
    assert relay.card.can("tokens")
    assert relay.card.can("paired")
    assert relay.decode(relay.encode("well")) == "well"


def test_a_draw_in_a_relay_is_the_draw_that_the_member_makes_alone():
    coin = ScriptedPolicy.from_chain({"": {"aye": 0.5, "nay": 0.5}, "aye": {"": 1.0}, "nay": {"": 1.0}})
    relay = Relay({"a": Voice(coin)}, by_schedule(["a"]), identity={})
    asked = [request(coin, draw=draw) for draw in range(20)]
    together, alone = sample_all(relay, asked, LAW), sample_all(coin, asked, LAW)
    assert [one.text for one in together] == [one.text for one in alone]
    assert {one.text for one in alone} == {"aye", "nay"}


def test_own_settings_rule_and_are_recorded_and_a_change_still_bans():
    own = Sampling(max_tokens=1, temperature=0.0)
    relay = two(by_schedule(["b"]), Voice(says("nay"), own))
    (said,) = sample_all(relay, [request(relay)], LAW)
    assert (said.finish, said.by.settings) == ("length", own)
    nay = int(relay.encode("nay")[0])
    (banned,) = sample_all(relay, [request(relay)], LAW.but(banned=(nay,)))
    assert banned.error is not None


def test_members_of_different_tokenizers_render_for_themselves():
    relay = two(by_schedule(["b", "a"]), Voice(says("nope", ("nope",))))
    assert not relay.card.can("tokens")
    assert relay.card.tokenizer is None
    assert len(relay.render([], token_array([]), [{"role": "user", "content": "hi"}]).tokens) == 0
    messages = ({"role": "user", "content": "well"},)
    asked = [Request(token_array([]), key(turn), messages) for turn in range(2)]
    assert [one.text for one in sample_all(relay, asked, LAW)] == ["nope", "aye"]
    with pytest.raises(CannotDo, match="share a tokenizer"):
        relay.encode("well")
    with pytest.raises(BadInput, match="messages of every turn"):
        sample_all(relay, [replace(asked[0], messages=None)], LAW)


def test_a_chance_rule_is_a_function_of_the_noise_and_fair():
    rule = by_chance(["a", "b", "c"], seed=3)
    asked = [Request(token_array([1]), key(turn, draw)) for turn in range(3) for draw in range(1000)]
    names = [turn.name for turn in rule(asked)]
    assert names == [turn.name for turn in rule(asked)]
    assert names != [turn.name for turn in by_chance(["a", "b", "c"], seed=4)(asked)]
    # 3,000 fair draws: each share lies within 5 SE of a third (fails by chance once in a million).
    shares = np.array([names.count(name) for name in "abc"]) / len(names)
    assert np.abs(shares - 1 / 3).max() < 5 * np.sqrt(2 / 9 / len(names))


class Broken:
    """A policy whose server is down."""

    def __init__(self, error=None):
        self.card = replace(says("aye").card, name="broken")
        self.error = error or ServerError("nobody answers", where="there")

    def sample(self, requests, settings):
        raise self.error
        yield


def test_a_member_that_is_down_fails_its_own_turns_only():
    relay = two(by_schedule(["b", "a"]), Voice(Broken()))
    said = sample_all(relay, [request(relay, turn) for turn in range(2)], LAW)
    assert "nobody answers" in said[0].error
    assert said[0].by.name == "b"
    assert said[1].text == "aye"
    with pytest.raises(ServerError, match="nobody answers"):
        sample_all(relay, [request(relay)], LAW)
    own = two(by_schedule(["b", "a"]), Voice(Broken(ConnectionError("refused"))))
    said = sample_all(own, [request(own, turn) for turn in range(2)], LAW)
    assert ("ConnectionError: refused" in said[0].error, said[1].text) == (True, "aye")
    with pytest.raises(ServerError, match="ConnectionError"):
        sample_all(own, [request(own)], LAW)
    wrong = two(by_schedule(["b", "a"]), Voice(Broken(CannotDo("no such setting"))))
    with pytest.raises(CannotDo):
        sample_all(wrong, [request(wrong, turn) for turn in range(2)], LAW)


def test_the_digest_is_of_the_rule_and_of_who_may_speak():
    one, same = two(by_schedule(["a"])), two(by_schedule(["a"]))
    other = Relay({"a": Voice(says("aye"))}, by_schedule(["a"]), identity={"of": "test"})
    third = Relay({"a": Voice(says("aye"))}, by_schedule(["a"]), identity={"of": "more"})
    assert one.card.weights == same.card.weights
    assert len({one.card.weights, other.card.weights, third.card.weights}) == 3


def test_what_makes_no_sense_is_refused():
    with pytest.raises(BadInput, match="at least one member"):
        Relay({}, by_schedule(["a"]), identity={})
    with pytest.raises(BadInput, match="empty"):
        by_schedule([])
    with pytest.raises(BadInput, match="nobody"):
        by_chance([])
    relay = two(lambda requests: [])
    with pytest.raises(BadInput, match="0 speakers for 1 turns"):
        sample_all(relay, [request(relay)], LAW)
    relay = two(lambda requests: [NextSpeaker("c")])
    with pytest.raises(BadInput, match="'c'"):
        sample_all(relay, [request(relay)], LAW)
    with pytest.raises(CannotDo, match="scores no given tokens"):
        relay.logprobs([token_array([1, 2])])
