"""The gate on live work: draw a candidate, ask critics, verify, refine or stop, by callables of your own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar, final

from refork.errors import BadInput
from refork_methods.gate.belief import State, rejected
from refork_methods.gate.evaluate import CAP
from refork_methods.gate.model import GENERATE, SHIP, STOP, VERIFY, CriticModel, Prices
from refork_methods.gate.policy import Policy
from refork_methods.gate.policy import Verify as Ending

#: Whatever a candidate is to the caller: a patch, a node of a tree, a file.
C = TypeVar("C")
Outcome: TypeAlias = Literal["verified", "refuted", "shipped", "stopped", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check said. ``passed`` None: it gave no verdict (it failed itself), which moves no belief.

    ``price`` is what this call really cost, in the unit of the prices; None: not measured.
    """

    passed: bool | None
    price: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """A critic's verdict on the candidate that is to be refined."""

    critic: str
    verdict: Verdict


class Writer(Protocol[C]):
    """Draws the first candidate (``previous`` None), or refines one given what its checks said."""

    def __call__(self, previous: C | None, told: Sequence[Told]) -> tuple[C, float | None]:
        """The candidate, and what it really cost (None: not measured)."""
        ...


Check: TypeAlias = Callable[[C], Verdict]
#: What an episode works with: its writer, its critics by name, and the verifier.
Opened: TypeAlias = tuple[Writer[C], Mapping[str, Check[C]], Check[C]]


@dataclass(frozen=True, slots=True)
class Event(Generic[C]):
    """One step: the action, its candidate, the belief before and after, what it cost and said."""

    action: str
    candidate: C
    number: int
    before: float
    after: float
    price: float
    passed: bool | None
    why: str


@final
@dataclass(frozen=True, slots=True)
class LiveEpisode(Generic[C]):
    """How an episode went.

    ``utility`` is the reward minus what was spent after the first candidate, as a controller counts value;
    ``first`` is what that one cost. ``belief`` is the last one before any verification, ``candidate`` the
    last candidate. ``unknown`` outcomes (the verifier gave no verdict) earn nothing; leave them out of
    statistics, they are not wrong.
    """

    outcome: Outcome
    utility: float
    first: float
    belief: float
    candidate: C
    right: bool | None
    events: tuple[Event[C], ...]

    @property
    def spent(self) -> float:
        """All that was paid, the first candidate included."""
        return self.first + sum(event.price for event in self.events)


@dataclass(slots=True)
class _Play(Generic[C]):
    """The moving parts of one episode."""

    policy: Policy
    model: CriticModel
    prices: Prices
    candidate: C
    state: State
    measured: bool
    told: list[Told] = field(default_factory=list)
    events: list[Event[C]] = field(default_factory=list)
    belief: float = 0.0

    def note(
        self, action: str, before: State, price: tuple[float | None, float], passed: bool | None, why: str
    ) -> None:
        real, stated = price
        paid = real if self.measured and real is not None else stated
        if not math.isfinite(paid) or paid < 0:
            raise BadInput(
                f"{action} says it cost {paid!r}", hint="a price is 0 or more; None if not measured"
            )
        self.events.append(
            Event(
                action, self.candidate, before.candidate, before.belief, self.state.belief, paid, passed, why
            )
        )

    def end(self, outcome: Outcome, earned: float, right: bool | None, first: float) -> LiveEpisode[C]:
        utility = earned - sum(event.price for event in self.events)
        return LiveEpisode(outcome, utility, first, self.belief, self.candidate, right, tuple(self.events))


