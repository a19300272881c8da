"""Where the prompts of running requests are held: taken whole, copied, moved together, given back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from refork.decoding.plan import BLOCK
from refork.decoding.prefill import CacheSlot
from refork.decoding.prompts import PrefixCache
from refork.decoding.stack import KvShape, LayerShape, Stack
from refork.types import IntArray

SHAPE = KvShape((LayerShape(2, 2, 4, 3), LayerShape(1, 4, 4, 3)), torch.float32, torch.device("cpu"))


def filled(count: int, length: int, seed: int, start: int = 0) -> Stack:
    stack = Stack(SHAPE, count, start, length)
    generator = torch.Generator().manual_seed(seed)
    for tensor in (*stack.keys, *stack.values):
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return stack


def words(seed: int, length: int) -> IntArray:
    return np.random.default_rng(seed).integers(0, 1 << 20, length, dtype=np.int32)


def held(prefix_cache: PrefixCache, number: int) -> list[torch.Tensor]:
    """Keys and values of a run, layer by layer."""
    slot = prefix_cache.slot(number)
    return [t[slot.item].clone() for t in (*slot.leaf.keys, *slot.leaf.values)]


def own(stack: Stack, item: int) -> list[torch.Tensor]:
    return [t[item].clone() for t in (*stack.keys, *stack.values)]


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.fixture
def three() -> tuple[PrefixCache, Stack]:
    """Runs 0, 1 and 2, which are all of one stack."""
    prefix_cache, stack = PrefixCache(SHAPE, share=True), filled(3, BLOCK, 0)
    prefix_cache.put_all((i, CacheSlot(stack, i, None, i), words(i, 40)) for i in range(3))
    return prefix_cache, stack


def test_a_stack_of_which_all_runs_come_is_not_copied(three: tuple[PrefixCache, Stack]) -> None:
    prefix_cache, stack = three
    assert [prefix_cache.slot(i).leaf.keys[0].data_ptr() for i in range(3)] == [stack.keys[0].data_ptr()] * 3
    assert all(same(held(prefix_cache, i), own(stack, i)) for i in range(3))
    assert prefix_cache.bytes == stack.bytes


def test_others_who_read_a_taken_stack_see_no_change(three: tuple[PrefixCache, Stack]) -> None:
    prefix_cache, stack = three
    before = [own(stack, i) for i in range(3)]
    prefix_cache.drop(1)
    newcomer = filled(2, BLOCK, 1)
    prefix_cache.put_all([(7, CacheSlot(newcomer, 1, None, 7), words(7, 50))])
    assert all(same(own(stack, i), before[i]) for i in range(3))
    assert same(held(prefix_cache, 7), own(newcomer, 1))
    assert all(same(held(prefix_cache, i), before[i]) for i in (0, 2))
    # The gap was used: nobody has a shelf of their own.
    assert len({prefix_cache.slot(i).leaf.keys[0].data_ptr() for i in (0, 2, 7)}) == 1


def test_runs_join_those_that_are_there_although_they_could_be_taken(
    three: tuple[PrefixCache, Stack],
) -> None:
    prefix_cache, stack = three
    other = filled(2, BLOCK, 2)
    prefix_cache.put_all((i, CacheSlot(other, i - 5, None, i), words(i, 60)) for i in (5, 6))
    assert len({prefix_cache.slot(i).leaf.keys[0].data_ptr() for i in (0, 1, 2, 5, 6)}) == 1
    assert same(held(prefix_cache, 6), own(other, 1))
    assert same(held(prefix_cache, 2), own(stack, 2))


def test_a_stack_with_runs_of_nobody_is_copied() -> None:
    prefix_cache, stack = PrefixCache(SHAPE), filled(3, BLOCK, 0)
    prefix_cache.put_all((i, CacheSlot(stack, i, None, i), words(i, 64)) for i in (0, 2))
    assert prefix_cache.slot(2).leaf.keys[0].data_ptr() != stack.keys[0].data_ptr()
    assert same(held(prefix_cache, 2), own(stack, 2))


def test_an_odd_length_is_shelved_with_longer_runs() -> None:
    prefix_cache, stack = PrefixCache(SHAPE), filled(1, 3 * BLOCK, 0)
    prefix_cache.put_all([(0, CacheSlot(stack, 0, None, 0), words(0, 150))])
    assert prefix_cache.slot(0).leaf.length == 4 * BLOCK
    assert all(
        torch.equal(a[:, : 3 * BLOCK], b) for a, b in zip(held(prefix_cache, 0), own(stack, 0), strict=True)
    )
    assert all(not a[:, 3 * BLOCK :].any() for a in held(prefix_cache, 0))


def test_runs_that_share_with_one_that_is_here_get_its_trunk_and_are_copied() -> None:
    prefix_cache = PrefixCache(SHAPE, share=True)
    head, stacks = words(9, 3 * BLOCK), [filled(1, 4 * BLOCK, seed) for seed in (0, 0)]
    for i, stack in enumerate(stacks):
        tokens = np.concatenate([head, words(i, 20)]).astype(np.int32)
        prefix_cache.put_all([(i, CacheSlot(stack, 0, None, i), tokens)])
    second = prefix_cache.slot(1)
    assert prefix_cache.slot(0).shared_prefix is None
    assert second.shared_prefix is not None
    assert second.shared_prefix.length == second.leaf.start == 3 * BLOCK
    assert torch.equal(second.shared_prefix.keys[0][0], stacks[1].keys[0][0][:, : 3 * BLOCK])
    assert torch.equal(second.leaf.keys[0][0], stacks[1].keys[0][0][:, 3 * BLOCK :])


def test_gaps_are_closed_when_half_is_gone_and_values_stay(three: tuple[PrefixCache, Stack]) -> None:
    prefix_cache, stack = three
    prefix_cache.drop(0)
    prefix_cache.tidy()
    assert prefix_cache.bytes == stack.bytes
    prefix_cache.drop(1)
    prefix_cache.tidy()
    assert prefix_cache.bytes == stack.bytes // 3
    assert same(held(prefix_cache, 2), own(stack, 2))
    prefix_cache.drop(2)
    prefix_cache.tidy()
    assert prefix_cache.bytes == 0


@pytest.mark.parametrize("switch", [None, 3 * BLOCK])
def test_prompts_on_both_sides_of_a_switch_share_nothing(switch):
    """Six that begin alike, short and long ones by turns, come one by one."""
    prefix_cache, base = PrefixCache(SHAPE, share=True, switch=switch), np.arange(5 * BLOCK, dtype=np.int32)
    for number in range(6):
        length = 3 * BLOCK + (20 if number % 2 else -2) - number // 2
        tokens = np.append(base[:length], 1000 + number).astype(np.int32)
        prefix_cache.put_all([(number, CacheSlot(Stack(SHAPE, 1, 0, 5 * BLOCK), 0, None, number), tokens)])
    readers: dict[int, set[int]] = {}
    for number in range(6):
        shared_prefix = prefix_cache.slot(number).shared_prefix
        if shared_prefix is not None:
            readers.setdefault(id(shared_prefix), set()).add(number % 2)
    assert readers
    assert any(len(sides) == 2 for sides in readers.values()) == (switch is None)
