"""Lines with names: briefs, where lines come from, and notes that point to them."""

from __future__ import annotations

import pytest

from refork.errors import BadInput, CannotDo
from refork.sandbox.shell import ShellState
from refork.worlds.open import open_world
from refork.worlds.spec import Spec
from refork_testbed.worlds.terminal.labels import Trace, labelled, labelled_note, lines_of, traced
from refork_testbed.worlds.terminal.world import TerminalWorld, open_terminal

FILES = {"box/a.txt": "red fox\nowl\nred fox\n", "b.md": "3\n1\n"}
BEGIN = ShellState.of_files(FILES, ["new"])
TRACE = Trace.of(FILES)


def note(command: str, output: str, state: ShellState = BEGIN, trace: Trace = TRACE) -> list[str]:
    return labelled_note(state, command, output, trace, FILES).split("\n")


def test_every_file_has_a_letter_and_every_line_a_name() -> None:
    assert labelled(BEGIN).split("\n") == [
        "folder . b.md box new", "folder box a.txt", "folder new nothing",
        "file A b.md A 2", "Aa:3", "Ab:1",
        "file B box/a.txt B 3", "Ba:red fox", "Bb:owl", "Bc:red fox",
    ]  # fmt: skip


B = ["file b.md A 2", "Aa:3", "Ab:1"]
BOX = ["file box/a.txt B 3", "Ba:red fox", "Bb:owl", "Bc:red fox"]
RANKED = [
    "file box/a.txt B 3", "Ba:red fox", "by red fox Ba", "Bb:owl", "by owl Bb red fox Ba",
    "Bc:red fox", "by owl Bb red fox Ba Bc",
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "output", "wanted"),
    [
        ("cat b.md", "3\n1\n", B),
        ("cat b.md b.md", "3\n1\n3\n1\n",
         ["file b.md A 2", "file b.md A 2", "out", "Aa:3", "Ab:1", "Aa:3", "Ab:1"]),
        ("cat b.md | head -n 1", "3\n", [*B, "out", "Aa:3"]),
        ("cat b.md | wc -l", "2\n", ["file b.md A 2"]),
        ("sort b.md", "1\n3\n",
         ["file b.md A 2", "Aa:3", "by 3 Aa", "Ab:1", "by 1 Ab 3 Aa", "out", "Ab:1", "Aa:3"]),
        ("sort -rn b.md", "3\n1\n",
         ["file b.md A 2", "Aa:3", "by -nr 3 Aa", "Ab:1", "by -nr 3 Aa 1 Ab", "out", "Aa:3", "Ab:1"]),
        ("sort box/a.txt | uniq -c", "      1 owl\n      2 red fox\n",
         [*RANKED, "out", "Bb:owl", "Ba Bc:red fox"]),
        ("tail -n 1 box/a.txt", "red fox\n", [*BOX, "out", "Bc:red fox"]),
        ("wc -l b.md", "2 b.md\n", ["file b.md A 2"]),
        ("wc -w b.md", "2 b.md\n", B),
        ("grep -n 3 b.md", "1:3\n", ["file b.md A 2", "Aa:3;3 yes 1", "Ab:1;3 no", "out", "Aa:3"]),
        ("grep -c red box/a.txt", "2\n",
         ["file box/a.txt B 3", "Ba:red fox;red yes 1", "Bb:owl;red no", "Bc:red fox;red yes 2"]),
        ("grep -c 3 b.md", "1\n", ["file b.md A 2", "Aa:3;3 yes 1", "Ab:1;3 no"]),
        ("grep -v '^3' b.md", "1\n", [*B, "out", "Ab:1"]),
        ("grep -rl owl . | sort", "./box/a.txt\n", ["folder .", "owl Bb:owl", "file B ./box/a.txt"]),
        ("grep -r cow box", "", ["folder box", "cow none"]),
        ("cut -d ' ' -f 1 b.md", "3\n1\n", [*B, "out", "Aa:3", "Ab:1"]),
        ("cp b.md new/c.md", "", ["file b.md", "no new/c.md"]),
        ("sort b.md > new/c.md", "", ["file b.md", "no new/c.md"]),
        ("sotr b.md", "sh: 1: sotr: not found\n", ["file b.md"]),
        ("stat -c %a b.md", "644\n", ["file b.md", "mode 644"]),
        ("ls box", "a.txt\n", ["folder box a.txt"]),
        ("ls new", "", ["folder new nothing"]),
        ("ls box | wc -l", "1\n", ["folder box a.txt"]),
        ("ls -R", "", ["folder . b.md box new", "folder box a.txt", "folder new nothing"]),
        ("cat gone", "cat: gone: No such file or directory\n", ["no gone"]),
        ("pwd", "/home/agent\n", []),
    ],
)  # fmt: skip
def test_a_note_tells_what_a_command_can_print(command: str, output: str, wanted: list[str]) -> None:
    assert note(command, output) == ["in .", *wanted]


