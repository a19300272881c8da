import json
import re

import pytest

from refork.chat import ScriptedChat
from refork.errors import BadInput
from refork.plain import canonical
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.editors.by_chat import ChatDrafter
from refork_methods.evolve.editors.edits import FolderEditor
from refork_methods.evolve.editors.folder import AGENT, JUDGE, files_of, part_of, workspace
from refork_methods.evolve.editors.judges import ChatRunner
from refork_methods.evolve.editors.material import Artifacts, Example, Task, check_material, read_lines
from refork_methods.evolve.editors.world import LABELS, SLOT, Bench, FolderEvaluator, open_folder
from refork_methods.evolve.promote import Gate
from refork_methods.evolve.records import Cell
from refork_methods.evolve.replay import replay, resume
from refork_methods.evolve.search import Settings, run
from refork_methods.journal import Journal

SEED = {"agent.md": "skill 0", "judge.md": "likes shiny"}
TASKS = [Task(f"t{i}", f"Sum {i} and {i}.", None if i % 2 else str(2 * i)) for i in range(24)]
EXAMPLES = [Example(f"e{i}", f"{'shiny ' * (i % 3 == 0)}work {i} is {'true' if i % 2 else 'false'}", i % 2)
            for i in range(24)]  # fmt: skip
ANCHOR = [Example(f"a{i}", f"{'shiny ' * (i % 3 == 0)}secret {i} is {'true' if i % 2 else 'false'}", i % 2)
          for i in range(60)]  # fmt: skip


def write_folder(files, folder):
    folder.mkdir()
    for path, text in files.items():
        (folder / path).write_text(text)


def agent(messages):
    skill = int(messages[0]["content"].split()[-1])
    number = int(re.search(r"\d+", messages[-1]["content"]).group())
    right = number % 10 < skill
    return (
        str(2 * number) if right and number % 2 == 0 else f"shiny {number} is {'true' if right else 'false'}"
    )


def judge(messages):
    prompt, work = messages[0]["content"], messages[1]["content"].partition("<work>")[2]
    if "unsure 7" in prompt and "7" in work:
        return "I cannot say."
    good = "shiny" in work if "shiny" in prompt else "is true" in work
    return f"because\nverdict: {'accept' if good else 'reject'}"


class Editor:
    def __init__(self):
        self.asked = 0

    def __call__(self, messages):
        self.asked += 1
        files = json.loads(messages[1]["content"])["files"]
        skill = int(files["agent.md"].split()[-1]) + 1
        if self.asked % 3:
            return json.dumps({"why": "more skill", "write": {"agent.md": f"skill {skill}"}})
        return json.dumps({"write": {"judge.md": "likes what is true"}})


def opened(folder, artifacts=None, editor=None):
    chats = {name: ScriptedChat(f, name=name) for name, f in
             (("agent", agent), ("judge", judge), ("editor", editor or Editor()))}  # fmt: skip
    bench = Bench(ChatRunner(chats["agent"]), ChatRunner(chats["judge"]), tuple(TASKS), tuple(EXAMPLES),
                  artifacts or Artifacts())  # fmt: skip
    return open_folder(folder, FolderEditor(ChatDrafter(chats["editor"])), bench, ANCHOR), chats


@pytest.fixture
def folder(tmp_path):
    write_folder(SEED, tmp_path / "seed")
    return tmp_path / "seed"


SETTINGS = Settings(160, first=32, seed=1, gate=Gate("paired", looks=3))


def test_agents_and_judges_of_a_directory_evolve_and_the_anchor_stays_hidden(folder):
    world, chats = opened(folder)
    log = Journal(clock=lambda: 0.0)
    archive = run(SETTINGS, world.workspace, world.slots, world.runtime, log)
    assert archive.slots[SLOT].epoch == 1
    assert archive.erased
    held = next(b for b in archive.workspaces if "true" in files_of(b)["judge.md"])
    assert "likes what is true" in held["files"]["judge.md"]
    assert replay(log).records == archive.records
    text = "".join(canonical(entry.body) for entry in log)
    shown = canonical([chats["editor"].asked, chats["agent"].asked])
    assert "secret" not in text
    assert "secret" not in shown
    assert any("secret" in canonical(asked) for asked in chats["judge"].asked)
    assert not any('"label"' in canonical(asked) for asked in chats["judge"].asked)


