"""Folders seen copy-on-write: a program's own tools change a layer above its folder, and never the folder.

The layer is an overlay file system in namespaces of the program's own, which need no rights on Linux. It ends
with the program, whatever ends that.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

from refork.errors import BadInput, CannotDo
from refork.sandbox import inside
from refork.sandbox.inside import jail, overlay, wire
from refork.sandbox.process import BOOT, receive, start, stop
from refork.types import Json

#: Layers of one overlay, of which the kernel takes some hundred; of more, the upper ones become one.
DEEPEST: Final = 48
#: Beginning of the names of folders that hold layers.
LAYERS: Final = "refork-layers-"
_OPAQUE: Final = "user.overlay.opaque"
_WHITEOUT: Final = os.makedev(0, 0)
_SHARED: Final = "/dev/shm"  # named, and never written to by us
_REFUSAL: Final = "refork: not contained"
LayerKind: TypeAlias = Literal["gone", "folder", "new folder", "file", "link", "other"]


@final
@dataclass(frozen=True, slots=True)
class ContainedView:
    """A view of a folder for one program, and the layer that the program changes."""

    plan: Json
    upper: Path

    def prefix(self, port: int | None = None) -> tuple[str, ...]:
        """What a command in the view begins with; ``port``: of this machine, which it reaches."""
        return (*_command(), json.dumps({**self.plan, "port": port}))

    def again(self) -> None:
        """Ready the layers for one more command, which sees what the last one left."""
        # The kernel takes no work folder twice of an overlay that was not to reach the disk.
        for view in self.plan["views"]:
            jail.gone(view["work"])
            Path(view["work"]).mkdir()


@final
class ContainedFolder:
    """A folder in which programs run without a change to it, nor to anything else on this machine.

    Copy-on-write are the folder, the home folder and those of temporary files; all else is read-only.
    Of the network there is one port of this machine, unless ``network``. ``layers``: what lies above the
    folder, the topmost first. What could not be made copy-on-write is in ``read_only``.

    Raises:
        CannotDo: the system does not grant it.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, layers: Sequence[Path] = (), network: bool = False
    ) -> None:
        if sys.platform != "linux":
            raise _cannot(f"it takes Linux, and this is {sys.platform}", folder)
        self.folder, self.network = Path(folder).resolve(), network
        self.layers = tuple(layers)
        self._optional = _beside(self.folder)
        self.read_only: tuple[str, ...] = ()
        self.base, self.read_only = self._probed()

    @contextmanager
    def view(self) -> Iterator[ContainedView]:
        """A view of its own: nothing of it is left after it."""
        with self._scratch(self.base) as scratch:
            yield ContainedView(self.plan(scratch), scratch / "0")

    def plan(self, scratch: Path, layers: Sequence[Path] | None = None) -> Json:
        """What the first process of a view is told."""
        views: list[Json] = []
        above = [str(one) for one in (self.layers if layers is None else layers)]
        targets = [self.folder, *(one for one in self._optional if str(one) not in self.read_only)]
        # Outer folders first: an overlay hides what was mounted within it.
        for number, target in enumerate(targets):
            upper, work = scratch / str(number), scratch / f"{number}.work"
            for one in (upper, work):
                one.mkdir()
            upper.chmod(stat.S_IMODE(target.stat().st_mode))
            told = {"target": str(target), "upper": str(upper), "work": str(work), "optional": number > 0}
            views.append({**told, "lowers": [*(above if number == 0 else ()), str(target)]})
        views.sort(key=lambda view: len(Path(view["target"]).parts))
        return {
            "views": views, "network": self.network, "cwd": str(self.folder),
            "owner": os.getpid(), "scratch": str(scratch),
        }  # fmt: skip

    def _probed(self) -> tuple[Path, tuple[str, ...]]:
        """Where layers can lie, and which folders cannot be seen copy-on-write."""
        why, wanted = "there is no folder for layers", self._optional
        bases = [
            Path(one).resolve() for one in ("/var/tmp", tempfile.gettempdir(), _SHARED) if Path(one).is_dir()
        ]
        # A layer within what it lies above is refused by the kernel: that then stays as it is.
        inside = {base: [one for one in wanted if base.is_relative_to(one)] for base in bases}
        for base in sorted(inside, key=lambda one: len(inside[one])):
            if base.is_relative_to(self.folder):
                continue
            self._optional = tuple(one for one in wanted if one not in inside[base])
            try:
                with self._scratch(base) as scratch:
                    plan = self.plan(scratch)
                    made = subprocess.run(
                        [*_command(), json.dumps(plan)], capture_output=True, text=True, check=False
                    )
            except OSError as error:
                why = str(error)
                continue
            if made.returncode == 0:
                return base, (*json.loads(made.stdout), *(str(one) for one in inside[base]))
            why = made.stderr.strip().removeprefix(f"{_REFUSAL}: ")[-400:]
        raise _cannot(why, self.folder)

    @contextmanager
    def _scratch(self, base: Path) -> Iterator[Path]:
        scratch = Path(tempfile.mkdtemp(prefix=LAYERS, dir=base))
        try:
            yield scratch
        finally:
            # Whatever modes the program gave to its folders.
            jail.gone(str(scratch))


