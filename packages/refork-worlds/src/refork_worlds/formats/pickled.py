"""Pickles of other programs, read without running anything of theirs.

A pickle is a program: it may name any function and call it. Here plain containers are built, and of a short
list of classes only stand-ins that keep what they were given; every other name is refused before it is
looked up.
"""

from __future__ import annotations

import gzip
import math
import pickle
import pickletools
import zlib
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from refork.errors import BadInput

#: Bytes that a file may unpack to, screenshots included, and values that may be in it, repeats counted.
LARGEST, MOST = 8 << 30, 50_000_000


def _bytearray(data: bytes | str = b"", code: str = "latin-1") -> bytearray:
    """One with a content; a length alone would ask for any amount of memory."""
    return bytearray(data.encode(code) if isinstance(data, str) else bytes(memoryview(data)))


#: Containers that a pickle may build for itself.
_PLAIN: Final[dict[tuple[str, str], Any]] = {
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "bytearray"): _bytearray,
    ("builtins", "list"): list,
    ("builtins", "dict"): dict,
    ("collections", "OrderedDict"): dict,
}
#: Packages whose classes become stand-ins; nothing of them is imported.
_STOOD_FOR: Final = ("android_world", "android_env", "numpy", "datetime")
_NUMBERS: Final = {"f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "b1"}


class PickledObject:
    """What a class or function of another program was given: its arguments and its state."""

    name = ""

    def __new__(cls, *args: Any, **named: Any) -> PickledObject:
        """Keep the arguments."""
        made = super().__new__(cls)
        made.args, made.state = (*args, *named.values()), None
        return made

    def __init__(self, *args: Any, **named: Any) -> None:
        self.args: tuple[Any, ...]
        self.state: Any

    def __setstate__(self, state: Any) -> None:
        # Pixels are of no use here, and large.
        self.state = None if self.name.startswith("numpy.") and "_reconstruct" in self.name else state

    def __hash__(self) -> int:
        # What it stands for may be a key or a member of a set.
        return id(self)


@final
class _Reader(pickle.Unpickler):
    """Builds containers and stand-ins."""

    def find_class(self, module: str, name: str) -> Any:
        """A container, a stand-in, or a refusal."""
        if (module, name) in _PLAIN:
            return _PLAIN[module, name]
        if module.partition(".")[0] in _STOOD_FOR:
            return type(name.replace(".", "_"), (PickledObject,), {"name": f"{module}.{name}"})
        raise BadInput(
            f"the pickle names {module}.{name}, which is neither data nor a class of AndroidWorld",
            hint="a pickle can run any program: do not open it elsewhere unless you know who wrote it",
        )


def unpickled(path: Path) -> Any:
    """What a gzipped pickle holds: containers, texts, numbers and :class:`PickledObject` stand-ins.

    Raises:
        BadInput: no such pickle, or one that names anything else.
    """
    try:
        with gzip.open(path, "rb") as file:
            # Once through all of it before anything is built: a bad index asks for memory while it is read.
            _opcodes(_Bounded(file))
            file.seek(0)
            found = _Reader(_Bounded(file)).load()
        _countable(found)
        return found
    except BadInput as error:
        raise BadInput(error.what, where=str(path), hint=error.hint) from None
    except (OSError, EOFError, zlib.error, pickle.UnpicklingError) as error:
        raise BadInput(f"not a gzipped pickle: {error}", where=str(path)) from error
    except MemoryError:
        raise BadInput("the pickle asks for more memory than there is", where=str(path)) from None
    except Exception as error:  # damaged opcodes fail in as many ways as there are
        raise BadInput(f"the pickle is damaged: {error}"[:200], where=str(path)) from error


@final
class _Bounded:
    """A file that ends in BadInput where it is larger than any log."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file, self._left = file, LARGEST

    def read(self, count: int = -1) -> bytes:
        """As a file's."""
        return self._counted(self._file.read(min(count, self._left + 1) if count >= 0 else self._left + 1))

    def readline(self) -> bytes:
        """As a file's."""
        return self._counted(self._file.readline(self._left + 1))

    def _counted(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise BadInput(f"the file unpacks to more than {LARGEST} bytes")
        return data


def _opcodes(file: _Bounded) -> None:
    """Refuse a memo index that no earlier value can have: room for all below it would be made."""
    for number, (code, argument, _) in enumerate(pickletools.genops(file)):  # type: ignore[arg-type]
        if "PUT" in code.name and int(argument or 0) > number:
            raise BadInput("the pickle is damaged: it remembers more values than it has")


def _countable(found: Any) -> None:
    """Refuse values that hold themselves, or each other so often that to write them out has no end."""
    sizes: dict[int, int] = {}
    todo = [(found, False)]
    while todo:
        value, seen = todo.pop()
        inner = _inside(value)
        if not inner or (id(value) in sizes and not seen):
            if sizes.get(id(value)) == 0:
                raise BadInput("the pickle holds a value that holds itself")
            continue
        if not seen:
            # 0 while its parts are counted: whoever meets that again is inside itself.
            sizes[id(value)] = 0
            todo.append((value, True))
            todo.extend((one, False) for one in inner if _inside(one))
            continue
        sizes[id(value)] = size = sum(sizes.get(id(one), 1) for one in inner)
        if size > MOST:
            raise BadInput(f"the pickle holds more than {MOST} values, repeats counted")


def _inside(value: Any) -> list[Any]:
    """What a container or a stand-in holds."""
    if isinstance(value, PickledObject):
        return [*value.args, value.state]
    if isinstance(value, dict):
        return [*value, *value.values()]
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else []


def number(value: Any) -> float | None:
    """A number, also one that NumPy pickled; None where it is none, or NaN."""
    if isinstance(value, PickledObject) and value.name.endswith("multiarray.scalar") and len(value.args) == 2:
        kind, raw = value.args
        code = kind.args[0] if isinstance(kind, PickledObject) and kind.args else None
        if code in _NUMBERS and isinstance(raw, bytes) and len(raw) == np.dtype(code).itemsize:
            value = np.frombuffer(raw, dtype=code)[0].item()
    if not isinstance(value, (int, float)) or math.isnan(value):
        return None
    return float(value)


def fields(value: Any) -> dict[str, Any] | None:
    """The fields of a dictionary or of a stand-in for an object; None of anything else."""
    if isinstance(value, PickledObject):
        value = value.state
    return value if isinstance(value, dict) else None
