from __future__ import annotations

import json

import pytest

from refork.errors import BadInput, Mismatch
from refork.growing.plant import plant
from refork.policies.base import Sampling
from refork.tree.tree import Tree
from refork_methods.probe.commands import app
from refork_methods.stance.prompts import draw_rollouts, recorded_cases
from refork_methods.stance.run import digests
from refork_testbed.worlds.refusal.world import refusal_world
from support.command import runner

GUARD = ["--guard", r"regex:\brefuse\b", "--open", "<<", "--close", " >>"]
LEAN = ["--annotator", r"regex:\b(for|grant)\b//\b(against|deny)\b", "--words"]


probe = runner(app)


@pytest.fixture
def trees(tmp_path):
    """A tree with rollouts of each planted world."""

    def make(rule, prompts=6, draws=6):
        world = refusal_world(rule)
        policy = world.policy()
        with Tree.open(tmp_path / f"{rule}.db") as store:
            plant(store, policy, world, world.tasks("held-out", prompts))
            draw_rollouts(recorded_cases(store), policy, draws, Sampling(max_tokens=32))
        return ["--tree", tmp_path / f"{rule}.db", "--policy", f"scripted:refuser-{rule.lower()}"]

    return make


def test_variance_in_both_modes_resumes_and_draws_its_picture(trees, tmp_path):
    command = ["variance", *trees("D"), *GUARD, "--cuts", ".2,1", "--prefixes", 3, "--out", tmp_path / "v"]
    shown = probe(*command)
    assert "not decided: closing here reads the thinking so far" in shown
    assert "mixes: how much of the thinking is kept; whether its rest is sampled or removed" in shown
    told = json.loads(probe(*command, "--json"))
    cells = {(row["cut"], row["mode"]): row for row in told["cuts"]}
    assert cells[0.2, "force_close"]["v"]["estimate"] == 0.0
    assert cells[0.2, "free"]["v"]["estimate"] >= 0.8
    assert cells[0.2, "free"]["coin"] == 0.875
    assert "<svg" in (tmp_path / "v" / "variance.svg").read_text()
    assert len((tmp_path / "v" / "rates.jsonl").read_text().splitlines()) == 6
    assert json.loads((tmp_path / "v" / "variance.json").read_text())["cuts"] == told["cuts"]
    with pytest.raises(Mismatch, match="prefixes"):
        probe(*command[:-3], 2, "--out", tmp_path / "v")


def test_prompts_of_a_file_are_rolled_out(tmp_path):
    world = refusal_world("P")
    rows = [{"prompt": t.prompt, "intent": t.data["intent"]} for t in world.tasks("held-out", 6)]
    prompts = tmp_path / "p.jsonl"
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["variance", "--policy", "scripted:refuser-p", "--prompts", prompts, "--rollouts", 4, *GUARD]
    command += ["--cuts", ".5", "--mode", "free", "--prefixes", 2, "--no-think", 4, "--out", tmp_path / "v"]
    told = json.loads(probe(*command, "--json"))
    assert [row["mode"] for row in told["cuts"]] == [None, "free"]
    assert told["reading"][0]["says"] == "one mode only"
    assert (tmp_path / "v" / "tree.db").exists()
    plain = [json.loads(line) for line in (tmp_path / "v" / "rates-no-think.jsonl").read_text().splitlines()]
    assert [r["answers"] for r in plain] == [4] * 6
    assert {r["prompt"] for r in plain} == {row["prompt"] for row in rows}
    prompts.write_text(prompts.read_text() + json.dumps(rows[0] | {"prompt": "another"}) + "\n")
    with pytest.raises(Mismatch, match="files"):
        probe(*command)


def test_cuts_find_turns_that_move_the_outcome(trees, tmp_path):
    command = ["cuts", *trees("D", 4, 2), *GUARD, *LEAN, "--answers", 40]
    shown = probe(*command, "--out", tmp_path / "c", status=1)
    assert "meaningful ones that move as their text says: 1.000" in shown
    told = json.loads(probe(*command, "--out", tmp_path / "c", "--json", status=1))
    assert told["performative"]["estimate"] == 0.0
    assert told["locked_rule"] == "pre"
    assert "<svg" in (tmp_path / "c" / "cuts.svg").read_text()


