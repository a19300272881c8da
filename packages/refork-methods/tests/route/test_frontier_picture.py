from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np

from refork_methods.route.frontier import frontier_report
from refork_methods.route.frontier_picture import frontier_picture
from refork_methods.route.table import OutcomeTable

REWARDS = np.array([[[1, 1, 0], [0, 0, 1]], [[0, 0, 0], [1, 1, 1]], [[1, 1, 1], [1, 0, 0]]], dtype=float)


def drawn(prices, title="Q & A <here>"):
    cost = np.broadcast_to(np.array(prices)[None, :, None], REWARDS.shape)
    table = OutcomeTable.from_arrays(REWARDS, ["<a>", "b"], cost=cost)
    report = frontier_report(table, {"router": np.array([[1, 0], [0, 1], [1, 0]])}, calls=(2,))
    return report, frontier_picture(report, title)


def test_every_option_is_named_and_told():
    report, picture = drawn([1.0, 2.0])
    root = ET.fromstring(picture)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for option in report.options:
        assert any((text or "").startswith(option.name) for text in texts), option.name
    assert root.attrib["aria-label"] == "Q & A <here>"
    assert "price unknown" not in picture
    assert picture == drawn([1.0, 2.0])[1]


def test_what_has_no_price_stands_apart():
    _, picture = drawn([1.0, np.nan])
    assert "price unknown (not 0)" in picture
    _, none = drawn([np.nan, np.nan])
    assert "no price is known" in none
    ET.fromstring(none)


def test_names_do_not_cover_each_other():
    _, picture = drawn([1.0, 1.0])
    root = ET.fromstring(picture)
    boxes = []
    for element in root.iter("{http://www.w3.org/2000/svg}text"):
        if (
            re.match(r"<a>$|b$|router$|random|majority|best-of", element.text or "")
            and float(element.attrib["y"]) < 430
        ):
            x, y = float(element.attrib["x"]), float(element.attrib["y"])
            boxes.append((x, y - 9, x + 6 * len(element.text), y))
    assert len(boxes) == 6
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            assert not (a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3])