def refused(status: int, output: str, folder: Path) -> None:
    """Tell a program that was never started from one that ended so.

    Raises:
        CannotDo: it was never started.
    """
    if status == overlay.REFUSED and _REFUSAL in output:
        raise _cannot(output.partition(_REFUSAL)[2].strip(": \n"), folder)


def _cannot(why: str, folder: str | os.PathLike[str]) -> CannotDo:
    return CannotDo(
        f"programs cannot be contained here: {why}",
        where=str(folder),
        hint="it takes Linux 5.12 with user namespaces (in a container: --security-opt seccomp=unconfined); "
        "else --rerun-tools, with --folder a copy of the folder",
    )


def _beside(folder: Path) -> tuple[Path, ...]:
    """What programs write to beside their folder: the home folder, and that of temporary files."""
    found = [Path("~").expanduser().resolve()]
    found += [Path(one).resolve() for one in ("/tmp", tempfile.gettempdir(), _SHARED)]
    wanted = [
        one
        for one in dict.fromkeys(found)
        if one.is_dir() and len(one.parts) > 1 and not one.is_relative_to(folder)
    ]
    return tuple(
        one for one in wanted if not any(one != other and one.is_relative_to(other) for other in wanted)
    )


def _command() -> list[str]:
    """What begins the command line of a program in a view, before its plan."""
    boot = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", BOOT, str(Path(inside.__file__).parent)]
    return [*boot, "overlay", "0"]


@final
class LayerKeeper:
    """A folder for layers; its process runs commands in them, and removes it when this one is gone."""

    def __init__(self, base: Path) -> None:
        self.folder = tempfile.mkdtemp(prefix=LAYERS, dir=base)
        self.process, self.socket = start("overlay", [self.folder])
        self._stop = weakref.finalize(self, _closed, self.process, self.socket, self.folder, os.getpid())

    @property
    def closed(self) -> bool:
        """Whether the folder is gone."""
        return not self._stop.alive

    def close(self) -> None:
        """End what runs, and remove the folder."""
        self._stop()


# -- machines -------------------------------------------------------------------------------------


@final
class _Layer:
    """A layer that no command changes any more; removed with the last state that needs it."""

    def __init__(self, path: Path, removing: ThreadPoolExecutor) -> None:
        self.path = path
        self._gone = weakref.finalize(self, _removed, removing, str(path.parent), os.getpid())


def _removed(removing: ThreadPoolExecutor, path: str, owner: int) -> None:
    """Remove a folder when its turn comes: what is beside its layer may be being removed just now."""
    # In a child of ours nobody would do it; of a machine that is closed all goes at once.
    if os.getpid() == owner:
        with suppress(RuntimeError):
            removing.submit(_remove, path, owner)


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:
        with suppress(OSError):
            jail.gone(path)


@final
@dataclass(frozen=True, slots=True)
class CommandRun:
    """What came of a command: exit status (124: it took too long), output, and the state after it."""

    status: int
    output: str
    state: FolderState


