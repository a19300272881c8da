from __future__ import annotations

import pytest

from memory.memory_parts import pay_run
from refork.errors import BadInput
from refork_methods.memory.trajectory import RunStep, RunTrajectory, compact_view, shortened, step_line


def test_the_compact_view_has_a_line_a_step_and_opens_what_is_asked_for():
    run = pay_run("1", noise="x" * 500)
    view = compact_view(run)
    assert view.splitlines()[1:3] == ["outcome: succeeded", "steps: 7"]
    assert len(view.splitlines()) == 3 + 7
    assert "x" * 400 not in view
    assert "x" * 400 in compact_view(run, ["s3"])
    with pytest.raises(BadInput, match="no step 's99'"):
        compact_view(run, ["s99"])


def test_a_failed_call_is_marked():
    assert "failed" in step_line(pay_run("1").steps[4])
    assert step_line(RunStep("s", "hello")) == "[s] hello"


def test_long_texts_lose_their_middle():
    assert shortened("abc", 3) == "abc"
    assert shortened("a" * 50 + "z", 9) == "aaaaaa [42 characters left out] aaz"


@pytest.mark.parametrize("fields", [("", "q", ()), ("t", " ", ()), ("t", "q", (RunStep("s"), RunStep("s")))])
def test_a_run_needs_an_id_a_query_and_distinct_steps(fields):
    with pytest.raises(BadInput):
        RunTrajectory(*fields)
