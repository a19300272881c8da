"""Results: rules of quality, files that people saved, and the way to theories."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.gambles.experiment import GambleExperiment
from refork_methods.theory.open import read_choices
from refork_methods.theory.people import Answer, Conduct, Study, read_results
from refork_methods.theory.people.results import find_person, is_results
from refork_methods.theory.read import read_csv_trials

CUES = CueExperiment.of([0.9, 0.8, 0.7], [[1, 0, 0], [0, 1, 0], [1, 1, 0]], [[0, 1, 1], [0, 0, 1], [0, 0, 1]])
GAMBLES = GambleExperiment.of([([(0, 0.3), (40, 0.7)], [(25, 1.0)]), ([(-10, 0.5), (35, 0.5)], [(10, 1.0)])])
MIXED = [0, 1, 1, 0, 0, 1] * 4


def take_part(conduct, token, responses, rt=1500.0, away=0.0, bot=(), stop=None, params=None):
    standing = conduct.begin(token * 40, params or {})
    for i, pair in enumerate(standing.order[:stop]):
        conduct.answer(token * 40, Answer(i, pair, responses[i], rt, "key", away))
    if stop is None:
        conduct.end(token * 40, away, bot)


def test_each_rule_leaves_its_breakers_out_with_the_reason(tmp_path):
    file = tmp_path / "r.jsonl"
    with Conduct.open(Study.of(CUES, trials=24), file) as conduct:
        take_part(conduct, "a", MIXED, params={"PROLIFIC_PID": "77"})
        take_part(conduct, "b", [1] * 24)
        take_part(conduct, "c", [0, 1] * 12)
        take_part(conduct, "d", MIXED, rt=1199.0)
        take_part(conduct, "e", MIXED, away=60_001.0)
        take_part(conduct, "f", MIXED, bot=["webdriver"])
        take_part(conduct, "g", MIXED, stop=5)
        take_part(conduct, "h", MIXED, rt=1200.0, away=60_000.0)
    found = read_results(file)
    said = [found.reasons.get(one.id) for one in found.people]
    assert said == [
        None, "one key in 100% of the trials", "the other key in 100% of the trials", "1199 ms a response",
        "60 s away from the page", "a bot's signal", "stopped after 5 of 24 choices", None,
    ]  # fmt: skip
    assert len(found.observation().trials.people) == 2
    assert find_person(found, file, "prolific:77").people == found.people[:1]
    for whose in ("prolific:78", "sona:77", "77"):
        with pytest.raises(BadInput):
            find_person(found, file, whose)


def test_kept_choices_reach_the_readers_of_theories_and_the_others_a_side_file(tmp_path):
    file = tmp_path / "r.jsonl"
    with Conduct.open(Study.of(CUES, trials=24, name="first"), file) as conduct:
        take_part(conduct, "a", MIXED)
        take_part(conduct, "b", [1] * 24)
    found = read_results(file)
    (seen,) = read_choices(file).observations
    assert seen.name == "first"
    assert np.array_equal(seen.trials.stimulus, [one.stimulus for one in found.people[0].answers])
    assert seen.trials.response.tolist() == MIXED
    (tmp_path / "kept.csv").write_text(found.table(counted_only=True))
    (table,) = read_csv_trials(tmp_path / "kept.csv").observations
    assert np.allclose(np.sort(table.trials.rates(3)), np.sort(seen.trials.rates(3)))
    rows = list(csv.DictReader(found.table(counted_only=False).splitlines()))
    assert len(rows) == 24
    assert {row["reason"] for row in rows} == {"one key in 100% of the trials"}


def test_gambles_are_read_alike(tmp_path):
    file = tmp_path / "r.jsonl"
    with Conduct.open(Study.of(GAMBLES, trials=6), file) as conduct:
        take_part(conduct, "a", MIXED)
    (seen,) = read_choices(file).observations
    assert seen.experiment == GAMBLES
    row = next(csv.DictReader(read_results(file).table(counted_only=True).splitlines()))
    assert json.loads(row["option_a_ratings"]) in [GAMBLES.stimulus(n)["a"] for n in (0, 1)]


def saved(study, name="p-1", person=None, time=1.0, responses=MIXED, **more):
    """What the page without a server gives a person to save."""
    order = study.order(0)
    who = None if person is None else {"recruiter": "link", "person": person, "study": None, "session": None}
    begin = {
        "participant": name,
        "token": "",
        "order": order,
        "texts": "",
        "recruited": who,
        "bot": [],
        "code": "C",
    }
    entries = [("begin", begin)]
    for i, pair in enumerate(order):
        answer = {
            "index": i,
            "stimulus": pair,
            "response": responses[i],
            "rt_ms": 1500.5,
            "by": "key",
            "away_ms": 0,
        }
        entries.append(("trial", {"participant": name, **answer}))
    entries.append(("end", {"participant": name, "away_ms": 0, "bot": []}))
    told = [{"kind": kind, "time": time + n, "body": body} for n, (kind, body) in enumerate(entries)]
    return {"format": "refork-people", "header": study.header(), "entries": told, **more}


def test_saved_files_are_read_one_by_one_or_as_a_folder(tmp_path):
    study = Study.of(CUES, trials=6)
    (tmp_path / "a.json").write_text(json.dumps(saved(study)))
    (tmp_path / "b.json").write_text(json.dumps(saved(study)))
    (tmp_path / "c.json").write_text(json.dumps(saved(study, "p-2", "x", 50.0)))
    (tmp_path / "d.json").write_text(json.dumps(saved(study, "p-3", "x", 10.0)))
    assert len(read_results(tmp_path / "a.json").counted) == 1
    found = read_results(tmp_path)
    assert [one.id for one in found.counted] == ["p-1", "p-3"]
    assert found.reasons == {"p-2": "came a second time"}
    assert is_results(tmp_path)
    assert not is_results(tmp_path / "none.json")
    (tmp_path / "e.json").write_text(json.dumps(saved(study, responses=[1] * 6)))
    with pytest.raises(BadInput, match="begins twice"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.update(format="other"), "no answers"),
        (lambda data: data.update(entries={}), "lacks"),
        (lambda data: data["entries"][1]["body"].update(stimulus=9), "pair"),
        (lambda data: data["entries"][1]["body"].update(response=2), "response"),
        (lambda data: data["entries"][1]["body"].update(rt_ms=float("nan")), "rt_ms"),
        (lambda data: data["entries"][1]["body"].pop("by"), "lacks what it needs"),
        (lambda data: data["entries"][0]["body"].update(order=[0] * 6), "order"),
        (lambda data: data["entries"].pop(2), "choice 2"),
        (lambda data: data["entries"][3].update(kind="other"), "kind"),
        (lambda data: data["header"].update(version=9), "version"),
    ],
)
def test_a_saved_file_that_was_tampered_with_is_refused_and_named(tmp_path, change, said):
    data = saved(Study.of(CUES, trials=6))
    change(data)
    (tmp_path / "a.json").write_text(json.dumps(data))
    with pytest.raises(BadInput, match=said) as caught:
        read_results(tmp_path / "a.json")
    assert "a.json" in str(caught.value)


def test_files_of_two_studies_and_of_none(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(saved(Study.of(CUES, trials=6))))
    (tmp_path / "b.json").write_text(json.dumps(saved(Study.of(CUES, trials=6, seed=1), "p-2")))
    with pytest.raises(BadInput, match="another study"):
        read_results(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="no saved answers"):
        read_results(tmp_path / "empty")
    with pytest.raises(BadInput, match="no such results"):
        read_results(tmp_path / "gone.jsonl")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(BadInput, match="not JSON"):
        read_results(tmp_path / "x.json")


def test_nobody_left_is_an_error_that_says_where_to_look(tmp_path):
    with Conduct.open(Study.of(CUES, trials=6), tmp_path / "r.jsonl"):
        pass
    with pytest.raises(BadInput, match="nobody"):
        read_choices(tmp_path / "r.jsonl")
