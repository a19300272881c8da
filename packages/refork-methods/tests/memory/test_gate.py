from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork_methods.memory.gate import HISTORY, Recurrence, RecurrenceGate


@pytest.mark.parametrize("theta", [0, -1])
def test_theta_below_1_is_refused_unless_eager_code_is_asked_for(theta):
    with pytest.raises(BadInput, match="at least once"):
        RecurrenceGate(theta)
    assert RecurrenceGate.at_once().theta == 0
    with pytest.raises(BadInput, match="eager"):
        RecurrenceGate(2, eager=True)


def test_a_buffer_is_a_set_of_tasks():
    gate = RecurrenceGate(2)
    buffer = Recurrence().with_task("1", "a").with_task("1", "a").with_task("1", "b")
    assert (buffer.tasks, buffer.queries) == (("1",), ("a",))
    assert not gate.due(buffer.tasks)
    assert not gate.due(("1", "1"))
    assert gate.due(buffer.with_task("2", "b").tasks)
    assert RecurrenceGate.at_once().due(())


def test_a_consumed_task_never_counts_again_and_the_history_is_bounded():
    buffer = Recurrence()
    for number in range(20):
        buffer = buffer.with_task(str(number), f"query {number}")
    folded = buffer.folded()
    assert folded.tasks == ()
    assert folded.history == tuple(f"query {number}" for number in range(20 - HISTORY, 20))
    assert folded.with_task("3", "again") == folded
    assert folded.with_task("new", "x").tasks == ("new",)


def test_rent_or_buy_gives_theta():
    assert RecurrenceGate.rent_or_buy(10, 3).theta == 4
    assert RecurrenceGate.rent_or_buy(9, 3).theta == 3
    assert RecurrenceGate.rent_or_buy(1, 3).theta == 1
    assert RecurrenceGate.rent_or_buy(2.1, 0.3).theta == 7
    for times in range(1, 50):
        assert {RecurrenceGate.rent_or_buy(times * s / 10, s / 10).theta for s in range(1, 50)} == {times}
    for cost, saving in ((1, 0), (0, 1), (1, float("nan")), (float("inf"), 1), (1, -2)):
        with pytest.raises(BadInput, match="positive"):
            RecurrenceGate.rent_or_buy(cost, saving)
