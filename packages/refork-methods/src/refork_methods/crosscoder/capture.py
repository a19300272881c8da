"""Hidden states of a tree's tokens: recorded ones are read again, fresh ones kept as they are drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, final

import numpy as np

from refork.decoding.states import Capture, States
from refork.errors import BadInput, WrongTokenizer, WrongWeights
from refork.policies.base import Continuation, Request, Sampling
from refork.policies.whitebox import WhiteBox, white_box
from refork.progress import Progress, silent
from refork.tree.node import Node
from refork.tree.tree import Tree
from refork.types import IntArray
from refork_methods.activations import Activations, ActivationStore

Which = Literal["all", "first", "last"]
_AT_ONCE = 32


def record_activations(
    tree: Tree,
    nodes: Iterable[Node | str],
    policy: Any,
    store: ActivationStore,
    *,
    which: Which = "all",
    any_weights: bool = False,
    progress: Progress = silent,
) -> int:
    """Read recorded nodes with a local policy and keep their hidden states; returns rows added.

    ``which`` tokens of each node are kept. Nodes that the store holds already are passed over, so an
    interrupted run goes on where it stopped. Nodes without token ids add nothing. A node's tokens are read
    as drawn by the policy (see :class:`~refork.decoding.states.Edit`), what stands before as its prompt.

    Raises:
        CannotDo: the policy does not show hidden states.
        WrongWeights: a node was drawn with other weights, and ``any_weights`` is not set.
        WrongTokenizer: a token id is outside the vocabulary.
    """
    reader = white_box(policy)
    # By node and not by count: an interrupted run goes on where it stopped, whatever the order is now.
    done, before = store.done(), len(store)
    wanted = [tree.node(node) if isinstance(node, str) else node for node in nodes]
    open_ = [node for node in wanted if node.id not in done and node.length]
    for node in open_:
        _check_weights(node, reader, any_weights)
    told = len(wanted) - len(open_)
    progress("reading hidden states", told, len(wanted))
    for start in range(0, len(open_), _AT_ONCE):
        part = open_[start : start + _AT_ONCE]
        store.append(_read(tree, part, reader, store, which))
        told += len(part)
        progress("reading hidden states", told, len(wanted))
    store.flush()
    return len(store) - before


def _check_weights(node: Node, policy: WhiteBox, any_weights: bool) -> None:
    mine = policy.card.weights
    if not any_weights and None not in (node.weights, mine) and node.weights != mine:
        raise WrongWeights(
            f"drawn with weights {str(node.weights)[:12]}, read with {str(mine)[:12]}",
            where=f"node {node.id[:12]}",
            hint="any_weights=True reads what another model said",
        )
    size = policy.card.vocabulary
    if node.tokens is not None and size is not None and int(node.tokens.max()) >= size:
        raise WrongTokenizer(
            f"token id {int(node.tokens.max())} is outside the vocabulary of {size}",
            where=f"node {node.id[:12]}",
        )


def _read(
    tree: Tree, nodes: Sequence[Node], policy: WhiteBox, store: ActivationStore, which: Which
) -> Iterator[Activations]:
    trajectories = [path.tokens for path in tree.paths(nodes)]
    prompts = [len(trajectory) - node.length for trajectory, node in zip(trajectories, nodes, strict=True)]
    # A root's own first token counts as prompt: nothing stands before it that it could be drawn from.
    found = policy.hidden_states(trajectories, store.layers, [max(end, 1) for end in prompts], prompts)
    for node, states in zip(nodes, found, strict=True):
        assert node.tokens is not None
        index = _chosen(node.length, which)
        yield Activations(node.id, index, node.tokens[index], states.swapaxes(0, 1)[index])


def _chosen(count: int, which: Which) -> IntArray:
    if which not in ("all", "first", "last"):
        raise BadInput(f"{which!r} names no tokens of a node", hint="all, first or last")
    every = np.arange(count, dtype=np.int32)
    return every if which == "all" else every[:1] if which == "first" else every[-1:]


@final
class Capturing:
    """A policy that keeps the hidden states of all it draws, in the pass that draws it.

    Use it where a policy goes (``fork``, ``grow``), then :meth:`file` what it holds into a store under the
    nodes that were recorded; the last token of a prompt has index -1 there. What is held lies in memory:
    layers x width x 4 bytes a token.

    Raises:
        CannotDo: the policy does not show hidden states.
    """

    def __init__(self, policy: Any, capture: Capture) -> None:
        self.inner = white_box(policy)
        self.capture = capture
        self._held: dict[bytes, States] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def sample(self, requests: Sequence[Request], settings: Sampling) -> Iterator[Continuation]:
        """Draw as the inner policy does, and hold the states."""
        for item, states in self.inner.sample_captured(requests, settings, self.capture):
            prefix = requests[item.index].tokens
            self._held[_address(np.concatenate([prefix, item.tokens]), len(prefix))] = states
            yield item

    def file(self, tree: Tree, nodes: Iterable[Node], store: ActivationStore) -> int:
        """Write the states of nodes that were drawn here into a store and let them go; returns rows added.

        Raises:
            BadInput: the store keeps other layers.
        """
        if store.layers != self.capture.layers:
            raise BadInput(f"captured {self.capture.layers}, the store keeps {store.layers}")
        before = len(store)
        done = store.done()
        filed: set[bytes] = set()
        for node in nodes:
            if not node.length or node.id in done:
                continue
            trajectory = tree.path(node).tokens
            address = _address(trajectory, len(trajectory) - node.length)
            states = self._held.get(address)
            if states is not None:
                filed.add(address)
                store.append([_fresh(node.id, trajectory, node.length, states)])
        store.flush()
        # Equal draws are several nodes with the same states, so nothing goes before all are filed.
        for address in filed:
            del self._held[address]
        return len(store) - before


def _fresh(node: str, trajectory: IntArray, own: int, states: States) -> Activations:
    before, after = states.prefix.shape[1], states.fresh.shape[1]
    index = np.arange(-before, after, dtype=np.int32)
    parts = [part for part in (states.prefix, states.fresh) if part.shape[1]]
    joined = np.concatenate(parts, axis=1).swapaxes(0, 1)
    return Activations(node, index, trajectory[len(trajectory) - own + index], joined)


def _address(tokens: IntArray, prompt: int) -> bytes:
    """States depend on the tokens and, under some edits, on where the prompt ends; not on who drew them."""
    return hashlib.blake2b(tokens.astype("<i4").tobytes() + prompt.to_bytes(8, "little")).digest()