def test_performative_turns_exit_with_0(trees, tmp_path):
    # At most 5 % of seeds show a false one.
    command = ["cuts", *trees("P", 4, 2), *GUARD, *LEAN, "--answers", 40, "--out", tmp_path / "c"]
    told = json.loads(probe(*command, "--locked", "pre+post", "--json"))
    assert told["performative"]["estimate"] == 1.0
    assert told["agreement"] is None
    assert told["locked_rule"] == "pre+post"


def test_a_frontier_from_folders_and_files(trees, tmp_path):
    options = [*GUARD, "--cuts", "1", "--prefixes", 1, "--mode", "free"]
    probe("variance", *trees("P", 24, 6), *options, "--no-think", 6, "--out", tmp_path / "p")
    probe("variance", *trees("D", 24, 6), *options, "--out", tmp_path / "d")
    command = ["frontier", "--base", tmp_path / "p", "--defence", f"d={tmp_path / 'd'}", "--resamples", 200]
    command += ["--defence", f"no-think={tmp_path / 'p' / 'rates-no-think.jsonl'}", "--out", tmp_path / "f"]
    shown = probe(*command)
    assert "flip to the better side" in shown.replace("\n", " ")
    told = json.loads(probe(*command, "--json"))
    verdicts = {row["name"]: row["verdict"] for row in told["defences"]}
    assert verdicts == {"d": "worse", "no-think": "slide"}
    assert told["defences"][0]["flips"][0]["intent"] == "harmful"
    assert "<svg" in (tmp_path / "f" / "frontier.svg").read_text()


def test_a_frontier_of_other_prompts_has_no_flips_and_reads_any_line_separator(tmp_path):
    for name, mark in (("a", "\u2028x"), ("b", "y")):
        rows = [
            {"prompt": f"{intent} {n}{mark}", "intent": intent, "refused": n % 5, "answers": 8}
            for intent in ("harmful", "benign")
            for n in range(8)
        ]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    files = ["--base", tmp_path / "a.jsonl", "--defence", f"d={tmp_path / 'b.jsonl'}", "--resamples", 200]
    told = json.loads(probe("frontier", *files, "--out", tmp_path / "f", "--json"))
    assert told["defences"][0]["flips"] == []
    assert (tmp_path / "f" / "frontier.json").exists()


def test_fewer_answers_without_thinking_are_the_first_of_them(trees, tmp_path):
    options = [*trees("P", 4, 3), *GUARD, "--cuts", "1", "--prefixes", 1, "--mode", "free"]
    counts = []
    for number, count in enumerate((4, 2, 4)):
        out = tmp_path / str(number)
        probe("variance", *options, "--no-think", count, "--out", out)
        lines = (out / "rates-no-think.jsonl").read_text().splitlines()
        counts.append([json.loads(line)["answers"] for line in lines])
    assert counts == [[4] * 4, [2] * 4, [4] * 4]


@pytest.mark.parametrize("name", ["p.jsonl", "p.txt", "p"])
def test_a_run_of_changed_prompts_is_another_run_whatever_the_file_is_called(tmp_path, name):
    (tmp_path / name).write_text("one")
    before = digests(str(tmp_path / name), "regex:a", None)
    (tmp_path / name).write_text("two")
    assert list(before) == [str(tmp_path / name)]
    assert digests(str(tmp_path / name), "regex:a") != before


