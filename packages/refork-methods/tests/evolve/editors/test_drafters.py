import json

import pytest

from refork.chat import ScriptedChat
from refork.errors import BadInput, ServerError
from refork.sandbox.shell import Shell, ShellLimits
from refork_methods.evolve.archive import fold
from refork_methods.evolve.editors.by_chat import ChatDrafter
from refork_methods.evolve.editors.by_command import CommandDrafter
from refork_methods.evolve.editors.editor_view import editor_view
from refork_methods.evolve.editors.edits import EditResult, FolderEditor
from refork_methods.evolve.editors.folder import workspace

FILES = {"agent.md": "Answer.\n", "test.py": "assert True\n"}


def record(node, task, outcome, slot=None, judge="j1"):
    cell = {"role": "agent", "task": task, "slot": slot}
    return ("measure", {"node": node, "cell": cell, "outcome": outcome, "judge": judge,
                        "artifact": f"{node}{task}"})  # fmt: skip


@pytest.fixture(scope="module")
def archive():
    cells = [{"role": "agent", "task": t, "slot": s} for t, s in (("a", None), ("b", "s"))]
    child = workspace({**FILES, "agent.md": "Answer well.\n"}, "me", "better", "the diff")
    return fold([
        ("begin", {"slots": [{"name": "s", "judge": "j1", "epoch": 0}], "workspace": workspace(FILES)}),
        ("cells", {"cells": cells}),
        record(0, "a", 1), record(0, "b", 0, "s"),
        ("expand", {"parent": 0, "workspace": child}),
        record(1, "b", 1, "s"),
    ])  # fmt: skip


@pytest.fixture(scope="module")
def shell():
    found = Shell(ShellLimits(seconds=60, disk=1 << 20))
    yield found
    found.close()


def test_an_editor_sees_its_own_line_and_its_scores(archive):
    told = editor_view(archive, 1)
    assert told.files["agent.md"] == "Answer well.\n"
    assert [(one["node"], one["diff"]) for one in told.lineage] == [(0, ""), (1, "the diff")]
    assert [*told.lineage[0]["scores"].values()] == [{"passed": 1, "measured": 2}]
    assert [*told.lineage[-1]["scores"].values()] == [{"passed": 1, "measured": 1}]
    assert len(editor_view(archive, 1, generations=1).lineage) == 1


def answer(**fields):
    return json.dumps({"why": "so", **fields})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("no JSON", "no usable answer"),
        (answer(write={"../x": "y"}), "no path"),
        (answer(delete=["none.md"]), "no file"),
        (answer(write={"agent.md": 3}), "no usable answer"),
        (answer(other=1), "no usable answer"),
        (answer(), "nothing was changed"),
        (answer(write={"test.py": "pass"}), "test.py may not be changed"),
        (answer(delete=["test.py"]), "test.py may not be changed"),
        (answer(write={"a": "1", "A": "2"}), "one file"),
    ],
)
def test_answers_that_are_no_valid_edit_come_to_nothing_and_are_recorded(archive, said, words):
    edits = []
    model = ScriptedChat(lambda _: said)
    editor = FolderEditor(ChatDrafter(model), fixed=frozenset({"test.py"}), listener=edits.append)
    assert editor.edit(archive, 0, 7) is None
    assert words in edits[0].refused
    assert (edits[0].step, edits[0].parent, edits[0].by) == (7, 0, "chat:scripted")


def test_a_model_is_told_what_was_wrong_and_its_change_keeps_a_diff(archive):
    good = "```json\n" + answer(write={"agent.md": "Think.\n", "b.md": "x\n"}) + "\n```"
    model = ScriptedChat(["nothing", good])
    child = FolderEditor(ChatDrafter(model)).edit(archive, 1, 3)
    assert child["files"] == {"agent.md": "Think.\n", "b.md": "x\n", "test.py": "assert True\n"}
    assert "-Answer well." in child["diff"]
    assert "+++ b/b.md" in child["diff"]
    assert (child["by"], child["told"]) == ("chat:scripted", "so")
    assert "cannot be used" in model.asked[1][-1]["content"]
    assert "the diff" in model.asked[0][1]["content"]


def test_a_server_that_never_answers_is_an_error(archive):
    class Down:
        name = "down"

        def reply(self, messages, *, tools=(), draw=0):
            raise ServerError("no answer", where="down")

    with pytest.raises(ServerError):
        FolderEditor(ChatDrafter(Down())).edit(archive, 0, 1)
    with pytest.raises(BadInput):
        ChatDrafter(Down(), retries=-1)


def edited(shell, archive, command):
    edits = []
    return FolderEditor(CommandDrafter(shell, command), listener=edits.append).edit(archive, 0, 5), edits[0]


def test_a_command_edits_a_copy_and_is_told_scores_and_step(shell, archive):
    command = (
        'grep -c measured "$REFORK_TOLD" > agent.md; echo $REFORK_STEP >> agent.md; rm test.py; echo done'
    )
    child, edit = edited(shell, archive, command)
    assert child["files"] == {"agent.md": "1\n5\n"}
    assert child["told"] == "done"
    assert edit.diff == child["diff"] != ""


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("exit 4", "status 4"),
        ("yes", "said too much"),
        ("ln -s /etc/passwd agent2.md", "link"),
        ("ln agent.md two.md", "link"),
        ("printf '\\377' > agent.md", "UTF-8"),
        ("mkdir -p a; echo x > a/.b", "no path"),
        ("echo x > ../outside.md", "nothing was changed"),
        ("echo x > /etc/refork || true", "nothing was changed"),
        ("rm agent.md test.py", "0 files"),
        ("head -c 70000 /dev/zero | tr '\\0' x > agent.md", "70000 bytes"),
    ],
)
def test_commands_that_leave_no_valid_directory_come_to_nothing(shell, archive, command, words):
    child, edit = edited(shell, archive, command)
    assert child is None
    assert words in edit.refused


def test_a_command_that_never_ends_is_ended(archive):
    with pytest.raises(BadInput):
        CommandDrafter(None, "  ")
    shell = Shell(ShellLimits(seconds=0.3))
    assert "too long" in CommandDrafter(shell, "sleep 9").draft(editor_view(archive, 0), 1).refused
    shell.close()


def test_a_drafter_without_a_draft_is_refused(archive):
    class Silent:
        name = "silent"

        def draft(self, told, step):
            return EditResult(None)

    edits = []
    assert FolderEditor(Silent(), listener=edits.append).edit(archive, 0, 1) is None
    assert edits[0].refused == "there is no draft"
