"""A policy earns the same live as in a replay of the same candidates, to the last digit."""

from dataclasses import replace

import numpy as np
import pytest

from refork_methods.gate.controller import BayesController
from refork_methods.gate.live import Verdict, collect_records, run_gate
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices
from refork_methods.gate.planted import planted_records
from refork_methods.gate.policy import Choice
from refork_methods.gate.released import released_policies
from refork_methods.gate.replay import episodes, replay
from refork_methods.gate.rules import every_rule

CRITICS = (Critic("syntax", 1.0, 1.0, 1.0), Critic("test", 0.9, 0.45, 2.0), Critic("llm", 0.8, 0.35, 5.0))
MODEL = CriticModel(0.6, CRITICS, Kernel(0.25, 0.1))
PRICES = Prices(100, 30, 5)
COSTS = Prices(100, 7, 3)
NOISE = np.random.default_rng(5)
#: One call in ten fails, so that verdicts which are not there count too; no two calls cost the same.
RECORDS = [
    replace(record, costs={name: float(cost * NOISE.uniform(0.5, 2)) for name, cost in record.costs.items()})
    for record in planted_records(MODEL, 150, steps=3, seed=4, prices=COSTS, failed=0.1)
]


class Endless:
    """Asks the same critic for ever."""

    name, blind, charged = "endless", True, {}

    def act(self, state):
        return Choice("test", {}, None, "")

    def update(self, state, critic, passed):
        return state

    def refine(self, state):
        return state


def opened(chain):
    """A recorded chain as callables: what is asked for is what was recorded."""

    def write(previous, told):
        place = 0 if previous is None else previous + 1
        return min(place, len(chain) - 1), chain[place].costs["generate"] if place < len(chain) else None

    def check(name):
        return lambda place: Verdict(chain[place].verdicts[name], chain[place].costs[name])

    verify = lambda place: Verdict(chain[place].right, chain[place].costs["verify"])  # noqa: E731
    return write, {name: check(name) for name in MODEL.names}, verify


def policies(ending):
    made = {
        "dp": BayesController(MODEL, PRICES, 3, ending),
        "one critic ahead": BayesController(MODEL, PRICES, 3, ending, lookahead=1),
        "greedy": BayesController(MODEL, PRICES, 3, ending, method="greedy"),
        "endless": Endless(),
        **every_rule(MODEL, 3),
    }
    return made | (released_policies(MODEL, PRICES, 3) if ending == "terminal" else {})


def live(policy, ending, measured):
    found = {}
    for one in episodes(RECORDS):
        end = run_gate(
            policy, MODEL, PRICES, *opened(one.candidates), horizon=3, ending=ending, measured=measured
        )
        found[one.instance] = end.utility
    return found


@pytest.mark.parametrize("ending", ["terminal", "retry"])
@pytest.mark.parametrize("costs", ["prices", "recorded"])
def test_every_policy_earns_the_same_live_and_replayed(ending, costs):
    for name, policy in policies(ending).items():
        replayed = replay(policy, RECORDS, MODEL, PRICES, horizon=3, verify=ending, costs=costs)
        played = live(policy, ending, costs == "recorded")
        assert list(played) == list(replayed.instances)
        np.testing.assert_allclose(
            list(played.values()), replayed.utilities, rtol=0, atol=1e-12, err_msg=name
        )


def test_records_collected_from_callables_are_the_records():
    chains = {one.instance: one.candidates for one in episodes(RECORDS)}
    found = collect_records(
        {name: (lambda draw, chain=chain: opened(chain)) for name, chain in chains.items()},
        str,
    )
    assert [(r.instance, r.step, r.right, dict(r.verdicts)) for r in found] == [
        (r.instance, r.step, r.right, dict(r.verdicts)) for r in RECORDS
    ]
