from __future__ import annotations

import numpy as np

from refork_methods.route.frontier import frontier_report
from refork_methods.route.pictures import frontier_figure
from refork_methods.route.table import OutcomeTable

REWARDS = np.array([[[1, 1, 0], [0, 0, 1]], [[0, 0, 0], [1, 1, 1]], [[1, 1, 1], [1, 0, 0]]], dtype=float)


def drawn(prices, title="Q & A <here>"):
    cost = np.broadcast_to(np.array(prices)[None, :, None], REWARDS.shape)
    table = OutcomeTable.from_arrays(REWARDS, ["<a>", "b"], cost=cost)
    report = frontier_report(table, {"router": np.array([[1, 0], [0, 1], [1, 0]])}, calls=(2,))
    return report, frontier_figure(report, title)


def test_every_option_is_named_and_told():
    report, figure = drawn([1.0, 2.0])
    names = {row[0] for row in figure.rows}
    assert names == {option.name for option in report.options} - {"oracle"}
    assert figure.name == "Q & A <here>"
    assert figure.more == ()
    texts = [
        row["t"] for rows in figure.draw(760).to_dict()["datasets"].values() for row in rows if "t" in row
    ]
    assert {*names} <= {*texts}
    assert any(text.startswith("oracle 0.") for text in texts)


def test_what_has_no_price_stands_apart():
    _, figure = drawn([1.0, np.nan])
    (aside,) = figure.more
    assert aside.name == "Price unknown (not 0)"
    assert "b" in [row[0] for row in aside.rows]
    _, none = drawn([np.nan, np.nan])
    assert none.name.endswith("no price is known")
    assert none.draw(760)


def test_names_do_not_cover_each_other():
    """Options of one price stand one above the other: each name gets a place of its own."""
    _, figure = drawn([1.0, 1.0])
    layers = figure.draw(760).to_dict()["layer"]
    places = [(one["mark"]["dx"], one["mark"]["dy"]) for one in layers if one["mark"].get("dx") in (9, -9)]
    assert len(places) == len(set(places)) > 1
