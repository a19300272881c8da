"""The transfer picture: a row of every setting, coloured only where the difference stands."""

from __future__ import annotations

from refork_methods.localize.transfer import Findings, RepairRun, transfer_report
from refork_methods.localize.transfer_picture import transfer_figure


def runs(rates: dict[str, int], findings: Findings) -> list[RepairRun]:
    return [
        RepairRun(f"t{n}", float(n < good), name, findings) for name, good in rates.items() for n in range(40)
    ]


def test_every_setting_is_drawn_and_only_what_stands_is_coloured() -> None:
    without = runs({"weak <a>": 4, "middle": 20, "strong": 38}, "none")
    given = runs({"weak <a>": 30, "middle": 22, "strong": 20}, "all")
    figure = transfer_figure(transfer_report(given, without))
    spec = figure.draw(760).to_dict()
    (rows,) = [rows for rows in spec["datasets"].values() if "colour" in rows[0]]
    assert len({row["colour"] for row in rows}) == 3  # by name: middle is grey, strong a loss, weak a gain
    assert [row[0] for row in figure.rows] == ["middle", "strong", "weak <a>"]
    assert figure.rows[2][1] == "+65\u00a0points"
    assert figure.rows[2][-1].startswith("10\u00a0% to 75\u00a0%, p")
    assert figure.rows[2][-1].endswith("26 better, 0 worse of 40")


def test_a_control_says_so() -> None:
    figure = transfer_figure(transfer_report(runs({"": 30}, "oracle"), runs({"": 20}, "none")))
    assert "a control: nothing to deploy" in figure.note
    assert figure.rows[0][0] == "all tasks"
