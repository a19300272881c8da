"""Pictures of a case: what was measured and predicted at every dose, and what each sentence changed."""

from __future__ import annotations

from refork.report import palette
from refork_methods.forensics.pictures import dose_figure, profile_figure


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


def test_a_profile_has_a_row_for_every_sentence_coloured_where_it_stands():
    def prefix(rate, forks=True):
        return {"rate": rate, "low": rate, "high": rate, "hits": 1, "runs": 5, "forks": forks}

    def sentence(text, score, p):
        ends = (None, None) if score is None else (score - 0.1, score + 0.1)
        return {"text": text, "score": score, "low": ends[0], "high": ends[1], "p_holm": p}

    sentences = [
        sentence("<one>", None, None),
        sentence("two " * 40, 0.8, 0.01),
        sentence("three", -0.3, 0.4),
    ]
    told = {
        "trace": "a" * 64, "k": 5, "sentences": sentences,
        "prefixes": [prefix(0.2), prefix(None), prefix(0.9), prefix(1.0, forks=False)],
    }  # fmt: skip
    figure = profile_figure(told)
    assert [row[1] for row in figure.rows] == ["20\u00a0%", "–", "90\u00a0%", "100\u00a0%"]
    assert figure.rows[-1][-1] == "its own end"
    (scores,) = figure.more
    assert [row[0].split()[0] for row in scores.rows] == ["1", "2", "3"]
    assert [row[1] for row in scores.rows] == ["–", "+80\u00a0points", "\u221230\u00a0points"]
    assert scores.rows[0][3].startswith("not graded; <one>")
    assert scores.rows[1][0].endswith("…"), "long sentences are cut"
    spec = scores.draw(760).to_dict()
    (rows,) = [rows for rows in spec["datasets"].values() if "colour" in rows[0]]
    assert [row["colour"] for row in rows] == [palette.LIGHT[5], palette.LIGHT[0], palette.LIGHT[5]]