@final
@dataclass(frozen=True, slots=True, eq=False)
class FolderState:
    """A state of a machine's folder, which stays what it is. Running a command in it gives another.

    So a state is forked by running more than one command in it. A command's processes end with it: a state
    is files alone.
    """

    machine: FolderMachine = field(repr=False)
    layers: tuple[_Layer, ...] = field(default=(), repr=False)

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        limit_s: float = 600.0,
    ) -> CommandRun:
        """Run a command in a fork of this state.

        Raises:
            BadInput: no command.
            CannotDo: the machine is closed, or the fork cannot be made.
        """
        return self.machine.run(self, command, os.environ if environment is None else environment, limit_s)

    def changes(self) -> dict[str, str | None]:
        """Paths that differ from the machine's folder: file, link, folder or other; None: it is gone."""
        found: dict[str, str | None] = {}
        for layer in reversed(self.layers):
            for path, kind, _ in entries(layer.path, still=True):
                if kind != "folder":
                    found = {one: was for one, was in found.items() if not one.startswith(f"{path}/")}
                found[path] = None if kind == "gone" else kind
        return {
            path: kind
            for path, kind in found.items()
            if kind is not None or os.path.lexists(self.machine.folder / path)
        }

    def read(self, path: str) -> bytes:
        """A file's bytes in this state.

        Raises:
            BadInput: there is no such file in it.
        """
        parts, hidden = Path(path).parts, False
        for layer in self.layers:
            for count in range(1, len(parts) + 1):
                at = layer.path.joinpath(*parts[:count])
                kind = kind_of(at)
                if kind == "file" and count == len(parts):
                    return at.read_bytes()
                hidden = hidden or kind not in (None, "folder")
                if kind not in ("folder", "new folder"):
                    break
            if hidden:
                raise BadInput(f"there is no file {path!r} in this state")
        whole = self.machine.folder / path
        if not whole.is_file():
            raise BadInput(f"there is no file {path!r} in this state")
        return whole.read_bytes()


