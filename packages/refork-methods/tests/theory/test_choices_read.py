from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.quality import QualityRules, Session
from refork_methods.theory.read import read_csv_trials, read_human_choices
from refork_methods.theory.trials import Trials

ONE = {"validities": [0.9, 0.6], "trial_a_ratings": [[1, 0], [0, 0]], "trial_b_ratings": [[0, 1], [1, 1]]}
TWO = {"validities": [0.8, 0.7], "trial_a_ratings": [[0, 1]], "trial_b_ratings": [[1, 1]]}


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def opened(design, observation=0, round_=0):
    return {"kind": "experiment", "round": round_, "observation": observation, **design}


def trial(person, design, pair, response, observation=0, round_=0):
    a, b = design["trial_a_ratings"][pair], design["trial_b_ratings"][pair]
    at = {"kind": "trial", "round": round_, "observation": observation}
    return {**at, "subject_id": person, "a": a, "b": b, "response": response}


PLAIN = (
    opened(ONE), trial(5, ONE, 1, 1), trial(5, ONE, 0, 0), trial(2, ONE, 0, 1),
    opened(TWO, 1), trial(5, TWO, 0, 0, 1),
)  # fmt: skip


def test_published_lines_are_read_plain_or_packed(tmp_path):
    (tmp_path / "a.jsonl").write_text(lines(*PLAIN))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(*PLAIN).encode()))
    for name in ("a.jsonl", "a.jsonl.gz"):
        read = read_human_choices(tmp_path / name)
        assert read.foreign == {}
        first, second = read.observations
        assert (first.name, second.name) == ("round 0, observation 0", "round 0, observation 1")
        assert first.experiment == CueExperiment.from_json(ONE)
        assert first.trials.person.tolist() == [0, 0, 1]
        assert first.trials.stimulus.tolist() == [1, 0, 0]
        assert first.trials.response.tolist() == [1, 0, 1]


def test_people_of_another_experiment(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(lines(*PLAIN, trial(7, TWO, 0, 1)))
    with pytest.raises(BadInput, match="person 7"):
        read_human_choices(path, foreign="refuse")
    dropped = read_human_choices(path)
    assert dropped.foreign == {"round 0, observation 0": 1}
    assert [o.trials.response.size for o in dropped.observations] == [3, 1]
    moved = read_human_choices(path, foreign="move")
    assert [o.trials.response.size for o in moved.observations] == [3, 2]
    assert moved.observations[1].trials.people == (0, 1)
    # Of another round, nobody knows whose it was.
    path.write_text(lines(*PLAIN, opened(TWO, 0, 1), trial(0, TWO, 0, 0, 0, 1), trial(9, ONE, 0, 1, 0, 1)))
    assert [o.trials.response.size for o in read_human_choices(path, foreign="move").observations] == [
        3,
        1,
        1,
    ]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no experiment"),
        ([trial(0, ONE, 0, 1)], "before its experiment"),
        ([opened(ONE), opened(ONE)], "opened twice"),
        ([opened(ONE)], "no trial is left"),
        ([opened(ONE), {**trial(0, ONE, 0, 1), "response": 2}], "a response is 2"),
        ([opened(ONE), {**trial(0, ONE, 0, 1), "response": None}], "response"),
        ([opened(ONE), {**trial(0, ONE, 0, 1), "a": "10"}], "ratings 'a'"),
        *(
            ([opened(ONE), {**trial(0, ONE, 0, 1), "a": [odd, 0]}], "no list of whole numbers")
            for odd in (float("nan"), float("inf"), None, [1], True)
        ),
        ([{**opened(ONE), "validities": [0.2, 0.6]}], "validity is 0.2"),
        ([{**opened(ONE), "kind": "other"}], "of kind 'other'"),
    ],
)
def test_refused_lines(tmp_path, rows, words):
    path = tmp_path / "a.jsonl"
    path.write_text(lines(*rows))
    with pytest.raises(BadInput, match=words):
        read_human_choices(path)


