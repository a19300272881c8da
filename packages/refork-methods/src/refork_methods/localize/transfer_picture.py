"""What findings are worth, setting by setting."""

from __future__ import annotations

from dataclasses import replace

from refork.report import palette
from refork.report.charts import Across, Figure, Row, intervals
from refork.report.words import p_value, points, rate
from refork_methods.localize.transfer import SettingTransfer, TransferReport


def transfer_figure(report: TransferReport, title: str = "With findings minus without") -> Figure:
    """Each setting's paired difference with its interval, and its rates in words.

    Blue and brick are gains and losses that stand after Holm's correction; the rest is grey.
    """
    across = Across("points", zero="no effect", name="points of resolved tasks")
    figure = intervals([_row(row) for row in report.settings], name=title, across=across, value="Difference")
    kind = "" if report.deployable else ", a control: nothing to deploy"
    note = f"{report.findings} findings{kind}; mean over settings {points(report.mean)}; p after Holm"
    return replace(figure, note=note)


def _row(row: SettingTransfer) -> Row:
    span = row.difference
    colour = palette.LIGHT[-1] if span.estimate > 0 else palette.LIGHT[0]
    return Row(
        row.setting or "all tasks", span.estimate, span.low, span.high,
        f"{rate(row.without)} to {rate(row.with_)}, {p_value(row.p)}",
        colour if row.significant else palette.LIGHT[5],
        tooltip=f"{row.gains} better, {row.losses} worse of {row.tasks}",
    )  # fmt: skip
