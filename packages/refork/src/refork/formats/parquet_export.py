"""Writes trajectories as Parquet rows of TRL: what a tree recorded, and no advantage made up for it.

``refork train export`` writes what a trainer is to learn from, with credit, for verl too; this writes the
record. A context of a trajectory is a row: up to the first turn it is the prompt, from there the completion.
Token ids and log-probs are written where every node of the row has ids, messages always; scores are columns
under their names. A row knows nothing of forks: what trajectories share stands in each of them.

Source: the columns of TRL 1.16, as :mod:`refork.formats.trl` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Final, final

import numpy as np

from refork.errors import BadInput
from refork.formats.openai_chat import text_of
from refork.formats.parquet import arrow, write_rows
from refork.formats.recorded import leaf_trajectories, recorded, scores_of
from refork.formats.sampled import TURNS
from refork.plain import canonical, content_hash
from refork.tree.node import Trajectory
from refork.tree.records import Record
from refork.tree.turn import ContextStep, Part, Turn, parts_of
from refork.types import Json

if TYPE_CHECKING:
    from refork.tree.tree import Tree

_LOGPROBS: Final = ("logprobs", "logprobs_t1", "ref_logprobs")
_TOKEN_SCORES: Final = {"advantage": "advantages"}


@final
@dataclass(slots=True)
class _Row:
    """One context of a trajectory: what was shown before the first turn, and everything from it on."""

    trajectory: Trajectory
    before: list[Part]
    after: list[Part]

    def has_ids(self) -> bool:
        """Whether every part that says something has token ids."""
        known = all(part.tokens is not None for part in self.after)
        return known and all(part.tokens is not None or not _messages([part]) for part in self.before)

    def agrees(self) -> bool:
        """Whether the messages of every part are what its token ids say."""
        return all(isinstance(part, Turn) or part.exact for part in (*self.before, *self.after))

    def group(self) -> str:
        """The name of the row's prompt within its task: the task's own where the prompt is the task."""
        task, shown = self.trajectory.root, _messages(self.before)
        steps = [part.step for part in self.before if isinstance(part, ContextStep)]
        cut = [[step.node.id, step.keep] for step in steps if step.keep is not None]
        root = ContextStep(self.trajectory.steps[0]) if self.trajectory.steps[0].keep is None else None
        ids, own = _joined(self.before), [] if root is None else _tokens(root)
        if not cut and root is not None and canonical(shown) == canonical(_messages([root])) and ids == own:
            return task.id
        return content_hash([task.id, shown, ids, cut])


@final
class TRLWriter:
    """Writes rows of prompts and completions for TRL."""

    name = "trl"
    binary = True

    def write(self, records: Iterable[Record], out: IO[bytes]) -> int:
        """Write a row for each context of each trajectory in which something was said; how many."""
        with recorded(records) as tree:
            grades = _Grades.of(tree)
            rows = (_row(row, grades) for row in _rows(tree))
            first = next(rows, None)
            if first is None:
                raise BadInput(
                    "the tree has no turns of a policy, so there is nothing to write in this format"
                )
            return write_rows(chain([first], rows), out, _schema(grades.names))


def _rows(tree: Tree) -> Iterator[_Row]:
    for trajectory in leaf_trajectories(tree):
        parts = parts_of(trajectory)
        cuts = [
            at
            for at, part in enumerate(parts)
            if part.node.kind == "rewrite" and isinstance(part, ContextStep)
        ]
        for start, end in zip([0, *cuts], [*cuts, len(parts)], strict=True):
            context = parts[start:end]
            first = next((at for at, part in enumerate(context) if isinstance(part, Turn)), None)
            if first is not None:
                # A row that was imported said itself where its prompt ends.
                first = 1 if context[0].node.key.startswith("sampled/") else first
                yield _Row(trajectory, context[:first], _observed_parts(context[first:]))


def _observed_parts(parts: list[Part]) -> list[Part]:
    """Parts without what an episode ended with, where all else has token ids: nobody was shown it."""
    end = len(parts)
    while end and isinstance(parts[end - 1], ContextStep) and parts[end - 1].tokens is None:
        end -= 1
    return parts[:end] if all(part.tokens is not None for part in parts[:end]) else parts


@final
@dataclass(frozen=True, slots=True)
class _Grades:
    """The live scores of a tree: their names, and which producer is newer than which."""

    tree: Tree
    names: tuple[str, ...]
    order: dict[str, int]

    @classmethod
    def of(cls, tree: Tree) -> _Grades:
        """The scores of a tree."""
        names = sorted({one.name for one in tree.stats().scores if not one.retired})
        return cls(tree, tuple(names), {one.id: at for at, one in enumerate(tree.producers())})

    def end(self, trajectory: Trajectory) -> dict[str, float]:
        """The scores of a trajectory's end and of the verdict on it, by the newest producer of each name."""
        count = 2 if trajectory.leaf.kind == "verdict" else 1
        nodes = [step.node for step in trajectory.steps[-count:]]
        found = [score for node in nodes for score in scores_of(self.tree, node)]
        newest = sorted(found, key=lambda score: self.order[score.producer])
        return {one.name: float(one.value) for one in newest if not isinstance(one.value, np.ndarray)}

    def tokens(self, row: _Row) -> dict[str, list[float]]:
        """The scores that all that was said in a row has one of for each token, 0 for the other tokens."""
        arrays = {
            step.node.id: {
                one.name: one.value
                for one in scores_of(self.tree, step.node)
                if isinstance(one.value, np.ndarray)
            }
            for part in row.after
            if isinstance(part, Turn)
            for step in part.steps
        }
        found: dict[str, list[float]] = {}
        for name in {name for one in arrays.values() for name in one}:
            values: list[float] | None = []
            for part in row.after:
                for count, given, node in _spans(part):
                    known = None if node is None else arrays[node].get(name)
                    # Zeros for what was said would be scores that nobody gave: the row lacks the column.
                    if known is None and count and not given:
                        values = None
                    elif values is not None:
                        numbers = [0.0] * count if known is None else known[:count]
                        values += [float(value) for value in numbers]
            if values is not None:
                found[name] = values
        return found


