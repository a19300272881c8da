"""Recipes of commands: at most eight options are shown, all others are keys, and a template prints them."""

from __future__ import annotations

import json
import re
import tomllib
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer

from refork import cli
from refork.cli.recipe import MOST, Keys, toml
from refork.registry import register, unregister
from refork.runs.record import records
from support import command

refork = partial(command.refork, columns=200)


VERBS = dict(command.verbs(typer.main.get_command(cli.app)))
LONG = {path: verb.callback.recipe for path, verb in VERBS.items() if hasattr(verb.callback, "recipe")}


def test_no_command_shows_more_options_than_eight():
    shown = {
        " ".join(path): [p.opts[-1] for p in verb.params if p.param_type_name == "option" and not p.hidden]
        for path, verb in VERBS.items()
    }
    assert MOST == 8
    assert not {verb: options for verb, options in shown.items() if len(set(options) - {"--help"}) > MOST}


@pytest.mark.parametrize("path", LONG, ids=" ".join)
def test_a_template_holds_every_key_its_default_and_a_line_of_help(path):
    recipe, text = LONG[path], refork(*path, "--template").stdout
    keys = re.findall(r"^#(\w+) =", text, re.MULTILINE)
    hidden = set(recipe.options) - recipe.visible_keys()
    assert hidden <= set(keys)
    assert not re.findall(r"(?:^|\n)\n#(\w+) =", text), "a key without a line of help"
    defaults = tomllib.loads(re.sub(r"^#(\[[\w.]+\]$|\w+ = )", r"\1", text, flags=re.MULTILINE))
    for key, value in defaults.items():  # what the template says is what the command takes
        if key in recipe.options and key not in recipe._own():
            stands = recipe.options[key].parameter.default
            assert toml(value) == toml(stands), key


@pytest.fixture
def long():
    """A command of nine options, which prints what it gets."""

    def nine(
        one: Annotated[str, typer.Option("--one", help="The first.")],
        two: Annotated[int, typer.Option("--two", min=1, help="A number.")] = 2,
        three: Annotated[list[str], typer.Option("--three", help="Several.")] = [],  # noqa: B006
        four: Annotated[Path | None, typer.Option("--four-file", help="A file.")] = None,
        five: Annotated[Literal["a", "b"], typer.Option("--five", help="A choice.")] = "a",
        six: Annotated[float, typer.Option("--six", help="A share.")] = 0.5,
        seven: Annotated[str | None, typer.Option("--seven", help="A text.")] = None,
        eight: Annotated[bool, typer.Option("--eight/--no-eight", help="A switch.")] = True,
        settings: Annotated[
            list[str], typer.Option("--set", help="Others."), Keys("refork.runs.recipe:TurnSampling")
        ] = [],  # noqa: B006
        as_json: Annotated[bool, typer.Option("--json")] = False,
    ) -> None:
        """Print."""
        print(json.dumps([one, two, three, four and str(four), five, six, seven, eight, settings, as_json]))

    register("commands", "long", nine)
    yield lambda *typed, **more: refork("method", "long", *typed, **more)
    unregister("commands", "long")


PLAIN = ["x", 2, [], None, "a", 0.5, None, True, [], False]


def values(done, **changes):
    names = ("one", "two", "three", "four", "five", "six", "seven", "eight", "settings", "json")
    return json.loads(done.stdout) == [
        changes.get(name, plain) for name, plain in zip(names, PLAIN, strict=True)
    ]


