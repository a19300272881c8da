from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from scipy.stats import binom

from forensics.case_parts import counted, full, memory
from refork.errors import BadInput
from refork_methods.forensics import (
    Arm,
    Design,
    EvidenceItem,
    Hypothesis,
    Intervention,
    Prediction,
    ach_table,
    difference,
    mark,
    rate,
    trend,
)
from refork_methods.forensics.table import confound_groups

BASE, DROP, SAME = counted("base", 60, 100), counted("e", 10, 100), counted("e", 58, 100)


def row(name, other=DROP, design="d", confounds=(), **more):
    return EvidenceItem(name, design, "rollouts", difference(BASE, other), confounds, **more)


def hypothesis(name, low, high, design="d", rates=None, malign=False):
    prediction = Prediction(design, "difference", low, high, rates)
    return Hypothesis(name, name, malign, (prediction,))


MOVES, STAYS = hypothesis("moves", -1.0, -0.2), hypothesis("stays", -0.1, 0.1, malign=True)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-1.0, -0.2, "consistent"),
        (-0.1, 0.1, "inconsistent"),
        (-0.5, -0.2, "weak"),
        (None, 0.0, "consistent"),
    ],
)
def test_marks_compare_the_whole_interval_with_the_region(low, high, expected):
    assert mark(Prediction("d", "difference", low, high), difference(BASE, DROP)) == expected


@pytest.mark.parametrize("n", [20, 50, 100, 200])
@pytest.mark.parametrize("truth", [0.05, 0.3, 0.5])
def test_a_true_prediction_is_rarely_called_inconsistent(n, truth):
    # Exact: the worst truth is the region's edge; Wilson's one-sided error stays below 5 % there.
    edge = Prediction("d", "rate", truth, 1.0)
    wrong = [k for k in range(n + 1) if mark(edge, rate(counted("a", k, n))) == "inconsistent"]
    assert binom.pmf(wrong, n, truth).sum() <= 0.05
    # And a false one is found: at half the edge's rate below it, with enough rollouts.
    if n == 200 and truth == 0.5:
        assert binom.pmf(wrong, n, 0.25).sum() > 0.99


def test_a_wide_interval_is_weak():
    assert mark(Prediction("d", "rate", 0.0, 0.2), rate(counted("a", 0, 5))) == "weak"
    assert mark(Prediction("d", "rate", 0.0, 0.2), rate(counted("a", 0, 50))) == "consistent"


def test_a_curve_is_marked_arm_by_arm():
    arms = [Arm("0", 0, 100, dose=0.0), Arm("5", 30, 100, dose=5.0), Arm("9", 60, 100, dose=9.0)]
    result = trend(arms)
    fits = {"0": 0.0, "5": 0.3, "9": 0.6}
    assert mark(Prediction("d", "curve", rates=fits, tolerance=0.2), result) == "consistent"
    assert mark(Prediction("d", "curve", rates=fits, tolerance=0.05), result) == "weak"
    assert mark(Prediction("d", "curve", rates=fits | {"9": 0.2}), result) == "inconsistent"
    with pytest.raises(BadInput, match="not run: 7"):
        mark(Prediction("d", "curve", rates={"7": 0.2}), result)
    with pytest.raises(BadInput, match="the prediction is of a rate"):
        mark(Prediction("d", "rate", 0.0, 0.5), result)


def test_rows_that_share_a_confound_count_once():
    rows = [row(f"r{i}", confounds=("capability",)) for i in range(3)] + [row("own", confounds=("other",))]
    table = ach_table([MOVES, STAYS], rows)
    standing = {s.hypothesis: s for s in table.standings}
    assert standing["moves"].consistent == 2
    assert standing["stays"].inconsistent == 2
    assert [r.group for r in table.rows] == [0, 0, 0, 1]


def test_shared_confounds_link_over_other_rows():
    assert confound_groups([("a",), ("b",), ("A ", "b"), (), ()]) == [0, 0, 0, 1, 2]
    assert confound_groups([]) == []


def test_the_order_of_rows_and_columns_does_not_matter():
    rows = [row("x", confounds=("a",)), row("y", SAME, "f"), row("z", confounds=("a", "b"))]
    both = replace(STAYS, predictions=(*STAYS.predictions, Prediction("f", "difference", -0.3, 0.3)))
    found = set()
    for order in permutations(rows):
        for columns in ([MOVES, both], [both, MOVES]):
            table = ach_table(columns, order)
            found.add(
                tuple(sorted((s.hypothesis, s.rank, s.consistent, s.inconsistent) for s in table.standings))
            )
    assert found == {(("moves", 1, 1, 0), ("stays", 2, 1, 1))}


def test_one_contradiction_in_a_group_outweighs_agreement():
    rows = [row("x", confounds=("a",)), row("y", SAME, confounds=("a",))]
    table = ach_table([MOVES], rows)
    assert (table.standings[0].inconsistent, table.standings[0].consistent) == (1, 0)


def test_contradiction_comes_before_agreement():
    loud = Hypothesis("loud", "", False, (*MOVES.predictions, Prediction("f", "difference", -0.02, 0.02),
                                          Prediction("g", "difference", -1.0, -0.2)))  # fmt: skip
    rows = [row("x"), row("y", design="f"), row("z", design="g")]
    table = ach_table([loud, MOVES], rows)
    assert table.leading == ("moves",)


def test_ties_share_a_rank_and_are_told():
    twin = replace(MOVES, name="twin")
    table = ach_table([MOVES, twin, STAYS], [row("x")])
    assert [s.rank for s in table.standings] == [1, 1, 3]
    assert "does not tell 'moves' and 'twin' apart" in table.verdict
    assert not table.malign


