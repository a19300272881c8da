"""A selection head on disk: its tensors, and a card that says whose states it reads and what was measured."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np

from refork.errors import BadInput, DiskFull, Mismatch
from refork.plain import content_hash, from_json, to_json
from refork.stats import Interval, mean_interval
from refork.types import Json
from refork_methods.route.backbone import StateFormat
from refork_methods.route.head import SelectionHead
from refork_methods.route.table import OutcomeTable, task_of

VERSION = 1
TENSORS, CARD = "head.safetensors", "card.json"


@final
@dataclass(frozen=True, slots=True)
class HeadCard:
    """What belongs to a head beside its numbers.

    ``measured`` are the workers' own mean rewards in the table it was fitted on, over queries; None for one
    started cold. ``queries`` are digests of the tasks of the fitted queries: none of theirs is ever a test.
    ``fit`` tells how it was trained and what came out.
    """

    workers: tuple[str, ...]
    roles: tuple[str, ...] = ()
    measured: dict[str, Interval | None] = field(default_factory=dict)
    queries: tuple[str, ...] = ()
    fit: Json = field(default_factory=dict)
    backbone_name: str | None = None
    backbone: str | None = None
    format: StateFormat | None = None
    format_digest: str | None = None
    matrices: tuple[str, ...] = ()
    digest: str | None = None
    version: int = VERSION

    def refuse_leaks(self, queries: Collection[str]) -> None:
        """Refuse to be tested on what it was fitted on.

        Raises: BadInput naming a query that is on both sides.
        """
        known = set(self.queries)
        leaked = sorted(name for name in queries if query_digest(name) in known)
        if leaked:
            raise BadInput(
                f"{len(leaked)} of {len(queries)} test queries were fitted on, first {leaked[0]!r}",
                hint="test on queries that the fit held out",
            )


def query_digest(name: str) -> str:
    """Short digest of the task that a query belongs to, 16 hex digits."""
    return content_hash(task_of(name))[:16]


def measured(table: OutcomeTable) -> dict[str, Interval | None]:
    """Each worker's mean reward over the queries it was tried on, with its interval; None for none.

    With outcomes on one query only, the interval is as wide as the rewards may be.
    """
    rbar, _ = table.means()
    found: dict[str, Interval | None] = {}
    for name, column in zip(table.workers, rbar.T, strict=True):
        known = column[~np.isnan(column)]
        if known.size > 1:
            found[name] = mean_interval(known)
        elif known.size:
            found[name] = Interval(float(known[0]), table.low, table.high, 0.95, "range")
        else:
            found[name] = None
    return found


def save_head(folder: Path, head: SelectionHead, card: HeadCard) -> HeadCard:
    """Write tensors and card, each file whole or not at all; the card as written.

    Raises: DiskFull where the folder cannot be written.
    """
    from safetensors.numpy import save

    written = HeadCard(
        head.workers, head.roles, card.measured, card.queries, card.fit, card.backbone_name, head.backbone,
        head.format, head.format.digest if head.format is not None else None, head.matrices, head.digest,
    )  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _put(folder / TENSORS, save(head.tensors()))
        _put(folder / CARD, (json.dumps(to_json(written), indent=2, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise DiskFull(f"the head could not be written: {error}", where=str(folder)) from error
    return written


def load_head(folder: Path) -> tuple[SelectionHead, HeadCard]:
    """A head and its card from a folder.

    Raises:
        BadInput: no head there, one that cannot be read, or of a later version.
        Mismatch: tensors that are not those the card was written with, or a format whose digest differs.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    where = str(folder)
    try:
        told = json.loads((folder / CARD).read_text(encoding="utf-8"))
        tensors = load((folder / TENSORS).read_bytes())
    except (OSError, ValueError, SafetensorError) as error:
        raise BadInput(f"there is no selection head to read: {error}", where=where) from error
    card = from_json(HeadCard, told, where)
    if card.version != VERSION or "head" not in tensors:
        raise BadInput(f"a head of version {card.version} cannot be read here", where=where)
    if card.format is not None and card.format.digest != card.format_digest:
        raise Mismatch("the card's format was changed, or is of another version", where=where)
    head = SelectionHead(
        tensors["head"], card.workers, card.roles, card.format, card.backbone, card.matrices,
        tensors.get("offsets"),
    )  # fmt: skip
    if head.digest != card.digest:
        raise Mismatch("the head's tensors are not those its card was written with", where=where)
    return head, card


def _put(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)
