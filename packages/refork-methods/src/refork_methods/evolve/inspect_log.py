"""Verdicts out of inspect_ai evaluation logs, JSON or ``.eval``, without that package.

A judge is a scorer with its options. An item is a sample: its id, and its epoch where the log has several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.inspect_ai import open_log
from refork.plain import content_hash
from refork.tree.records import Position, Remark
from refork.types import Json

#: inspect_ai's letters for correct, incorrect, and no answer.
LETTERS: Final[Mapping[str, int]] = {"C": 1, "I": 0, "N": 0}


@final
@dataclass(frozen=True, slots=True)
class Scored:
    """One score of one sample: where it stands, what judged, which item, the raw value, and its source.

    ``output`` is a digest of what was judged.
    """

    node_id: str
    judge: str
    item: str
    value: Any
    source: str | None
    output: str


def looks_like_log(head: Json) -> bool:
    """Whether a JSON document is an inspect_ai log."""
    return {"version", "status", "eval"} <= head.keys()


def read_log(file: Path) -> Iterator[Scored]:
    """Every score of a log, samples in order.

    Raises: BadInput for a file that is no log, is damaged, or has no scored samples; MissingExtra where it is
        packed with Zstandard and the package for it is not there.
    """
    header, samples = _whole(file)
    names = _judges(header)
    several = len({sample.get("epoch", 1) for sample in samples}) > 1
    found = 0
    for sample in samples:
        for one in _scores(sample, names, several, str(file)):
            found += 1
            yield one
    if not found:
        raise BadInput(
            f"the log has {len(samples)} samples and no score (status {header.get('status')!r})",
            where=str(file), hint="inspect score FILE",
        )  # fmt: skip


def _whole(file: Path) -> tuple[Json, list[Json]]:
    """The header and all samples; BadInput where one is missing, for rates would be those of the others."""
    try:
        with open_log(file) as log:
            found = [(where, one) for where, one in log.samples if not isinstance(one, Position)]
    except BadInput as error:
        raise BadInput(f"this is not a whole inspect_ai log: {error.what}", where=error.where) from error
    if not log.packed and not looks_like_log(log.header):
        raise BadInput("this is not an inspect_ai log", where=str(file))
    for lost in (*log.remarks, *(one for _, one in found if isinstance(one, Remark))):
        raise BadInput(f"this is not a whole inspect_ai log: {lost.what}", where=lost.where or str(file))
    if log.packed:
        found.sort(key=lambda sample: sample[0])
    return log.header, [one for _, one in found if not isinstance(one, Remark)]


def _judges(header: Json) -> dict[str, str]:
    """The judge of each scorer's name: the name, with a digest of the options where it has any."""
    found = {}
    for scorer in header.get("eval", {}).get("scorers") or ():
        name, options = str(scorer.get("name")), scorer.get("options") or {}
        found[name] = f"{name}#{content_hash(options)[:8]}" if options else name
    return found


def _scores(sample: Json, names: Mapping[str, str], several: bool, where: str) -> Iterator[Scored]:
    item = str(sample.get("id"))
    if several:
        item += f"@{sample.get('epoch', 1)}"
    told = sample.get("metadata") or {}
    source = told.get("source")
    output = content_hash((sample.get("output") or {}).get("choices"))
    for name, score in (sample.get("scores") or {}).items():
        yield Scored(
            f"{where}:{item}/{name}", names.get(name, name), item, score.get("value"),
            source if isinstance(source, str) else None, output,
        )  # fmt: skip
