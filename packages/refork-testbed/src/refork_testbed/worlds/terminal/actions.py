"""What a turn asks for, whether its answer can be known, and what decides it."""

from __future__ import annotations

import posixpath
import re

from refork.sandbox.inside.jail import HOME
from refork.sandbox.shell import Ran, ShellState
from refork.thoughts import without_thoughts

SUBMIT = "submit"
_FENCE = re.compile(r"```[a-z]*\n(.*?)(?:\n```|\Z)", re.DOTALL)
#: Programs that print what the brief and earlier turns do not tell: times, numbers of processes, the machine.
UNKNOWABLE = re.compile(
    r"""(?x) \$\$ | \$! | \$\{?(?:PPID|RANDOM|SECONDS|EPOCH|BASHPID) | /proc\b | /dev/u?random | s?rand\(
    | (?<![\w./-]) (?: date | ps | top | uptime | free | df | du | mktemp | hostname | uname | nproc | shuf
        | time | times | env | printenv | export | set | id | who | whoami | jobs | sleep | timeout | tty
        | arch | lscpu | ulimit | man | python3? | perl | tar | gzip | type | which | command\s+-v | hash
        | umask ) (?![\w./=-])
    | (?<![\w./-]) ls \s+ (?:[^|;&>]*\s)? -[A-Za-z]* [lstucfUiS] [A-Za-z]*
    | (?<![\w./-]) stat \b (?! \s+ -c \s+ ['"]? %[aFnsAN] ['"]? (?:\s|$))
    | sort \s+ (?:[^|;&>]*\s)? (?:-[A-Za-z]*R|--random) | \s-[no]t\s
    | --help | --version | -newer | -[amc]min | -[amc]time
    """
)
#: Programs that list a folder in the order in which it happens to lie on the disk.
_UNORDERED = re.compile(r"(?<![\w./-])(?:find|grep\s+-[A-Za-z]*[rR][A-Za-z]*)\b(?![^;&]*\|\s*(?:sort|wc)\b)")
_ELSEWHERE = re.compile(r"(?<![\w.-])/(?:usr|bin|etc|lib|sbin|dev/(?!null)|tmp)\b")
#: What may be a path in a command.
PIECE = re.compile(r"[A-Za-z0-9_./-]+")
LONGEST_NOTE = 240


def action_in(action: str) -> str:
    """The command of a whole turn: its last fenced block, else all of it; no thoughts, no prompt sign."""
    text = without_thoughts(action)
    blocks = _FENCE.findall(text)
    return str(blocks[-1] if blocks else text).strip().removeprefix("$ ").strip()


def submitted(command: str) -> str | None:
    """The answer of a submission (empty where it has none); None for other commands."""
    head, _, rest = command.partition(" ")
    return rest.strip() if head == SUBMIT and "\n" not in command else None


def knowable(command: str, ran: Ran) -> bool:
    """Whether what a command printed follows from the folder and the command."""
    if ran.ended != "exit" or UNKNOWABLE.search(command) or _ELSEWHERE.search(command):
        return False
    return "\n" not in ran.output.strip() or not _UNORDERED.search(command)


def folder_name(state: ShellState) -> str:
    """The present folder as the user would name it, ``.`` at home."""
    if state.cwd == HOME:
        return "."
    return posixpath.relpath(state.cwd, HOME) if state.cwd.startswith(HOME + "/") else state.cwd


def note(state: ShellState, command: str) -> str:
    """What decides the answer: where it runs, and what lies under each path that it names."""
    files, folders = state.files(), state.folders()
    parts = [f"in {folder_name(state)}"]
    words = [word for word in dict.fromkeys(PIECE.findall(command)) if not word.startswith("-")]
    named = words[1:] or ["."]
    for word in named:
        path = posixpath.normpath(posixpath.join(state.cwd, word))
        inner = "" if path == HOME else path.removeprefix(HOME + "/")
        if inner in files:
            parts.append(f"{word} is {' / '.join(files[inner].splitlines()) or 'empty'}")
        elif not inner or inner in folders:
            parts.append(f"{word} holds {' '.join(listed(state, inner)) or 'nothing'}")
        elif ("/" in word or "." in word) and not word.startswith("s/"):
            parts.append(f"no {word}")
    return " , ".join(parts)[:LONGEST_NOTE]


def listed(state: ShellState, folder: str) -> list[str]:
    """Names in a folder, as ``ls`` sorts them."""
    start = f"{folder}/" if folder else ""
    names = {entry.path[len(start) :] for entry in state.entries if entry.path.startswith(start)}
    return sorted(name for name in names if name and "/" not in name and not name.startswith("."))
