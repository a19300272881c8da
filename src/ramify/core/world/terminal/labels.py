"""The folder of a task with a name for every line, and notes that point to lines by these names.

A small model copies well what follows a token that it has seen once. So each file of the beginning has a
letter, each of its lines that letter and a small one (``Ba`` is the first line of file ``B``), and a note
names lines where they come from, also in files that commands made of them. A colon parts name and line, so
that the line's first word is the same token here and in an answer.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import TypeAlias

from ramify.core.sandbox.inside.jail import HOME
from ramify.core.sandbox.shell import ShellState
from ramify.core.world.terminal.actions import LONGEST_NOTE, PIECE, listed, place

#: Files of the beginning that the lines of a file may come from.
Origins: TypeAlias = Mapping[str, tuple[str, ...]]
#: A line of a file by its name, or by a dash.
Named: TypeAlias = tuple[str, str]

#: What tools put before a line that they print: its number, or how often it came.
_PREFIX = re.compile(r"^(?:\d+:|\s+\d+ )")
_NOWHERE = "-"
#: Programs whose words are all paths, and ways to ask for a whole tree of folders.
_OF_PATHS = {"cat", "cd", "cp", "ls", "mkdir", "mv", "rm", "rmdir", "touch"}
_SILENT = {"cd", "chmod", "cp", "echo", "mkdir", "mv", "rm", "rmdir", "sed", "stat", "test", "touch"}
_LISTING = {"find", "ls", "rmdir"}
_DEEP = re.compile(r"^ls -R|^find ")
#: Where another program of a line begins.
_NEXT = re.compile(r"[|;&\n]+")
_PLAIN = re.compile(r"[A-Za-z0-9_ ]+")


def letters(files: Mapping[str, str]) -> dict[str, str]:
    """The letter of each file, in the order of their paths."""
    return dict(zip(sorted(files), ascii_uppercase, strict=False))


def named_lines(path: str, files: Mapping[str, str]) -> list[Named]:
    """The lines of a file of the beginning, with their names."""
    letter = letters(files)[path]
    return [
        (letter + small, line) for small, line in zip(ascii_lowercase, files[path].splitlines(), strict=False)
    ]


def labelled(state: ShellState) -> str:
    """What each folder holds, then every file with its letter, and its lines with their names."""
    files = state.files()
    parts = [_listing(state, path, path or ".") for path in ("", *sorted(state.folders()))]
    for path in files:
        parts.append(f"file {path} {letters(files)[path]}")
        parts += [f"{name}:{line}" for name, line in named_lines(path, files)]
    return "\n".join(parts)


def _listing(state: ShellState, path: str, shown: str) -> str:
    """A folder and the names in it, in one line."""
    return " ".join(["folder", shown, *(listed(state, path) or ["nothing"])])


def traced(command: str, before: ShellState, after: ShellState, origins: Origins) -> Origins:
    """From which files of the beginning the lines of each file may come, once a command ran.

    A file that a command wrote may hold lines of every file that it names.
    """
    old, new = before.files(), after.files()
    inner = [_inner(before, word) for word in _paths(command)]
    found = {path: origins[path] for path in new if path in origins and old.get(path) == new[path]}
    for path in new:
        if path not in found and old.get(path) != new[path]:
            kept = origins.get(path, ()) if path in old and re.search(r">>|\bsed\b", command) else ()
            named = [source for one in inner if one in old and one != path for source in origins.get(one, ())]
            found[path] = tuple(dict.fromkeys([*kept, *named]))
    return found


def lines_of(path: str, text: str, origins: Origins, begin: Mapping[str, str]) -> list[Named]:
    """The lines of a file, each by the name of a line of the beginning that it may be."""
    pool = [named for source in origins.get(path, ()) for named in named_lines(source, begin)]
    found, used = [], set()
    for line in text.splitlines():
        same = [name for name, other in pool if other == line]
        same = same or [name for name, other in pool if other.split(" ")[0] == line]
        name = next((name for name in same if name not in used), same[0] if same else _NOWHERE)
        used.add(name)
        found.append((name, line))
    return found


def labelled_note(
    state: ShellState, command: str, output: str, origins: Origins, begin: Mapping[str, str]
) -> str:
    """What decides the answer: what each path that a command names is, and which known lines are printed.

    Of files and folders as much is told as such a command can print.
    """
    files, folders = state.files(), state.folders()
    parts, known = [f"in {place(state)}"], []
    modes = {entry.path: entry.mode for entry in state.entries}
    head, word_sought = command.partition(" ")[0], _sought(command)
    for word in _paths(command):
        path = _inner(state, word)
        if path in files:
            sources = " ".join(letters(begin)[one] for one in origins.get(path, ()))
            parts.append(f"file {word} {sources}".rstrip())
            parts += [f"mode {modes[path]:o}"] * (head == "stat")
            if head not in _SILENT and ">" not in command:
                lines = lines_of(path, files[path], origins, begin)
                parts += _told(lines, word_sought) or ["empty"]
                known += lines
        elif not path or path in folders:
            below = sorted(one for one in folders if not path or one.startswith(f"{path}/"))
            for one in [path, *(below if _DEEP.match(command) else ())]:
                shown = word if one == path else one
                parts.append(_listing(state, one, shown) if head in _LISTING else f"folder {shown}")
            if word_sought is not None:
                parts += _hits(state, path, word_sought, origins, begin)
        elif head in _OF_PATHS or (("/" in word or "." in word) and word[:2] != "s/"):
            parts.append(f"no {word}")
    return "\n".join([*parts, *_out(command, output, known)])[: 2 * LONGEST_NOTE]


def _paths(command: str) -> list[str]:
    """Words that may be paths: not the programs, nor their options; what is printed twice is there twice."""
    found = [PIECE.findall(part)[1:] for part in _NEXT.split(command)]
    words = [word for part in found for word in part if not (word.startswith("-") or word.isdigit())]
    head = command.partition(" ")[0]
    return (words if head == "cat" else list(dict.fromkeys(words))) or ([] if head == "pwd" else ["."])


def _sought(command: str) -> str | None:
    """The word that grep looks for, where it is a plain one."""
    words = [word.strip("'\"") for word in command.split() if not word.startswith("-")]
    plain = len(words) > 1 and words[0] == "grep" and _PLAIN.fullmatch(words[1])
    return words[1] if plain else None


def _told(lines: Sequence[Named], sought: str | None) -> list[str]:
    """The lines of a file; beside each a word that is sought, and how many lines had it so far."""
    if sought is None:
        return [f"{name}:{line}" for name, line in lines]
    found, parts = 0, []
    for name, line in lines:
        found += sought in line
        parts.append(f"{name}:{line};{sought}" + (f" yes {found}" if sought in line else " no"))
    return parts


def _hits(
    state: ShellState, folder: str, sought: str, origins: Origins, begin: Mapping[str, str]
) -> list[str]:
    """The first line with a word in each file below a folder, and that file."""
    parts, start = [], f"{folder}/" if folder else ""
    for path, text in sorted(state.files().items()):
        lines = lines_of(path, text, origins, begin) if path.startswith(start) else []
        for name, line in [named for named in lines if sought in named[1]][:1]:
            sources = " ".join(letters(begin)[one] for one in origins.get(path, ()))
            parts += [f"{sought} {name}:{line}", f"file {path} {sources}".rstrip()]
    return parts or [f"{sought} none"]


def _out(command: str, output: str, known: Sequence[Named]) -> list[str]:
    """The known lines that an output consists of; nothing where it has another, or cat prints them all.

    What is sorted is told by its first word, and where equal lines become one, by the names of them all.
    """
    shown = _printed(output, known, last=command.startswith("tail"))
    words = PIECE.findall(command)
    if not shown or (words[:1] == ["cat"] and shown == list(known)):
        return []
    if "sort" not in words:
        return ["out", *(f"{name}:{line}" for name, line in shown)]
    parts = ["out"]
    for name, line in shown:
        same = [other for other, text in known if text == line] if {"-u", "uniq"} & set(words) else [name]
        parts.append(f"{line.split(' ')[0]} {' '.join(same)}:{line}")
    return parts


def _inner(state: ShellState, word: str) -> str:
    path = posixpath.normpath(posixpath.join(state.cwd, word))
    return "" if path == HOME else path.removeprefix(HOME + "/")


def _printed(output: str, known: Sequence[Named], last: bool) -> list[Named]:
    """The known lines that an output consists of; none where it has another. ``last``: rather later ones."""
    found: list[Named] = []
    left = list(reversed(known)) if last else list(known)
    for shown in reversed(output.rstrip("\n").splitlines()) if last else output.rstrip("\n").splitlines():
        line = next(_matches(shown, left), None) or next(_matches(shown, known), None)
        if line is None:
            return []
        if line in left:
            left.remove(line)
        found.append(line)
    return found[::-1] if last else found


def _matches(shown: str, known: Sequence[Named]) -> Iterator[Named]:
    bare = _PREFIX.sub("", shown)
    yield from (named for named in known if named[1] in (shown, bare))
    yield from (named for named in known if named[1].split(" ")[0] == shown)
