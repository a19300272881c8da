"""A directory with an agent and a judge in it as a world: chat models or commands run, breed and judge it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from refork.chat import PolicyChat
from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.sandbox.shell import Shell, ShellLimits
from refork.types import Json
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.editors.by_chat import ChatDrafter
from refork_methods.evolve.editors.by_command import CommandDrafter
from refork_methods.evolve.editors.edits import FolderEditor
from refork_methods.evolve.editors.judges import ChatRunner, ShellRunner
from refork_methods.evolve.editors.material import Artifacts, Example, Task, read_lines
from refork_methods.evolve.editors.world import Bench, open_folder
from refork_methods.evolve.promote import Gate
from refork_methods.evolve.records import Cell, EvaluatorSlot
from refork_methods.evolve.search import Runtime, Settings
from refork_methods.journal import Journal

#: A model's outcomes cost money: a small budget, and the gate that keeps equal judges out.
SETTINGS: Final = Settings(256, first=32, gate=Gate("paired"))
ARTIFACTS: Final = "artifacts.jsonl"
_HOW: Final = "chat:SPEC as chat:openai:URL#MODEL, or command:COMMAND"


@final
@dataclass(frozen=True, slots=True)
class OpenedDirectory:
    """What a search needs of a world, and the text of an artifact."""

    workspace: Json
    slots: tuple[EvaluatorSlot, ...]
    runtime: Runtime
    text: Callable[[Archive, Cell, str], str]


def open_world(
    folder: str,
    tasks: str,
    examples: str,
    anchor: str,
    agent: str,
    judge: str,
    editor: str,
    *,
    fixed: list[str] | None = None,
    challengers: int = 3,
    max_tokens: int = 4096,
    seconds: float = 60.0,
    unconfined: bool = False,
    seed: int = 0,
    home: Path | None = None,
) -> OpenedDirectory:
    """The world of a directory; ``tasks``, ``examples`` and ``anchor`` are files of JSON lines.

    ``agent`` and ``judge`` run the parts of these names, ``editor`` breeds: each ``chat:SPEC`` with a
    policy's name, or ``command:COMMAND`` in a sandbox of ``seconds``. ``fixed``: paths that no edit may
    touch. ``unconfined``: run commands also where no sandbox holds them. Texts that agents make are kept in
    ``home``, so that a run can be resumed.

    Raises: BadInput for specifications, files or directories that cannot be used; CannotDo where a command
        cannot be confined here.
    """
    shell = _Shells(seconds, unconfined=unconfined)
    chats = _Chats(max_tokens, seed)
    kept = Artifacts(None if home is None else _journal(home / ARTIFACTS))
    asked, shown = read_lines(Task, _file(tasks)), read_lines(Example, _file(examples))
    runs = [_runner(spec, what, chats, shell) for spec, what in ((agent, "agent"), (judge, "judge"))]
    bench = Bench(runs[0], runs[1], tuple(asked), tuple(shown), kept)
    kind, rest = _split(editor, "editor")
    drafter = ChatDrafter(chats.open(rest)) if kind == "chat" else CommandDrafter(shell.open(), rest)
    bred = FolderEditor(drafter, fixed=frozenset(fixed or ()))
    found = open_folder(
        _file(folder), bred, bench, read_lines(Example, _file(anchor)), challengers=challengers
    )

    def text(archive: Archive, cell: Cell, key: str) -> str:
        return kept.text(key) if key in kept else key

    return OpenedDirectory(found.workspace, found.slots, found.runtime, text)


@final
class _Shells:
    """One sandbox for all commands, made when the first needs it."""

    def __init__(self, seconds: float, *, unconfined: bool) -> None:
        self._seconds, self._unconfined = seconds, unconfined
        self._shell: Shell | None = None

    def open(self) -> Shell:
        """The sandbox."""
        if self._shell is None:
            self._shell = Shell(ShellLimits(seconds=self._seconds), unconfined=self._unconfined)
        return self._shell


@final
class _Chats:
    """Chat models by policies' names, each opened once."""

    def __init__(self, max_tokens: int, seed: int) -> None:
        self._sampling, self._seed = Sampling(temperature=0.7, max_tokens=max_tokens), seed
        self._open: dict[str, PolicyChat] = {}

    def open(self, spec: str) -> PolicyChat:
        """The model of a policy's name."""
        if spec not in self._open:
            self._open[spec] = PolicyChat(open_policy(spec), self._sampling, self._seed)
        return self._open[spec]


def _runner(spec: str, what: str, chats: _Chats, shells: _Shells) -> ChatRunner | ShellRunner:
    kind, rest = _split(spec, what)
    return ChatRunner(chats.open(rest)) if kind == "chat" else ShellRunner(shells.open(), rest)


def _split(spec: str, what: str) -> tuple[str, str]:
    kind, _, rest = spec.partition(":")
    if kind not in ("chat", "command") or not rest.strip():
        raise BadInput(f"{what} {spec!r}", where="world directory", hint=_HOW)
    return kind, rest


def _journal(file: Path) -> Journal:
    if file.exists():
        return Journal(file, noun="record of artifacts")
    return Journal.create(file, noun="record of artifacts")


def _file(name: str) -> Path:
    path = Path(name)
    if not path.exists():
        raise BadInput("there is no such file or folder", where=name)
    return path
