"""The belief in a candidate, the state it stands in, and what a policy is: the next action for a state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, Protocol, TypeAlias, TypeVar, final

from refork.errors import BadInput
from refork_methods.gate.model import ByClass, Critic, CriticModel, Kernel, chance

# The chance that a candidate is right, moved by what its checks say and by refining it.

#: Floats for use, rationals for proofs: one code for both.
Number = TypeVar("Number", float, Fraction)


def pass_chance(belief: Number, right: Number, wrong: Number) -> Number:
    """P(pass) of a critic with P(pass | right) and P(pass | wrong), at a belief."""
    return right * belief + wrong * (1 - belief)


def posterior(belief: Number, right: Number, wrong: Number, passed: bool) -> Number:
    """The belief after a verdict, by Bayes' rule; unchanged where the verdict was impossible.

    Source: arXiv:2606.24453.
    """
    likely, unlikely = (right, wrong) if passed else (1 - right, 1 - wrong)
    total = likely * belief + unlikely * (1 - belief)
    return belief if total <= 0 else likely * belief / total


def transition(belief: Number, fix: Number, breaks: Number) -> Number:
    """The belief in what a refinement makes of a candidate. Source: arXiv:2606.24453."""
    return belief * (1 - breaks) + (1 - belief) * fix


def after(belief: float, critic: Critic, passed: bool) -> float:
    """The belief after a critic passed or failed the candidate. Raises BadInput for no chance."""
    return posterior(checked(belief), critic.right, critic.wrong, passed)


def refined(belief: float, kernel: Kernel) -> float:
    """The belief after a refinement. Raises BadInput for no chance."""
    return transition(checked(belief), chance(kernel.fix), chance(kernel.breaks))


def checked(belief: float) -> float:
    """A belief that is one. Raises BadInput outside [0, 1] and for NaN."""
    if not 0 <= belief <= 1:
        raise BadInput(f"the belief is {belief!r}; it must lie in [0, 1]")
    return belief


@final
@dataclass(frozen=True, slots=True)
class State:
    """Where an episode stands: belief, critics used on this candidate, number of the candidate (from 0).

    ``passed`` are the used critics that passed it; ``rejected`` says that the verifier refused it. ``hidden``
    are the chances of (wrong, right) in every class of difficulty, which add up to 1; empty without classes.

    Raises: BadInput for a belief outside [0, 1], a candidate below 0, or a pass of a critic not used.
    """

    belief: float
    used: frozenset[str] = frozenset()
    candidate: int = 0
    passed: frozenset[str] = frozenset()
    rejected: bool = False
    hidden: ByClass = ()

    def __post_init__(self) -> None:
        checked(self.belief)
        if self.candidate < 0:
            raise BadInput(f"candidate {self.candidate}; they are counted from 0")
        if not self.passed <= self.used:
            raise BadInput(f"critics passed without being used: {', '.join(sorted(self.passed - self.used))}")


def fresh(model: CriticModel) -> State:
    """The state of a first candidate: no critic has seen it, and nothing is known of its instance."""
    hidden = tuple((share * (1 - prior), share * prior) for share, prior in model.classes)
    return _with_hidden(State(model.start), hidden) if hidden else State(model.start)


def _with_hidden(state: State, hidden: ByClass) -> State:
    """The state at these chances, scaled to add up to 1; as it was where they are all 0."""
    total = sum(wrong + right for wrong, right in hidden)
    if total <= 0:
        return state
    scaled = tuple((wrong / total, right / total) for wrong, right in hidden)
    # Rounding may carry a sum of chances a hair beyond 1.
    return replace(state, belief=min(1.0, sum(right for _, right in scaled)), hidden=scaled)


def start_of(policy: object, model: CriticModel) -> State:
    """The state in which a policy meets a fresh candidate of this model.

    A policy with classes of difficulty of its own, or without where the model has some, starts as it does.
    """
    own = getattr(policy, "start", None)
    mine: State | None = None if own is None else own()
    return fresh(model) if mine is None or not (mine.hidden or model.classes) else mine


def at_belief(state: State, belief: float) -> State:
    """The state at another belief; what each outcome says of the difficulty stays. Raises BadInput."""
    sides = [sum(pair[side] for pair in state.hidden) for side in (0, 1)]
    if not state.hidden or min(sides) <= 0:
        return replace(state, belief=checked(belief))
    scale = ((1 - checked(belief)) / sides[0], belief / sides[1])
    return _with_hidden(state, tuple((w * scale[0], r * scale[1]) for w, r in state.hidden))


def observed(state: State, critic: Critic, passed: bool) -> State:
    """The state after a critic's verdict on the candidate. Raises BadInput where it was used already."""
    if critic.name in state.used:
        raise BadInput(
            f"critic {critic.name!r} was used on candidate {state.candidate} already",
            hint="a critic's verdict on the same candidate counts once",
        )
    name = frozenset((critic.name,))
    seen = replace(state, used=state.used | name, passed=state.passed | (name if passed else frozenset()))
    if state.hidden:
        said = [(b, a) if passed else (1 - b, 1 - a) for a, b in critic.classes]
        return _with_hidden(
            seen, tuple((w * x, r * y) for (w, r), (x, y) in zip(state.hidden, said, strict=True))
        )
    return replace(seen, belief=after(state.belief, critic, passed))


