from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork.stats import wilson
from refork_methods.stance.agreement import cohen_kappa, fleiss_kappa
from refork_methods.stance.guards import (
    CallGuard,
    Exchange,
    Panel,
    RegexGuard,
    asr_orr,
    hard_labels,
    panel_of,
    rates_of,
    soft_labels,
    tie_rates,
)

VOTES = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
HARMFUL = np.array([True, True, False, False])


def says_no(text):
    return "no" in text


def says_never(text):
    return "never" in text


def test_labels_by_majority_with_the_declared_tie():
    assert hard_labels(VOTES, "comply").tolist() == [True, False, False, False]
    assert hard_labels(VOTES, "refuse").tolist() == [True, True, False, False]
    assert soft_labels(VOTES).tolist() == [0.75, 0.5, 0.25, 0.0]
    assert hard_labels(VOTES[:, :3]).tolist() == [True, True, False, False]


def test_an_even_panel_needs_a_tie_rule():
    with pytest.raises(BadInput, match="4 guards can tie"):
        hard_labels(VOTES)
    with pytest.raises(BadInput, match="2 guards can tie"):
        panel_of(says_no, says_never)
    with pytest.raises(BadInput, match="unknown tie rule"):
        hard_labels(VOTES, "coin")
    assert len(panel_of(says_no, says_never, tie="comply").guards) == 2


def test_missing_votes_are_refused():
    holes = VOTES.astype(float)
    holes[1, 2] = np.nan
    for ask in (
        lambda: hard_labels(holes, "comply"),
        lambda: soft_labels(holes),
        lambda: asr_orr(holes, HARMFUL, "comply"),
    ):
        with pytest.raises(BadInput, match="1 of 4 answers lack"):
            ask()
    with pytest.raises(BadInput, match="a vote is 1"):
        soft_labels(VOTES * 2)
    with pytest.raises(BadInput, match="a table"):
        soft_labels(VOTES[0])


def test_rates_with_wilson_intervals():
    found = asr_orr(VOTES, HARMFUL, "comply")
    assert found.asr == wilson(1, 2)
    assert found.orr == wilson(0, 2)
    assert found.ties == 1
    assert rates_of(np.array([True]), np.array([True])).orr is None
    with pytest.raises(BadInput, match="cannot be matched"):
        rates_of(np.array([True]), HARMFUL)


def test_the_tie_rule_alone_moves_a_rate():
    both = tie_rates(VOTES, HARMFUL)
    assert both["comply"].asr.estimate == 0.5
    assert both["refuse"].asr.estimate == 0.0


def test_a_panel_asks_equal_exchanges_once_and_keeps_broken_guards_out():
    asked = []

    def counting(text):
        asked.append(text)
        if text == "odd":
            raise ValueError(text)
        return says_no(text)

    votes = panel_of(counting).votes([Exchange("q", t) for t in ("no", "yes", "no", "odd")])
    assert asked == ["no", "yes", "odd"]
    assert votes[:3, 0].tolist() == [1, 0, 1]
    assert np.isnan(votes[3, 0])
    assert panel_of(counting).votes([]).shape == (0, 1)


def test_a_guard_must_answer_with_a_bool():
    with pytest.raises(BadInput, match="answered 'yes'"):
        CallGuard(lambda text: "yes", "odd").votes([Exchange("", "x")])


def test_panels_that_make_no_sense():
    with pytest.raises(BadInput, match="at least one guard"):
        Panel(())
    with pytest.raises(BadInput, match="sits twice"):
        Panel((RegexGuard("a"), RegexGuard("b"), RegexGuard("a")))
    with pytest.raises(BadInput, match="not a regular expression"):
        RegexGuard("(")
    assert RegexGuard("SORRY").votes([Exchange("", "I'm sorry")]) == [True]


def test_producers_tell_panels_apart():
    one, other = (
        panel_of(says_no, RegexGuard("a"), tie="comply"),
        panel_of(says_no, RegexGuard("a"), tie="refuse"),
    )
    assert one.producer.id != other.producer.id
    assert set(one.producer.reads) == {g.producer.id for g in one.guards}


def test_fleiss_kappa_of_the_published_example():
    # Fleiss (1971) as tabled in textbooks: ten items, fourteen raters, five categories, kappa 0.210.
    counts = [
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ]  # fmt: skip
    ratings = np.array([np.repeat(np.arange(5), row) for row in counts])
    assert fleiss_kappa(ratings) == pytest.approx(0.2099, abs=1e-4)


def test_fleiss_kappa_by_hand():
    # Three raters, items AAA, AAB: agreement (1 + 1/3) / 2 = 2/3; shares 5/6 and 1/6 agree by chance 26/36.
    assert fleiss_kappa(np.array([[1, 1, 1], [1, 1, 0]])) == pytest.approx((2 / 3 - 26 / 36) / (1 - 26 / 36))
    assert fleiss_kappa(np.ones((4, 3))) is None
    with pytest.raises(BadInput, match="at least two raters"):
        fleiss_kappa(np.ones((4, 1)))
    with pytest.raises(BadInput, match="lack a rating"):
        fleiss_kappa(np.array([[1.0, np.nan]]))


def test_cohen_kappa_by_hand():
    # Counts 20, 5, 10, 15: agreement 0.7, by chance 0.5 * 0.6 + 0.5 * 0.4 = 0.5, so 0.4.
    first = np.repeat([1, 1, 0, 0], [20, 5, 10, 15])
    second = np.repeat([1, 0, 1, 0], [20, 5, 10, 15])
    assert cohen_kappa(first, second) == pytest.approx(0.4)
    assert cohen_kappa(np.ones(3), np.ones(3)) is None
    with pytest.raises(BadInput, match="cannot be compared"):
        cohen_kappa(np.ones(3), np.ones(2))
