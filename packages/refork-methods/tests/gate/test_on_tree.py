"""The gate over a tree: drawn candidates, forks, scores, and utilities that come out as predicted."""

import numpy as np
import pytest

from refork.errors import ServerError
from refork.growing.plant import plant_prompt
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork_methods.gate.controller import BayesController
from refork_methods.gate.live import Verdict, run_gate
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices
from refork_methods.gate.on_tree import (
    BELIEF,
    TreeWriter,
    critic_producer,
    gate_producer,
    plain_feedback,
    record_episode,
)
from refork_methods.gate.rules import gate

MODEL = CriticModel(0.6, (Critic("test", 0.9, 0.45, 2.0), Critic("llm", 0.8, 0.35, 5.0)), Kernel(0.25, 0.1))
PRICES = Prices()
SETTINGS = Sampling(max_tokens=3)


def law(text):
    """A writer whose first answer is right with chance .6, whose refinements are those of the kernel."""
    if text and text[-1] in "RW":
        return {"": 1.0}
    last = max(text.rfind("R"), text.rfind("W"))
    right = 0.6 if last < 0 else (0.9 if text[last] == "R" else 0.25)
    return {"R": right, "W": 1 - right}


def noise(candidate, what):
    return np.random.default_rng([int(candidate.node.id[:12], 16), len(what)]).random()


def critic(name):
    found = MODEL.critic(name)

    def check(candidate):
        chance = found.right if candidate.text == "R" else found.wrong
        return Verdict(bool(noise(candidate, name) < chance), reason=f"{name} looked")

    return check


CRITICS = {name: critic(name) for name in MODEL.names}


@pytest.fixture
def tree():
    with Tree.memory() as made:
        yield made


def play(tree, policy, draw, controller, ending="retry"):
    root = plant_prompt(tree, policy, "write")
    writer = TreeWriter(root, policy, SETTINGS, seed=3, draw=draw)
    verify = lambda candidate: Verdict(candidate.text == "R")  # noqa: E731
    return run_gate(controller, MODEL, PRICES, writer, CRITICS, verify, horizon=3, ending=ending)


def test_realised_utility_is_the_predicted_one(tree):
    policy = ScriptedPolicy.from_text(law)
    controller = BayesController(MODEL, PRICES, 3, "retry")
    utilities = [play(tree, policy, draw, controller).utility for draw in range(250)]
    low, high = controller.value()
    error = np.std(utilities, ddof=1) / np.sqrt(len(utilities))
    # Three standard errors: fails by chance once in 370 seeds.
    assert low - 3 * error <= np.mean(utilities) <= high + 3 * error


def test_an_episode_is_the_same_again_and_draws_nothing_twice(tree):
    policy = ScriptedPolicy.from_text(law)
    rule = gate(MODEL, 3, "test")
    first = [play(tree, policy, draw, rule) for draw in range(8)]
    count = tree.stats()
    again = [play(tree, policy, draw, rule) for draw in range(8)]
    assert [e.events for e in first] == [e.events for e in again]
    assert tree.stats() == count


def test_a_refinement_is_a_fork_from_what_the_checks_said(tree):
    policy = ScriptedPolicy.from_text(law)
    episodes = [play(tree, policy, draw, gate(MODEL, 3, "test")) for draw in range(12)]
    longer = next(e for e in episodes if [event.action for event in e.events[:2]] == ["test", "generate"])
    trajectory = tree.path(longer.candidate.point)
    kinds = [step.node.kind for step in trajectory]
    assert kinds[:4] == ["task", "action", "observation", "action"]
    told = next(step.node for step in trajectory if step.node.kind == "observation")
    assert told.text == "test failed: test looked\ntry again"
    forks = {step.node.fork for step in trajectory if step.node.kind == "action"}
    assert len(forks) == sum(k == "action" for k in kinds)


def test_beliefs_are_scores_and_die_with_their_critic(tree):
    policy = ScriptedPolicy.from_text(law)
    controller = BayesController(MODEL, PRICES, 3, "retry")
    producers = {name: critic_producer(name) for name in MODEL.names}
    who = gate_producer(controller, MODEL, PRICES, producers)
    episode = play(tree, policy, 0, controller)
    node = record_episode(tree, episode, who, producers)
    assert record_episode(tree, episode, who, producers) == node
    last = episode.candidate.node.id
    assert tree.score_map(BELIEF, [last])[last] == pytest.approx(episode.belief)
    stored = tree.node(node)
    assert stored.extra["gate"]["outcome"] == episode.outcome
    assert [event["action"] for event in stored.extra["gate"]["events"]] == [e.action for e in episode.events]
    assert any(event.action in MODEL.names for event in episode.events)
    tree.retire(producers["test"].id, "it read the hidden tests")
    assert tree.score_map(BELIEF, [last]) == {}


def test_the_belief_of_a_candidate_is_the_one_before_it_was_verified(tree):
    policy = ScriptedPolicy.from_text(lambda text: {"": 1.0} if text.endswith("W") else {"W": 1.0})
    controller = BayesController(MODEL, Prices(verify=1.0), 3, "retry")
    episode = play(tree, policy, 0, controller)
    producers = {name: critic_producer(name) for name in MODEL.names}
    record_episode(tree, episode, gate_producer(controller, MODEL, PRICES, producers), producers)
    first = next(event for event in episode.events if event.action == "verify")
    assert first.after == 0
    assert tree.score_map(BELIEF, [first.candidate.node.id])[first.candidate.node.id] == first.before > 0


def test_a_policy_that_fails_is_an_error_with_its_place(tree):
    class Broken:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def sample(self, prefixes, settings):
            from dataclasses import replace

            return [replace(c, error="out of memory") for c in self.inner.sample(prefixes, settings)]

    with pytest.raises(ServerError, match="out of memory"):
        play(tree, Broken(ScriptedPolicy.from_text(law)), 0, gate(MODEL, 3, "test"))


def test_feedback_without_checks_says_so():
    assert plain_feedback([]) == "not checked\ntry again"
