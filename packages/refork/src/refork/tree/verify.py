"""Re-deriving what must hold: a tree's structure, and its recorded steps with the policies that made them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

import numpy as np

from refork.errors import BadPoint, NotATree, UserError
from refork.policies.base import Policy, Request, Sampling, sample_all
from refork.policies.whitebox import prompted_logprobs
from refork.tree.codec import FLOATS, INTS, JSONS
from refork.tree.damage import misfits
from refork.tree.database import Database, Row, pages
from refork.tree.insert import BLOBS
from refork.tree.node import Node, Trajectory, node_id
from refork.tree.node_reader import paths, stream
from refork.tree.schema import columns
from refork.tree.seal import SEALED, rows_of, seal
from refork.tree.turn import turn_begun
from refork.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not hold: ``error`` contradicts the record, ``warning`` could not be checked.

    ``token`` is the first that differs, counted in its node; ``cause`` is the likely one.
    """

    severity: Literal["error", "warning"]
    node: str | None
    token: int | None
    what: str
    cause: str | None = None


_PAGE: Final = 1000
_ALTERED: Final = "what is stored is not what was written: its seal is another"
_CAUSE: Final = "a fault of the storage, or another program"
_OF_NODE: Final = columns("nodes")
_NODES: Final = (
    f"SELECT {', '.join('n.' + name for name in _OF_NODE)}, p.id, p.depth, length(p.tokens) / 4"
    ", n.row FROM nodes n LEFT JOIN nodes p ON p.row = n.parent WHERE n.row > ? AND n.row <= ? ORDER BY n.row"
)


def verify(db: Database, policies: Mapping[str, Policy], tolerance: float, redraw: bool) -> Iterator[Finding]:
    """Findings of structure always, and of what the policies can derive again."""
    try:
        damaged = [Finding("error", None, None, *found) for found in db.damage()]
        if not damaged:
            other = (f"{what} ({where})" for what, where in misfits(db))
            damaged = [Finding("error", None, None, what, "a fault of the storage") for what in other]
    except NotATree as error:
        damaged = [Finding("error", None, None, error.what, "the file was cut or overwritten")]
    yield from damaged
    # What follows takes every column for what it should be, so none of it is asked of a damaged file.
    if damaged:
        return
    try:
        for row in pages(db, _NODES, _PAGE, top=(db.now(),)):
            yield from _node(row)
        yield from _seals(db)
        yield from _blobs(db)
        yield from _scores(db)
        yield from _arms(db)
    except NotATree as error:
        yield Finding("error", None, None, error.what, "a fault of the storage")
        return
    if policies:
        yield from recheck(db, policies, tolerance, redraw)


def _node(row: Row) -> Iterator[Finding]:
    node = dict(zip(_OF_NODE, row, strict=False))
    parent, depth, length, _ = row[-4:]
    id_ = node["id"].hex()

    def wrong(what: str, token: int | None = None, cause: str = "written by another program") -> Finding:
        return Finding("error", id_, token, what, cause)

    if seal("nodes", row[: len(_OF_NODE) - 1]) != node["seal"]:
        yield wrong(_ALTERED, cause=_CAUSE)
    parent_id = None if parent is None else parent.hex()
    if node_id(parent_id, node["keep"], node["kind"], node["key"]) != id_:
        yield wrong("the id is not the digest of its place")
    if node["depth"] != (0 if depth is None else depth + 1):
        yield wrong(f"depth is {node['depth']}, the parent's is {depth}")
    if node["keep"] is not None and not 0 <= node["keep"] < (length or 0):
        yield wrong(f"keep is {node['keep']}, the parent has {length or 0} tokens")
    count = None if node["tokens"] is None else len(node["tokens"]) // 4
    for name in (*INTS, *FLOATS):
        data = node[name]
        if data is None:
            continue
        if len(data) != 4 * (count or 0):
            yield wrong(f"{name} has {len(data) / 4:g} entries for {count or 0} tokens")
        elif name in FLOATS and (bad := np.flatnonzero(np.isnan(np.frombuffer(data, "<f4")))).size:
            yield wrong(f"{name} is not a number", int(bad[0]))
    yield from (wrong(what) for what in _texts(node))