def _spans(part: Part) -> list[tuple[int, bool, str | None]]:
    """Tokens of a part piece by piece: how many, whether nobody said them, and the node of them who did."""
    if isinstance(part, ContextStep):
        return [(len(_tokens(part)), True, None)]
    return [
        (len(piece.tokens), piece.given, None if piece.step is None else piece.step.node.id)
        for piece in part.pieces
        if piece.tokens is not None
    ]


def _messages(parts: Iterable[Part]) -> list[Json]:
    """Parts of a conversation as messages."""
    found: list[Json] = []
    for part in parts:
        if isinstance(part, ContextStep):
            found += map(_message, part.messages)
        elif part.message is not None:
            found.append(_message(part.message))
    return found


def _message(message: Json) -> Json:
    """A message as its columns hold it: text, calls with their arguments as JSON."""
    calls = [
        {
            "id": None if call.get("id") is None else str(call["id"]),
            "type": "function",
            "function": {
                "name": str(call["function"].get("name")),
                "arguments": str(call["function"].get("arguments")),
            },
        }
        for call in message.get("tool_calls") or []
    ]
    made: Json = {"role": message["role"], "content": text_of({"content": message.get("content")})}
    made |= {key: message[key] for key in ("name", "tool_call_id", "reasoning_content") if message.get(key)}
    return made | ({"tool_calls": calls} if calls else {})


def _values(parts: Sequence[Part], name: str) -> list[float] | None:
    """Numbers of all tokens: 0 for what was shown or given, as trainers have it; None once one lacks."""
    values: list[float] = []
    for part in parts:
        found = part.values(name) if isinstance(part, Turn) else np.zeros(len(_tokens(part)))
        if found is None:
            return None
        values += np.where(np.isnan(found), 0.0, found).tolist()
    return values


