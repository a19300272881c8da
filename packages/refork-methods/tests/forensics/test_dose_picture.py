"""Pictures of a case: what was measured and predicted at every dose."""

from __future__ import annotations

from refork_methods.forensics.pictures import dose_figure


def arm(dose, rate, hits):
    ends = (None, None) if rate is None else (rate / 2, rate + 0.1)
    return {"dose": dose, "rate": rate, "low": ends[0], "high": ends[1], "hits": hits, "runs": 100}


def test_doses_stand_in_order_beside_what_was_predicted():
    arms = [arm(90, None, 0), arm(0, 0.0, 0), arm(50, 0.1, 10)]
    figure = dose_figure(arms, "A & B", "errors", [("tedium", [(0, 0.0), (90, 0.2)])])
    assert figure.columns == ("Line", "errors", "rate", "Interval", "Note")
    assert [row[1:3] for row in figure.rows] == [
        ("0", "0\u00a0%"), ("50", "10\u00a0%"), ("90", "–"), ("0", "0\u00a0%"), ("90", "20\u00a0%"),
    ]  # fmt: skip
    assert figure.rows[1][4] == "10/100"
    assert figure.rows[-1][0] == "predicted: tedium"
