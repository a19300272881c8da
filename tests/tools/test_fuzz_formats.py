"""The fuzzer of formats: what counts as a failure, what is kept of it, and that a number names an input."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from refork.errors import BadInput

TOOL = Path(__file__).parents[2] / "tools" / "fuzz_formats.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("fuzz_formats", TOOL)
    module = sys.modules.setdefault("fuzz_formats", importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


def test_a_parser_that_refuses_is_well(tool, tmp_path):
    state = tool.fuzz_here("skyrl", 30, tmp_path)
    assert (state.done, state.failures) == (30, [])
    assert 0 < state.refused < 30


def test_what_is_raised_is_a_failure_with_its_input(tool, tmp_path, monkeypatch):
    def read(self, number):
        if number in (3, 4):
            raise BadInput("no such row") if number == 3 else KeyError("role")

    monkeypatch.setattr(tool.Fuzzer, "_read", read)
    state = tool.fuzz_here("skyrl", 10, tmp_path)
    assert state.refused == 1
    assert [(one["input"], one["what"]) for one in state.failures] == [(4, "KeyError('role')")]
    first = (tmp_path / "failure-4").read_bytes()
    tool.fuzz_here("skyrl", 10, tmp_path)
    assert (tmp_path / "failure-4").read_bytes() == first


def test_what_takes_too_long_is_a_failure(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "SLOW", -1.0)
    state = tool.fuzz_here("skyrl", 3, tmp_path)
    assert [one["where"] for one in state.failures] == ["slow"] * 3


def test_a_state_of_other_parsers_does_not_count(tool, tmp_path, monkeypatch):
    state = tool._state(tmp_path, "skyrl", 0)
    state.done = 1000
    tool._save(tmp_path, state)
    assert tool._state(tmp_path, "skyrl", 0).done == 1000
    assert tool._state(tmp_path, "skyrl", 1).done == 0
    monkeypatch.setattr(tool, "_code", lambda: "changed")
    assert tool._state(tmp_path, "skyrl", 0).done == 0
