"""Hidden states beside a tree: memory-mapped safetensors shards that know their nodes and tokens.

A folder holds ``meta.json`` (layers, dtype, who was read) and numbered shards. Each is a safetensors file
with ``states`` [n, layers, width], ``node`` [n] (a place in the list of node ids in its metadata), ``index``
[n] (which token of that node; -1: the one before its first) and ``token`` [n] (its id). It appears as a whole
or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from refork.decoding.states import Layer
from refork.errors import BadInput
from refork.policies.base import PolicyCard
from refork.tree.tree import Tree
from refork.types import FloatArray, IntArray, Json

VERSION = 1
SHARD_BYTES = 64 << 20
"""States of about this size are written at once."""

Dtype = Literal["float32", "float16"]


@dataclass(frozen=True, slots=True, eq=False)
class Activations:
    """Hidden states of tokens of one node: which tokens [n], their ids [n], states [n, layers, width]."""

    node: str
    index: IntArray
    tokens: IntArray
    states: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Shard:
    """One file, mapped."""

    nodes: list[str]
    states: NDArray[Any]
    node: NDArray[np.int32]
    index: NDArray[np.int32]
    token: NDArray[np.int32]


def activations_folder(tree: Tree, name: str) -> Path:
    """Where activations of a name lie beside a tree's file.

    Raises:
        BadInput: the tree has no file.
    """
    if tree.file is None:
        where = tree.uri or "in memory"
        raise BadInput(
            "only a tree file has files beside it", where=where, hint="name a folder for the activations"
        )
    return tree.file.with_name(tree.file.name + ".activations") / name


@final
class ActivationStore:
    """Activations of one policy at some layers; rows are tokens, in the order they were written.

    Append on one side, read on any number: a reader sees the shards that were there when it opened.
    """

    def __init__(self, folder: Path, meta: Json) -> None:
        self.folder, self.meta = folder, meta
        self.layers: tuple[Layer, ...] = tuple(meta["layers"])
        self._held: list[Activations] = []
        self._bytes = 0
        self._shards = [_mapped(file) for file in sorted(folder.glob("*.safetensors"))]
        self._starts = np.cumsum([0, *(len(shard.token) for shard in self._shards)])

    @classmethod
    def create(
        cls,
        folder: Path | str,
        layers: Sequence[Layer],
        card: PolicyCard,
        *,
        dtype: Dtype = "float16",
        extra: Json | None = None,
    ) -> Self:
        """A store to append to; one that is there is continued if it holds the same kind of thing.

        Raises:
            BadInput: the folder holds activations of another kind, or something else.
        """
        if dtype not in ("float32", "float16"):
            raise BadInput(f"activations cannot be kept as {dtype!r}", hint="float16 or float32")
        place = Path(folder)
        meta: Json = {
            "version": VERSION,
            "layers": list(layers),
            "dtype": dtype,
            "policy": card.name,
            "weights": card.weights,
            "tokenizer": card.tokenizer,
            "extra": extra or {},
        }
        if (place / "meta.json").exists():
            found = cls.open(place)
            differ = sorted(key for key in meta if found.meta.get(key) != meta[key])
            if differ:
                told = ", ".join(f"{key} {found.meta.get(key)!r}, not {meta[key]!r}" for key in differ)
                raise BadInput(
                    f"this folder holds other activations: {told}",
                    where=str(place),
                    hint="name another folder",
                )
            return found
        if place.exists() and any(place.iterdir()):
            raise BadInput("this folder holds something else", where=str(place), hint="name another folder")
        place.mkdir(parents=True, exist_ok=True)
        _write(place / "meta.json", json.dumps(meta, indent=2).encode() + b"\n")
        return cls(place, meta)

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """The activations in a folder.

        Raises:
            BadInput: there are none, or they were written by a later version.
        """
        place = Path(folder)
        try:
            meta = json.loads((place / "meta.json").read_text())
            version = int(meta["version"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInput("there are no activations here", where=str(place)) from error
        if version > VERSION:
            raise BadInput(f"activations of version {version}; this is {VERSION}", where=str(place))
        return cls(place, meta)

    # -- writing --------------------------------------------------------------------------------

    def append(self, items: Iterable[Activations]) -> None:
        """Take activations in; they are safe after the next :meth:`flush`, which also comes by itself.

        Raises:
            BadInput: arrays that do not fit each other or the store.
        """
        for item in items:
            self._check(item)
            self._held.append(item)
            self._bytes += item.states.nbytes
            if self._bytes >= SHARD_BYTES:
                self.flush()

    def flush(self) -> None:
        """Write what is held as one shard."""
        from safetensors.numpy import save

        held = self._held
        if not held:
            return
        shards = sorted(self.folder.glob("*.safetensors"))
        if len(shards) != len(self._shards):
            raise BadInput(
                "somebody else has written to these activations meanwhile",
                where=str(self.folder),
                hint="let one process write at a time, and open the folder anew",
            )
        # Not their count: one of them may have been removed.
        file = self.folder / f"{int(shards[-1].stem) + 1 if shards else 0:06d}.safetensors"
        self._held, self._bytes = [], 0
        nodes: dict[str, int] = {}
        numbers = [nodes.setdefault(item.node, len(nodes)) for item in held]
        states = np.concatenate([item.states for item in held])
        tensors = {
            # safetensors writes memory as it lies, whatever the strides say.
            "states": np.ascontiguousarray(states, dtype=self.meta["dtype"]),
            "node": np.repeat(np.array(numbers, dtype=np.int32), [len(item.tokens) for item in held]),
            "index": np.concatenate([item.index for item in held]).astype(np.int32),
            "token": np.concatenate([item.tokens for item in held]).astype(np.int32),
        }
        _write(file, save(tensors, metadata={"nodes": json.dumps(list(nodes))}))
        self._shards.append(_mapped(file))
        self._starts = np.append(self._starts, self._starts[-1] + len(tensors["token"]))

    def _check(self, item: Activations) -> None:
        count = len(item.tokens)
        fits = item.states.shape[:2] == (count, len(self.layers)) and len(item.index) == count
        width = self.width if self._shards or self._held else item.states.shape[-1]
        if not fits or item.states.ndim != 3 or item.states.shape[2] != width:
            raise BadInput(
                f"states of {item.states.shape} for {count} tokens at {len(self.layers)} layers",
                where=f"node {item.node[:12]}",
                hint=f"states are [tokens, {len(self.layers)}, {width}]",
            )
        if not np.isfinite(item.states.astype(self.meta["dtype"])).all():
            raise BadInput(
                f"states that {self.meta['dtype']} cannot hold",
                where=f"node {item.node[:12]}",
                hint="keep them as float32",
            )

    # -- reading --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def width(self) -> int:
        """Hidden size; 0 while nothing is kept."""
        if self._shards:
            return int(self._shards[0].states.shape[2])
        return int(self._held[0].states.shape[2]) if self._held else 0

    @property
    def nodes(self) -> list[str]:
        """Node of every row."""
        return [shard.nodes[number] for shard in self._shards for number in shard.node]

    @property
    def index(self) -> IntArray:
        """Which token of its node every row is: [N]."""
        return self._joined([shard.index for shard in self._shards])

    @property
    def tokens(self) -> IntArray:
        """Token id of every row: [N]."""
        return self._joined([shard.token for shard in self._shards])

    def done(self) -> set[str]:
        """Nodes that have rows."""
        return {node for shard in self._shards for node in shard.nodes}

    def states(self, layer: Layer, rows: Any = None) -> FloatArray:
        """Hidden states [n, width] of one layer as float32, of some rows (numbers or a mask) or of all.

        Raises:
            BadInput: the layer was not kept, or a row that is not there.
        """
        if layer not in self.layers:
            raise BadInput(
                f"layer {layer!r} was not kept", where=str(self.folder), hint=f"kept: {self.layers}"
            )
        place = self.layers.index(layer)
        chosen = np.arange(len(self)) if rows is None else np.asarray(rows)
        if chosen.dtype == bool:
            chosen = np.flatnonzero(chosen)
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(self):
            raise BadInput(f"rows beyond the {len(self)} that are kept", where=str(self.folder))
        out = np.empty((len(chosen), self.width), dtype=np.float32)
        # Shard by shard: each is mapped, and rows of one lie together on the disk.
        where = np.searchsorted(self._starts, chosen, side="right") - 1
        for number in np.unique(where):
            mine = where == number
            out[mine] = self._shards[number].states[chosen[mine] - self._starts[number], place]
        return out

    @staticmethod
    def _joined(arrays: list[NDArray[np.int32]]) -> IntArray:
        return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32)


def _mapped(file: Path) -> _Shard:
    """A shard whose arrays stay on disk until they are read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as opened:
            metadata = opened.metadata()
            small = {name: opened.get_tensor(name) for name in ("node", "index", "token")}
        with file.open("rb") as raw:
            size = int.from_bytes(raw.read(8), "little")
            header = json.loads(raw.read(size))["states"]
        # By hand: safetensors would copy the tensor into memory. Its data begin behind length and header.
        states = np.memmap(
            file,
            dtype={"F16": np.float16, "F32": np.float32}[header["dtype"]],
            mode="r",
            offset=8 + size + header["data_offsets"][0],
            shape=tuple(header["shape"]),
        )
        return _Shard(json.loads(metadata["nodes"]), states, **small)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"not a shard of activations: {error}", where=str(file), hint="remove it and record again"
        ) from error


def _write(file: Path, data: bytes) -> None:
    """Write a file so that it is there as a whole or not at all."""
    # The name ends in the process, not in .safetensors: no reader takes a half-written file for a shard.
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    with scratch.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    scratch.replace(file)
