"""Readers and writers, one file each."""

from __future__ import annotations

from pathlib import Path

from ramify.core.errors import BadInput
from ramify.core.policy.base import Policy
from ramify.core.tree.formats.base import Blob, Reader, Record, Writer
from ramify.core.tree.formats.native import Native
from ramify.core.tree.formats.openai_chat import OpenAIChat

_HEAD = 65536


def readers(policy: Policy | None = None) -> tuple[Reader, ...]:
    """Every format that can be read; ``policy`` tokenises those that record text only."""
    return (Native(), OpenAIChat(policy))


def reader_for(path: Path, name: str | None = None, policy: Policy | None = None) -> Reader:
    """The reader of a named format, or of the one a file looks like.

    Raises:
        BadInput: no such file or format, or none that fits.
    """
    known = readers(policy)
    names = ", ".join(reader.name for reader in known)
    if name is not None:
        for reader in known:
            if reader.name == name:
                return reader
        raise BadInput(f"no format {name!r}", hint=f"formats: {names}")
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD).decode("utf-8", errors="replace")
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error.strerror}", where=str(path)) from error
    for reader in known:
        if reader.sniff(head):
            return reader
    raise BadInput("the file has no format that is known", where=str(path), hint=f"formats: {names}")


__all__ = ["Blob", "Native", "OpenAIChat", "Reader", "Record", "Writer", "reader_for", "readers"]
