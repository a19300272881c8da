import sys
from types import ModuleType

import pytest

from evolve.toy_search import SLOTS, START, runtime
from refork.errors import BadInput
from refork_methods.evolve.scripted.world import SETTINGS, first_judge
from refork_methods.evolve.scripted.world import open_world as open_scripted
from refork_methods.evolve.worlds import Plan, open_plan, read_plan


def test_a_recipe_is_a_world_with_options_and_settings(tmp_path):
    file = tmp_path / "r.toml"
    settings = "[settings]\nbudget = 600\n[settings.gate]\nrate = 0.01\n"
    file.write_text(f'world = "scripted"\n[options]\nfirst = "strict"\n{settings}')
    plan = read_plan(str(file), ["options.seed=4"])
    assert plan == Plan("scripted", {"first": "strict", "seed": 4}, {"budget": 600, "gate": {"rate": 0.01}})
    ready = open_plan(plan)
    assert (ready.settings.budget, ready.settings.first) == (600, SETTINGS.first)
    assert (ready.settings.gate.rate, ready.settings.gate.rule) == (0.01, SETTINGS.gate.rule)
    assert ready.opened.slots[0].judge == first_judge("strict").id


def test_a_world_s_gate_looks_as_often_as_the_run_has_checkpoints():
    for given, looks in (({}, 5), ({"budget": 4096}, 6), ({"budget": 4096, "gate": {"looks": 8}}, 8)):
        assert open_plan(Plan("scripted", {}, given)).settings.gate.looks == looks


def test_settings_on_top():
    plan = read_plan("scripted", ["budget=70", "gate.rule=paired", "options.traps=false"])
    assert plan == Plan("scripted", {"traps": False}, {"budget": 70, "gate": {"rule": "paired"}})
    with pytest.raises(BadInput, match="no '='"):
        read_plan("scripted", ["budget"])


def test_a_world_of_ones_own_by_import_path(monkeypatch):
    module = ModuleType("my_world")

    class Own:
        workspace, slots, runtime = START, tuple(SLOTS), runtime()[0]

    def open_own(size=3):
        return Own()

    open_own.__module__ = "my_world"
    module.open_own = open_own
    monkeypatch.setitem(sys.modules, "my_world", module)
    ready = open_plan(Plan("my_world:open_own", {"size": 4}))
    assert ready.settings.budget == 1024
    assert ready.text(None, None, "key") == "key"
    with pytest.raises(BadInput, match="no option 'sice'"):
        open_plan(Plan("my_world:open_own", {"sice": 4}))
    with pytest.raises(BadInput, match="has no 'other'"):
        open_plan(Plan("my_world:other"))


def test_what_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no world 'nowhere'"):
        open_plan(Plan("nowhere"))
    with pytest.raises(BadInput, match="no module 'no_such_module'"):
        open_plan(Plan("no_such_module:f"))
    with pytest.raises(BadInput, match="no option 'colour'"):
        open_plan(Plan("scripted", {"colour": 1}))
    with pytest.raises(BadInput, match="no first judge"):
        first_judge("mild")
    with pytest.raises(BadInput):
        open_scripted(first="mild")
    with pytest.raises(BadInput, match="no setting 'budgt'"):
        open_plan(Plan("scripted", {}, {"budgt": 1}))
    with pytest.raises(BadInput, match="no setting 'rle'"):
        open_plan(Plan("scripted", {}, {"gate": {"rle": 1}}))
    with pytest.raises(BadInput, match="no such recipe"):
        read_plan(str(tmp_path / "none.toml"))
    for text, words in (
        ("x = ", "not TOML"),
        ("budget = 3\nworld = 'x'", "'budget'"),
        ("", "'world' is missing"),
    ):
        (tmp_path / "r.toml").write_text(text)
        with pytest.raises(BadInput, match=words):
            read_plan(str(tmp_path / "r.toml"))
