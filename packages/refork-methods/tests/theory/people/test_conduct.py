"""A study while people take part: every answer once, in order, durable, and seen by nobody else."""

from __future__ import annotations

import json
import stat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput, CannotDo, Mismatch, TreeBusy
from refork_methods.journal import Journal
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.experiment import trial_orders
from refork_methods.theory.people import Answer, Completion, Conduct, Study, read_results
from refork_methods.theory.people.codes import new_key
from refork_methods.theory.people.conduct import NotNow, UnknownVisitor, key_file

PAIRS = CueExperiment.of(
    [0.9, 0.8, 0.7], [[1, 0, 0], [0, 1, 0], [1, 1, 0]], [[0, 1, 1], [0, 0, 1], [0, 0, 1]]
)
STUDY = Study.of(PAIRS, trials=6, seed=3)
ONE, TWO = "a" * 40, "b" * 40
VISIT = {"PROLIFIC_PID": "5f2b", "STUDY_ID": "s1", "SESSION_ID": "v1"}


def answers(order, rt=1500.0, responses=None):
    given = responses or [0, 1, 1, 0, 1, 0]
    return [Answer(i, pair, given[i % 6], rt, "key", 10.0 * i) for i, pair in enumerate(order)]


def whole(conduct, token, **more):
    """Somebody who does all of it."""
    standing = conduct.begin(token, **more)
    for one in answers(standing.order):
        conduct.answer(token, one)
    return conduct.end(token)


def test_a_person_is_shown_the_seeds_order_and_ends_with_a_code(tmp_path):
    with Conduct.open(STUDY, tmp_path / "r.jsonl") as conduct:
        first, second = conduct.begin(ONE), conduct.begin(TWO)
        orders = trial_orders(PAIRS, 2, 3, trials=6)
        assert np.array_equal([first.order, second.order], orders)
        with pytest.raises(NotNow, match="0 of 6"):
            conduct.end(ONE)
        for one in answers(first.order):
            assert conduct.answer(ONE, one).answered == one.index + 1
        ended = conduct.end(ONE, 50.0, ["webdriver"])
        assert ended.status == "ended"
        assert len(ended.code) == 10
        assert conduct.end(ONE).code == ended.code
        assert conduct.counts == {"going": 1, "ended": 1, "withdrawn": 0}


def test_an_answer_counts_once_and_only_in_its_turn(tmp_path):
    with Conduct.open(STUDY, tmp_path / "r.jsonl") as conduct:
        order = conduct.begin(ONE).order
        first, second, third = answers(order)[:3]
        conduct.answer(ONE, first)
        assert conduct.answer(ONE, first).answered == 1
        assert conduct.answer(ONE, Answer(0, first.stimulus, first.response, 9.0)).answered == 1
        other = Answer(0, first.stimulus, 1 - first.response, 9.0)
        wrong = Answer(1, (second.stimulus + 1) % 3, 0, 9.0)
        for bad, said in ((other, "otherwise"), (third, "1 of 6"), (wrong, "is of pair")):
            with pytest.raises(NotNow, match=said):
                conduct.answer(ONE, bad)
        assert conduct.answer(ONE, second).answered == 2
    assert [len(one.answers) for one in read_results(tmp_path / "r.jsonl").people] == [2]


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["next", "again", "restart", "torn"]), max_size=14))
def test_whatever_is_repeated_or_cut_short_the_file_holds_each_answer_once(tmp_path_factory, steps):
    file = tmp_path_factory.mktemp("study") / "r.jsonl"
    conduct, done = Conduct.open(STUDY, file), 0
    all_of_it = answers(conduct.begin(ONE).order)
    for step in steps:
        if step == "next" and done < 6:
            done = conduct.answer(ONE, all_of_it[done]).answered
        elif step == "again" and done:
            assert conduct.answer(ONE, all_of_it[done - 1]).answered == done
        elif step in ("restart", "torn"):
            conduct.close()
            if step == "torn":  # a line that was never acknowledged
                file.write_bytes(file.read_bytes() + b'{"body":{"partic')
            conduct = Conduct.open(STUDY, file)
        assert conduct.begin(ONE).answered == done
    conduct.close()
    (person,) = read_results(file).people
    assert person.answers == all_of_it[:done]


def test_a_recruited_person_goes_on_in_another_browser_but_does_not_begin_twice(tmp_path):
    with Conduct.open(STUDY, tmp_path / "r.jsonl") as conduct:
        order = conduct.begin(ONE, VISIT).order
        conduct.answer(ONE, answers(order)[0])
        assert conduct.begin(TWO, VISIT).answered == 1
        with pytest.raises(UnknownVisitor):
            conduct.standing(ONE)
        for visit in (VISIT | {"SESSION_ID": "v2"}, {"PROLIFIC_PID": "5f2b"}):
            with pytest.raises(NotNow, match="already") as caught:
                conduct.begin("c" * 40, visit)
            assert caught.value.code == "again"
        assert conduct.begin("c" * 40, VISIT | {"PROLIFIC_PID": "other"}).answered == 0
    with Conduct.open(STUDY, tmp_path / "r.jsonl") as conduct:
        assert conduct.standing(TWO).answered == 1


