"""What the viewer's page is told, as plain data: the same for the live server and for a file to share."""

from __future__ import annotations

import base64
import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.forking.arm import Fork
from refork.forking.effect import Effect, compare
from refork.forking.recorded import Pair, change_in_words, pairs, recorded_arm
from refork.forking.report import arm_summary
from refork.plain import from_json
from refork.report.data import EffectData, RateData
from refork.report.diff import Piece
from refork.tree.browse import Filter, Order
from refork.tree.divergence import DiffRow, divergence
from refork.tree.node import Node
from refork.tree.view import LineView, Subtree, TreeView
from refork.tree.window import Lines
from refork.types import Json

#: Tokens and characters of a node that are told at once; the page asks for more.
TOKENS: Final = 3000
CHARACTERS: Final = 20_000
#: Longest text of one token, and of a node's note.
TOKEN_TEXT: Final = 2000
NOTE: Final = 4000
#: Steps of a trajectory, nodes of one request, pairs of arms in a list, draws of an effect.
STEPS: Final = 100_000
NODES: Final = 100
PAIRS: Final = 300
DRAWS: Final = 1000
_ARRAYS: Final = ("logprobs", "logprobs_t1", "ref_logprobs", "entropy")


def number(value: float | None) -> float | None:
    """A number that JSON can hold: six significant decimals; None for what is none."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def tree(view: TreeView, name: str) -> Json:
    """A tree's own facts: what can be chosen from."""
    return {
        "name": name,
        "version": view.version(),
        "nodes": len(view.tree),
        "scores": view.score_names(),
        "arrays": view.array_names(),
        "all_scores": view.all_score_names(),
        "worlds": view.worlds(),
        "policies": view.policies(),
    }


def tasks(view: TreeView, wanted: Filter, order: Order, start: int, count: int, score: str | None) -> Json:
    """A page of tasks."""
    page = view.tasks(wanted, order, start, count, score)
    rows = [asdict(line) | {"mean": number(line.mean)} for line in page.tasks]
    return {"tasks": rows, "total": page.total, "all": page.all, "start": start, "version": view.version()}


def _packed(values: NDArray[Any], kind: str) -> str:
    return base64.b64encode(values.astype(kind).tobytes()).decode()


def shape(lines: Lines, version: str) -> Json:
    """All lines of a task as columns: little-endian int32 and float32 (NaN: no score), base64."""
    return {
        "version": version,
        "task": lines.task,
        "score": lines.score,
        "joined": lines.joined,
        "count": len(lines),
        "nodes": len(lines.order),
        "rows": _packed(lines.rows, "<i4"),
        "levels": _packed(lines.levels, "<i4"),
        "sizes": _packed(lines.sizes, "<i4"),
        "means": _packed(lines.means, "<f4"),
    }


def window(view: TreeView, lines: Lines, wanted: Sequence[int]) -> Json:
    """What some lines show."""
    return {"lines": [_line(one) for one in view.window(lines, wanted)]}


def _line(one: LineView) -> Json:
    told = {name: getattr(one, name) for name in ("line", "last", "span", "below", "leaves", "simulated")}
    parts = [asdict(part) | {"value": number(part.value)} for part in one.parts]
    return told | {"mean": number(one.mean), "scored": one.scored, "parts": parts}


def walk(view: TreeView, node: str) -> Json:
    """The steps from the task to a node: ids, and how many tokens each keeps."""
    found = view.tree.path(node)
    if len(found) > STEPS:
        raise BadInput(f"this trajectory has {len(found):,} steps", hint=f"at most {STEPS:,} are shown")
    steps = [{"id": step.node.id, "keep": step.keep, "kind": step.node.kind} for step in found]
    return {"leaf": found.leaf.id, "task": found.root.id, "steps": steps, "version": view.version()}


def nodes(view: TreeView, ids: Sequence[str]) -> Json:
    """Nodes with their texts, token by token where offsets are recorded."""
    if len(ids) > NODES:
        raise BadInput(f"{len(ids)} nodes at once", hint=f"at most {NODES}")
    found = view.tree.nodes(ids)
    counts = view.branch_counts(ids)
    return {"nodes": [_node(view, node, counts.get(node.id, {})) for node in found]}


