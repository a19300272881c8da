"""The repair writer's demonstrations: valid edits that mend, errors at the stated rate, nothing held out."""

from collections import Counter

import numpy as np
import pytest

from refork_testbed.models.recipes import repair_writer
from refork_testbed.models.recipes.repair_writer import ERR, RECIPE, TAILS, TURNS, answer, dialogue, mistake
from refork_testbed.models.tokenizer import examples, make_tokenizer
from refork_testbed.worlds.repair.edits import edited
from refork_testbed.worlds.repair.mutation import KINDS
from refork_testbed.worlds.repair.small import mutation_split, small_prompt


@pytest.fixture(scope="module")
def pool():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repair_writer, "trades", lambda: range(2))
        repair_writer.bugs.cache_clear()
        yield [bug for several in repair_writer.bugs().values() for bug in several]
        repair_writer.bugs.cache_clear()


@pytest.fixture(scope="module")
def talks(pool):
    rng = np.random.default_rng(0)
    bugs = [pool[i] for i in rng.integers(len(pool), size=1500)]
    return [(bug, dialogue(bug, rng)) for bug in bugs]


def applied(bug, turns):
    files = {"a.py": bug.mutation.apply(bug.source)}
    for text in turns:
        files = edited(files, "a.py", text)
    return files["a.py"]


def test_every_right_answer_is_an_edit_that_gives_the_unbroken_text_back(pool):
    for bug in pool[::7]:
        assert applied(bug, [answer(bug.source, bug.mutation.line)]) == bug.source


def test_no_mistake_mends(pool):
    rng = np.random.default_rng(1)
    for bug in pool[::7]:
        number, said = mistake(bug, rng)
        assert said.startswith(f"line {number}: ")
        text = applied(bug, [said])
        assert text != bug.source
        if said.endswith(TAILS):
            with pytest.raises(SyntaxError):
                compile(text, "a.py", "exec")


def test_a_turn_errs_at_the_stated_rate(talks):
    first = [applied(bug, [talk[1]["content"]]) == bug.source for bug, talk in talks]
    # 1500 turns: within 4 standard errors of the stated chance, missed by fewer than 1 of 10,000 seeds.
    assert abs(np.mean(first) - (1 - ERR)) < 4 * np.sqrt(ERR * (1 - ERR) / len(talks))


def test_a_later_turn_that_does_not_err_mends_what_one_line_can(talks):
    longer = [(bug, talk) for bug, talk in talks if len(talk) >= 4]
    assert abs(len(longer) / len(talks) - sum(TURNS[1:])) < 4 * np.sqrt(0.25 / len(talks))
    mended = 0
    for bug, talk in longer:
        said = [message["content"] for message in talk if message["role"] == "assistant"]
        before = applied(bug, said[:1])
        wrong = sum(a != b for a, b in zip(before.split("\n"), bug.source.split("\n"), strict=True))
        after = applied(bug, said[:2])
        mended += after == bug.source
        assert wrong <= 1 or after != bug.source
    assert mended / len(longer) > 0.5


def test_no_held_out_mutation_is_shown(pool):
    assert {mutation_split(bug.source, bug.mutation) for bug in pool} == {"train"}
    assert {bug.mutation.kind for bug in pool} == set(KINDS)


def test_the_prompt_is_the_worlds(pool):
    for bug in pool[::40]:
        broken = bug.mutation.apply(bug.source)
        prompt = small_prompt(bug.source, bug.mutation.line, broken)
        assert prompt == small_prompt(broken, bug.mutation.line)


def test_what_is_said_is_short_in_the_words_of_the_tokenizer(talks):
    tokenizer = make_tokenizer(repair_writer.words(), RECIPE.shape.context)
    made = examples(tokenizer, [talk for _, talk in talks[:300]])
    assert max(len(one.tokens) for one in made) <= RECIPE.shape.context
    assert max(sum(one.mask) for one in examples(tokenizer, [talk[:2] for _, talk in talks])) < (
        RECIPE.sampling.max_tokens or 0
    )
    assert tokenizer.tokenize("line 14: return 1") == ["line", " 14", ":", " return", " 1"]


def test_answers_to_a_turn_are_the_gates_and_the_worlds(talks):
    said = Counter(line for _, talk in talks for m in talk[2::2] for line in m["content"].split("\n"))
    assert {repair_writer.UNTOLD, "public: failed", "syntax: failed", "1 of 2 public tests pass"} <= set(said)
    assert all(line.endswith((": failed", "public tests pass", repair_writer.UNTOLD)) for line in said)