def _texts(node: dict[str, object]) -> Iterator[str]:
    offsets, text = node["offsets"], str(node["text"])
    if isinstance(offsets, bytes) and offsets and len(offsets) % 4 == 0:
        ends = np.frombuffer(offsets, "<i4")
        if ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] != len(text):
            yield "token offsets do not fit the text"
    for name in JSONS:
        data = node[name]
        try:
            json.loads(str(data) if data is not None else "null")
        except ValueError:
            yield f"{name} is not JSON"


def _seals(db: Database) -> Iterator[Finding]:
    """Rows of other tables that are not as they were written; those of nodes are read by themselves."""
    for table in SEALED:
        if table != "nodes":
            for key, *values, mark in rows_of(db.rows, table):
                if seal(table, values) != mark:
                    yield Finding("error", None, None, f"{table}, row {key}: {_ALTERED}", _CAUSE)


def _blobs(db: Database) -> Iterator[Finding]:
    for data, digest, _ in pages(db, BLOBS, 1):
        if hashlib.sha256(data).digest() != digest:
            what = f"blob {digest.hex()[:12]} is not what its digest says"
            yield Finding("error", None, None, what, "a fault of the storage")


def _scores(db: Database) -> Iterator[Finding]:
    bad = db.rows(
        "SELECT n.id, s.name FROM scores s JOIN nodes n ON n.row = s.node "
        "WHERE (s.value IS NULL) = (s.array IS NULL) OR length(s.array) != 2 * coalesce(length(n.tokens), 0)"
    )
    for id_, name in bad:
        what = f"score {name} is neither one value nor one per token"
        yield Finding("error", id_.hex(), None, what, "written by another program")
    live = db.rows("SELECT id, name, reads FROM producers WHERE retired_at IS NULL")
    gone = {id_ for (id_,) in db.rows("SELECT id FROM producers WHERE retired_at IS NOT NULL")}
    for id_, name, reads in live:
        if gone & set(json.loads(reads)):
            what = f"producer {name} ({id_[:12]}) is live, but one that it read is retired"
            yield Finding("error", None, None, what, "a merge of two trees; retire it")


def _arms(db: Database) -> Iterator[Finding]:
    beyond = db.rows(
        "SELECT n.id, f.id, f.token FROM forks f JOIN nodes n ON n.row = f.node "
        "WHERE f.token < 0 OR f.token > coalesce(length(n.tokens), 0) / 4"
    )
    for id_, fork, token in beyond:
        yield Finding("error", id_.hex(), token, f"fork {fork[:12]} starts beyond this step")


# Deriving recorded steps again with the policies that made them.


_BATCH: Final = 32


@dataclass(frozen=True, slots=True)
class _Case:
    """A recorded step with the exact prefix that it followed."""

    node: Node
    prefix: IntArray
    before: Trajectory


def recheck(
    db: Database, policies: Mapping[str, Policy], tolerance: float, redraw: bool
) -> Iterator[Finding]:
    """What the policies, by recorded name, derive otherwise than recorded."""
    told: set[tuple[str, str]] = set()
    for node in stream(db, "n.tokens IS NOT NULL AND n.policy IS NULL"):
        yield from _plain_text(node, policies)
    for name, policy in policies.items():
        steps = stream(db, "n.policy = ? AND n.tokens IS NOT NULL", (name,))
        while batch := list(islice(steps, _BATCH)):
            ours: list[Node] = []
            for node in batch:
                other = _other_weights(node, policy, told)
                if other is not None:
                    yield other
                elif node.weights == policy.card.weights or None in (node.weights, policy.card.weights):
                    ours.append(node)
                yield from _text(node, policy)
            cases, skipped = _cases(db, [node for node in ours if node.kind == "action"])
            yield from skipped
            yield from _logprobs(cases, policy, tolerance)
            if redraw:
                yield from _redraw(cases, policy)


