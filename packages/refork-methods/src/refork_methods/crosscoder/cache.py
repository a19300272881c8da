"""Activations of two policies on the same texts or the same recorded tree, kept in a folder for training.

A folder holds a store for each policy, ``A`` and ``B``, and for texts the tree ``texts.db`` whose nodes
they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from refork.decoding.states import Layer
from refork.errors import BadInput, DrawConflict
from refork.jsonl import json_objects
from refork.policies.weights import require_weights
from refork.progress import Progress, silent
from refork.tree.address import is_address
from refork.tree.node import NewNode, Node
from refork.tree.tree import Tree
from refork.types import Json
from refork_methods.activations import ActivationStore, Dtype
from refork_methods.crosscoder.capture import record_activations
from refork_methods.crosscoder.classes import encoded_chunks
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.rank import Example
from refork_methods.crosscoder.sources import StorePairs, same_tokenizer

if TYPE_CHECKING:
    from refork.policies.local import LocalPolicy

Floats = NDArray[np.float32]
Which = Literal["last", "all"]


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text and what kind it is, if that is known."""

    text: str
    label: str | None = None


def read_texts(file: Path) -> list[LabelledText]:
    """Texts of a JSON-lines file: ``{"text": ..., "label": ...}``, the label optional.

    Raises: BadInput for a line without text, or no lines.
    """
    found = []
    with file.open(encoding="utf-8") as lines:
        for place, body in json_objects(lines, str(file)):
            if not isinstance(body.get("text"), str) or not body["text"]:
                raise BadInput("this line has no text", where=place, hint='{"text": "...", "label": "tool"}')
            label = body.get("label")
            found.append(LabelledText(body["text"], None if label is None else str(label)))
    if not found:
        raise BadInput("there are no texts", where=str(file))
    return found


def cache_texts(
    texts: Sequence[LabelledText],
    a: LocalPolicy,
    b: LocalPolicy,
    layers: Sequence[Layer],
    folder: Path,
    *,
    which: Which = "last",
    longest: int = 512,
    dtype: Dtype = "float32",
    progress: Progress = silent,
) -> Json:
    """Read texts with both policies and keep their hidden states; what was read before is passed over.

    Texts are read as they are, without chat template, cut to their first ``longest`` tokens; ``which`` tokens
    of each are kept. Returns texts and rows.

    Raises:
        WrongTokenizer: the policies' tokenisers differ.
        BadInput: a text without tokens, or one text under two labels.
    """
    same_tokenizer(a.card.tokenizer, b.card.tokenizer, "cache")
    folder.mkdir(parents=True, exist_ok=True)
    with Tree.open(folder / "texts.db") as tree:
        nodes = [_planted(tree, item, a, longest) for item in texts]
        return _record(
            tree,
            list(dict.fromkeys(nodes)),
            (a, b),
            layers,
            folder,
            which=which,
            dtype=dtype,
            progress=progress,
        )


def cache_tree(
    tree: Tree,
    a: LocalPolicy,
    b: LocalPolicy,
    layers: Sequence[Layer],
    folder: Path,
    *,
    which: Which = "all",
    dtype: Dtype = "float32",
    progress: Progress = silent,
) -> Json:
    """Read the actions of a recorded tree with both policies, whoever took them.

    Raises:
        WrongTokenizer: the policies' tokenisers differ.
        BadInput: the tree is in memory, or no action with token ids.
    """
    same_tokenizer(a.card.tokenizer, b.card.tokenizer, "cache")
    nodes = [node for node in tree.walk() if node.kind == "action" and node.length]
    if tree.uri is None or not nodes:
        raise BadInput(
            "there is no recorded action with token ids to read",
            where="cache",
            hint="a log gets them by `refork tree import NEW.db LOG --policy POLICY`",
        )
    folder.mkdir(parents=True, exist_ok=True)
    return _record(tree, nodes, (a, b), layers, folder, which=which, dtype=dtype, progress=progress)


def _planted(tree: Tree, item: LabelledText, policy: LocalPolicy, longest: int) -> Node:
    ids = policy.encode(item.text)[:longest]
    if not len(ids):
        raise BadInput("this text has no tokens", where=repr(item.text[:40]))
    text, ends = policy.codec.pieces(ids)
    body = f"{policy.card.tokenizer}\x1f{longest}\x1f{item.text}"
    draft = NewNode(
        kind="task",
        key=f"text/{hashlib.blake2b(body.encode(), digest_size=16).hexdigest()}",
        text=text,
        tokens=ids,
        offsets=ends,
        extra={"label": item.label},
    )
    try:
        return tree.append([draft])[0]
    except DrawConflict as error:
        raise BadInput(
            f"this text stands here under another label than {item.label!r}",
            where=repr(item.text[:40]),
            hint="give each text one label; a cache keeps those it was made with",
        ) from error