def test_refused_files(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        read_human_choices(tmp_path / "none.jsonl")
    (tmp_path / "bad.gz").write_bytes(b"no gzip")
    with pytest.raises(BadInput, match="cannot be read"):
        read_human_choices(tmp_path / "bad.gz")
    with pytest.raises(BadInput, match="unknown treatment"):
        read_human_choices(tmp_path / "a.jsonl", foreign="keep")


HEAD = "subject_id,option_a_ratings,option_b_ratings,response,validities,observation\n"


def test_a_csv_of_trials(tmp_path):
    path = tmp_path / "trials.csv"
    path.write_text(
        HEAD + 'ann,"[1, 0]","[0, 1]",1,"[0.9, 0.6]",x\nann,0 0,1 1,0,0.9 0.6,x\nbob,1 0,0 1,0,0.9 0.6,x\n'
        "bob,0 1,1 1,1,0.8 0.7,y\n"
    )
    first, second = read_csv_trials(path).observations
    assert (first.name, second.name) == ("x", "y")
    assert first.experiment == CueExperiment.from_json(ONE)
    assert first.trials.person.tolist() == [0, 0, 1]
    assert first.trials.stimulus.tolist() == [0, 1, 0]
    assert first.trials.response.tolist() == [1, 0, 0]
    path.write_text("subject_id,option_a_ratings,option_b_ratings,response\n1,1 0,0 1,1\n")
    alone = read_csv_trials(path, validities=(0.9, 0.6)).observations
    assert [one.name for one in alone] == ["trials"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no column 'subject_id'"),
        ("subject_id,option_a_ratings,option_b_ratings,response\n1,1,0,0\n", "no column 'validities'"),
        (HEAD, "no trials"),
        (HEAD + "1,1 0,0 1,2,0.9 0.6,x\n", "the response is '2'"),
        (HEAD + "1,one,0 1,1,0.9 0.6,x\n", "no list of numbers"),
        (HEAD + "1,,0 1,1,0.9 0.6,x\n", "is empty"),
        (HEAD + "1,1.5 0,0 1,1,0.9 0.6,x\n", "whole numbers"),
        (HEAD + "1,1 0,0 1,1,0.9 0.6,x\n1,1 0,0 1,1,0.9 0.7,x\n", "other validities"),
        (HEAD + "1,1 0 1,0 1,1,0.9 0.6,x\n", "3 ratings"),
        (HEAD + "1,1 0\n", "the response is ''"),
        (HEAD + "1,1 nan,0 1,1,0.9 0.6,x\n", "whole numbers"),
        (HEAD + "1,1 inf,0 1,1,0.9 0.6,x\n", "whole numbers"),
        (HEAD + f'1,"[1, {10**400}]",0 1,1,0.9 0.6,x\n', "no list of numbers"),
        (HEAD + ",1 0,0 1,1,0.9 0.6,x\n", "whose choice"),
    ],
)
def test_refused_tables(tmp_path, text, words):
    path = tmp_path / "trials.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=words):
        read_csv_trials(path)


MIXED = [0, 0, 1, 1] * 10


def people(*rows):
    return Trials.of_table(np.zeros((len(rows), len(rows[0])), dtype=int), np.asarray(rows))


@pytest.mark.parametrize(
    ("responses", "session", "reason"),
    [
        ([1] * 39 + [0], None, "one key in 98% of the trials"),
        ([0, 1] * 20, None, "the other key in 100% of the trials"),
        (MIXED, Session(response_ms=1199), "1199 ms a response"),
        (MIXED, Session(away_s=61), "61 s away from the page"),
        (MIXED, Session(bot=True), "a bot's signal"),
        (MIXED, Session(response_ms=1200, away_s=60, bot=False), None),
        (MIXED, None, None),
        ([1] * 19 + [0], None, None),
    ],
)
def test_who_is_left_out_and_why(responses, session, reason):
    assert QualityRules().reason(people(responses), session) == reason


@pytest.mark.parametrize(
    "bad", [{"one_key": 0}, {"alternation": 1.1}, {"away_s": -1}, {"fastest_ms": float("nan")}]
)
def test_refused_rules(bad):
    with pytest.raises(BadInput):
        QualityRules(**bad)


def test_choices_between_gambles_are_read_back(tmp_path):
    from refork_methods.theory.gambles.experiment import random_gambles
    from refork_methods.theory.read import read_choices

    design = random_gambles(np.random.default_rng(0), 4)
    lines = ["subject_id,option_a,option_b,response"]
    for person, at, response in ((p, i, (p + i) % 2) for p in range(3) for i in range(4)):
        sides = [json.dumps([list(one) for one in side[at]]) for side in (design.a, design.b)]
        lines.append(f'{person},"{sides[0]}","{sides[1]}",{response}')
    file = tmp_path / "gambles.csv"
    file.write_text("\n".join(lines) + "\n")
    (found,) = read_choices(file).observations
    assert found.experiment == design
    assert found.trials.response.tolist() == [0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1]
    for bad in (
        lines[0],
        "subject_id,option_a,option_b,response\n1,x,[],0",
        lines[0] + "\n1,[[1,1]],[[2,1]],5",
    ):
        file.write_text(bad + "\n")
        with pytest.raises(BadInput):
            read_choices(file)
