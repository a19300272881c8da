"""Attention of packed branches over shared prefixes and their own suffixes.

A forward pass is one row of N packed tokens; a row of the packed batch is one query. Its keys are the
first ``keep`` positions of its trace (shared: column j of the scores is absolute position j) and, while
decoding, what the branch said since (own columns, after all prefix columns). One softmax runs over both.

What makes a row's bits independent of its neighbours: matrix products have a multiple of eight rows or
many, products with values are summed in blocks of BLOCK absolute positions in one order, and whatever
is padded adds exact zeros at the end of a sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, final

import torch
from torch import Tensor

from refork.decoding.alone import Alone, Bias, exact, softmax, with_sinks
from refork.decoding.plan import BLOCK
from refork.decoding.stack import LayerShape, Stack
from refork.errors import CannotDo, InternalError

NAME = "refork_branches"

_LIBRARY = "transformers.masking_utils"

_NOTHING = frozenset(
    {
        "sliding_window",  # the mask says it too, and only the mask is what every implementation obeys
        "position_ids",
        "cache_position",
        "use_cache",
        "output_hidden_states",
        "output_router_logits",
        "return_dict",
    }
)
"""Arguments of an attention call that change nothing of it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Which earlier positions a query sees: all, the last ``window`` (its own included), those of its chunk.

    Models get it in place of a mask and hand it on to their attention.
    """

    window: int | None = None
    chunk: int | None = None

    @property
    def ndim(self) -> int:
        """It has no axes, by which models that would add something to a mask know that there is none."""
        return 0

    def to(self, *_: Any, **__: Any) -> Rule:
        """Itself: some models ask for a mask of another dtype."""
        return self

    def __getattr__(self, name: str) -> Any:
        """Refuse models that would read or change a mask. Raises CannotDo."""
        # Python asks for such names itself to learn what an object can, and takes this error alone for a no.
        if name.startswith("__"):
            raise AttributeError(name)
        raise CannotDo("it works on its attention mask itself")

    def __getitem__(self, _: Any) -> Any:
        """Refuse models that would cut a mask. Raises CannotDo."""
        raise CannotDo("it works on its attention mask itself")


def _smaller(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _mask(*, mask_function: Any, **_: Any) -> Rule:
    """What transformers calls for a mask: the rule in the function that would fill it."""
    return _rule(mask_function)


def _rule(function: Any) -> Rule:
    """What a mask function of transformers allows, found in what it is composed of.

    The tokens of a pass look like packed sequences, so functions that keep those apart are seen through.

    Raises:
        CannotDo: something else decides what is seen.
    """
    # transformers hands over closures that say nothing of themselves but their names and free variables.
    name = getattr(function, "__qualname__", "") if getattr(function, "__module__", "") == _LIBRARY else ""
    cells = function.__closure__ or () if name else ()
    names = function.__code__.co_freevars if name else ()
    held = {freed: cell.cell_contents for freed, cell in zip(names, cells, strict=True)}
    if name in ("causal_mask_function", "packed_sequence_mask_function.<locals>.inner_mask"):
        return Rule()
    if name == "sliding_window_overlay.<locals>.inner_mask":
        return Rule(window=int(held["sliding_window"]))
    if name == "chunked_overlay.<locals>.inner_mask":
        return Rule(chunk=int(held["chunk_size"]))
    if name == "remap_positions_for_packed_sequence.<locals>.inner_mask":
        return _rule(held["mask_function"])
    if name != "and_masks.<locals>.and_mask":
        raise CannotDo("its attention mask is none that this decoder knows")
    whole = Rule()
    for part in held["mask_functions"]:
        rule = _rule(part)
        if whole.chunk is not None and rule.chunk not in (None, whole.chunk):
            raise CannotDo("its attention mask has chunks of two sizes")
        whole = Rule(_smaller(whole.window, rule.window), rule.chunk or whole.chunk)
    return whole


@dataclass(frozen=True, slots=True)
class StackProduct:
    """Rows of the batch against one stack's first ``width`` positions.

    Dense: ``rows`` is a slice of many rows that all read run ``item``; with ``tall`` a few, computed with
    those behind them, so many in all. Stacked: run ``items[i]`` (None: run i) is read by rows ``padded[i]``
    [M], of which the flat places ``taken`` are real and belong to batch rows ``rows``.
    """

    stack: Stack
    width: int
    rows: slice | Tensor
    item: int = 0
    tall: int = 0
    items: Tensor | None = None
    padded: Tensor | None = None
    taken: Tensor | None = None

    def score(self, layer: int, query: Tensor, scores: Tensor) -> None:
        """Add query-key products to ``scores`` [N, H, C]; ``query`` is [N, H, d], scaled."""
        start = self.stack.start
        part = scores[:, :, start : start + self.width]
        keys = exact(self._run(self.stack.keys[layer]))
        if not isinstance(self.rows, slice):
            self._stacked(part, query, keys.transpose(-1, -2))
        elif not self.tall:
            self._dense(part[self.rows], query[self.rows], keys.transpose(-1, -2))
        else:
            found = torch.bmm(self._few(query, keys.shape[0]), keys.transpose(-1, -2))
            part[self.rows].add_(self._whole(found, query.shape[1]))

    def mix(self, layer: int, weights: Tensor, out: Tensor) -> None:
        """Add weighted values to ``out`` [N, H, d], block after block of absolute positions."""
        values = exact(self._run(self.stack.values[layer]))
        start = self.stack.start
        part = weights[:, :, start : start + self.width]
        if not isinstance(self.rows, slice):
            self._stacked(out, part, values, BLOCK)
        elif not self.tall:
            for at in range(0, self.width, BLOCK):
                block = slice(at, at + BLOCK)
                self._dense(out[self.rows], part[self.rows][..., block], values[..., block, :])
        else:
            heads = values.shape[0]
            total, mine = self._few(out, heads), self._few(part, heads)
            for at in range(0, self.width, BLOCK):
                total.baddbmm_(mine[:, :, at : at + BLOCK], values[:, at : at + BLOCK])
            out[self.rows] = self._whole(total, out.shape[1])

    def _run(self, tensor: Tensor) -> Tensor:
        if isinstance(self.rows, slice):
            return tensor[self.item, :, : self.width]
        return (tensor if self.items is None else tensor[self.items])[:, :, : self.width]

    def _few(self, tensor: Tensor, heads: int) -> Tensor:
        """A copy [heads, tall * group, k] of some rows of [N, H, k] and those behind them."""
        first, tall = self.rows.start, self.tall  # type: ignore[union-attr]
        rows = tensor[first : first + tall]
        if len(rows) < tall:
            rows = torch.nn.functional.pad(rows, (0, 0, 0, 0, 0, tall - len(rows)))
        split = rows.view(tall, heads, rows.shape[1] // heads, rows.shape[2])
        return (
            split.transpose(0, 1).clone(memory_format=torch.contiguous_format).view(heads, -1, rows.shape[2])
        )

    def _whole(self, tensor: Tensor, heads: int) -> Tensor:
        """The inverse, without the rows behind: [rows, H, k] of [kv heads, tall * group, k]."""
        split = tensor.view(tensor.shape[0], self.tall, -1, tensor.shape[2]).transpose(0, 1)
        count = self.rows.stop - self.rows.start  # type: ignore[union-attr]
        return split[:count].reshape(count, heads, tensor.shape[2])

    @staticmethod
    def _dense(out: Tensor, left: Tensor, right: Tensor) -> None:
        """Out [M, H, n] += left [M, H, k] @ right [heads, k, n], grouped heads one at a time."""
        # Query heads of one key head lie side by side, so every group-th of them belongs to another key head.
        group = out.shape[1] // right.shape[0]
        for g in range(group):
            out[:, g::group].transpose(0, 1).baddbmm_(left[:, g::group].transpose(0, 1), right)

    def _stacked(self, out: Tensor, left: Tensor, right: Tensor, unit: int | None = None) -> None:
        """Out [N, H, n] += left [N, H, k] @ right [runs, heads, k, n], for the rows of each run.

        The sum over k is made ``unit`` after unit.
        """
        if self.padded is None or self.taken is None or isinstance(self.rows, slice):
            raise InternalError("a stacked product needs its row table")
        runs, heads = right.shape[:2]
        tall, group = self.padded.shape[1], out.shape[1] // heads
        flat = (runs * heads, tall * group, -1)

        def gather(tensor: Tensor) -> Tensor:
            picked = tensor[self.padded].view(runs, tall, heads, group, tensor.shape[-1])
            # A view, where it would do, is ten times slower: products into strided memory go head by head.
            return picked.transpose(1, 2).reshape(flat).contiguous()

        right = right.reshape(runs * heads, right.shape[2], right.shape[3])
        total, mine = gather(out), gather(left)
        size = mine.shape[2]
        for at in range(0, size, unit or size):
            piece = slice(at, at + (unit or size))
            total.baddbmm_(mine[:, :, piece], right[:, piece])
        total = (
            total.view(runs, heads, tall, group, -1).transpose(1, 2).reshape(runs * tall, -1, out.shape[-1])
        )
        out[self.rows] = total[self.taken]


class Own(Protocol):
    """What branches said themselves, as the attention of one pass reads and extends it."""

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Put the pass's keys and values [N, heads, width] where they belong."""
        ...

    def score(self, layer: int, query: Tensor, scores: Tensor) -> None:
        """Add query-key products to the own columns of ``scores`` [N, H, C]."""
        ...

    def mix(self, layer: int, weights: Tensor, out: Tensor) -> None:
        """Add weighted values to ``out`` [N, H, d]."""
        ...


