"""Waiting places, with a clock that stands still."""

import contextlib
from contextlib import ExitStack

import pytest

from refork.errors import BadInput
from refork.serve.limits import Admission, token_limit
from refork.serve.refusal import Refused


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_queue_is_bounded_and_says_when_to_come_back():
    clock = Clock()
    places = Admission(slots=2, waiting=3, clock=clock)
    with ExitStack() as inside:
        for _ in range(5):
            inside.enter_context(places.enter())
        assert (places.running, places.waiting) == (2, 3)
        with pytest.raises(Refused) as caught, places.enter():
            pass
        assert caught.value.status == 429
        assert caught.value.headers["retry-after"] == "2"  # four ahead of two slots, a second each
    assert (places.running, places.waiting) == (0, 0)


def test_choices_count_each_and_places_come_back_after_a_failure():
    places = Admission(slots=2, waiting=2)
    with contextlib.suppress(ZeroDivisionError), places.enter(3):
        assert places.waiting == 1
        with pytest.raises(Refused), places.enter(2):
            pass
        raise ZeroDivisionError
    assert places.running == 0


def test_more_choices_than_there_ever_are_places_is_bad_input():
    with pytest.raises(BadInput, match="4"), Admission(slots=2, waiting=2).enter(5):
        pass


def test_retry_after_follows_how_long_answers_take():
    clock = Clock()
    places = Admission(slots=1, waiting=0, clock=clock)
    for _ in range(100):
        with places.enter():
            clock.now += 20.0
    with places.enter(), pytest.raises(Refused) as caught, places.enter():
        pass
    assert caught.value.headers["retry-after"] == "20"


def test_token_limits():
    assert token_limit(None, None, 256) == 256
    assert token_limit(None, 100, 256) == 100
    assert token_limit(50, 100, 256) == 50
    with pytest.raises(BadInput, match="at most 100"):
        token_limit(101, 100, 256)
    with pytest.raises(BadInput, match="max_output_tokens"):
        token_limit(0, None, 256, "max_output_tokens")


def test_who_came_first_is_told_first_that_it_is_his_turn():
    places, heard = Admission(slots=2, waiting=9), []
    inside = [
        places.enter(count, lambda name=name: heard.append(name))
        for name, count in (("first", 1), ("second", 3), ("third", 1))
    ]
    for one in inside:
        one.__enter__()
    assert heard == ["first", "second"]  # the second has one of its three
    inside[0].__exit__(None, None, None)
    assert heard == ["first", "second"]
    inside[1].__exit__(None, None, None)
    assert heard == ["first", "second", "third"]
    inside[2].__exit__(None, None, None)
    assert places.running == places.waiting == 0
