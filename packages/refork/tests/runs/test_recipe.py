from __future__ import annotations

import json

import pytest

from refork.errors import BadInput, Mismatch
from refork.growing.run import plan_grow, run_grow
from refork.runs.recipe import GrowRecipe, SamplingPart, digest, open_folder, resolve
from refork.sampling.grammar import Grammar

TEXT = """
world = "household:1"
policy = "scripted:walker"
draws = 2
[tasks]
count = 3
[sampling]
temperature = 0.5
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "grow.toml"
    path.write_text(TEXT)
    return path


def read(file, *overrides, environment=None, **given):
    return resolve(GrowRecipe, file, overrides, environment or {}, **given)


def test_a_file_is_read(file):
    recipe = read(file)
    assert (recipe.tasks.count, recipe.sampling.temperature, recipe.draws) == (3, 0.5, 2)


def test_later_sources_win(file):
    environment = {"REFORK_TASKS__COUNT": "4", "REFORK_DRAWS": "5", "REFORK_HOME": "/somewhere"}
    assert read(file, environment=environment).tasks.count == 4
    assert read(file, "tasks.count=6", environment=environment).tasks.count == 6
    assert read(file, "draws=6", environment=environment, draws=7).draws == 7


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tasks.count=0", "greater than or equal to 1"),
        ("tasks.cuont=1", "cuont"),
        ("draws=many", "draws"),
        ("tasks.split=test", "train"),
        ("draws", "no '='"),
        ("draws.x=1", "plain value"),
    ],
)
def test_what_is_wrong_is_named(file, override, message):
    with pytest.raises(BadInput, match=message):
        read(file, override)


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(BadInput, match="no such recipe"):
        read(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("draws = = 2")
    with pytest.raises(BadInput, match="not TOML"):
        read(tmp_path / "bad.toml")


def test_the_digest_follows_every_setting(file):
    assert digest(read(file)) == digest(read(file))
    assert digest(read(file)) != digest(read(file, "sampling.top_k=5"))


def test_a_folder_resumes_only_with_its_own_recipe(tmp_path, file):
    assert open_folder(tmp_path / "run", read(file)) is False
    assert open_folder(tmp_path / "run", read(file)) is True
    (tmp_path / "run/tree.db").write_bytes(b"")
    with pytest.raises(Mismatch, match=r"tasks.count \(was 3, now 9\)"):
        open_folder(tmp_path / "run", read(file, "tasks.count=9"))


def test_a_run_that_was_refused_before_it_made_anything_leaves_its_folder_free(tmp_path, file):
    open_folder(tmp_path / "run", read(file))
    assert open_folder(tmp_path / "run", read(file, "tasks.count=9")) is False
    assert open_folder(tmp_path / "run", read(file, "tasks.count=9")) is True


def test_a_plan_says_what_it_would_do(file):
    plan = plan_grow(read(file))
    assert plan["rollouts"] == 6
    assert plan["tokens at most"] == 6 * plan["turns at most"] // 6 * 64


def test_a_run_writes_tree_recipe_and_summary_and_resumes(tmp_path, file):
    recipe = read(file)
    first = run_grow(recipe, tmp_path / "run")
    again = run_grow(recipe, tmp_path / "run")
    assert first["rollouts"] == again["rollouts"] == 6
    assert first["tokens"] > 0
    assert again["tokens"] == 0
    assert again["resumed"]
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["digest"] == digest(recipe)


def test_a_recipe_may_hold_turns_to_a_form(file):
    read_ = read(file, "sampling.grammar.regex=go [a-z]+")
    assert read_.sampling.sampling().grammar == Grammar.regex("go [a-z]+")
    schema = read(file, 'sampling.grammar={json_schema={type="object"}}').sampling
    assert schema.sampling().grammar == Grammar.json_schema({"type": "object"})
    assert GrowRecipe.model_validate(read_.model_dump(mode="json")) == read_


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("sampling.grammar=5", "dictionary"),
        ("sampling.grammar.regx=a", "no grammar of kind 'regx'"),
        ('sampling.grammar.regex=""', "must be a text"),
        ("sampling.grammar={regex='a', lark='b'}", "one kind"),
        ("sampling.grammar.json_schema=[]", "must be an object"),
    ],
)
def test_a_form_that_is_none_is_named(file, override, message):
    with pytest.raises(BadInput, match=message):
        read(file, override)


def test_recipes_without_a_form_keep_the_digest_they_had(file):
    plain = read(file)
    assert "grammar" not in plain.model_dump(mode="json")["sampling"]
    assert plain.sampling.sampling() == SamplingPart(temperature=0.5).sampling()
    assert digest(plain) == "a366b69abc24d248"
    assert digest(read(file, "sampling.grammar.regex=a")) != digest(plain)
