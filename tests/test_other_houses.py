"""What others add: installed names, names in files, unknown names, and recorded names that run nothing."""

import io
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from refork.cli.tree import app as tree_commands
from refork.errors import BadChange, BadInput
from refork.forking import Remove, change_from_json, fork, parse_change
from refork.forking.parse import grammar
from refork.formats import import_file, reader_for, readers, writer_for, writers
from refork.growing.plant import plant_prompt
from refork.growing.run import make_selector
from refork.growing.selector import Independent, selector_named
from refork.judge import MatchJudge, load_judge
from refork.policies.scripted import ScriptedPolicy
from refork.registry import names
from refork.registry import resolve as resolve_name
from refork.runs.recipe import GrowRecipe, Selection, digest, resolve
from refork.tree.tree import Tree
from refork_methods.compare.recipe import Arm
from refork_methods.credit.methods import credit_method
from refork_testbed.trials.gate_repairs import RepairBench
from refork_testbed.worlds.repair.critics import Verdict
from refork_testbed.worlds.repair.tasks import task_from_json
from refork_testbed.worlds.repair.world import RepairWorld
from support.installed import forget, install

CODE = '''
from dataclasses import dataclass, replace
from refork.forking.change import Diff, Remove
from refork.growing.selector import ForkChoice
from refork.judge import MatchJudge
from refork.tree.node import NewNode

@dataclass
class Last:
    width: int = 1
    roots: int = 7
    name: str = "last"
    def select(self, candidates, leaves_left, round_):
        return [ForkChoice(len(candidates) - 1, min(self.width, leaves_left), {})]

def ones(trajectories, outcomes, *, scale=1.0):
    return [[scale] * 3 for _ in trajectories]

def short(trajectory):
    return 1.0

@dataclass(frozen=True)
class Repeat:
    """``repeat:N``: say the last N tokens again."""

    argument: str = "1"
    kind = "repeat"
    def touches(self):
        return frozenset({"tail"})
    def apply(self, plan):
        return replace(plan, insert=plan.point.node.tokens[-int(self.argument) :])
    def diff(self, plan):
        return Diff("repeat", "", self.argument)
    def to_json(self):
        return {"kind": self.kind, "argument": self.argument}

def twice(argument):
    """Takes twice as many tokens away."""
    return Remove(2 * int(argument))

class Softly(Remove):
    """A class below one that Refork has."""

    def __init__(self, argument):
        Remove.__init__(self, int(argument))
    def apply(self, plan):
        return plan

def broken(argument):
    return 7

class Lines:
    """Tasks, a line each."""

    name = "lines"
    def sniff(self, head):
        return head.data.startswith(b"LINES")
    def read(self, path):
        for line in path.read_text().splitlines()[1:]:
            yield NewNode(kind="task", key=line, text=line)
    def write(self, records, out):
        return out.write("LINES\\n")

class Late(Lines):
    name, order = "late", 99
    def __init__(self, limit=3, *, policy=None):
        self.limit, self.policy = limit, policy

def even(task, files):
    return len(files) % 2 == 0

ready = MatchJudge("ready")
seven = 7
'''


@pytest.fixture
def house(monkeypatch, tmp_path):
    install(
        monkeypatch, tmp_path, CODE, selectors_last="Last", credits_ones="ones", judges_short="short",
        judges_ready="ready", selectors_seven="seven", selectors_wrong="short",
        changes_repeat="Repeat", changes_twice="twice", changes_broken="broken",
        formats_lines="Lines", formats_late="Late", formats_seven="seven", formats_gone="no_such_thing",
        critics_even="even",
    )  # fmt: skip
    yield tmp_path / "other_house.py"
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize("name", ["last", "other_house:Last", "FILE:Last"])
def test_a_selector(house, name):
    name = name.replace("FILE", str(house))
    assert (selector_named(name, 3).width, selector_named(name, width=4).width) == (1, 4)
    with pytest.raises(BadInput, match="no option 'depth'"):
        selector_named(name, depth=1)
    with pytest.raises(BadInput, match="no option 'name'"):
        selector_named(name, name="x")
    recipe = resolve(
        GrowRecipe, None, [f"selector.kind={name}", "selector.options.width=5"], world="lock", policy="p"
    )
    made = make_selector(recipe.selector)
    # Its own default stands: the recipe's settings are of the selectors that come with Refork.
    assert (made.width, made.roots) == (5, 7)
    with pytest.raises(BadInput, match=r"selector\.roots is a setting of random, surprisal, uucb") as told:
        make_selector(Selection(kind=name, roots=3))
    assert told.value.hint == "--set selector.options.roots=..."


def test_what_is_no_selector(house):
    for name in ("seven", "wrong"):
        with pytest.raises(BadInput, match="makes no selector"):
            selector_named(name)
    with pytest.raises(BadInput, match="no selector 'lats'") as told:
        make_selector(Selection(kind="lats"))
    assert told.value.hint == "did you mean last?"


