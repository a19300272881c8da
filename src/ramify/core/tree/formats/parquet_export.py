"""Writes walks as Parquet rows of TRL and of verl: what a tree recorded, and no advantage made up for it.

``ramify train export`` writes what a trainer is to learn from, with credit; this writes the record. A context
of a walk is a row: up to the first turn it is the prompt, from there the completion. Token ids and log-probs
are written where every node of the row has ids, messages always; scores are columns under their names. A row
knows nothing of forks: what walks share stands in each of them.

Source: the columns of TRL 1.16 and verl 0.9, as :mod:`ramify.core.tree.formats.trl` and ``verl`` read them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, Literal, final

import numpy as np

from ramify.core.errors import BadInput
from ramify.core.tree.formats.answers import PREFERRED
from ramify.core.tree.formats.base import Record
from ramify.core.tree.formats.openai_chat import text_of
from ramify.core.tree.formats.parquet import arrow, write_rows
from ramify.core.tree.formats.recorded import continues, recorded, said, scores_of, shown, walks_of
from ramify.core.tree.node import Step, Trajectory
from ramify.core.types import Json, Message

if TYPE_CHECKING:
    from ramify.core.tree.tree import Tree

_LOGPROBS: Final = ("logprobs", "logprobs_t1", "ref_logprobs")
_TOKEN_SCORES: Final = {"advantage": "advantages"}
_VERL: Final = {
    "logprobs": "rollout_log_probs",
    "logprobs_t1": "log_probs_t1",
    "ref_logprobs": "ref_log_prob",
}
_VERL_SCORES: Final = {
    "advantage": "advantages", "token_reward": "token_level_rewards", "token_score": "token_level_scores",
    "return": "returns",
}  # fmt: skip


@final
@dataclass(slots=True)
class _Row:
    """One context of a walk: the steps before the first turn, and those from it on."""

    walk: Trajectory
    before: list[Step]
    after: list[Step]

    def has_ids(self) -> bool:
        """Whether every step that says something has token ids."""
        known = all(step.tokens is not None for step in self.after)
        return known and all(step.tokens is not None or not step.text for step in self.before)


@final
class TRLWriter:
    """Writes rows of prompts and completions for TRL."""

    name = "trl"
    binary: Literal[True] = True

    def write(self, records: Iterable[Record], out: IO[bytes]) -> int:
        """Write a row for each context of each walk in which something was said; how many."""
        with recorded(records) as tree:
            grades = _Grades.of(tree)
            ids, floats = _lists()
            fields = [*_conversation(), ("prompt_ids", ids), ("completion_ids", ids), ("env_mask", ids)]
            fields += [(name, floats) for name in (*_LOGPROBS, *_TOKEN_SCORES.values())]
            rows = (_trl(row, grades) for row in _rows(tree))
            return write_rows(
                _some(rows, "walks in which something was said"), out, _schema(fields, grades.names)
            )


@final
class TRLPairsWriter:
    """Writes preferences for TRL: of two branches of one prompt, the one with ``preferred`` 1 is chosen."""

    name = "trl-pairs"
    binary: Literal[True] = True

    def write(self, records: Iterable[Record], out: IO[bytes]) -> int:
        """Write a row for each rejected branch that has a chosen one beside it; how many."""
        with recorded(records) as tree:
            ids, _ = _lists()
            messages = _messages_type()
            fields = [
                ("prompt", messages),
                ("chosen", messages),
                ("rejected", messages),
                ("tools", _text_type()),
            ]
            fields += [(name, ids) for name in ("prompt_ids", "chosen_ids", "rejected_ids")]
            fields += [(name, _number_type()) for name in ("score_chosen", "score_rejected")]
            rows = _some(_pairs(tree), f"branches with the score {PREFERRED!r}")
            return write_rows(rows, out, _schema(fields, ()))


@final
class VerlWriter:
    """Writes batches of verl, unpadded, for walks with token ids; single answers as texts for the others."""

    name = "verl"
    binary: Literal[True] = True

    def write(self, records: Iterable[Record], out: IO[bytes]) -> int:
        """Write a row for each context of each walk that verl's columns can hold; how many."""
        with recorded(records) as tree:
            grades = _Grades.of(tree)
            ids, floats = _lists()
            fields = [(name, _text_type()) for name in ("uid", "data_source", "leaf", "extra")]
            fields += [("prompts", ids), ("responses", ids), ("response_mask", ids)]
            fields += [(name, floats) for name in (*_VERL.values(), *_VERL_SCORES.values())]
            rows = (_verl(row, grades) for row in _rows(tree) if row.has_ids())
            return write_rows(_some(rows, "walks with token ids"), out, _schema(fields, grades.names))


