"""The random numbers of rounds: addressed, and those of plain decoding where the rule is coupled."""

import numpy as np

from refork.sampling.noise import NoiseKey, gumbels, uniforms
from refork_methods.speculate.accept import PlainChances, plain_gumbels, round_chances

KEYS = [NoiseKey(3, 8, draw) for draw in range(4)]


def test_a_round_has_its_numbers_whatever_is_beside_it():
    said = np.array([1, 5, 9, 5])
    together = round_chances(KEYS, said, 3)
    alone = round_chances([KEYS[2]], said[2:3], 3)
    for name in ("draft", "accept", "residual"):
        assert np.array_equal(getattr(together, name)[2:3], getattr(alone, name))
    some = together.some(np.array([2]))
    assert np.array_equal(some.draft, alone.draft)


def test_no_number_of_a_round_is_used_in_another_nor_by_plain_decoding():
    rounds = [round_chances(KEYS[:1], np.array([said]), 3) for said in range(1, 40)]
    drawn = np.concatenate([np.concatenate([r.draft[0], r.accept[0], r.residual]) for r in rounds])
    plain = uniforms(KEYS[:1], 400)[0]
    assert len(np.unique(np.concatenate([drawn, plain]))) == len(drawn) + len(plain)


def test_plain_numbers_are_those_of_plain_decoding():
    plain, wanted = PlainChances(), uniforms(KEYS, 300)
    request_ids = np.arange(4)
    said = np.array([1, 1, 60, 63])
    rng = np.random.default_rng(0)
    for _ in range(40):
        found = plain.uniforms(request_ids, KEYS, said, 5)
        assert all(np.array_equal(found[i], wanted[i, said[i] : said[i] + 5]) for i in range(4))
        said = said + rng.integers(1, 6, 4)
    plain.forget(request_ids)
    assert np.array_equal(plain.uniforms(request_ids[:1], KEYS, said[:1] * 0, 3)[0], wanted[0, :3])


def test_gumbels_are_those_of_plain_decoding():
    found = plain_gumbels(KEYS[:2], np.array([2, 7]), 3, 10)
    assert np.array_equal(found[1, 2], gumbels(KEYS[1:2], 9, 10)[0])


def test_uniforms_of_many_offsets_are_those_of_each():
    found = uniforms(KEYS, 4, np.array([0, 3, 9, 2]))
    assert all(np.array_equal(found[i], uniforms([KEYS[i]], 4, s)[0]) for i, s in enumerate([0, 3, 9, 2]))