def rejected(state: State) -> State:
    """The state after the verifier refused the candidate: it is wrong for certain."""
    refused = replace(state, belief=0.0, rejected=True)
    if not state.hidden:
        return refused
    if sum(wrong for wrong, _ in state.hidden) <= 0:  # the model held it for impossible
        return _with_hidden(refused, tuple((wrong + right, 0.0) for wrong, right in state.hidden))
    return _with_hidden(refused, tuple((wrong, 0.0) for wrong, _ in state.hidden))


def regenerated(state: State, kernel: Kernel) -> State:
    """The state of the next candidate, refined from this one: no critic has seen it."""
    after_it = State(refined(state.belief, kernel), candidate=state.candidate + 1)
    if not state.hidden:
        return after_it
    moved = tuple(
        (w * (1 - fix) + r * breaks, w * fix + r * (1 - breaks))
        for (w, r), (fix, breaks) in zip(state.hidden, kernel.classes, strict=True)
    )
    return _with_hidden(after_it, moved)


# What a policy is: the next action for a state, and how its state moves.

#: ``terminal``: verifying ends the episode. ``retry``: a refused candidate may be refined.
Verify: TypeAlias = Literal["terminal", "retry"]

VERIFY: tuple[Verify, ...] = ("terminal", "retry")


@dataclass(frozen=True, slots=True)
class Choice:
    """The next action, what every open action is worth, the bracket of the state's value, and why.

    ``q`` is in the unit of the prices, from here on, and attainable; a rule that compares nothing leaves it
    empty and has no bracket.
    """

    action: str
    q: Mapping[str, float]
    bracket: tuple[float, float] | None
    reason: str


class Policy(Protocol):
    """Anything that says what to do next.

    ``blind`` ones look only at verdicts, never at the belief. ``charged`` has the critic prices that are not
    the model's (the reference release charges one rule wrongly; see ``released``).
    """

    @property
    def name(self) -> str:
        """What tables call it."""

    @property
    def blind(self) -> bool:
        """Whether the belief leaves it cold."""

    @property
    def charged(self) -> Mapping[str, float]:
        """Critic prices that differ from the model's."""

    def act(self, state: State) -> Choice:
        """The next action."""

    def update(self, state: State, critic: str, passed: bool) -> State:
        """Its state after a critic's verdict."""

    def refine(self, state: State) -> State:
        """Its state once the next candidate is there."""


def verify_from(text: str) -> Verify:
    """A way of verifying by name. Raises BadInput."""
    for known in VERIFY:
        if known == text:
            return known
    raise BadInput(f"unknown way of verifying {text!r}", hint=f"one of {', '.join(VERIFY)}")