def test_guards_from_python_and_models(trees, tmp_path):
    (tmp_path / "g.py").write_text("def refuses(text):\n    return 'refuse' in text\n")
    (tmp_path / "m.toml").write_text(
        'policy = "scripted:greeter"\ntemplate = "{answer}"\nrefuse = "zzz"\ncomply = "."\n'
    )
    base = ["variance", *trees("D", 2, 2), *GUARD[2:], "--cuts", "1", "--mode", "free", "--prefixes", 1]
    guards = ["--guard", f"python:{tmp_path / 'g.py'}:refuses", "--guard", f"model:{tmp_path / 'm.toml'}"]
    with pytest.raises(BadInput, match="2 guards can tie"):
        probe(*base, *guards, "--out", tmp_path / "a")
    told = json.loads(probe(*base, *guards, "--tie", "comply", "--out", tmp_path / "b", "--json"))
    assert told["panel"]["tie"] == "comply"
    assert told["ties"] > 0
    assert told["cuts"][0]["v"]["estimate"] == 0.0
    shown = probe(*base, *guards, "--tie", "comply", "--out", tmp_path / "b")
    assert "even splits, resolved by the tie rule" in shown


def test_refusals(trees, tmp_path):
    base = ["variance", *trees("D", 1, 1)]
    out = ["--out", tmp_path / "x"]
    for guard, told in (
        ("odd", "names no guard"),
        ("regex:(", "not a regular expression"),
        ("python:no_such_module:f", "there is no module"),
        ("python:json:nothing", "has no 'nothing'"),
        (f"python:{tmp_path / 'none.py'}:f", "cannot be read"),
        (f"model:{tmp_path / 'none.toml'}", "no such file"),
    ):
        with pytest.raises(BadInput, match=told):
            probe(*base, "--guard", guard, *GUARD[2:], *out)
    (tmp_path / "m.toml").write_text("templates = 1\n")
    with pytest.raises(BadInput, match="unknown key 'templates'"):
        probe(*base, "--guard", f"model:{tmp_path / 'm.toml'}", *GUARD[2:], *out)
    with pytest.raises(BadInput, match="not a list of numbers"):
        probe(*base, *GUARD, "--cuts", "a", *out)
    with pytest.raises(BadInput, match="modes"):
        probe(*base, *GUARD, "--mode", "half", *out)
    with pytest.raises(BadInput, match="no such file"):
        probe(*base, *GUARD, "--prompts", tmp_path / "none.jsonl", *out)
    with pytest.raises(BadInput, match="two sides"):
        probe("cuts", *base[1:], *GUARD, "--annotator", "regex:a", *out)
    with pytest.raises(BadInput, match="odd number"):
        probe("cuts", *base[1:], *GUARD, *LEAN, "--annotator", "regex:a//b", "--out", tmp_path / "y")
    with pytest.raises(BadInput, match="no rates"):
        probe("frontier", "--base", tmp_path, *out)
    with pytest.raises(BadInput, match="a name of its own"):
        probe("frontier", "--base", tmp_path, "--defence", "base=x", *out)


def test_rollouts_that_never_end_and_prompts_without_any_are_counted(trees, tmp_path):
    command = trees("D", 4, 3)
    world = refusal_world("D")
    policy = world.policy()
    with Tree.open(tmp_path / "D.db") as store:
        # Twenty words do not fit into twelve tokens; a fifth prompt is planted and never rolled out.
        draw_rollouts(recorded_cases(store), policy, 2, Sampling(max_tokens=12), seed=5)
        plant(store, policy, world, world.tasks("held-out", 5))
    variance = ["variance", *command, *GUARD, "--cuts", ".5", "--prefixes", 5, "--mode", "free"]
    shown = probe(*variance, "--out", tmp_path / "v")
    assert "8 chosen rollouts never close their thinking and were not cut" in shown
    assert "1 prompts have no rollout" in shown
    told = json.loads(probe(*variance, "--out", tmp_path / "v", "--json"))
    assert (told["uncut_unclosed"], told["uncut_unopened"], told["unopened"]) == (8, 0, 0)
    assert (told["unclosed"], told["without_rollouts"]) == (8, 1)
    cuts = ["cuts", *command, *GUARD, *LEAN, "--answers", 10, "--traces", 5, "--out", tmp_path / "c"]
    shown = probe(*cuts, status=1)
    assert "also set apart: 0 that never open their thinking, 8 that never close it" in shown
    with pytest.raises(BadInput, match="never opened in any of"):
        probe("variance", *command, "--guard", "regex:no", "--out", tmp_path / "w")