@final
class FolderMachine:
    """A folder for shell commands, whose states are forked in milliseconds; use as a context.

    Commands see it copy-on-write, as in :class:`ContainedFolder`. What they write in the home folder and
    that of temporary files is thrown away after each. The folder itself must stay as it is meanwhile. Layers
    lie in ``scratch``.

    Raises:
        BadInput: there is no such folder.
        CannotDo: the system does not grant it.
    """

    def __init__(self, folder: str | os.PathLike[str], *, network: bool = False) -> None:
        if not Path(folder).is_dir():
            raise BadInput(f"there is no folder {str(folder)!r}")
        self._contained = ContainedFolder(folder, network=network)
        self.folder = self._contained.folder
        self._keeper = LayerKeeper(self._contained.base)
        self.scratch = self._keeper.folder
        self._lock, self._count = threading.Lock(), 0
        self._removing = ThreadPoolExecutor(1)
        self.start = FolderState(self)

    def __enter__(self) -> FolderMachine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all commands, and remove all states."""
        self._removing.shutdown(cancel_futures=True)
        self._keeper.close()

    def run(
        self, state: FolderState, command: Sequence[str], environment: Mapping[str, str], limit_s: float
    ) -> CommandRun:
        """As :meth:`FolderState.run`."""
        if not command:
            raise BadInput("no command was given")
        with self._lock:
            if self._keeper.closed:
                raise CannotDo("this machine is closed", where=str(self.folder))
            self._count += 1
            place = Path(self.scratch, str(self._count))
            place.mkdir()
        kept = False
        try:
            plan = self._contained.plan(place, [layer.path for layer in state.layers])
            plan |= {"environment": dict(environment), "command": list(command), "limit": limit_s}
            status, output = self._output_of(plan)
            refused(status, output, self.folder)
            kept = next((place / "0").iterdir(), None) is not None
        finally:
            # Behind our back: the kernel lets go of a view some time after its last process.
            for one in [one for one in place.iterdir() if one.name != "0"] if kept else [place]:
                self._removing.submit(_remove, str(one), os.getpid())
        after = FolderState(self, (_Layer(place / "0", self._removing), *state.layers)) if kept else state
        return CommandRun(status, output, self._flat(after))

    def _output_of(self, plan: Json) -> tuple[int, str]:
        """Exit status and output of a command that our process runs."""
        ours, theirs = socket.socketpair()
        reads, writes = os.pipe()
        with ours, os.fdopen(reads, "rb") as output:
            try:
                with theirs, self._lock:
                    # A message of no bytes would not carry the descriptors.
                    socket.send_fds(self._keeper.socket, [b"x"], [theirs.fileno(), writes])
            finally:
                os.close(writes)
            try:
                ours.sendall(wire.pack(plan))
                printed = output.read()
                (length,) = wire.HEAD.unpack(receive(ours, wire.HEAD.size))
                status: int = wire.unpack(receive(ours, length))["status"]
            except (OSError, EOFError) as error:
                raise CannotDo("the process that runs commands was lost", where=str(self.folder)) from error
        return status, printed.decode("utf-8", "replace")

    def _flat(self, state: FolderState) -> FolderState:
        """The same state; of too many layers one."""
        if len(state.layers) <= DEEPEST:
            return state
        with self._lock:
            self._count += 1
            whole = Path(self.scratch, str(self._count), "0")
        whole.mkdir(parents=True)
        for layer in reversed(state.layers):
            _lay_over(layer.path, whole)
        return FolderState(self, (_Layer(whole, self._removing),))


def _closed(process: subprocess.Popen[bytes], sock: socket.socket, folder: str, owner: int) -> None:
    stop(process, sock, folder, owner)
    _remove(folder, owner)


# -- layers ---------------------------------------------------------------------------------------


def kind_of(path: Path) -> LayerKind | None:
    """What stands at a path of a layer; None: nothing. ``gone``: what is below it is not there any more.

    ``new folder``: a folder through which nothing of the layers below is seen.
    """
    try:
        facts = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISCHR(facts.st_mode) and facts.st_rdev == _WHITEOUT:
        return "gone"
    if stat.S_ISDIR(facts.st_mode):
        return "new folder" if _OPAQUE in os.listxattr(path, follow_symlinks=False) else "folder"
    return "link" if stat.S_ISLNK(facts.st_mode) else "file" if stat.S_ISREG(facts.st_mode) else "other"


def entries(layer: Path, within: str = "", *, still: bool = False) -> Iterator[tuple[str, LayerKind, Path]]:
    """All that a layer holds, folders before what is in them: path, kind, and where it lies.

    Of a layer that is ``still``, which no program is changing, also what is in folders closed to their owner.
    """
    folder = layer / within
    with _opened(folder) if still else nullcontext():
        try:
            listed = sorted(one.name for one in folder.iterdir())
        except OSError:
            return
        for name in listed:
            path = folder / name
            try:
                kind = kind_of(path)
            except OSError:  # a folder that may be listed, and not entered
                return
            if kind is not None:
                yield f"{within}{name}", kind, path
            if kind in ("folder", "new folder"):
                yield from entries(layer, f"{within}{name}/", still=still)


@contextmanager
def _opened(folder: Path) -> Iterator[None]:
    """A folder of ours while it may be looked into, whatever its mode."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & stat.S_IRWXU == stat.S_IRWXU or os.geteuid() == 0:
        yield
        return
    folder.chmod(mode | stat.S_IRWXU)
    try:
        yield
    finally:
        folder.chmod(mode)


def _lay_over(layer: Path, whole: Path) -> None:
    """Put a layer over another; files are shared, as no layer is ever changed."""
    modes = []
    for name, kind, path in entries(layer, still=True):
        to = whole / name
        below = kind_of(to)
        folder = kind in ("folder", "new folder")
        if below is not None and not (kind == "folder" and below in ("folder", "new folder")):
            jail.gone(str(to))
        if not folder:
            os.link(path, to, follow_symlinks=False)
            continue
        if kind_of(to) is None:
            to.mkdir()
            # Nothing of what it took the place of, here or further below, is to be seen through it.
            if kind == "new folder" or below is not None:
                os.setxattr(to, _OPAQUE, b"y")
        modes.append((to, stat.S_IMODE(path.stat().st_mode)))
    for to, mode in reversed(modes):
        to.chmod(mode)
    whole.chmod(stat.S_IMODE(layer.stat().st_mode))


def whiteout(path: Path) -> None:
    """Say in a layer that what is below it at this path is gone."""
    os.mknod(path, stat.S_IFCHR, _WHITEOUT)
