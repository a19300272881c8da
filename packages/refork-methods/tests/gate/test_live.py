"""Episodes of real callables: accounts, unknown verdicts, endings."""

import pytest

from refork.errors import BadInput
from refork_methods.gate.controller import BayesController
from refork_methods.gate.live import Verdict, run_gate
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices
from refork_methods.gate.policy import Choice
from refork_methods.gate.rules import always_verify, gate, stop

MODEL = CriticModel(0.6, (Critic("test", 0.9, 0.2, 2.0), Critic("llm", 0.8, 0.35, 5.0)), Kernel(0.25, 0.1))
PRICES = Prices()


class Work:
    """Candidates are numbers; ``right`` are right, ``verdicts[critic][number]`` is what a critic says."""

    def __init__(self, right=(), verdicts=None, prices=None):
        self.right, self.verdicts, self.prices = set(right), verdicts or {}, prices or {}
        self.told = []

    def write(self, previous, told):
        self.told.append([(one.critic, one.verdict.passed) for one in told])
        return (0 if previous is None else previous + 1), self.prices.get("generate")

    def critic(self, name):
        def check(candidate):
            passed = self.verdicts.get(name, {}).get(candidate, candidate in self.right)
            return Verdict(passed, self.prices.get(name))

        return check

    def verify(self, candidate):
        if self.verdicts.get("verify", {}).get(candidate, 0) is None:
            return Verdict(None)
        return Verdict(candidate in self.right, self.prices.get("verify"))

    def run(self, policy, **more):
        critics = {name: self.critic(name) for name in MODEL.names}
        return run_gate(policy, MODEL, PRICES, self.write, critics, self.verify, horizon=3, **more)


def actions(episode):
    return [event.action for event in episode.events]


def test_always_verify_pays_once_and_is_right_or_not():
    won = Work(right=[0]).run(always_verify(MODEL, 3))
    assert (won.outcome, won.utility, won.spent, won.right) == ("verified", 70.0, 35.0, True)
    lost = Work().run(always_verify(MODEL, 3))
    assert (lost.outcome, lost.utility, lost.right) == ("refuted", -30.0, False)
    assert lost.belief == 0.6  # the confidence from before the verification


def test_after_a_refusal_retry_refines_and_the_writer_is_told():
    work = Work(right=[1])
    episode = work.run(always_verify(MODEL, 3), ending="retry")
    assert actions(episode) == ["verify", "generate", "verify"]
    assert episode.utility == 100 - 30 - 5 - 30
    assert work.told == [[], [("verify", False)]]


def test_beliefs_move_as_the_model_says():
    episode = Work(right=[0]).run(gate(MODEL, 3, "test"))
    assert episode.events[0].before == 0.6
    assert episode.events[0].after == pytest.approx(0.54 / (0.54 + 0.08))
    assert episode.belief == episode.events[0].after
    assert episode.events[1].after == 1.0


def test_a_critic_that_gives_no_verdict_is_paid_and_moves_nothing():
    episode = Work(right=[0], verdicts={"test": {0: None}, "llm": {0: None}}).run(
        BayesController(MODEL, PRICES)
    )
    asked = [event for event in episode.events if event.action in MODEL.names]
    assert asked
    first = [event for event in asked if event.number == 0]
    assert all(event.passed is None and event.before == event.after and event.price > 0 for event in first)
    assert len({event.action for event in first}) == len(first)


def test_a_verifier_without_a_verdict_ends_in_unknown():
    episode = Work(right=[0], verdicts={"verify": {0: None}}).run(always_verify(MODEL, 3))
    assert (episode.outcome, episode.right, episode.utility) == ("unknown", None, -30.0)


def test_measured_prices_are_paid_where_they_are_known():
    work = Work(right=[0], prices={"test": 0.5, "generate": 7.0})
    assert work.run(gate(MODEL, 3, "test"), measured=True).utility == 100 - 0.5 - 30
    assert work.run(gate(MODEL, 3, "test"), measured=True).first == 7.0
    assert work.run(gate(MODEL, 3, "test")).utility == 100 - 2 - 30


def test_shipping_counts_what_is_expected():
    prices = Prices(verify=90, ship_loss=20)
    work = Work(right=[0])
    episode = run_gate(
        BayesController(MODEL, prices), MODEL, prices, work.write, {n: work.critic(n) for n in MODEL.names},
        work.verify, horizon=3,
    )  # fmt: skip
    last = episode.events[-1]
    assert episode.outcome == "shipped"
    paid = sum(event.price for event in episode.events)
    assert episode.utility == pytest.approx(last.before * 100 - (1 - last.before) * 20 - paid)


def test_every_event_is_seen_as_it_happens():
    seen = []
    episode = Work().run(gate(MODEL, 3, "test"), watch=seen.append)
    assert tuple(seen) == episode.events


class Odd:
    name, blind, charged = "odd", True, {}

    def __init__(self, action):
        self.action = action

    def act(self, state):
        return Choice(self.action, {}, None, "")

    def update(self, state, critic, passed):
        return state

    def refine(self, state):
        return state


def test_what_is_not_open_is_refused():
    work = Work()
    with pytest.raises(BadInput, match="no callable for critic 'llm'"):
        run_gate(
            stop(MODEL), MODEL, PRICES, work.write, {"test": work.critic("test")}, work.verify, horizon=3
        )
    with pytest.raises(BadInput, match="not open"):
        Work().run(Odd("lint"))
    with pytest.raises(BadInput, match="not open"):
        Work().run(Odd("ship"))


@pytest.mark.parametrize("price", [-1.0, float("nan")])
def test_a_price_that_is_none_is_refused(price):
    with pytest.raises(BadInput, match="says it cost"):
        Work(right=[0], prices={"verify": price}).run(always_verify(MODEL, 3), measured=True)