def _some(rows: Iterator[Json], what: str) -> Iterator[Json]:
    """Rows; BadInput where there are none."""
    first = next(rows, None)
    if first is None:
        raise BadInput(f"the tree has no {what}, so there is nothing to write in this format")
    yield first
    yield from rows


def _rows(tree: Tree) -> Iterator[_Row]:
    for walk in walks_of(tree):
        cuts = [at for at, step in enumerate(walk.steps) if step.node.kind == "rewrite"]
        for start, end in zip([0, *cuts], [*cuts, len(walk.steps)], strict=True):
            steps = [step for step in walk.steps[start:end] if step.node.kind != "verdict"]
            first = next((at for at, step in enumerate(steps) if step.node.kind == "action"), None)
            if first is not None:
                # A row that was imported said itself where its prompt ends.
                first = 1 if steps[0].node.key.startswith("sampled/") else first
                yield _Row(walk, steps[:first], steps[first:])


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

    def end(self, walk: Trajectory) -> dict[str, float]:
        """The scores of a walk's end and of the verdict on it, by the newest producer of each name."""
        count = 2 if walk.leaf.kind == "verdict" else 1
        nodes = [step.node for step in walk.steps[-count:]]
        found = [score for node in nodes for score in scores_of(self.tree, node)]
        newest = sorted(found, key=lambda score: self.order[score.producer])
        return {one.name: float(one.value) for one in newest if not isinstance(one.value, np.ndarray)}

    def tokens(self, row: _Row) -> dict[str, list[float]]:
        """The scores that every turn of a row has one of for each token, 0 where something was shown."""
        given = [
            {
                one.name: one.value
                for one in scores_of(self.tree, step.node)
                if isinstance(one.value, np.ndarray)
            }
            for step in row.after
        ]
        found: dict[str, list[float]] = {}
        for name in {name for one in given for name in one}:
            values: list[float] | None = []
            for step, one in zip(row.after, given, strict=True):
                values = _more(values, step, one.get(name))
            if values is not None:
                found[name] = values
        return found


def _conversations(row: _Row) -> tuple[list[Json], list[Json]]:
    """Prompt and completion as messages."""
    prompt = [message for step in row.before for message in shown(step)]
    completion: list[Message] = []
    turn: list[Step] = []
    before: Step | None = None

    def flush() -> None:
        message = said(turn) if turn else None
        if message is not None:
            completion.append(message)
        turn.clear()

    for step in row.after:
        if step.node.kind != "action":
            flush()
            completion.extend(shown(step))
        else:
            if not continues(step, before):
                flush()
            turn.append(step)
        before = step
    flush()
    return [_message(one) for one in prompt], [_message(one) for one in completion]


def _message(message: Message) -> Json:
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


def _ids(row: _Row, grades: _Grades) -> Json:
    """Token ids of a row and what is known of each."""
    said_by = [(step.node.kind == "action", len(_tokens(step))) for step in row.after]
    made: Json = {"prompt": _joined(row.before), "completion": _joined(row.after)}
    made["mask"] = [int(speaks) for speaks, count in said_by for _ in range(count)]
    for name in _LOGPROBS:
        values: list[float] | None = []
        for step in row.after:
            values = _more(values, step, getattr(step.node, name))
        made[name] = values
    return made | {"scores": grades.tokens(row)}


def _more(values: list[float] | None, step: Step, given: Any) -> list[float] | None:
    """Numbers with those of another step: 0 for what was shown, as trainers have it; None once one lacks."""
    count = len(_tokens(step))
    if values is None or step.node.kind != "action":
        return None if values is None else [*values, *([0.0] * count)]
    if given is None:
        return values if not count else None
    return [*values, *(float(value) for value in given[:count])]


def _tokens(step: Step) -> Sequence[Any]:
    return [] if step.tokens is None else step.tokens.tolist()


def _joined(steps: Sequence[Step]) -> list[int]:
    return [token for step in steps for token in _tokens(step)]


def _line(row: _Row) -> Json:
    """What an import kept of the row that this walk was read from."""
    line = row.walk.leaf.extra.get("line")
    return dict(line) if isinstance(line, dict) else {}


def _told(row: _Row, grades: _Grades, kept: Json) -> Json:
    """The columns that every row has: its group, its leaf, its scores, and what else was recorded of it."""
    made: Json = {
        "group": str(kept.pop("group", row.walk.root.id)),
        "leaf": str(kept.pop("leaf", row.walk.leaf.id)),
    }
    scores = grades.end(row.walk)
    for name in grades.names:
        kept.pop(name, None)
        made[name] = scores.get(name)
    return made | {"extra": json.dumps(kept, ensure_ascii=False) if kept else None}