def test_recipes_without_options_keep_their_digests():
    assert "options" not in Selection().model_dump()
    with_it = GrowRecipe(world="lock", policy="p", selector=Selection(options={"a": 1}))
    without = GrowRecipe(world="lock", policy="p", selector=Selection())
    assert digest(with_it) != digest(without)
    assert json.loads(with_it.model_dump_json())["selector"]["options"] == {"a": 1}


def test_settings_of_a_built_in_selector_are_the_recipes():
    assert make_selector(Selection()) == Independent()
    assert make_selector(Selection(kind="surprisal")).roots == 2
    assert make_selector(Selection(kind="surprisal", inside=3)).inside == 3
    assert make_selector(Selection(kind="random", seed=4, at_once=3)) == selector_named(
        "random", 4, at_once=3
    )
    assert make_selector(Selection(kind="uucb", c=0.25, seed=2, options={"c": 0.75})).c == 0.75


@pytest.mark.parametrize("name", ["ones", "other_house:ones", "FILE:ones"])
def test_a_credit(house, name):
    name = name.replace("FILE", str(house))
    assert np.array_equal(credit_method(name, scale=2.0)([0], [1.0]), [[2.0] * 3])
    with pytest.raises(BadInput, match="no option 'gamma'"):
        credit_method(name, gamma=1)
    assert Arm.parse(f"last+{name}") == Arm("last", name, False)


def test_an_unknown_credit_has_neighbours(house):
    with pytest.raises(BadInput, match="there is no credit 'grppo'") as told:
        credit_method("grppo")
    assert "grpo" in told.value.hint
    with pytest.raises(BadInput, match="names no arm"):
        Arm.parse("last+onse")


def test_judges(house, tmp_path):
    assert load_judge("regex:a|b:c") == MatchJudge("a|b:c")
    assert load_judge("ready") == load_judge("other_house:ready") == MatchJudge("ready")
    # One function is one judge, however it is named.
    producers = {load_judge(name).producer.id for name in ("short", "other_house:short", f"{house}:short")}
    assert len(producers) == 1
    before = load_judge(f"{house}:short").producer.id
    house.write_text(CODE + "# another version\n")
    assert load_judge(f"{house}:short").producer.id != before
    for bad in ("regex", "regex:(", "ready:x", "other_house:seven", "shrt"):
        with pytest.raises(BadInput):
            load_judge(bad)


def never(spec):
    raise AssertionError(spec)


def change(text):
    return parse_change([text], never, never)


def test_an_installed_change_is_made_again_from_its_record(house):
    made = change("repeat:3")
    assert made.to_json() == {"kind": "repeat", "argument": "3"}
    assert change_from_json(made.to_json(), never, never) == made
    assert change("repeat").argument == "1"
    # A name for a change that Refork has is recorded as what it is.
    assert change("twice:2") == Remove(4)
    # A class below such a one may do something else.
    assert change(f"{house}:Softly:4").to_json()["kind"] == f"{house}:Softly"
    both = parse_change(["repeat:3", "set:temperature=0"], never, never)
    assert change_from_json(both.to_json(), never, never).to_json() == both.to_json()
    with pytest.raises(BadChange, match="both change tail"):
        parse_change(["repeat:3", "remove:1"], never, never)


def test_the_grammar_is_of_docstrings(house):
    lines = grammar().splitlines()
    assert "repeat:N             say the last N tokens again" in lines
    assert "twice                Takes twice as many tokens away." in lines
    assert "remove:N             take the last N tokens before the point away" in lines


def test_a_change_of_a_file_can_be_read_and_is_not_made_again(tmp_path):
    file, done = tmp_path / "mine.py", tmp_path / "done"
    file.write_text(CODE + f"with open({str(done)!r}, 'a') as out:\n    out.write('x')\n")
    made = change(f"{file}:Repeat:3")
    assert done.read_text() == "x"
    told = made.to_json()
    assert told == {"kind": f"{file}:Repeat", "argument": "3", "code": told["code"]}
    assert made.diff(None).after == "3"
    assert change(f"{file}:Repeat").to_json()["argument"] == "1"
    file.write_text(file.read_text() + "# another version\n")
    assert change(f"{file}:Repeat:3").to_json()["code"] != told["code"]
    before = done.read_text()
    file.write_text(file.read_text() + "# and another\n")
    for recorded in (told, {"kind": "compose", "changes": [told]}, {"kind": "os:system", "argument": "true"}):
        with pytest.raises(BadChange, match="unknown kind of change") as error:
            change_from_json(recorded, never, never)
        assert "can be read, not made again" in error.value.hint
    assert done.read_text() == before


def test_a_fork_records_the_name(house, tmp_path):
    policy = ScriptedPolicy.from_replies(["one two three"])
    (tmp_path / "mine.py").write_text(CODE)
    with Tree.memory() as tree:
        point = plant_prompt(tree, policy, "Well?")
        for text in ("repeat:2", f"{tmp_path / 'mine.py'}:Repeat:2"):
            fork(point, policy, 2, change=change(text))
            kinds = {one.change["kind"] for one in tree.forks()}
            assert text.removesuffix(":2") in kinds


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("remov:1", "is not a change"),
        ("twice", "twice cannot be made"),
        ("broken:1", "broken makes no change"),
        ("other_house:seven", "makes no change"),
        ("other_house:nothing", "has no 'nothing'"),
        ("./no_such_file.py:Repeat", "cannot be read"),
    ],
)
def test_what_is_no_change(house, text, match):
    with pytest.raises(BadInput, match=match):
        change(text)


