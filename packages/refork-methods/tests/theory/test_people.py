"""The page for people: what it holds, what Chromium makes of it, and whose choices count."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import tomllib
from importlib.resources import files

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput
from refork_methods.theory.commands import app
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.gambles.experiment import GambleExperiment
from refork_methods.theory.people import (
    export_page,
    pair_html,
    read_experiment,
    read_participants,
    read_texts,
)
from refork_methods.theory.read import read_csv_trials
from refork_worlds.web import browser

CUES = CueExperiment.of([0.9, 0.8, 0.7], [[1, 0, 0], [0, 1, 1]], [[0, 1, 1], [1, 0, 0]])
GAMBLES = GambleExperiment.of([([(0, 0.3), (40, 0.7)], [(-25, 1.0)])])


def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_a_page_is_whole_and_loads_nothing_from_elsewhere(tmp_path):
    out = tmp_path / "page"
    made = export_page(CUES, out, trials=6, code="C1")
    html = (out / "index.html").read_text()
    linked = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert {one for one in linked if one != "data:,"} <= set(made)
    assert "assets/vendor/LICENSES.txt" in made
    study = json.loads((out / "study.json").read_text())
    assert (study["repeats"], len(study["pairs"])) == (3, 2)
    assert "6 pairs" in study["texts"]["consent"]
    assert study["return_to"] == "https://app.prolific.com/submissions/complete?cc=C1"
    assert export_page(CUES, out, trials=6, code="C1") == made  # again, in place
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(BadInput, match="no empty folder"):
        export_page(CUES, tmp_path / "mine")


def test_pairs_as_people_see_them():
    def said(design):
        return " ".join(re.sub(r"<[^>]*>", " ", pair_html(design, 0, read_texts(None))).split())

    assert said(CUES) == (
        "Experts A B Expert 1 right 90% of the time yes no Expert 2 right 80% of the time no yes "
        "Expert 3 right 70% of the time no yes"
    )
    assert said(GAMBLES) == "A 30% nothing 70% win 40 B 100% lose 25"


def test_texts_take_the_place_of_ours_and_cannot_end_the_script(tmp_path):
    (tmp_path / "t.yaml").write_text("contact: a@b.example\nend: '</script><script>alert(1)</script>'\n")
    export_page(CUES, tmp_path / "page", texts=read_texts(tmp_path / "t.yaml"))
    page = (tmp_path / "page" / "index.html").read_text()
    assert "a@b.example" in page
    assert "<script>alert" not in page
    for text, said in (
        ("headline: x", "headline"),
        ("title: 3", "title"),
        ("- a", "mapping"),
        ("a: [", "read"),
    ):
        (tmp_path / "t.yaml").write_text(text)
        with pytest.raises(BadInput, match=said):
            read_texts(tmp_path / "t.yaml")


@pytest.mark.parametrize(
    "more",
    [
        {"code": "a b"},
        {"post": "http://x.example/"},
        {"return_to": "javascript:alert(1)"},
        {"post": "https://"},
    ],
)
def test_codes_and_addresses_that_are_none(tmp_path, more):
    with pytest.raises(BadInput):
        export_page(CUES, tmp_path / "page", **more)


def test_what_is_vendored_is_what_its_list_says():
    folder = files("refork_methods.theory").joinpath("page", "vendor")
    listed = tomllib.loads(folder.joinpath("VENDORED.toml").read_text("utf-8"))["file"]
    there = {one.name for one in folder.iterdir() if not one.name.startswith(".")}
    assert there == {"VENDORED.toml", "LICENSES.txt"} | {one["name"] for one in listed}
    for one in listed:
        data = folder.joinpath(one["name"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == one["sha256"]
        assert b"http://" not in data


def rows(person, responses, rt=1500, away=0.0, bot=0, recruited=""):
    pair = '"[1, 0, 0]","[0, 1, 1]","[0.9, 0.8, 0.7]"'
    return [f"x,{person},{response},{rt},{away},{bot},{recruited},{pair}" for response in responses]


HEAD = "observation,subject_id,response,rt,away_s,bot,recruited,option_a_ratings,option_b_ratings,validities"
MIXED = [0, 1, 1, 0, 0, 1] * 4


def test_each_rule_leaves_its_breakers_out_and_the_others_reach_the_readers(tmp_path):
    people = {
        "a": rows("a", MIXED, recruited="77"), "b": rows("b", [1] * 24), "c": rows("c", MIXED, rt=1199),
        "d": rows("d", MIXED, away=60.5), "e": rows("e", MIXED, bot=1), "f": rows("f", MIXED, recruited="77"),
        "g": rows("g", MIXED, rt=1200, away=60),
    }  # fmt: skip
    for name, lines in people.items():
        (tmp_path / f"{name}.csv").write_text("\n".join([HEAD, *lines]) + "\n")
    (tmp_path / "sent again.csv").write_text("\n".join([HEAD, *people["g"]]) + "\n")
    kept, out = tmp_path / "kept", tmp_path / "out"
    shown = run("people", tmp_path, "--kept", kept, "--excluded", out)
    assert shown.stdout.splitlines()[0] == "7 took part, 2 count"
    found = read_participants(tmp_path)
    assert found.reasons == {
        "b": "one key in 100% of the trials", "c": "1199 ms a response", "d": "60 s away from the page",
        "e": "a bot's signal", "f": "came a second time",
    }  # fmt: skip
    (table,) = read_csv_trials(kept).observations
    assert table.trials.response.tolist() == MIXED * 2
    assert {row["reason"] for row in csv.DictReader(out.read_text().splitlines())} == set(
        found.reasons.values()
    )
    told = json.loads(run("people", tmp_path, "--json").stdout)
    assert (told["kept"], told["left_out"]) == (2, 5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD, "no trials"),
        (HEAD + "\n" + rows("a", [2])[0], "response"),
        (HEAD + "\n" + rows("a", [1], rt="soon")[0], "'rt'"),
        (HEAD + "\n" + rows("a", [1], away="nan")[0], "'away_s'"),
        ("subject_id\na", "no column"),
    ],
)
def test_files_that_are_no_choices(tmp_path, text, said):
    (tmp_path / "a.csv").write_text(text + "\n")
    with pytest.raises(BadInput, match=said):
        read_participants(tmp_path / "a.csv")


def test_folders_without_people_and_with_one_name_twice(tmp_path):
    with pytest.raises(BadInput, match="no trials"):
        read_participants(tmp_path)
    for name, responses in (("a", [0, 1]), ("b", [1, 1])):
        (tmp_path / f"{name}.csv").write_text("\n".join([HEAD, *rows("same", responses)]) + "\n")
    with pytest.raises(BadInput, match="other choices"):
        read_participants(tmp_path)
    (tmp_path / "b.csv").unlink()
    assert run("people", tmp_path / "a.csv", "--json").exit_code == 1  # the two keys in turn


@pytest.mark.skipif(browser.missing() is not None, reason=browser.missing() or "")
@pytest.mark.parametrize("design", [CUES, GAMBLES], ids=["cues", "gambles"])
def test_a_person_takes_part_in_chromium(tmp_path, design):
    """Consent, instructions, keys and buttons; the saved file is read as the choices that were made."""
    (tmp_path / "pairs.json").write_text(json.dumps(design.to_json()))
    assert read_experiment(tmp_path / "pairs.json") == design
    out = tmp_path / "page"
    run("export", tmp_path / "pairs.json", "--out", out, "--trials", 4, "--completion-code", "ALL1")
    complaints, pressed = [], []

    def visit(chromium):
        page = chromium.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((out / "index.html").as_uri() + "?PROLIFIC_PID=5f2b")
        page.get_by_role("button", name="I agree").click()
        page.get_by_role("button", name="Next").click()
        page.get_by_role("button", name="Next").click()
        for number in range(4):
            page.wait_for_selector(".choice button")
            pressed.append(number % 2)
            if number < 2:
                page.keyboard.press("fj"[number % 2])
            else:
                page.locator(".choice button").nth(number % 2).click()
            page.wait_for_timeout(400)
        assert page.locator(".code").inner_text() == "ALL1"
        assert page.get_by_role("link", name="Return").get_attribute("href").endswith("cc=ALL1")
        with page.expect_download() as saved:
            page.get_by_role("link", name="Save").click()
        saved.value.save_as(tmp_path / "saved.csv")
        page.close()

    browser.in_browser(visit)
    browser.close()
    assert complaints == []
    (seen,) = read_csv_trials(tmp_path / "saved.csv").observations
    assert seen.name == "pairs"
    assert seen.trials.response.tolist() == pressed
    assert set(zip(seen.experiment.a, seen.experiment.b, strict=True)) == set(
        zip(design.a, design.b, strict=True)
    )
    (own,) = read_participants(tmp_path / "saved.csv").rows.values()
    assert own[0]["recruited"] == "5f2b"
    assert own[0]["bot"] == "1"  # a driven browser says so
