"""Readers and writers, one file each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from refork.core.errors import BadInput
from refork.core.policy.base import Policy
from refork.core.tree.formats.base import (
    BinaryWriter,
    Blob,
    FolderReader,
    Head,
    Reader,
    Record,
    Remark,
    Writer,
)

if TYPE_CHECKING:
    from refork.core.tree.formats.agentworldbench import AgentWorldBench
    from refork.core.tree.formats.androidworld import AndroidWorld
    from refork.core.tree.formats.atif import ATIF
    from refork.core.tree.formats.atif_export import ATIFWriter
    from refork.core.tree.formats.inspect_ai import InspectAI
    from refork.core.tree.formats.native import Native
    from refork.core.tree.formats.openai_chat import OpenAIChat
    from refork.core.tree.formats.osworld import OSWorld
    from refork.core.tree.formats.redact import Redactor
    from refork.core.tree.formats.verifiers import Verifiers
    from refork.core.tree.formats.verifiers_export import VerifiersWriter

# Loaded on first use: who opens a tree reads no other format.
_HOME = {
    "ATIF": "atif",
    "ATIFWriter": "atif_export",
    "AgentWorldBench": "agentworldbench",
    "AndroidWorld": "androidworld",
    "InspectAI": "inspect_ai",
    "Native": "native",
    "OSWorld": "osworld",
    "OpenAIChat": "openai_chat",
    "Redactor": "redact",
    "Verifiers": "verifiers",
    "VerifiersWriter": "verifiers_export",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def readers(policy: Policy | None = None, redactor: Redactor | None = None) -> tuple[Reader, ...]:
    """Every format that can be read; ``policy`` tokenises those that record text only.

    ``redactor`` takes secrets out before texts are tokenised.
    """
    from refork.core.tree.formats.agentworldbench import AgentWorldBench
    from refork.core.tree.formats.androidworld import AndroidWorld
    from refork.core.tree.formats.atif import ATIF
    from refork.core.tree.formats.exchange import exchange_readers
    from refork.core.tree.formats.inspect_ai import InspectAI
    from refork.core.tree.formats.native import Native
    from refork.core.tree.formats.openai_chat import OpenAIChat
    from refork.core.tree.formats.osworld import OSWorld
    from refork.core.tree.formats.redact import CleanPolicy
    from refork.core.tree.formats.verifiers import Verifiers

    if policy is not None and redactor is not None:
        # Readers only tokenise with it.
        policy = cast("Policy", CleanPolicy(policy, redactor))
    text: tuple[Reader, ...] = (
        Native(),
        InspectAI(policy),
        *exchange_readers(policy),
        AgentWorldBench(),
        ATIF(policy),
        Verifiers(policy),
        OpenAIChat(policy),
    )
    return (*text, AndroidWorld(), OSWorld())


def reader_for(
    path: Path, name: str | None = None, policy: Policy | None = None, redactor: Redactor | None = None
) -> Reader:
    """The reader of a named format, or of the one that a file, or a folder that is one item, looks like.

    Raises:
        BadInput: no such file or format, or none that fits.
    """
    known = readers(policy, redactor)
    names = ", ".join(reader.name for reader in known)
    if name is not None:
        for reader in known:
            if reader.name == name:
                return reader
        raise BadInput(f"no format {name!r}", hint=f"formats: {names}")
    if path.is_dir():
        for reader in known:
            if isinstance(reader, FolderReader) and reader.unit(path) is not None:
                return reader
        raise BadInput(
            "the folder has no format of its own", where=str(path), hint="Tree.read_folder reads its files"
        )
    head = Head.of(path)
    for reader in known:
        if reader.sniff(head):
            return reader
    raise BadInput("the file has no format that is known", where=str(path), hint=f"formats: {names}")


def folder_files(
    folder: Path, name: str | None = None, policy: Policy | None = None, redactor: Redactor | None = None
) -> Iterator[tuple[Path, Reader | str]]:
    """The files of a folder and of those inside it, by name, each with its reader or why there is none.

    Hidden files are passed over. Of a folder that is itself one item (an episode with its screens), only the
    file that stands for it is given.

    Raises:
        BadInput: no such format.
    """
    known = readers(policy, redactor)
    if name is not None:
        known = (reader_for(folder, name, policy, redactor),)
    waiting = [folder]
    while waiting:
        place = waiting.pop(0)
        units = [(one, r) for r in known if isinstance(r, FolderReader) and (one := r.unit(place))]
        if units:
            yield units[0]
            continue
        inside = sorted(one for one in place.iterdir() if not one.name.startswith("."))
        waiting = [one for one in inside if one.is_dir()] + waiting
        for file in inside:
            if not file.is_dir():
                yield file, _reader_of(file, known, name)


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


def writers() -> tuple[Writer | BinaryWriter, ...]:
    """Every format that can be written."""
    from refork.core.tree.formats.atif_export import ATIFWriter
    from refork.core.tree.formats.chat_export import OpenAIChatWriter
    from refork.core.tree.formats.exchange import exchange_writers
    from refork.core.tree.formats.native import Native
    from refork.core.tree.formats.verifiers_export import VerifiersWriter

    return (Native(), OpenAIChatWriter(), VerifiersWriter(), ATIFWriter(), *exchange_writers())


def writer_for(name: str) -> Writer | BinaryWriter:
    """The writer of a named format; raises BadInput where there is none."""
    for writer in writers():
        if writer.name == name:
            return writer
    raise BadInput(f"no format {name!r} is written", hint="formats: " + ", ".join(w.name for w in writers()))


__all__ = [
    "ATIF",
    "ATIFWriter",
    "AgentWorldBench",
    "AndroidWorld",
    "BinaryWriter",
    "Blob",
    "FolderReader",
    "Head",
    "InspectAI",
    "Native",
    "OSWorld",
    "OpenAIChat",
    "OpenAIChatWriter",
    "Reader",
    "Record",
    "Redactor",
    "Remark",
    "Verifiers",
    "VerifiersWriter",
    "Writer",
    "folder_files",
    "reader_for",
    "readers",
    "writer_for",
    "writers",
]
