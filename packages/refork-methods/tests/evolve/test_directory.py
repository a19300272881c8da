import json

import pytest

from refork.errors import BadInput
from refork.sandbox.inside import seccomp
from refork.tree import Tree
from refork_methods.evolve.audit import audit
from refork_methods.evolve.folder import evolve, go_on
from refork_methods.evolve.worlds import Plan, open_plan

SECRET = "the private work number"


def lines(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.fixture
def options(tmp_path):
    """A program that answers, one that judges, and an editor that makes the first one better."""
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "agent.sh").write_text("echo bad\n")
    (tmp_path / "start" / "judge.sh").write_text("echo 'verdict: accept'\n")
    examples = [
        {"id": f"e{i}", "artifact": "good" if i % 2 else f"bad {i}", "label": i % 2} for i in range(12)
    ]
    anchor = [
        {"id": f"a{i}", "artifact": f"{'good' if i % 2 else 'bad'} {SECRET} {i}", "label": i % 2}
        for i in range(30)
    ]
    strict = "grep -q good .input && echo 'verdict: accept' || echo 'verdict: reject'"
    return {
        "folder": str(tmp_path / "start"),
        "tasks": lines(tmp_path / "tasks.jsonl", [{"id": f"t{i}", "text": "Be good."} for i in range(6)]),
        "examples": lines(tmp_path / "examples.jsonl", examples),
        "anchor": lines(tmp_path / "anchor.jsonl", anchor),
        "challengers": 1,
        "agent": "command:sh agent.sh",
        "judge": "command:sh judge.sh",
        "editor": f'command:echo "echo good $REFORK_STEP" > agent.sh; echo "{strict}" > judge.sh',
    }


SETTINGS = {"budget": 30, "first": 12, "gate": {"looks": 2}}


@pytest.mark.skipif(seccomp.here() is None, reason="needs Linux with seccomp on x86_64 or aarch64")
def test_programs_in_a_directory_evolve_and_a_stopped_run_goes_on(options, tmp_path):
    plan, out = Plan("directory", options, SETTINGS), tmp_path / "run"

    def progress(stage, done, total, **_):
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evolve(plan, out, progress)
    found = go_on(out)
    assert found.archive.slots["verdicts"].epoch == 1  # a judge that accepts all gave way
    assert audit(out).sound
    kept = (out / "artifacts.jsonl").read_text()
    assert "good" in kept
    with Tree.open(out / "tree.db", "r") as tree:
        texts = {node.text for node in tree.walk() if node.kind == "action"}
    assert any(text.strip() == "bad" for text in texts)
    for file in out.iterdir():
        assert SECRET.encode() not in file.read_bytes(), file.name


def test_what_is_missing_is_named_and_leaves_no_folder(options, tmp_path):
    with pytest.raises(BadInput, match="needs folder, tasks"):
        open_plan(Plan("directory"))
    with pytest.raises(BadInput, match="agent 'sh'"):
        open_plan(Plan("directory", options | {"agent": "sh"}))
    with pytest.raises(BadInput, match="no such file"):
        evolve(Plan("directory", options | {"tasks": "nowhere.jsonl"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(BadInput, match="no option 'home'"):
        open_plan(Plan("directory", options | {"home": "x"}))
