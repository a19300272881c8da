from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork.forking.context import conversation
from refork.growing.rollouts import grow
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.tree import Tree
from refork.worlds import open_world
from refork_methods.route.relay import NextSpeaker, Relay, Voice
from refork_testbed.worlds.specialists import (
    ALONE,
    DOMAINS,
    HARNESS,
    SpecialistsWorld,
    domain_of,
    features,
    question,
    right_letter,
    specialist,
    specialist_distribution,
    success,
    success_of,
    turn_right,
)

LAW = Sampling(max_tokens=4)


def test_closed_forms():
    assert success(np.full((4, 4), 0.25)) == pytest.approx(0.150, abs=5e-4)
    assert max(success_of([worker] * 4) for worker in range(4)) == pytest.approx(0.275, abs=5e-4)
    # Who is best alone (worker d in domain d) is barely above the best single worker in the harness ...
    assert ALONE.argmax(axis=0).tolist() == [0, 1, 2, 3]
    assert success_of([0, 1, 2, 3]) == pytest.approx(0.675**3, abs=1e-12)
    assert pytest.approx(0.3075, abs=5e-5) == 0.675**3
    # ... and who is best there is worth 0.9^3.
    assert HARNESS.argmax(axis=0).tolist() == [0, 1, 1, 0]
    assert success_of([0, 1, 1, 0]) == pytest.approx(0.729, abs=1e-12)


@pytest.mark.parametrize("alone", [False, True])
def test_a_worker_knows_the_answer_with_its_skill(alone):
    (task,) = SpecialistsWorld(alone=alone).tasks("train", 1)
    serial, domain = task.data["questions"][0]
    skills = ALONE if alone else HARNESS
    for worker in range(4):
        distribution = specialist_distribution(worker, task.prompt + "\n")
        assert distribution[right_letter(serial, domain)] == skills[worker, DOMAINS.index(domain)]
        assert sum(distribution.values()) == pytest.approx(1)
        assert specialist_distribution(worker, task.prompt + "\na") == {"": 1.0}


def test_a_perfect_run_is_rewarded_and_one_wrong_answer_is_not():
    world = SpecialistsWorld()
    (task,) = world.tasks("held-out", 1, seed=2)
    right = [right_letter(*asked) for asked in task.data["questions"]]
    for spoiled in (None, 0, 1, 2):
        episode = world.start(task, 0)
        for turn, letter in enumerate(right):
            seen = episode.step("x" if turn == spoiled else letter)
            assert seen.done == (turn == 2)
            assert seen.info == {"right": turn != spoiled}
        assert seen.reward == (spoiled is None)
    assert domain_of(task.prompt) == DOMAINS.index(task.data["questions"][0][1])


def test_random_workers_earn_the_closed_form():
    world, tree = open_world("specialists"), Tree.memory()
    voices = {str(i): Voice(specialist(i)) for i in range(4)}

    def best(requests):  # who is best in the harness, by the question asked last
        where = [domain_of(r.messages[-1]["content"]) for r in requests]
        return [NextSpeaker(str([0, 1, 1, 0][domain])) for domain in where]

    relay = Relay(voices, best, identity={"rule": "best"})
    groups = grow(tree, relay, world, world.tasks("train", 400), draws=1, settings=LAW)
    rate = np.mean([value for group in groups for value in group.values()])
    # 400 runs at 0.729: 4 SE is 0.089 (fails by chance once in 16,000).
    assert abs(rate - 0.729) < 4 * np.sqrt(0.729 * 0.271 / 400)
    (trajectory, *_) = groups[0].forks[0].leaves()
    grades = [turn_right(trajectory, turn) for turn in range(4)]
    assert grades[3] is None
    assert all(grades[:3]) == (groups[0].values()[0] == 1)
    assert "harness" in str(conversation(trajectory).messages[0]["content"])


def test_features_show_the_domain_and_nothing_else():
    texts = [question(serial, domain) for serial in range(50) for domain in range(4)]
    seen = np.stack([features(text) for text in texts]).reshape(50, 4, 32)
    centres = seen.mean(axis=0)
    nearest = np.linalg.norm(seen[:, :, None] - centres, axis=-1).argmin(axis=-1)
    assert (nearest == np.arange(4)).all()
    assert np.array_equal(features(texts[0]), features("before\n" + texts[0]))
    with pytest.raises(BadInput, match="no question"):
        features("hello")


def test_specifications():
    assert open_world("specialists?alone=true").max_turns == 1
    assert open_policy("scripted:specialist@2").card.name == "scripted:specialist@2"
    for spec in ("scripted:specialist@4", "scripted:specialist", "scripted:specialist@x"):
        with pytest.raises(BadInput, match="no specialist"):
            open_policy(spec)
    with pytest.raises(BadInput, match="no argument"):
        open_world("specialists:3")
    with pytest.raises(BadInput, match="probabilities"):
        success(np.ones((4, 4)))
    assert domain_of("nothing asked") is None
