"""Edits, critics, the world and its planted repairer."""

import json
import subprocess

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.policies.base import Request, Sampling
from refork.policies.open import scripted
from refork.sampling.noise import NoiseKey
from refork.worlds import open_world
from refork_testbed.worlds.repair.critics import hidden_tests, public_tests, ruff, syntax
from refork_testbed.worlds.repair.edits import EditError, as_action, edited
from refork_testbed.worlds.repair.repairer import THOUGHTS, Skill, propose, repairer, without_thought
from refork_testbed.worlds.repair.tasks import known_task, repair_tasks

NAMES = ("harbour", "std-textwrap", "clinic", "std-bisect")
FILES = {"a/b.py": "def f(x):\n    if x:\n        return 1\n    return 2\n", "a/c.py": "X = 1\n"}


@pytest.fixture(scope="module")
def tasks():
    return repair_tasks(16, names=NAMES)


@pytest.mark.parametrize(
    ("action", "line"),
    [
        ("line 3:         return 5", "        return 5"),
        ("line 3: return 5", "        return 5"),
        ("Line 3 :return 5\n", "        return 5"),
        ("I think so.\nline 3: return 5", "        return 5"),
        ("```python\nline 3: return 5\n```", "        return 5"),
        ("line 3:", ""),
    ],
)
def test_a_line_is_replaced(action, line):
    rows = edited(FILES, "a/b.py", action)["a/b.py"].split("\n")
    assert rows == ["def f(x):", "    if x:", line, "    return 2", ""]


DIFF = (
    "--- a/a/b.py\n+++ b/a/b.py\n@@ -{0},3 +{0},4 @@\n     if x:\n-        return 1\n"
    "+        x = 1\n+        return x\n     return 2\n"
)


def test_a_diff_is_applied_at_its_line_or_the_nearest_place():
    wanted = FILES["a/b.py"].replace("return 1", "x = 1\n        return x")
    for start in (2, 3, 40):
        assert edited(FILES, "a/c.py", DIFF.format(start)) == {**FILES, "a/b.py": wanted}
    fenced = f"Here:\n```diff\n{DIFF.format(2)}```\nDone."
    assert edited(FILES, "a/c.py", fenced)["a/b.py"] == wanted
    added = "--- a/a/c.py\n+++ b/a/c.py\n@@ -1,0 +2 @@\n+Y = 2\n"
    assert edited(FILES, "a/b.py", added)["a/c.py"] == "X = 1\nY = 2\n"


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("", "write 'line N"),
        ("nonsense", "write 'line N"),
        ("line 0: x", "no line 0"),
        ("line 9: x", "no line 9"),
        ("line 1: x\nline 2: y", "at a time"),
        ("@@", "names no file"),
        (DIFF.format(2).replace("return 1", "return 7"), "does not fit"),
        (DIFF.format(2).replace("a/b.py", "a/z.py"), "no source file"),
        (DIFF.format(2).replace("a/b.py", "../../etc/passwd"), "no source file"),
        ("--- /dev/null\n+++ b/a/n.py\n@@ -0,0 +1 @@\n+x\n", "no source file"),
        ("--- a/a/c.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-X = 1\n", "no source file"),
        ("--- a/a/b.py\n+++ b/a/b.py\n@@ -1,9 +1,9 @@\n x\n", "cannot be read"),
        ("x" * 70000, "at most"),
    ],
)
def test_what_does_not_fit_is_told(action, why):
    with pytest.raises(EditError, match=why):
        edited(FILES, "a/b.py", action)


@pytest.mark.parametrize(
    "after",
    [
        "def f(x):\n    return 2\n",
        "def f(x):\n    if x:\n        return 3\n    return 2\n",
        "x\n    if x:\n        return 1\nreturn 2\n",
    ],
)
def test_an_edit_between_two_texts_can_be_written(after):
    assert edited(FILES, "a/b.py", as_action("a/b.py", FILES["a/b.py"], after))["a/b.py"] == after


def test_critics_on_gold_broken_and_unparsable(tasks):
    for one in tasks[:4]:
        assert public_tests(one, one.project.files).passed
        assert hidden_tests(one, one.project.files).passed
        broken = public_tests(one, one.files)
        assert not broken.passed
        assert broken.seconds > 0
        assert one.public[0] in broken.note
        assert not hidden_tests(one, one.files).passed
        assert syntax(one.files).passed
        bad = {**one.files, one.path: propose(one, THOUGHTS - 1, Skill(gold=0, syntax=1)).text}
        assert not syntax(bad).passed
        assert not public_tests(one, bad).passed
    with pytest.raises(BadInput, match="no more and no fewer"):
        public_tests(tasks[0], {"x.py": ""})


def test_ruff_tells_what_is_new(tasks):
    pytest.importorskip("ruff")
    one = tasks[0]
    fixed = one.project.files
    worse = {**fixed, one.path: fixed[one.path] + "\n\ndef late():\n    return missing  # noqa\n"}
    unparsable = {**fixed, one.path: fixed[one.path] + "x = (\n"}
    verdicts = [ruff(files, fixed) for files in (fixed, worse, unparsable)]
    assert [verdict.passed for verdict in verdicts] == [True, False, False]
    assert verdicts[1].note == "F821 1"
    assert ruff(fixed, one.files).passed
    with pytest.raises(BadInput, match="out of the project"):
        ruff({"../../x.py": "1"}, {})


