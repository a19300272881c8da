import numpy as np
import pytest

from refork.worlds.expert import demonstrate
from refork.worlds.open import open_world
from refork_testbed.models.demonstrations import as_conversation
from refork_testbed.models.recipes import arithmetic
from refork_testbed.models.tokenizer import examples, make_tokenizer
from refork_testbed.worlds.household.build import household_world


class Never:
    """Chance that never slips."""

    def random(self):
        return 1.0


def test_a_chain_by_hand():
    text = arithmetic.chain([("+", 25), ("-", 83), ("+", 50)], Never())
    assert text == "+25 p520 m000\n-83 p520 m380\n+50 p570 m380\nm 380-570=800\nanswer -8"


def test_chains_without_slips_are_right_for_the_world():
    world = open_world(arithmetic.RECIPE.world)
    for task in world.tasks("held-out", 40, 3):
        expression = task.prompt.partition(":")[2].partition("=")[0].split()
        terms = list(zip(["+", *expression[1::2]], map(int, expression[::2]), strict=True))
        assert world.start(task, 0).step(arithmetic.chain(terms, Never())).reward == 1.0


def test_problems_look_like_the_worlds():
    asked = {c[0]["content"].partition(":")[0] for c in arithmetic.conversations()[:50]}
    told = {task.prompt.partition(":")[0] for task in open_world(arithmetic.RECIPE.world).tasks("train", 5)}
    assert asked == told
    rng = np.random.default_rng(0)
    problems = [arithmetic.problem(rng) for _ in range(300)]
    assert {len(p) for p in problems} == {2, 3, 4, 5}
    assert all(p[0][0] == "+" for p in problems)
    assert {len(str(n)) for p in problems for _, n in p} == {1}


def test_a_slip_changes_one_digit():
    rng = np.random.default_rng(1)
    for number in (0, 7, 40, 12345):
        for _ in range(20):
            wrong = f"{arithmetic.slipped(number, rng):05d}"
            assert sum(a != b for a, b in zip(wrong, f"{number:05d}", strict=True)) == 1


def test_slips_carry_on():
    # With a slip in every line the last sum is that of what was written before it.
    text = arithmetic.chain([("+", 5), ("+", 5)], np.random.default_rng(0), slip=1.0)
    first, second = (int(line.split()[1][1:][::-1]) for line in text.splitlines()[:2])
    assert first != 5
    assert second != first + 5


@pytest.mark.parametrize("name", ["household:2", "maze:3,2,2"])
def test_world_words_are_single_tokens(name):
    world = open_world(name)
    tokenizer = make_tokenizer(world.vocabulary(), 1024)
    rng = np.random.default_rng(2)
    talks = [as_conversation(demonstrate(world, t, rng, mistakes=0.2)) for t in world.tasks("train", 20)]
    for talk, example in zip(talks, examples(tokenizer, talks), strict=True):
        words = sum(len(m["content"].split()) for m in talk)
        # A role and an end for each message, and the line break in the first.
        assert len(example.tokens) == words + 2 * len(talk) + 1


def test_a_demonstration_as_a_conversation():
    world = household_world(2)
    shown = demonstrate(world, world.tasks("train", 1)[0], np.random.default_rng(0))
    talk = as_conversation(shown)
    assert talk[0]["content"] == f"{shown.task.prompt}\n{shown.observations[0].text}"
    assert [m["content"] for m in talk if m["role"] == "assistant"] == list(shown.actions)
    assert talk[-1]["role"] == "assistant"
    assert [m["content"] for m in talk[2::2]] == [o.text for o in shown.observations[1:-1]]
