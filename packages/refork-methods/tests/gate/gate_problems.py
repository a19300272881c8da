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