@final
@dataclass(slots=True)
class OwnPart:
    """What N branches said themselves: where each writes now, and how many columns are in use."""

    stack: Stack
    lengths: Tensor
    uniform: int | None
    columns: int

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Put this step's keys and values [N, heads, width] behind each branch's own tokens."""
        rows = keys.shape[0]
        store_k, store_v = self.stack.keys[layer], self.stack.values[layer]
        if self.uniform is not None:
            store_k[:rows, :, self.uniform] = keys
            store_v[:rows, :, self.uniform] = values
        else:
            index = torch.arange(rows, device=keys.device)
            store_k[index, :, self.lengths] = keys
            store_v[index, :, self.lengths] = values

    def score(self, layer: int, query: Tensor, scores: Tensor) -> None:
        """Add query-key products to the own columns of ``scores`` [N, H, C]."""
        rows, heads, width = query.shape
        keys = exact(self.stack.keys[layer][:rows].flatten(0, 1)[:, : self.columns])
        flat = query.reshape(keys.shape[0], -1, width)
        # Straight into the strided scores this product is ten times slower.
        own = torch.bmm(flat, keys.transpose(1, 2)).view(rows, heads, self.columns)
        scores[:, :, scores.shape[-1] - self.columns :].add_(own)

    def mix(self, layer: int, weights: Tensor, out: Tensor) -> None:
        """Add weighted values to ``out`` [N, H, d], block after block."""
        rows = out.shape[0]
        values = exact(self.stack.values[layer][:rows].flatten(0, 1)[:, : self.columns])
        flat = out.view(values.shape[0], -1, out.shape[-1])
        mine = weights.view(values.shape[0], flat.shape[1], -1)[:, :, weights.shape[-1] - self.columns :]
        for at in range(0, self.columns, BLOCK):
            flat.baddbmm_(mine[:, :, at : at + BLOCK], values[:, at : at + BLOCK])


@final
@dataclass(slots=True)
class Write:
    """Rows of the batch whose keys and values go to a stack."""

    stack: Stack
    rows: Tensor
    items: Tensor
    offsets: Tensor


@final
@dataclass(slots=True)
class AttentionTrace:
    """What a first pass shows of each attention layer: its shape, and what it was given."""

    shapes: dict[int, LayerShape] = field(default_factory=dict)
    given: dict[int, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)

    def note(self, layer: int, name: str, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Keep a call's rows [N, heads, width] and answer zeros.

        Raises:
            CannotDo: the layer attends twice.
        """
        if layer in self.shapes:
            raise CannotDo(f"{name} attends more than once in layer {layer}")
        heads = key.shape[1]
        self.shapes[layer] = LayerShape(heads, query.shape[1] // heads, key.shape[2], value.shape[2])
        self.given[layer] = query.clone(), key.clone(), value.clone()
        return value.new_zeros((query.shape[0], query.shape[1], value.shape[2]))


@final
@dataclass(slots=True)
class AttentionPlan:
    """All that attention needs to know in one forward pass of N packed rows.

    ``mask`` [N, C] is 0 where a row may probe and -inf elsewhere. ``reach`` [N, C] holds the absolute
    position of each column and ``positions`` [N] those of the queries, for windows, chunks and biases.
    ``alone``: all tokens are one branch's. ``beyond`` [N]: whose contexts are longer than the model's switch,
    where it has one (None: those whose own position is behind it).
    """

    mask: Tensor
    reach: Tensor
    positions: Tensor
    furthest: int
    products: Sequence[StackProduct]
    writes: Sequence[Write] = ()
    own: Own | None = None
    alone: Alone | None = None
    scratch: dict[str, Tensor] = field(default_factory=dict)
    trace: AttentionTrace | None = None
    beyond: Tensor | None = None
    _visibles: dict[Rule, Tensor] = field(default_factory=dict)
    _biases: dict[Bias, Tensor] = field(default_factory=dict)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: How) -> Tensor:
        """Attention output [N, H, d] of packed query [N, H, d], key and value [N, heads, d].

        The query is :func:`exact`, the output of the values' own format.
        """
        # First of all, for a token attends to itself and to those before it in the same pass.
        for item in self.writes:
            item.stack.write(layer, item.items, item.offsets, key[item.rows], value[item.rows])
        if self.own is not None:
            self.own.write(layer, key, value)
        mask = self._visible(how.rule)
        size, columns = query.shape[:2], self.mask.shape[1]
        whole = self._buffer("scores", (*size, columns + with_sinks(how.sinks)), query)
        scores = whole[..., :columns]
        # The products are added to the mask in one go; a softcap must not see it, so there it comes last.
        if how.softcap is None:
            scores.copy_(mask[:, None, :])
        else:
            scores.zero_()
        for product in self.products:
            product.score(layer, query, scores)
        if self.own is not None:
            self.own.score(layer, query, scores)
        if how.softcap is not None:
            scores.div_(how.softcap).tanh_().mul_(how.softcap).add_(mask[:, None, :])
        weights = self._weights(whole, columns, how)
        out = self._buffer("out", (*size, value.shape[2]), query).zero_()
        for product in self.products:
            product.mix(layer, weights, out)
        if self.own is not None:
            self.own.mix(layer, weights, out)
        return out.to(value.dtype)

    def _weights(self, whole: Tensor, columns: int, how: How) -> Tensor:
        """Weights [N, H, C] of masked scores, which are the first ``columns`` of ``whole``."""
        if how.bias is not None:
            whole[..., :columns].add_(self._biased(how.bias).transpose(0, 1))
        if how.sinks is not None:
            whole[..., columns] = how.sinks
            whole[..., columns + 1 :] = -torch.inf
        return softmax(whole)[..., :columns]

    def attend_alone(
        self, alone: Alone, layer: int, heads: tuple[Tensor, Tensor, Tensor], how: How
    ) -> Tensor:
        """Attention output [N, H, d] of one branch's heads."""
        query, key, value = heads
        alone.write(layer, key, value)
        bias = None if how.bias is None else self._biased(how.bias)
        found = alone.attend(layer, query, self._visible(how.rule), how.softcap, bias, how.sinks)
        return found.to(value.dtype)

    def _visible(self, rule: Rule) -> Tensor:
        """The mask, narrowed to a window or to chunks where some row is past the first."""
        # Within the first window every position is seen, and the mask is shared by all layers.
        narrow = rule.window is not None and self.furthest >= rule.window
        chunked = rule.chunk is not None and self.furthest >= rule.chunk
        if not narrow and not chunked:
            return self.mask
        if rule not in self._visibles:
            found, mine = self.mask, self.positions[:, None]
            if narrow and rule.window is not None:
                found = found.masked_fill(self.reach <= mine - rule.window, -torch.inf)
            if chunked and rule.chunk is not None:
                found = found.masked_fill(self.reach < mine // rule.chunk * rule.chunk, -torch.inf)
            self._visibles[rule] = found
        return self._visibles[rule]

    def _biased(self, bias: Bias) -> Tensor:
        """What is added to the scores: [H, N or 1, C], the same for all layers that share ``bias``."""
        if bias not in self._biases:
            self._biases[bias] = bias(self.reach, self.positions).to(self.mask.dtype)
        return self._biases[bias]

    def _buffer(self, name: str, size: tuple[int, ...], like: Tensor) -> Tensor:
        """Memory that all layers and steps share: fresh pages cost more than what is written to them."""
        count = math.prod(size)
        buffer = self.scratch.get(name)
        if buffer is None or buffer.numel() < count:
            buffer = like.new_empty(count)
            self.scratch[name] = buffer
        return buffer[:count].view(size)


@dataclass(frozen=True, slots=True)
class How:
    """How one layer attends.

    ``rule``: what a query sees. ``softcap`` of the scores. ``sinks`` [H]: a score per head that takes its
    share of the weights and has no value. ``bias`` of the scores by position.
    """

    rule: Rule
    softcap: float | None = None
    sinks: Tensor | None = None
    bias: Bias | None = None


_PASS: ContextVar[AttentionPlan | None] = ContextVar("refork_pass", default=None)


@contextmanager
def passing(step: AttentionPlan) -> Iterator[None]:
    """While inside, attention layers of this thread attend as ``step`` says."""
    token = _PASS.set(step)
    try:
        yield
    finally:
        _PASS.reset(token)


def current() -> AttentionPlan:
    """The current pass of this thread.

    Raises:
        InternalError: there is none.
    """
    step = _PASS.get()
    if step is None:
        raise InternalError("a layer asks for the pass it is in outside a pass of the decoder")
    return step


def attend(module: Any, layer: int, heads: tuple[Tensor, Tensor, Tensor], scale: float, how: How) -> Tensor:
    """One layer's attention in the current pass: query [1, H, N, d], key and value [1, heads, N, d].

    Returns [1, N, H, d].

    Raises:
        CannotDo: what it attends to is not one key and one value for each token of the pass.
    """
    branches, (query, key, value) = current(), heads
    if branches.alone is not None:
        alone = exact(query[0]) * scale, key[0], value[0]
        return branches.attend_alone(branches.alone, layer, alone, how).unsqueeze(0)
    if branches.trace is not None:
        _check_shapes(module, query, key, value)
    keys, values = key[0].transpose(0, 1), value[0].transpose(0, 1)
    if branches.trace is not None:
        rows = query[0].transpose(0, 1) * scale
        return branches.trace.note(layer, type(module).__name__, rows, keys, values).unsqueeze(0)
    rows = (exact(query[0]).transpose(0, 1) * scale).contiguous()
    return branches.attend(layer, rows, keys, values, how).unsqueeze(0)


def _check_shapes(module: Any, query: Tensor, key: Tensor, value: Tensor) -> None:
    name = type(module).__name__
    if query.ndim != 4 or query.shape[0] != 1 or key.shape[:3] != value.shape[:3]:
        raise CannotDo(f"{name} attends with tensors of other shapes than one head and token each")
    if key.shape[2] != query.shape[2]:
        raise CannotDo(f"{name} attends to keys that are not one for each token")
    if query.shape[1] % key.shape[1] or query.shape[3] != key.shape[3]:
        raise CannotDo(f"{name} has query heads that do not share key heads evenly")


def _attention(  # noqa: PLR0917 - transformers decides the signature
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    sinks: Tensor | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """The function that transformers calls.

    Raises:
        CannotDo: the call has an argument or a mask that would mean something that is not done here.
    """
    name = type(module).__name__
    if not isinstance(attention_mask, Rule):
        raise CannotDo(f"{name} attends with a mask of its own making")
    if dropout:
        raise CannotDo(f"{name} drops attention weights at random")
    for argument, given in rest.items():
        _check_argument(name, argument, given)
    sink = s_aux if sinks is None else sinks
    if sink is not None and sink.shape != query.shape[1:2]:
        raise CannotDo(f"{name} has attention sinks that are not one for each head")
    layer = getattr(module, "layer_idx", None)
    if layer is None:
        raise CannotDo(f"{name} does not say which layer it is")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    how = How(attention_mask, softcap, sink)
    return attend(module, layer, (query, key, value), scale, how), None


def _check_argument(name: str, argument: str, given: Any) -> None:
    """Refuse an argument of an attention call that means something; those not known are taken to."""
    if given is None or argument in _NOTHING or (argument == "is_causal" and given is True):
        return
    if argument == "output_attentions" and not given:
        return
    raise CannotDo(f"{name} gives its attention an argument that this decoder does not know: {argument}")


def register() -> None:
    """Make the attention known to transformers, under NAME; calling it again changes nothing."""
    # Half the time of importing this package is this import, which commands that load no model do without.
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, _mask)