def test_a_ruff_that_does_not_end_is_an_error_in_words(tasks, monkeypatch):
    pytest.importorskip("ruff")

    def late(command, **more):
        raise subprocess.TimeoutExpired(command, more["timeout"])

    monkeypatch.setattr("refork_testbed.worlds.repair.critics.subprocess.run", late)
    with pytest.raises(CannotDo, match="more than 60 s"):
        ruff(tasks[0].files, tasks[0].project.files)


def test_some_wrong_repairs_pass_the_public_tests_and_no_gold_fails(tasks):
    right = wrong = slipped = 0
    for one in tasks[:4]:
        for thought in range(3, THOUGHTS, 103):
            proposal = propose(one, thought)
            files = {**one.files, one.path: proposal.text}
            public, hidden = public_tests(one, files).passed, hidden_tests(one, files).passed
            if proposal.kind == "gold":
                assert public
                assert hidden
            right += hidden
            wrong += not hidden
            slipped += public and not hidden
    assert right > 12
    assert wrong > 12
    assert slipped / wrong > 0.05


def test_proposals_are_functions_of_their_thought(tasks):
    one = tasks[0]
    assert [propose(one, n) for n in range(0, 1024, 64)] == [propose(one, n) for n in range(0, 1024, 64)]
    kinds = [propose(one, n, Skill(0.25, 0.25, 0.5)).kind for n in range(THOUGHTS)]
    assert kinds[:512] == ["gold"] * 256 + ["syntax"] * 256
    assert 180 < kinds.count("flawed") < 330
    with pytest.raises(BadInput, match="not been built"):
        known_task("repair/nowhere/0")


def sampled(policy, history, draw):
    rendered = policy.render([], np.zeros(0, dtype=np.int32), history)
    request = Request(rendered.tokens, NoiseKey(7, 1, draw))
    (found,) = policy.sample([request], Sampling(max_tokens=2048))
    assert found.finish == "stop"
    return found.text


def test_the_planted_repairer_mends_at_its_rate_and_submits_when_it_is_done(tasks):
    world = open_world("repair?turns=2")
    task = world.tasks("train", 1)[0]
    user = {"role": "user", "content": task.prompt}
    policy, mended = repairer(Skill(gold=0.5, syntax=0.2)), 0
    for draw in range(12):
        episode = world.start(task, 0)
        said = sampled(policy, [user], draw)
        assert without_thought(said) != said
        seen = episode.step(said)
        assert not seen.info.get("invalid"), said
        mended += seen.info["public"]
    turns = [
        user,
        {"role": "assistant", "content": said},
        {"role": "user", "content": "2 of 2 public tests pass"},
    ]
    assert without_thought(sampled(policy, turns, 0)) == "submit"
    assert said == sampled(policy, [user], 11)
    # Binomial(12, 0.5): below 2 with probability 0.003; flawed repairs that pass come on top.
    assert 2 <= mended <= 11
    assert scripted("repairer@0.7").card.name == "scripted:repairer@0.7"
    with pytest.raises(BadInput, match="no chance"):
        scripted("repairer@x")


def test_an_episode_adds_up_edits_and_is_graded_once():
    world = open_world("repair?origin=generated")
    task = world.tasks("held-out", 3)[1]
    one = known_task(task.id)
    assert one.path in task.prompt
    assert one.issue in task.prompt
    assert "submit" in task.prompt
    episode = world.start(task, 0)
    assert episode.step("dance").text.startswith("nothing happens ; ")
    seen = episode.step(one.gold)
    assert seen.text == "2 of 2 public tests pass"
    assert episode.files == one.project.files
    saved = episode.snapshot()
    done = episode.step("I am done.\nsubmit")
    assert (done.done, done.reward) == (True, 1.0)
    assert world.restore(task, saved).step("submit") == done
    lost = world.start(task, 0)
    assert lost.step("submit").reward == 0.0
    for _ in range(world.max_turns):
        last = world.restore(task, saved).step("line 1: x = (")
    assert not last.done


def test_a_failure_with_several_lines_is_one_failure():
    world = open_world("repair?origin=generated&turns=4")
    task = world.tasks("train", 1)[0]
    seen = world.start(task, 0).step('line 1: raise SystemExit("a\\nb\\nc\\nd")')
    assert seen.text.startswith("1 of 2 public tests pass\n")
    assert len(seen.text.split("\n")) == 5


def test_the_last_turn_is_graded_with_what_there_is():
    world = open_world("repair?turns=1")
    task = world.tasks("train", 1)[0]
    seen = world.start(task, 0).step(known_task(task.id).gold)
    assert (seen.done, seen.reward) == (True, 1.0)
    assert "time is up" in seen.text


def test_splits_share_no_project_and_options_are_checked():
    world = open_world("repair")
    train, held = world.tasks("train", 6), world.tasks("held-out", 6)
    assert not {t.data["project"] for t in train} & {t.data["project"] for t in held}
    assert len({t.data["project"] for t in train}) == 6
    for bad in ("repair:x", "repair?turns=0", "repair?origin=moon", "repair?x=1"):
        with pytest.raises(BadInput):
            open_world(bad)
    state = json.loads(world.start(train[0], 0).snapshot()) | {"changed": {"etc/passwd": "x"}}
    with pytest.raises(BadInput, match="not a snapshot"):
        world.restore(train[0], json.dumps(state).encode())
