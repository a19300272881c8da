"""What a tree is copied, imported and exported as: records, each after those it refers to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from refork.tree.node import NewNode, Node
from refork.tree.score import DrawRecord, ForkRecord, Producer, Score
from refork.tree.scoring import Retired


@dataclass(frozen=True, slots=True)
class Blob:
    """The bytes of a snapshot; nodes refer to their SHA-256."""

    data: bytes


@final
@dataclass(frozen=True, slots=True)
class Remark:
    """What an import could not bring along: ``count`` times ``what``, first seen at ``where``.

    ``skipped``: an item that could not be read, with why. ``lost``: something that the file has and the tree
    will not, or that a format does not record at all (token ids, log-probs, times). ``redacted``: a secret.
    """

    kind: Literal["skipped", "lost", "redacted"]
    what: str
    where: str | None = None
    count: int = 1


@final
@dataclass(frozen=True, slots=True)
class Position:
    """That all items before a byte of a file were yielded."""

    done: int
    total: int


#: A foreign reader yields drafts with their keys; the native one whole nodes and everything else.
Record: TypeAlias = (
    Blob | Producer | NewNode | Node | ForkRecord | DrawRecord | Score | Retired | Remark | Position
)