def test_lines_keep_their_names_in_files_that_commands_make() -> None:
    after = ShellState.of_files(FILES | {"new/c.md": "1\n3\n"}, ["new"])
    sort, echo = "sort b.md > new/c.md", "echo cow >> new/c.md"
    trace = traced(sort, BEGIN, after, TRACE)
    assert trace == Trace({**TRACE.origins, "new/c.md": ("b.md",)}, {"new/c.md": (sort,)})
    assert lines_of("new/c.md", "1\n3\n", trace, FILES) == [("Ab", "1"), ("Aa", "3")]
    more = ShellState.of_files(FILES | {"new/c.md": "1\n3\ncow\n"}, ["new"])
    trace = traced(echo, after, more, trace)
    assert note("tail -n 1 new/c.md", "cow\n", more, trace) == [
        "in .", f"$ {echo}", f"$ {sort}", "from b.md A", "file new/c.md A 3",
        "Ab:1", "Aa:3", "-:cow", "out", "-:cow",
    ]  # fmt: skip
    assert Trace.from_json(trace.to_json()) == trace
    moved = ShellState.of_files({"b.md": FILES["b.md"], "new/a.txt": FILES["box/a.txt"]}, ["box"])
    again = traced("mv box/a.txt new", BEGIN, moved, TRACE)
    assert again.origins["new/a.txt"] == ("box/a.txt",)
    assert again.made_by == {"new/a.txt": ("mv box/a.txt new",)}


def test_changed_lines_have_the_name_of_what_stood_in_their_place() -> None:
    command = "sed s/red/owl/ box/a.txt > c.md"
    after = ShellState.of_files(FILES | {"c.md": "owl fox\nowl\nowl fox\n"}, ["new"])
    trace = traced(command, BEGIN, after, TRACE)
    assert note("cat c.md", "owl fox\nowl\nowl fox\n", after, trace) == [
        "in .", f"$ {command}", "from box/a.txt B", "file c.md B 3", "Ba:owl fox", "Bb:owl", "Bc:owl fox",
    ]  # fmt: skip


def test_equal_lines_are_different_lines() -> None:
    found = lines_of("box/a.txt", FILES["box/a.txt"], TRACE, FILES)
    assert [name for name, _ in found] == ["Ba", "Bb", "Bc"]


def test_a_snapshot_knows_where_lines_come_from() -> None:
    world = open_world("terminal?brief=labels")
    assert isinstance(world, TerminalWorld)
    try:
        world.shell()
    except CannotDo as error:
        pytest.skip(str(error))
    (task,) = world.tasks("train", 1, 3)
    path = next(iter(world.start(task, 0).state.files()))
    episode = world.start(task, 0)
    episode.step(f"cp {path} other.txt")
    again = world.restore(task, episode.snapshot())
    here, there = episode.step("cat other.txt"), again.step("cat other.txt")
    assert here == there
    assert here.info["note"].split("\n")[1] == f"$ cp {path} other.txt"
    assert world.brief(task).initial_state == episode.first.text


def test_unknown_briefs_are_refused() -> None:
    with pytest.raises(BadInput, match="there is no brief 'short'"):
        open_terminal(Spec.parse("terminal?brief=short"))
