"""Hidden states of the target that training reads: computed again for every step, or kept on disk.

Of every token the context layers are read, and the last hidden state, from which the target's law is made
where it is needed (hidden states travel, logits do not).
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, Protocol, cast, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput, DiskFull, Mismatch
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.types import FloatArray, Json
from refork_methods.speculate.config import DraftConfig
from refork_methods.speculate.data import Example, data_digest

Precision = Literal["float32", "float16"]
_STATES: Final = "features.npy"
_ABOUT: Final = "features.json"
_CHUNK: Final = 64


class Features(Protocol):
    """Where the hidden states of examples come from."""

    def of(self, numbers: Sequence[int]) -> list[FloatArray]:
        """States [tokens, m + 1, width] of some examples: the context layers, then the last one."""
        ...


@final
class Recomputed:
    """States from a fresh pass of the target, each time they are asked for."""

    def __init__(self, target: LocalPolicy, examples: Sequence[Example], config: DraftConfig) -> None:
        self._target, self._examples = target, examples
        self._layers = (*config.target_layers, config.target_depth)

    def of(self, numbers: Sequence[int]) -> list[FloatArray]:
        """States of some examples."""
        found = self._target.hidden_states([self._examples[n].tokens for n in numbers], self._layers)
        return [states.transpose(1, 0, 2) for states in found]


@final
class Cached:
    """States from a memory-mapped file that was written once: all examples, one after the other."""

    def __init__(self, states: NDArray[np.floating], starts: NDArray[np.int64]) -> None:
        self._states, self._starts = states, starts

    def of(self, numbers: Sequence[int]) -> list[FloatArray]:
        """States of some examples."""
        at = self._starts
        return [np.asarray(self._states[at[n] : at[n + 1]], dtype=np.float32) for n in numbers]


def cache_bytes(examples: Sequence[Example], config: DraftConfig, precision: Precision = "float32") -> int:
    """How large the file of :func:`cache_features` will be."""
    return feature_bytes(sum(len(e.tokens) for e in examples), config, precision)


def feature_bytes(tokens: int, config: DraftConfig, precision: Precision = "float32") -> int:
    """How much the features of so many tokens take."""
    return tokens * (len(config.target_layers) + 1) * config.hidden * np.dtype(precision).itemsize


def cache_features(
    target: LocalPolicy,
    examples: Sequence[Example],
    config: DraftConfig,
    folder: Path,
    precision: Precision = "float32",
    progress: Progress = silent,
) -> Cached:
    """The states of all examples in a file, written once; a stopped call goes on where it was.

    float16 halves the file and rounds states to three digits, and the target's laws with them.

    Raises:
        Mismatch: the folder holds states of other examples, another target or other layers.
        BadInput: states that float16 cannot hold, or an unknown precision.
        DiskFull: the file cannot be written.
    """
    if precision not in ("float32", "float16"):
        raise BadInput(f"precision {precision!r} is not known", hint="float32 or float16")
    starts = np.concatenate([[0], np.cumsum([len(e.tokens) for e in examples])]).astype(np.int64)
    about = _about(target, examples, config, precision)
    size = _readable(cache_bytes(examples, config, precision))
    try:
        done = _done(folder, about)
        states = _open(
            folder, (int(starts[-1]), len(config.target_layers) + 1, config.hidden), precision, done
        )
        fresh = Recomputed(target, examples, config)
        stage = f"caching features ({size})"
        progress(stage, done, len(examples))
        while done < len(examples):
            numbers = range(done, min(done + _CHUNK, len(examples)))
            for n, found in zip(numbers, fresh.of(numbers), strict=True):
                states[starts[n] : starts[n + 1]] = _narrowed(found, precision)
            states.flush()
            done = numbers.stop
            _note(folder, about | {"done": done})
            progress(stage, done, len(examples))
    except ValueError as error:
        raise BadInput(f"these features cannot be read: {error}", where=str(folder / _STATES)) from error
    except OSError as error:
        raise DiskFull(f"the features could not be kept: {error}", where=str(folder)) from error
    return Cached(np.load(folder / _STATES, mmap_mode="r"), starts)


def _narrowed(states: FloatArray, precision: Precision) -> NDArray[np.floating]:
    if precision == "float16" and float(np.abs(states).max(initial=0.0)) > float(np.finfo(np.float16).max):
        raise BadInput(
            "these hidden states are too large for float16", where="feature cache", hint="keep float32"
        )
    return cast("NDArray[np.floating]", states.astype(precision))


def _about(
    target: LocalPolicy, examples: Sequence[Example], config: DraftConfig, precision: Precision
) -> Json:
    return {
        "target": target.card.weights,
        "tokenizer": target.card.tokenizer,
        "layers": [*config.target_layers, config.target_depth],
        "precision": precision,
        "data": data_digest(examples),
    }


def _done(folder: Path, about: Json) -> int:
    """How many examples a folder holds already."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / _ABOUT).exists() or not (folder / _STATES).exists():
        return 0
    try:
        kept = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        done = int(kept.pop("done"))
    except (ValueError, KeyError, AttributeError) as error:
        raise BadInput(f"this record cannot be read: {error}", where=str(folder / _ABOUT)) from error
    if kept != about:
        differ = sorted(k for k in about if kept.get(k) != about[k])
        raise Mismatch(
            f"this folder holds other features: {', '.join(differ)} differ",
            where=str(folder),
            hint="use another folder, or remove this one",
        )
    return done


def _open(folder: Path, shape: tuple[int, int, int], precision: Precision, done: int) -> np.memmap:
    if done:
        return np.lib.format.open_memmap(folder / _STATES, mode="r+")
    need, room = math.prod(shape) * np.dtype(precision).itemsize, shutil.disk_usage(folder).free
    if need > room:
        raise DiskFull(
            f"the features take {_readable(need)}, {_readable(room)} are free",
            where=str(folder),
            hint="recompute them for every step, use float16, or fewer prompts",
        )
    return np.lib.format.open_memmap(folder / _STATES, mode="w+", dtype=np.dtype(precision), shape=shape)


def _note(folder: Path, about: Json) -> None:
    part = folder / f".{_ABOUT}.part"
    part.write_text(json.dumps(about) + "\n", encoding="utf-8")
    part.replace(folder / _ABOUT)


def _readable(size: int) -> str:
    value = float(size)
    for unit in ("bytes", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