def test_a_recipe_gives_what_options_give(long, tmp_path):
    file = tmp_path / "r.toml"
    file.write_text(
        'one = "x"\ntwo = 7\nthree = ["p", "q"]\nfour-file = "f"\nfive = "b"\nsix = 1\nseven = "42"\n'
        'eight = false\ntemperature = 0.5\nstop = ["."]\n[grammar]\nkind = "regex"\ntext = "1"\n'
    )
    settings = ["temperature=0.5", 'stop=["."]', "grammar.kind=regex", 'grammar.text="1"']
    told = {"two": 7, "three": ["p", "q"], "four": "f", "five": "b", "six": 1.0, "seven": "42"}
    told |= {"eight": False, "settings": settings}
    assert values(long("--recipe", file), **told)
    later = {**told, "two": 9, "eight": True}
    assert values(long("--recipe", file, "--set", "two=9", "--eight"), **later)
    assert values(long("--set", "two=9", "--recipe", file, "--eight"), **later)  # in any order
    assert values(long("--set", "two=9", "--recipe", file, "--two", "3"), **{**told, "two": 3})
    more = long("--recipe", file, "--set", "temperature=1.0")
    assert json.loads(more.stdout)[8] == [*settings, "temperature=1.0"]  # of two of a key, the later counts


def test_set_reads_a_text_as_the_option_would(long):
    given = ("--one", "x", "--set")
    assert values(long(*given, "seven=42"), seven="42")
    assert values(long(*given, "three=p"), three=["p"])
    assert values(long(*given, 'three=["p", "q"]'), three=["p", "q"])
    assert values(long(*given, "eight=false"), eight=False)
    assert values(long("--set", "one=x"))  # a needed option, too


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("twos = 3", "there is no key 'twos' (r.toml)\n  next: did you mean two"),
        ("temprature = 3", "did you mean temperature"),
        ("zzz = 3", "--template prints all keys"),
        ("two = 2.5", "key 'two': "),
        ('two = "many"', "key 'two': "),
        ("two = 0", "Invalid value for '--two'"),
        ('five = "c"', "key 'five': "),
        ("json = true", "there is no key 'json'"),
        ("two 3", "the recipe is not TOML"),
    ],
)
def test_a_key_that_cannot_be_is_named(long, tmp_path, monkeypatch, text, says):
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text(text + "\n")
    assert says in long("--one", "x", "--recipe", "r.toml", status=2).stderr
    if " = " in text and "TOML" not in says:
        assert (
            says.replace("r.toml", "--set")
            in long("--one", "x", "--set", text.replace(" ", ""), status=2).stderr
        )


def test_a_file_that_is_not_there(long):
    assert "there is no such recipe (no.toml)" in long("--one", "x", "--recipe", "no.toml", status=2).stderr


def test_the_template_of_settings_has_their_tables():
    text = refork("grow", "--template").stdout
    data = tomllib.loads(re.sub(r"^#(\[[\w.]+\]$|\w+ = )", r"\1", text, flags=re.MULTILINE))
    assert data["tasks"] == {"split": "held-out", "count": 16, "seed": 0}
    assert data["selector"]["kind"] == "independent"
    assert data["sampling"]["temperature"] == 1.0
    assert text.count("#tree =") == text.count("#world =") == 1


def test_a_run_records_its_recipe(tmp_path, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text(
        'world = "lock"\npolicy = "scripted:lock"\ndraws = 1\ntree = "elsewhere.db"\n[tasks]\ncount = 1\n'
    )
    refork("grow", "--recipe", "r.toml", "--out", "a", "--set", "seed=3", "--json")
    assert Path("elsewhere.db").exists()
    (record,) = records()
    assert record.recipe == {
        "world": "lock", "policy": "scripted:lock", "draws": 1, "tree": "elsewhere.db",
        "tasks": {"count": 1}, "seed": "3",
    }  # fmt: skip
    kept = json.loads(Path("a/recipe.json").read_text())["recipe"]
    assert (kept["seed"], kept["draws"], kept["tasks"]["count"]) == (3, 1, 1)
    refork("grow", "r.toml", "--out", "b", "--json")  # the file as an argument, as it was
    refork("grow", "r.toml", "--recipe", "r.toml", "--out", "c", status=2)


def test_a_command_that_is_short_is_not_watched():
    assert "this command is not timed" in refork("--profile", "world", "list", status=2).stderr
    assert (
        "this command draws no curves" in refork("--track", "tensorboard", "world", "list", status=2).stderr
    )