def _node(view: TreeView, node: Node, branches: dict[int | None, int]) -> Json:
    scores, arrays = _scores(view, node)
    told = {
        name: getattr(node, name)
        for name in (
            "id", "parent", "keep", "kind", "depth", "state_key", "policy", "weights", "settings", "fork",
            "origin", "finish", "error", "created",
        )
    }  # fmt: skip
    return (
        told
        | {
            "length": len(node.text),
            "count": None if node.tokens is None else node.length,
            "edited": node.key.startswith("edit/"),
            "cost": node.cost.to_json(),
            "noise": None
            if node.noise is None
            else f"{node.noise.seed} · {node.noise.draw} · {node.noise.turn}",
            "note": _note(node),
            "role": None if node.message is None else node.message.get("role"),
            "scores": scores,
            "branches": [{"keep": keep, "count": n} for keep, n in sorted(branches.items(), key=_keep)],
            "arms": sum(1 for _ in view.tree.forks(node)),
        }
        | _page(node, arrays, 0)
    )


def _keep(item: tuple[int | None, int]) -> float:
    # What goes on behind the whole node comes after what leaves it inside.
    return math.inf if item[0] is None else item[0]


def _note(node: Node) -> Json:
    """A node's extra facts, long ones cut."""
    note: Json = {}
    for key, value in node.extra.items():
        text = value if isinstance(value, str) else repr(value)
        note[key] = text if len(text) <= NOTE else f"{text[:NOTE]}… ({len(text):,} characters)"
    return note


def _scores(view: TreeView, node: Node) -> tuple[dict[str, float | None], dict[str, NDArray[np.float64]]]:
    """Live scores by name, the newest producer's last."""
    values: dict[str, float | None] = {}
    arrays: dict[str, NDArray[np.float64]] = {}
    for score in view.tree.scores(node):
        if isinstance(score.value, np.ndarray):
            arrays[score.name] = score.value
        else:
            values[score.name] = number(score.value)
    return values, arrays


def page(view: TreeView, node: str, start: int) -> Json:
    """More of a long node, from a token or (where none has its own text) a character on."""
    found = view.tree.node(node)
    return _page(found, _scores(view, found)[1], start)


def _page(node: Node, arrays: dict[str, NDArray[np.float64]], start: int) -> Json:
    if node.offsets is None or node.tokens is None:
        end = min(start + CHARACTERS, len(node.text))
        return {"text": node.text[start:end], "next": end if end < len(node.text) else None}
    end = min(start + TOKENS, node.length)
    ends = [0, *node.offsets.tolist()]
    texts = [_cut(node.text[ends[at] : ends[at + 1]]) for at in range(start, end)]
    known = {name: values for name in _ARRAYS if (values := getattr(node, name)) is not None} | arrays
    columns = {name: [number(v) for v in values[start:end].tolist()] for name, values in known.items()}
    rest = end if end < node.length else None
    return {"tokens": texts, "ids": node.tokens[start:end].tolist(), "values": columns, "next": rest}


def _cut(text: str) -> str:
    return text if len(text) <= TOKEN_TEXT else f"{text[:TOKEN_TEXT]}… ({len(text):,} characters)"


def branches(view: TreeView, node: str, score: str | None) -> Json:
    """What grows from a node."""
    found = view.branches(node, score)
    total = sum(view.branch_counts([node]).get(node, {}).values())
    return {"branches": [_branch(one) for one in found], "total": total}


def _branch(one: Subtree) -> Json:
    told = {"leaf": one.leaf, "leaves": one.leaves, "mean": number(one.mean), "scored": one.scored}
    return told | {"child": asdict(one.child) | {"value": number(one.child.value)}}


def diff(view: TreeView, left: str, right: str) -> Json:
    """Where two trajectories part and how they go on."""
    found = divergence(*view.tree.paths([left, right]))
    return {
        "node": found.node.id,
        "keep": found.keep,
        "shared": found.shared,
        "rungs": [_diff_row(one) for one in found.rows],
    }


def _diff_row(one: DiffRow) -> Json:
    told: Json = {}
    for side, node, texts in (("left", one.left, one.before), ("right", one.right, one.after)):
        head = None if node is None else {"id": node.id, "kind": node.kind, "error": node.error}
        told[side] = head and head | {"stretches": _stretches(texts)}
    return told


def _stretches(found: Iterable[Piece]) -> list[Json]:
    """Pieces, the text of a very long one cut."""
    told = []
    for one in found:
        long = len(one.text) > CHARACTERS
        text = f"{one.text[:CHARACTERS]}… ({len(one.text):,} characters)" if long else one.text
        told.append({"text": text, "mark": one.mark})
    return told