def test_neither_tokens_nor_recruiters_numbers_are_written_down(tmp_path):
    file = tmp_path / "r.jsonl"
    with Conduct.open(STUDY, file) as conduct:
        whole(conduct, ONE, params={"PROLIFIC_PID": "5f2b3c4d", "SESSION_ID": "visit77"})
    text = file.read_text()
    assert not any(secret in text for secret in (ONE, "5f2b3c4d", "visit77"))
    assert stat.S_IMODE(key_file(file).stat().st_mode) == 0o600


def test_who_withdraws_is_left_out_and_cannot_go_on(tmp_path):
    with Conduct.open(STUDY, tmp_path / "r.jsonl") as conduct:
        order = conduct.begin(ONE).order
        conduct.answer(ONE, answers(order)[0])
        assert conduct.withdraw(ONE).status == "withdrawn"
        assert conduct.withdraw(ONE).status == "withdrawn"
        with pytest.raises(NotNow, match="withdrawn"):
            conduct.answer(ONE, answers(order)[1])
        with pytest.raises(NotNow):
            conduct.end(ONE)
    found = read_results(tmp_path / "r.jsonl")
    assert list(found.reasons.values()) == ["withdrew"]
    assert "p-" not in found.table(counted_only=False)


def test_a_full_study_takes_nobody_else_but_lets_everybody_end(tmp_path):
    study = Study.of(PAIRS, trials=3, completion=Completion("ALL1"))
    with Conduct.open(study, tmp_path / "r.jsonl", most=1) as conduct:
        conduct.begin(ONE)
        with pytest.raises(NotNow, match="enough") as caught:
            conduct.begin(TWO)
        assert caught.value.code == "full"
        assert whole(conduct, ONE).code == "ALL1"


@pytest.mark.parametrize("token", ["", "short", "x" * 200, "a b" * 20])
def test_only_a_real_token_begins(tmp_path, token):
    with Conduct.open(STUDY, tmp_path / "r.jsonl") as conduct, pytest.raises(BadInput, match="token"):
        conduct.begin(token)


def test_a_results_file_is_of_one_study_one_server_and_one_key(tmp_path):
    file = tmp_path / "deep" / "r.jsonl"
    with Conduct.open(STUDY, file), pytest.raises(TreeBusy):
        Conduct.open(STUDY, file)
    with pytest.raises(Mismatch, match="another study"):
        Conduct.open(Study.of(PAIRS, trials=6, seed=4), file)
    key = key_file(file).read_text()
    key_file(file).unlink()
    with pytest.raises(Mismatch, match="key is gone"):
        Conduct.open(STUDY, file)
    key_file(file).write_text("zzz")
    with pytest.raises(Mismatch, match="no key"):
        Conduct.open(STUDY, file)
    key_file(file).write_text(key)
    Conduct.open(STUDY, file).close()
    with pytest.raises(CannotDo):
        Conduct.open(STUDY, tmp_path / "deep" / "r.jsonl" / "under")


def test_changed_texts_are_recorded_and_consent_names_those_it_was_given_to(tmp_path):
    file = tmp_path / "r.jsonl"
    with Conduct.open(STUDY, file) as conduct:
        conduct.begin(ONE)
    later = Study.of(PAIRS, trials=6, seed=3, texts=STUDY.texts.model_copy(update={"contact": "x@y.example"}))
    with Conduct.open(later, file) as conduct:
        with pytest.raises(NotNow, match="texts") as caught:
            conduct.begin(TWO, texts=STUDY.texts_digest)
        assert caught.value.code == "stale"
        conduct.begin(TWO, texts=later.texts_digest)
    kinds = [entry.kind for entry in Journal(file)]
    assert kinds == ["study", "texts", "begin", "texts", "begin"]
    first, second = read_results(file).people
    assert (first.texts, second.texts) == (STUDY.texts_digest, later.texts_digest)


def test_a_conduct_in_memory_needs_no_file():
    conduct = Conduct(STUDY, Journal(), new_key())
    assert whole(conduct, ONE).status == "ended"


def test_a_changed_results_file_is_refused(tmp_path):
    file = tmp_path / "r.jsonl"
    with Conduct.open(STUDY, file) as conduct:
        whole(conduct, ONE)
    lines = file.read_text().splitlines()
    body = json.loads(lines[4])
    body["body"]["response"] = 1 - body["body"]["response"]
    file.write_text("\n".join([*lines[:4], json.dumps(body), *lines[5:]]) + "\n")
    with pytest.raises(Mismatch, match="changed"):
        read_results(file)
