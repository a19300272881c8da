"""The draft context: rings of keys and values that follow branches as they come and go."""

import numpy as np
import pytest
import torch

from refork_methods.speculate.context import ContextCache, LateStates


def entry(request_id, place):
    """Keys and values that name what they belong to."""
    return [100.0 * request_id + place]


def write(cache, rows, places, request_ids):
    keys = torch.tensor([entry(t, p) for t, p in zip(request_ids, places, strict=True)])[:, None, :]
    cache.write(np.array(rows), np.array(places), [keys], [-keys])


def seen(cache, rows=None):
    """Per row, what its blocks attend to, sorted by place."""
    found = cache.context(rows)
    keys, values = found.keys[0][:, 0, :, 0], found.values[0][:, 0, :, 0]
    assert torch.equal(keys, -values)
    shown = torch.ones_like(keys, dtype=torch.bool) if found.visible is None else found.visible
    return [sorted(row[mask].tolist()) for row, mask in zip(keys, shown, strict=True)]


def test_a_window_holds_the_last_positions_of_each_branch():
    cache = ContextCache(4)
    cache.arrange(np.array([-1, -1]))
    write(cache, [0, 0, 0, 1], [5, 6, 7, 0], [1, 1, 1, 2])
    assert seen(cache) == [[105, 106, 107], [200]]
    write(cache, [0, 0, 1], [8, 9, 1], [1, 1, 2])
    assert seen(cache) == [[106, 107, 108, 109], [200, 201]]
    write(cache, [1] * 9, list(range(2, 11)), [2] * 9)
    assert seen(cache)[1] == [207, 208, 209, 210]


def test_without_a_window_it_grows():
    cache = ContextCache(None)
    cache.arrange(np.array([-1, -1]))
    write(cache, [0] * 60 + [1], [*range(60), 0], [1] * 60 + [2])
    write(cache, [0] * 100, list(range(60, 160)), [1] * 100)
    assert seen(cache) == [[100.0 + p for p in range(160)], [200]]


def test_rows_move_leave_and_begin_empty():
    cache = ContextCache(4)
    cache.arrange(np.array([-1, -1, -1]))
    write(cache, [0, 1, 2], [0, 0, 0], [1, 2, 3])
    cache.arrange(np.array([2, -1, 0]))
    assert seen(cache) == [[300], [], [100]]
    write(cache, [1, 0], [7, 1], [4, 3])
    assert seen(cache) == [[300, 301], [407], [100]]
    assert seen(cache, np.array([1])) == [[407]]
    cache.arrange(np.zeros(0, dtype=np.int64))
    cache.arrange(np.array([-1]))
    assert seen(cache) == [[]]


def test_what_is_written_twice_counts_once_and_a_gap_begins_anew():
    cache = ContextCache(8)
    cache.arrange(np.array([-1]))
    write(cache, [0, 0, 0], [0, 1, 2], [1, 1, 1])
    write(cache, [0, 0], [1, 2], [1, 1])
    assert seen(cache) == [[100, 101, 102]]
    write(cache, [0], [5], [1])
    assert seen(cache) == [[105]]


def test_branches_of_one_prompt_share_what_is_computed():
    cache = ContextCache(4)
    cache.arrange(np.array([-1, -1]))
    keys = torch.tensor([[[1.0]], [[2.0]]])
    cache.write(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), [keys], [-keys], np.array([0, 1, 0, 1]))
    assert seen(cache) == [[1, 2], [1, 2]]


@pytest.mark.parametrize("window", [3, 16])
def test_late_states_forget_what_left_every_window(window):
    late = LateStates(window)
    states = torch.zeros((2, 1, 1))
    for step in range(200):
        late.add(states, np.array([1, 2]), np.array([step, step + 5]))
        assert len(late.peek()) <= 2 * window + 1
    assert late.bytes <= (2 * window + 1) * 8
    newest = late.take()
    assert not late.peek()
    places = np.concatenate([chunk.positions[chunk.request_ids == 1] for chunk in newest])
    assert list(places[-window:]) == list(range(200 - window, 200))
    late.add(states, np.array([1, 2]), np.array([0, 0]))
    late.leave(np.array([1, *range(10, 40)]))
    assert len(late.peek()) == 1
    late.leave(np.array([1, 2, *range(10, 40)]))
    assert not late.peek()


def test_branches_that_ended_leave_nothing_behind():
    late = LateStates(4)
    for request_id in range(500):
        late.add(torch.zeros((1, 1, 1)), np.array([request_id]), np.array([7]))
        late.leave(np.array([request_id]))
        assert len(late.peek()) <= 20
    cache = ContextCache(4)
    cache.arrange(np.array([-1]))
    write(cache, [0], [0], [1])
    assert cache.bytes > 0
    cache.clear()
    assert (cache.bytes, len(cache)) == (0, 0)