def effects(view: TreeView, lines: Lines | None, among: Container[str] | None = None) -> Json:
    """Recorded changes that have a control: of one task, of some nodes, or of the whole tree."""
    found = [pair for pair in pairs(view.tree.forks()) if among is None or pair.changed.node in among]
    if lines is not None:
        places = {node: view.line_of(lines, node) for node in {pair.changed.node for pair in found}}
        found = [pair for pair in found if places[pair.changed.node] is not None]
    told = [_pair(view, pair) for pair in found[:PAIRS]]
    return {"pairs": told, "total": len(found), "version": view.version()}


def _pair(view: TreeView, pair: Pair) -> Json:
    record = pair.changed
    assert record.change is not None
    said = change_in_words(record.change, view.tree.at(record.node, record.token))
    return {
        "control": pair.control.id,
        "changed": record.id,
        "node": record.node,
        "token": record.token,
        "seed": record.seed,
        "what": said.what,
        "before": said.before,
        "after": said.after,
        "policy": record.policy.get("name"),
    }


def effect(view: TreeView, control: str, changed: str, score: str) -> Json:
    """The effect of a recorded change now, with its draws."""
    base, other = recorded_arm(view.tree, control), recorded_arm(view.tree, changed)
    if (base.record.node, base.record.token) != (other.record.node, other.record.token):
        raise BadInput("these arms start at different points")
    return effect_card(base, other, score)


def effect_card(base: Fork, other: Fork, score: str) -> Json:
    """Two arms as a card: the effect where it can be said, else why not; and every pair of draws."""
    told: Json = {"control": base.record.id, "changed": other.record.id, "score": score}
    told |= {"node": base.record.node, "token": base.record.token, "draws": _draws(base, other, score)}
    told |= {"drawn": [len(base.draws), len(other.draws)]}
    try:
        found = compare(base, other, score)
    except BadInput as error:
        diff = other.diff
        said = {"what": diff.what, "before_text": diff.before, "after_text": diff.after} if diff else {}
        return told | {"effect": None, "why": str(error), "change": said}
    return told | {"effect": _effect(found), "why": None, "sentence": found.sentence}


def arm_card(base: Fork, score: str) -> Json:
    """A control alone as a card: how often it succeeded, with its interval."""
    summary = arm_summary(base, score)
    told: Json = {name: number(summary[name]) for name in ("rate", "low", "high")}
    told["scale"] = EffectData(what="", base=RateData(rate=told["rate"])).unit
    alone = told | {"draws": summary["draws"], "graded": summary["graded"], "errors": summary["errors"]}
    place: Json = {"control": base.record.id, "changed": None, "score": score, "drawn": [len(base.draws), 0]}
    place |= {"node": base.record.node, "token": base.record.token, "draws": _draws(base, None, score)}
    return place | {"effect": None, "why": None, "alone": alone}


def _effect(found: Effect) -> Json:
    told = found.to_json()
    scale = from_json(EffectData, told).unit
    told = {key: number(value) if isinstance(value, float) else value for key, value in told.items()}
    return told | {"scale": scale}


def _draws(base: Fork, other: Fork | None, score: str) -> list[Json]:
    left, right = (
        {d.draw: (d, v) for d, v in zip(arm.draws, arm.values(score), strict=True)} if arm else {}
        for arm in (base, other)
    )
    told = []
    for draw in sorted(left.keys() | right.keys())[:DRAWS]:
        sides = [
            None if one is None else {"value": number(one[1]), "leaf": one[0].leaf, "end": one[0].end}
            for one in (left.get(draw), right.get(draw))
        ]
        told.append({"draw": draw, "control": sides[0], "changed": sides[1]})
    return told


def versions(view: TreeView, name: str, start: int, count: int) -> Json:
    """The versions of a score side by side."""
    found = view.side_by_side(name, start, count)
    told = asdict(found)
    for version in told["versions"]:
        version["mean"] = number(version["mean"])
    for node in told["nodes"]:
        node["spread"] = number(node["spread"])
        node["values"] = [number(value) for value in node["values"]]
    return told | {"start": start, "tree_version": view.version()}


def node_scores(view: TreeView, node: str) -> Json:
    """Everything that was ever said of a node."""
    told = []
    for one in view.node_scores(node):
        mean = None if one.array is None or not len(one.array) else number(float(one.array.mean()))
        entry = {"name": one.name, "label": one.label, "value": number(one.value), "array_mean": mean}
        told.append(entry | {"producer": one.producer, "reason": one.reason, "retired": one.retired})
    return {"scores": told}
