"""What all calls that draw have in common, declared once."""

import inspect
from dataclasses import FrozenInstanceError, fields

import pytest

from refork.forking import compare_until, fork, fork_both, sweep
from refork.forking.settings import DrawOptions, ForkOptions, ForkSettings
from refork.growing import grow, grow_trees


def test_the_keywords_are_the_fields():
    named = {one.name for one in fields(ForkSettings)}
    assert set(ForkOptions.__annotations__) == named
    assert named - set(DrawOptions.__annotations__) == {"settings", "world"}


@pytest.mark.parametrize("call", [fork, fork_both, sweep, compare_until, grow, grow_trees])
def test_a_call_shows_what_it_takes(call):
    shown = inspect.signature(call).parameters
    for one in fields(ForkSettings):
        assert one.name in shown
        if one.name not in ("settings", "world"):  # growing names these two itself
            assert (shown[one.name].default, shown[one.name].kind) == (
                one.default,
                inspect.Parameter.KEYWORD_ONLY,
            )
    assert not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in shown.values())


def test_a_keyword_that_there_is_not_is_refused():
    with pytest.raises(TypeError, match="dras"):
        fork("point", "policy", dras=3)


def test_a_value_gives_its_keywords_back():
    value = ForkSettings(seed=3, max_turns=2)
    assert ForkSettings(**value.options()) == value
    with pytest.raises(FrozenInstanceError):
        value.seed = 4