def run_gate(
    policy: Policy,
    model: CriticModel,
    prices: Prices,
    write: Writer[C],
    critics: Mapping[str, Check[C]],
    verify: Check[C],
    *,
    horizon: int,
    ending: Ending = "terminal",
    measured: bool = False,
    watch: Callable[[Event[C]], None] | None = None,
) -> LiveEpisode[C]:
    """Play one episode: what the policy chooses is really done, and its verdicts move the belief.

    A critic that gives no verdict is paid, is not asked again and moves no belief. ``measured``: pay what
    calls really cost where they say so, not the stated prices. ``watch`` sees every event as it happens. What
    the callables raise passes through. An episode too long for any controller is stopped, as in a replay.

    Raises: BadInput for a critic of the model without a callable, or an action that is not open.
    """
    if missing := [name for name in model.names if name not in critics]:
        raise BadInput(
            f"no callable for critic {missing[0]!r}", hint="give one for every critic of the model"
        )
    candidate, cost = write(None, ())
    first = cost if measured and cost is not None else prices.generate
    play = _Play(policy, model, prices, candidate, State(model.start), measured, belief=model.start)
    for _ in range(CAP):
        ended = _step(play, write, critics, verify, horizon, ending, first)
        if watch is not None and play.events:
            watch(play.events[-1])
        if ended is not None:
            return ended
    return play.end("stopped", 0.0, None, first)


def _step(
    play: _Play[C],
    write: Writer[C],
    critics: Mapping[str, Check[C]],
    verify: Check[C],
    horizon: int,
    ending: Ending,
    first: float,
) -> LiveEpisode[C] | None:
    """One action, done; the episode where it ended."""
    before, choice = play.state, play.policy.act(play.state)
    action, why = choice.action, choice.reason
    if action == STOP:
        play.note(STOP, before, (0.0, 0.0), None, why)
        return play.end("stopped", 0.0, None, first)
    if action == SHIP and play.prices.ship_loss is not None:
        # What is shipped unseen is judged by nobody here: the expected utility counts.
        b = before.belief
        play.note(SHIP, before, (0.0, 0.0), None, why)
        return play.end("shipped", b * play.prices.reward - (1 - b) * play.prices.ship_loss, None, first)
    if action == VERIFY:
        return _verified(play, verify(play.candidate), ending, why, first)
    if action == GENERATE:
        fresh, cost = write(play.candidate, tuple(play.told))
        play.state = play.policy.refine(before)
        play.candidate, play.told, play.belief = fresh, [], play.state.belief
        play.note(GENERATE, before, (cost, play.prices.generate), None, why)
        # Drawn and paid for, but beyond the horizon nothing is left to act on.
        last = before.candidate + 1 >= horizon
        return play.end("stopped", 0.0, None, first) if last else None
    if action not in play.model.names:
        raise BadInput(f"{play.policy.name} chose {action!r}, which is not open here")
    said = critics[action](play.candidate)
    play.told.append(Told(action, said))
    if said.passed is None:
        play.state = _unanswered(play.policy, before, action)
    else:
        play.state = play.policy.update(before, action, said.passed)
        play.belief = play.state.belief
    charged = play.policy.charged
    stated = charged[action] if action in charged else play.model.critic(action).price
    play.note(action, before, (said.price, stated), said.passed, said.reason or why)
    return None


def _unanswered(policy: Policy, before: State, critic: str) -> State:
    """The state after a call without a verdict, as in a replay: a blind rule that waits for one goes on."""
    if policy.blind:
        return replace(policy.update(before, critic, True), belief=before.belief)
    return replace(before, used=before.used | {critic})


def _verified(play: _Play[C], said: Verdict, ending: Ending, why: str, first: float) -> LiveEpisode[C] | None:
    before = play.state
    if said.passed is not True:
        play.state = rejected(before) if said.passed is False else before
    else:
        play.state = replace(before, belief=1.0)
    play.note(VERIFY, before, (said.price, play.prices.verify), said.passed, said.reason or why)
    if said.passed is None:
        return play.end("unknown", 0.0, None, first)
    if said.passed:
        return play.end("verified", play.prices.reward, True, first)
    play.told.append(Told(VERIFY, said))
    return None if ending == "retry" else play.end("refuted", 0.0, False, first)
