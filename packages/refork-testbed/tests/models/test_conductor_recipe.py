"""The conductor organism's demonstrations."""

from __future__ import annotations

from collections import Counter

import pytest

from refork_testbed.models.recipes import conductor
from refork_testbed.models.tokenizer import examples, make_tokenizer
from refork_testbed.worlds.expressions import NUMBERS, SKILLS, expressions


@pytest.fixture(scope="module")
def talks() -> list[tuple[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conductor, "DIALOGUES", 1500)
        return [(c[0]["content"], c[1]["content"]) for c in conductor.conversations()]


def test_no_held_out_expression_is_shown(talks: list[tuple[str, str]]) -> None:
    held = {one.text for one in expressions("held-out")}
    assert held.isdisjoint(question.splitlines()[1] for question, _ in talks)


def test_plans_are_random_but_for_the_stated_shares(talks: list[tuple[str, str]]) -> None:
    asked = Counter(name for _, said in talks for name in said.partition("]")[0][1:].split(","))
    assert set(asked) == set(SKILLS)
    one = sum(said.endswith("[[]]") for _, said in talks) / len(talks)
    # 1500 talks: within 4 standard errors of the stated share, missed by fewer than 1 of 10,000 seeds.
    assert abs(one - conductor.ONE_STEP) < 4 * (conductor.ONE_STEP / 1500) ** 0.5
    habit = sum(asked[name] for name in conductor.HABITS.values()) / sum(asked.values())
    assert 0.55 < habit < 0.8
    sizes = Counter(len(question.splitlines()[0].split(",")) for question, _ in talks)
    assert set(sizes) == {3, 4}


def test_every_plan_is_short_and_whole_in_the_words_of_the_tokenizer(talks: list[tuple[str, str]]) -> None:
    tokenizer = make_tokenizer(conductor.words(), 64)
    made = examples(tokenizer, [[{"role": "assistant", "content": said}] for _, said in talks[:300]])
    assert max(len(one.tokens) for one in made) <= 20
    spelled = tokenizer.tokenize("[A,B][3+4,_*2][[],[1]]")
    assert spelled == ["[", "A", ",", "B", "][", "3", "+", "4", ",_*", "2", "][[],[", "1", "]]"]
    assert len(NUMBERS) == 9
