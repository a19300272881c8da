"""ZIP archives of strangers, read within limits: ratio, size, number and names of what is inside."""

from __future__ import annotations

import contextlib
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Final, final

from refork.errors import BadInput, MissingExtra

#: The number of Zstandard among the methods of compression in ZIP archives.
ZSTANDARD: Final = 93
_LOCAL: Final = b"PK\x03\x04"
#: Entries of an archive, bytes of one of them unpacked, of all of them, and how much more than packed.
ENTRIES, LARGEST, TOTAL, RATIO = 1_000_000, 1 << 30, 256 << 30, 2000
#: Below this size no ratio is a danger; a file of spaces packs a thousandfold.
_SMALL: Final = 16 << 20


@final
class Archive:
    """The entries of a checked archive; use :func:`open_zip`."""

    def __init__(self, file: IO[bytes], infos: Iterable[zipfile.ZipInfo], path: Path, cut: bool) -> None:
        self._file, self._path = file, path
        # A name that stands there twice was written again: the last one counts.
        self._infos = {info.filename: info for info in infos if not info.filename.endswith("/")}
        #: Whether the archive has lost its end, and with it its directory.
        self.cut = cut

    @property
    def names(self) -> list[str]:
        """Names of the files in it, in the archive's order."""
        return list(self._infos)

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return name in self._infos

    def size(self, name: str) -> int:
        """Bytes of a file, unpacked, as the directory promises."""
        return self._info(name).file_size

    def read(self, name: str) -> bytes:
        """A file, unpacked.

        Raises:
            BadInput: there is none, it is damaged, encrypted, or more than its directory promises.
            MissingExtra: it is packed with Zstandard and that package is not installed.
        """
        info, where = self._info(name), f"{self._path}: {name}"
        if info.flag_bits & 1:
            raise BadInput("the entry is encrypted", where=where)
        try:
            data = self._unpacked(info)
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, struct.error) as error:
            raise BadInput(f"the entry is damaged: {error}", where=where) from error
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise BadInput("the entry is not what the archive's directory promises", where=where)
        return data

    def _info(self, name: str) -> zipfile.ZipInfo:
        try:
            return self._infos[name]
        except KeyError:
            raise BadInput(f"the archive has no {name}", where=str(self._path)) from None

    def _unpacked(self, info: zipfile.ZipInfo) -> bytes:
        """An entry's bytes, and never more than one beyond what the directory promises."""
        self._file.seek(info.header_offset)
        header = self._file.read(30)
        if len(header) < 30 or header[:4] != _LOCAL:
            raise zipfile.BadZipFile("no entry begins where the directory says")
        # This header's name and extra field have lengths of their own, which may differ from the directory's.
        self._file.seek(info.header_offset + 30 + sum(struct.unpack("<HH", header[26:])))
        raw = self._file.read(info.compress_size)
        most = info.file_size + 1
        if info.compress_type == zipfile.ZIP_STORED:
            return raw[:most]
        if info.compress_type == zipfile.ZIP_DEFLATED:
            # Negative, for ZIP holds raw deflate, without the header of zlib.
            return zlib.decompressobj(-15).decompress(raw, most)
        if info.compress_type == ZSTANDARD:
            return _zstandard(raw, most)
        raise zipfile.BadZipFile(f"method of compression {info.compress_type} is not read")


def _zstandard(raw: bytes, most: int) -> bytes:
    """What Python's own library cannot unpack before 3.14."""
    try:
        import zstandard
    except ImportError:
        raise MissingExtra("zstandard", "inspect") from None
    try:
        # A frame may ask for a window of gigabytes before it gives a byte.
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(io.BytesIO(raw)) as reader:
            return bytes(reader.read(most))
    except (zstandard.ZstdError, MemoryError) as error:
        raise zipfile.BadZipFile(str(error)) from error


@contextlib.contextmanager
def open_zip(path: Path) -> Iterator[Archive]:
    """An archive whose directory is within the limits; one that was cut is read entry by entry.

    Nothing is ever written to the disk.

    Raises:
        BadInput: no archive; entries too many, too large or overlapping; names that lead out of it.
    """
    try:
        with path.open("rb") as file:
            infos, cut = _directory(file)
            if not infos:
                raise BadInput("this is not a ZIP archive, or nothing of it is left", where=str(path))
            _check(infos, path)
            yield Archive(file, infos, path, cut)
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error.strerror}", where=str(path)) from error


def _directory(file: IO[bytes]) -> tuple[list[zipfile.ZipInfo], bool]:
    """The entries, and whether they had to be looked for: the directory, written last, is not there."""
    try:
        with zipfile.ZipFile(file) as packed:
            return packed.infolist(), False
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError, EOFError):
        return list(_salvaged(file)), True


def _salvaged(file: IO[bytes]) -> Iterator[zipfile.ZipInfo]:
    """The whole entries of an archive without a directory, by the headers that stand before them."""
    end = file.seek(0, io.SEEK_END)
    at = 0
    while at + 30 <= end:
        file.seek(at)
        header = file.read(30)
        if header[:4] != _LOCAL:
            return
        _, _, flags, method, _, _, crc, packed, size, named, more = struct.unpack("<4s5H3I2H", header)
        name, extra = file.read(named), file.read(more)
        if flags & 8:
            return  # its sizes stand behind it, where nothing says
        packed, size = _large(extra, packed, size)
        if at + 30 + named + more + packed > end:
            return
        info = zipfile.ZipInfo(name.decode("utf-8", errors="replace").partition("\0")[0] or "?")
        info.header_offset, info.compress_type, info.flag_bits = at, method, flags
        info.CRC, info.compress_size, info.file_size = crc, packed, size
        yield info
        at += 30 + named + more + packed


def _large(extra: bytes, packed: int, size: int) -> tuple[int, int]:
    """Sizes of an entry; those beyond 4 GB stand in the field of ZIP64."""
    at = 0
    while at + 4 <= len(extra) and 0xFFFFFFFF in (packed, size):
        kind, length = struct.unpack("<HH", extra[at : at + 4])
        # Before an entry, unlike in a directory, the field holds both sizes, the unpacked one first.
        if kind == 1 and length >= 16 and at + 20 <= len(extra):
            size, packed = struct.unpack("<QQ", extra[at + 4 : at + 20])
            break
        at += 4 + length
    return packed, size


def _check(infos: Sequence[zipfile.ZipInfo], path: Path) -> None:
    where = str(path)
    if len(infos) > ENTRIES:
        raise BadInput(f"the archive has {len(infos):,} entries, more than {ENTRIES:,}", where=where)
    total = 0
    for info in infos:
        _safe(info.filename, where)
        total += info.file_size
        if info.file_size > LARGEST:
            raise BadInput(f"{info.filename} unpacks to {info.file_size:,} bytes", where=where)
        if info.file_size > max(_SMALL, RATIO * info.compress_size):
            raise BadInput(
                f"{info.filename} unpacks to {info.file_size:,} bytes from {info.compress_size:,}",
                where=where,
            )
    if total > TOTAL:
        raise BadInput(f"the archive unpacks to {total:,} bytes", where=where)
    # A bomb of entries that share their bytes promises far more than the file holds.
    if sum(info.compress_size for info in infos) > path.stat().st_size:
        raise BadInput("entries of the archive overlap", where=where)


def _safe(name: str, where: str) -> None:
    """Refuse names that would leave the folder they were unpacked to, though nothing is unpacked here."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in name[:2] or "\0" in name:
        raise BadInput(f"the archive has an entry {name!r}, which leads out of it", where=where)
