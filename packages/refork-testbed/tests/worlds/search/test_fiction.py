"""Invented worlds: what pages say is what rows say, and every question has one answer."""

import random

import pytest

from refork.errors import BadInput
from refork.worlds.dice import Dice
from refork_testbed.worlds.search.fiction import (
    COLUMNS,
    CONTRADICTIONS,
    Fiction,
    draw_tables,
    fiction,
)
from refork_testbed.worlds.search.source import KINDS, draw_question, make_question

WORLDS = range(6)


def asked(world: Fiction, number: int = 60):
    dice = Dice("test", world.name)
    return [draw_question(world, tuple(KINDS), dice) for _ in range(number)]


@pytest.mark.parametrize("number", WORLDS)
def test_every_page_says_all_of_its_row_and_who_names_it(number):
    world = fiction(number)
    for title in world.titles():
        said = " ".join(world.page(title)).split(" ")
        assert {word for value in world.row(title).values() for word in str(value).split(" ")} <= set(said)
    for table, column in (("company", "founder"), ("company", "town"), ("product", "company")):
        for name, named in world.db.execute(f"SELECT name, {column} FROM {table}"):
            assert any(f" {name} " in text for text in world.page(named) if " : " in text)


@pytest.mark.parametrize("number", WORLDS)
def test_worlds_are_of_the_size_and_consistent(number):
    world = fiction(number)
    assert 300 <= sum(len(rows) for rows in draw_tables(number).values()) <= 500
    assert draw_tables(number) == draw_tables(number)
    assert draw_tables(number) != draw_tables(number + 1)
    assert all(not world.db.execute(query).fetchall() for query in CONTRADICTIONS.values())


def test_answers_do_not_depend_on_the_order_of_rows():
    for number in WORLDS:
        world = fiction(number)
        tables = draw_tables(number)
        for rows in tables.values():
            random.Random(number).shuffle(rows)
        shuffled = Fiction(tables, "shuffled")
        for one in asked(world):
            assert make_question(shuffled, KINDS[one.kind], one.subject, one.value) == one


def test_a_question_has_one_answer_and_does_not_tell_it():
    for number in WORLDS:
        world = fiction(number)
        answers = {}
        for one in asked(world, 150):
            assert answers.setdefault(one.words, one.answer) == one.answer
            assert 1 <= len(one.answer) <= 6
            assert not any(f" {item} " in f" {one.words} " for item in one.answer)
            # The pages on the way say every item, and each is linked from the one before.
            said = " ".join(" ".join(world.page(title)) for title in one.path)
            assert all(f" {item} " in f" {said} " for item in one.answer)
            first = " ".join(world.page(one.subject))
            assert all(f" {title} " in f" {first} " for title in one.path[1:])
    assert {one.kind for number in WORLDS for one in asked(fiction(number), 150)} == set(KINDS)


@pytest.mark.parametrize(
    ("table", "column", "value", "what"),
    [
        ("company", "founder", "nobody", "names nothing"),
        ("company", "founded", 1, "founder under 20"),
        ("product", "launched", 1, "before its maker"),
        ("person", "prize", 1, "prize before"),
    ],
)
def test_facts_that_contradict_each_other_are_refused(table, column, value, what):
    tables = draw_tables(0)
    row = list(tables[table][0])
    row[COLUMNS[table].index(column)] = value
    tables[table][0] = tuple(row)
    with pytest.raises(BadInput, match=what):
        Fiction(tables, "broken")


def test_one_name_of_two_things_is_refused():
    tables = draw_tables(0)
    tables["town"].append((tables["person"][0][0], "plains", 1800, 1801))
    with pytest.raises(BadInput, match="two things"):
        Fiction(tables, "broken")