def _trl(row: _Row, grades: _Grades) -> Json:
    prompt, completion = _conversations(row)
    tools = row.walk.root.extra.get("tools")
    made: Json = {"prompt": prompt, "completion": completion}
    made |= _told(row, grades, _line(row))
    made["tools"] = json.dumps(tools, ensure_ascii=False) if tools else None
    if row.has_ids():
        ids = _ids(row, grades)
        made |= {"prompt_ids": ids["prompt"], "completion_ids": ids["completion"], "env_mask": ids["mask"]}
        made |= {name: ids.get(name) for name in _LOGPROBS}
        made |= {column: ids["scores"].get(name) for name, column in _TOKEN_SCORES.items()}
    return made


def _verl(row: _Row, grades: _Grades) -> Json:
    ids = _ids(row, grades)
    kept = _line(row)
    source = kept.pop("data_source", row.walk.root.extra.get("world") or "ramify")
    kept |= {"group": kept.pop("uid")} if "uid" in kept else {}
    told = _told(row, grades, kept)
    made: Json = {"uid": told.pop("group"), "data_source": str(source), **told}
    made |= {"prompts": ids["prompt"], "responses": ids["completion"], "response_mask": ids["mask"]}
    made |= {column: ids.get(name) for name, column in _VERL.items()}
    return made | {column: ids["scores"].get(name) for name, column in _VERL_SCORES.items()}


def _pairs(tree: Tree) -> Iterator[Json]:
    """Chosen and rejected walks that part nearest to their ends, each rejected one once."""
    grades = _Grades.of(tree)
    for task in tree.tasks():
        walks = tree.paths(list(tree.leaves(task)))
        graded = [(walk, grades.end(walk)) for walk in walks]
        chosen = [(walk, scores) for walk, scores in graded if scores.get(PREFERRED) == 1.0]
        for walk, scores in graded:
            if scores.get(PREFERRED) != 0.0 or not chosen:
                continue
            best = max(chosen, key=lambda one: _common(one[0], walk))
            yield _pair(best[0], walk, best[1].get("score"), scores.get("score"))


def _common(one: Trajectory, other: Trajectory) -> int:
    """How many steps two walks share."""
    count = 0
    for first, second in zip(one.steps, other.steps, strict=False):
        if first.node.id != second.node.id or first.keep != second.keep:
            break
        count += 1
    return count


def _pair(chosen: Trajectory, rejected: Trajectory, better: float | None, worse: float | None) -> Json:
    at = _common(chosen, rejected)
    sides = [_Row(walk, list(walk.steps[:at]), list(walk.steps[at:])) for walk in (chosen, rejected)]
    tools = chosen.root.extra.get("tools")
    prompt = _conversations(_Row(chosen, [], list(chosen.steps[:at])))[1]
    made: Json = {"prompt": prompt, "tools": json.dumps(tools, ensure_ascii=False) if tools else None}
    made |= {"score_chosen": better, "score_rejected": worse}
    for name, side in zip(("chosen", "rejected"), sides, strict=True):
        made[name] = _conversations(side)[1]
        if all(one.has_ids() for one in sides):
            made |= {"prompt_ids": _joined(side.before), f"{name}_ids": _joined(side.after)}
    return made


def _schema(fields: Sequence[tuple[str, Any]], names: Sequence[str]) -> Any:
    taken = {name for name, _ in fields}
    if clash := sorted(taken & set(names)):
        raise BadInput(f"a score is named {clash[0]!r}, as a column of this format is")
    return arrow().schema([*fields, *((name, _number_type()) for name in names)])


def _conversation() -> list[tuple[str, Any]]:
    texts = [(name, _text_type()) for name in ("tools", "group", "leaf", "extra")]
    return [("prompt", _messages_type()), ("completion", _messages_type()), *texts]


def _messages_type() -> Any:
    pa = arrow()
    text = pa.string()
    function = pa.struct([("name", text), ("arguments", text)])
    call = pa.struct([("id", text), ("type", text), ("function", function)])
    names = ("role", "content", "name", "tool_call_id", "reasoning_content")
    return pa.list_(pa.struct([*((name, text) for name in names), ("tool_calls", pa.list_(call))]))


def _lists() -> tuple[Any, Any]:
    pa = arrow()
    return pa.list_(pa.int64()), pa.list_(pa.float32())


def _text_type() -> Any:
    return arrow().string()


def _number_type() -> Any:
    return arrow().float64()
