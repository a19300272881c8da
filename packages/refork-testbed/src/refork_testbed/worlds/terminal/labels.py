"""The folder of a task with a name for every line, and notes that point to lines by these names.

A small model copies well what follows a token that it has seen once. So each file of the beginning has a
letter, each of its lines that letter and a small one (``Ba`` is the first line of file ``B``), and a note
names lines where they come from, also in files that commands made of them: it repeats these commands. A colon
parts name and line, so that the line's first word is the same token here and in an answer. What a program
finds by going over many lines (how many, which match, which comes first) is told line by line.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase, ascii_uppercase
from typing import TypeAlias, final

from refork.sandbox.inside.jail import HOME
from refork.sandbox.shell import ShellState
from refork.types import Json
from refork_testbed.worlds.terminal.actions import LONGEST_NOTE, PIECE, folder_name, listed

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
#: Programs that tell of lines how many there are, and not which.
_COUNTING = re.compile(r"\bwc\b|^grep (?:\S+ )*-[a-z]*c")
_ONLY_LINES = re.compile(r"\bwc -l\b")


@final
@dataclass(frozen=True, slots=True)
class Trace:
    """Where files come from.

    ``origins``: path -> files of the beginning that its lines may come from; ``made_by``: path -> commands
    that it owes its content to, the last one first; none where it is as it was.
    """

    origins: Mapping[str, tuple[str, ...]]
    made_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Mapping[str, str]) -> Trace:
        """The beginning."""
        return cls({path: (path,) for path in files})

    def to_json(self) -> Json:
        """Plain JSON."""
        return {"origins": _lists(self.origins), "makers": _lists(self.made_by)}

    @classmethod
    def from_json(cls, data: Mapping[str, Mapping[str, Sequence[str]]]) -> Trace:
        """Inverse of :meth:`to_json`."""
        return cls(*({path: tuple(of) for path, of in data[key].items()} for key in ("origins", "makers")))


def _lists(of: Mapping[str, tuple[str, ...]]) -> Json:
    return {path: list(items) for path, items in of.items()}


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
    for path, text in files.items():
        letter = letters(files)[path]
        parts.append(f"file {letter} {path} {letter} {len(text.splitlines())}")
        parts += [f"{name}:{line}" for name, line in named_lines(path, files)]
    return "\n".join(parts)


def _listing(state: ShellState, path: str, shown: str) -> str:
    """A folder and the names in it, in one line."""
    return " ".join(["folder", shown, *(listed(state, path) or ["nothing"])])


def traced(command: str, before: ShellState, after: ShellState, trace: Trace) -> Trace:
    """Where files come from, once a command ran.

    A file that a command wrote may hold lines of every file that it names.
    """
    old, new = before.files(), after.files()
    inner = [path for path in (_inner(before, word) for word in _paths(command)) if path in old]
    same = {path for path in new if old.get(path) == new[path]}
    origins = {path: trace.origins[path] for path in same if path in trace.origins}
    makers = {path: trace.made_by[path] for path in same if path in trace.made_by}
    for path in (path for path in new if path not in same):
        kept = [path] if path in old and re.search(r">>|\bsed\b", command) else []
        sources = [*kept, *(one for one in inner if one != path)]
        origins[path] = tuple(dict.fromkeys(top for one in sources for top in trace.origins.get(one, ())))
        former = [maker for one in sources for maker in trace.made_by.get(one, ())]
        makers[path] = tuple(dict.fromkeys([command, *former]))
    return Trace(origins, makers)


def lines_of(path: str, text: str, trace: Trace, begin: Mapping[str, str]) -> list[Named]:
    """The lines of a file, each by the name of a line of the beginning that it may be.

    A line that is like none is taken for the one in its place where there are as many, else for one that
    begins with the same word.
    """
    pool = [named for source in trace.origins.get(path, ()) for named in named_lines(source, begin)]
    found: list[Named] = []
    used: set[str] = set()
    lines = text.splitlines()
    for number, line in enumerate(lines):
        same = [name for name, other in pool if other == line]
        same = same or ([pool[number][0]] if len(pool) == len(lines) else [])
        same = same or [name for name, other in pool if other.split(" ")[0] == line]
        # Two files may hold the same line: each is named once before any is named again.
        name = next((name for name in same if name not in used), same[0] if same else _NOWHERE)
        used.add(name)
        found.append((name, line))
    return found


def labelled_note(
    state: ShellState, command: str, output: str, trace: Trace, begin: Mapping[str, str]
) -> str:
    """What decides the answer: what each path that a command names is, and which known lines are printed.

    Of files and folders as much is told as such a command can print.
    """
    files, folders = state.files(), state.folders()
    parts, known = [f"in {folder_name(state)}"], []
    modes = {entry.path: entry.mode for entry in state.entries}
    head, word_sought, paths = command.partition(" ")[0], _sought(command), _paths(command)
    silent = head in _SILENT or ">" in command or output.endswith(": not found\n")
    # Lines of several files are told once, as they are printed.
    several = head == "cat" and "|" not in command and len(paths) > 1
    several = several and {_inner(state, word) for word in paths} <= {*files}
    for word in paths:
        path = _inner(state, word)
        if path in files and silent:
            parts += [f"file {word}", *([f"mode {modes[path]:o}"] if head == "stat" else [])]
        elif path in files:
            lines = lines_of(path, files[path], trace, begin)
            parts += _source(path, trace, begin)
            parts.append(f"{_file(word, path, trace, begin)} {len(lines)}")
            if not (several or _ONLY_LINES.search(command)):
                parts += _file_lines(lines, word_sought, _sorted_by(command))
            known += lines
        elif not path or path in folders:
            below = sorted(one for one in folders if not path or one.startswith(f"{path}/"))
            for one in [path, *(below if _DEEP.match(command) else ())]:
                shown = word if one == path else one
                parts.append(_listing(state, one, shown) if head in _LISTING else f"folder {shown}")
            if word_sought is not None:
                parts += _hits(state, word, word_sought, trace, begin)
        elif head in _OF_PATHS or (("/" in word or "." in word) and word[:2] != "s/"):
            parts.append(f"no {word}")
    whole = head == "cat" and len(paths) == 1
    return "\n".join([*parts, *_out(command, output, known, whole=whole)])[: 2 * LONGEST_NOTE]


def _file(word: str, path: str, trace: Trace, begin: Mapping[str, str]) -> str:
    """A file by the word for it, and the letters of those that its lines come from."""
    return " ".join(["file", word, *(letters(begin)[one] for one in trace.origins.get(path, ()))])


def _source(path: str, trace: Trace, begin: Mapping[str, str]) -> list[str]:
    """The commands that made a file, and other files of the beginning that its lines come from."""
    others = [one for one in trace.origins.get(path, ()) if one != path]
    told = [f"$ {maker}" for maker in trace.made_by.get(path, ())]
    return [*told, *(f"from {one} {letters(begin)[one]}" for one in others)]


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


def _sorted_by(command: str) -> str | None:
    """Which way the first ``sort`` of a command sorts: ``n``, ``r``, both or neither; None: it has none."""
    asked = re.search(r"\bsort\b((?: +-[a-z]+)*)", command)
    return None if asked is None else "".join(flag for flag in "nr" if flag in asked[1])


def _by_number(line: str) -> tuple[float, str]:
    number = re.match(r"\s*-?\d+", line)
    return (float(number[0]) if number else 0.0, line)


def _file_lines(lines: Sequence[Named], sought: str | None, flags: str | None) -> list[str]:
    """The lines of a file.

    Beside each a word that is sought, and how many lines had it so far; below each, where lines are sorted,
    those so far in their order, each with the names of all that are equal.
    """
    found, parts = 0, []
    for number, (name, line) in enumerate(lines, 1):
        if sought is not None:
            found += sought in line
            parts.append(f"{name}:{line};{sought}" + (f" yes {found}" if sought in line else " no"))
            continue
        parts.append(f"{name}:{line}")
        if flags is not None:
            parts.append(_ranked(lines[:number], flags))
    return parts


def _ranked(lines: Sequence[Named], flags: str) -> str:
    """Lines in the order of ``sort`` with these flags."""
    names: dict[str, list[str]] = {}
    for name, line in lines:
        names.setdefault(line, []).append(name)
    ranked = sorted(names, key=_by_number if "n" in flags else None, reverse="r" in flags)
    told = (f"{line} {' '.join(names[line])}" for line in ranked)
    return " ".join(["by", *([f"-{flags}"] if flags else []), *told])


def _hits(state: ShellState, word: str, sought: str, trace: Trace, begin: Mapping[str, str]) -> list[str]:
    """The first line with a word in each file below a folder, and that file behind its letters as printed."""
    folder = _inner(state, word)
    parts, start = [], f"{folder}/" if folder else ""
    for path, text in sorted(state.files().items()):
        lines = lines_of(path, text, trace, begin) if path.startswith(start) else []
        for name, line in [named for named in lines if sought in named[1]][:1]:
            sources = [letters(begin)[one] for one in trace.origins.get(path, ())]
            printed = posixpath.join(word, path.removeprefix(start))
            parts += [f"{sought} {name}:{line}", " ".join(["file", *sources, printed])]
    return parts or [f"{sought} none"]


def _out(command: str, output: str, known: Sequence[Named], *, whole: bool) -> list[str]:
    """The known lines that an output consists of; nothing where it has another, or is the one ``whole`` file.

    Where equal lines become one, it is told by the names of them all.
    """
    shown = _printed(output, known, last=command.startswith("tail"))
    if not shown or _COUNTING.search(command) or (whole and shown == list(known)):
        return []
    if not {"-u", "uniq"} & set(PIECE.findall(command)):
        return ["out", *(f"{name}:{line}" for name, line in shown)]
    same = [" ".join(other for other, text in known if text == line) for _, line in shown]
    return ["out", *(f"{names}:{line}" for names, (_, line) in zip(same, shown, strict=True))]


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