def _other_weights(node: Node, policy: Policy, told: set[tuple[str, str]]) -> Finding | None:
    mine = policy.card.weights
    if None in (mine, node.weights) or mine == node.weights or (policy.card.name, str(node.weights)) in told:
        return None
    told.add((policy.card.name, str(node.weights)))
    what = (
        f"policy {policy.card.name} has weights {str(mine)[:12]}, the record says {str(node.weights)[:12]}; "
        "log-probs of these steps were not compared"
    )
    return Finding("error", node.id, None, what, "other weights")


def _plain_text(node: Node, policies: Mapping[str, Policy]) -> Iterator[Finding]:
    """The rendered text of a prompt: the record names its tokenizer, or one policy only is given."""
    wanted = node.extra.get("tokenizer")
    for policy in policies.values():
        if wanted == policy.card.tokenizer or (wanted is None and len(policies) == 1):
            yield from _text(node, policy)
            return


def _text(node: Node, policy: Policy) -> Iterator[Finding]:
    if node.tokens is None:
        return
    size = policy.card.vocabulary
    if size is not None and node.length and int(node.tokens.max()) >= size:
        first = int(np.flatnonzero(node.tokens >= size)[0])
        what = f"token id {int(node.tokens[first])} is outside the vocabulary of {size}"
        yield Finding("error", node.id, first, what, "other tokenizer")
        return
    try:
        decoded = policy.decode(node.tokens)
    except UserError as error:
        yield Finding("error", node.id, None, f"the token ids do not decode: {error.what}", "other tokenizer")
        return
    if decoded == node.text or (node.kind != "action" and _holds(decoded, node)):
        return
    first_bad = _first_other(node, policy)
    what = f"the token ids decode to {_clip(decoded)}, the text is {_clip(node.text)}"
    cause = "tool parser" if (node.message or {}).get("tool_calls") else "other tokenizer"
    if node.kind != "action":
        cause = "template"
    elif cause == "other tokenizer" and np.array_equal(policy.encode(node.text), node.tokens):
        cause = "retokenisation: the ids were made from the text and do not decode back to it"
    yield Finding("error", node.id, first_bad, what, cause)


def _holds(decoded: str, node: Node) -> bool:
    """Whether a rendered prompt contains every line of the text it was made from, in order."""
    place = 0
    for line in filter(None, map(str.strip, node.text.splitlines())):
        place = decoded.find(line, place)
        if place < 0:
            return False
        place += len(line)
    return True


def _first_other(node: Node, policy: Policy) -> int | None:
    """The first token whose end in the decoded text is not where the record has it."""
    if node.offsets is None or node.tokens is None:
        return None
    for token in range(node.length):
        said = policy.decode(node.tokens[: token + 1])
        # A character may be split between tokens; its first part decodes to a mark of its own.
        if said.rstrip("\ufffd") != node.text[: node.offsets[token]].rstrip("\ufffd"):
            return token
    return None