def _turns(parts: Sequence[Part]) -> str | None:
    """Where the turns begin and what they are made of; None where the mask alone says it."""
    found: list[Json] = []
    at, plain, before = 0, True, False
    for part in parts:
        if isinstance(part, Turn):
            pieces = [
                [len(piece.tokens), len(piece.text), int(piece.given), piece.forced]
                for piece in part.pieces
                if piece.tokens is not None
            ]
            found.append({"start": at, "pieces": pieces})
            # Two turns in a row, and one that says no token, are not to be seen in a mask.
            plain = plain and not before and bool(pieces[0][0]) and len(pieces) == 1
            plain = plain and not (pieces[0][2] or pieces[0][3])
        elif not _messages([part]) or not len(_tokens(part)):
            plain = False
        at += len(_tokens(part))
        before = isinstance(part, Turn)
    return None if plain else json.dumps(found)


def _tokens(part: Part) -> Sequence[int]:
    return [] if part.tokens is None else part.tokens.tolist()


def _joined(parts: Sequence[Part]) -> list[int]:
    return [token for part in parts for token in _tokens(part)]


def _row(row: _Row, grades: _Grades) -> Json:
    """A row's columns; token ids and what is known of each only where they are what the messages say."""
    tools = row.trajectory.root.extra.get("tools")
    line = row.trajectory.leaf.extra.get("line")
    # What an import kept of the row that this trajectory was read from is written back.
    kept: Json = dict(line) if isinstance(line, dict) else {}
    made: Json = {
        "prompt": _messages(row.before),
        "completion": _messages(row.after),
        "tools": json.dumps(tools, ensure_ascii=False) if tools else None,
        "group": str(kept.pop("group", row.group())),
        "leaf": str(kept.pop("leaf", row.trajectory.leaf.id)),
    }
    scores = grades.end(row.trajectory)
    made |= {name: scores.get(name) for name in grades.names}
    kept = {key: value for key, value in kept.items() if key not in grades.names}
    made["extra"] = json.dumps(kept, ensure_ascii=False) if kept else None
    if row.has_ids() and row.agrees():
        mask: list[int] = []
        for part in row.after:
            said = ~part.given if isinstance(part, Turn) else [False] * len(_tokens(part))
            mask += [int(one) for one in said]
        made |= {"prompt_ids": _joined(row.before), "completion_ids": _joined(row.after), "env_mask": mask}
        made |= {name: _values(row.after, name) for name in _LOGPROBS}
        given = grades.tokens(row)
        made |= {column: given.get(name) for name, column in _TOKEN_SCORES.items()}
        made[TURNS] = _turns(row.after)
    return made


def _schema(scores: Sequence[str]) -> Any:
    pa = arrow()
    text, ids, floats = pa.string(), pa.list_(pa.int64()), pa.list_(pa.float32())
    call = pa.struct([
        ("id", text), ("type", text), ("function", pa.struct([("name", text), ("arguments", text)])),
    ])  # fmt: skip
    names = ("role", "content", "name", "tool_call_id", "reasoning_content")
    talk = pa.list_(pa.struct([*((name, text) for name in names), ("tool_calls", pa.list_(call))]))
    fields = [("prompt", talk), ("completion", talk)]
    fields += [(name, text) for name in ("tools", "group", "leaf", "extra")]
    fields += [(name, ids) for name in ("prompt_ids", "completion_ids", "env_mask")]
    fields += [(name, floats) for name in (*_LOGPROBS, *_TOKEN_SCORES.values())]
    fields += [(TURNS, text)]
    if clash := sorted({name for name, _ in fields} & set(scores)):
        raise BadInput(f"a score is named {clash[0]!r}, as a column of this format is")
    return pa.schema([*fields, *((name, pa.float64()) for name in scores)])
