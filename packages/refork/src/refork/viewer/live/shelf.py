"""The trees that a viewer shows: files, or all trees of folders, opened for reading when asked for."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, final

from refork.errors import BadInput, NotATree, TreeDamaged, UserError
from refork.tree.tree import Tree
from refork.tree.view import TreeView
from refork.types import Json

#: Trees that stay open, and trees of a folder that are listed.
OPEN: Final = 8
LISTED: Final = 500
_HEAD: Final = b"SQLite format 3\x00"
#: Where SQLite's header holds the application's mark, and ours.
_MARK: Final = (68, b"RMFY")


@final
class Shelf:
    """Trees by name: a file's name, or its path below the folder that was given."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Check the places. Raises BadInput, NotATree or TreeVersion where one cannot be shown."""
        if not paths:
            raise BadInput("there is no tree to view", hint="name a tree file, or a folder of them")
        self._places = list(paths)
        self._open: OrderedDict[Path, TreeView] = OrderedDict()
        self._lock = threading.Lock()
        files = self._known = self._files()
        for place in paths:
            if not place.exists():
                raise BadInput("there is no such file or folder", where=str(place))
            if place.is_file():
                self._view(place)
            elif not any(place in file.parents for file in files.values()):
                raise NotATree(
                    "there is no tree in this folder", where=str(place), hint="`refork grow` makes one"
                )

    @property
    def only(self) -> Path | None:
        """The file, where just one is shown and no folder may bring more."""
        one = self._places[0]
        return one if len(self._places) == 1 and one.is_file() else None

    def file(self, name: str) -> Path:
        """The file of a tree's name. Raises BadInput where none of that name is shown."""
        if name not in self._known:
            self._known = self._files()  # it may be new
        if name not in self._known:
            raise BadInput(f"no tree {name!r} is shown here")
        return self._known[name]

    def view(self, name: str) -> TreeView:
        """The tree of a name. Raises BadInput: no such name; NotATree, TreeVersion: it cannot be read."""
        return self._view(self.file(name))

    def damage_behind(self, error: Exception, name: str) -> TreeDamaged | None:
        """The damage of a tree that explains an error of reading it; None where nothing does."""
        try:
            return self.view(name).tree.damage_behind(error)
        except UserError:
            return None

    def trees(self) -> list[Json]:
        """What is shown: names, sizes and times; a tree that cannot be opened says why."""
        found: list[Json] = []
        self._known = self._files()
        for name, file in self._known.items():
            try:
                told = file.stat()
                view = self._view(file)
            except (OSError, UserError) as error:
                found.append({"name": name, "error": str(error)})
                continue
            one = {"name": name, "bytes": told.st_size, "changed": told.st_mtime}
            found.append(one | {"nodes": len(view.tree), "tasks": sum(1 for _ in view.tree.tasks())})
        return found

    def close(self) -> None:
        """Close every tree."""
        with self._lock:
            for view in self._open.values():
                view.tree.close()
            self._open.clear()

    def _files(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for place in self._places:
            for name, file in _below(place) if place.is_dir() else [(place.name, place)]:
                # Two folders may hold equal names.
                found.setdefault(name if name not in found else str(file), file)
        return found

    def _view(self, file: Path) -> TreeView:
        with self._lock:
            if file in self._open:
                self._open.move_to_end(file)
                return self._open[file]
            view = TreeView(Tree.open(file, "r"))
            self._open[file] = view
            while len(self._open) > OPEN:
                # A request may still read it: it is closed when the last reader lets go of it.
                self._open.popitem(last=False)
            return view


def _below(folder: Path) -> Iterator[tuple[str, Path]]:
    """Trees below a folder, by path, :data:`LISTED` at most; what is hidden is left out."""
    count = 0
    for top, folders, names in os.walk(folder):
        # In place: `os.walk` goes down into whatever is left of this very list.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(top, name)
            if not name.startswith(".") and _is_tree(file):
                yield file.relative_to(folder).as_posix(), file
                count += 1
                if count == LISTED:
                    return


def _is_tree(file: Path) -> bool:
    """Whether a file's first bytes say that it is ours."""
    try:
        with file.open("rb") as data:
            head = data.read(100)
    except OSError:
        return False
    return head.startswith(_HEAD) and head[_MARK[0] : _MARK[0] + 4] == _MARK[1]