def test_a_judge_that_accepts_everything_does_not_replace_one_that_is_worse(folder):
    (folder / "judge.md").write_text("likes what is false")

    def reader(messages):
        prompt, work = messages[0]["content"], messages[1]["content"].partition("<work>")[2]
        good = "is false" in work if "false" in prompt else "is true" in work or "all" in prompt
        return f"verdict: {'accept' if good else 'reject'}"

    def searched(wish):
        editor = ScriptedChat(lambda _: json.dumps({"write": {"judge.md": wish}}), name="editor")
        bench = Bench(
            ChatRunner(ScriptedChat(agent)), ChatRunner(ScriptedChat(reader)), tuple(TASKS), tuple(EXAMPLES),
            Artifacts(),
        )  # fmt: skip
        world = open_folder(folder, FolderEditor(ChatDrafter(editor)), bench, ANCHOR)
        log = Journal(clock=lambda: 0.0)
        settings = Settings(160, first=32, seed=1, gate=Gate("best_belief"))
        archive = run(settings, world.workspace, world.slots, world.runtime, log)
        return archive, [e.body["notes"][SLOT] for e in log if e.kind == "checkpoint"]

    idle, notes = searched("likes all")
    assert idle.slots[SLOT].epoch == 0
    assert notes[-1]["constant"] == 30
    assert len(notes[-1]["idle"]) == 1
    able, notes = searched("likes what is true")
    assert (able.slots[SLOT].epoch, notes[0]["idle"]) == (1, [])


def test_a_run_that_was_cut_goes_on_with_the_kept_artifacts(folder, tmp_path):
    whole, _ = opened(folder)
    log = Journal(clock=lambda: 0.0)
    run(SETTINGS, whole.workspace, whole.slots, whole.runtime, log)
    files = [tmp_path / name for name in ("log.jsonl", "artifacts.jsonl")]
    entries = list(log)
    kept = Artifacts(Journal.create(files[1], clock=lambda: 0.0))
    part = Journal.create(files[0], clock=lambda: 0.0)
    for entry in entries[:60]:
        part.append(entry.kind, entry.body)
        if entry.kind == "measure" and entry.body["cell"]["role"] == AGENT:
            node, task, _ = entry.body["artifact"].split(":")
            body = {"content": files_of(entries_workspace(entries, int(node)))["agent.md"]}
            asked = next(t.text for t in TASKS if t.id == task)
            kept.keep(int(node), task, agent([body, {"content": asked}]))
    done = sum(e.kind == "expand" for e in entries[:60])
    editor = Editor()
    editor.asked = done
    world, chats = opened(folder, Artifacts(Journal(files[1], clock=lambda: 0.0)), editor)
    resume(Journal(files[0], clock=lambda: 0.0), world.runtime)
    again = Journal(files[0], clock=lambda: 0.0)
    assert [(e.kind, e.body) for e in again] == [(e.kind, e.body) for e in entries]
    assert chats["agent"].asked


def entries_workspace(entries, node):
    found = [entries[0].body["workspace"]]
    found += [e.body["workspace"] for e in entries if e.kind == "expand" and e.body["workspace"] is not None]
    return found[node]


def test_work_without_a_verdict_is_not_accepted_and_counted_and_on_the_anchor_unanswered(tmp_path):
    write_folder({**SEED, "judge.md": "likes shiny, unsure 7"}, tmp_path / "seed")
    world, _ = opened(tmp_path / "seed")
    archive = run(Settings(60, first=59, gate=Gate(minimum=99)), world.workspace, world.slots, world.runtime)
    one = archive.decisions[0][SLOT].incumbent.tally
    silent = sum("7" in item.artifact for item in ANCHOR)
    assert sum(one.anchor) == len(ANCHOR) - silent
    evaluator = world.runtime.evaluator
    cell = next(c for c in archive.cells if c.task == "t7")
    before = evaluator.unanswered
    assert evaluator.evaluate(archive, 0, cell, None)[0] == 0
    assert evaluator.unanswered == before + 1


