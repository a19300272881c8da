"""Drafts to rows and rows to nodes; what makes two writings of one draw the same."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput, TreeDamaged
from refork.json_guard import shallow
from refork.policies.base import Cost
from refork.sampling.noise import NoiseKey
from refork.tree.database import RESTORE, Row
from refork.tree.node import NewNode, Node
from refork.tree.schema import columns
from refork.types import Finish, Json, NodeKind, Origin

_COLUMNS: Final = tuple(name for name in columns("nodes") if name != "seal")
_AT: Final = {name: place for place, name in enumerate(_COLUMNS)}
_PARENT_ID: Final = "(SELECT p.id FROM nodes p WHERE p.row = n.parent)"

#: The columns of a node, parent as an id, for a query over ``nodes n``; :func:`decode` reads them.
SELECT: Final = ", ".join(_PARENT_ID if name == "parent" else f'n."{name}"' for name in _COLUMNS)

INTS: Final = ("tokens", "offsets")
FLOATS: Final = ("logprobs", "logprobs_t1", "ref_logprobs", "entropy")
JSONS: Final = ("message", "settings", "cost", "extra")
_COSTS: Final = tuple(Cost.__dataclass_fields__)
#: The kinds of nodes.
KINDS: Final = frozenset(get_args(NodeKind))
_ORIGINS: Final = frozenset({None, *get_args(Origin)})
_FINISHES: Final = frozenset({None, *get_args(Finish)})
#: What readers rely on in ``extra``, where it is there.
_FORMS: Final = {
    "pending": (str, type(None)),
    "span": (dict, type(None)),
    "trace": (dict, type(None)),
    "tools": (list, tuple, dict, type(None)),
    "tool_spans": (list, tuple, dict, type(None)),
}
#: And in that of a root; elsewhere these are names like any other.
_ROOT_FORMS: Final = {"world": (str, type(None)), "task": (dict, str, type(None))}

#: Log-probs of one draw done in two batches may differ by rounding; this much is the same draw.
SAME: Final = 1e-4

#: How deep the JSON of a node may nest: as deep as an export of the tree is read.
DEEPEST: Final = 400
#: Bytes that one node may take: SQLite holds no more in a row.
LARGEST: Final = 1_000_000_000

_parse = json.JSONDecoder().raw_decode
_plain = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def dumps(value: Any, where: str) -> str:
    """Compact JSON; what JSON cannot say, or nests too deep to be read again, is refused."""
    try:
        text = _plain(value)
    except (TypeError, ValueError) as error:
        raise BadInput(f"not plain JSON data: {error}", where=where) from error
    except RecursionError as error:
        raise BadInput(f"the data nest deeper than {DEEPEST} levels", where=where) from error
    # Brackets inside texts are counted too: this only says whether the exact check is worth its time.
    if text.count("[") + text.count("{") > DEEPEST:
        shallow(text.encode("utf-8", "replace"), where, DEEPEST)
    return text


def _numbers(name: str, values: Any, dtype: str | None, where: str) -> NDArray[Any]:
    try:
        return np.asarray(values, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{name} must be numbers: {error}", where=where) from error


def _ints(name: str, values: Any, where: str) -> NDArray[np.int32]:
    array = _numbers(name, values, None, where)
    if array.dtype != np.int32:
        if array.size and array.dtype.kind not in "iu":
            raise BadInput(f"{name} must be whole numbers, not {array.dtype}", where=where)
        # A cast takes such a number for another one that fits.
        for end in (int(array.min()), int(array.max())) if array.size else ():
            if not -(2**31) <= end < 2**31:
                raise BadInput(f"{name} holds {end}, which does not fit 32 bits", where=where)
        array = array.astype(np.int32)
    if array.ndim != 1:
        raise BadInput(f"{name} must be one-dimensional, not {array.shape}", where=where)
    return array


def _tokens(new_node: NewNode, where: str) -> tuple[bytes | None, bytes | None]:
    if new_node.tokens is None:
        if new_node.offsets is not None:
            raise BadInput("offsets without tokens", where=where)
        return None, None
    tokens = _ints("tokens", new_node.tokens, where)
    if new_node.offsets is None:
        return tokens.astype("<i4", copy=False).tobytes(), None
    ends = _ints("offsets", new_node.offsets, where)
    if len(ends) != len(tokens):
        raise BadInput(f"{len(ends)} offsets for {len(tokens)} tokens", where=where)
    if len(ends):
        if ends[0] < 0 or (ends[1:] < ends[:-1]).any():
            raise BadInput("offsets must be 0 or more and never fall", where=where)
        if ends[-1] != len(new_node.text):
            raise BadInput(
                f"offsets end at character {int(ends[-1])}, the text at {len(new_node.text)}", where=where
            )
    return tokens.astype("<i4", copy=False).tobytes(), ends.astype("<i4", copy=False).tobytes()


def _floats(new_node: NewNode, length: int | None, where: str) -> list[bytes | None]:
    packed: list[bytes | None] = []
    for name in FLOATS:
        values = getattr(new_node, name)
        if values is None:
            packed.append(None)
            continue
        array = _numbers(name, values, "<f4", where)
        if length is None or array.shape != (length,):
            count = "no tokens" if length is None else f"{length} tokens"
            raise BadInput(f"{name} has shape {array.shape} for {count}", where=where)
        packed.append(array.tobytes())
    return packed


def check_numbers(bodies: Sequence[Row], positions: Sequence[Row]) -> None:
    """Refuse negative token ids and NaN in a batch of :func:`content`: one pass while all is well.

    Raises:
        BadInput: it names the node's key, the field and the token.
    """
    # In a body 1 is the token ids and 3 to 6 the arrays of FLOATS; in a position 4 is the kind and 5 the key.
    tokens = np.frombuffer(b"".join(body[1] for body in bodies if body[1]), "<i4")
    floats = np.frombuffer(b"".join(data for body in bodies for data in body[3:7] if data), "<f4")
    if not (len(tokens) and tokens.min() < 0) and not np.isnan(floats).any():
        return
    for body, place in zip(bodies, positions, strict=True):
        where = f"{place[4]} {place[5]}"
        ids = np.frombuffer(body[1] or b"", "<i4")
        if len(ids) and ids.min() < 0:
            raise BadInput(f"token id {int(ids.min())} is negative", where=where)
        for name, data in zip(FLOATS, body[3:7], strict=True):
            bad = np.flatnonzero(np.isnan(np.frombuffer(data or b"", "<f4")))
            if len(bad):
                raise BadInput(
                    f"{name} is not a number at token {int(bad[0])}",
                    where=where,
                    hint="None says that a value was never computed",
                )


def _choices(new_node: NewNode, where: str) -> None:
    if new_node.kind not in KINDS:
        raise BadInput(f"kind is {new_node.kind!r}; it must be one of {sorted(KINDS)}", where=where)
    if new_node.origin not in _ORIGINS or new_node.finish not in _FINISHES:
        name = "origin" if new_node.origin not in _ORIGINS else "finish"
        raise BadInput(f"{name} is {getattr(new_node, name)!r}, which is not known", where=where)
    if not isinstance(new_node.text, str):
        raise BadInput(f"text is a {type(new_node.text).__name__}, not a string", where=where)


def _check_json(new_node: NewNode, where: str) -> None:
    """Refuse JSON of another form than readers rely on: logs hold all sorts of things.

    Raises:
        BadInput: it names the field; once stored it would count as damage.
    """
    for name in ("message", "settings", "extra"):
        if not isinstance(value := getattr(new_node, name), (dict, type(None))):
            raise BadInput(f"{name} is a {type(value).__name__}, not an object", where=where)
    values = new_node.message, new_node.settings, _spent(new_node.cost), new_node.extra
    for what in misread(new_node.parent is None, *values):
        raise BadInput(what, where=where, hint="readers rely on its form; other data need another name")


def misread(
    root: bool, message: Json | None, settings: Json | None, cost: Json | None, extra: Json | None
) -> Iterator[str]:
    """What in a node's JSON is of another form than readers rely on."""
    if message is not None and (what := _no_message(message)) is not None:
        yield f"message is no chat message: {what}"
    for name, one in (cost or {}).items():
        if name not in _COSTS or isinstance(one, bool) or not isinstance(one, (int, float)):
            yield f"cost has {name!r}, a {type(one).__name__}"
    if not isinstance((settings or {}).get("forced", []), (list, tuple)):
        yield "settings has forced tokens that are no list"
    if not extra:
        return
    messages = extra.get("messages", [])
    if not isinstance(messages, (list, tuple)) or any(map(_no_message, messages)):
        yield "extra has messages that are none"
    for name, kinds in (_FORMS | _ROOT_FORMS if root else _FORMS).items():
        if not isinstance(value := extra.get(name), kinds):
            yield f"extra has {name!r}, a {type(value).__name__}"


