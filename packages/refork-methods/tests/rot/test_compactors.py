"""Compactors by name, the frameworks' among them, each fired on one scenario."""

from __future__ import annotations

import pytest

from refork.chat import ScriptedChat
from refork.errors import BadInput
from refork.registry import names
from refork_methods.rot.compactors import WordLimit, needs_summariser, open_compactor
from refork_methods.rot.conditions import only_compaction_differs, stage
from refork_testbed.trials.rot_grid import Scene, setup_for
from refork_testbed.worlds.house_rules.summarisers import SUMMARISERS

#: What a rule in the first user turn becomes under each, with a summariser that keeps no rules.
FATES = {
    "truncate": "trimmed",
    "head-tail": "visible",
    "summarise": "omitted",
    "hierarchical": "omitted",
    "langmem": "trimmed",
    "langgraph": "omitted",
    "langchain": "omitted",
    "autogen-buffered": "trimmed",
    "autogen-head-tail": "trimmed",
    "autogen-token": "visible",
    "agent-framework-summarise": "omitted",
    "agent-framework-truncate": "trimmed",
    "agent-framework-sliding": "trimmed",
}
PACKAGES = {"langmem": "langmem", "langgraph": "langgraph", "langchain": "langchain"}
PACKAGES |= {name: "autogen_core" for name in names("compactors") if name.startswith("autogen")}
PACKAGES |= {name: "agent_framework" for name in names("compactors") if name.startswith("agent-")}


def scene():
    from refork_testbed.worlds.house_rules.scenario import scenario

    return Scene(scenario("spend", 5, turns=14))


@pytest.mark.parametrize("name", names("compactors"))
def test_every_compactor_fires_and_only_it_differs_from_the_control(name):
    pytest.importorskip(PACKAGES.get(name, "json"))
    one = scene()
    compactor = open_compactor(name, summariser=SUMMARISERS["drops-rules"](), max_tokens=400, words=60)
    setup = setup_for(one, compactor)
    found = stage("compaction", one, setup)
    assert found.valid
    assert only_compaction_differs(stage("control", one, setup), found)
    assert found.survival(one.rule).fate == FATES[name]
    assert (found.summary_calls > 0) == needs_summariser(name)
    pinned = stage("defense_pin", one, setup)
    assert setup.buffer.check(pinned.context).ok
    assert pinned.survival(one.rule).fate == "visible"


def test_langmem_with_room_shows_the_rule_to_the_summariser():
    pytest.importorskip("langmem")
    one = scene()
    compactor = open_compactor(
        "langmem?before=400", summariser=SUMMARISERS["drops-rules"](), max_tokens=4000, words=60
    )
    assert stage("compaction", one, setup_for(one, compactor)).survival(one.rule).fate == "omitted"


def test_a_word_limit_cuts_as_a_completion_limit_does():
    model = WordLimit(ScriptedChat(["a b c", "a b c d"]), 3)
    assert model.name == "scripted"
    whole, cut = model.reply([]), model.reply([])
    assert (whole.text, whole.finish) == ("a b c", "stop")
    assert (cut.text, cut.finish) == ("a b c", "length")


@pytest.mark.parametrize(
    ("spec", "more", "message"),
    [
        ("zip", {}, "there is no compactor 'zip'"),
        ("truncate:3", {}, "takes options only"),
        ("truncate?head=1", {}, "unknown option"),
        ("head-tail?head=one", {}, "cannot be"),
        ("summarise", {}, "needs a summariser"),
        ("truncate", {"max_tokens": 0}, "at least 1"),
        ("truncate", {"words": 0}, "at least 1"),
    ],
)
def test_what_names_no_compactor_is_refused(spec, more, message):
    with pytest.raises(BadInput, match=message):
        open_compactor(spec, **more)


@pytest.mark.parametrize("budget", [128, 256, 300])
def test_langmem_takes_small_budgets_too(budget):
    """By itself it reserves 256 tokens for the summary, and refuses a budget that this does not fit."""
    pytest.importorskip("langmem")
    one = scene()
    compactor = open_compactor("langmem", summariser=SUMMARISERS["drops-rules"](), max_tokens=budget)
    assert stage("compaction", one, setup_for(one, compactor)).valid


def test_a_compactor_of_a_users_file(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from refork_methods.pin.strategies import Truncate\n"
        "from refork_methods.rot import CompactorKind\n"
        "made = lambda wanted: Truncate(wanted.budget // wanted.number('by', 2))\n"
        "half = CompactorKind(made, {'by': int})\n"
    )
    compactor = open_compactor(f"{tmp_path}/mine.py:half?by=4", max_tokens=400)
    assert compactor.budget == 100
    assert not needs_summariser(f"{tmp_path}/mine.py:half")