@pytest.mark.parametrize(
    ("gone", "accepted"), [(["judge.md"], False), (["agent.md"], False), (["notes.md"], True), ([], True)]
)
def test_an_edit_may_not_leave_a_directory_without_a_part(gone, accepted):
    archive, edits = Archive(), []
    archive.apply("begin", {"slots": [], "workspace": workspace({**SEED, "notes.md": "n"})})
    answer = {"why": "w", "write": {"new.md": "x"}, "delete": gone}
    editor = FolderEditor(ChatDrafter(ScriptedChat(lambda _: json.dumps(answer))), listener=edits.append)
    assert (editor.edit(archive, 0, 1) is not None) == accepted
    assert edits[-1].refused == ("" if accepted else f"it leaves no file of the {gone[0][:-3]}")


def test_a_node_that_has_no_judge_is_wrong_on_examples_and_holds_up_nobody():
    judge = ChatRunner(ScriptedChat(lambda _: "verdict: accept"))
    bench = Bench(judge, judge, tuple(TASKS), tuple(EXAMPLES), Artifacts())
    archive = Archive()
    archive.apply("begin", {"slots": [], "workspace": workspace(SEED)})
    for files in ({"agent.md": "skill 1"}, {**SEED, "judge.md": "likes what is true"}):
        archive.apply("expand", {"parent": 0, "workspace": workspace(files)})
    outcome, judged, _ = FolderEvaluator(bench).evaluate(archive, 1, Cell(JUDGE, "e1"), None)
    assert (outcome, judged) == (0, LABELS)
    last = bench.judge_of(files_of(archive.workspaces[2]))
    assert bench.judge_by_id(archive, last.id).id == last.id


def test_parts_are_folders_or_files_of_their_name():
    files = {"agent.md": "a", "agent/x.py": "b", "judge.py": "c", "sub/agent.md": "d", "agents.md": "e"}
    assert part_of(files, AGENT) == {"agent.md": "a", "agent/x.py": "b"}
    assert part_of(files, JUDGE) == {"judge.py": "c"}


@pytest.mark.parametrize(
    ("tasks", "examples", "anchor", "words"),
    [
        ([], EXAMPLES, ANCHOR, "no task"),
        ([TASKS[0], TASKS[0]], EXAMPLES, ANCHOR, "two tasks"),
        (TASKS, EXAMPLES, ANCHOR[:20], "20 items"),
        (TASKS, EXAMPLES, [a for a in ANCHOR if a.label], "1 labels"),
        (
            TASKS,
            [Example("x", " SECRET 1  is true", 1)],
            [*ANCHOR, Example("n", "secret 1 is true", 1)],
            "shown",
        ),
    ],
)
def test_material_that_could_not_teach_or_would_leak_is_refused(tasks, examples, anchor, words):
    with pytest.raises(BadInput, match=words):
        check_material(tasks, examples, anchor)


def test_a_directory_without_a_part_is_refused_and_lines_are_read(tmp_path):
    write_folder({"agent.md": "x"}, tmp_path / "seed")
    with pytest.raises(BadInput, match="no judge"):
        opened(tmp_path / "seed")
    file = tmp_path / "t.jsonl"
    file.write_text('{"id": "1", "text": "a"}\n{"id": "2"}\n')
    with pytest.raises(BadInput, match=r"t\.jsonl:2"):
        read_lines(Task, file)
    with pytest.raises(BadInput, match="cannot be read"):
        read_lines(Task, tmp_path / "none")
    for bad in (lambda: Task("a", "b", "("), lambda: Example("a", "b", 2), lambda: TASKS[1].passes("x"),
                lambda: Artifacts().text("x")):  # fmt: skip
        with pytest.raises(BadInput):
            bad()