def test_the_verdict_is_hedged():
    two = [row("x"), row("y", design="f")]
    both = replace(MOVES, predictions=(*MOVES.predictions, Prediction("f", "difference", None, -0.2)))
    strong = ach_table([both, STAYS, Hypothesis("idle", "")], two).verdict
    assert "most consistent with 'moves': 2 independent lines" in strong
    assert "'stays' is contradicted by one line" in strong
    assert "Untested: 'idle'" in strong
    assert "not of what goes on inside the model" in strong
    assert "a second, independent one is missing" in ach_table([MOVES], two).verdict
    assert "No hypothesis accounts for all" in ach_table([STAYS], two).verdict
    weak = hypothesis("vague", -0.6, -0.4)
    assert "nothing clearly agrees" in ach_table([weak], two).verdict
    assert "not ruled out" in ach_table([MOVES, weak], two).verdict
    assert ach_table([], []).verdict.startswith("No verdict")


def test_a_malign_hypothesis_is_flagged_only_when_it_leads_alone():
    evil = replace(MOVES, name="evil", malign=True)
    assert ach_table([evil, replace(STAYS, malign=False)], [row("x")]).malign
    assert not ach_table([evil, replace(MOVES, name="good")], [row("x")]).malign
    assert not ach_table(
        [replace(evil, predictions=hypothesis("w", -0.6, -0.4).predictions)], [row("x")]
    ).malign


def test_likelihood_ratios_by_hand_and_capped():
    import math

    a = hypothesis("a", -1.0, -0.2, rates={"base": 0.6, "e": 0.1})
    b = hypothesis("b", -0.1, 0.1, rates={"base": 0.6, "e": 0.6})
    by_hand = 10 * math.log(0.1 / 0.6) + 90 * math.log(0.9 / 0.4)
    one = ach_table([a, b], [row("x")], likelihood=True).likelihoods
    assert one[0].ratio == pytest.approx(by_hand)
    weaker = row("y", counted("e", 20, 100), confounds=("c",))
    rows = [row("x", confounds=("c",)), weaker]
    assert ach_table([a, b], rows, likelihood=True).likelihoods[0].ratio == pytest.approx(by_hand)
    apart = [row("x", confounds=("c",)), replace(weaker, confounds=("d",))]
    both = ach_table([a, b], apart, likelihood=True).likelihoods[0]
    assert both.ratio > by_hand
    assert both.groups == 2
    assert ach_table([a, b], rows).likelihoods is None


def test_likelihoods_leave_out_what_was_predicted_late_or_may_be_made():
    a = hypothesis("a", -1.0, -0.2, rates={"base": 0.6, "e": 0.1})
    b = hypothesis("b", -0.1, 0.1, rates={"base": 0.6, "e": 0.6})
    late = {("a", a.predictions[0].id, "x")}
    assert ach_table([a, b], [row("x")], late=late, likelihood=True).likelihoods[0].groups == 0
    made = row("x", upper_bound=True)
    assert ach_table([a, b], [made], likelihood=True).likelihoods[0].groups == 0


def test_hits_that_an_instrument_may_make_have_no_lower_end():
    prefill = EvidenceItem("p", "d", "prefill", rate(counted("p", 30, 50)), upper_bound=True)
    shy = Hypothesis("shy", "", False, (Prediction("d", "rate", 0.0, 0.1),))
    assert ach_table([shy], [prefill]).rows[0].cells["shy"].mark == "weak"
    assert ach_table([shy], [replace(prefill, upper_bound=False)]).rows[0].cells["shy"].mark == "inconsistent"


def test_names_are_unique_and_searches_report_rates():
    with pytest.raises(BadInput, match="two hypotheses"):
        ach_table([MOVES, MOVES], [])
    with pytest.raises(BadInput, match="two rows"):
        ach_table([MOVES], [row("x"), row("x")])
    with pytest.raises(BadInput, match="reports a rate"):
        ach_table([MOVES], [row("x", looked_for="y")])


def test_removing_the_positive_control_flips_every_negative():
    probes = [
        EvidenceItem(f"p{i}", f"d{i}", "probe", rate(counted("p", 0, 60)), (f"c{i}",), "defiance")
        for i in range(3)
    ]
    controls = {"probe": counted("planted", 50, 50)}
    seen = ach_table([], probes, controls=controls)
    assert all(r.negative.informative for r in seen.rows)
    blind = ach_table([], probes)
    assert {r.negative.words for r in blind.rows} == {"uninformative (no positive control)"}


def test_a_curve_of_a_blind_search_is_not_contradicted():
    """What an instrument may miss speaks against no prediction, of a rate or of a curve."""
    found = EvidenceItem("p", "d", "probe", rate(counted("p", 0, 60)), ("c",), "defiance")
    said = [
        Hypothesis(name, "", False, (Prediction("d", quantity, *ends, rates, tolerance=0.1),))
        for name, quantity, ends, rates in (
            ("rate", "rate", (0.2, 0.4), None), ("curve", "curve", (0.0, 1.0), {"p": 0.3}),
        )
    ]  # fmt: skip
    (row,) = ach_table(said, [found]).rows
    assert {name: cell.mark for name, cell in row.cells.items()} == {"rate": "weak", "curve": "weak"}
    (row,) = ach_table(said, [found], controls={"probe": counted("planted", 50, 50)}).rows
    assert {cell.mark for cell in row.cells.values()} == {"inconsistent"}


def test_a_refusal_withholds_the_verdict_and_keeps_the_rows():
    case = full(memory())
    assert case.table().leading == ("tedium",)
    design = Design.counterfactual(Intervention.edit("settings.errors", 0))
    assert case.table().rows
    assert design.name == "settings.errors = 0"
