import io

import pytest

from refork.cli.screen_console import SafeConsole
from refork.errors import BadInput
from refork_testbed.demo.panel import summary_panel


def shown(renderable):
    out = io.StringIO()
    SafeConsole(file=out, width=100).print(renderable)
    return out.getvalue().replace("\u00a0", " ")


SUMMARY = {
    "success_before": 0.31,
    "success_after": 0.61,
    "gain": 0.3,
    "gain_low": 0.22,
    "gain_high": 0.38,
    "tasks": 200,
    "effect": 0.547,
    "ci_low": 0.4,
    "ci_high": 0.66,
    "change": "remove 1 token",
    "cliff": "It fell at “east”.",
    "seconds": 134.2,
    "report": "runs/demo/report.html",
    "command": "refork demo [x]",
}


def test_the_summary_tells_the_whole_demo():
    text = shown(summary_panel(SUMMARY))
    assert "Held-out success rose from 31 % to 61 %" in text
    assert "It fell at “east”." in text
    assert "remove 1 token: +55 points (95 % interval +40 to +66)" in text
    assert "2 min 14 s" in text
    assert "runs/demo/report.html" in text
    assert "refork demo [x]" in text


def test_an_empty_summary_claims_nothing():
    text = shown(summary_panel({}))
    assert "not measured" in text
    assert "0 %" not in text
    assert "time" not in text
    with pytest.raises(BadInput):
        summary_panel({"success_before": "high"})