def _clip(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _cases(db: Database, nodes: Sequence[Node]) -> tuple[list[_Case], list[Finding]]:
    cases: list[_Case] = []
    skipped: list[Finding] = []
    for node, trajectory in zip(nodes, paths(db, [n.id for n in nodes], [None] * len(nodes)), strict=True):
        before = Trajectory(trajectory.steps[:-1])
        try:
            prefix = before.tokens
        except BadPoint as error:
            skipped.append(
                Finding("warning", node.id, None, f"its log-probs cannot be derived: {error.what}")
            )
            continue
        if len(prefix) and node.length:
            cases.append(_Case(node, prefix, before))
    return cases, skipped


def _logprobs(cases: Sequence[_Case], policy: Policy, tolerance: float) -> Iterator[Finding]:
    wanted = [case for case in cases if case.node.logprobs_t1 is not None]
    if not wanted:
        return
    if not policy.card.can("scores"):
        what = f"policy {policy.card.name} cannot score given tokens; log-probs were not compared"
        yield Finding("warning", wanted[0].node.id, None, what)
        return
    derived = _derive(policy, wanted)
    for case, again in zip(wanted, derived, strict=True):
        recorded = case.node.logprobs_t1
        if recorded is None:
            continue
        with np.errstate(invalid="ignore"):
            apart = np.abs(again.astype(np.float64) - recorded)
        # Equal infinities differ by nothing.
        # The negation counts NaN as wrong; ``apart > tolerance`` would let it pass.
        wrong = np.flatnonzero(~((apart <= tolerance) | (again == recorded)))
        if wrong.size:
            at = int(wrong[0])
            what = (
                f"log-prob {float(recorded[at]):.6g} is {float(again[at]):.6g} when derived again "
                f"({wrong.size} of {case.node.length} tokens differ)"
            )
            yield Finding("error", case.node.id, at, what, _cause(case, policy, tolerance))


def _derive(policy: Policy, cases: Sequence[_Case]) -> list[FloatArray]:
    whole = [np.concatenate([case.prefix, _ids(case.node)]).astype(np.int32) for case in cases]
    results = prompted_logprobs(policy, whole, [max(len(case.prefix), 1) for case in cases])
    return [result[len(result) - case.node.length :] for case, result in zip(cases, results, strict=True)]


def _ids(node: Node) -> IntArray:
    return node.tokens if node.tokens is not None else np.zeros(0, np.int32)


def _cause(case: _Case, policy: Policy, tolerance: float) -> str:
    """What most likely made the log-probs differ."""
    node = case.node
    if (node.message or {}).get("tool_calls"):
        return "tool parser"
    other = policy.encode(node.text)
    if len(other) and not np.array_equal(other, _ids(node)[: len(other)]):
        joined = np.concatenate([case.prefix, other]).astype(np.int32)
        again = policy.logprobs([joined])[0][-len(other) :]
        recorded = node.logprobs_t1
        size = min(len(other), node.length)
        if recorded is not None and np.allclose(again[:size], recorded[:size], atol=tolerance, rtol=0):
            return "retokenisation: the log-probs belong to the text tokenised anew"
    if node.weights is None or policy.card.weights is None:
        return "other weights"
    return "template: the same weights saw another context, or other arithmetic"


def _redraw(cases: Sequence[_Case], policy: Policy) -> Iterator[Finding]:
    groups: dict[str, list[_Case]] = {}
    for case in cases:
        if case.node.noise is not None and case.node.settings is not None and case.node.error is None:
            groups.setdefault(repr(sorted(case.node.settings.items())), []).append(case)
    if groups and not policy.card.can("paired"):
        first = next(iter(groups.values()))[0].node
        what = f"policy {policy.card.name} does not honour noise keys; nothing was drawn again"
        yield Finding("warning", first.id, None, what)
        return
    for group in groups.values():
        settings = Sampling.from_json(group[0].node.settings or {})
        for case, said in zip(group, sample_all(policy, _requests(group, policy), settings), strict=True):
            if np.array_equal(said.tokens, _ids(case.node)):
                continue
            both = zip(said.tokens, _ids(case.node), strict=False)
            same = (i for i, (a, b) in enumerate(both) if a != b)
            # Where no token differs, one is the beginning of the other: they part where the shorter ends.
            at = next(same, min(len(said.tokens), case.node.length))
            tie = "a tie of rounding, or " if case.node.extra.get("ties") else ""
            what = "its noise key draws other tokens"
            yield Finding("error", case.node.id, at, what, f"{tie}other weights or settings")


def _requests(cases: Sequence[_Case], policy: Policy) -> list[Request]:
    requests = []
    for case in cases:
        noise, extra = case.node.noise, case.node.extra
        if noise is not None:
            requests.append(
                Request(
                    tokens=case.prefix,
                    noise=noise,
                    mid_turn=case.before.leaf.kind == "action",
                    exclude_first=extra.get("excluded_first"),
                    # A turn that began before the fork had less room than its settings say.
                    max_tokens=case.node.length if case.node.finish == "length" else None,
                    generated=turn_begun(case.before, policy.encode),
                )
            )
    return requests
