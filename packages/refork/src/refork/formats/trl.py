"""Rows of TRL: what its trainers take (prompts, completions, preferences, labels) and what they log.

A preference's two sides are branches of one prompt with the score ``preferred``; where a row names no prompt,
it is what both sides begin with. Rewards, advantages and labels become scores. Rows in token ids, as a
``rollout_func`` returns them, keep ids and log-probs.

Source: TRL's data set formats and the completions that its GRPO trainer logs, read in its release 1.16.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import IO, Any, Final, final

from refork.errors import BadInput
from refork.formats.answers import PREFERRED, GradedAnswer, answered, messages_of
from refork.formats.base import Head
from refork.formats.conversation import graded
from refork.formats.log_reader import RowReader
from refork.formats.sampled import TURNS, SampledSequence, draft_id
from refork.json_guard import parse_json
from refork.tree.node import NewNode
from refork.tree.records import Record, Remark
from refork.tree.score import Producer, Score
from refork.types import Json, Message

_PRODUCER: Final = Producer("trl")
_PAIR: Final = frozenset({"chosen", "rejected"})
_IDS: Final = frozenset({"prompt_ids", "completion_ids"})
#: Keys of the rows of verifiers, which have a prompt and a completion too.
_VERIFIERS: Final = frozenset({"example_id", "metrics", "answer", "task", "reward"})
_STEPS: Final = frozenset({"completions", "labels"})
_MASKS: Final = ("env_mask", "tool_mask", "completion_mask")
_LOGPROBS: Final = ("logprobs", "sampling_per_token_logps", "old_per_token_logps")
#: Numbers that set or order something, and grade nothing.
_SETTINGS: Final = frozenset({
    "step", "epoch", "temperature", "top_p", "min_p", "learning_rate", "lr",
    "repetition_penalty", "presence_penalty", "frequency_penalty",
})  # fmt: skip
_GRADES: Final = ("reward", "score", "advantage", "label", "acc", "correct", "success", "pass")
_TEXTS: Final = frozenset({"prompt", "completion", "chosen", "rejected", "completions", "labels", "messages"})
_ARRAYS: Final = frozenset({
    *_IDS, *_MASKS, *_LOGPROBS, "advantages", "logprobs_t1", "ref_logprobs", "ref_per_token_logps",
    "chosen_ids", "rejected_ids", TURNS,
})  # fmt: skip


@final
class TRL(RowReader):
    """Reads TRL's rows, JSON lines or Parquet; a policy tokenises texts, and turns ids to text."""

    name, label = "trl", "TRL"
    order = 64
    binary = True

    def sniff(self, head: Head) -> bool:
        """Whether the first line has the keys of one of TRL's rows."""
        if isinstance(head.first, dict):
            keys = frozenset(head.first)
            others = bool(keys & _VERIFIERS) and not (keys >= _IDS or keys >= _STEPS)
            return self.has(keys) and "messages" not in keys and not others
        start = head.text.lstrip()
        cut = start.startswith(("{", "["))
        return cut and any(all(f'"{key}"' in start for key in keys) for keys in (_PAIR, _IDS))

    def has(self, columns: frozenset[str]) -> bool:
        """Whether rows with these keys are TRL's."""
        if columns >= _PAIR or columns >= _IDS or "messages" in columns:
            return True
        return "prompt" in columns and ("completion" in columns or columns >= _STEPS)

    def write(self, records: Iterable[Record], out: IO[bytes]) -> int:
        """Write records as :class:`.parquet_export.TRLWriter` does; returns how many rows."""
        from refork.formats.parquet_export import TRLWriter

        return TRLWriter().write(records, out)

    def item(self, body: Json, name: str, where: str) -> Iterator[Record]:
        """Records of one row."""
        keys = frozenset(body)
        line = f"trl/{name}"
        if keys >= _IDS:
            yield from self._in_ids(body, line, where)
        elif keys >= _PAIR:
            yield from self._pair(body, line, where)
        elif "prompt" in keys and keys >= _STEPS:
            yield from self._steps(body, line, where)
        elif ("prompt" in keys and "completion" in keys) or "messages" in keys:
            yield from self._completion(body, line, where)
        else:
            raise BadInput(
                "the row has no messages, no prompt with a completion, and no chosen and rejected",
                where=where,
            )

    def _completion(self, body: Json, line: str, where: str) -> Iterator[Record]:
        if "completion" in body:
            prompt = messages_of(body["prompt"], "user", where, "prompt")
            messages = [*prompt, *messages_of(body["completion"], "assistant", where, "completion")]
        else:
            messages = messages_of(body["messages"], "user", where, "messages")
        if not messages:
            raise BadInput("the row has no messages", where=where)
        yield Remark("lost", "token ids, log-probs and times: the file has none", where)
        scores = _scores(body)
        # KTO's label is a truth value, which Parquet may hold as a whole number; others are grades.
        if scores.get("label") in (0, 1):
            scores[PREFERRED] = float(scores.pop("label"))
        yield from graded(self._chat.drafts(messages, _rest(body, where), line, where), _PRODUCER, scores)

    def _pair(self, body: Json, line: str, where: str) -> Iterator[Record]:
        chosen = messages_of(body["chosen"], "assistant", where, "chosen")
        rejected = messages_of(body["rejected"], "assistant", where, "rejected")
        if "prompt_ids" in body and {"chosen_ids", "rejected_ids"} <= body.keys():
            yield from self._pair_in_ids(body, line, where)
            return
        if body.get("prompt") is not None:
            prompt = messages_of(body["prompt"], "user", where, "prompt")
        else:
            prompt, chosen, rejected = _implicit(chosen, rejected)
        yield Remark("lost", "token ids, log-probs and times: the file has none", where)
        sides = [
            GradedAnswer(side, said, _preference(body, side))
            for side, said in (("chosen", chosen), ("rejected", rejected))
        ]
        yield from answered(self._chat, prompt, sides, _rest(body, where), line, where, _PRODUCER)

    def _pair_in_ids(self, body: Json, line: str, where: str) -> Iterator[Record]:
        prompt = body.get("prompt")
        for side in ("chosen", "rejected"):
            one = SampledSequence(
                prompt=body["prompt_ids"],
                completion=body[f"{side}_ids"],
                messages=messages_of(prompt, "user", where, "prompt") if prompt else (),
                answers=messages_of(body[side], "assistant", where, side),
            )
            scores = _preference(body, side)
            yield from self._sampled.records(
                one, _rest(body, where), f"{line}/{side}", where, _PRODUCER, scores
            )

    def _steps(self, body: Json, line: str, where: str) -> Iterator[Record]:
        """Stepwise supervision: an answer in steps, each with its label."""
        texts, labels = body["completions"], body["labels"]
        if not isinstance(texts, list) or not isinstance(labels, list) or len(texts) != len(labels):
            raise BadInput("there is not one label for each of the completions", where=where)
        prompt = messages_of(body["prompt"], "user", where, "prompt")
        new_nodes = list(self._chat.drafts(prompt, _rest(body, where), line, where))
        scores: list[Score] = []
        told: Json = {}
        if texts:
            # What the row tells stands where it ends, which is behind its last step.
            last = new_nodes.pop()
            told = {key: value for key, value in last.extra.items() if key == "line"}
            if last.kind != "verdict":
                plain = {key: value for key, value in last.extra.items() if key != "line"}
                new_nodes.append(replace(last, extra=plain))
        for number, (text, label) in enumerate(zip(texts, labels, strict=True), start=1):
            above = new_nodes[-1]
            key = f"{line}/step/{number}"
            made = NewNode(kind="action", parent=draft_id(above), key=key, text=str(text), origin="real")
            new_nodes.append(made)
            if isinstance(label, (bool, int, float)):
                scores.append(Score(draft_id(made), "label", float(label), _PRODUCER.id))
        if texts:
            new_nodes[-1] = replace(new_nodes[-1], extra=told)
        # The last step has a label of its own.
        row = {name: value for name, value in _scores(body).items() if name != "label"}
        yield from graded(new_nodes, _PRODUCER, row)
        yield _PRODUCER
        yield from scores

    def _in_ids(self, body: Json, line: str, where: str) -> Iterator[Record]:
        prompt = body.get("prompt")
        one = SampledSequence(
            prompt=body["prompt_ids"],
            completion=body["completion_ids"],
            messages=messages_of(prompt, "user", where, "prompt") if prompt else (),
            answers=messages_of(body.get("completion") or [], "assistant", where, "completion"),
            generated_mask=_first(body, _MASKS),
            turns=body.get(TURNS),
            logprobs=_first(body, _LOGPROBS),
            logprobs_t1=body.get("logprobs_t1"),
            ref_logprobs=_first(body, ("ref_logprobs", "ref_per_token_logps")),
            values={"advantage": body["advantages"]} if isinstance(body.get("advantages"), list) else {},
        )
        yield from self._sampled.records(one, _rest(body, where), line, where, _PRODUCER, _scores(body))


