"""Texts, codes, recruiters, designs and the page's files."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from importlib.resources import files

import pytest
import yaml

from refork.errors import BadInput
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.gambles.experiment import GambleExperiment
from refork_methods.theory.people import (
    Completion,
    Study,
    default_texts,
    document,
    read_experiment,
    read_texts,
)
from refork_methods.theory.people.codes import ALPHABET, new_code, new_key, pseudonym, sealed_session
from refork_methods.theory.people.page_files import ASSETS, asset, export, page
from refork_methods.theory.people.recruiter import BadLink, Recruited, recruited
from refork_methods.theory.people.texts import template

CUES = CueExperiment.of([0.9, 0.6], [[1, 0], [0, 1]], [[0, 1], [1, 1]])
GAMBLES = GambleExperiment.of([([(0, 0.3), (40, 0.7)], [(25, 1.0)])])


@pytest.mark.parametrize("domain", ["cues", "gambles"])
def test_the_template_of_texts_reads_back_as_the_defaults(tmp_path, domain):
    (tmp_path / "t.yaml").write_text(template(domain))
    assert read_texts(tmp_path / "t.yaml", domain) == default_texts(domain)


def test_edited_texts_take_the_place_of_ours_and_fill_in_what_is_known(tmp_path):
    (tmp_path / "t.yaml").write_text("contact: a@b.example\nconsent: {heading: 'Hello <b>'}\nminutes: 3\n")
    texts = read_texts(tmp_path / "t.yaml", "cues")
    told = document(Study.of(CUES, texts=texts, trials=4), "server")["texts"]
    assert told["consent"]["heading"] == "Hello <b>"
    assert "4 pairs" in told["consent"]["about"][0]
    assert "3 minutes" in told["consent"]["about"][0]
    assert any("a@b.example" in line for line in told["consent"]["rights"])
    assert "{number}" in told["task"]["progress"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("consent: {headline: x}", "consent.headline"),
        ("title: 3", "title"),
        ("title: 'of {nobody}'", "nobody"),
        ("minutes: 0", "minutes"),
        ("lang: '\"><script>'", "lang"),
        ("- a", "mapping"),
        ("a: [", "cannot be read"),
    ],
)
def test_texts_that_are_none_are_refused_by_name(tmp_path, text, said):
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(BadInput, match=said):
        read_texts(tmp_path / "t.yaml", "cues")


def test_designs_are_read_from_json_and_yaml(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(CUES.to_json()))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(GAMBLES.to_json()))
    assert read_experiment(tmp_path / "a.json") == CUES
    assert read_experiment(tmp_path / "b.yaml") == GAMBLES
    for text, said in (
        ("domain: other", "cues or gambles"),
        ("[]", "no mapping"),
        ("a: [", "cannot be read"),
    ):
        (tmp_path / "c.yaml").write_text(text)
        with pytest.raises(BadInput, match=said):
            read_experiment(tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ({}, None),
        ({"STUDY_ID": "s"}, None),
        ({"PROLIFIC_PID": "p", "STUDY_ID": "s", "SESSION_ID": "v"}, Recruited("prolific", "p", "s", "v")),
        ({"participantId": "p", "projectId": "s", "assignmentId": "v"}, Recruited("connect", "p", "s", "v")),
        ({"workerId": "p", "hitId": "s", "assignmentId": "v"}, Recruited("mturk", "p", "s", "v")),
        ({"survey_code": "12"}, Recruited("sona", "12")),
        ({"participant": "p", "utm": "x"}, Recruited("link", "p")),
    ],
)
def test_recruiters_links(params, wanted):
    assert recruited(params) == wanted


@pytest.mark.parametrize(
    "value", ["{{%PROLIFIC_PID%}}", "a b", "x" * 200, "ASSIGNMENT_ID_NOT_AVAILABLE", "<b>"]
)
def test_links_that_name_nobody_are_refused(value):
    with pytest.raises(BadLink):
        recruited({"PROLIFIC_PID": value})


def test_pseudonyms_are_the_same_for_a_person_and_differ_by_key_and_recruiter():
    one, other = new_key(), new_key()
    who = Recruited("prolific", "p", "s", "v")
    assert pseudonym(one, who) == pseudonym(one, Recruited("prolific", "p"))
    assert pseudonym(one, who) != pseudonym(other, who)
    assert pseudonym(one, who) != pseudonym(one, Recruited("mturk", "p"))
    assert sealed_session(one, who) not in (None, pseudonym(one, who))
    assert sealed_session(one, Recruited("sona", "p")) is None


def test_codes_and_ways_back():
    assert set(new_code()) <= set(ALPHABET)
    own, fixed = Completion(), Completion("C1")
    assert own.way_back("X", "prolific") is None
    assert fixed.way_back("C1", "prolific") == "https://app.prolific.com/submissions/complete?cc=C1"
    assert fixed.way_back("C1", "sona") is None
    assert Completion("C1", "https://x.example/?c={code}").way_back("C1", None) == "https://x.example/?c=C1"
    for address in ("http://x.example/", "javascript:alert(1)", "//x", "https://", "http://[x"):
        with pytest.raises(BadInput):
            Completion(address=address)
    with pytest.raises(BadInput):
        Completion("a b")


@pytest.mark.parametrize(
    "settings", [{"trials": 0}, {"trials": 9999}, {"seed": -1}, {"name": " "}, {"post": "x"}]
)
def test_settings_out_of_range(settings):
    with pytest.raises(BadInput):
        Study.of(CUES, **settings)


def test_the_digest_is_of_what_people_see_in_which_order():
    assert Study.of(CUES).digest == Study.of(CUES, name="other", completion=Completion("C")).digest
    assert len({Study.of(CUES, seed=n).digest for n in range(3)} | {Study.of(CUES, trials=2).digest}) == 4
    assert Study.of(CUES).total == 96


def test_the_servers_page_does_not_hold_the_code():
    study = Study.of(CUES, completion=Completion("SECRET1"))
    assert "SECRET1" not in page(study, "server")
    assert "SECRET1" in page(study, "file")


def test_texts_cannot_break_out_of_the_page(tmp_path):
    (tmp_path / "t.yaml").write_text("title: '</script><script>alert(1)</script>'\n")
    study = Study.of(CUES, texts=read_texts(tmp_path / "t.yaml", "cues"))
    assert "<script>alert" not in page(study, "server")


def test_an_export_is_whole_small_and_loads_nothing_from_elsewhere(tmp_path):
    study = Study.of(CUES)
    told = export(study, tmp_path / "out")
    assert sum(told["files"].values()) < 1_000_000
    html = (tmp_path / "out" / "index.html").read_text()
    linked = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert {one for one in linked if one != "data:,"} <= set(told["files"])
    assert "assets/vendor/LICENSES.txt" in told["files"]
    assert export(study, tmp_path / "out") == told  # again, in place
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(BadInput, match="no empty folder"):
        export(study, tmp_path / "mine")


def test_what_is_vendored_is_what_its_list_says():
    folder = files("refork_methods.theory.people").joinpath("page", "vendor")
    listed = tomllib.loads(folder.joinpath("VENDORED.toml").read_text("utf-8"))["file"]
    there = {one.name for one in folder.iterdir() if not one.name.startswith(".")}
    assert there == {"VENDORED.toml", "LICENSES.txt"} | {one["name"] for one in listed}
    for one in listed:
        data = folder.joinpath(one["name"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == one["sha256"]
        assert b"http://" not in data
        assert f"== {one['project']} ==" in folder.joinpath(one["notices"]).read_text("utf-8")
    assert all(asset(name) for name in ASSETS)
    with pytest.raises(BadInput):
        asset("../conduct.py")
