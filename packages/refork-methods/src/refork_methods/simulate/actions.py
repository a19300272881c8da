"""What an action does to a world, read from its text: it looks, it writes (and where), or nobody can say."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from refork.worlds.environment import DomainName

Effect: TypeAlias = Literal["read", "write", "unknown"]

_LOOKS = frozenset({
    "ls", "cat", "head", "tail", "wc", "grep", "fgrep", "find", "pwd", "echo", "sort", "uniq", "diff",
    "stat", "file", "tree", "cut", "nl", "basename", "dirname", "printf", "tr", "rev", "cmp", "md5sum",
    "sha256sum", "true", "test",
})  # fmt: skip
_LISTS = frozenset({"ls", "find", "tree"})
_GIT_LOOKS = frozenset({"status", "log", "diff", "show", "blame", "ls-files", "grep"})
#: Writing commands of which the names that they can change stand in the command.
_NAMED_WRITES = frozenset({"touch", "rm", "rmdir", "mkdir", "mv", "cp", "ln", "chmod", "tee", "truncate"})
_READ_VERBS = frozenset({
    "get", "list", "search", "find", "read", "show", "count", "sum", "query", "lookup", "describe", "view",
    "check", "fetch", "browse",
})  # fmt: skip
_WORD = re.compile(r"[^\s/'\"|;&<>()\[\]{},:]+")


@dataclass(frozen=True, slots=True)
class Reading:
    """An action as far as it can be judged.

    ``command`` is what is done and ``operands`` to what; ``touched`` are the names that a write can have
    changed (None: anything). ``lists``: the answer names things, one after the other.
    """

    effect: Effect
    command: str = ""
    operands: tuple[str, ...] = ()
    touched: frozenset[str] | None = frozenset()
    lists: bool = False
    arguments: str = ""


UNKNOWN = Reading("unknown", touched=None)


def words(text: str) -> frozenset[str]:
    """The names in a text, paths taken apart."""
    return frozenset(_WORD.findall(text))


def tool_call(action: str) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of a tool call in its canonical JSON; None where the text is none."""
    if not action.lstrip().startswith("{"):
        return None
    try:
        body = json.loads(action)
        arguments = body.get("arguments", {})
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return None
    name = body.get("name")
    return (name, arguments) if isinstance(name, str) and isinstance(arguments, dict) else None


def name_of(action: str) -> str:
    """What an action is called: the tool's name, the verb before a colon, or the first word."""
    call = tool_call(action)
    if call is not None:
        return call[0]
    found = re.match(r"\s*([\w.-]+)", action)
    return found.group(1) if found else ""


def read_action(domain: DomainName | None, action: str) -> Reading:
    """What an action does, by its domain; screens and pages change with every action, so nothing is known."""
    call = tool_call(action)
    if call is not None and domain in (None, "tools"):
        return _tool(*call)
    if domain in ("terminal", "swe"):
        return _shell(action)
    if domain == "search":
        verb = name_of(action).lower()
        return Reading("read", verb, (action.strip(),)) if verb in ("search", "open") else UNKNOWN
    return UNKNOWN


def _tool(name: str, arguments: dict[str, Any]) -> Reading:
    verb = re.split(r"[_.\-]|(?<=[a-z])(?=[A-Z])", name)[0].lower()
    effect: Effect = "read" if verb in _READ_VERBS else "write"
    touched = frozenset[str]() if effect == "read" else None
    return Reading(effect, name, (), touched, arguments=json.dumps(arguments, sort_keys=True))


def _shell(action: str) -> Reading:
    """One command, or several joined, of a shell."""
    line = action.strip()
    if "\n" in line or any(mark in line for mark in ("$", "`", "<<")):
        return UNKNOWN
    target = re.fullmatch(r"(echo|printf|cat)\b([^>|;&]*)>>?\s*([\w./-]+)\s*", line)
    if target:
        return Reading("write", target[1], (target[3],), words(target[3]))
    if re.search(r"[;&>]", line):
        return UNKNOWN
    parts = [_split(part) for part in line.split("|")]
    if any(not part for part in parts):
        return UNKNOWN
    first = parts[0]
    if first[0] in _NAMED_WRITES and len(parts) == 1:
        operands = tuple(word for word in first[1:] if not word.startswith("-"))
        wild = any(mark in line for mark in "*?[")
        return Reading("write", first[0], operands, None if wild else words(" ".join(operands)))
    if not all(_looks(part) for part in parts):
        return UNKNOWN
    operands = tuple(word for word in first[1:] if not word.startswith("-"))
    lists = len(parts) == 1 and first[0] in _LISTS
    return Reading("read", first[0], operands, lists=lists, arguments=line)


def _split(part: str) -> list[str]:
    try:
        return shlex.split(part)
    except ValueError:
        return []


def _looks(part: list[str]) -> bool:
    if part[0] == "git":
        return len(part) > 1 and part[1] in _GIT_LOOKS
    if part[0] == "sed":
        return not any(word.startswith("-i") or word == "--in-place" for word in part[1:])
    return part[0] in _LOOKS
