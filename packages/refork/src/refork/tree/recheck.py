"""Deriving recorded steps again with the policies that made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from refork.errors import BadPoint, UserError
from refork.policies.base import Policy, Request, Sampling, sample_all
from refork.policies.whitebox import prompted_logprobs
from refork.tree.database import Database
from refork.tree.finding import Finding
from refork.tree.node import Node, Step, Trajectory
from refork.tree.turn import turn_begun
from refork.tree.walks import paths, stream
from refork.types import FloatArray, IntArray

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
    for node, walk in zip(nodes, paths(db, [n.id for n in nodes], [None] * len(nodes)), strict=True):
        before = Trajectory(_before(walk))
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


def _before(walk: Trajectory) -> tuple[Step, ...]:
    return walk.steps[:-1]


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
                    said=turn_begun(case.before, policy.encode),
                )
            )
    return requests
