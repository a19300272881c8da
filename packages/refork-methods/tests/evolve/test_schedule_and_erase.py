import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput, Mismatch
from refork_methods.evolve.erase import selective_erasure
from refork_methods.evolve.records import (
    Cell,
    EvaluatorSlot,
    UtilityRecord,
    epoch_vector,
    own_counts,
)
from refork_methods.evolve.schedule import checkpoints, may_expand, next_boundary


def test_checkpoints_double_and_stop_before_the_budget():
    assert checkpoints(64, 2048) == (64, 128, 256, 512, 1024)
    assert checkpoints(64, 64) == ()
    assert checkpoints(1, 12, 1.5) == (1, 2, 3, 5, 7, 11)


@given(st.integers(1, 500), st.integers(1, 20_000), st.floats(1.05, 4))
def test_all_checkpoints_together_erase_at_most_the_bound(first, budget, ratio):
    points = checkpoints(first, budget, ratio)
    assert list(points) == sorted(set(points))
    # Rounding up costs at most one record a checkpoint.
    assert sum(points) <= budget * ratio / (ratio - 1) + len(points)
    if ratio == 2:
        assert sum(points) <= 2 * budget


@pytest.mark.parametrize("first", [1, 3, 64, 100])
def test_doubling_stays_within_twice_the_budget(first):
    assert all(sum(checkpoints(first, budget)) <= 2 * budget for budget in range(1, 3000, 7))


@pytest.mark.parametrize(("first", "budget", "ratio"), [(0, 9, 2), (1, 0, 2), (1, 9, 1.0), (1, 9, np.inf)])
def test_schedules_that_cannot_be_are_refused(first, budget, ratio):
    with pytest.raises(BadInput):
        checkpoints(first, budget, ratio)


def test_the_next_boundary_is_never_crossed():
    points = checkpoints(4, 20)
    assert points == (4, 8, 16)
    assert [next_boundary(n, points, 20) for n in (0, 3, 4, 8, 15, 16, 19)] == [4, 4, 8, 16, 16, 20, 20]


def test_the_gate_keeps_the_archive_within_its_bound():
    size = 1
    for n in range(3000):
        if may_expand(n, size):
            size += 1
        assert size <= 1 + n**0.6 + 1e-9
    assert size == 122
    assert may_expand(32, 8)  # 32 ** 0.6 is 8
    assert not may_expand(0, 1)


def record(n, outcome=1, slot="s", judge="A", epoch=0, other=0, node=0):
    name = "test" if slot is None else judge
    cell = Cell("role", f"t{n}", slot)
    return UtilityRecord(n, node, cell, outcome, name, (("r", other), ("s", epoch)), f"a{n}")


SLOTS = [EvaluatorSlot("r", "B"), EvaluatorSlot("s", "A")]


def test_only_records_of_changed_slots_are_erased():
    records = [record(0), record(1, slot=None), record(2, slot="r", judge="B"), record(3, 0)]
    same = selective_erasure(records, SLOTS)
    assert same.remaining == tuple(records)
    assert same.erased == ()
    split = selective_erasure(records, [SLOTS[0], SLOTS[1].replaced("C")])
    assert [r.n for r in split.erased] == [0, 3]
    assert all(a is b for a, b in zip(split.remaining, (records[1], records[2]), strict=True))
    assert split.to_rescore == ((0, records[0].cell, "a0"), (0, records[3].cell, "a3"))


def test_erasure_is_idempotent_and_blind_to_the_order_of_slots():
    records = [
        record(i, slot=("r", "s", None)[i % 3], judge="BA"[i % 3] if i % 3 < 2 else "x") for i in range(12)
    ]
    after = [SLOTS[0].replaced("D"), SLOTS[1].replaced("C")]
    found = {selective_erasure(records, order) for order in itertools.permutations(after)}
    assert len(found) == 1
    split = found.pop()
    assert selective_erasure(split.remaining, after).erased == ()
    assert {r.n for r in split.remaining} | {r.n for r in split.erased} == set(range(12))


def test_a_judge_that_comes_back_brings_no_old_score():
    slot = EvaluatorSlot("s", "A").replaced("B").replaced("A")
    assert selective_erasure([record(0)], [SLOTS[0], slot]).erased == (record(0),)


def test_what_holds_a_verdict_again_needs_no_second_one():
    old, new = record(0), UtilityRecord(9, 0, record(0).cell, 0, "C", (("r", 0), ("s", 1)), "a0")
    split = selective_erasure([old, new], [SLOTS[0], SLOTS[1].replaced("C")])
    assert split.erased == (old,)
    assert split.to_rescore == ()


def test_records_that_contradict_the_slots_are_named():
    with pytest.raises(Mismatch, match="epoch 0, which is 'X'"):
        selective_erasure([record(0)], [SLOTS[0], EvaluatorSlot("s", "X")])
    with pytest.raises(Mismatch, match="is of epoch 2"):
        selective_erasure([record(0, epoch=2)], SLOTS)
    with pytest.raises(Mismatch, match="no slot 's'"):
        selective_erasure([record(0)], SLOTS[:1])
    with pytest.raises(BadInput, match="one name"):
        selective_erasure([record(0)], [SLOTS[1], SLOTS[1]])


def test_records_that_cannot_be_are_refused():
    cell = Cell("role", "t", "s")
    with pytest.raises(BadInput, match="not 0 or 1"):
        UtilityRecord(0, 0, cell, 2, "A", (("s", 0),), "a")
    with pytest.raises(BadInput, match="who judged"):
        UtilityRecord(0, 0, cell, 1, "", (("s", 0),), "a")
    with pytest.raises(BadInput, match="does not say"):
        UtilityRecord(0, 0, cell, 1, "A", (("r", 0),), "a")
    with pytest.raises(BadInput, match="sorted"):
        UtilityRecord(0, 0, cell, 1, "A", (("s", 0), ("r", 0)), "a")
    with pytest.raises(BadInput, match="epochs are counted"):
        EvaluatorSlot("s", "A", -1)


def test_counts_by_node_and_role():
    records = [record(0), record(1, 0), record(2, node=1)]
    good, bad = own_counts(records, 3)
    assert (good.tolist(), bad.tolist()) == ([1, 1, 0], [1, 0, 0])
    assert own_counts(records, 3, "other")[0].sum() == 0
    with pytest.raises(BadInput, match="there are 1"):
        own_counts(records, 1)
    assert epoch_vector(reversed(SLOTS)) == (("r", 0), ("s", 0))