@pytest.mark.parametrize(
    "stored", [{"kind": "remove"}, {"kind": "ban", "text": "x"}, {"kind": "insert", "ids": 3}]
)
def test_a_damaged_record_is_the_users_to_mend(stored):
    with pytest.raises(BadChange, match="is not as a change"):
        change_from_json(stored, never, never)


def test_a_format(house, tmp_path):
    file = tmp_path / "tasks.txt"
    file.write_text("LINES\none\ntwo\n")
    assert reader_for(file).name == "lines"  # two fit; the one that declares no place comes first
    names_ = [one.name for one in readers()]
    # After the formats with a mark of their own, before the general ones; what cannot be loaded is left out.
    assert names_.index("tau-bench") + 1 == names_.index("lines") == names_.index("openai-preference") - 1
    assert names_[-1] == "late"
    assert not {"seven", "gone"} & set(names_)
    assert "lines" in [one.name for one in writers()]
    policy = ScriptedPolicy.from_replies(["x"])
    late = reader_for(file, "late", policy)
    assert (late.limit, late.policy) == (3, policy)
    for name in ("lines", "other_house:Lines", f"{house}:Lines"):
        with Tree.memory() as tree:
            assert import_file(tree, file, reader_for(file, name)).nodes == 2
        out = io.StringIO()
        assert writer_for(name).write([], out) == 6


def test_a_format_on_the_command_line(house, tmp_path):
    file = tmp_path / "tasks.txt"
    file.write_text("LINES\none\n")
    words = ["import", str(tmp_path / "t.db"), str(file), "--format", f"{house}:Lines", "--json"]
    shown = CliRunner().invoke(tree_commands, words)
    assert json.loads(shown.stdout)["nodes"] == 1
    out = tmp_path / "out.txt"
    CliRunner().invoke(
        tree_commands, ["export", str(tmp_path / "t.db"), str(out), "--format", f"{house}:Lines"]
    )
    assert out.read_text() == "LINES\n"


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("linse", "there is no format 'linse'"),
        ("seven", "seven is no format"),
        ("gone", "format 'gone' cannot be loaded"),
        ("./none.py:Lines", "cannot be read"),
    ],
)
def test_what_is_no_format(house, tmp_path, name, match):
    with pytest.raises(BadInput, match=match):
        reader_for(tmp_path, name)


def test_a_format_that_is_only_read(house):
    with pytest.raises(BadInput, match="inspect is read and not written"):
        writer_for("inspect")


def test_formats_are_called_as_they_are_registered():
    assert {one.name for one in (*readers(), *writers())} == set(names("formats"))
    assert " ".join(one.name for one in readers()) == (
        "native inspect claude-code codex opencode swe-agent mini-swe-agent tau-bench openai-preference art "
        "skyrl verl trl parquet braintrust langfuse mlflow weave phoenix otlp openai-agents langsmith llm agentworldbench atif verifiers openai-chat "
        "androidworld osworld"
    )


@pytest.mark.parametrize("spec", ["even", "other_house:even", "FILE:even"])
def test_a_critic(house, tmp_path, monkeypatch, spec):
    spec = spec.replace("FILE", str(house))
    world = RepairWorld(origin="generated")
    (task,) = world.tasks("train", 1)
    with Tree.memory() as tree:
        bench = RepairBench(tree, world, ScriptedPolicy.from_replies(["x"]), critics=("syntax", spec))
        assert list(bench.producers) == ["syntax", "even"]
        code = bench.producers["even"].config["code"]
        assert "code" not in bench.producers["syntax"].config
        write, critics, _ = bench.open(task)(0)
        candidate, _ = write(None, ())
        assert critics["even"](candidate).passed is False  # what the policy says is no edit
        monkeypatch.setattr("refork_testbed.trials.gate_repairs.files_of", lambda *given: {"a": "", "b": ""})
        assert critics["even"](candidate).passed is True
        monkeypatch.setattr("refork_testbed.trials.gate_repairs.files_of", lambda *given: {"a": ""})
        assert critics["even"](candidate).passed is False
        if spec.startswith("/"):
            house.write_text(CODE + "# another version\n")
            again = RepairBench(tree, world, None, critics=(spec,)).producers["even"].config["code"]
            assert again != code


def test_a_critic_says_yes_or_no(house):
    (task,) = RepairWorld(origin="generated").tasks("train", 1)
    home = task_from_json(task.data)
    for name in ("syntax", "even"):
        assert isinstance(resolve_name("critics", name)(home, home.files), (bool, Verdict))
    with pytest.raises(BadInput, match="no critic 'evn'") as told:
        RepairBench(None, RepairWorld(), None, critics=("evn",))
    assert told.value.hint == "did you mean even?"
    with pytest.raises(BadInput, match="two critics have one name"):
        RepairBench(None, RepairWorld(), None, critics=("even", f"{house}:even"))
