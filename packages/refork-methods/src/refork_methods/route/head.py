"""The selection head: one linear map from a hidden state to a chance for every worker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int

from refork.errors import BadInput, CannotDo, DiskFull, Mismatch, WrongWeights
from refork.plain import content_hash, from_json, to_json
from refork.stats import Interval, mean_interval
from refork.types import Json
from refork_methods.route.backbone import RouterBackbone, StateFormat
from refork_methods.route.table import OutcomeTable, task_of


def softmax(scores: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Chances from scores, row by row; a score of minus infinity gets exactly 0."""
    # Less the largest, so that exp cannot overflow. A row of -inf alone gives NaN: callers refuse it.
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


@final
@dataclass(frozen=True, slots=True, eq=False)
class SelectionHead:
    """A map ``weights`` [L + roles, d] and ``bias`` [L + roles]: the first L rows score workers, then roles.

    ``bias`` None is the published head, which has none. Workers and roles are two independent softmaxes over
    the same state. ``format`` and ``backbone`` (the
    digest of its weights) say whose states these are; None where the states are plain features of a table.
    ``offsets`` are singular-value offsets of that backbone's ``matrices``, None where it is as it was.

    Raises: BadInput for shapes that do not fit, weights that are not finite, names given twice, one worker.
    Source: arXiv:2606.21228 (workers), arXiv:2512.04695 (three role rows). Their head has no bias: where
    states tell nothing, ours can still name the worker that is best over all.
    """

    weights: Float[np.ndarray, "rows d"]
    workers: tuple[str, ...]
    roles: tuple[str, ...] = ()
    format: StateFormat | None = None
    backbone: str | None = None
    matrices: tuple[str, ...] = ()
    offsets: Float[np.ndarray, "offsets"] | None = None
    bias: Float[np.ndarray, "rows"] | None = None

    def __post_init__(self) -> None:
        if len(self.workers) < 2:
            raise BadInput(f"{len(self.workers)} workers leave nothing to choose")
        for names in (self.workers, self.roles):
            if len(set(names)) != len(names) or not all(names):
                raise BadInput(f"names must be distinct and not empty: {names}")
        shape = self.weights.shape
        if len(shape) != 2 or shape[0] != len(self.workers) + len(self.roles) or shape[1] < 1:
            raise BadInput(f"weights {shape} for {len(self.workers)} workers and {len(self.roles)} roles")
        if self.bias is not None and self.bias.shape != shape[:1]:
            raise BadInput(f"a bias {self.bias.shape} for {shape[0]} rows of weights")
        if not np.isfinite(self.parameters).all():
            raise BadInput("the head's weights are not finite")
        if (self.offsets is None) != (not self.matrices):
            raise BadInput("offsets and the matrices they belong to go together")

    @classmethod
    def zero(cls, workers: Sequence[str], width: int, roles: Sequence[str] = ()) -> SelectionHead:
        """A head of zeros: every worker has the same chance."""
        return cls(np.zeros((len(workers) + len(roles), width)), tuple(workers), tuple(roles))

    @property
    def digest(self) -> str:
        """Sha256 (hex) of weights, bias and offsets: name, type, shape and bytes of each."""
        found = hashlib.sha256()
        for name, array in self.tensors().items():
            # Name, type and shape as well: the bytes alone do not tell one shape from another.
            found.update(f"{name}\x1f{array.dtype}\x1f{array.shape}\x1e".encode())
            found.update(array.tobytes())
        return found.hexdigest()

    def tensors(self) -> dict[str, Float[np.ndarray, "..."]]:
        """Weights, bias and offsets as they are stored, float64."""
        named = {"head": self.weights, "bias": self.bias, "offsets": self.offsets}
        return {
            name: np.ascontiguousarray(array, dtype=np.float64)
            for name, array in named.items()
            if array is not None
        }

    @property
    def width(self) -> int:
        """Length of a state."""
        return int(self.weights.shape[1])

    @property
    def parameters(self) -> Float[np.ndarray, "n"]:
        """All weights row by row, then the bias: what a training moves."""
        bias = () if self.bias is None else self.bias
        return np.concatenate([np.asarray(self.weights, dtype=np.float64).reshape(-1), bias])

    @property
    def rms(self) -> float:
        """Root mean square of the weights; of the bias where all of them are 0."""
        used = self.weights if self.bias is None or self.weights.any() else self.bias
        return float(np.sqrt(np.mean(np.square(used))))

    def scores(self, states: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n rows"]:
        """Scores of all rows. Raises BadInput for states of another width or not finite."""
        h = np.asarray(states, dtype=np.float64)
        if h.ndim != 2 or h.shape[1] != self.width:
            raise BadInput(f"states {h.shape} for a head of width {self.width}")
        if not np.isfinite(h).all():
            raise BadInput(
                "a state is not finite", where=f"row {int((~np.isfinite(h)).any(axis=1).argmax())}"
            )
        bias = 0.0 if self.bias is None else self.bias
        return np.asarray(h @ np.asarray(self.weights, dtype=np.float64).T + bias)

    def probabilities(
        self,
        states: Float[np.ndarray, "n d"],
        open: Collection[str] | None = None,  # noqa: A002
    ) -> Float[np.ndarray, "n workers"]:
        """The chance of every worker; those not ``open`` get exactly 0 and the rest sum to 1.

        Raises: BadInput as :meth:`scores`, or for a worker that this head was never fitted on; CannotDo where
        none is open.
        """
        return softmax(self._masked(states, open))

    def choose(
        self,
        states: Float[np.ndarray, "n d"],
        open: Collection[str] | None = None,  # noqa: A002
    ) -> Int[np.ndarray, "n"]:
        """The place of the likeliest open worker, the first of equals: what is served.

        Raises: as :meth:`probabilities`.
        """
        # Of scores, not of chances: far apart or very near, two different scores can round to one chance.
        return np.asarray(self._masked(states, open).argmax(axis=1))

    def role_probabilities(self, states: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n roles"]:
        """The chance of every role. Raises CannotDo for a head without roles."""
        if not self.roles:
            raise CannotDo("this head has no roles", hint="make one with role rows")
        return softmax(self.scores(states)[:, len(self.workers) :])

    def _masked(
        self, states: Float[np.ndarray, "n d"], open_: Collection[str] | None
    ) -> Float[np.ndarray, "n workers"]:
        return np.where(self.mask(open_), self.scores(states)[:, : len(self.workers)], -np.inf)

    def mask(
        self,
        open: Collection[str] | None = None,  # noqa: A002
    ) -> Bool[np.ndarray, "workers"]:
        """Which of the head's workers are open. A worker that the head knows and nobody opened is out."""
        if open is None:
            return np.ones(len(self.workers), dtype=np.bool_)
        unknown = sorted(set(open) - set(self.workers))
        if unknown:
            raise BadInput(
                f"the head was never fitted on worker {unknown[0]!r}",
                hint="fit again with its outcomes, or opt it out",
            )
        found = np.array([name in open for name in self.workers])
        if not found.any():
            raise CannotDo("every worker that this head knows has opted out")
        return found

    def require(self, backbone: RouterBackbone, where: str = "selection head") -> None:
        """Refuse a backbone that is not the one whose states the head was fitted on.

        Raises: Mismatch for another format (a chat template where raw lines were read, say) or a head fitted
        on plain features; WrongWeights for other weights.
        """
        if self.format is None:
            raise Mismatch("this head was fitted on a table's features, not on hidden states", where=where)
        backbone.format.require(self.format, where)
        if self.backbone is not None and backbone.digest is not None and self.backbone != backbone.digest:
            raise WrongWeights(
                f"the head reads states of weights {self.backbone[:12]}, these are {backbone.digest[:12]}",
                where=where,
                hint="load the backbone that the card names",
            )

    def on(self, backbone: RouterBackbone) -> SelectionHead:
        """The same head, marked as fitted on the states of a backbone."""
        return replace(self, format=backbone.format, backbone=backbone.digest)

    def with_weights(self, weights: Float[np.ndarray, "rows d"]) -> SelectionHead:
        """The same head with other weights."""
        return replace(self, weights=np.asarray(weights, dtype=np.float64))

    def with_parameters(self, vector: Float[np.ndarray, "n"]) -> SelectionHead:
        """The same head with other weights, and another bias where it has one."""
        size = self.weights.size
        weights = np.asarray(vector[:size], dtype=np.float64).reshape(self.weights.shape)
        bias = None if self.bias is None else np.asarray(vector[size:], dtype=np.float64)
        return replace(self, weights=weights, bias=bias)

    def with_offsets(
        self, matrices: Sequence[str], offsets: Float[np.ndarray, "offsets"] | None
    ) -> SelectionHead:
        """The same head for a backbone moved by offsets of some matrices."""
        return replace(self, matrices=tuple(matrices) if offsets is not None else (), offsets=offsets)


# A selection head on disk: its tensors, and a card that says whose states it reads and what was measured.

VERSION = 1
TENSORS, CARD = "head.safetensors", "card.json"


@final
@dataclass(frozen=True, slots=True)
class HeadCard:
    """What belongs to a head beside its numbers.

    ``measured`` are the workers' own mean rewards in the table it was fitted on, over tasks; None for one
    started cold. ``queries`` are digests of the tasks of the fitted queries, ``texts`` of their texts: none
    of theirs is ever a test. ``best_single`` is the worker that was best on them, None where not known.
    ``fit`` tells how it was trained and what came out.
    """

    workers: tuple[str, ...]
    roles: tuple[str, ...] = ()
    measured: dict[str, Interval | None] = field(default_factory=dict)
    queries: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    best_single: str | None = None
    fit: Json = field(default_factory=dict)
    backbone_name: str | None = None
    backbone: str | None = None
    format: StateFormat | None = None
    format_digest: str | None = None
    matrices: tuple[str, ...] = ()
    digest: str | None = None
    version: int = VERSION

    def refuse_leaks(self, queries: Sequence[str], texts: Sequence[str | None] | None = None) -> None:
        """Refuse to be tested on what it was fitted on: a task of it, or a text.

        Raises: BadInput naming a query that is on both sides.
        """
        known, read = set(self.queries), set(self.texts)
        leaked = sorted(
            name
            for name, text in zip(queries, texts or (None,) * len(queries), strict=True)
            if query_digest(name) in known or (text and text_digest(text) in read)
        )
        if leaked:
            raise BadInput(
                f"{len(leaked)} of {len(queries)} test queries were fitted on, first {leaked[0]!r}",
                hint="test on queries that the fit held out",
            )


def query_digest(name: str) -> str:
    """Short digest of the task that a query belongs to, 16 hex digits."""
    return content_hash(task_of(name))[:16]


def text_digest(text: str) -> str:
    """Short digest of a query's text, 16 hex digits."""
    return content_hash(text)[:16]


def measured(table: OutcomeTable) -> dict[str, Interval | None]:
    """Each worker's mean reward over the tasks it was tried on, with its interval; None for none.

    A task counts by the mean of its queries: its turns are not independent. With outcomes on one task only,
    the interval is as wide as the rewards may be.
    """
    rbar, _ = table.means()
    tasks = np.array([task_of(query) for query in table.queries])
    found: dict[str, Interval | None] = {}
    for name, column in zip(table.workers, rbar.T, strict=True):
        known = ~np.isnan(column)
        place = np.unique(tasks[known], return_inverse=True)[1]
        means = np.bincount(place, column[known]) / np.bincount(place)
        if means.size > 1:
            found[name] = mean_interval(means)
        elif means.size:
            found[name] = Interval(float(means[0]), table.low, table.high, 0.95, "range")
        else:
            found[name] = None
    return found


def save_head(folder: Path, head: SelectionHead, card: HeadCard) -> HeadCard:
    """Write tensors and card, each file whole or not at all; the card as written.

    Raises: DiskFull where the folder cannot be written.
    """
    from safetensors.numpy import save

    written = HeadCard(
        head.workers, head.roles, card.measured, card.queries, card.texts, card.best_single, card.fit,
        card.backbone_name, head.backbone, head.format,
        head.format.digest if head.format is not None else None, head.matrices, head.digest,
    )  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The card last: after a crash between the two its digest does not fit, and loading says so.
        _put(folder / TENSORS, save(head.tensors()))
        _put(folder / CARD, (json.dumps(to_json(written), indent=2, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise DiskFull(f"the head could not be written: {error}", where=str(folder)) from error
    return written


def load_head(folder: Path) -> tuple[SelectionHead, HeadCard]:
    """A head and its card from a folder.

    Raises:
        BadInput: no head there, one that cannot be read, or of a later version.
        Mismatch: tensors that are not those the card was written with, or a format whose digest differs.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    where = str(folder)
    try:
        told = json.loads((folder / CARD).read_text(encoding="utf-8"))
        tensors = load((folder / TENSORS).read_bytes())
    except (OSError, ValueError, SafetensorError) as error:
        raise BadInput(f"there is no selection head to read: {error}", where=where) from error
    card = from_json(HeadCard, told, where)
    if card.version != VERSION or "head" not in tensors:
        raise BadInput(f"a head of version {card.version} cannot be read here", where=where)
    if card.format is not None and card.format.digest != card.format_digest:
        raise Mismatch("the card's format was changed, or is of another version", where=where)
    head = SelectionHead(
        tensors["head"], card.workers, card.roles, card.format, card.backbone, card.matrices,
        tensors.get("offsets"), tensors.get("bias"),
    )  # fmt: skip
    if head.digest != card.digest:
        raise Mismatch("the head's tensors are not those its card was written with", where=where)
    return head, card


def _put(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)
