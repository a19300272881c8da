from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from refork.errors import BadInput
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.scripted import ScriptedPolicy
from refork.sampling.noise import NoiseKey
from refork.types import token_array
from refork.worlds.base import Task
from refork.worlds.lock import (
    CHOICES,
    LENGTH,
    PIVOTS,
    LockWorld,
    lock_action,
    lock_distribution,
    lock_success,
)

CODES = ["".join(code) for code in product(CHOICES, repeat=4)]


def test_one_action_of_32_signs_opens_it():
    world = LockWorld()
    for task in world.tasks("train", 20):
        right = lock_action(task.data["right"])
        assert len(right) == LENGTH == 32
        assert [i for i, sign in enumerate(right) if sign != "."] == list(PIVOTS)
        seen = world.start(task, 0).step(right)
        assert (seen.text, seen.done, seen.reward) == ("the lock opens", True, 1.0)
        spaced = world.start(task, 0).step("  " + " ".join(right) + "\n")
        assert spaced.reward == 1.0
        for wrong in (right[:-1], right + ".", right.replace(".", "a"), right.upper(), ""):
            assert world.start(task, 0).step(wrong).reward == 0.0


def test_a_locks_code_is_its_own_whatever_the_list():
    world = LockWorld()
    one = {t.id: t.data["right"] for t in world.tasks("train", 300)}
    two = {t.id: t.data["right"] for t in world.tasks("train", 300, seed=9)}
    assert all(two.get(k, v) == v for k, v in one.items())
    counts = [sum(code[i] == sign for code in one.values()) for i in range(4) for sign in CHOICES]
    # Binomial(300, 1/4): mean 75, four sigma 30; 16 counts of a fixed seed.
    assert all(abs(count - 75) < 30 for count in counts)


def test_the_law_is_forced_but_at_the_pivots():
    said = ""
    for place in range(LENGTH):
        distribution = lock_distribution(f"open lock 7 :\n{said}")
        assert sum(distribution.values()) == pytest.approx(1.0)
        assert (len(distribution) == 4) == (place in PIVOTS)
        said += "b" if place in PIVOTS else "."
    assert lock_distribution(f"open lock 7 : {said}") == {"": 1.0}


def test_success_probabilities_by_enumeration():
    assert sum(lock_success(code) for code in CODES) == pytest.approx(1.0)
    assert np.mean([lock_success(code) for code in CODES]) == pytest.approx(1 / 256)
    assert lock_success("abcd") == pytest.approx(0.4 * 0.3 * 0.2 * 0.1)
    assert lock_success("abcd", lock_action("abcd")[:13]) == pytest.approx(0.2 * 0.1)
    assert lock_success("abcd", lock_action("abcd")) == 1.0
    assert lock_success("abcd", "....b") == 0.0
    assert lock_success("abcd", "x") == 0.0
    assert lock_success("aaaa", probabilities=(1, 0, 0, 0)) == 1.0


def test_a_scripted_policy_speaks_the_law():
    world = LockWorld()
    task = world.tasks("train", 1)[0]
    policy = ScriptedPolicy.from_text(lock_distribution, name="lock")
    prompt = policy.render([], token_array([]), [{"role": "user", "content": task.prompt}]).tokens
    count = 400
    requests = [Request(prompt, NoiseKey(0, 0, draw)) for draw in range(count)]
    drawn = sample_all(policy, requests, Sampling(max_tokens=33))
    assert all(len(d.text) == LENGTH and d.finish == "stop" for d in drawn)
    assert all(world.start(task, 0).step(d.text).done for d in drawn)
    for place in PIVOTS:
        share = np.mean([d.text[place] == "a" for d in drawn])
        # Binomial(400, 0.4): four sigma is 0.098; four tests of a fixed seed.
        assert abs(share - 0.4) < 0.098
    logprobs = sum(float(p) for p in drawn[0].logprobs_t1)
    chosen = [drawn[0].text[place] for place in PIVOTS]
    assert np.exp(logprobs) == pytest.approx(lock_success("".join(chosen)), rel=1e-5)


def test_bad_locks():
    with pytest.raises(BadInput, match="not four"):
        LockWorld().start(Task("x", "lock", "train", "", {"serial": 1, "right": "abz"}), 0)
    with pytest.raises(BadInput, match="too many"):
        LockWorld().tasks("train", 10**6)
