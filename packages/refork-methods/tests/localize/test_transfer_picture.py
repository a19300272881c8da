"""The transfer picture: a row of every setting, coloured only where the difference stands."""

from __future__ import annotations

from xml.etree import ElementTree

from refork_methods.localize.transfer import Findings, RepairRun, transfer_report
from refork_methods.localize.transfer_picture import transfer_picture


def runs(rates: dict[str, int], findings: Findings) -> list[RepairRun]:
    return [
        RepairRun(f"t{n}", float(n < good), name, findings) for name, good in rates.items() for n in range(40)
    ]


def test_every_setting_is_drawn_and_only_what_stands_is_coloured() -> None:
    without = runs({"weak <a>": 4, "middle": 20, "strong": 38}, "none")
    given = runs({"weak <a>": 30, "middle": 22, "strong": 20}, "all")
    picture = transfer_picture(transfer_report(given, without))
    root = ElementTree.fromstring(picture)
    dots = [one.get("fill") for one in root.iter() if one.tag.endswith("circle")]
    assert len(dots) == 3
    assert len(set(dots)) == 3  # sorted by name: middle is grey, strong a loss, weak a gain
    assert "weak &lt;a&gt;" in picture
    assert "26 better, 0 worse of 40" in picture
    assert picture == transfer_picture(transfer_report(given, without))


def test_a_control_says_so() -> None:
    picture = transfer_picture(transfer_report(runs({"": 30}, "oracle"), runs({"": 20}, "none")))
    assert "a control: nothing to deploy" in picture
    assert "all tasks" in picture
