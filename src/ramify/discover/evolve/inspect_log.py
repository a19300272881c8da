"""Verdicts out of inspect_ai evaluation logs, JSON or ``.eval``, without that package.

A judge is a scorer with its options. An item is a sample: its id, and its epoch where the log has several.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from ramify.core.errors import BadInput, MissingExtra
from ramify.core.plain import content_hash
from ramify.core.types import Json

#: The number of that method of compression in ZIP archives, which inspect_ai's recent logs use.
ZSTANDARD: Final = 93
#: inspect_ai's letters for correct, incorrect, and no answer.
LETTERS: Final[Mapping[str, int]] = {"C": 1, "I": 0, "N": 0}


@final
@dataclass(frozen=True, slots=True)
class Scored:
    """One score of one sample: where it stands, what judged, which item, the raw value, and its source.

    ``output`` is a digest of what was judged.
    """

    place: str
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
    if zipfile.is_zipfile(file):
        header, samples = _unpacked(file)
    else:
        try:
            header = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise BadInput(f"this is not JSON: {error}", where=str(file)) from error
        if not isinstance(header, dict) or not looks_like_log(header):
            raise BadInput("this is not an inspect_ai log", where=str(file))
        samples = header.get("samples") or []
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


def _unpacked(file: Path) -> tuple[Json, list[Json]]:
    try:
        with zipfile.ZipFile(file) as packed:
            names = sorted(n for n in packed.namelist() if n.startswith("samples/") and n.endswith(".json"))
            return json.loads(_entry(packed, "header.json")), [json.loads(_entry(packed, n)) for n in names]
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise BadInput(f"this is not a whole inspect_ai log: {error}", where=str(file)) from error


def _entry(packed: zipfile.ZipFile, name: str) -> bytes:
    """A file of an archive; Python's own library reads all but those packed with Zstandard."""
    info = packed.getinfo(name)
    if info.compress_type != ZSTANDARD:
        return packed.read(info)
    try:
        import zstandard
    except ImportError:
        raise MissingExtra("zstandard", "inspect") from None
    stream = packed.fp
    assert stream is not None
    stream.seek(info.header_offset + 26)
    lengths = struct.unpack("<HH", stream.read(4))
    stream.seek(info.header_offset + 30 + sum(lengths))
    raw = io.BytesIO(stream.read(info.compress_size))
    try:
        # No more than the directory promises: what unpacks to more is damaged, or meant to be.
        with zstandard.ZstdDecompressor().stream_reader(raw) as reader:
            data = reader.read(info.file_size + 1)
    except zstandard.ZstdError as error:
        raise zipfile.BadZipFile(f"{name}: {error}") from error
    if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
        raise zipfile.BadZipFile(f"{name} is damaged")
    return data


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
