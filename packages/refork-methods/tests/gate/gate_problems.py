"""Problems that several test files share, and what hypothesis may draw."""

from __future__ import annotations

from hypothesis import strategies as st

from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices

SYNTAX = Critic("syntax", 1.0, 1.0, 1)
NEAR_ORACLE = (SYNTAX, Critic("test", 0.99, 0.04, 2), Critic("llm", 0.80, 0.45, 5))
IMPERFECT = (SYNTAX, Critic("test", 0.90, 0.45, 2), Critic("llm", 0.80, 0.35, 5))
KERNEL = Kernel(0.25, 0.10)

chances = st.integers(0, 20).map(lambda k: k / 20)
signals = st.integers(1, 19).map(lambda k: k / 20)
beliefs = st.floats(0, 1)


def model(critics=IMPERFECT, prior=0.6):
    return CriticModel(prior, critics, KERNEL)


@st.composite
def problems(draw, most_critics=2):
    """(model, prices) with short decimals, so that rationals stay small."""
    count = draw(st.integers(0, most_critics))
    critics = tuple(
        Critic(f"critic {i}", draw(chances), draw(chances), draw(st.integers(0, 12)) / 2)
        for i in range(count)
    )
    kernel = Kernel(draw(chances), draw(chances))
    loss = draw(st.one_of(st.none(), st.integers(0, 150)))
    prices = Prices(100, draw(st.integers(0, 80)), draw(st.integers(0, 10)), loss)
    return CriticModel(draw(chances), critics, kernel), prices


def mixed(priors, shares, test=(0.9, 0.45), sticky=None):
    """Draws of their own; a task has one of the ``priors``. ``sticky``: the test's rates in each class."""
    prior = sum(share * p for share, p in zip(shares, priors, strict=True))
    by = sticky or (test,) * len(priors)
    critics = (
        Critic("test", *test, 2, tuple((a, b) for a, b in by)),
        Critic("review", 0.8, 0.35, 5, ((0.8, 0.35),) * len(priors)),
    )
    kernel = Kernel(prior, 1 - prior, tuple((p, 1 - p) for p in priors))
    return CriticModel(prior, critics, kernel, {}, tuple(zip(shares, priors, strict=True)))


HARD_AND_EASY = mixed((0.9, 0.1), (0.5, 0.5))
