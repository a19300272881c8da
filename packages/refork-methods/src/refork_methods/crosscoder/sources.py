"""Where paired activations come from: arrays, two recorded stores, or two policies as training goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from refork.decoding.states import Layer
from refork.errors import BadInput, Mismatch, WrongTokenizer
from refork.types import IntArray, Json, token_array
from refork_methods.activations import ActivationStore

if TYPE_CHECKING:
    from refork.policies.local import LocalPolicy

Floats = NDArray[np.float32]


class Source(Protocol):
    """Paired activations in chunks that are read one at a time."""

    @property
    def d_in(self) -> tuple[int, int]:
        """Widths of A and B."""
        ...

    @property
    def sizes(self) -> tuple[int, ...]:
        """Pairs in each chunk."""
        ...

    def chunk(self, which: int) -> tuple[Float[Floats, "n a"], Float[Floats, "n b"]]:
        """One chunk: row i of A and row i of B are of the same token."""
        ...

    def origin(self) -> Json:
        """Layer and policies the activations are of, as far as known."""
        ...

    def digest(self) -> str:
        """Changes with the activations."""
        ...


@final
class ArrayPairs:
    """Two arrays in memory, [n, d_a] and [n, d_b]; row i of both belongs together.

    Raises: BadInput for arrays that are not matrices of equally many rows.
    """

    def __init__(self, a: Float[Any, "n a"], b: Float[Any, "n b"], origin: Json | None = None) -> None:
        self.a, self.b = np.asarray(a, dtype=np.float32), np.asarray(b, dtype=np.float32)
        if self.a.ndim != 2 or self.b.ndim != 2 or len(self.a) != len(self.b):
            raise BadInput(
                f"activations of shapes {self.a.shape} and {self.b.shape} are not pairs",
                where="activations",
                hint="row i of A and row i of B must be the same token of the same text",
            )
        self._origin = dict(origin or {})

    @property
    def d_in(self) -> tuple[int, int]:
        """Widths of A and B."""
        return self.a.shape[1], self.b.shape[1]

    @property
    def sizes(self) -> tuple[int, ...]:
        """One chunk: everything."""
        return (len(self.a),)

    def chunk(self, which: int) -> tuple[Floats, Floats]:
        """The arrays."""
        return self.a, self.b

    def origin(self) -> Json:
        """What the caller said."""
        return self._origin

    def digest(self) -> str:
        """Of both arrays' bytes."""
        return _digest(self.a, self.b)