def _implicit(chosen: Sequence[Message], rejected: Sequence[Message]) -> tuple[list[Message], ...]:
    """The messages that both sides begin with, and what is left of each."""
    count = 0
    # The last message of a side is its answer, also where both say the same.
    for one, other in zip(chosen[:-1], rejected[:-1], strict=False):
        if one != other:
            break
        count += 1
    return list(chosen[:count]), list(chosen[count:]), list(rejected[count:])


def _first(body: Json, names: Sequence[str]) -> Any:
    return next((body[name] for name in names if body.get(name) is not None), None)


def _scores(body: Json) -> Json:
    """Numbers that grade a row, by name: fractions, truth values, whole numbers that are named so."""
    return {key: value for key, value in body.items() if key not in _SETTINGS and _grades(key, value)}


def _grades(key: str, value: Any) -> bool:
    if isinstance(value, (bool, float)):
        return True
    return isinstance(value, int) and any(word in key.lower() for word in _GRADES)


def _rest(body: Json, where: str) -> Json:
    """What has no place of its own in a tree, as it was; ``extra`` is a text in what Refork writes."""
    kept = {key: value for key, value in body.items() if key not in _TEXTS and key not in _ARRAYS}
    for key in ("extra", "tools"):
        if isinstance(text := kept.get(key), str) and text[:1] in ("{", "["):
            value = parse_json(kept.pop(key).encode(), f"{where}, {key}")
            kept |= value if key == "extra" and isinstance(value, dict) else {key: value}
    return kept


def _preference(body: Json, side: str) -> Json:
    return {PREFERRED: float(side == "chosen"), "score": body.get(f"score_{side}")}
