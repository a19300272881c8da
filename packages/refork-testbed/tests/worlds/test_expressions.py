"""Expressions of two operators, their workers and closed forms."""

from __future__ import annotations

from functools import partial

import pytest

from refork.errors import BadInput
from refork.types import Message
from refork_methods.route.conduct.coins import Coins, every_outcome
from refork_testbed.worlds.expressions import (
    SKILLS,
    UNKNOWN,
    Expression,
    ExpressionWorker,
    closed_forms,
    expressions,
    workers,
)


def ask(worker: ExpressionWorker, *contents: str, draw: int = 0) -> str:
    roles = ["user" if n % 2 == (len(contents) - 1) % 2 else "assistant" for n in range(len(contents))]
    messages: list[Message] = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)]
    return worker.reply(messages, draw=draw).text


def test_closed_forms_are_the_published_ones() -> None:
    best = closed_forms()
    assert best.single == pytest.approx(0.525625)
    assert best.picked == pytest.approx(0.68875)
    assert best.steps == pytest.approx(0.9025)
    assert best.blind == 0.0
    assert closed_forms(["B", "C", "D"]).steps == pytest.approx((0.6 + 0.95) ** 2 / 4)


def test_expressions_are_worked_out_from_left_to_right() -> None:
    one = Expression.parse("3+4*2")
    assert (one.value, one.mixed, one.text) == (14, True, "3+4*2")
    assert Expression.parse("3*4+2").value == 14
    assert not Expression.parse("3*4*2").mixed
    for bad in ("3+4", "3-4*2", "", "3+4*2 "):
        with pytest.raises(BadInput):
            Expression.parse(bad)


def test_splits_never_share_an_expression() -> None:
    train, held = expressions("train"), expressions("held-out")
    assert len(train) + len(held) == 9**3 * 4
    assert not set(train) & set(held)
    assert expressions("train", 5, 1) == expressions("train", 5, 1) != expressions("train", 5, 2)
    with pytest.raises(BadInput):
        expressions("held-out", 100_000)


def test_a_sure_worker_is_right_and_uses_what_it_is_shown() -> None:
    sure = ExpressionWorker("S", {"+": 1.0, "*": 1.0})
    assert ask(sure, "3+4*2") == "14"
    assert ask(sure, "3+4") == "7"
    assert ask(sure, "5") == "5"
    assert ask(sure, "3+4", "7", "_*2") == "14"
    assert ask(sure, "x", "7", "_") == "7"
    assert ask(sure, "_*2") == UNKNOWN
    assert ask(sure, "3+4", "?", "_*2") == UNKNOWN
    assert ask(sure, "what?") == UNKNOWN
    assert sure.reply([]).text == UNKNOWN


def answered(name: str, text: str, coins: Coins) -> str:
    return ask(ExpressionWorker(name, SKILLS[name], coins), text)


def test_skill_is_the_exact_chance_and_slips_never_cancel() -> None:
    for operator, other in (("+", "*"), ("*", "+")):
        for name, skill in SKILLS.items():
            text = f"3{operator}4{other}2"
            right = str(Expression.parse(text).value)
            every = every_outcome(partial(answered, name, text))
            chance = sum(weight for weight, said in every if said == right)
            assert chance == pytest.approx(skill[operator] * skill[other])


def test_the_same_question_and_draw_give_the_same_answer() -> None:
    one, again = workers()[3], workers()[3]
    said = [ask(one, "3+4*2", draw=d) for d in range(60)]
    assert said == [ask(again, "3+4*2", draw=d) for d in range(60)]
    assert len(set(said)) > 1