def _record(
    tree: Tree, nodes: Sequence[Node], policies: tuple[LocalPolicy, LocalPolicy], layers: Sequence[Layer],
    folder: Path, *, which: Which, dtype: Dtype, progress: Progress,
) -> Json:  # fmt: skip
    extra = {"tree": tree.uri, "which": which}
    rows = []
    for side, policy in zip(("A", "B"), policies, strict=True):
        store = ActivationStore.create(folder / side, layers, policy.card, dtype=dtype, extra=extra)
        # Both read what neither need have said.
        record_activations(tree, nodes, policy, store, which=which, any_weights=True, progress=progress)
        rows.append(len(store))
    return {"texts": len(nodes), "rows": rows[0], "layers": list(layers), "folder": str(folder)}


def open_cache(folder: Path, layer: Layer | None = None) -> StorePairs:
    """The pairs of a cache at one layer; None where only one was kept.

    Raises:
        BadInput: no cache, a layer that was not kept, or a choice that must be made.
        Mismatch: A and B hold different rows: caching was stopped half way.
    """
    a, b = (ActivationStore.open(folder / side) for side in ("A", "B"))
    if layer is None and len(a.layers) != 1:
        raise BadInput(f"this cache keeps layers {a.layers}", where=str(folder), hint="name one with --layer")
    return StorePairs(a, b, a.layers[0] if layer is None else layer)


def cache_for(model: CrossCoder, folder: Path) -> StorePairs:
    """The pairs of a cache at the layer a crosscoder was trained on, of the policies it was trained on.

    Raises:
        BadInput: the layer is not in the cache.
        WrongWeights: the cache is of other policies.
    """
    found = open_cache(folder, model.origin.get("layer"))
    for side, store in zip(("A", "B"), found.stores, strict=True):
        trained = dict(model.origin.get(side, {})).get("weights")
        require_weights(trained, store.meta["weights"], f"{folder}, model {side}")
    return found


@dataclass(frozen=True, slots=True)
class Encoded:
    """Feature values of every cached row [n, f], the node of each and which token of it."""

    values: Float[Floats, "n f"]
    nodes: list[str]
    index: NDArray[np.int32]

    def by_node(self, pool: Literal["last", "max"] = "last") -> tuple[list[str], Float[Floats, "m f"]]:
        """One row a node: its last kept token, or the largest value over its tokens."""
        names, first, inverse = np.unique(np.asarray(self.nodes), return_index=True, return_inverse=True)
        order = np.argsort(first)
        if pool == "max":
            pooled = np.zeros((len(names), self.values.shape[1]), np.float32)
            np.maximum.at(pooled, inverse, self.values)
        else:
            last = np.zeros(len(names), dtype=np.int64)
            # What is written last to a repeated index stays, so this is each node's last row.
            last[inverse] = np.arange(len(inverse))
            pooled = self.values[last]
        return [str(names[i]) for i in order], pooled[order]


def encode_cache(model: CrossCoder, source: StorePairs) -> Encoded:
    """Feature values of all rows of a cache."""
    values = np.concatenate([f.detach().numpy() for _, f in encoded_chunks(model, source)])
    return Encoded(values, source.stores[0].nodes, source.stores[0].index)


def cached_tree(source: StorePairs) -> Tree:
    """The tree whose nodes a cache is of, to read. Raises BadInput where it is no longer there."""
    place = str(source.stores[0].meta["extra"].get("tree", ""))
    if not (is_address(place) or Path(place).is_file()):
        raise BadInput("the tree of this cache is not there any more", where=place)
    return Tree.open(place, "r")


def labels_of(tree: Tree, nodes: Iterable[str], file: Path | None = None) -> dict[str, str]:
    """The label of each node that has one: what its text was cached with, or a JSON-lines file says.

    Raises: BadInput for a line without ``node`` and ``label``.
    """
    found = {n.id: str(n.extra["label"]) for n in tree.nodes(list(nodes)) if n.extra.get("label") is not None}
    if file is None:
        return found
    with file.open(encoding="utf-8") as lines:
        for place, body in json_objects(lines, str(file)):
            if "node" not in body or "label" not in body:
                raise BadInput("this line has no node and label", where=place)
            found[str(body["node"])] = str(body["label"])
    return found


def example_of(tree: Tree, encoded: Encoded, around: int = 40) -> Any:
    """A function that names the token of a row: its text and what stands before and behind in its node."""
    seen: dict[str, Node] = {}

    def example(row: int, value: float) -> Example:
        name, at = encoded.nodes[row], int(encoded.index[row])
        node = seen.setdefault(name, tree.node(name))
        if node.offsets is None or at < 0:
            return Example(value, f"token {at}", node.text[-around:], "")
        start, end = (int(node.offsets[at - 1]) if at else 0), int(node.offsets[at])
        before, after = node.text[max(0, start - around) : start], node.text[end : end + around]
        return Example(value, node.text[start:end], before, after)

    return example
