"""Readers and writers by name: entry points of ``refork.formats``, ``module:Name`` or ``file.py:Name``.

A name stands for a class, or a function, that gives an object with a ``name`` and with ``sniff`` and
``read``, or ``write``, or all three. Where it takes a ``policy``, it is given the one that tokenises.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from refork import registry
from refork.errors import BadInput, UserError
from refork.formats.base import FolderReader, Head, Reader, Writer, is_binary
from refork.policies.base import Policy

if TYPE_CHECKING:
    from refork.formats.importing import import_file, import_folder
    from refork.formats.redact import Redactor

# Loaded on first use: who opens a tree reads no other format.
_HOME = {
    "Redactor": "redact",
    "import_file": "importing",
    "import_folder": "importing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


#: The place of a format that declares none: after those with a mark of their own, before the general ones.
_ORDER: Final = 50


def readers(policy: Policy | None = None, redactor: Redactor | None = None) -> tuple[Reader, ...]:
    """Every format that can be read; ``policy`` tokenises those that record text only.

    They stand in the order in which they are tried: by their ``order`` (50 where they declare none), then by
    name. Of two that could read a file, the one that asks for more comes first. A format whose package
    cannot be loaded is left out; its name says why.

    ``redactor`` takes secrets out before texts are tokenised.
    """
    policy = _clean(policy, redactor)
    found = [made for made in _loaded(policy) if isinstance(made, Reader)]
    return tuple(sorted(found, key=lambda one: (getattr(one, "order", _ORDER), one.name)))


def _clean(policy: Policy | None, redactor: Redactor | None) -> Policy | None:
    if policy is None or redactor is None:
        return policy
    from refork.formats.redact import CleanPolicy

    # Readers only tokenise with it.
    return cast("Policy", CleanPolicy(policy, redactor))


def _loaded(policy: Policy | None = None) -> Iterator[Any]:
    for name in registry.names("formats"):
        with suppress(UserError):
            yield _format(name, policy)


def _format(name: str, policy: Policy | None = None) -> Any:
    """What a name, a module's or a file's stands for, made; raises BadInput where it makes no format."""
    thing: Any = registry.resolve("formats", name)
    made: Any = thing
    if inspect.isclass(thing) or (callable(thing) and not isinstance(thing, (Reader, Writer))):
        takes = "policy" in inspect.signature(thing).parameters
        make: Any = thing
        made = make(policy=policy) if takes else make()
    if not isinstance(made, (Reader, Writer)):
        raise BadInput(f"{name} is no format", hint="it needs name, and sniff and read, or write")
    return made


def reader_for(
    path: Path, name: str | None = None, policy: Policy | None = None, redactor: Redactor | None = None
) -> Reader:
    """The reader of a named format, or of the one that a file, or a folder that is one item, looks like.

    Raises:
        BadInput: no such file or format, or none that fits.
    """
    if name is not None:
        found = _format(name, _clean(policy, redactor))
        if not isinstance(found, Reader):
            raise BadInput(f"{name} is written and not read", hint=f"formats: {_names(readers())}")
        return found
    known = readers(policy, redactor)
    if path.is_dir():
        for reader in known:
            if isinstance(reader, FolderReader) and reader.unit(path) is not None:
                return reader
        raise BadInput(
            "the folder has no format of its own", where=str(path), hint="import_folder reads its files"
        )
    head = Head.of(path)
    for reader in known:
        if reader.sniff(head):
            return reader
    raise BadInput("the file has no format that is known", where=str(path), hint=f"formats: {_names(known)}")


def folder_files(
    folder: Path, name: str | None = None, policy: Policy | None = None, redactor: Redactor | None = None
) -> Iterator[tuple[Path, Reader | str]]:
    """The files of a folder and of those inside it, by name, each with its reader or why there is none.

    Hidden files are passed over, and links to folders are not followed. Of a folder that is itself one item
    (an episode with its screens), only the file that stands for it is given.

    Raises:
        BadInput: no such format.
    """
    known = readers(policy, redactor)
    if name is not None:
        known = (reader_for(folder, name, policy, redactor),)
    waiting, top = [folder], folder.resolve()
    while waiting:
        place = waiting.pop(0)
        units = [(one, r) for r in known if isinstance(r, FolderReader) and (one := r.unit(place))]
        if units:
            yield units[0]
            continue
        try:
            inside = sorted(one for one in place.iterdir() if not one.name.startswith("."))
        except OSError as error:
            yield place, f"the folder cannot be read: {error.strerror}"
            continue
        waiting = [one for one in inside if one.is_dir() and not one.is_symlink()] + waiting
        for one in inside:
            if not one.is_dir():
                yield one, _reader_of(one, known, name)
            # What a link to a folder in here leads to is read in its own place.
            elif one.is_symlink() and not one.resolve().is_relative_to(top):
                yield one, "this is a link to a folder elsewhere, which is not followed"


def _reader_of(file: Path, known: Sequence[Reader], name: str | None) -> Reader | str:
    if not file.is_file():
        return "this is no file"
    try:
        head = Head.of(file)
    except BadInput as error:
        return error.what
    if not head.data:
        return "the file is empty"
    found = next((reader for reader in known if reader.sniff(head)), None)
    return found or ("the file has no format that is known" if name is None else f"the file is not {name}'s")


def writers() -> tuple[Writer, ...]:
    """Every format that can be written, by name."""
    return tuple(made for made in _loaded() if isinstance(made, Writer))


def writer_for(name: str) -> Writer:
    """The writer of a named format; raises BadInput where there is none."""
    found = _format(name)
    if not isinstance(found, Writer):
        raise BadInput(f"{name} is read and not written", hint=f"formats: {_names(writers())}")
    return found


def _names(formats: Sequence[Reader | Writer]) -> str:
    return ", ".join(one.name for one in formats)


__all__ = [
    "FolderReader",
    "Head",
    "Reader",
    "Redactor",
    "Writer",
    "folder_files",
    "import_file",
    "import_folder",
    "is_binary",
    "reader_for",
    "readers",
    "writer_for",
    "writers",
]
