"""A folder for PYTHONPATH that patches a Python program as it begins, in whatever environment it runs.

With a :class:`RepeatableRun` the program's clock and chance are those of a run.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, final

from refork.agents.repeatable import CLAIMS, MARK, PARENT, POINT, READINGS, SETTINGS, VARIABLE
from refork.agents.tape import GIVEN_BACK, ProgramRun, Wire
from refork.errors import BadInput, CannotDo
from refork.tree.tree import Tree
from refork.types import Json

#: Python imports a module of this name before the program. One that the program has is imported, too.
_NAME: Final = "sitecustomize"
#: Loaded by their files: the program's environment need not have Refork, or what Refork needs.
_REPEATABLE: Final = ("refork.agents.on_import", "refork.agents.repeatable")
_PATCHES: Final = (
    "refork.agents.on_import",
    "refork.agents.program_side",
    "refork.agents.step_names",
    "refork.agents.patches",
)
_TEXT: Final = """
import importlib.machinery
import importlib.util
import os
import sys


def _run(name, place):
    spec = importlib.util.spec_from_file_location(name, place)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_here = os.path.dirname(os.path.abspath(__file__))
_rest = [one for one in sys.path if os.path.abspath(one) != _here]
for _name, _place in {first!r}:
    _module = _run(_name, _place)
    if _name.endswith("repeatable"):
        _module.hold()
_other = importlib.machinery.PathFinder.find_spec("sitecustomize", _rest)
if _other is not None and _other.origin:
    _run("sitecustomize", _other.origin)
for _name, _place in {then!r}:
    _module = sys.modules.get(_name) or _run(_name, _place)
    if _name.endswith("patches"):
        _module.patch()
"""


_HASH: Final = "PYTHONHASHSEED"


@final
class RepeatableRun:
    """Clock and chance of one execution of a program: those of a run that is recorded now, or was.

    ``facts`` are what the tape holds of it. Without ``readings`` of the clock, by process, it is recorded.
    ``began``: when the recorded run did. ``draw``: by which chance behind the point of a fork differs.
    """

    def __init__(
        self,
        facts: Json,
        readings: Mapping[str, str] | None = None,
        *,
        began: float | None = None,
        draw: str = "",
    ) -> None:
        self.facts, self._readings, self._draw = facts, readings, draw
        self._now = time.time_ns()
        self._began = self._now if began is None else int(began * 1e9)
        self._folder: Path | None = None
        #: Of a run that was recorded now: what its processes read of the clock; None: it has not ended.
        self.readings: Mapping[str, str] | None = None

    @classmethod
    def new(cls, given: Mapping[str, str]) -> RepeatableRun:
        """Of a run that is recorded now, in an environment."""
        seed = secrets.token_hex(16)
        kept = {name: value for name, value in given.items() if GIVEN_BACK.fullmatch(name)}
        own = given.get(_HASH, "")
        kept[_HASH] = own if own.isdigit() else str(int(seed[:8], 16))
        return cls({"version": 1, "seed": seed, "variables": kept})

    @classmethod
    def of(cls, tree: Tree, run: ProgramRun, *draw: object) -> RepeatableRun | None:
        """Of a recorded run, or of a draw that goes on from it; None: it was not recorded so.

        Raises:
            BadInput: what the tape has of it cannot be read.
        """
        facts = run.repeatable
        if facts is None:
            return None
        try:
            kept = facts.get("readings")
            readings = {} if kept is None else json.loads(zlib.decompress(tree.blob(kept)))
        except (ValueError, KeyError, zlib.error) as error:
            where = f"run {run.id}"
            raise BadInput(
                f"its clock cannot be read: {error!r}", where=where, hint="refork tree verify"
            ) from error
        seed = hashlib.blake2b(json.dumps([facts["seed"], *map(str, draw)]).encode(), digest_size=16)
        return cls(dict(facts), readings, began=run.began, draw=seed.hexdigest() if draw else "")

    def variables(self, given: Mapping[str, str]) -> dict[str, str | None]:
        """What a program's environment has of these, in place of what an environment holds; None: not set."""
        kept: Mapping[str, str] = self.facts["variables"]
        here = filter(GIVEN_BACK.fullmatch, given)
        return dict.fromkeys(here) | dict(kept)

    def lay_out(self, folder: Path) -> dict[str, str | None]:
        """Write what the program's processes read, and give the variables by which they find it."""
        self._folder = folder
        for name in (READINGS, CLAIMS):
            (folder / name).mkdir()
        for process, text in (self._readings or {}).items():
            (folder / READINGS / Path(process).name).write_text(text, "utf-8")
        told = {
            "recording": self._readings is None, "seed": self.facts["seed"], "draw": self._draw,
            "began": self._began, "now": self._now,
        }  # fmt: skip
        (folder / SETTINGS).write_text(json.dumps(told), "utf-8")
        (folder / POINT).write_bytes(MARK.pack(0, 0, 0))
        return {VARIABLE: str(folder), PARENT: None}

    def reached(self, wire: Wire) -> None:
        """Say that the point is reached: the clock goes on from when the recorded run was there."""
        if self._folder is not None:
            at = int((wire.began + wire.seconds) * 1e9)
            told = MARK.pack(1, at, time.monotonic_ns())
            # Mapped by every process, which looks at the first number: that is written last.
            with (self._folder / POINT).open("r+b", buffering=0) as file:
                for begin, end in ((8, len(told)), (0, 8)):
                    file.seek(begin)
                    file.write(told[begin:end])

    def collect(self) -> None:
        """Take what the processes of a run that is recorded wrote down."""
        if self._readings is None and self._folder is not None:
            places = sorted((self._folder / READINGS).iterdir())
            self.readings = {one.name: one.read_text("utf-8", "replace") for one in places}


@contextmanager
def hooked(
    given: Mapping[str, str], patch: bool, repeatable: RepeatableRun | None = None
) -> Iterator[dict[str, str | None]]:
    """Variables with which Python programs begin with ours, while inside; None for what is not to be set.

    With ``patch`` known packages show calls of their tools; with ``repeatable`` clock and chance are those.

    Raises:
        CannotDo: what is loaded there is not at hand as files.
    """
    if not patch and repeatable is None:
        yield {}
        return
    text = _TEXT.replace("{first!r}", repr(_files(_REPEATABLE if repeatable else ())))
    text = text.replace("{then!r}", repr(_files(_PATCHES if patch else ())))
    with tempfile.TemporaryDirectory(prefix="refork-hook-") as folder:
        Path(folder, f"{_NAME}.py").write_text(text, "utf-8")
        path = [folder, *filter(None, [given.get("PYTHONPATH")])]
        found: dict[str, str | None] = {"PYTHONPATH": os.pathsep.join(path)}
        if repeatable is not None:
            found |= repeatable.variables(given) | repeatable.lay_out(Path(folder))
        try:
            yield found
        finally:
            if repeatable is not None:
                repeatable.collect()


def _files(names: Sequence[str]) -> list[tuple[str, str]]:
    """The files of modules: the program's environment need not have Refork."""
    files = []
    for name in names:
        spec = find_spec(name)
        if spec is None or spec.origin is None or not Path(spec.origin).is_file():
            raise CannotDo(f"{name} is no file that a program could load", hint="call refork.agents.patch()")
        files.append((name, spec.origin))
    return files