def _no_message(message: Any) -> str | None:
    """Why a value is no chat message; None where it is one."""
    if not isinstance(message, dict):
        return f"it is a {type(message).__name__}"
    if not isinstance(role := message.get("role", ""), str):
        return f"its role is a {type(role).__name__}"
    calls = message.get("tool_calls") or []
    if not isinstance(calls, (list, tuple)) or not all(isinstance(call, dict) for call in calls):
        return "its tool calls are no list of objects"
    known = isinstance(content := message.get("content"), (str, list, tuple, type(None)))
    return None if known else f"its content is a {type(content).__name__}"


def _spent(cost: Cost) -> Json:
    return {name: value for name in _COSTS if (value := getattr(cost, name)) is not None}


def content(new_node: NewNode, where: str) -> Row:
    """The checked columns of a draft from ``text`` to ``extra``, but for snapshot and created.

    Raises:
        BadInput: lengths that differ, offsets that do not fit, data that is not JSON.
    """
    _choices(new_node, where)
    _check_json(new_node, where)
    tokens, offsets = _tokens(new_node, where)
    floats = _floats(new_node, None if tokens is None else len(tokens) // 4, where)
    noise, spent = new_node.noise, _spent(new_node.cost)
    body = (
        new_node.text,
        tokens,
        offsets,
        *floats,
        None if new_node.message is None else dumps(new_node.message, where),
        new_node.state_key,
        new_node.policy,
        new_node.weights,
        None if new_node.settings is None else dumps(new_node.settings, where),
        None if noise is None else f"{noise.seed} {noise.stream} {noise.draw} {noise.turn}",
        new_node.fork,
        new_node.origin,
        new_node.finish,
        new_node.error,
        dumps(spent, where) if spent else None,
        dumps(new_node.extra, where) if new_node.extra else None,
    )
    _fits(body, where)
    return body


def _fits(body: Row, where: str) -> None:
    """Refuse what no row holds, before it is handed over; characters may take up to four bytes each."""
    try:
        if sum(map(len, filter(None, body))) * 4 <= LARGEST:
            return
    except TypeError as error:
        raise BadInput(f"a field that holds text holds something else: {error}", where=where) from error
    size = sum(len(one) if isinstance(one, bytes) else _utf8(one) for one in body if one)
    if size > LARGEST:
        raise BadInput(
            f"this node takes {size:,} bytes; a tree holds {LARGEST:,} in one node",
            where=where,
            hint="split it into several nodes, or keep it in a file of its own and record its path",
        )


def _utf8(text: str) -> int:
    """Bytes of a text in UTF-8, without making a copy of all of it."""
    return sum(
        len(text[at : at + 1_000_000].encode("utf-8", "replace")) for at in range(0, len(text), 1_000_000)
    )


def row_of(position: Row, body: Row, snapshot: bytes | None, created: float) -> Row:
    """A full row: ``position`` is row, id, parent, keep, kind, key, depth; ``body`` is :func:`content`."""
    # SQLite gives no negative zero back.
    # What content() leaves out goes in here: the snapshot behind ``state_key``, the moment before ``extra``.
    return (*position, *body[:9], snapshot, *body[9:18], float(created) + 0.0, body[18])


def _array(data: bytes | None, dtype: str) -> Any:
    return None if data is None else np.frombuffer(data, dtype=dtype)


def _json(text: str | None) -> Any:
    return None if text is None else _parse(text)[0]


def decode(row: Row) -> Node:
    """The node of a row selected by :data:`SELECT`.

    Raises:
        TreeDamaged: the row is not as any tree writes it.
    """
    try:
        return _decoded(row)
    except (TypeError, ValueError, AttributeError, LookupError, RecursionError) as error:
        id_ = row[1].hex() if isinstance(row[1], bytes) else str(row[1])
        raise TreeDamaged(
            f"this tree is damaged: a node cannot be read: {error}"[:200],
            where=f"row {row[0]} of nodes, node {id_[:12]}",
            hint=RESTORE,
        ) from error


def _decoded(row: Row) -> Node:
    (_, id_, parent, keep, kind, key, depth, text, tokens, offsets, logprobs, logprobs_t1, ref_logprobs,
     entropy, message, state_key, snapshot, policy, weights, settings, noise, fork, origin, finish, error,
     cost, created, extra) = row  # fmt: skip
    if kind not in KINDS or not isinstance(text, str):
        raise ValueError(f"a node of kind {str(kind)[:20]!r}")
    return Node(
        id=id_.hex(),
        kind=kind,
        parent=None if parent is None else parent.hex(),
        keep=keep,
        key=key,
        depth=depth,
        text=text,
        tokens=_array(tokens, "<i4"),
        offsets=_array(offsets, "<i4"),
        logprobs=_array(logprobs, "<f4"),
        logprobs_t1=_array(logprobs_t1, "<f4"),
        ref_logprobs=_array(ref_logprobs, "<f4"),
        entropy=_array(entropy, "<f4"),
        message=_json(message),
        state_key=state_key,
        snapshot=None if snapshot is None else snapshot.hex(),
        policy=policy,
        weights=weights,
        settings=_json(settings),
        noise=None if noise is None else NoiseKey(*map(int, noise.split(" "))),
        fork=fork,
        origin=origin,
        finish=finish,
        error=error,
        cost=Cost() if cost is None else Cost(**_parse(cost)[0]),
        created=created,
        extra={} if extra is None else _parse(extra)[0],
    )


def _same(name: str, old: Any, new: Any) -> bool:
    if old == new:
        return True
    if old is None or new is None:
        # Where tokens end is known from text and ids; an older writing may not have looked.
        return name == "offsets"
    if name in FLOATS:
        # Equal infinities are close to numpy; NaN is never stored, so it needs no rule.
        a, b = np.frombuffer(old, "<f4"), np.frombuffer(new, "<f4")
        return len(a) == len(b) and bool(np.allclose(a, b, rtol=SAME, atol=SAME))
    if name in JSONS:
        return bool(json.loads(old) == json.loads(new))
    return False


def _lasting_cost(text: str | None) -> Json:
    known: Json = {} if text is None else json.loads(text)
    # The same work takes another time each time; its tokens and its money must be the same.
    known.pop("seconds", None)
    return known


def difference(old: Row, new: Row) -> str | None:
    """The first field in which two rows of one id differ, times aside; None where they agree.

    Log-probs agree within :data:`SAME`: one draw done in two batches is rounded differently.
    """
    for name in _COLUMNS[_AT["text"] :]:
        a, b = old[_AT[name]], new[_AT[name]]
        if name == "created" or _same(name, a, b):
            continue
        if name == "cost" and _lasting_cost(a) == _lasting_cost(b):
            continue
        return name
    return None


def draft_of(node: Node) -> NewNode:
    """The draft that would write a node again; its snapshot, which is a digest here, is left out."""
    return NewNode(
        **{
            name: getattr(node, name)
            for name in NewNode.__dataclass_fields__
            if name != "snapshot" and hasattr(node, name)
        }
    )


def pack_values(values: Any, length: int | None, where: str) -> tuple[float | None, bytes | None]:
    """A score's value as a float or as float64 bytes, one per token of the node.

    Raises:
        BadInput: not a number, NaN, or another length than the node's.
    """
    if isinstance(values, np.ndarray) and values.ndim:
        array = _numbers("the values of a score", values, "<f8", where)
        if array.shape != (length or 0,):
            raise BadInput(f"a score of shape {array.shape} for {length or 0} tokens", where=where)
        if np.isnan(array).any():
            raise BadInput("a score is not a number", where=where, hint="leave out what was not computed")
        return None, array.tobytes()
    try:
        value = float(values)
    except (TypeError, ValueError) as error:
        raise BadInput(f"a score is {values!r}, not a number", where=where) from error
    if math.isnan(value):
        raise BadInput("a score is not a number", where=where, hint="leave out what was not computed")
    return value, None


def unpack_values(value: float | None, array: bytes | None) -> float | NDArray[np.float64]:
    """Inverse of :func:`pack_values`."""
    if array is None:
        return 0.0 if value is None else value
    return np.frombuffer(array, dtype="<f8")