@final
class StorePairs:
    """Two recorded stores of the same tokens, one policy each, read from disk chunk by chunk.

    ``layer`` is where both are read, or one layer for each.

    Raises:
        Mismatch: rows that are not the same tokens of the same nodes in the same order.
        WrongTokenizer: stores of policies whose tokenisers differ.
        BadInput: a layer that was not kept.
    """

    def __init__(
        self,
        a: ActivationStore,
        b: ActivationStore,
        layer: Layer | tuple[Layer, Layer],
        *,
        chunk_rows: int = 65_536,
    ) -> None:
        self.stores, self.layers = (a, b), layer if isinstance(layer, tuple) else (layer, layer)
        same_tokenizer(a.meta["tokenizer"], b.meta["tokenizer"], "activation stores")
        require_paired((a.nodes, b.nodes), (a.index, b.index), (a.tokens, b.tokens))
        for store, wanted in zip(self.stores, self.layers, strict=True):
            # Reads no row: it only asks the store for the layer, so that a wrong one is refused before
            # training.
            store.states(wanted, np.zeros(0, dtype=np.int64))
        if chunk_rows < 1:
            raise BadInput("a chunk needs one row at least", where="activation stores")
        self._rows = chunk_rows

    @property
    def d_in(self) -> tuple[int, int]:
        """Widths of A and B."""
        return self.stores[0].width, self.stores[1].width

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows in each chunk."""
        total = len(self.stores[0])
        return tuple(min(self._rows, total - start) for start in range(0, total, self._rows))

    def chunk(self, which: int) -> tuple[Floats, Floats]:
        """Rows of one chunk from both stores."""
        start = which * self._rows
        rows = np.arange(start, min(start + self._rows, len(self.stores[0])))
        a, b = (s.states(at, rows) for s, at in zip(self.stores, self.layers, strict=True))
        return a, b

    def origin(self) -> Json:
        """Layer, names, weights and tokenisers of both policies."""
        return {
            "layer": list(self.layers) if self.layers[0] != self.layers[1] else self.layers[0],
            "positions": "all",
            **{
                side: {"name": m["policy"], "weights": m["weights"], "tokenizer": m["tokenizer"]}
                for side, m in zip(("A", "B"), (s.meta for s in self.stores), strict=True)
            },
        }

    def digest(self) -> str:
        """Of both stores' tokens, and of what their policies were; states follow from these."""
        parts = [part for s in self.stores for part in (s.index, s.tokens)]
        about = repr((self.origin(), self.stores[0].nodes))
        return hashlib.sha256((_digest(*parts) + about).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Aligned:
    """One text under two tokenisers, and which positions of both belong together.

    ``at_a[j]`` and ``at_b[j]`` are the positions of pair j.
    """

    tokens_a: IntArray
    tokens_b: IntArray
    at_a: IntArray
    at_b: IntArray


@final
class PolicyPairs:
    """Activations of two policies on the same texts, computed chunk by chunk as training needs them.

    ``texts``: token ids that both policies read, or :class:`Aligned` texts where their tokenisers differ.
    ``layer`` is where both are read (see :class:`LocalPolicy`), or one layer for each. ``last_only`` keeps
    the last token of each text, as the paper does; else all tokens. ``texts_per_chunk`` bounds memory.

    Raises:
        BadInput: no texts, or positions outside one.
        WrongTokenizer: token ids for policies whose tokenisers differ.
    """

    def __init__(
        self,
        a: LocalPolicy,
        b: LocalPolicy,
        texts: Sequence[IntArray] | Sequence[Aligned],
        layer: Layer | tuple[Layer, Layer],
        *,
        last_only: bool = False,
        texts_per_chunk: int = 256,
    ) -> None:
        self.policies, self.layers = (a, b), layer if isinstance(layer, tuple) else (layer, layer)
        self.texts = [_aligned(text, a, b) for text in texts]
        if not self.texts or texts_per_chunk < 1:
            raise BadInput("there are no texts to read", where="activations")
        if last_only:
            self.texts = [Aligned(t.tokens_a, t.tokens_b, t.at_a[-1:], t.at_b[-1:]) for t in self.texts]
        self.last_only, self._per_chunk = last_only, texts_per_chunk
        first = self._read(self.texts[:1])
        self._d_in = (first[0].shape[1], first[1].shape[1])

    @property
    def d_in(self) -> tuple[int, int]:
        """Widths of A and B."""
        return self._d_in

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tokens in each chunk."""
        return tuple(sum(len(t.at_a) for t in part) for part in self._parts())

    def chunk(self, which: int) -> tuple[Floats, Floats]:
        """Activations of one chunk's texts, freshly computed."""
        return self._read(self._parts()[which])

    def origin(self) -> Json:
        """Layer, names, weights and tokenisers of both policies."""
        cards = [policy.card for policy in self.policies]
        return {
            "layer": list(self.layers) if self.layers[0] != self.layers[1] else self.layers[0],
            "positions": "last" if self.last_only else "all",
            **{
                side: {"name": c.name, "weights": c.weights, "tokenizer": c.tokenizer}
                for side, c in zip(("A", "B"), cards, strict=True)
            },
        }

    def digest(self) -> str:
        """Of texts, layers and both policies' weights."""
        parts = [part for t in self.texts for part in (t.tokens_a, t.tokens_b, t.at_a, t.at_b)]
        return hashlib.sha256((_digest(*parts) + repr(self.origin())).encode()).hexdigest()

    def _parts(self) -> list[list[Aligned]]:
        n = self._per_chunk
        return [self.texts[i : i + n] for i in range(0, len(self.texts), n)]

    def _read(self, texts: Sequence[Aligned]) -> tuple[Floats, Floats]:
        tokens = ([t.tokens_a for t in texts], [t.tokens_b for t in texts])
        places = ([t.at_a for t in texts], [t.at_b for t in texts])
        a, b = (
            np.concatenate([s[0][at] for s, at in zip(_states(p, ids, layer), where, strict=True)])
            for p, ids, where, layer in zip(self.policies, tokens, places, self.layers, strict=True)
        )
        return a, b


def _states(policy: LocalPolicy, tokens: Sequence[IntArray], layer: Layer) -> Sequence[Floats]:
    return policy.hidden_states(tokens, [layer])


def same_tokenizer(a: str | None, b: str | None, where: str) -> None:
    """Refuse two tokenisers that are known to differ.

    Raises: WrongTokenizer.
    """
    if a is not None and b is not None and a != b:
        raise WrongTokenizer(
            f"the tokenisers differ ({a[:12]} and {b[:12]}), so equal positions are not equal text",
            where=where,
            hint="give Aligned texts that say which positions belong together",
        )


def _aligned(text: IntArray | Aligned, a: LocalPolicy, b: LocalPolicy) -> Aligned:
    if not isinstance(text, Aligned):
        same_tokenizer(a.card.tokenizer, b.card.tokenizer, "activations")
        ids = token_array(text)
        at = token_array(np.arange(len(ids)))
        return Aligned(ids, ids, at, at)
    if len(text.at_a) != len(text.at_b) or not len(text.at_a):
        raise BadInput("an alignment pairs as many positions of A as of B, one at least", where="alignment")
    for at, ids in ((text.at_a, text.tokens_a), (text.at_b, text.tokens_b)):
        if at.min() < 0 or at.max() >= len(ids):
            raise BadInput(f"position {int(at.max())} lies outside a text of {len(ids)}", where="alignment")
    return text


def require_paired(
    nodes: tuple[Sequence[str], Sequence[str]],
    positions: tuple[IntArray, IntArray],
    tokens: tuple[IntArray, IntArray],
) -> None:
    """Refuse rows of two stores that are not the same tokens in the same order.

    Raises: Mismatch, naming the first row that differs.
    """
    if len(positions[0]) != len(positions[1]):
        raise Mismatch(
            f"{len(positions[0])} rows of A and {len(positions[1])} of B are not pairs",
            where="activation stores",
            hint="record both policies on the same nodes of the same tree",
        )
    differ = (
        (np.asarray(nodes[0]) != np.asarray(nodes[1]))
        | (positions[0] != positions[1])
        | (tokens[0] != tokens[1])
    )
    if differ.any():
        at = int(np.flatnonzero(differ)[0])
        raise Mismatch(
            f"row {at} is token {int(positions[0][at])} of node {nodes[0][at]} for A "
            f"and token {int(positions[1][at])} of node {nodes[1][at]} for B",
            where="activation stores",
            hint="record both policies on the same nodes of the same tree, in the same order",
        )


def _digest(*arrays: NDArray[Any]) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()
